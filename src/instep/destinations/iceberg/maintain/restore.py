"""Roll a table's rows back to a snapshot, never its schema. What a column is called or stored as now holds for
the old rows, too: their values are found by field id.

A table as it is stays readable under its own name, while the table itself goes on.

No file is copied: the copy's metadata names the table's snapshot, and a tag of the table keeps the files of that
snapshot from being expired. The copy's own metadata is all that is deleted with it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import Table
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot

from instep.destinations.base import Commit, Ref, Savepoint
from instep.destinations.iceberg.commit.commit import TableCommit
from instep.destinations.iceberg.evolve.undo import COPY_TAG, UNDO, now_ms, remember_tag
from instep.destinations.iceberg.metadata.catalog import Lake, LakeFacet
from instep.destinations.iceberg.metadata.records import (
    COPY,
    CURSOR,
    RUN,
    Metadata,
    current_fields,
    load_state,
    read_pending,
    read_table,
    state_record,
)
from instep.destinations.iceberg.metadata.schema import fields_of
from instep.destinations.iceberg.metadata.updates import MAIN, ref_is, remove_ref, set_branch, set_tag
from instep.destinations.iceberg.write.load import IcebergLoads, load_ours
from instep.errors import Conflict, DestinationError

_CHECKS = 8
"""Files that are looked for at a time."""


def _savepoint(ref: Ref, metadata: Metadata, snapshots: Mapping[int, Any], id: int, at: int) -> Savepoint:
    summary = snapshots[id]["summary"]
    total = {k: int(v) for k, v in summary.items() if k.startswith("total-")}
    rows = max(total.get("total-records", 0) - total.get("total-position-deletes", 0), 0)
    current, state = id == metadata.get("current-snapshot-id"), load_state(metadata)
    reason = _reason_not_restorable(ref, metadata, snapshots[id])
    return Savepoint(
        id,
        datetime.fromtimestamp(at / 1000, UTC),
        summary.get(RUN, ""),
        state.rows if current and state else rows,
        state.cursor if current and state else _cursor(snapshots, id),
        current,
        () if reason else _later(ref, metadata, snapshots[id]),
        reason,
        datetime.fromtimestamp(snapshots[id]["timestamp-ms"] / 1000, UTC),
    )


def _cursor(snapshots: Mapping[int, Any], id: int | None) -> str:
    """Return the cursor recorded by our last load up to there."""
    while id is not None and id in snapshots:
        if RUN in (summary := snapshots[id]["summary"]):
            return str(summary.get(CURSOR, ""))
        id = snapshots[id].get("parent-snapshot-id")
    return ""


def _fields_at(metadata: Metadata, snapshot: Mapping[str, Any]) -> set[int] | None:
    """Return the field ids of a snapshot's schema; None if that is not kept."""
    number = snapshot.get("schema-id")
    schema = next((s for s in metadata["schemas"] if s.get("schema-id", 0) == number), None)
    return {f.id for f in fields_of(schema)} if schema else None


def _reason_not_restorable(ref: Ref, metadata: Metadata, snapshot: Mapping[str, Any]) -> str:
    if read_pending(ref, metadata):
        return "the table was replaced at the source and its new rows are not loaded yet"
    fields = _fields_at(metadata, snapshot)
    if fields is None:
        return "its schema is no longer retained"
    if not fields & {f.id for f in current_fields(metadata)}:
        return "its rows are those of an earlier generation: another table of that name"
    return ""


def _later(ref: Ref, metadata: Metadata, snapshot: Mapping[str, Any]) -> tuple[str, ...]:
    """Return columns from a source that came after the snapshot."""
    then, own = _fields_at(metadata, snapshot) or set(), read_table(ref, metadata).by_name
    return tuple(f.name for f in current_fields(metadata) if f.id not in then and own[f.name].alias)


def _check_files(table: IcebergTable, snapshot: int) -> None:
    name = ".".join(table.name())
    main = table.metadata.snapshot_by_id(snapshot)
    if main is None:
        raise DestinationError(f"table {name} no longer has snapshot {snapshot}", hint="see `instep restore --list`")
    missing = list(_missing(table, main))
    if missing:
        raise DestinationError(
            f"table {name}: snapshot {snapshot} lacks {len(missing)} of its files, such as {missing[0]}",
            hint="choose a later snapshot: see `instep restore --list`",
        )


def _missing(table: IcebergTable, snapshot: Any) -> Sequence[str]:
    try:
        manifests = snapshot.manifests(table.io)
        entries = [e for m in manifests for e in m.fetch_manifest_entry(table.io, discard_deleted=True)]
    except FileNotFoundError as error:
        return [str(error.filename or error)]
    paths = [e.data_file.file_path for e in entries]
    with ThreadPoolExecutor(_CHECKS, thread_name_prefix="files") as pool:
        existing = list(pool.map(lambda path: table.io.new_input(path).exists(), paths))
    return [path for path, exists in zip(paths, existing, strict=True) if not exists]


class IcebergSavepoints(LakeFacet):
    """Snapshots that a table can be put back to."""

    def savepoints(self, ref: Ref) -> list[Savepoint]:
        """Return the snapshots that readers have seen, newest first."""
        _, metadata = load_ours(self.lake, ref)
        by_id = {s["snapshot-id"]: s for s in metadata.get("snapshots", ())}
        seen = {
            e["snapshot-id"]: e["timestamp-ms"] for e in metadata.get("snapshot-log", ()) if e["snapshot-id"] in by_id
        }
        points = [_savepoint(ref, metadata, by_id, id, at) for id, at in seen.items()]
        return sorted(points, key=lambda p: (p.at, p.current), reverse=True)

    def rows_at(self, ref: Ref, snapshot: int) -> int:
        """Return the rows of a snapshot after checking that its files exist; files with deleted rows are read."""
        table, _ = load_ours(self.lake, ref)
        _check_files(table, snapshot)
        return int(table.scan(snapshot_id=snapshot, selected_fields=()).count())

    def restore(self, ref: Ref, snapshot: int, base: int, rows: int, commit: Commit) -> None:
        """Point `main` to the snapshot, record it in the table, and tag what was there, in one commit."""
        table, metadata = load_ours(self.lake, ref)
        now = metadata.get("current-snapshot-id")
        if now == snapshot:
            return
        if now != base:
            raise Conflict(f"table {'.'.join(ref)} has changed since it was shown", hint="look again, then restore")
        _check_files(table, snapshot)
        change, tag = TableCommit(table), f"{UNDO}{commit.run}"
        change.update(set_tag(tag, base), set_branch(MAIN, snapshot))
        change.require(ref_is(MAIN, base))
        change.properties(state_record(commit, snapshot, rows, deleted=True))
        change.properties(remember_tag(metadata, tag, commit.fence))
        change.land(commit.fence)


def _is_complete(lake: Lake, place: Ref, table: Table, main: Snapshot) -> bool:
    clone = lake.load(place)
    if clone is None:
        return False
    record = json.loads(clone.metadata.properties.get(COPY, "{}"))
    if (record.get("uuid"), record.get("snapshot")) != (str(table.metadata.table_uuid), main.snapshot_id):
        raise Conflict(f"table {'.'.join(place)} is there already", hint="rename or purge that one first")
    return True


def _register(lake: Lake, table: Table, main: Snapshot, place: Ref, tag: str, commit: Commit) -> None:
    location = lake.new_location(place)
    record = {"uuid": str(table.metadata.table_uuid), "snapshot": main.snapshot_id, "tag": tag, "at": now_ms()}
    path = f"{location}/metadata/00000-{uuid.uuid4()}.metadata.json"
    metadata = _alone(table.metadata, main, location, {COPY: json.dumps(record), RUN: commit.run})
    try:
        ToOutputFile.table_metadata(metadata, table.io.new_output(path), overwrite=True)
        lake.catalog.register_table(place, path)
    except TableAlreadyExistsError as error:
        raise Conflict(f"table {'.'.join(place)} is there already", hint="rename or purge that one first") from error


def _alone(metadata: TableMetadata, main: Snapshot, location: str, record: dict[str, str]) -> TableMetadata:
    """Return the metadata of a table that has never had another snapshot; nobody who drops it deletes the shared
    files."""
    own = {name: value for name, value in metadata.properties.items() if not name.startswith("instep.")}
    return metadata.model_copy(
        update={
            "table_uuid": uuid.uuid4(),
            "location": location,
            "properties": {**own, **record, "gc.enabled": "false"},
            "snapshots": [main],
            "refs": {MAIN: SnapshotRef.model_validate({"snapshot-id": main.snapshot_id, "type": "branch"})},
            "snapshot_log": [],
            "metadata_log": [],
        }
    )


def _claimed(lake: Lake, table_uuid: str, fence: int) -> Table | None:
    """Return the table that the copy was made of, whatever it is called now; claimed, unless it waits as dropped."""
    refs = lake.refs()
    ref = next((r for r, m in lake.metadata(refs).items() if m.get("table-uuid") == table_uuid), None)
    if ref is not None and ref[0] != lake.dropped:
        IcebergLoads(lake).claim(ref, fence)
    return lake.load(ref) if ref else None


class IcebergClones(LakeFacet):
    """Copies of tables: the same files under another name."""

    def clone_table(self, ref: Ref, place: Ref, commit: Commit) -> int | None:
        """Make the copy and returns its rows, soft-deleted ones included; None, and no copy, for a table without
        rows.  A copy of this very snapshot that is there already is fine; Conflict if anything else has the name."""
        table, metadata = load_ours(self.lake, ref)
        main = table.metadata.current_snapshot()
        state = load_state(metadata)
        if main is None or (state is not None and state.rows == 0):
            return None
        if not _is_complete(self.lake, place, table, main):
            tag = f"{COPY_TAG}{place[1]}"
            if tag not in table.metadata.refs:
                change = TableCommit(table)
                change.update(set_tag(tag, main.snapshot_id))
                change.require(ref_is(MAIN, main.snapshot_id))
                change.land(commit.fence)
            _register(self.lake, table, main, place, tag, commit)
        if state is not None:
            return state.rows
        return int(main.summary.additional_properties.get("total-records", 0)) if main.summary else 0

    def purge_clone(self, place: Ref, fence: int) -> None:
        """Delete a clone; files that only it still names are the table's to expire. Do nothing if it is gone. Raises
        DestinationError for a table that is no clone."""
        clone = self.lake.load(place)
        if clone is None:
            return
        if COPY not in clone.metadata.properties:
            raise DestinationError(
                f"table {'.'.join(place)} is not a copy made by instep", hint="it is left alone: look at it first"
            )
        recorded = json.loads(clone.metadata.properties[COPY])
        if (table := _claimed(self.lake, recorded["uuid"], fence)) is not None and recorded[
            "tag"
        ] in table.metadata.refs:
            change = TableCommit(table)
            change.update(remove_ref(recorded["tag"]))
            change.land(fence)
        with suppress(NoSuchTableError):
            self.lake.catalog.drop_table(place)
        with suppress(OSError):
            clone.io.delete(clone.metadata_location)
