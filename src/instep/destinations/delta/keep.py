"""What is kept beside the tables: dropped columns and tables until their time is over, old files, and copies."""

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
from instep.destinations.delta.files import io_of, path_of
from instep.destinations.delta.held import DeltaTableState, find, held_at, named, require, with_stored
from instep.destinations.delta.log import Action, DeltaLog
from instep.destinations.delta.objects import ObjectWarehouse
from instep.destinations.delta.warehouse import Warehouse
from instep.destinations.sharded import landed
from instep.destinations.sql.evolve import latest
from instep.errors import Conflict, DestinationError, InstepError
from instep.stage.files.object_store import ObjectPath
from instep.stage.files.place import children, clear_errors, keep_only


def is_kept(warehouse: Warehouse, ref: Ref, source_id: str | None) -> bool:
    """Return whether the table of this name and source id was dropped and waits, or is back."""
    return find(warehouse, ref) is not None or warehouse.parked(ref, source_id) is not None


def undrop_report(warehouse: Warehouse, ref: Ref, column: str) -> UndropReport:
    """A dropped column waits in the files: rows that came since have no value in it, but the version before the drop
    is kept, too."""
    held = find(warehouse, ref)
    if held is None:
        return UndropReport(f"table {named(ref)} is not there")
    old = latest(held.record.parked, column)
    if old is None:
        back = column in held.record.table.by_name.keys() & {f.name for f in held.fields}
        return UndropReport() if back else UndropReport(f"no column {column!r} is kept any more")
    return UndropReport(written=old.written, snapshot=version_before(held, held.parked[old.place].version) is not None)


def version_before(held: DeltaTableState, version: int) -> DeltaTableState | None:
    """Return the table at an earlier version, if all of it is still there."""
    with suppress(InstepError, OSError):
        snapshot = held.log.snapshot(version)
        before = held_at(held.log, held.ref, snapshot, held.record.within)
        if before is not None and all(path_of(before, f).exists() for f in before.files):
            return before
    return None


def forget(warehouse: Warehouse, refs: Iterable[Ref], fence: int) -> list[str]:
    """Let go of the columns of these tables, and of all tables, that were dropped too long ago; their names."""
    gone = list[str]()
    for ref in refs:
        gone += landed(partial(_columns, warehouse, ref, fence))
    for old in warehouse.waiting():
        if warehouse.old(old.at):
            warehouse.delete(old.folder)
            gone.append(named(old.ref))
    warehouse.finish()
    return gone


def _columns(warehouse: Warehouse, ref: Ref, fence: int) -> list[str]:
    held = find(warehouse, ref)
    if held is None or held.record.copy:
        return []
    held.record.check(fence)
    old = [p for p in held.record.parked if warehouse.old(p.at)]
    if old:
        left = tuple(p for p in held.record.parked if p not in old)
        waits = {p: f for p, f in held.parked.items() if p in {x.place for x in left}}
        record = with_stored(replace(held.record, parked=left, version=held.record.version + 1), held.fields, waits)
        DeltaCommit(held, record).land("FORGET", Commit("", fence), warehouse)
    return [f"{named(held.ref)}.{p.name}" for p in old]


def keep(warehouse: Warehouse, ref: Ref, place: Ref, commit: Commit) -> int | None:
    """Return the rows at `place` as they are now, in the same files under further names; how many. None, and no copy,
    for a table without rows."""
    held = require(warehouse, ref)
    held.record.check(commit.fence)
    count = held.rows
    if held.record.state is None or not count:
        return None
    origin = json.dumps([held.record.place, held.record.version])
    if (there := find(warehouse, place)) is not None and there.record.copy == origin:
        return count
    if there is not None or warehouse.is_taken(place):
        raise Conflict(f"table {named(place)} is there already", hint="rename or purge that one first")
    table = replace(held.record.table, schema=place[0], name=place[1])
    own = replace(held.record, table=table, place=f"copy of {held.record.place}", parked=(), copy=origin)
    log = warehouse.make(place)
    files = [_linked(held, log, file) for file in held.files]
    if not begin(warehouse, with_stored(own, held.fields, {}), held.fields, commit, held.by, files):
        raise Conflict(f"table {named(place)} is there already", hint="rename or purge that one first")
    return count


def _linked(held: DeltaTableState, log: DeltaLog, file: Action) -> Action:
    """Return the file below the copy's folder, so that neither table needs the other: a link, or a copy that the object
    store makes."""
    source = path_of(held, file)
    target = log.table / "data" / source.name
    if isinstance(source, ObjectPath) and isinstance(target, ObjectPath):
        source.copy_to(target)
        return {**file, "path": f"data/{source.name}"}
    assert isinstance(source, Path)
    assert isinstance(target, Path)
    with clear_errors(str(target)):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        os.link(source, target)
    return {**file, "path": f"data/{source.name}"}


def purge(warehouse: Warehouse, place: Ref) -> None:
    """Delete a copy; one that is gone is fine. DestinationError for a table that is no copy."""
    held = find(warehouse, place)
    if held is None:
        return
    if not held.record.copy:
        raise DestinationError(f"table {named(place)} is no copy of ours", hint="it is left alone: look at it first")
    if isinstance(warehouse, ObjectWarehouse):
        drop(warehouse, held, Commit("", held.record.fence))
    warehouse.delete(held.folder)


ALIVE = 3_600
"""Seconds: no commit takes longer, and other shards may be at one."""


def remove_uncommitted_files(warehouse: Warehouse, ref: Ref, runs: Mapping[str, int]) -> None:
    """`runs`: fences by run id. Call it after a claim: what these runs have not committed by then, they never will."""
    held = find(warehouse, ref)
    if held is None:
        return
    held.log.tidy(ALIVE if held.record.within else 0)
    place, area = held.folder / held.area, held.area
    data, held_back = place.as_uri(), (held.folder / held.aside).as_uri()
    known = {unquote(p) for p in (*held.snapshot.files, *held.snapshot.gone)}
    io = io_of(held)
    names = children(data, io)
    mine = [n for n in names if any(n == run or n.startswith(f"{run}-") for run in runs)]
    for folder in (n for n in mine if (place / n).is_dir()):
        keep_only(f"{data}/{folder}", io, [p for p in known if p.startswith(f"{area}/{folder}/")])
    lost = {n for n in mine if not (place / n).is_dir() and f"{area}/{n}" not in known}
    if lost:
        keep_only(data, io, [f"{data}/{n}" for n in names if n not in lost])
    gone, kept = tuple(f"{run}-" for run in runs if run not in held.record.runs), children(held_back, io)
    if gone and any(n.startswith(gone) for n in kept):
        keep_only(held_back, io, [f"{held_back}/{n}" for n in kept if not n.startswith(gone)])
