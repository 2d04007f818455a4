"""Puts a table back to an earlier version: its rows, never its columns. What a column is called or stored as by now
holds for the old rows, too: their values are found by physical name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from instep.destinations.base import Commit, Ref, Savepoint
from instep.destinations.delta.change import DeltaCommit
from instep.destinations.delta.files import path_of
from instep.destinations.delta.held import DeltaTableState, held_at, loaded, named, require
from instep.destinations.delta.log import DeltaLog, DeltaSnapshot, rows_of
from instep.destinations.delta.warehouse import DeltaFacet
from instep.errors import Conflict, DestinationError


def changes(log: DeltaLog) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the versions that added or removed files, with what their commit says of itself."""
    for version in log.versions():
        info, changes = dict[str, Any](), False
        with suppress(FileNotFoundError):
            for action in log.actions(version):
                info = dict(action.get("commitInfo") or info)
                changes = changes or any(action.get(kind, {}).get("dataChange") for kind in ("add", "remove"))
        if changes or _said(info).get("data"):
            yield version, info


def _said(info: dict[str, Any]) -> dict[str, Any]:
    """Return what one of our commits recorded; nothing of another program's."""
    if info.get("engineInfo") != "instep":
        return {}
    said: dict[str, Any] = json.loads(info.get("userMetadata") or "{}")
    return said


def _savepoint(held: DeltaTableState, then: DeltaSnapshot, info: dict[str, Any], *, current: bool) -> Savepoint:
    said, at = _said(info), datetime.fromtimestamp(info.get("timestamp", 0) / 1000, UTC)
    before = held_at(held.log, held.ref, then)
    why_not = _why_not(held, before)
    state = held.state()
    recorded = before.record.loaded if before else None
    cursor = state.cursor if current and state else recorded.cursor if recorded else ""
    later: tuple[str, ...] = ()
    if before is not None and not why_not:
        had, own = {f.physical for f in before.fields}, held.record.table.by_name
        later = tuple(f.name for f in held.fields if f.physical not in had and own[f.name].alias)
    rows = sum(rows_of(f) for f in then.files.values())
    return Savepoint(then.version, at, said.get("run", ""), rows, cursor, current, later, why_not)


def _why_not(held: DeltaTableState, before: DeltaTableState | None) -> str:
    if held.record.pending is not None:
        return "the table was replaced at the source and its new rows are not loaded yet"
    if before is None:
        return "the table was not ours then"
    if not {(f.physical, f.id) for f in before.fields} & {(f.physical, f.id) for f in held.layout}:
        return "its rows are those of an earlier generation: another table of that name"
    if [f.physical for f in before.by] != [f.physical for f in held.by]:
        return "its files lie in other partitions: load the table whole instead"
    return ""


def _at(held: DeltaTableState, version: int) -> DeltaTableState:
    known = version in held.log.versions()
    before = held_at(held.log, held.ref, held.log.snapshot(version)) if known else None
    if before is None:
        hint = "see `instep restore --list`"
        raise DestinationError(f"table {named(held.ref)} has no version {version} any more", hint=hint)
    lost = [str(path_of(before, f)) for f in before.files if not path_of(before, f).exists()]
    if lost:
        raise DestinationError(
            f"table {named(held.ref)}: version {version} lacks {len(lost)} of its files, such as {lost[0]}",
            hint="choose a later version: see `instep restore --list`",
        )
    return before


class DeltaSavepoints(DeltaFacet):
    """Versions that a table can be put back to."""

    def savepoints(self, ref: Ref) -> list[Savepoint]:
        """Return the versions that changed rows and can be read, newest first. Those whose files are gone are not
        looked for here: `rows_at` does."""
        held = require(self.warehouse, ref)
        found = [*changes(held.log)]
        last = max((v for v, _ in found), default=-1)
        points, made = list[Savepoint](), dict[frozenset[str], datetime]()
        for version, info in found:
            then = held.log.snapshot(version)
            if then is not None:
                point = _savepoint(held, then, info, current=version == last)
                points.append(replace(point, made=made.setdefault(frozenset(then.files), point.at)))
        return points[::-1]

    def rows_at(self, ref: Ref, version: int) -> int:
        """Looks for each of the version's files first."""
        return _at(require(self.warehouse, ref), version).rows

    def restore(self, ref: Ref, version: int, base: int, rows: int, commit: Commit) -> None:
        """One commit with the files of that version in the place of today's."""
        held, state = loaded(self.warehouse, ref)
        held.record.check(commit.fence)
        now = max((v for v, _ in changes(held.log)), default=-1)
        if version == now or (state.run == commit.run and _at(held, version).files == held.files):
            return
        if now != base:
            raise Conflict(f"table {named(ref)} has changed since it was shown", hint="look again, then restore")
        before = _at(held, version)
        then, today = before.snapshot.files, held.snapshot.files
        record = held.record.after_load(commit, rows, new=0, deleted=True)
        assert record.loaded is not None, "a load was just recorded"
        change = DeltaCommit(held, replace(record, loaded=replace(record.loaded, last=())))
        change.remove = sorted(today.keys() - then.keys())
        change.add = [{**then[p], "dataChange": True} for p in sorted(then.keys() - today.keys())]
        change.land("RESTORE", commit, self.warehouse)
