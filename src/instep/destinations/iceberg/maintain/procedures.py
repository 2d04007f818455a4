# ruff: noqa: S608 - names are ours, values pass through `text`
"""Maintenance of a table of many files by Iceberg's own procedures, whose work grows with the cluster.

A procedure commits by itself and knows no fence. So it works on a stand-in: the table's metadata in a catalog that
lives as long as the procedure and that nobody else has. What it has made there lands in the table by one fenced commit,
which needs the snapshot that it began with. Snapshots expire the other way round: they go by a fenced commit first, and
the procedure then deletes the files that the stand-in shows to be theirs alone.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.snapshots import Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate

from instep.crash import crashpoint
from instep.destinations.base import Commit, Maintained, MaintenanceSpec, Ref
from instep.destinations.iceberg.commit.commit import TableCommit
from instep.destinations.iceberg.commit.new_files import NewFiles
from instep.destinations.iceberg.commit.shard_table import own_data
from instep.destinations.iceberg.evolve.undo import now_ms, undoable
from instep.destinations.iceberg.maintain.compact import MAINTAINED, MANIFESTS, extended, maintained_now
from instep.destinations.iceberg.maintain.expire import expire as expire_here
from instep.destinations.iceberg.maintain.expire import expired_snapshots, let_go, plain
from instep.destinations.iceberg.metadata.catalog import Lake
from instep.destinations.iceberg.metadata.partition import why_not_loaded
from instep.destinations.iceberg.metadata.records import STATE, exact_rows, load_state, read_pending, state_record
from instep.destinations.iceberg.metadata.shards import shard_key_of, shards_of, totals
from instep.destinations.iceberg.metadata.stand_in import stand_in_catalog, without_code
from instep.destinations.iceberg.metadata.updates import MAIN, ref_is, schema_is, set_branch
from instep.destinations.iceberg.write.load import load_ours, summary
from instep.errors import DestinationError
from instep.schema.maintenance import DAY_MS
from instep.spark.destination_table import Procedures, procedures, reaches_files_here
from instep.spark.merge import name, path, text
from instep.stage.files.place import children, delete_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LARGE_FILES = 10_000
"""Files of a table, with delete files, from which on procedures maintain it."""
_NAME = ("m", "t")
_TABLE = ".".join(_NAME)
_NO_AGE = "TIMESTAMP '1970-01-02 00:00:00'"
"""Nothing expires by its age beside what is named."""


def session_for(lake: Lake, ref: Ref, work: MaintenanceSpec) -> SparkSession | None:
    """Return the session that maintains a table by procedures; None for a table that this process maintains: one with
    fewer files, a shared one, or one whose files only the catalog's server lets Spark reach."""
    metadata = lake.metadata([ref]).get(ref)
    if metadata is None or shards_of(metadata["properties"]) or shard_key_of(metadata["properties"]):
        return None
    total = totals(metadata)
    if total.get("data-files", 0) + total.get("delete-files", 0) < LARGE_FILES or not _is_reached(lake):
        return None
    session = work.session()
    return session if session is not None and reaches_files_here(session) else None


def _is_reached(lake: Lake) -> bool:
    """Return whether the destination's properties reach its files: of a REST catalog the server may lend the login."""
    if lake.warehouse.startswith("file://") or lake.config.catalog_type != "rest":
        return True
    return any(name.startswith("s3.") for name in lake.config.catalog_properties)


@dataclass(frozen=True)
class MetadataAlias:
    """A table's metadata under another name, in its own catalog, whose `database` is a file."""

    spark: Procedures
    catalog: str
    database: str
    folder: str
    """Folder of data files."""
    metadata: str
    """Folder of all other files."""
    io: Mapping[str, str] = field(repr=False)

    def call(self, procedure: str, **arguments: str) -> list[dict[str, Any]]:
        return self.spark.call(procedure, {"table": text(_TABLE), **arguments})

    def is_alone(self) -> bool:
        """Return whether all files of the table are in its own place."""
        place = text(plain(self.load().location()) + "/")
        local, other = "regexp_replace(file_path, '^file:/+', '/')", "regexp_replace(file_path, '^[a-z0-9]+://', '')"
        path = f"if(startswith(file_path, 'file:'), {local}, {other})"
        files = f"{name(self.catalog)}.{_TABLE}.all_files"
        return not self.spark.has_rows(f"SELECT 1 FROM {files} WHERE NOT startswith({path}, {place})")

    def load(self) -> Table:
        """Return the table as the procedures have left it."""
        with closing(sqlite3.connect(self.database)) as db:
            [(location,)] = db.execute("SELECT metadata_location FROM iceberg_tables").fetchall()
        return StaticTable.from_metadata(location, dict(self.io))


@contextmanager
def stand_in(lake: Lake, table: Table, session: SparkSession, work: MaintenanceSpec) -> Iterator[MetadataAlias]:
    """Yield a stand-in of the table. Its columns are those of the table, and those that were dropped and may come back:
    what is rewritten keeps their values."""
    stem = f"{work.run}-maintain-{uuid.uuid4().hex[:8]}"
    folder, own = f"{own_data(table)}/{stem}", f"{table.location()}/metadata/{stem}"
    location = f"{own}/00000.metadata.json"
    ToOutputFile.table_metadata(_metadata(lake, table, folder, own), table.io.new_output(location), overwrite=True)
    try:
        with (
            stand_in_catalog(lake, {_NAME: location}) as catalog,
            procedures(session, catalog.settings, catalog.name) as spark,
        ):
            yield MetadataAlias(spark, catalog.name, catalog.database, folder, own, lake.io())
    finally:
        names = children(own, lake.io())
        delete_files(own, lake.io(), [n for n in names if n.endswith(".metadata.json")])


def _metadata(lake: Lake, table: Table, folder: str, own: str) -> Any:
    document = json.loads(table.metadata.model_dump_json())
    ids = undoable(document, lake.config.undo_days)
    schemas = sorted(table.schemas().values(), key=lambda s: s.schema_id)
    old = {f.field_id: f for s in schemas for f in s.fields if f.field_id in ids}
    schema = extended(table, [old[i] for i in sorted(old)])
    others = [s for s in table.metadata.schemas if s.schema_id != schema.schema_id]
    places = {"write.data.path": folder, "write.metadata.path": own}
    properties = without_code(table.metadata.properties) | places
    return table.metadata.model_copy(update={"schemas": [*others, schema], "properties": properties})


def compact(lake: Lake, ref: Ref, session: SparkSession, work: MaintenanceSpec) -> Maintained:
    """Compact small files, rewrite files with deleted rows, and rewrite manifests, in one fenced commit. Raises
    Conflict if the table moves meanwhile."""
    table, metadata = load_ours(lake, ref)
    done, base = _counts_before(table), table.metadata.current_snapshot()
    why = "it has not been loaded yet"
    if base is None or read_pending(ref, metadata) or load_state(metadata) is None or (why := why_not_loaded(metadata)):
        return replace(done, notes=(f"its files are left as they are: {why}",))
    new_files = NewFiles(lake.io())
    with stand_in(lake, table, session, work) as other:
        with new_files.removed_unless_landed(other.folder, other.metadata):
            [rewritten] = other.call("rewrite_data_files", **_rewriting(table, work))
            if _total(_current(other.load()), "delete-files"):  # those of files that are gone leave
                other.call("rewrite_position_delete_files", options="map('rewrite-all', 'true')")
            if len(_current(other.load()).manifests(table.io)) > MANIFESTS:
                other.call("rewrite_manifests", use_caching="false")
            crashpoint("maintain.packed")
            snapshots = _new_snapshots(other.load(), base)
            if not snapshots:
                return done
            names = [n for f in (other.folder, other.metadata) for n in children(f, lake.io())]
            with new_files.landing([n for n in names if not n.startswith(".")]):  # those are checksums of Hadoop
                now = _adopt(table, metadata, snapshots, work)
        crashpoint("maintain.compacted")
    after = _counts_before(now)
    work.on_progress(exact_rows(metadata, base.snapshot_id) or 0, int(rewritten.get("rewritten_bytes_count") or 0))
    return Maintained(
        done.files,
        after.files,
        done.bytes,
        after.bytes,
        done.deletes,
        after.deletes,
        manifests_before=done.manifests,
        manifests=after.manifests,
        rewritten=int(rewritten.get("rewritten_data_files_count") or 0),
        bytes_rewritten=int(rewritten.get("rewritten_bytes_count") or 0),
    )


def expire(lake: Lake, ref: Ref, session: SparkSession, work: MaintenanceSpec) -> tuple[int, int]:
    """Expire snapshots by Spark, which finds and deletes the files that no other snapshot names; return the numbers
    of both."""
    table, metadata = load_ours(lake, ref)
    gone = expired_snapshots(metadata, work.how, now_ms())
    if not gone or table.properties.get("gc.enabled", "true") != "true":
        return expire_here(lake, ref, work)
    with stand_in(lake, table, session, work) as other:
        if not other.is_alone():
            return expire_here(lake, ref, work)
        let_go(table, gone, work)
        crashpoint("maintain.expired")
        ids = ", ".join(map(str, gone))
        counts = other.call("expire_snapshots", snapshot_ids=f"array({ids})", older_than=_NO_AGE, stream_results="true")
        crashpoint("maintain.removed")
    return len(gone), sum(int(n or 0) for name, n in counts[0].items() if name.startswith("deleted_"))


def remove_orphans(lake: Lake, ref: Ref, session: SparkSession, work: MaintenanceSpec) -> int | None:
    """Delete files of a table's folders that nothing names and that are older than the safe age and than every run that
    is alive; return how many. None, and nothing deleted, where Iceberg's own procedure refuses to, or Spark must not
    open the catalog."""
    if not lake.is_for_spark:
        return None
    table = load_ours(lake, ref)[0]
    limit = now_ms() - work.how.orphan_age * DAY_MS
    limit = min(limit, work.live) if work.live is not None else limit
    if limit > now_ms() - DAY_MS or table.properties.get("gc.enabled", "true") != "true":
        return None
    at = datetime.fromtimestamp(limit / 1000, UTC).replace(tzinfo=None).isoformat(" ", "milliseconds")
    count = 0
    with procedures(session, lake.spark_settings, lake.name) as spark:
        for folder in (own_data(table), f"{table.location()}/metadata"):
            arguments = {"table": text(path(ref)), "location": text(folder), "older_than": f"TIMESTAMP '{at}'"}
            count += len(spark.call("remove_orphan_files", arguments))
    return count


def _rewriting(table: Table, work: MaintenanceSpec) -> dict[str, str]:
    how, specs = work.how, {m.partition_spec_id for m in _current(table).manifests(table.io)}
    options = {
        "target-file-size-bytes": how.target_file_size,
        "min-input-files": how.min_files,
        "delete-ratio-threshold": how.delete_ratio,
        "remove-dangling-deletes": "true",
        "rewrite-all": str(work.moving and not specs <= {table.metadata.default_spec_id}).lower(),
    }
    listed = ", ".join(text(str(part)) for option in options.items() for part in option)
    return {"options": f"map({listed})", **({"strategy": "'sort'"} if table.sort_order().fields else {})}


def _current(table: Table) -> Snapshot:
    current_snapshot = table.metadata.current_snapshot()
    assert current_snapshot is not None, "a table without rows is left alone"
    return current_snapshot


def _new_snapshots(table: Table, base: Snapshot) -> list[Snapshot]:
    """Return the snapshots that came after `base`, the oldest first."""
    snapshots, now = list[Snapshot](), _current(table)
    while now.snapshot_id != base.snapshot_id:
        snapshots.append(now)
        parent = table.metadata.snapshot_by_id(now.parent_snapshot_id or -1)
        assert parent is not None, "a procedure goes on from the current snapshot"
        now = parent
    return snapshots[::-1]


def _adopt(table: Table, metadata: Mapping[str, Any], snapshots: Sequence[Snapshot], work: MaintenanceSpec) -> Table:
    """Land what was made on the stand-in, onto the snapshot that it began with; the record of the last load is
    repeated."""
    base, state = _current(table), load_state(metadata)
    assert state is not None, "a table without a load is left alone"
    _check_rows(".".join(table.name()), base, snapshots[-1])
    as_loaded = Commit(state.run, state.fence, state.cursor, state.accepted)
    change = TableCommit(table)
    change.require(ref_is(MAIN, base.snapshot_id))
    change.require(*schema_is(metadata["current-schema-id"], metadata["last-column-id"]))
    own = summary(as_loaded) | {MAINTAINED: work.run}
    change.update(
        *(AddSnapshotUpdate(snapshot=_as_own_snapshot(s, own, metadata["current-schema-id"])) for s in snapshots),
        set_branch(MAIN, snapshots[-1].snapshot_id),
    )
    rows = exact_rows(metadata, base.snapshot_id)
    change.properties({STATE: state_record(as_loaded, snapshots[-1].snapshot_id, rows, deleted=state.deleted)[STATE]})
    change.properties(maintained_now(change))
    return change.land(work.fence).refresh()


def _as_own_snapshot(snapshot: Snapshot, properties: Mapping[str, str], schema: int) -> Snapshot:
    assert snapshot.summary is not None, "procedures say what they have done"
    known = {**snapshot.summary.additional_properties, **properties}
    return snapshot.model_copy(update={"summary": Summary(snapshot.summary.operation, **known), "schema_id": schema})


def _check_rows(name: str, before: Snapshot, after: Snapshot) -> None:
    """Raise DestinationError before rows could be lost."""
    rows, gone, now = _total(before, "records"), _total(before, "position-deletes"), _total(after, "records")
    if not rows - gone <= now <= rows:
        raise DestinationError(
            f"table {name}: {now:,} rows were written in place of {rows:,} with {gone:,} deletes",
            hint="nothing was committed; check the files with `instep verify`",
        )


def _total(snapshot: Snapshot, of: str) -> int:
    assert snapshot.summary is not None, "a snapshot says what it has"
    return int(snapshot.summary.additional_properties.get(f"total-{of}", 0))


def _counts_before(table: Table) -> Maintained:
    total = totals(json.loads(table.metadata.model_dump_json()))
    files, size, deletes = (total.get(k, 0) for k in ("data-files", "files-size", "delete-files"))
    count = len(_current(table).manifests(table.io)) if table.metadata.current_snapshot() else 0
    return Maintained(files, files, size, size, deletes, deletes, manifests_before=count, manifests=count)
