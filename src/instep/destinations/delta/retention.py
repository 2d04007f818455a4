"""Retention of a Delta warehouse: dropped columns and tables until they expire, old files, and copies."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from instep.destinations.base import Commit, Ref, UndropReport
from instep.destinations.delta.change import DeltaCommit, begin
from instep.destinations.delta.ddl import drop
from instep.destinations.delta.files import Writing, io_of, path_of, rows_in, write
from instep.destinations.delta.protocol.deletion_vectors import deleted_rows
from instep.destinations.delta.protocol.log import DeltaLog
from instep.destinations.delta.protocol.snapshot import Action
from instep.destinations.delta.table_state import DeltaTableState, find, named, require, state_at, with_stored
from instep.destinations.delta.warehouse import DeltaFacet, ObjectWarehouse, Warehouse
from instep.destinations.shared import retry_commit
from instep.destinations.sql.evolve import latest
from instep.errors import Conflict, DestinationError, InstepError
from instep.stage.files.object_store import ObjectPath
from instep.stage.files.place import children, clear_errors, delete_files, keep_only


def version_before(state: DeltaTableState, version: int) -> DeltaTableState | None:
    """Return the table at an earlier version, if all of it is still there."""
    with suppress(InstepError, OSError):
        snapshot = state.log.snapshot(version)
        before = state_at(state.log, state.ref, snapshot, state.record.within)
        if before is not None and all(path_of(before, f).exists() for f in before.files):
            return before
    return None


def _columns(warehouse: Warehouse, ref: Ref, fence: int) -> list[str]:
    state = find(warehouse, ref)
    if state is None or state.record.copy:
        return []
    state.record.check(fence)
    old = [p for p in state.record.parked if warehouse.old(p.at)]
    if old:
        left = tuple(p for p in state.record.parked if p not in old)
        waits = {p: f for p, f in state.parked.items() if p in {x.place for x in left}}
        record = with_stored(replace(state.record, parked=left, version=state.record.version + 1), state.fields, waits)
        DeltaCommit(state, record).land("FORGET", Commit("", fence), warehouse)
    return [f"{named(state.ref)}.{p.name}" for p in old]


def _copied(state: DeltaTableState, log: DeltaLog, file: Action, run: str) -> list[Action]:
    """Return the file below the copy's folder, so that neither table needs the other: a link, or a copy that the object
    store makes. One with deleted rows is written without them."""
    if deleted_rows(file):
        return write(replace(state, log=log), state.layout, Writing(run), rows_in(state, file, state.layout), state.by)
    source = path_of(state, file)
    target = log.table / "data" / source.name
    if isinstance(source, ObjectPath) and isinstance(target, ObjectPath):
        source.copy_to(target)
        return [{**file, "path": f"data/{source.name}"}]
    assert isinstance(source, Path)
    assert isinstance(target, Path)
    with clear_errors(str(target)):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        os.link(source, target)
    return [{**file, "path": f"data/{source.name}"}]


ALIVE = 3_600
"""Seconds: no commit takes longer, and other shards may be at one."""


class DeltaRetention(DeltaFacet):
    """Removal of what killed runs left behind and of dropped tables and columns."""

    def dropped(self, ref: Ref, source_id: str | None) -> bool:
        """Return whether the table of this name and source id was dropped and waits, or is back."""
        return find(self.warehouse, ref) is not None or self.warehouse.parked(ref, source_id) is not None

    def undrop_report(self, ref: Ref, column: str) -> UndropReport:
        """Report what an undrop would bring back. The dropped column is still in the files: rows loaded since have
        no value in it, but the version before the drop is retained as well."""
        table_state = find(self.warehouse, ref)
        if table_state is None:
            return UndropReport(f"table {named(ref)} is not there")
        old = latest(table_state.record.parked, column)
        if old is None:
            back = column in table_state.record.table.by_name.keys() & {f.name for f in table_state.fields}
            return UndropReport() if back else UndropReport(f"column {column!r} is no longer retained")
        return UndropReport(
            written=old.written, snapshot=version_before(table_state, table_state.parked[old.place].version) is not None
        )

    def purge_expired(self, refs: Iterable[Ref], fence: int) -> list[str]:
        """Delete columns of these tables, and all tables, that were dropped too long ago; return their names."""
        gone = list[str]()
        for ref in refs:
            gone += retry_commit(partial(_columns, self.warehouse, ref, fence))
        for old in self.warehouse.waiting():
            if self.warehouse.old(old.at):
                self.warehouse.delete(old.folder)
                gone.append(named(old.ref))
        self.warehouse.finish()
        return gone

    def remove_uncommitted_files(self, ref: Ref, runs: Mapping[str, int]) -> None:
        """Delete what these runs (fences by run id) wrote and did not commit. Call it after a claim: by then they
        can commit no more."""
        table_state = find(self.warehouse, ref)
        if table_state is None:
            return
        table_state.log.remove_leftovers(ALIVE if table_state.record.within else 0)
        place, area = table_state.folder / table_state.area, table_state.area
        data, quarantine = place.as_uri(), (table_state.folder / table_state.aside).as_uri()
        referenced = {unquote(p) for p in (*table_state.snapshot.files, *table_state.snapshot.tombstones)}
        io = io_of(table_state)
        own_entries = [n for n in children(data, io) if any(n == run or n.startswith(f"{run}-") for run in runs)]
        for folder in (n for n in own_entries if (place / n).is_dir()):
            keep_only(f"{data}/{folder}", io, [p for p in referenced if p.startswith(f"{area}/{folder}/")])
        # by name: what another process has written since they were listed stays
        delete_files(data, io, [n for n in own_entries if not (place / n).is_dir() and f"{area}/{n}" not in referenced])
        gone = tuple(f"{run}-" for run in runs if run not in table_state.record.runs)
        delete_files(quarantine, io, [n for n in children(quarantine, io) if n.startswith(gone)] if gone else [])


class DeltaClones(DeltaFacet):
    """Copies of tables: links to the same files."""

    def clone_table(self, ref: Ref, place: Ref, commit: Commit) -> int | None:
        """Return the rows at `place` as they are now, in the same files under further names; how many. None, and no
        copy, for a table without rows."""
        table_state = require(self.warehouse, ref)
        table_state.record.check(commit.fence)
        count = table_state.rows
        if table_state.record.state is None or not count:
            return None
        origin = json.dumps([table_state.record.place, table_state.record.version])
        if (clone := find(self.warehouse, place)) is not None and clone.record.copy == origin:
            return count
        if clone is not None or self.warehouse.is_taken(place):
            raise Conflict(f"table {named(place)} is there already", hint="rename or purge that one first")
        table = replace(table_state.record.table, schema=place[0], name=place[1])
        own = replace(
            table_state.record, table=table, place=f"copy of {table_state.record.place}", parked=(), copy=origin
        )
        log = self.warehouse.make(place)
        files = [copied for file in table_state.own.each() for copied in _copied(table_state, log, file, commit.run)]
        if not begin(
            self.warehouse, with_stored(own, table_state.fields, {}), table_state.fields, commit, table_state.by, files
        ):
            raise Conflict(f"table {named(place)} is there already", hint="rename or purge that one first")
        return count

    def purge_clone(self, place: Ref, fence: int) -> None:
        """Delete a clone; do nothing if it is gone. Raises DestinationError for a table that is no clone."""
        table_state = find(self.warehouse, place)
        if table_state is None:
            return
        if not table_state.record.copy:
            raise DestinationError(
                f"table {named(place)} is not a copy made by instep", hint="it is left alone: look at it first"
            )
        if isinstance(self.warehouse, ObjectWarehouse):
            drop(self.warehouse, table_state, Commit("", table_state.record.fence))
        self.warehouse.delete(table_state.folder)
