"""The columns that a sync reads of each accepted table while changes may wait (always accepted ∩ selection), and those
that were switched on, hashed, shown or given another type since the last load.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.promotion import widens
from instep.schema.catalog.types import Decimal, Float, Int, Json, String, parse
from instep.schema.changes.diff import pair, pair_columns
from instep.schema.changes.kinds import ColumnAdded
from instep.schema.policy.policy import Policy, decide

Ref = tuple[str, str]


@dataclass(frozen=True)
class ColumnRead:
    """An accepted column and the source column that feeds it; without one it is read as NULL."""

    column: Column
    source: Column | None
    hashed: bool = False
    off: bool = False
    """The source has it, and it is not selected."""


@dataclass(frozen=True)
class TableRead:
    """An accepted table, the source table under its current name, and its columns in accepted order."""

    table: Table
    source: Table
    columns: tuple[ColumnRead, ...]
    where: str = ""
    """A row filter as SQL of the source, "" for all rows."""
    definition: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Definitions that its values depend on beside the rows, such as labels of an enum; empty: not asked for."""

    @property
    def condition(self) -> str:
        """The filter as a part of a longer condition."""
        return f"({self.where})" if self.where else ""


@dataclass(frozen=True)
class SkippedTable:
    """An accepted table that this sync skips, and why; the other tables go on."""

    table: Table
    why: str


def reads(
    accepted: Catalog,
    source: Catalog,
    *,
    hashed: Callable[[Ref, str], bool] = lambda ref, column: False,
    paused: Collection[Ref] = (),
) -> tuple[tuple[TableRead, ...], tuple[SkippedTable, ...]]:
    """Return the reads of all accepted tables, and why some cannot be read. Both catalogs are selected already. A
    renamed object is read under its accepted name, one that is not accepted is not read, a removed column is NULL,
    and what is retained is never read. `hashed` takes the source's (schema, table) and column. A table that was
    replaced under its name is not read until that is accepted, as its rows would mix with those of another table;
    `paused` names more such tables, where ids cannot tell."""
    pairs = pair(accepted, source)
    gone = {t.ref: f"{t.path} is no longer in the source, or not readable" for t in pairs.removed}
    again = [t for t, _ in pairs.replaced] + [t for t, _ in pairs.same if t.ref in paused]
    gone |= {t.ref: f"{t.path} was replaced by another table of that name" for t in again}
    same = sorted((p for p in pairs.same if p[0].ref not in gone), key=lambda p: p[0].ref)
    reads_found = tuple(_table(before, now, hashed) for before, now in same)
    return reads_found, tuple(SkippedTable(t, gone[t.ref]) for t in accepted.tables if t.ref in gone)


def _table(table: Table, source: Table, hashed: Callable[[Ref, str], bool]) -> TableRead:
    pairs = {before.name: now for before, now in pair_columns(table, source).same}

    def read(column: Column) -> ColumnRead:
        now = pairs.get(column.name)
        return ColumnRead(column, now, bool(now) and hashed(source.ref, (now or column).name))

    return TableRead(table, source, tuple(read(c) for c in table.live))


def pair_tables(accepted: Iterable[Table], source: Catalog) -> dict[Ref, Table]:
    """Return source tables by accepted (schema, name): paired by id, then by name, another table of that name
    included."""
    pairs = pair(Catalog.of(accepted), source)
    return {before.ref: after for before, after in (*pairs.same, *pairs.replaced)}


What = Literal["on", "hashed", "clear", "waiting", "retyped", "retained"]
"""`waiting`: to be hashed, in clear until the type of hashes is accepted. `retyped`: values that were loaded may be
written otherwise now. `retained`: to be hashed, in clear until it is dropped, as the source has it no more."""
_NUMBERS = (Int, Decimal, Float)
_DISPLAY_WIDTH = re.compile(r"((?:tiny|small|medium|big)?int)\(\d+\)", re.IGNORECASE)
_TIMES = re.compile(r"(?:timestamp|datetime|time)(?:\((\d)\))?( with(?:out)? time zone)?", re.IGNORECASE)
_TEXTS = {"tinytext": 255, "character varying": 1 << 16, "varchar": 1 << 16, "text": 1 << 16} | {
    "mediumtext": 1 << 24,
    "longtext": 1 << 32,
}
"""Types of texts that come as they are, with their characters where the type says no length."""


@dataclass(frozen=True)
class LoadedColumn:
    """State of a column at the destination since its last load: `read` by it or left out, its values `hashed` or in
    clear. The id is the source's, `native` its type there and `type` the accepted one ("": not known)."""

    name: str
    id: str | None = None
    read: bool = True
    hashed: bool = False
    native: str = ""
    type: str = ""
    partial: bool = False
    """Rows that were loaded before the column came or was on, and have not changed since, lack its values."""
    outdated: bool = False
    """Such rows have values from before the column was left out, not NULL."""


@dataclass(frozen=True)
class LoadedRules:
    """Selection of a table's rows since its last load, its path at the source when that was said, and by which rules
    they landed (None, "": not known): what became of rows that the source had deleted, whether versions are kept, and a
    digest of the salt of its hashes. `definition`: what their values rested on at the source. `appended`: a row that
    has changed stands beside what it was."""

    where: str = ""
    path: str = ""
    deletes: str = ""
    history: bool | None = None
    salt: str = ""
    definition: Mapping[str, str] = field(default_factory=dict, hash=False)
    appended: bool = False
    removed: Mapping[str, bool] = field(default_factory=dict, hash=False)
    """Columns that the source has dropped, by name: True if their loaded values are hashes."""


@dataclass(frozen=True)
class ReselectedColumn:
    """A column of an accepted table that is chosen otherwise than at the last load."""

    table: Table
    column: Column
    what: What

    @property
    def path(self) -> str:
        return f"{self.table.path}.{self.column.name}"

    @property
    def why(self) -> str:
        return f"{self.path} is {self.what}"


def loaded_columns(
    read: TableRead,
    before: Sequence[LoadedColumn] = (),
    *,
    whole: bool = True,
    filled: Collection[str] = (),
    undecided: Collection[str] = (),
) -> tuple[LoadedColumn, ...]:
    """Return the columns after a load of this read. One that is left out keeps the values that it had, by key. `whole`:
    the load had every row; the columns `filled` have a value in every row anyway. Of the columns `undecided` (see
    `reselected_columns`) it stays on record what the source's type was."""
    full = {c.column.name for c in read.columns} if whole or not before else filled
    lost = whole and not read.table.key
    after = [_loaded(column, before, column.column.name not in full, lost=lost) for column in read.columns]
    if whole:
        return tuple(after)
    return tuple(_as_before(c, before) if c.name in undecided else c for c in after)


def with_added(read: TableRead, before: Sequence[LoadedColumn]) -> tuple[LoadedColumn, ...]:
    """Return the columns of a loaded table of which nothing was read since: no row has a value of those that are new in
    this read."""
    added = (column for column in read.columns if _known(before, column.column) is None)
    return (*before, *(_loaded(column, (), True) for column in added))


def _as_before(column: LoadedColumn, before: Sequence[LoadedColumn]) -> LoadedColumn:
    old = next((c for c in before if c.name == column.name and c.type == column.type and c.native), None)
    return column if old is None else replace(column, native=old.native)


def _holds_hashes(column_read: ColumnRead) -> bool:
    """Return whether the column holds hashes. Hashes are text: until that type is accepted, the table keeps its
    values."""
    return column_read.hashed and column_read.column.type == String()


def _loaded(column_read: ColumnRead, before: Sequence[LoadedColumn], some: bool, *, lost: bool = False) -> LoadedColumn:
    column, old = column_read.column, _known(before, column_read.column)
    if lost:
        old = None
    if column_read.source is not None:
        partial = some and (old is None or old.partial or not old.read)
        outdated = partial and old is not None and (old.outdated or (not old.read and bool(old.type)))
        kinds = column_read.source.native, str(column.type)
        return LoadedColumn(column.name, column.id, True, _holds_hashes(column_read), *kinds, partial, outdated)
    old = old or LoadedColumn("", hashed=_holds_hashes(column_read))
    return replace(old, name=column.name, id=column.id, read=False)


DESELECTED = "left out, and without a key a load of all rows cannot carry its values on: they become NULL"


def deselected_columns(read: TableRead, before: Sequence[LoadedColumn]) -> tuple[str, ...]:
    """Return the columns that are not selected any more, and of which the table has values."""
    out = (c.column for c in read.columns if c.off)
    return tuple(c.name for c in out if (old := _known(before, c)) is not None and old.type)


def left_out(read: TableRead, before: Sequence[LoadedColumn]) -> tuple[LoadedColumn, ...]:
    """Return `before`, with the columns marked that this read leaves out: once its rows land, the table lacks
    values."""
    out = {_known(before, column.column) for column in read.columns if column.source is None}
    return tuple(replace(c, read=False) if c in out else c for c in before)


def reselected_columns(
    read: TableRead, before: Sequence[LoadedColumn], undecided: Collection[str] = ()
) -> Iterator[ReselectedColumn]:
    """Yield columns whose selection has changed since the last load; those that were not there then do not count.

    `undecided`: columns whose other type at the source waits for a decision. Values that only the narrower type may
    have cut are left until then: reading them again would be the decision.
    """
    for column in read.columns:
        old = _known(before, column.column)
        if column.source is None or old is None:
            continue
        if column.hashed and not _holds_hashes(column):
            if not old.hashed:
                yield ReselectedColumn(read.table, column.column, "waiting")
        elif old.hashed != column.hashed:
            yield ReselectedColumn(read.table, column.column, "hashed" if column.hashed else "clear")
        elif not old.read:
            yield ReselectedColumn(read.table, column.column, "on")
        elif _is_written_otherwise(column, old) and not (column.column.name in undecided and _may_be_cut(column, old)):
            yield ReselectedColumn(read.table, column.column, "retyped")


_VERSION = re.compile(r"__v\d+$")
"""The end of the name of a retained column whose name another column has now."""


def clear_retained_columns(
    table: Table, before: Sequence[LoadedColumn], rules: LoadedRules, hashed: Callable[[Column], bool]
) -> Iterator[ReselectedColumn]:
    """Yield columns that are `hashed` by now, that the source has no more, and whose loaded values are in clear. No
    load reaches these. A column of which it is not on record counts as in clear."""
    known = {**rules.removed} | ({c.name: c.hashed for c in before} if table.retained else {})
    for column in table.columns:
        if not (table.retained or column.retained):
            continue
        was = _VERSION.sub("", column.name)
        of_was = was in known and not (was in table.by_name and table.by_name[was].retained)
        is_hash = known.get(column.name, of_was and known[was]) and column.type == String()
        if not is_hash and (hashed(column) or (column.retained and hashed(replace(column, name=was)))):
            yield ReselectedColumn(table, column, "retained")


def _may_be_cut(column_read: ColumnRead, old: LoadedColumn) -> bool:
    """Return whether values are what they were, as far as the source's narrower type has not cut them."""
    assert column_read.source is not None, "asked before"
    after = column_read.column.type
    if old.type != str(after) or isinstance(after, Json):
        return False
    if isinstance(after, String):
        return 0 < _room(column_read.source.native) < _room(old.native)
    return widens(column_read.source.type, after)


def _is_written_otherwise(column_read: ColumnRead, old: LoadedColumn) -> bool:
    """Return whether a value may arrive otherwise than at the last load, because the source's type is another one, or
    the accepted type is. Numbers that get more room at once on both sides, and texts that do, are what they were (a
    number as text need not be: `007`); what gets less room at the source may have been cut there."""
    assert column_read.source is not None, "asked before"
    untold = not (old.native or column_read.source.native)  # SQLite's columns may have a type or none
    if untold or not old.type or (old.native, old.type) == (column_read.source.native, str(column_read.column.type)):
        return False
    before, after = parse(old.type), column_read.column.type
    if column_read.hashed:
        return True
    if before == after and not isinstance(after, String | Json) and widens(column_read.source.type, after):
        native = column_read.source.native
        if column_read.source.type == after and not native.endswith(
            "[]"
        ):  # of files, too, whose types have other names in each format
            return _fraction(native) < _fraction(old.native)
        return _without_display_width(old.native) != _without_display_width(native)
    if old.native == column_read.source.native or not widens(before, after):
        return True
    if isinstance(after, String):
        room, now = _room(old.native), _room(column_read.source.native)
        return not (isinstance(before, String) and 0 < room <= now)
    return not (isinstance(before, _NUMBERS) and isinstance(after, _NUMBERS) and before != after)


def _without_display_width(native: str) -> str:
    """Return a source's type without what MySQL shows of an integer, and newer servers do not: `int(11)`."""
    return _DISPLAY_WIDTH.sub(r"\1", native)


def _fraction(native: str) -> int:
    """Return how many digits of a second a source's type holds, 0 for any other type."""
    times = _TIMES.fullmatch(native.strip())
    if times is None:
        return 0
    return int(times[1]) if times[1] else 6 if times[2] else 0  # PostgreSQL says the zone, and has six digits


def _room(native: str) -> int:
    """Return how many characters a source's type of texts holds that come as they are, 0 for any other type."""
    name, _, length = native.lower().partition("(")
    own = length.partition(")")[0]
    return int(own) if own.isdecimal() and name.strip() in _TEXTS else _TEXTS.get(name.strip(), 0)


def _known(before: Sequence[LoadedColumn], column: Column) -> LoadedColumn | None:
    """Find a column by name, which holds on another server too, and by its id where the name is new."""
    named = next((c for c in before if c.name == column.name), None)
    return named or next((c for c in before if c.id and c.id == column.id), None)


def is_read_again(table: Ref, column: Column, what: What, policy: Policy, tags: tuple[str, ...] = ()) -> bool:
    """Return whether the whole table is read for it: always to hash, show or respell what is loaded already; for a
    column that is on again unless policy backfills nothing."""
    if what != "on":
        return what not in ("waiting", "retained")
    return decide(ColumnAdded(table, column, 0), policy, explicit="on", tags=tags).modifiers.backfill != "none"
