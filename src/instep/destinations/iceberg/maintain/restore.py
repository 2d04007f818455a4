"""Puts a table back to a snapshot: its rows, never its schema. What a column is called or stored as by now holds for
the old rows, too: their values are found by field id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from pyiceberg.table import Table as IcebergTable

from instep.destinations.base import Commit, Ref, Savepoint
from instep.destinations.iceberg.commit.commit import TableCommit
from instep.destinations.iceberg.evolve.undo import UNDO, remember_tag
from instep.destinations.iceberg.metadata.catalog import LakeFacet
from instep.destinations.iceberg.metadata.records import (
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
from instep.destinations.iceberg.metadata.updates import MAIN, ref_is, set_branch, set_tag
from instep.destinations.iceberg.write.load import load_ours
from instep.errors import Conflict, DestinationError

_CHECKS = 8
"""Files that are looked for at a time."""


def _savepoint(ref: Ref, metadata: Metadata, found: Mapping[int, Any], id: int, at: int) -> Savepoint:
    summary = found[id]["summary"]
    total = {k: int(v) for k, v in summary.items() if k.startswith("total-")}
    rows = max(total.get("total-records", 0) - total.get("total-position-deletes", 0), 0)
    current, state = id == metadata.get("current-snapshot-id"), load_state(metadata)
    why_not = _why_not(ref, metadata, found[id])
    return Savepoint(
        id,
        datetime.fromtimestamp(at / 1000, UTC),
        summary.get(RUN, ""),
        state.rows if current and state else rows,
        state.cursor if current and state else _cursor(found, id),
        current,
        () if why_not else _later(ref, metadata, found[id]),
        why_not,
        datetime.fromtimestamp(found[id]["timestamp-ms"] / 1000, UTC),
    )


def _cursor(found: Mapping[int, Any], id: int | None) -> str:
    """Return what the last load of ours up to there recorded."""
    while id is not None and id in found:
        if RUN in (summary := found[id]["summary"]):
            return str(summary.get(CURSOR, ""))
        id = found[id].get("parent-snapshot-id")
    return ""


def _fields_at(metadata: Metadata, snapshot: Mapping[str, Any]) -> set[int] | None:
    """Return the field ids of a snapshot's schema; None if that is not kept."""
    number = snapshot.get("schema-id")
    schema = next((s for s in metadata["schemas"] if s.get("schema-id", 0) == number), None)
    return {f.id for f in fields_of(schema)} if schema else None


def _why_not(ref: Ref, metadata: Metadata, snapshot: Mapping[str, Any]) -> str:
    if read_pending(ref, metadata):
        return "the table was replaced at the source and its new rows are not loaded yet"
    fields = _fields_at(metadata, snapshot)
    if fields is None:
        return "its schema is not kept any more"
    if not fields & {f.id for f in current_fields(metadata)}:
        return "its rows are those of an earlier generation: another table of that name"
    return ""


def _later(ref: Ref, metadata: Metadata, snapshot: Mapping[str, Any]) -> tuple[str, ...]:
    """Return columns from a source that came after the snapshot."""
    then, own = _fields_at(metadata, snapshot) or set(), read_table(ref, metadata).by_name
    return tuple(f.name for f in current_fields(metadata) if f.id not in then and own[f.name].alias)


def _check_files(table: IcebergTable, snapshot: int) -> None:
    name = ".".join(table.name())
    found = table.metadata.snapshot_by_id(snapshot)
    if found is None:
        raise DestinationError(f"table {name} has no snapshot {snapshot} any more", hint="see `instep restore --list`")
    missing = list(_missing(table, found))
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
        there = list(pool.map(lambda path: table.io.new_input(path).exists(), paths))
    return [path for path, exists in zip(paths, there, strict=True) if not exists]


class IcebergSavepoints(LakeFacet):
    """Snapshots that a table can be put back to."""

    def savepoints(self, ref: Ref) -> list[Savepoint]:
        """Return what the table's readers have seen, newest first."""
        _, metadata = load_ours(self.lake, ref)
        found = {s["snapshot-id"]: s for s in metadata.get("snapshots", ())}
        seen = {
            e["snapshot-id"]: e["timestamp-ms"] for e in metadata.get("snapshot-log", ()) if e["snapshot-id"] in found
        }
        points = [_savepoint(ref, metadata, found, id, at) for id, at in seen.items()]
        return sorted(points, key=lambda p: (p.at, p.current), reverse=True)

    def rows_at(self, ref: Ref, snapshot: int) -> int:
        """Looks for each of the snapshot's files first; reads those with deleted rows."""
        table, _ = load_ours(self.lake, ref)
        _check_files(table, snapshot)
        return int(table.scan(snapshot_id=snapshot, selected_fields=()).count())

    def restore(self, ref: Ref, snapshot: int, base: int, rows: int, commit: Commit) -> None:
        """One commit: `main` stands on the snapshot, the table's record says so, a tag keeps what was there."""
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
