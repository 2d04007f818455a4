"""Columns that were switched on, hashed, shown or given another type since their table was loaded last.

A cursor finds only what is newer, so that rows loaded before would keep what they had: old values, values in clear, or
values as the old type writes them.
What the last load of each table had is recorded with its cursor and compared when the next one is planned.

New columns whose old rows stay NULL: said plainly before and after, because a cursor does not move for them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from instep.errors import Blocked, argument
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.changes.kinds import ColumnAdded, ColumnRetyped, ColumnWidened
from instep.schema.planning.projection import (
    DESELECTED,
    LoadedColumn,
    LoadedRules,
    ReselectedColumn,
    TableRead,
    clear_retained_columns,
    deselected_columns,
    is_read_again,
    left_out,
    loaded_columns,
    reselected_columns,
    with_added,
)
from instep.schema.selection.selection import is_read_hashed
from instep.sources.log import FollowedTable
from instep.suggest import stays_in_clear
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.detect import DetectionResult
from instep.sync.detection.filters import filter_of, lost_filter
from instep.sync.detection.swapped import keeps_old_values, reuses_old_values, swap_notes
from instep.sync.detection.table_renames import TableRenames
from instep.sync.schema_changes.backfill_plan import blocker_of, is_outdated, why_whole
from instep.sync.schema_changes.selected import chosen, selected_reads
from instep.sync.table_mode import is_partial, mode_name, mode_of

REDEFINED = "a statement at the source may have given rows other values, which no cursor tells"
_LATER = "rows that the source has deleted and older snapshots of the destination"


def remember_loaded(context: SyncContext, reads: Sequence[TableRead], whole: Collection[Ref]) -> None:
    """Record what these reads have brought, those of the tables in `whole` every row: a restore to before that needs
    to know if columns lacked values until then. Belongs into the transaction that records their cursors."""
    filters = {r.table.ref: _rules(context, r) for r in reads}
    recorded = context.store.loaded.with_rules(context.name, filters)
    filters |= {ref: replace(filters[ref], removed=rules.removed) for ref, (_, rules) in recorded.items()}
    before = {ref: columns for ref, (columns, _) in recorded.items()}
    filled = context.store.backfills.filled(context.name, before.keys() - set(whole))
    undecided = _undecided(context)
    columns = {
        ref: loaded_columns(
            r,
            before.get(ref, ()),
            whole=ref in whole,
            filled=filled.get(ref, ()),
            undecided=undecided.get(r.source.ref, ()),
        )
        for ref, r in ((r.table.ref, r) for r in reads)
    }
    completed = {ref for ref in before.keys() & set(whole) if _partial(before[ref]) - _partial(columns[ref])}
    run = context.run.id if context.run else ""
    context.store.backfills.record_read(context.name, completed, why="the whole table was read", run=run)
    new = {ref: read for ref, read in columns.items() if recorded.get(ref) != (tuple(read), filters[ref])}
    context.store.loaded.save(context.name, new, {ref: filters[ref] for ref in new})


def remember_added(context: SyncContext, reads: Sequence[TableRead]) -> None:
    """Record the columns that have come to loaded tables of which nothing was read since."""
    before = context.store.loaded.of(context.name, {r.table.ref for r in reads})
    columns = {ref: with_added(r, before[ref]) for ref, r in ((r.table.ref, r) for r in reads) if ref in before}
    context.store.loaded.save(context.name, {ref: now for ref, now in columns.items() if now != before[ref]})


def _partial(columns: Sequence[LoadedColumn]) -> set[str]:
    return {c.name for c in columns if c.partial}


def _undecided(context: SyncContext) -> Mapping[Ref, Collection[str]]:
    """Return, by table at the source, the columns whose other type waits for a decision."""
    kinds = ("column.narrowed", "column.retyped")
    columns: dict[Ref, set[str]] = {}
    for review in context.store.reviews.find(context.name, ("open",), kinds=kinds):
        if review.action == "ignore":
            continue  # it is recorded, and decided: the accepted type is kept
        columns.setdefault(review.table, set()).add(review.column)
    return columns


def _recorded(context: SyncContext) -> tuple[dict[Ref, tuple[LoadedColumn, ...]], dict[Ref, LoadedRules]]:
    """Return the columns of each loaded table, and the rules of those that have some."""
    recorded = context.store.loaded.with_rules(context.name)
    rules = {ref: of_table for ref, (_, of_table) in recorded.items() if of_table != LoadedRules()}
    return {ref: columns for ref, (columns, _) in recorded.items()}, rules


def _rules(context: SyncContext, read: TableRead) -> LoadedRules:
    settings = context.settings(read.table)
    mode = mode_of(read.table, settings)
    deletes = (mode or settings).deletes
    hashed = any(column.hashed for column in read.columns)
    return LoadedRules(
        read.where,
        read.table.path,
        deletes,
        read.table.history,
        _digest(context.salt) if hashed else "",
        read.definition,
        appended=mode is not None and mode.mode == "append",
    )


@cache
def _digest(salt: bytes) -> str:
    """Return a digest that shows whether a salt is the same, and is slow to guess from."""
    return hashlib.pbkdf2_hmac("sha256", salt, b"instep: is it the same salt", 100_000).hex()[:16]


def _reruled(
    context: SyncContext, reads: Sequence[TableRead], before: Mapping[Ref, LoadedRules]
) -> Iterator[tuple[Ref, str]]:
    """Yield loaded tables some of whose rows landed by other rules than today's, which no partial read can mend."""
    for read in reads:
        ref, old, now = read.table.ref, before.get(read.table.ref), _rules(context, read)
        if old is None:
            continue
        if old.salt and now.salt and old.salt != now.salt:
            yield ref, "the salt of its hashes is another one"
        elif old.deletes == "ignore" != now.deletes and mode_name(read.table, context.settings(read.table)) == "cdc":
            yield ref, "rows that the source has deleted are no longer ignored"
        elif _is_redefined(read, old):
            yield ref, REDEFINED


def redefined(context: SyncContext, reads: Sequence[TableRead]) -> frozenset[Ref]:
    """Return the tables whose rows may have other values at the source since their last load, unseen by a cursor."""
    before = context.store.loaded.filters(context.name)
    return frozenset(ref for r in reads if (ref := r.table.ref) in before and _is_redefined(r, before[ref]))


def _is_redefined(read: TableRead, old: LoadedRules) -> bool:
    now = FollowedTable(read.definition)
    return not now.holds(old.definition) or now.is_rewritten(old.definition)


def _resalted(
    context: SyncContext, reads: Sequence[TableRead], before: Mapping[Ref, LoadedRules]
) -> Iterator[tuple[Ref, Blocked]]:
    """Yield loaded tables whose rows would be duplicated under another salt: nothing is deleted of those, or they
    end as versions though nothing has changed."""
    for read in reads:
        old, now = before.get(read.table.ref), _rules(context, read)
        if old is None or not old.salt or not now.salt or old.salt == now.salt:
            continue
        keys = any(column.hashed and column.column.name in read.table.key for column in read.columns)
        if read.table.history or (keys and now.deletes == "ignore"):
            what = "versions that are there" if read.table.history else "keys that are there and never deleted"
            hint = "take the salt back, or load the table through a new connection"
            yield read.table.ref, Blocked(f"its hashes have another salt than the {what}", hint=hint)


def tables_without_versions(context: SyncContext, reads: Sequence[TableRead]) -> frozenset[Ref]:
    """Return loaded tables that keep their history from now on: their rows become versions though none of them has
    changed."""
    before = context.store.loaded.filters(context.name)
    history = {r.table.ref for r in reads if r.table.history}
    return frozenset(ref for ref in history if ref in before and before[ref].history is False)


def request_reload(context: SyncContext, detection: DetectionResult, reads: Sequence[TableRead]) -> dict[Ref, str]:
    """Record the backfills of whole tables that changed selections ask for, and what the loads to come leave out, so
    that a crash behind them forgets neither. Answers the tables that must not be loaded, and why."""
    loaded, rules = _recorded(context)
    reenabled = [*_reenabled_columns(context, detection, reads, loaded)]
    refused = {t.table.ref: str(_refusal(t)) for t in reenabled if _is_key(t) or _is_past(t)}
    refiltered = [*_refiltered(context, reads, rules, loaded)]
    refused |= {reload.ref: str(lost_filter(reload.read, reload.before.path)) for reload in refiltered if reload.lost}
    refused |= {ref: str(why) for ref, why in _resalted(context, reads, rules) if ref in loaded}
    others = [(reload.ref, reload.why) for reload in refiltered if reload.ref not in refused]
    others += [(ref, why) for ref, why in _reruled(context, reads, rules) if ref in loaded and ref not in refused]
    again = [t for t in reenabled if _read_again(context, t) and t.table.ref not in refused]
    marked = {r.table.ref: left_out(r, loaded[r.table.ref]) for r in reads if r.table.ref in loaded}
    less = {ref: columns for ref, columns in marked.items() if columns != loaded[ref] and ref not in refused}
    if again or less or others:
        with context.transaction():
            context.store.loaded.save(context.name, less)
            for reload in again:
                context.store.backfills.request(context.name, reload.table.ref, why=reload.why)
            for ref, why in others:
                context.store.backfills.request(context.name, ref, why=why)
    return refused


@dataclass(frozen=True)
class _Refiltered:
    """A loaded table whose filter is another one now."""

    read: TableRead
    before: LoadedRules
    lost: bool
    """True if the filter is lost because the file gives it to the table's former name."""

    @property
    def ref(self) -> Ref:
        return self.read.table.ref

    @property
    def why(self) -> str:
        return "its filter is another one" if self.read.where else "it no longer has a filter"


def _refiltered(
    context: SyncContext, reads: Sequence[TableRead], rules: Mapping[Ref, LoadedRules], loaded: Mapping[Ref, object]
) -> Iterator[_Refiltered]:
    for read in reads:
        before = rules.get(read.table.ref, LoadedRules())
        if read.table.ref in loaded and before.where != read.where:
            moved = before.path != read.table.path and filter_of(context, read.table, read.source) is None
            yield _Refiltered(read, before, bool(before.where) and moved)


def _filter_text(context: SyncContext, refiltered: _Refiltered) -> str:
    if refiltered.lost:
        return f"{lost_filter(refiltered.read, refiltered.before.path).message}: the table is not synced"
    ignored = bool(refiltered.read.table.key) and context.settings(refiltered.read.table).deletes == "ignore"
    gone = "stay, as `deletes: ignore` says" if ignored else "go as if they were deleted"
    left = f"; rows that no longer match {gone}" if refiltered.read.where else ""
    return f"{refiltered.read.table.path}: {refiltered.why}, so a sync reads the whole table{left}"


def reselected_notes(context: SyncContext, detection: DetectionResult) -> Iterator[str]:
    """Yield one sentence a column; none about tables that are read as a whole anyway."""
    loaded, rules = _recorded(context)
    if not loaded:
        return
    whole = {b.table for b in context.store.backfills.waiting(context.name) if b.scope == "table"}
    reads = [_as_decided(detection, r) for r in selected_reads(context, detection)[0]]
    yield from (
        _filter_text(context, refiltered)
        for refiltered in _refiltered(context, reads, rules, loaded)
        if refiltered.ref not in whole
    )
    paths = {r.table.ref: r.table.path for r in reads}
    refused = {ref: blocked for ref, blocked in _resalted(context, reads, rules) if ref in loaded}
    for ref, blocked in refused.items():
        yield f"{paths[ref]}: {blocked.message}: the table is not synced"
    for ref, why in _reruled(context, reads, rules):
        if ref in loaded and ref not in whole and ref not in refused:
            yield f"{paths[ref]}: {why}, so a sync reads the whole table"
    for read in reads:
        if mode_name(read.table, context.settings(read.table)) == "full_refresh" and not read.table.key:
            for name in deselected_columns(read, loaded.get(read.table.ref, ())):
                yield f"{read.table.path}.{name}: {DESELECTED}"
    for column in _reenabled_columns(context, detection, reads, loaded):
        if column.table.ref not in whole and (text := _text(context, column)):
            yield f"{column.path}: {text}"
    yield from _retained_notes(context, loaded, rules)


def _retained_notes(
    context: SyncContext, loaded: Mapping[Ref, Sequence[LoadedColumn]], rules: Mapping[Ref, LoadedRules]
) -> Iterator[str]:
    """Yield one sentence a column that is hashed now, that the source no longer has, and whose values are in clear."""
    selection = chosen(context.project_selection, context.store, context.name)
    if not selection.covers_columns:
        return
    for table in context.store.accepted.catalog(context.name).tables:
        hashed = partial(is_read_hashed, selection, table)
        before, were = loaded.get(table.ref, ()), rules.get(table.ref, LoadedRules())
        for column in clear_retained_columns(table, before, were, hashed):
            yield f"{column.path}: {stays_in_clear(context.name, column.path)}"


def _as_decided(detection: DetectionResult, read: TableRead) -> TableRead:
    """Return the read with the accepted types, which a plan has not applied yet."""
    let_in = {
        d.change.before.name: d.change.after.type
        for d in detection.applied
        if isinstance(d.change, ColumnWidened | ColumnRetyped) and d.change.table in (read.table.ref, read.source.ref)
    }
    if not let_in:
        return read
    return replace(
        read,
        columns=tuple(
            replace(c, column=replace(c.column, type=let_in.get(c.column.name, c.column.type))) for c in read.columns
        ),
    )


def _text(context: SyncContext, column: ReselectedColumn) -> str:
    if _is_key(column) or _is_past(column):
        return f"{_refusal(column).message}: the table is not synced"
    if column.what == "hashed":
        return f"it is hashed now, so a sync reads the whole table; {_LATER} keep it in clear"
    if column.what == "waiting":
        return "it will be hashed; existing rows stay in clear until its change of type is approved"
    if column.what == "clear":
        return f"it is no longer hashed, so a sync reads the whole table; {_LATER} keep the hashes"
    if not _has_cursor(context, column):
        return ""
    if column.what == "retyped":
        again = "its values may be formatted differently since its type changed, so a sync reads the whole table"
        purged = (
            ("; rows that the source has deleted are removed")
            if context.settings(column.table).mode == "append"
            else ""
        )
        return again + purged
    if _read_again(context, column):
        return "it is selected again with old values, so a sync reads the whole table"
    filled = f"`instep backfill {argument(column.table.path)}`"
    return f"it is selected again; rows that do not change keep their old values until {filled}"


def _reenabled_columns(
    context: SyncContext,
    detection: DetectionResult,
    reads: Sequence[TableRead],
    loaded: dict[Ref, tuple[LoadedColumn, ...]],
) -> Iterator[ReselectedColumn]:
    """Yield re-enabled columns. Policy says what becomes of the old rows of those that this detection adds, but not
    whether values may stay in clear."""
    places = TableRenames.of(detection.decisions)
    fresh = {
        (places.after(d.change), d.change.after.name) for d in detection.applied if isinstance(d.change, ColumnAdded)
    }
    undecided = _undecided(context)
    for read in reads:
        for column in reselected_columns(read, loaded.get(read.table.ref, ()), undecided.get(read.source.ref, ())):
            if column.what in ("hashed", "clear") or (column.table.ref, column.column.name) not in fresh:
                yield column


def _read_again(context: SyncContext, column: ReselectedColumn) -> bool:
    if column.what == "retyped" and not _has_cursor(context, column):
        return False
    return is_read_again(column.table.ref, column.column, column.what, context.policy, context.tags)


def _is_key(column: ReselectedColumn) -> bool:
    return column.what not in ("on", "retyped") and column.column.name in column.table.key


def _is_past(column: ReselectedColumn) -> bool:
    return column.what in ("hashed", "clear") and column.table.history


def _refusal(column: ReselectedColumn) -> Blocked:
    """Return the refusal: rows of two keys never mix, and versions that have ended stay as they are."""
    if not _is_key(column):
        stored_as = "in clear" if column.what == "hashed" else "as hashes"
        return Blocked(
            f"{column.path} is {'hashed now' if column.what == 'hashed' else 'no longer hashed'}, and the history "
            f"of its table holds it {stored_as}",
            hint="take that back in instep.yml, or load the table through a new connection",
        )
    now, take = ("hashed", "out of") if column.what == "hashed" else ("no longer hashed", "back into")
    return Blocked(
        f"{column.path} is in the key of its loaded table and {now}: old and new rows would have different keys",
        hint=f"take it {take} `hash` (or `exclude`) in instep.yml, or load the table through a new connection",
    )


def _has_cursor(context: SyncContext, column: ReselectedColumn) -> bool:
    """Return whether a sync reads some of the rows only. A stream sends what it sends."""
    choice = mode_of(column.table, context.settings(column.table))
    return choice is not None and choice.partial and (column.what != "retyped" or choice.mode != "stream")


def partial_columns(
    context: SyncContext, detection: DetectionResult, accepted: Catalog, sent: Callable[[Ref], bool] = lambda ref: False
) -> tuple[str, ...]:
    """Return one sentence a column that is added to a loaded table with a cursor and not backfilled by policy, or that
    cannot be filled by itself as policy asks. `sent` tells of which tables the run under way brings every row."""
    if detection.version == 0:
        return ()
    notes, places = [], TableRenames.of(detection.decisions)
    loaded = context.store.loaded.of(context.name)
    for decision in detection.applied:
        change = decision.change
        if not isinstance(change, ColumnAdded) or decision.modifiers.backfill == "table":
            continue
        table = accepted.get(places.after(change))
        if table is None or not {places.before(change), table.ref} & loaded.keys():
            continue
        lacks_values = is_partial(table, context.settings(table)) and not sent(table.ref)
        path = f"{table.path}.{change.after.name}"
        was = detection.accepted.get(places.before(change))
        if keeps_old_values(context, was, decision, detection.decisions):
            if lacks_values:
                notes.append(_incomplete(context, table, change.after.name, outdated=True))
        elif reuses_old_values(context, was, change, detection.decisions):
            notes.append(f"{path}: it comes back with old values, so a sync reads the whole table")
        elif decision.modifiers.backfill == "column":
            if why := why_whole(context, table, change.after.name):
                notes.append(f"{path}: {why}, so a sync reads the whole table for it")
            elif why := blocker_of(context, table):
                notes.append(f"{path}: rows loaded before are not filled at once: {why}")
        elif lacks_values:
            outdated = is_outdated(context, table.ref, change.after.name)
            notes.append(_incomplete(context, table, change.after.name, outdated=outdated))
    return (*notes, *swap_notes(context, detection, accepted), *reselected_notes(context, detection))


def incomplete_columns(context: SyncContext, tables: Collection[Ref] | None = None) -> Iterator[tuple[Ref, str, str]]:
    """Yield (table, column, a sentence) for each column that is NULL in rows which were loaded before it came, and that
    no recorded backfill is to fill. Of these accepted tables, or of all."""
    incomplete = context.store.loaded.incomplete(context.name)
    if not incomplete:
        return
    waiting = {(b.table, b.column) for b in context.store.backfills.waiting(context.name) if b.scope != "since"}
    accepted = context.store.accepted.catalog(context.name)
    for ref, column in incomplete:
        table = accepted.get(ref)
        if table is None or table.retained or column not in {c.name for c in table.live}:
            continue
        if (tables is None or ref in tables) and not waiting & {(ref, column), (ref, "")}:
            outdated = is_outdated(context, table.ref, column)
            yield ref, column, _incomplete(context, table, column, outdated=outdated)


def _incomplete(context: SyncContext, table: Table, column: str, *, outdated: bool) -> str:
    option = "" if why_whole(context, table, column) else f" --column {argument(column)}"
    filled = f"`instep backfill {argument(table.path)}{option}`"
    what = "the values from before it was left out" if outdated else "NULL in it"
    return f"{table.path}.{column}: rows that do not change keep {what} until {filled}"
