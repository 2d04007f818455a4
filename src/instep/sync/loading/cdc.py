"""Tables in `mode: cdc`: what their log says changed, where each stands in it, and when the server may forget.

The position of a table is part of the commit that brought its rows. A table in which nothing changed is not committed
to: how far its log was looked through is noted in the store, beside the commit's position that this rests on. The
server is told last, and never more than what every table has. So whatever dies in between, the log is read again from
where the tables are; and a table that is behind what the server has kept is read as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from instep.crash import crashpoint
from instep.destinations.base import LoadState
from instep.errors import Blocked, InstepError, ProjectError, argument
from instep.model import Run
from instep.schema.planning.projection import TableRead
from instep.sources.base import Snapshot
from instep.sources.log import ChangeLog, FollowedTable, LogRead, Logs, LogState, LogUnreadable, ReplicaPositions
from instep.sync.context import Ref, SyncContext
from instep.sync.loading.load_table import TableResult
from instep.sync.loading.table_load import Load
from instep.sync.table_mode import mode_name

HOLD = 1 << 30
"""Bytes of log that the server keeps for tables that fail; with more they are read as a whole when they recover."""

ANOTHER = (
    "the source is another server than the one whose log was followed (a failover, a restored copy, or another replica)"
)


@dataclass
class CdcSession:
    """CDC of one run, shared by its passes."""

    context: SyncContext
    run: Run
    full: bool
    """A person has asked for whole tables, so what the server has lost does not matter."""
    note: Callable[[str], None]
    pending: frozenset[Ref] = frozenset()
    """The accepted tables that the next pass reads."""
    goes_on: bool = False
    """True if the log has more than one pass could read."""
    saved: dict[Ref, str] = field(default_factory=dict)
    """Holds what was recorded, by accepted table."""
    idle_reads: dict[Ref, TableRead] = field(default_factory=dict)
    """Reads of the tables that some pass found without a change."""
    _state: LogState | None = None
    _trouble: InstepError | None = None
    _records: dict[Ref, str] = field(default_factory=dict)
    _fences: dict[Ref, int] = field(default_factory=dict)
    _reads: dict[Ref, TableRead] = field(default_factory=dict)
    _followed: dict[Ref, FollowedTable] = field(default_factory=dict)
    _log_read: LogRead | None = None
    _at: dict[Ref, str] = field(default_factory=dict)
    _base: dict[Ref, str] = field(default_factory=dict)
    _idle: set[Ref] = field(default_factory=set)
    _left: set[Ref] = field(default_factory=set)
    _lost: dict[Ref, Blocked] = field(default_factory=dict)
    _found_places: dict[tuple[str, str], str] = field(default_factory=dict)

    @cached_property
    def log(self) -> ChangeLog | None:
        source = self.context.source
        return source.log(self.context.log) if self.context.log is not None and isinstance(source, Logs) else None

    def begin(self) -> None:
        """Create the log if needed and check its state, before the snapshot of a pass."""
        if self.log is None:
            self._leave_behind()
            return
        waits, self.pending, self.goes_on, self._log_read = bool(self.pending), frozenset(), False, None
        self._idle, self._reads, self._trouble = set(), {}, None
        self.__dict__.pop("_looked", None)
        records = self.context.store.cursors.of(self.context.name)
        self._records = {ref: r.cursor for ref, r in records.items()}
        self._fences = {ref: r.fence for ref, r in records.items()}
        try:
            before, self._state = self._state, self._ready(self.log)
            if before is not None and before.server != self._state.server:
                self._at, self._found_places = {}, {}
            self.log.begin(wait=waits)
        except InstepError as error:
            self._trouble = error

    def close(self) -> None:
        if self.log is not None:
            self.log.close()

    def _leave_behind(self) -> None:
        """Report slots of a connection that no longer follows a log: somebody has to drop them."""
        for slot in sorted(slots(self.context.store.cursors.of(self.context.name))):
            command = f"instep source log drop {self.context.name} --slot {slot}"
            self.note(f"the server keeps its log for the slot {slot}, which no connection reads: {command}")

    def _ready(self, log: ChangeLog) -> LogState:
        state = log.state()
        lost = "read its tables again: instep sync --full"
        if state.exists and state.trouble and self.full:
            log.drop()
            state = log.state()
        if state.trouble:
            raise Blocked(f"the log of {self.context.name}: {state.trouble}", hint=state.hint or lost)
        if state.exists:
            return state
        if self._known() and not self.full:
            assert self.context.log is not None
            slot, servers = self.context.log.slot, {r["server"] for r in map(_log, self._records.values()) if r}
            what = f"the replication slot {slot} is gone"
            if state.server not in servers:
                what = f"{ANOTHER}, and has no replication slot {slot}"
            raise Blocked(f"{what}: the changes since the last sync are lost", hint=lost)
        log.create()
        crashpoint("log.created")
        return log.state()

    def _known(self) -> bool:
        """Return whether some table has followed the log before."""
        return any(map(_log, self._records.values()))

    def prepare_pass(self, snapshot: Snapshot, reads: Iterable[TableRead], stopped: Mapping[Ref, object]) -> None:
        """Read the log for those of these tables that follow it and are not stopped."""
        mine = [r for r in reads if mode_name(r.table, self.context.settings(r.table)) == "cdc"]
        for read in mine:
            if read.table.ref in stopped and _log(self._records.get(read.table.ref, "")):
                self.note(f"{read.table.path} is not syncing: when it continues, the whole table may have to be read")
        self._reads = {r.table.ref: r for r in mine if r.table.ref not in stopped}
        if self.log is None or self._trouble is not None or not self._reads:
            return
        try:
            followed = self.log.follow([*self._reads.values()])
            self._followed = {ref: followed[r.source.ref] for ref, r in self._reads.items()}
            self.pending = frozenset(ref for ref, f in self._followed.items() if f.pending)
            self.log.resume(self._places())
            able = [r for ref, r in self._reads.items() if not self._followed[ref].why and ref not in self.pending]
            self._log_read = self.log.read(snapshot, able)
            self.goes_on = self._log_read.more
        except LogUnreadable as error:
            self._trouble = error
            if self.full:
                self._recreate_log(self.log)
        except InstepError as error:
            self._trouble = error

    def _recreate_log(self, log: ChangeLog) -> None:
        """Replace a log that cannot be read: a pass over all tables, whose snapshot begins behind it, follows."""
        try:
            log.drop()
            log.create()
        except InstepError as error:
            self._trouble = error
            return
        self.pending = frozenset(self._reads)

    def _places(self) -> dict[Ref, str]:
        """Return the positions up to which tables have the log, by source table, as far as the store knows and the
        log goes back."""
        assert self.log is not None
        assert self._state is not None
        positions = {}
        for ref, read in self._reads.items():
            last = _log(self._records.get(ref, "")) or {}
            at = self._at.get(ref) or self._mirrored(ref)
            if last.get("server") != self._state.server and not self._at.get(ref):
                at = self._place_here(last)
            if at and not self.full and ref not in self._left and not self.log.position_error(at):
                positions[read.source.ref] = at
        return positions

    def _place_here(self, record: Mapping[str, Any]) -> str:
        """Return the place in this server's log of what a record says of another server's; "" if it cannot be told, or
        need not be."""
        place = str(record.get("seen") or record.get("at") or ""), str(record.get("covered", ""))
        if self.full or not all(place) or not isinstance(self.log, ReplicaPositions):
            return ""
        if place not in self._found_places:
            self._found_places[place] = self.log.place_of(*place)
        return self._found_places[place]

    def planned(self, load: Load, state: LoadState | None, *, whole: bool) -> Load:
        """Return the load of a table that follows the log: the rows that changed, or all. Raises InstepError if the log
        cannot be read, and Blocked if what changed since its last load is lost."""
        if self.log is None:
            raise ProjectError(
                f"table {load.table.path}: sources of the type {self.context.source.kind} have no log to follow",
                hint="use mode: upsert",
            )
        if self._trouble is not None:
            raise self._trouble
        ref = load.table.ref
        if ref in self._lost:
            raise self._lost[ref]
        followed = self._followed[ref]
        load = replace(load, action="merge" if state else "overwrite", log=self.log)
        if followed.why:
            return replace(
                load, notes=(*load.notes, f"its changes cannot be followed, so it is read as a whole: {followed.why}")
            )
        assert self._log_read is not None
        position, why = self._position(ref, state, followed, whole=whole)
        before = (_log(state.cursor) or {}).get("shape", {}) if state else {}
        followed_before = position is not None or (bool(why) and followed.keeps_place(before))
        if followed_before or self._log_read.ready:
            load = replace(load, cursor=self._cursor(followed))
        else:
            why = (
                "a transaction is still open that began before its log was followed: the next sync reads it as a "
                "whole, too"
            )
        changed = self._log_read.tables[load.read.source.ref]
        if position is not None:
            self._at[ref] = position
            why = changed.whole
        if whole or position is None or why:
            return replace(load, notes=(*load.notes, f"read as a whole: {why}") if why else load.notes)
        self._base[ref] = state.cursor if state else ""
        if not changed.keys and not followed.has_grown((_log(self._base[ref]) or {})["shape"]):
            self._idle.add(ref)
            self.idle_reads[ref] = load.read
        scans = load.choice.deletes != "ignore" and not self.context.destination.capabilities.merges_requested
        return replace(load, complete=False, changed=changed, keys=scans)

    def is_idle(self, load: Load) -> bool:
        """Return whether the log knows of no change."""
        return load.changed is not None and load.table.ref in self._idle

    def _position(
        self, ref: Ref, state: LoadState | None, followed: FollowedTable, *, whole: bool
    ) -> tuple[str | None, str]:
        """Return the position up to which the destination's table has the log, or None and why it is unknown."""
        assert self.log is not None
        assert self._state is not None
        last = _log(state.cursor) if state else None
        if last is None or state is None:
            return None, ""
        record = _log(self._records.get(ref, "")) or {}
        looked = record.get("base") == state.cursor
        server = record["server"] if looked else last["server"]
        position = ""
        recorded = (looked or record.get("at") == last["at"]) and state.fence <= self._fences[ref]
        if server != self._state.server and recorded:  # else rows were written that nothing is known of
            position = self._at.get(ref) or ("" if whole else self._place_here(record))
        if server != self._state.server and not (position or whole or self.full):
            raise Blocked(
                ANOTHER,
                hint=f"read the table again: instep sync --full --table {argument(self._reads[ref].table.path)}",
            )
        if server != self._state.server and not position:
            return None, ""
        if not followed.holds(last["shape"]):
            place = ", a column's type or its place in the publication" if self._state.ours else " or a column's type"
            return None, f"its key{place} is another one"
        if not followed.parts_hold(last["shape"]):
            return None, "a partition was attached, detached, dropped, truncated or rewritten, which no log records"
        if followed.is_rewritten(last["shape"]):
            return None, "ALTER TABLE has rewritten its rows, which no log records"
        if followed.was_attached(last["shape"]):
            return None, "all of its columns were redefined, as if it had been a partition of another table"
        # how far the log was looked through without a change since the commit that recorded `base`
        seen = self._looked.get(state.cursor, "")
        own = last["at"] if last["server"] == self._state.server else ""
        return self._checked(ref, position or max(own, seen, key=self.log.order), whole=whole)

    def _checked(self, ref: Ref, at: str, *, whole: bool) -> tuple[str | None, str]:
        """Return the position, if the log was read from there on."""
        assert self.log is not None
        assert self._state is not None
        assert self._log_read is not None
        if why := self.log.position_error(at):
            if whole or self.full:
                return None, ""
            table = self._reads[ref].table.path
            self._lost[ref] = Blocked(
                f"{why}: the changes since its last sync are lost",
                hint=f"read the table again: instep sync --full --table {argument(table)}",
            )
            raise self._lost[ref]
        since = self._log_read.since.get(self._reads[ref].source.ref) or (
            self._state.confirmed if self._state.ours else ""
        )
        if self.log.order(at) < self.log.order(since):
            what = "the server keeps its log" if self._state.ours else "the log was read"
            return None, f"{what} from {since} only, and it was at {at.partition('@' if self._state.ours else '#')[0]}"
        return at, ""

    def _cursor(self, followed: FollowedTable) -> str:
        assert self._log_read is not None
        assert self._state is not None
        assert self.context.log is not None
        logs = {
            "slot": self.context.log.slot if self._state.ours else "",
            "at": self._log_read.reached,
            "server": self._state.server,
            "shape": followed.shape,
        }
        return json.dumps({"log": logs})

    @cached_property
    def _looked(self) -> dict[str, str]:
        logs = map(_log, self._records.values())
        return {r["base"]: r["seen"] for r in logs if r and "base" in r}

    def advance_positions(self, done: Sequence[TableResult]) -> frozenset[Ref]:
        """Record the positions of tables after the commits of a pass, then let the server release the log that all have
        read. Return the tables that another pass has to read."""
        if self.log is None or self._log_read is None:
            return self.pending
        assert self._state is not None
        reached = self._log_read.reached
        for result in done:
            if result.error is None and result.load.log is not None and (log := _log(result.load.cursor)):
                self.saved[result.load.table.ref] = json.dumps({"log": log})
                self._at[result.load.table.ref] = reached
        for ref in self._idle:
            log = {**(_log(self._base[ref]) or {}), "seen": reached, "base": self._base[ref]}
            self.saved[ref] = json.dumps({"log": {**log, "server": self._state.server}})
            self._at[ref] = reached
        with self.context.transaction():
            self.context.store.cursors.save(self.context.name, self.saved, run=self.run.id, fence=self.run.fence)
        crashpoint("log.saved")
        self._release(reached)
        crashpoint("log.released")
        return self.pending | (frozenset(self._reads) if self.goes_on else frozenset())

    def cover(self) -> None:
        """Note what the rows of the run may show, for the day on which another server takes the place of this one. Not
        before the last row of the run is committed: later passes and fills read later rows. Without it a position is
        good for this server alone."""
        try:
            covered = self.log.covered() if self.saved and isinstance(self.log, ReplicaPositions) else ""
        except InstepError:
            return
        server = self._state.server if covered and self._state else None
        for ref, cursor in self.saved.items():
            log = _log(cursor) or {}
            if log.get("server") == server:
                self.saved[ref] = json.dumps({"log": {**log, "covered": covered}})

    def _release(self, reached: str) -> None:
        """Release the log up to the position that every running table has. A failing table must not fill the
        server's disk for ever, nor block the others, for which the log continues beyond one read of it."""
        assert self.log is not None
        assert self._state is not None
        order, to = self.log.order, self.log.order(reached)
        hold = HOLD if self._state.ours else to
        positions = {ref: at for ref in self._reads if (at := self._at.get(ref) or self._mirrored(ref))}
        try:
            positions = {
                ref: (self._state.confirmed or at) if self.log.position_error(at) else at
                for ref, at in positions.items()
            }
        except InstepError as error:
            self.note(f"the server keeps its log until the next sync: {error.message}")
            return
        behind = {ref: at for ref, at in positions.items() if order(at) < to}
        late = {ref for ref, at in behind.items() if self.goes_on or to - order(at) > hold}
        self._left |= late
        for ref in late if self._state.ours else ():
            self.note(f"{'.'.join(ref)} is far behind, so its log is released: its next load reads the whole table")
        lowest = min([reached, *(at for ref, at in behind.items() if ref not in late)], key=order)
        try:
            self.log.release(lowest)
        except InstepError as error:
            self.note(f"the server keeps its log until the next sync: {error.message}")

    def _mirrored(self, ref: Ref) -> str:
        last = _log(self._records.get(ref, "")) or {}
        return str(last.get("seen") or last.get("at") or "")


def slots(records: Mapping[Ref, Any]) -> set[str]:
    """Return the slots that these records of cursors were read from."""
    logs = (_log(r.cursor) for r in records.values())
    return {str(f["slot"]) for f in logs if f and f.get("slot")}


def places(records: Mapping[Ref, Any]) -> dict[Ref, str]:
    """Return the positions up to which the tables of these cursors have their log."""
    logs = {ref: _log(r.cursor) or {} for ref, r in records.items()}
    return {ref: str(at) for ref, f in logs.items() if (at := f.get("seen") or f.get("at"))}


def _log(cursor: str) -> dict[str, Any] | None:
    """Return the log's part of a cursor, None if it has none."""
    document: dict[str, Any] = json.loads(cursor) if cursor else {}
    return document.get("log")
