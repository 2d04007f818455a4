"""The upsert: found here or by Spark, written as new rows and position deletes, landed by one fenced commit."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pyiceberg.table import Table as IcebergTable

from instep.crash import crashpoint
from instep.destinations.base import Commit, LoadOutcome, Merge, MergePath, Ref, SparkStart
from instep.destinations.iceberg.commit.commit import TableCommit, new_table
from instep.destinations.iceberg.commit.fence import check_fence
from instep.destinations.iceberg.commit.shard_table import land, own_data, planned, staged_schema
from instep.destinations.iceberg.evolve.views import in_step
from instep.destinations.iceberg.metadata.catalog import Lake
from instep.destinations.iceberg.metadata.files import (
    data_files,
    iceberg_schema,
    null_keys,
    readable_files,
)
from instep.destinations.iceberg.metadata.records import (
    current_fields,
    exact_rows,
    load_state,
    read_pending,
    read_table,
    state_record,
    version_of,
)
from instep.destinations.iceberg.metadata.shards import shard_key_of
from instep.destinations.iceberg.metadata.stand_in import stand_in_of
from instep.destinations.iceberg.metadata.updates import MAIN, ref_is
from instep.destinations.iceberg.write.load import IcebergLoads, load_ours, overwrite, staging_stem, summary
from instep.destinations.iceberg.write.spark_upsert import SparkUpsert, StagedMerge, found_by_spark
from instep.destinations.iceberg.write.upsert import SparkOnly, Upsert, find_upsert, fits_in_process, why_spark
from instep.destinations.rows import latest_time
from instep.errors import DestinationError, SparkNeeded, StageError
from instep.spark.merge import MergePlan, MergeSettings
from instep.stage.files.pyiceberg_code import refuse_local
from instep.stage.spec import StagedFile, SystemColumns

_SPARK_TYPES = {
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "timestamp": "TIMESTAMP_NTZ",
    "timestamptz": "TIMESTAMP",
    "boolean": "BOOLEAN",
}


def _merge(
    lake: Lake, spark: SparkStart | None, ref: Ref, files: Sequence[StagedFile], how: Merge, commit: Commit
) -> LoadOutcome:
    """Merge on a branch: readers see the rows before or after, never half of them, and a crash at any point leaves
    `main` as it was."""
    table, metadata = load_ours(lake, ref)
    check_fence(table.metadata, commit.fence, ".".join(ref))
    if read_pending(ref, metadata):
        # A replaced table has no rows to meet: the whole new table takes its place
        if not how.complete:
            raise DestinationError(
                f"table {'.'.join(ref)} was replaced and its new rows have not been loaded", hint="load the whole table"
            )
        return overwrite(lake, ref, files, commit)
    _check(ref, metadata, files, how)
    table = _with_base(table, commit)
    if not files and not how.complete and not how.keys and not how.requested:
        return _note(table, metadata, commit)
    metadata = json.loads(table.metadata.model_dump_json())
    staged = _staging(lake, ref, how, commit)
    plan = merge_plan(lake, ref, metadata, files, how, staged)
    lacks = why_spark(metadata, files, how, lake.config.upsert_rows)
    computed = lacks or find_upsert(table, files, how, plan)
    if not isinstance(computed, SparkOnly):
        return _land(computed, metadata, how, commit)
    if spark is None or (session := spark()) is None:
        raise SparkNeeded(
            f"table {'.'.join(ref)} cannot be merged without Spark: {computed.why}",
            hint=computed.hint,
        )
    try:
        coming = _stage(lake, table, files, how, staged)
        with (
            _readable(lake, ref, table, staged, plan, commit) as (named, settings),
            found_by_spark(session, coming, named, settings) as upsert,
        ):
            return _land(upsert, metadata, how, commit)
    except StageError:
        check_fence(load_ours(lake, ref)[0].metadata, commit.fence, ".".join(ref))  # a later run drops what is staged
        raise
    finally:
        for name in staged:
            lake.drop_table(name)


@contextmanager
def _readable(
    lake: Lake, ref: Ref, table: IcebergTable, staged: Sequence[Ref], plan: MergePlan, commit: Commit
) -> Iterator[tuple[MergePlan, MergeSettings]]:
    """Yield the plan with the names that its tables have in Spark, and how a session opens them: of a catalog that
    Spark must not open by a stand-in."""
    if lake.is_for_spark:
        yield plan, lake.spark_settings
        return
    for task in planned(table):
        for file in (task.file, *task.delete_files):
            refuse_local(file.file_path)
    copied = {name: lake.catalog.load_table(name) for name in staged} | {ref: table}
    with stand_in_of(lake, copied, f"{own_data(table)}/{commit.run}-merged") as stand_in:
        named = replace(
            plan,
            table=(stand_in.name, *plan.table[1:]),
            rows=(stand_in.name, *plan.rows[1:]),
            keys=(stand_in.name, *plan.keys[1:]) if plan.keys else (),
            requested=(stand_in.name, *plan.requested[1:]) if plan.requested else (),
        )
        yield named, stand_in.settings


def _path(lake: Lake, ref: Ref, metadata: Mapping[str, Any], files: Sequence[StagedFile], how: Merge) -> MergePath:
    """Return where the rows meet; a replaced table has none, and is overwritten."""
    if read_pending(ref, metadata) or fits_in_process(metadata, files, how, lake.config.upsert_rows):
        return "process"
    return "spark"


def _check(ref: Ref, metadata: Mapping[str, Any], files: Sequence[StagedFile], how: Merge) -> None:
    columns = {f.name for f in current_fields(metadata)}
    used = {*how.key, *([how.cursor] if how.cursor else []), *([how.since[0]] if how.since else [])}
    if missing := sorted(used - columns):
        raise DestinationError(f"table {'.'.join(ref)} has no column {missing[0]!r} to merge by", hint="plan again")
    if not how.key and how.since is None:
        raise DestinationError(f"table {'.'.join(ref)} has no key to merge by", hint="use append or full_refresh")
    if nulls := null_keys([*files, *how.keys, *how.requested], how.key):
        raise StageError(f"table {'.'.join(ref)}: {nulls} staged rows have NULL in their key {', '.join(how.key)}")


def _with_base(table: IcebergTable, commit: Commit) -> IcebergTable:
    """Return the table with a snapshot: a branch needs one to start at, so a table without one gets an empty one."""
    if table.metadata.current_snapshot() is not None:
        return table
    change = TableCommit(table)
    change.require(ref_is(MAIN, None))
    change.append([], {})
    return change.land(commit.fence)


def _land(upsert: Upsert | SparkUpsert, metadata: Mapping[str, Any], how: Merge, commit: Commit) -> LoadOutcome:
    """Return the rows, the deletes and what is recorded in one commit onto the snapshot that was compared."""
    outcome = upsert.outcome
    if upsert.empty:
        return _note(upsert.table, metadata, commit, outcome)
    crashpoint("merge.staged")
    with upsert.written(commit) as (files, deletes):

        def onto(table: IcebergTable) -> str:
            now = json.loads(table.metadata.model_dump_json())
            change = TableCommit(table)
            change.require(ref_is(MAIN, now["current-snapshot-id"]))
            snapshot = change.delta(files, deletes, summary(commit))
            crashpoint("merge.merged")
            _record(change, now, commit, snapshot, upsert.rows_after, deletes=_marks(how) and outcome.deleted > 0)
            return version_of(snapshot, change.land(commit.fence).metadata.current_schema_id)

        version = land(upsert.table, onto)
    crashpoint("merge.published")
    return replace(outcome, version=version)


def _note(
    table: IcebergTable, metadata: Mapping[str, Any], commit: Commit, outcome: LoadOutcome | None = None
) -> LoadOutcome:
    """Record a load that changed nothing: the cursor moves on all the same."""
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    change = TableCommit(table)
    change.require(ref_is(MAIN, snapshot.snapshot_id))
    rows = exact_rows(metadata, snapshot.snapshot_id)
    _record(change, metadata, commit, snapshot.snapshot_id, rows, deletes=False)
    version = version_of(snapshot.snapshot_id, change.land(commit.fence).metadata.current_schema_id)
    return replace(outcome or LoadOutcome(), version=version)


def _record(
    change: TableCommit, metadata: Mapping[str, Any], commit: Commit, snapshot: int, rows: int | None, *, deletes: bool
) -> None:
    state = load_state(metadata)
    deleted = deletes or (state is not None and state.deleted)
    record = state_record(commit, snapshot, rows, deleted=deleted)
    change.properties(record)


def _staging(lake: Lake, ref: Ref, how: Merge, commit: Commit) -> list[Ref]:
    """Return the names of this merge's staging tables: rows, then keys if there are any."""
    stem = f"{staging_stem(lake, ref)}{commit.fence}"
    return [(lake.staging, f"{stem}_{n}_{uuid.uuid4().hex[:8]}") for n in range(2 if how.keys or how.requested else 1)]


def _stage(
    lake: Lake, table: IcebergTable, files: Sequence[StagedFile], how: Merge, names: Sequence[Ref]
) -> StagedMerge:
    """Create staging tables with the target's own field ids, so that Spark reads exactly its types."""
    lake.ensure_namespace(lake.staging)
    metadata = json.loads(table.metadata.model_dump_json())
    schema = iceberg_schema(current_fields(metadata))
    own = staged_schema(table) or schema
    ordered = sorted(files, key=lambda f: (f.chunk, f.path))
    parts = (
        (ordered, schema, own),
        (how.keys or how.requested, own.select(*how.key), own.select(*how.key)),
    )
    for staging, (part, kinds, staged) in zip(names, parts, strict=False):
        change = new_table(lake.catalog, staging, kinds, lake.new_location(staging), {})
        if part:
            change.append(data_files(part, change.metadata, staged), {})
        change.land_new()
    return StagedMerge(
        table,
        readable_files(ordered, table.metadata, own),
        sum(f.rows for f in (*files, *how.requested)),
        exact_rows(metadata, metadata["current-snapshot-id"]),
        lake.io(),
    )


def merge_plan(
    lake: Lake,
    ref: Ref,
    metadata: Mapping[str, Any],
    files: Sequence[StagedFile],
    how: Merge,
    staged: Sequence[Ref],
) -> MergePlan:
    """Return what Spark has to do. Retained and unread columns are set in new rows only; `meta` counts as a value."""
    table = read_table(ref, metadata)
    system = SystemColumns.of(table, lake.config.prefix)
    stamps = [c for c in (system.synced, system.deleted) if c]
    live = [c.name for c in table.live if c.name not in stamps and c.name not in how.unread]
    kinds = {f.name: f.type for f in current_fields(metadata)}
    now = latest_time(files, system.synced) if system.synced else None
    since = (*how.since, _spark_type(kinds[how.since[0]])) if how.since else None
    return MergePlan(
        table=(lake.name, *ref),
        rows=(lake.name, *staged[0]),
        keys=(lake.name, *staged[1]) if how.keys else (),
        requested=(lake.name, *staged[1]) if how.requested else (),
        key=how.key,
        values=tuple(c for c in live if c not in how.key),
        stamps=tuple(stamps),
        inserted=tuple(kinds),
        at=now if now is not None else time.time_ns() // 1000,
        cursor=how.cursor,
        complete=how.complete,
        deletes=how.deletes,
        synced=system.synced,
        deleted=system.deleted,
        since=since,
        within=shard_key_of(metadata["properties"]),
    )


def _spark_type(stored: Any) -> str:
    return _SPARK_TYPES.get(stored, stored if str(stored).startswith("decimal") else "STRING")


def _marks(how: Merge) -> bool:
    return how.deletes == "soft" and how.since is None


class IcebergMerges(IcebergLoads):
    """Loads that change single rows."""

    def merge_path(self, ref: Ref, files: Sequence[StagedFile], how: Merge) -> MergePath:
        """Return where the rows of the table and those of the files meet."""
        return _path(self.lake, ref, load_ours(self.lake, ref)[1], files, how)

    def merge(
        self, spark: SparkStart | None, ref: Ref, files: Sequence[StagedFile], how: Merge, commit: Commit
    ) -> LoadOutcome:
        """Merge the files' rows by key; readers see the rows before or after, and never a half."""
        with in_step(self.lake, ref, (), None, commit.fence):
            return _merge(self.lake, spark, ref, files, how, commit)
