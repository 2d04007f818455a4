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
from instep.destinations.delta.log import DeltaLog, DeltaSnapshot, rows_of
from instep.destinations.delta.table_state import DeltaTableState, loaded, named, require, state_at
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
        if changes or _commit_record(info).get("data"):
            yield version, info


def _commit_record(info: dict[str, Any]) -> dict[str, Any]:
    """Return what one of our commits recorded; nothing of another program's."""
    if info.get("engineInfo") != "instep":
        return {}
    metadata: dict[str, Any] = json.loads(info.get("userMetadata") or "{}")
    return metadata


def _savepoint(table_state: DeltaTableState, then: DeltaSnapshot, info: dict[str, Any], *, current: bool) -> Savepoint:
    record, at = _commit_record(info), datetime.fromtimestamp(info.get("timestamp", 0) / 1000, UTC)
    before = state_at(table_state.log, table_state.ref, then)
    why_not = _why_not(table_state, before)
    state = table_state.state()
    recorded = before.record.loaded if before else None
    cursor = state.cursor if current and state else recorded.cursor if recorded else ""
    later: tuple[str, ...] = ()
    if before is not None and not why_not:
        had, own = {f.physical for f in before.fields}, table_state.record.table.by_name
        later = tuple(f.name for f in table_state.fields if f.physical not in had and own[f.name].alias)
    rows = sum(rows_of(f) for f in then.files.values())
    return Savepoint(then.version, at, record.get("run", ""), rows, cursor, current, later, why_not)


def _why_not(state: DeltaTableState, before: DeltaTableState | None) -> str:
    if state.record.pending is not None:
        return "the table was replaced at the source and its new rows are not loaded yet"
    if before is None:
        return "the table was not ours then"
    if not {(f.physical, f.id) for f in before.fields} & {(f.physical, f.id) for f in state.layout}:
        return "its rows are those of an earlier generation: another table of that name"
    if [f.physical for f in before.by] != [f.physical for f in state.by]:
        return "its files lie in other partitions: load the table whole instead"
    return ""


def _at(state: DeltaTableState, version: int) -> DeltaTableState:
    known = version in state.log.versions()
    before = state_at(state.log, state.ref, state.log.snapshot(version)) if known else None
    if before is None:
        hint = "see `instep restore --list`"
        raise DestinationError(f"table {named(state.ref)} has no version {version} any more", hint=hint)
    lost = [str(path_of(before, f)) for f in before.files if not path_of(before, f).exists()]
    if lost:
        raise DestinationError(
            f"table {named(state.ref)}: version {version} lacks {len(lost)} of its files, such as {lost[0]}",
            hint="choose a later version: see `instep restore --list`",
        )
    return before


class DeltaSavepoints(DeltaFacet):
    """Versions that a table can be put back to."""

    def savepoints(self, ref: Ref) -> list[Savepoint]:
        """Return the versions that changed rows and can be read, newest first. Those whose files are gone are not
        looked for here: `rows_at` does."""
        table_state = require(self.warehouse, ref)
        found = [*changes(table_state.log)]
        last = max((v for v, _ in found), default=-1)
        points, made = list[Savepoint](), dict[frozenset[str], datetime]()
        for version, info in found:
            then = table_state.log.snapshot(version)
            if then is not None:
                point = _savepoint(table_state, then, info, current=version == last)
                points.append(replace(point, made=made.setdefault(frozenset(then.files), point.at)))
        return points[::-1]

    def rows_at(self, ref: Ref, version: int) -> int:
        """Looks for each of the version's files first."""
        return _at(require(self.warehouse, ref), version).rows

    def restore(self, ref: Ref, version: int, base: int, rows: int, commit: Commit) -> None:
        """One commit with the files of that version in the place of today's."""
        table_state, state = loaded(self.warehouse, ref)
        table_state.record.check(commit.fence)
        now = max((v for v, _ in changes(table_state.log)), default=-1)
        if version == now or (state.run == commit.run and _at(table_state, version).files == table_state.files):
            return
        if now != base:
            raise Conflict(f"table {named(ref)} has changed since it was shown", hint="look again, then restore")
        before = _at(table_state, version)
        then, today = before.snapshot.files, table_state.snapshot.files
        record = table_state.record.after_load(commit, rows, new=0, deleted=True)
        assert record.loaded is not None, "a load was just recorded"
        change = DeltaCommit(table_state, replace(record, loaded=replace(record.loaded, last=())))
        change.remove = sorted(today.keys() - then.keys())
        change.add = [{**then[p], "dataChange": True} for p in sorted(then.keys() - today.keys())]
        change.land("RESTORE", commit, self.warehouse)
