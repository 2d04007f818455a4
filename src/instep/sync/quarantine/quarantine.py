"""Quarantine across the tables of a connection: listed, discarded, erased, removed when it is old.

What a run held that has committed nothing does not count. Values of columns that are hashed or switched off by now
are never told in clear, and leave the files in clear at the next rewrite.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from hashlib import sha256

from instep.destinations.base import StagingTarget
from instep.errors import InstepError
from instep.model import Run
from instep.operations.repair.discard_quarantine import DiscardQuarantineRequest
from instep.operations.repair.erase import EraseRequest
from instep.operations.spec import DirectWork
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import Unknown
from instep.schema.planning.naming import destination_ref
from instep.schema.selection.selection import column_is_on, hashed
from instep.stage.conform import compact_json, digest
from instep.stage.quarantine import QuarantineEntry, TableQuarantine, read_entries, rewrite
from instep.stage.quarantine_store import StoredQuarantine, stored_quarantine
from instep.sync.claim import claimed
from instep.sync.context import Ref, SyncContext, unknown_table
from instep.sync.housekeeping import dead_runs, is_first_today, remove_uncommitted_files, uncommitted
from instep.sync.two_people import two_people

_DIGEST = re.compile(r"[0-9a-f]{64}")
MOST_RUNS = 100


@dataclass(frozen=True)
class Holding:
    """The quarantine of one accepted table, whose rows are at `ref` of the destination."""

    table: Table
    ref: Ref
    target: StagingTarget = field(repr=False)
    found: TableQuarantine

    @property
    def pending(self) -> list[QuarantineEntry]:
        return [e for e in self.found.entries if e.status == "held"]


@dataclass(frozen=True)
class QuarantinePlace:
    """The place of the quarantine of one accepted table, whose rows are at `ref` of the destination. Files of runs that
    are `ignored` do not count."""

    table: Table
    ref: Ref
    target: StagingTarget = field(repr=False)
    ignored: Collection[str]

    @contextmanager
    def stored(self, context: SyncContext) -> Iterator[StoredQuarantine]:
        """Read all of it, however much there is."""
        hide = partial(guard, context, self.table)
        with stored_quarantine(self.target.quarantine, self.target.io, self.ignored, hide) as found:
            yield found


def quarantine_places(
    context: SyncContext, only: Collection[str] = (), run: Run | None = None, *, idle: bool = False
) -> Iterator[QuarantinePlace]:
    """Yield the quarantines of all tables or of those with these paths. `run`: the one that asks, for which what dead
    runs left is removed first. `idle`: no run is alive, so that one that has not ended is dead. Raises InstepError for
    an unknown table."""
    known = context.store.runs.history(context.name, limit=MOST_RUNS)
    running = {r.id for r in known if r.status == "running" and not idle}
    ended_badly = [r for r in known if r.status != "done" and r.id not in running]
    dead = dead_runs(context, run) if run is not None else []
    for table, ref in _tables(context, only):
        state = context.destination.schema.state(ref)
        if run is not None:
            context.destination.write.claim(ref, run.fence)
            remove_uncommitted_files(context, dead, ref, state)
        ignored = {*uncommitted(ended_badly, state), *running}
        yield QuarantinePlace(table, ref, context.destination.write.target(ref), ignored)


def holdings(
    context: SyncContext, only: Collection[str] = (), run: Run | None = None, *, idle: bool = False
) -> Iterator[Holding]:
    """Yield the quarantines of `quarantine_places` that are not empty, with their entries."""
    for place in quarantine_places(context, only, run, idle=idle):
        found = read_entries(place.target.quarantine, place.target.io, place.ignored)
        if found.files or found.broken:
            guarded = tuple(guard(context, place.table, e) for e in found.entries)
            yield Holding(place.table, place.ref, place.target, replace(found, entries=guarded))


def _tables(context: SyncContext, only: Collection[str]) -> list[tuple[Table, Ref]]:
    """Return the accepted tables that are in the destination and ours."""
    accepted = {t.path: t for t in context.store.accepted.catalog(context.name).tables if t.alias}
    for path in sorted(set(only) - set(accepted)):
        raise unknown_table(f"connection {context.name} has no table", path, accepted)
    refs = {destination_ref(t, context.naming): t for path, t in accepted.items() if not only or path in only}
    foreign = context.destination.schema.foreign(refs)
    there = context.destination.schema.inspect(ref for ref in refs if ref not in foreign)
    return [(refs[t.ref], t.ref) for t in there.tables]


def guard(context: SyncContext, table: Table, entry: QuarantineEntry) -> QuarantineEntry:
    """Return the entry without what may not be told of it: a column may have been switched off or hashed since."""
    hide = _hider(context, table)
    key = compact_json({path: hide(path, text) for path, text in json.loads(entry.key).items()})
    original = entry.original
    if original is not None and not entry.column:
        original = compact_json({path: hide(path, text) for path, text in json.loads(original).items()})
    elif original is not None:
        original = hide(entry.column, original)
    return entry if (key, original) == (entry.key, entry.original) else replace(entry, key=key, original=original)


def _hider(context: SyncContext, table: Table) -> Callable[[str, str | None], str | None]:
    def hide(path: str, text: str | None) -> str | None:
        column = table.by_name.get(path) or Column(path, Unknown())
        if text is None or not column_is_on(context.selection, table, column)[0]:
            return None
        if not hashed(context.selection, table.ref, path) or _DIGEST.fullmatch(text):
            return text
        return digest(text, context.salt) if context.salt else None

    return hide


def discard(context: SyncContext, tables: Collection[str] = (), ids: Collection[str] = ()) -> list[QuarantineEntry]:
    """Let go of what these tables hold, or of the entries whose ids start so; their originals are deleted, and the
    same value held again stays discarded. Raises InstepError for an id that is none, or not clear, Blocked if four_eyes
    want a second person."""
    with (
        two_people(context, "quarantine discard", _named(tables, ids)),
        claimed(context, "discard", paused_too=True) as run,
    ):
        found = list(holdings(context, tables, run))
        chosen = set(resolved(found, ids)) if ids else {e.id for h in found for e in h.pending}
        gone: list[QuarantineEntry] = []
        for holding in found:
            mine = [e for e in holding.pending if e.id in chosen]
            if mine:
                gone += mine
                let_go = {e.id: replace(e, status="discarded", original=None) for e in mine}
                settle(holding, let_go, run)
        return gone


def _named(tables: Collection[str], ids: Collection[str]) -> str:
    """Return which entries, without telling what they hold; thousands of ids by a digest of them."""
    if not ids:
        return f"all of {', '.join(sorted(tables)) or 'every table'}"
    known = ",".join(sorted(ids))
    return known if len(ids) <= 3 else f"{len(ids):,} entries ({sha256(known.encode()).hexdigest()[:12]})"


def of_row(context: SyncContext, table: str, key: Mapping[str, str | None]) -> list[str]:
    """Return the ids of a table's entries, settled ones too, of the rows with this key (texts by column).

    Raises RunInProgress while a run of the connection is alive, whose entries are not known yet."""
    context.store.runs.check_idle(context.name)
    found = holdings(context, [table], idle=True)
    return [e.id for holding in found for e in holding.found.entries if _is_of(context, e, key)]


def erase(context: SyncContext, table: str, ids: Collection[str]) -> int:
    """Remove every trace of entries from a table's quarantine, by their whole ids; return how many there were. Those of
    several rows take two people where four_eyes are on: they are let go, too."""
    several = False
    if context.four_eyes:
        entries = [e for h in holdings(context, [table]) for e in h.found.entries if e.id in ids]
        several = rows_of((e.key for e in entries), context.salt) > 1
    with two_people(context, "quarantine erase", _named((table,), ids)) if several else nullcontext():
        return _erase(context, table, ids)


def rows_of(keys: Iterable[str], salt: bytes) -> int:
    """Return how many rows entries with these keys are of, at most.

    A row that was held before and after its key got another column, or its key was hashed, is one: a key that is a part
    of another one counts as that one.
    """
    known = {frozenset((name, _hash(text, salt)) for name, text in json.loads(key).items()) for key in keys}
    return sum(not any(one < other for other in known) for one in known)


def _hash(text: str | None, salt: bytes) -> str | None:
    return text if text is None or _DIGEST.fullmatch(text) else digest(text, salt)


def _erase(context: SyncContext, table: str, ids: Collection[str]) -> int:
    with claimed(context, "discard", paused_too=True) as run:
        count = 0
        for holding in holdings(context, [table], run):
            left = [e for e in holding.found.entries if e.id not in ids]
            if gone := len(holding.found.entries) - len(left):
                count += gone
                rewrite(holding.target.quarantine, holding.target.io, holding.found, left, run.id)
        return count


@dataclass(frozen=True)
class DiscardReport:
    """The ids of the entries whose originals went."""

    discarded: tuple[str, ...]


class DiscardQuarantine(DirectWork):
    """The work of the operation `discard_quarantine`."""

    makes_run = True

    def run(self, context: SyncContext, request: DiscardQuarantineRequest) -> DiscardReport:
        """Let go of all that the tables hold, or of the entries."""
        return DiscardReport(tuple(one.id for one in discard(context, request.tables, request.ids)))


@dataclass(frozen=True)
class EraseReport:
    """Number of erased entries."""

    erased: int


class Erase(DirectWork):
    """The work of the operation `erase`."""

    makes_run = True

    def run(self, context: SyncContext, request: EraseRequest) -> EraseReport:
        """Remove every trace of the entries."""
        return EraseReport(erase(context, request.table, frozenset(request.ids)))


def _is_of(context: SyncContext, entry: QuarantineEntry, key: Mapping[str, str | None]) -> bool:
    """Hashed key columns hold the hash of what a person knows."""
    entry_key = json.loads(entry.key)
    return bool(key) and all(
        name in entry_key and entry_key[name] in (text, None if text is None else digest(text, context.salt))
        for name, text in key.items()
    )


def resolved(found: Sequence[Holding], ids: Collection[str]) -> list[str]:
    """Whole ids of those that start so; InstepError if one starts none, or several."""
    known = [e.id for h in found for e in h.found.entries]
    whole = []
    for id in ids:
        same = [k for k in known if k == id] or [k for k in known if k.startswith(id)]
        if len(same) != 1:
            what = "no entry" if not same else f"{len(same)} entries"
            raise InstepError(f"{what} in quarantine: {id}", hint="see `instep quarantine list --limit 100`")
        whole += same
    return whole


def settle(holding: Holding, changed: Mapping[str, QuarantineEntry], run: Run) -> None:
    """Write the quarantine anew with these entries (by id) in the place of those that it had."""
    entries = [changed.get(e.id, e) for e in holding.found.entries]
    rewrite(holding.target.quarantine, holding.target.io, holding.found, entries, run.id)


def expire(context: SyncContext, run: Run) -> int:
    """Delete what was held last more than `quarantine_days` ago, by the first run of a day (UTC) that syncs, and puts
    the files of a table together; how many entries went. What cannot be deleted now is tried again the next day."""
    if not is_first_today(context, run) or not context.store.runs.has_quarantined(context.name):
        return 0
    gone, days = 0, context.destination.quarantine_days
    with suppress(InstepError):
        for place in quarantine_places(context):
            with place.stored(context) as found:
                limit = run.started - timedelta(days=days) if days else None
                old = found.older(limit) if limit else 0
                if old or len(found.files) > 1:
                    found.put_together(run.id, 0, limit)
                gone += old
    return gone
