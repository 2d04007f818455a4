"""One sync's load of a table: which rows, into which kind of commit, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Literal

from instep.destinations.base import LoadOutcome, LoadState, Ref
from instep.errors import Blocked, argument
from instep.project.sections.tables import TableSettings
from instep.schema.catalog.catalog import Table
from instep.schema.catalog.promotion import keeps_apart, same_order
from instep.schema.planning.overflow import dropped_extras
from instep.schema.planning.projection import DESELECTED, ColumnRead, LoadedColumn, TableRead, deselected_columns
from instep.sources.base import ANOTHER_FORM, NOT_GUARANTEED, CursorRange, Snapshot, WeakKeys
from instep.sources.log import ChangedKeys, ChangeLog
from instep.sources.stream import TableCounts
from instep.stage.spec import InvalidValue
from instep.store.catalogs.backfills import Backfill
from instep.sync.table_mode import TableMode, choose

Action = Literal["append", "overwrite", "merge"]


@dataclass(frozen=True)
class Load:
    """One table's part of a sync. `cursor` is the JSON to record with the data, `keys` asks for a second read
    of the key columns of the whole table (finding deletes), `since` replaces the destination's rows from that
    cursor value on. `number` names the table in chunks and specs; `folder` is where its files are staged, below the
    table's location. `on_invalid_value` is what the decisions about the table say to such values, `holds` the
    (change id, rule) of those decisions by column. `extra` are columns that are read and kept as JSON. `serves`
    are the numbers of the backfills that it does beside. `only_copies`: accepted columns whose values are still in the
    JSON and nowhere else. `changed`: the keys of the only rows that are read, which the `log` has told. `read_at`: when
    the snapshot was taken, in microseconds since 1970 UTC. `counts`: the operations that a stream has sent.
    `backfills`: the backfills that waited when it was planned, by number and time: what is asked for later it does not
    serve. `one_moment`: its keys are those of the very moment of its rows. `proof`: see `UnchangedTables`.
    `weak_key`: why the source's primary key may not hold for the staged rows, "" if it does."""

    number: int
    read: TableRead
    ref: Ref
    choice: TableMode
    action: Action
    rows: CursorRange = field(default_factory=CursorRange)
    cursor: str = ""
    complete: bool = True
    keys: bool = False
    since: str | None = None
    notes: tuple[str, ...] = ()
    folder: str = ""
    on_invalid_value: InvalidValue = "quarantine"
    holds: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    extra: tuple[ColumnRead, ...] = ()
    serves: tuple[int, ...] = ()
    only_copies: tuple[str, ...] = ()
    changed: ChangedKeys | None = None
    log: ChangeLog | None = None
    read_at: int = 0
    counts: TableCounts | None = None
    backfills: frozenset[tuple[int, datetime]] = frozenset()
    one_moment: bool = True
    proof: str = ""
    weak_key: str = ""

    def count_unread(self, outcome: LoadOutcome) -> int:
        """Return how many rows the source has below the cursor that the destination has not, or as deleted only. What a
        log tells comes with the log, and a key that was read later than the rows may be that of a new one."""
        if self.rows.column is None or not self.keys:
            return 0
        return outcome.returned + (outcome.absent if self.one_moment else 0)

    def answers(self, backfill: Backfill) -> bool:
        """True for a backfill of its table that waited already when this load, of every row and column, was planned."""
        of_it = self.complete and backfill.table == self.table.ref
        return of_it and (backfill.number, backfill.requested_at) in self.backfills

    @property
    def wide(self) -> TableRead:
        """The read with the extra columns behind the others."""
        return replace(self.read, columns=(*self.read.columns, *self.extra)) if self.extra else self.read

    @property
    def table(self) -> Table:
        return self.read.table

    @property
    def unsure_key(self) -> str:
        """Why rows may share the key: only the settings or a person declare it, or it is weak; "" if none do."""
        if not self.table.key:
            return ""
        guaranteed = set(self.read.source.key)
        read = {c.source.name for c in self.read.columns if c.column.key and c.source is not None}
        return self.weak_key if guaranteed and guaranteed <= read else NOT_GUARANTEED

    @property
    def versioned(self) -> bool:
        """True if its rows meet versions of rows; the first load of a table with history writes the first versions."""
        return self.table.history and self.action == "merge"

    @property
    def asks(self) -> bool:
        """True if the requested keys tell which rows are gone."""
        if self.choice.deletes == "ignore" or self.keys:
            return False
        if self.counts is not None:
            return self.counts.deletes > 0 and not self.complete
        return self.changed is not None

    @property
    def alters(self) -> bool:
        """True if some columns of rows at the destination are given other values."""
        return self.counts is not None and self.counts.updates > 0 and not self.complete

    @property
    def merges(self) -> bool:
        """True if its files are read by a merge, in the order of the source, and not adopted."""
        return self.action == "merge" or (self.action == "append" and self.since is not None)

    @property
    def spec(self) -> str:
        """The key of this load's rows in chunks."""
        return f"{self.number}"

    @property
    def key_spec(self) -> str:
        """The key of this load's key-only rows in chunks."""
        return f"{self.number}k"

    @property
    def altered_spec(self) -> str:
        """The key in chunks of this load's rows of which only some columns are given."""
        return f"{self.number}a"

    @property
    def specs(self) -> tuple[str, str, str]:
        """All of its keys in chunks, whether or not it reads anything under them: rows, keys, altered rows."""
        return self.spec, self.key_spec, self.altered_spec


def plan_load(
    number: int,
    read: TableRead,
    ref: Ref,
    settings: TableSettings,
    state: LoadState | None,
    snapshot: Snapshot,
    *,
    start: str = "",
    full: bool = False,
    noted: Sequence[str] = (),
) -> Load:
    """Return the load of one table, given what its last data commit recorded. It begins at the lowest of the cursors
    `noted` (JSON), if one is lower, and by a cursor of which nothing is recorded at `start`."""
    choice = choose(read.table, settings)
    load = Load(
        number,
        read,
        ref,
        choice,
        "overwrite",
        one_moment=getattr(snapshot, "one_moment", True),
        weak_key=weak_key(read, snapshot),
    )
    if choice.cursor is not None:
        load = _with_cursor(load, choice.cursor, settings, state, snapshot, start=start, full=full, noted=noted)
    if state is None:
        return replace(load, rows=replace(load.rows, lower=None), action="overwrite", complete=True, keys=False)
    if choice.mode == "upsert":
        wants_keys = not load.complete and choice.deletes != "ignore"
        return replace(load, action="merge", keys=wants_keys)
    if choice.mode == "append" and not load.complete:
        return replace(load, action="append", notes=(*load.notes, *_reread(load)))
    return load


def weak_key(read: TableRead, snapshot: Snapshot) -> str:
    """Return why several rows of the table may have the same key once they are staged, though the source has a primary
    key; "" if they cannot, or it has none."""
    if not read.source.key:
        return ""
    if isinstance(snapshot, WeakKeys) and (why := snapshot.weak_key(read.source)):
        return why
    pairs = ((c.source, c.column) for c in read.columns if c.column.key and c.source is not None)
    return "" if all(keeps_apart(source.type, column.type) for source, column in pairs) else ANOTHER_FORM


def _reread(load: Load) -> list[str]:
    """Return why rows are read again as new ones: without a key they cannot be told apart."""
    retained = [c.name for c in load.table.columns if c.retained and load.since is not None]
    return (
        [f"rows from {load.choice.cursor} {load.since} on are read again without {', '.join(retained)}"]
        if retained
        else []
    )


def _with_cursor(
    load: Load,
    column: str,
    settings: TableSettings,
    state: LoadState | None,
    snapshot: Snapshot,
    *,
    start: str,
    full: bool,
    noted: Sequence[str],
) -> Load:
    if why := _unordered(load.read, column):
        return replace(load, notes=(*load.notes, f"{why}: the whole table is read"))
    after = recorded(state, column) or (start or None if state is not None else None)
    begin = lowest(after, noted, column)
    lower, bounds = snapshot.cursor_bounds(load.read, column, begin, settings.lookback)
    if bounds.nulls:
        note = f"{bounds.nulls:,} rows have no {column}: the whole table is read, they would be missed"
        return replace(load, cursor="", notes=(*load.notes, note))
    upper = bounds.upper if bounds.upper is not None else after
    cursor = json.dumps({"column": column, "upper": upper}) if upper is not None else ""
    if after is None or begin is None or full:
        return replace(load, cursor=cursor)
    if bounds.lost:
        raise Blocked(
            f"{load.table.path}: {bounds.lost}",
            hint=f"`instep sync --full --table {argument(load.table.path)}` reads what is there now in the place of "
            "its rows",
        )
    load = replace(load, notes=(*load.notes, *bounds.notes))
    if bounds.upper is None or cursor_went_back(bounds.upper, after):
        note = f"{column} went back from {after} to {bounds.upper}: the whole table is read"
        return replace(load, cursor=cursor, notes=(*load.notes, note))
    if bounds.whole and load.choice.mode != "append":
        return replace(load, cursor=cursor, notes=(*load.notes, f"{bounds.whole}: the whole table is read"))
    rows = CursorRange(column, lower, bounds.upper)
    return replace(load, rows=rows, cursor=cursor, complete=False, since=None if bounds.fresh else lower)


def _unordered(read: TableRead, column: str) -> str:
    """Return why the source's column does not order rows as the accepted one does: another type compares otherwise."""
    read_column = next(c for c in read.columns if c.column.name == column)
    if read_column.source is None or read_column.hashed or same_order(read_column.source.type, read_column.column.type):
        return ""
    return f"the cursor {column} is {read_column.source.type} at the source and {read_column.column.type} as accepted"


def recorded(state: LoadState | None, column: str) -> str | None:
    """Return the cursor value that the destination's last commit recorded for this column."""
    if state is None or not state.cursor:
        return None
    saved = json.loads(state.cursor)
    return saved["upper"] if saved.get("column") == column else None


def lowest(after: str | None, noted: Sequence[str], column: str) -> str | None:
    """Return the lowest of a cursor value and those that were noted for this column; None if one is another
    column's."""
    for text in noted:
        saved = json.loads(text)
        if saved.get("column") != column:
            return None
        if after is not None and cursor_went_back(saved["upper"], after):
            after = saved["upper"]
    return after


def cursor_went_back(now: str, before: str) -> bool:
    """Return whether a cursor's maximum moved backwards; numbers compare as numbers, times by their text form."""
    try:
        return Decimal(now) < Decimal(before)
    except InvalidOperation:
        return now < before


def _is_gone(column_read: ColumnRead) -> bool:
    """Return whether the source has dropped a column, and nobody has decided yet what becomes of its values. Another
    one may have its name."""
    return column_read.source is None and not column_read.column.retained and not column_read.off


def merge_instead_of_overwrite(
    load: Load, state: LoadState | None, *, drop_retained: bool, loaded: Sequence[LoadedColumn] = ()
) -> Load:
    """Turn an overwrite that would lose values of columns or rows that the source has dropped, or of columns that are
    left out since they were `loaded`, into a merge by key, or refuse it. A table that was never loaded has nothing to
    lose."""
    if load.action != "overwrite" or state is None:
        return load
    out = deselected_columns(load.read, loaded)
    lost = [c.name for c in load.table.columns if c.retained]
    undecided = [column.column.name for column in load.read.columns if _is_gone(column)]
    only_here = dropped_extras(load.table, load.read.source)
    left = load.choice.deletes == "ignore" or (load.choice.deletes == "soft" and state.deleted)
    if load.table.key and (lost or undecided or only_here or out or (load.choice.mode == "upsert" and left)):
        # A mode that lays the table down anew deletes nothing itself: the merge in its place has to.
        deletes = "hard" if load.choice.mode == "full_refresh" else load.choice.deletes
        return replace(load, action="merge", complete=True, choice=replace(load.choice, deletes=deletes))
    if undecided:
        raise Blocked(
            f"a full refresh of {load.table.path} would lose the values of {', '.join(undecided)}, which the source "
            "dropped and whose removal is not decided yet",
            hint="a removal counts once it is seen again; for one under review run `instep changes list`",
        )
    if lost and not drop_retained:
        raise Blocked(
            f"a full refresh of {load.table.path} would lose the values of {', '.join(lost)}, which the source dropped",
            hint="pass --drop-retained to drop them",
        )
    if out and load.choice.mode != "full_refresh":  # a plan has said so of the others
        load = replace(load, notes=(*load.notes, f"{', '.join(out)}: {DESELECTED}"))
    if only_here:
        note = f"the source has dropped {', '.join(only_here)} before a decision: without a key the values are lost"
        return replace(load, notes=(*load.notes, note))
    return load
