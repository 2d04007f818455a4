"""Quarantine across the tables of a connection: listed, discarded, erased, removed when it is old.

What a run held that has committed nothing does not count. Values of columns that are hashed or switched off by now
are never told in clear, and leave the files in clear at the next rewrite.
"""

from __future__ import annotations

import json
import operator
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import reduce
from hashlib import sha256

import pyarrow as pa
import pyarrow.compute as pc

from instep.destinations.base import StagingTarget
from instep.errors import InstepError
from instep.model import Run
from instep.operations.repair.discard_quarantine import DiscardQuarantineRequest
from instep.operations.repair.erase import EraseRequest
from instep.operations.spec import DirectWork
from instep.schema.catalog.catalog import Table
from instep.schema.planning.naming import destination_ref
from instep.stage.conform import compact_json, digest
from instep.stage.quarantine import QuarantineEntry, files_in, original_digest
from instep.stage.quarantine_store import (
    ALL,
    COUNTED,
    FIRST_IDS,
    EntryFilter,
    StoredQuarantine,
    count_waiting,
    stored_quarantine,
)
from instep.store.catalog_documents import accepted_document
from instep.suggest import unknown_table
from instep.sync.claim import claimed
from instep.sync.context import Ref, SyncContext
from instep.sync.housekeeping import dead_runs, is_first_today, remove_uncommitted_files, uncommitted
from instep.sync.quarantine.entry_columns import EntryColumns, with_hashed
from instep.sync.two_people import listed, two_people

_DIGEST = re.compile(r"[0-9a-f]{64}")
MOST_RUNS = 100


@dataclass(frozen=True)
class QuarantinePlace:
    """The place of the quarantine of one accepted table, whose rows are at `ref` of the destination. Files of runs that
    are `ignored` do not count."""

    table: Table
    ref: Ref
    target: StagingTarget = field(repr=False)
    ignored: Collection[str]

    def files(self) -> list[str]:
        """Return the names of its files, in order."""
        return sorted(files_in(self.target.quarantine, self.target.io, self.ignored))

    @contextmanager
    def stored(
        self, context: SyncContext, columns: Sequence[str] = ALL, only: pc.Expression | None = None
    ) -> Iterator[StoredQuarantine]:
        """Read all of it, however much there is; of the entries these columns, and those that are `only` looked for."""
        hide = Guard(context, self.table, self.target.schema).entry
        target = self.target
        with stored_quarantine(target.quarantine, target.io, self.ignored, hide, columns, only) as entries:
            yield entries


def quarantine_places(
    context: SyncContext, only: Collection[str] = (), run: Run | None = None, *, idle: bool = False
) -> Iterator[QuarantinePlace]:
    """Yield the quarantines of all tables or of those with these paths. `run`: the one that asks, for which what dead
    runs left is removed first. `idle`: no run is alive, so that one that has not ended is dead. Raises InstepError for
    an unknown table."""
    runs = context.store.runs.history(context.name, limit=MOST_RUNS)
    running = {r.id for r in runs if r.status == "running" and not idle}
    ended_badly = [r for r in runs if r.status != "done" and r.id not in running]
    dead = dead_runs(context, run) if run is not None else []
    for table, ref in _tables(context, only):
        state = context.destination.schema.state(ref)
        if run is not None:
            context.destination.write.claim(ref, run.fence)
            remove_uncommitted_files(context, dead, ref, state)
        ignored = {*uncommitted(ended_badly, state), *running}
        yield QuarantinePlace(table, ref, context.destination.write.target(ref), ignored)


def quarantined_counts(context: SyncContext, only: Collection[str] = ()) -> dict[str, int]:
    """Return how many entries of each table wait in quarantine, by path; of these tables, or of all. A quarantine whose
    files are those that were counted before is not read."""
    return counts_of(context, quarantine_places(context, only))


def counts_of(context: SyncContext, places: Iterable[QuarantinePlace]) -> dict[str, int]:
    """Return `quarantined_counts` of these quarantines."""
    counts, cached = dict[str, int](), context.store.quarantines.of(context.name)
    for place in places:
        uri, files = place.target.quarantine, place.files()
        if not files:
            continue
        digest_of_files = sha256("\n".join(files).encode()).hexdigest()
        if (count := cached.get((uri, digest_of_files))) is None:
            count, read = count_waiting(uri, place.target.io, place.ignored)
            if sorted(read) == files:  # none came or went meanwhile, and all could be read
                context.store.quarantines.save(context.name, uri, digest_of_files, count)
        if count:
            counts[place.table.path] = count
    return counts


def _tables(context: SyncContext, only: Collection[str]) -> list[tuple[Table, Ref]]:
    """Return the accepted tables that are in the destination and ours."""
    document = accepted_document(context.store, context.name)[1]
    accepted = {t.path: t for t in document.outlines.values() if t.alias}
    for path in sorted(set(only) - set(accepted)):
        raise unknown_table(f"connection {context.name} has no table {path}", path, accepted)
    refs = {destination_ref(t, context.naming): t.ref for path, t in accepted.items() if not only or path in only}
    foreign = context.destination.schema.foreign(refs)
    existing = context.destination.schema.inspect(ref for ref in refs if ref not in foreign)
    whole = ((document.table(refs[t.ref]), t.ref) for t in existing.tables)
    return [(table, ref) for table, ref in whole if table is not None]


class Guard:
    """Takes out of the entries of a table what may not be told of them: a column may have been switched off or hashed
    since."""

    def __init__(self, context: SyncContext, table: Table, schema: pa.Schema) -> None:
        self._salt, self._columns = context.salt, EntryColumns(context, table, schema)

    def entry(self, entry: QuarantineEntry) -> QuarantineEntry:
        """Return the entry without what may not be told."""
        before = set(json.loads(entry.hashed or "[]"))
        hashed = set(before)
        key = self._object(entry.key, entry, hashed)
        original = entry.original
        if original is not None:
            column = entry.column
            original = self._text(column, original, entry, hashed) if column else self._object(original, entry, hashed)
        if (key, original, hashed) == (entry.key, entry.original, before):
            return entry
        known = entry.digest if original is None else original_digest(original)
        marked = entry.hashed if hashed == before else with_hashed(entry, hashed)
        return replace(entry, key=key, original=original, digest=known, hashed=marked)

    def _object(self, text: str, entry: QuarantineEntry, hashed: set[str]) -> str:
        members = json.loads(text).items()
        return compact_json({path: self._text(path, value, entry, hashed) for path, value in members})

    def _text(self, path: str, text: str | None, entry: QuarantineEntry, hashed: set[str]) -> str | None:
        """Return a text as it may be told; what is hashed here is added to `hashed`, the columns that are known to be
        hashes. Of entries from before that was recorded, what looks like a hash counts as one."""
        treatment = self._columns.treatment(path, entry)
        if text is None or not treatment.is_on:
            return None
        if not treatment.is_hashed or path in json.loads(entry.hashed or "[]"):
            return text
        if not self._salt:
            return None
        hashed.add(path)
        return text if not entry.hashed and _DIGEST.fullmatch(text) else digest(text, self._salt)


@dataclass(frozen=True)
class DiscardReport:
    """The entries whose originals went."""

    discarded: int
    """Number of entries."""
    ids: tuple[str, ...]
    """The ids of the first 10,000."""


def discard(
    context: SyncContext, tables: Collection[str] = (), ids: Collection[str] = (), until: datetime | None = None
) -> DiscardReport:
    """Let go of what these tables hold, or of the entries whose ids start so; their originals are deleted, and the
    same value held again stays discarded. `until`: only what was held at this moment or earlier. Raises InstepError for
    an id that is none, or not clear, Blocked if four_eyes want a second person."""
    with (
        two_people(context, "quarantine discard", _named(tables, ids, until)),
        claimed(context, "discard", paused_too=True) as run,
    ):
        places = list(quarantine_places(context, tables, run))
        chosen = resolved(context, places, ids) if ids else None
        count, gone = 0, list[str]()
        for place in places:
            with place.stored(context) as stored:
                discarded, first = stored.discard(EntryFilter(until=until), chosen)
                if discarded:
                    stored.put_together(run.id, 0)
            count, gone = count + discarded, [*gone, *first]
        return DiscardReport(count, tuple(gone[:FIRST_IDS]))


def _named(tables: Collection[str], ids: Collection[str], until: datetime | None = None) -> str:
    """Return which entries, without telling what they hold; thousands of ids by a digest of them that nobody finds
    other ids for."""
    end = f" until {until.isoformat()}" if until else ""
    if not ids:
        return f"all of {listed(sorted(tables)) or 'every table'}{end}"
    named = listed(sorted(ids))
    if len(ids) > 3:
        named = f"{len(ids):,} entries ({sha256(named.encode()).hexdigest()[:32]})"
    return f"{named}{f' of {listed(sorted(tables))}' if tables else ''}{end}"


def of_row(context: SyncContext, table: str, key: Mapping[str, str | None]) -> list[str]:
    """Return the ids of a table's entries, settled ones too, of the rows with this key (texts by column).

    Raises RunInProgress while a run of the connection is alive, whose entries are not known yet."""
    context.store.runs.check_idle(context.name)
    ids, only = list[str](), _may_be_of(context, key)
    for place in quarantine_places(context, [table], idle=True):
        with place.stored(context, only=only) as stored:
            ids += [e.id for entries in stored.batches() for e in entries if _is_of(context, e, key)]
    return ids


def _may_be_of(context: SyncContext, key: Mapping[str, str | None]) -> pc.Expression | None:
    """Return an expression that all entries of these keys match, and few others: the longest of the key's texts is
    in theirs."""
    text = max((text for text in key.values() if text), key=len, default="")
    if not text:
        return None
    forms = sorted({compact_json(text)[1:-1], json.dumps(text)[1:-1], digest(text, context.salt)})
    matches = [pc.match_substring(pc.field("key"), form) for form in forms]
    return reduce(operator.or_, matches)


def erase(context: SyncContext, table: str, ids: Collection[str]) -> int:
    """Remove every trace of entries from a table's quarantine, by their whole ids; return how many there were. Those of
    several rows take two people where four_eyes are on: they are let go, too."""
    several = False
    if context.four_eyes:
        several = rows_of(_keys(context, table, ids), context.salt) > 1
    with two_people(context, "quarantine erase", _named((table,), ids)) if several else nullcontext():
        return _erase(context, table, ids)


def _keys(context: SyncContext, table: str, ids: Collection[str]) -> list[str]:
    only = pc.field("id").isin(pa.array(sorted(ids), pa.string()))
    keys = list[str]()
    for place in quarantine_places(context, [table]):
        with place.stored(context, only=only) as stored:
            keys += [e.key for entries in stored.batches() for e in entries]
    return keys


def rows_of(keys: Iterable[str], salt: bytes) -> int:
    """Return how many rows entries with these keys are of, at most.

    A row that was held before and after its key got another column, or its key was hashed, is one: a key that is a part
    of another one counts as that one.
    """
    rows = {frozenset((name, _hash(text, salt)) for name, text in json.loads(key).items()) for key in keys}
    return sum(not any(row < other for other in rows) for row in rows)


def _hash(text: str | None, salt: bytes) -> str | None:
    return text if text is None or _DIGEST.fullmatch(text) else digest(text, salt)


def _erase(context: SyncContext, table: str, ids: Collection[str]) -> int:
    with claimed(context, "discard", paused_too=True) as run:
        count = 0
        for place in quarantine_places(context, [table], run):
            with place.stored(context) as stored:
                if gone := stored.erase(ids):
                    stored.put_together(run.id, 0)
            count += gone
        return count


class DiscardQuarantine(DirectWork):
    """The work of the operation `discard_quarantine`."""

    makes_run = True

    def run(self, context: SyncContext, request: DiscardQuarantineRequest) -> DiscardReport:
        """Discard all entries of the tables, or these entries."""
        return discard(context, request.tables, request.ids, request.until)


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
    """Return whether the entry has this key; hashed key columns hold the hash of what a person knows."""
    entry_key = json.loads(entry.key)
    return bool(key) and all(
        name in entry_key and entry_key[name] in (text, None if text is None else digest(text, context.salt))
        for name, text in key.items()
    )


def resolved(context: SyncContext, places: Iterable[QuarantinePlace], ids: Collection[str]) -> list[str]:
    """Return the whole ids of those that start so; InstepError if one starts none, or several."""
    counts, whole = Counter[str](), dict[str, str]()
    for place in places:
        with place.stored(context, COUNTED) as stored:
            for prefix, (count, id) in stored.starting(ids).items():
                counts[prefix] += count
                whole[prefix] = id
    for id in ids:
        if counts[id] != 1:
            what = "no entry" if not counts[id] else f"{counts[id]:,} entries"
            raise InstepError(f"{what} in quarantine: {id}", hint="see `instep quarantine list --limit 100`")
    return sorted(whole.values())


def expire(context: SyncContext, run: Run) -> int:
    """Delete what was held last more than `quarantine_days` ago, by the first run of a day (UTC) that syncs, and puts
    the files of a table together; how many entries went. What cannot be deleted now is tried again the next day."""
    if not is_first_today(context, run) or not context.store.runs.has_quarantined(context.name):
        return 0
    gone, days = 0, context.destination.quarantine_days
    with suppress(InstepError):
        for place in quarantine_places(context):
            with place.stored(context) as stored:
                limit = run.started - timedelta(days=days) if days else None
                old = stored.count_older(limit) if limit else 0
                if old or len(stored.files) > 1:
                    stored.put_together(run.id, 0, limit)
                gone += old
    return gone
