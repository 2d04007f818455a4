"""Loads without Spark: claim, append and overwrite, by adopting the files that the tasks wrote."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from instep.destinations.base import Commit, LoadOutcome, Ref, SparkStart
from instep.destinations.iceberg.commit.commit import TableCommit
from instep.destinations.iceberg.commit.fence import check_fence, claim_updates, claimed_fence
from instep.destinations.iceberg.commit.shard_lake import PartLake
from instep.destinations.iceberg.commit.shard_table import own_data, staged_schema
from instep.destinations.iceberg.evolve.ddl import swap_in
from instep.destinations.iceberg.evolve.views import in_step
from instep.destinations.iceberg.metadata.catalog import Lake, LakeFacet
from instep.destinations.iceberg.metadata.files import arrow_schema, data_files, readable_files
from instep.destinations.iceberg.metadata.partition import partitioning, record_of
from instep.destinations.iceberg.metadata.records import (
    ACCEPTED,
    CHANGES,
    CURSOR,
    FENCE,
    PENDING,
    RUN,
    exact_rows,
    is_copy,
    load_state,
    owned_properties,
    read_pending,
    state_record,
    version_of,
)
from instep.destinations.iceberg.metadata.updates import MAIN, ref_is, remove_properties
from instep.destinations.shared import wait
from instep.errors import Conflict, DestinationError
from instep.stage.files.partitioned import writer_for
from instep.stage.files.place import StorageFolder
from instep.stage.spec import StagedFile, StageSpec, SystemColumns


def split_files(
    lake: Lake, files: Sequence[StagedFile], table: Table, metadata: TableMetadata, commit: Commit
) -> list[StagedFile]:
    """Return files for adoption under the spec of `metadata` (the table's, or the one that it gets); the others are
    copied into a folder of the run, whose removal knows it. Raises StageError for a file that is not what the table
    needs."""
    odd = [f for f in files if f.rows and record_of(f, metadata) is None]
    if not odd:
        return list(files)
    schema = staged_schema(table) or metadata.schema()
    readable_files(odd, metadata, schema)
    spec = StageSpec(
        table=odd[0].table,
        columns=(),
        system=SystemColumns(),
        schema=arrow_schema(schema),
        location=f"{own_data(table)}/{commit.run}-split-{commit.fence}",
        quarantine="",
        run=commit.run,
        synced=0,
        io=lake.io(),
        partition=partitioning(metadata),
    )
    writer = writer_for(spec, 0, 0)
    try:
        for file in odd:
            for batch in _rows(file, spec):
                writer.write(batch)
        return [*(f for f in files if f not in odd), *writer.close()]
    except BaseException:
        writer.abort()
        raise


def _rows(file: StagedFile, spec: StageSpec) -> Iterator[pa.RecordBatch]:
    folder, _, name = file.path.rpartition("/")
    filesystem, path = StorageFolder(folder, spec.io).resolve(name)
    with filesystem.open_input_file(path) as stream, pq.ParquetFile(stream) as parquet:
        for batch in parquet.iter_batches():
            columns = zip(batch.columns, spec.schema, strict=True)
            yield pa.record_batch([c if c.type == f.type else c.cast(f.type) for c, f in columns], schema=spec.schema)


FILES = "instep.files"
CLAIM_TRIES = 20


def load_ours(lake: Lake, ref: Ref) -> tuple[Table, dict[str, Any]]:
    """Return the table and its metadata as JSON; DestinationError if it is not there or not ours."""
    table = lake.load(ref)
    if table is None:
        raise DestinationError(f"table {'.'.join(ref)} is not in the lake", hint="apply the plan that creates it first")
    metadata = lake.deferred_creates.described.get(ref) or json.loads(table.metadata.model_dump_json())
    owned_properties(ref, metadata)
    return table, metadata


def load_readable(lake: Lake, ref: Ref) -> Table:
    """Return a table of ours, or a copy of one."""
    table = lake.load(ref)
    return table if table is not None and is_copy({"properties": table.properties}) else load_ours(lake, ref)[0]


def _claim(table: Table, fence: int) -> None:
    change = TableCommit(table)
    if not isinstance(table.catalog, MetastoreCatalog) and table.metadata.current_snapshot() is None:
        change.append([], {})
    updates, needs = claim_updates(table, change.metadata, fence)
    change.update(*updates)
    change.require(*needs)
    change.land_claim(fence)


def staging_stem(lake: Lake, ref: Ref) -> str:
    """Return how the names of a table's staging tables begin, or of a shard's."""
    whose = [*ref, lake.shard] if isinstance(lake, PartLake) else ref
    return "t" + hashlib.sha256(json.dumps(whose).encode()).hexdigest()[:16] + "_f"


def drop_staging(lake: Lake, ref: Ref, *, below: int) -> None:
    """Drop the staging tables, files included, that runs with a fence lower than `below` left behind."""
    stem = staging_stem(lake, ref)
    for name in lake.names(lake.staging):
        if name.startswith(stem) and int(name.removeprefix(stem).split("_")[0]) < below:
            lake.drop_table((lake.staging, name))


def summary(commit: Commit) -> dict[str, str]:
    """Return the properties in a data commit's snapshot summary."""
    properties = {RUN: commit.run, FENCE: str(commit.fence), CURSOR: commit.cursor, ACCEPTED: commit.accepted}
    return properties | {CHANGES: ",".join(commit.changes)}


def _was_added(metadata: Mapping[str, Any], digest: str) -> bool:
    return any(s["summary"].get(FILES) == digest for s in metadata.get("snapshots", ()))


def _stand_on_main(change: TableCommit) -> None:
    main = change.metadata.current_snapshot()
    change.require(ref_is(MAIN, main.snapshot_id if main else None))


def overwrite(lake: Lake, ref: Ref, files: Sequence[StagedFile], commit: Commit) -> LoadOutcome:
    """Return the files' rows in place of all others; with the waiting generation of a replaced table, if there is
    one."""
    table, metadata = load_ours(lake, ref)
    state, change = load_state(metadata), TableCommit(table)
    _stand_on_main(change)
    if pending := read_pending(ref, metadata):
        swap_in(change, pending, metadata, commit)
        change.update(remove_properties(PENDING))
    staged_files = split_files(lake, files, table, change.metadata, commit)
    snapshot = change.replace(data_files(staged_files, change.metadata, staged_schema(table)), summary(commit))
    rows = sum(f.rows for f in files)
    version = _finish(change, commit, snapshot, rows, deleted=False)
    return LoadOutcome(inserted=rows, deleted=state.rows if state else 0, version=version)


def _finish(change: TableCommit, commit: Commit, snapshot: int, rows: int | None, *, deleted: bool) -> str:
    change.properties(state_record(commit, snapshot, rows, deleted=deleted))
    return version_of(snapshot, change.land(commit.fence).metadata.current_schema_id)


class IcebergLoads(LakeFacet):
    """Loads of whole files."""

    def claim(self, ref: Ref, fence: int) -> None:
        """Take the table for `fence` and clears what dead runs left on it. Raises Fenced if a later run has it."""
        for left in range(CLAIM_TRIES - 1, -1, -1):
            table = self.lake.load(ref)
            if table is None:
                return
            owned_properties(ref, {"properties": table.metadata.properties})
            check_fence(table.metadata, fence, ".".join(ref))
            if claimed_fence(table.metadata) == fence:
                return
            try:
                _claim(table, fence)
            except Conflict:
                if not left:
                    raise
                wait(CLAIM_TRIES - left)
            else:
                drop_staging(self.lake, ref, below=fence)
                return

    def append(
        self, ref: Ref, files: Sequence[StagedFile], commit: Commit, spark: SparkStart | None = None
    ) -> LoadOutcome:
        """Add the files' rows. Files that this run has added already are not added twice."""
        table, metadata = load_ours(self.lake, ref)
        if read_pending(ref, metadata):
            raise DestinationError(
                f"table {'.'.join(ref)} was replaced and its new rows have not been loaded", hint="load the whole table"
            )
        digest = hashlib.sha256("\n".join(sorted(f.path for f in files)).encode()).hexdigest()
        if files and _was_added(metadata, digest):
            return LoadOutcome()
        change = TableCommit(table)
        _stand_on_main(change)
        staged_files = split_files(self.lake, files, table, table.metadata, commit)
        adopted = data_files(staged_files, table.metadata, staged_schema(table))
        snapshot = change.append(adopted, summary(commit) | {FILES: digest})
        deleted, added = bool((state := load_state(metadata)) and state.deleted), sum(f.rows for f in files)
        before = exact_rows(metadata, metadata.get("current-snapshot-id") or -1) if state else 0
        rows = None if before is None else before + added
        return LoadOutcome(inserted=added, version=_finish(change, commit, snapshot, rows, deleted=deleted))

    def overwrite(
        self, ref: Ref, files: Sequence[StagedFile], commit: Commit, spark: SparkStart | None = None
    ) -> LoadOutcome:
        """Replace all rows by the files' rows; views follow a new generation."""
        with in_step(self.lake, ref, (), None, commit.fence):
            return overwrite(self.lake, ref, files, commit)
