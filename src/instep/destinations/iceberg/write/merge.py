"""The upsert: staged beside the table, merged on a branch, looked at there, published by one fenced commit."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyiceberg.table import Table as IcebergTable

from instep.crash import crashpoint
from instep.destinations.base import Commit, LoadOutcome, Merge, Ref
from instep.destinations.iceberg.commit.commit import TableCommit, marked, new_table
from instep.destinations.iceberg.commit.fence import check_fence
from instep.destinations.iceberg.commit.shard_table import ShardTable, land, staged_schema
from instep.destinations.iceberg.commit.snapshots import Replaced
from instep.destinations.iceberg.evolve.views import in_step
from instep.destinations.iceberg.metadata.catalog import Lake
from instep.destinations.iceberg.metadata.files import data_files, iceberg_schema, latest, null_keys
from instep.destinations.iceberg.metadata.records import (
    current_fields,
    exact_rows,
    load_state,
    read_pending,
    read_table,
    state_record,
)
from instep.destinations.iceberg.metadata.shards import within_of
from instep.destinations.iceberg.metadata.updates import MAIN, ref_is, remove_ref, set_branch
from instep.destinations.iceberg.write.load import IcebergLoads, branch_of, load_ours, overwrite, staging_stem, summary
from instep.destinations.iceberg.write.upsert import Upsert, find_upsert, fits, written
from instep.errors import Conflict, DestinationError, SparkNeeded, StageError
from instep.spark.merge import MergePlan, MergeResult, MergeSettings, run_merge
from instep.stage.spec import StagedFile, SystemColumns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    lake: Lake, spark: SparkSession | None, ref: Ref, files: Sequence[StagedFile], how: Merge, commit: Commit
) -> LoadOutcome:
    """Readers see the rows before or after, and never a half. A crash at any point leaves `main` as it was."""
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
    plan = merge_plan(lake, ref, metadata, files, how, branch_of(table, commit.fence), staged)
    if fits(metadata, files, how, lake.config.upsert_rows) and (found := find_upsert(table, files, how, plan)):
        return _upsert(found, metadata, how, commit)
    if spark is None:
        raise SparkNeeded(
            f"table {'.'.join(ref)} cannot be merged without Spark: it is too large, or has no key of a plain type",
            hint="set `engine: spark` in instep.yml",
        )
    _stage(lake, table, files, how, staged)
    crashpoint("merge.staged")
    base = _branch(table, commit)
    catalog = str(lake.database) if lake.is_sqlite else ""
    settings = MergeSettings(summary(commit) | marked(table), lake.spark_conf(), lake.spark_secrets(), catalog)
    verdict = run_merge(spark, plan, settings)
    crashpoint("merge.merged")
    outcome = _publish(lake, table, base, how, commit, verdict, sum(f.rows for f in files))
    crashpoint("merge.published")
    for name in staged:
        lake.drop_table(name)
    return outcome


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
    """A branch starts at a snapshot: a table without one gets an empty one."""
    if table.metadata.current_snapshot() is not None:
        return table
    change = TableCommit(table)
    change.require(ref_is(MAIN, None))
    change.append([], {})
    return change.land(commit.fence)


def _upsert(found: Upsert, metadata: Mapping[str, Any], how: Merge, commit: Commit) -> LoadOutcome:
    """Return the rows, the deletes and what is recorded in one commit onto the snapshot that was compared."""
    if not found.delta:
        return _note(found.table, metadata, commit, found.outcome)
    crashpoint("merge.staged")
    outcome = found.outcome
    with written(found, commit.fence) as (files, deletes):

        def onto(table: IcebergTable) -> None:
            now = json.loads(table.metadata.model_dump_json())
            change = TableCommit(table)
            change.require(ref_is(MAIN, now["current-snapshot-id"]))
            snapshot = change.delta(files, deletes, summary(commit))
            crashpoint("merge.merged")
            _record(change, now, commit, snapshot, found.rows_after, deletes=_marks(how) and outcome.deleted > 0)
            change.land(commit.fence)

        land(found.table, onto)
    crashpoint("merge.published")
    return outcome


def _note(
    table: IcebergTable, metadata: Mapping[str, Any], commit: Commit, outcome: LoadOutcome | None = None
) -> LoadOutcome:
    """Nothing changed: the cursor moves on all the same."""
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    change = TableCommit(table)
    change.require(ref_is(MAIN, snapshot.snapshot_id))
    rows = exact_rows(metadata, snapshot.snapshot_id)
    _record(change, metadata, commit, snapshot.snapshot_id, rows, deletes=False)
    change.land(commit.fence)
    return outcome or LoadOutcome()


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


def _stage(lake: Lake, table: IcebergTable, files: Sequence[StagedFile], how: Merge, names: Sequence[Ref]) -> None:
    """Staging tables with the target's own field ids, so that Spark reads the very types."""
    lake.ensure_namespace(lake.staging)
    fields = current_fields(json.loads(table.metadata.model_dump_json()))
    own = staged_schema(table) or iceberg_schema(fields)
    parts = (
        (files, iceberg_schema(fields), own),
        (how.keys or how.requested, own.select(*how.key), own.select(*how.key)),
    )
    for staging, (part, schema, staged) in zip(names, parts, strict=False):
        change = new_table(lake.catalog, staging, schema, lake.new_location(staging), {})
        if part:
            change.append(data_files(part, change.metadata, staged), {})
        change.land_new()


def _branch(table: IcebergTable, commit: Commit) -> int:
    """Put this run's branch onto `main`'s snapshot, which it returns."""
    main = table.metadata.current_snapshot()
    assert main is not None
    change = TableCommit(table)
    change.update(set_branch(branch_of(table, commit.fence), main.snapshot_id))
    change.require(ref_is(MAIN, main.snapshot_id))
    change.land(commit.fence)
    return main.snapshot_id


def merge_plan(
    lake: Lake,
    ref: Ref,
    metadata: Mapping[str, Any],
    files: Sequence[StagedFile],
    how: Merge,
    branch: str,
    staged: Sequence[Ref],
) -> MergePlan:
    """What Spark is asked to do. Retained and unread columns are set in new rows only; `meta` counts as a value."""
    table = read_table(ref, metadata)
    system = SystemColumns.of(table, lake.config.prefix)
    stamps = [c for c in (system.synced, system.deleted) if c]
    live = [c.name for c in table.live if c.name not in stamps and c.name not in how.unread]
    kinds = {f.name: f.type for f in current_fields(metadata)}
    now = latest(files, system.synced) if system.synced else None
    since = (*how.since, _spark_type(kinds[how.since[0]])) if how.since else None
    return MergePlan(
        table=(lake.name, *ref),
        branch=branch,
        rows=(lake.name, *staged[0]),
        keys=(lake.name, *staged[1]) if how.keys else (),
        requested=(lake.name, *staged[1]) if how.requested else (),
        key=how.key,
        values=tuple(c for c in live if c not in how.key),
        stamps=tuple(stamps),
        inserted=tuple(kinds),
        at=now if now is not None else time.time_ns() // 1000,
        order=tuple(f.path for f in sorted(files, key=lambda f: (f.chunk, f.path))),
        cursor=how.cursor,
        complete=how.complete,
        deletes=how.deletes,
        synced=system.synced,
        deleted=system.deleted,
        since=since,
        within=within_of(metadata["properties"]),
    )


def _spark_type(stored: Any) -> str:
    return _SPARK_TYPES.get(stored, stored if str(stored).startswith("decimal") else "STRING")


def _publish(
    lake: Lake, was: IcebergTable, base: int, how: Merge, commit: Commit, verdict: MergeResult, staged: int
) -> LoadOutcome:
    """Move `main` to the branch, if the branch holds what it should."""
    ref: Ref = (was.name()[0], was.name()[-1])
    table, metadata = load_ours(lake, ref)
    branch = branch_of(table, commit.fence)
    check_fence(table.metadata, commit.fence, ".".join(ref))
    if branch not in table.metadata.refs:
        raise Conflict(f"table {'.'.join(ref)}: the branch {branch} of this run is gone", hint="run the sync again")
    head = table.metadata.refs[branch].snapshot_id
    outcome = replace(
        _audit(ref, metadata, base, head, how, verdict, staged), absent=verdict.absent, returned=verdict.returned
    )
    left = outcome.deleted or (
        outcome.updated if how.requested else 0
    )  # Spark counts a row that is marked by its key as updated
    deletes = _marks(how) and left > 0
    if table.metadata.current_snapshot_id == base or not isinstance(was, ShardTable):
        change = TableCommit(table)
        change.require(ref_is(MAIN, base), ref_is(branch, head))
        if head != base:
            change.update(set_branch(MAIN, head))
        change.update(remove_ref(branch))
        _record(change, metadata, commit, head, verdict.rows, deletes=deletes)
        change.land(commit.fence)
    else:
        land(was.as_it_was(), lambda now: _replanted(now, base, branch, commit, verdict.rows, deletes=deletes))
    return outcome


def _replanted(table: IcebergTable, base: int, branch: str, commit: Commit, rows: int, *, deletes: bool) -> None:
    """What a shard's merge did on its branch, onto what other shards have committed meanwhile."""
    assert isinstance(table, ShardTable), "a whole table is published as it is"
    metadata, head = json.loads(table.metadata.model_dump_json()), table.metadata.refs[branch].snapshot_id
    now, then = metadata["current-snapshot-id"], table.files_at(base)
    made = table.files_at(head)
    gone, new = ({d.file_path: d for t in one.values() for d in t.delete_files} for one in (then, made))
    replaced = Replaced(
        [t.file for path, t in then.items() if path not in made],
        [d for path, d in gone.items() if path not in new],
        [d for path, d in new.items() if path not in gone],
    )
    change = TableCommit(table)
    change.require(ref_is(MAIN, now), ref_is(branch, head))
    files = [t.file for path, t in made.items() if path not in then]
    snapshot = change.exchange(files, replaced, summary(commit)) if head != base else now
    change.update(remove_ref(branch))
    _record(change, metadata, commit, snapshot, rows, deletes=deletes)
    change.land(commit.fence)


def _marks(how: Merge) -> bool:
    return how.deletes == "soft" and how.since is None


def _audit(
    ref: Ref, metadata: Mapping[str, Any], base: int, head: int, how: Merge, verdict: MergeResult, staged: int
) -> LoadOutcome:
    """Return what was done, if the branch agrees: each staged key once, and as many rows as what was done leads to."""
    before = exact_rows(metadata, base)
    if how.since is not None:
        return LoadOutcome(inserted=staged, deleted=max((before or 0) + staged - verdict.rows, 0))
    summary_of = {s["snapshot-id"]: s["summary"] for s in metadata["snapshots"]}
    outcome = counted(summary_of[head] if head != base else {}, verdict.rows - (before or 0))
    gone = outcome.deleted if how.deletes == "hard" else 0
    grown = before is None or verdict.rows == before + outcome.inserted - gone
    if not grown or not verdict.same or verdict.found != verdict.staged:
        raise StageError(
            f"table {'.'.join(ref)}: after the merge {verdict.staged} staged keys are in {verdict.found} rows, and "
            f"{before} rows became {verdict.rows} by {outcome}; nothing was published",
            hint="the table may hold duplicate keys already: `instep sync --full` rebuilds it",
        )
    return outcome


def counted(properties: Mapping[str, str], grown: int) -> LoadOutcome:
    """Spark's own counts of a MERGE; without them what the number of rows tells."""
    counts = {k.removeprefix(_COUNT): int(v) for k, v in properties.items() if k.startswith(_COUNT)}
    if not counts or min(counts.values()) < 0:
        return LoadOutcome(inserted=max(grown, 0), deleted=max(-grown, 0))
    left = "not-matched-by-source-"
    return LoadOutcome(
        inserted=counts["inserted"],
        updated=counts["matched-updated"],
        deleted=counts[f"{left}updated"] + counts[f"{left}deleted"] + counts.get("matched-deleted", 0),
    )


_COUNT = "spark.merge-into.num-target-rows-"


class IcebergMerges(IcebergLoads):
    """Loads that change single rows."""

    def merge(
        self, spark: SparkSession | None, ref: Ref, files: Sequence[StagedFile], how: Merge, commit: Commit
    ) -> LoadOutcome:
        """Merge the files' rows by key; readers see the rows before or after, and never a half."""
        with in_step(self.lake, ref, (), None, commit.fence):
            return _merge(self.lake, spark, ref, files, how, commit)
