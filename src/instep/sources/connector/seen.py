"""Tables, columns and types that a connector has declared or sent so far. Pure.

A table or column is there as long as it is declared or was ever sent without being declared: that nothing of it comes
in a sync says nothing. A declaration that is dropped is believed where rows of the table come without the column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from instep.schema.catalog.catalog import FOUND, ROW_ID, Catalog, Column, Table, row_id
from instep.schema.catalog.promotion import promote
from instep.schema.catalog.types import DataType, Float, Int, Unknown, parse
from instep.sources.connector.segment import SegmentColumn, SegmentTable, stored_name

Ref = tuple[str, str]


@dataclass(frozen=True)
class SeenColumn:
    """A column as the connector has declared and sent it so far."""

    type: DataType
    declared: bool = False
    """Its type was when it came last."""
    came: bool = False
    """A value of it ever did."""
    silent: bool = False
    """Rows have come last without one, after others with one."""
    value_type: DataType = field(default_factory=Unknown)
    """Holds all values that came, where the declared type does not."""


@dataclass(frozen=True)
class SeenTable:
    """A table as the connector has declared and sent it so far."""

    key: tuple[str, ...]
    """The declared one, empty for none."""
    columns: Mapping[str, SeenColumn]
    declared: bool = False
    sent: bool = False
    """Rows of it have come."""
    cursor: str = ""
    """The declared column that it is read by, "" for none."""

    def table(self, ref: Ref) -> Table:
        """Return the table as a source table. Without a key the row id is the key."""
        places = {name: place for place, name in enumerate(self.key, 1)}
        names = [name for name in (*self.key, *self.columns) if self._has_type(name)]
        columns = (self._column(name, places.get(name, 0)) for name in dict.fromkeys(names))
        cursor = self.cursor if self.cursor in names else None
        return Table(*ref, tuple(columns) if self.key else (row_id(), *columns), cursor=cursor)

    def _column(self, name: str, place: int) -> Column:
        column = self.columns[name]
        if place or column.value_type in (Unknown(), column.type):
            return Column(name, column.type, nullable=not place, key=place)
        return Column(name, column.value_type, nullable=True, note=FOUND)

    def _has_type(self, name: str) -> bool:
        return name in self.columns and not isinstance(self.columns[name].type, Unknown)

    @property
    def usable(self) -> bool:
        """Return whether the table's key is known; a key without a type waits for its first value."""
        named = all(map(self._has_type, self.key))
        return named and any(map(self._has_type, self.columns))


@dataclass(frozen=True)
class SeenTables:
    """All tables that the connector has declared and sent so far."""

    tables: Mapping[Ref, SeenTable] = field(default_factory=dict)
    left: frozenset[Ref] = frozenset()
    """Tables of which operations were neither taken nor held, and that have not been asked for again since."""

    def after(self, segment_tables: Iterable[SegmentTable], *, every: bool = False) -> SeenTables:
        """Return the tables after a segment or a declaration, which names every declared table. `every`: there are no
        others, and what a declared column was is gone with its declaration."""
        now = {(t.schema, t.name): t for t in segment_tables}
        tables = {
            ref: replace(t, declared=False) if ref not in now else t
            for ref, t in self.tables.items()
            if ref in now or (not every and (t.sent or not t.declared))
        }
        met = {ref: _met_all(tables.get(ref), t, every=every) for ref, t in now.items()}
        return replace(self, tables=tables | met)

    @property
    def catalog(self) -> Catalog:
        return Catalog.of(t.table(ref) for ref, t in self.tables.items() if t.usable)

    def by_declaration(self, before: SeenTables) -> SeenTables:
        """Return the tables with the declared types of the columns that were not there `before`: what is found in their
        first values is a change of the next look."""
        tables = {}
        for ref, table in self.tables.items():
            seen = before.tables[ref].columns if ref in before.tables else {}
            columns = {n: c if n in seen else replace(c, value_type=Unknown()) for n, c in table.columns.items()}
            tables[ref] = replace(table, columns=columns)
        return replace(self, tables=tables)

    @property
    def stale_columns(self) -> dict[Ref, frozenset[str]]:
        """Columns that are there only because they were sent once, and do not come any more."""
        return self._named(lambda ref, name, c: c.silent and not c.declared)

    def first_filled(self, before: SeenTables) -> dict[Ref, frozenset[str]]:
        """Return columns, of tables that were there `before`, whose first value has come since."""

        def is_first(ref: Ref, name: str, column: SeenColumn) -> bool:
            then = before.tables[ref].columns.get(name) if ref in before.tables else column
            return column.came and not (then and then.came)

        return self._named(is_first)

    def _named(self, is_selected: Callable[[Ref, str, SeenColumn], bool]) -> dict[Ref, frozenset[str]]:
        columns = {
            ref: frozenset(name for name, c in t.columns.items() if name not in t.key and is_selected(ref, name, c))
            for ref, t in self.tables.items()
        }
        return {ref: names for ref, names in columns.items() if names}

    def without(self, ref: Ref, column: str) -> SeenTables:
        """Return the tables without the column, as if it had never been sent."""
        if (table := self.tables.get(ref)) is None:
            return self
        columns = {name: c for name, c in table.columns.items() if name != column}
        return replace(self, tables={**self.tables, ref: replace(table, columns=columns)})

    def to_dict(self) -> dict[str, Any]:
        tables = [_to_dict(ref, t) for ref, t in sorted(self.tables.items())]
        return {"tables": tables, "left": [list(ref) for ref in sorted(self.left)]}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> SeenTables:
        left = frozenset((schema, name) for schema, name in document.get("left", ()))
        return cls(dict(_from_dict(t) for t in document.get("tables", ())), left)


def _met_all(before: SeenTable | None, now: SegmentTable, *, every: bool) -> SeenTable:
    """Return the table with what each checkpoint of the segment has added, as if it had been a separate segment."""
    for step in now.steps:
        before = _merged(before, step, every=every)
    return _merged(before, now, every=every) if before is None or not now.steps else before


def _merged(before: SeenTable | None, now: SegmentTable, *, every: bool) -> SeenTable:
    sent = bool(now.rows)
    columns = {
        c.name: SeenColumn(c.type, c.declared, sent and _has_values(c), value_type=c.value_type) for c in now.columns
    }
    if before is None:
        return SeenTable(now.key, columns, now.declared, sent, now.cursor)
    remaining = {
        name: c for name, c in before.columns.items() if name in columns or not c.declared or not (sent or every)
    }  # what was declared, and is not now, has left once rows come without it
    joined = {name: _column(remaining.get(name), c) for name, c in columns.items()}
    columns_after = {
        name: _with_values(remaining.get(name), c, columns.get(name), now) for name, c in (remaining | joined).items()
    }
    return SeenTable(now.key, columns_after, now.declared, before.sent or sent, now.cursor)


def _has_values(column: SegmentColumn) -> bool:
    return not column.empty and not isinstance(column.type, Unknown)


def _with_values(
    before: SeenColumn | None, column: SeenColumn, now: SeenColumn | None, table: SegmentTable
) -> SeenColumn:
    """Return the column with `came` and `silent` set. Only whole rows show that a column is silent, as updates may
    omit any."""
    if now is not None and now.came:
        return replace(column, came=True, silent=False)
    if before is None:
        return column
    return replace(column, came=before.came, silent=before.silent or (before.came and table.upserts > 0))


def _column(before: SeenColumn | None, now: SeenColumn) -> SeenColumn:
    """Return the joined column. A declared type is final; an inferred one never becomes narrower. Integers fit into
    floats as long as they are small: a large one is an invalid value, which is better than a column of texts."""
    if before is not None and before.declared and now.declared and before.type == now.type:
        return replace(now, value_type=promote(before.value_type, now.value_type))
    if before is None or now.declared:
        return now
    if isinstance(before.type, Float) and isinstance(now.type, Int):
        return SeenColumn(before.type)
    return SeenColumn(promote(before.type, now.type))


def _to_dict(ref: Ref, table: SeenTable) -> dict[str, Any]:
    columns = [
        [name, str(c.type), c.declared, c.came, c.silent, str(c.value_type)] for name, c in table.columns.items()
    ]
    return {
        "schema": ref[0],
        "name": ref[1],
        "key": list(table.key),
        "declared": table.declared,
        "sent": table.sent,
        "columns": columns,
        **({"cursor": table.cursor} if table.cursor else {}),
    }


def _from_dict(document: Mapping[str, Any]) -> tuple[Ref, SeenTable]:
    columns = {_renamed(name): _column_from(*facts) for name, *facts in document["columns"]}
    key, cursor = tuple(map(_renamed, document["key"])), document.get("cursor", "")
    table = SeenTable(key, columns, document["declared"], document["sent"], cursor)
    return (document["schema"], document["name"]), table


def _renamed(column: str) -> str:
    """Return the name of a column that was recorded before such names got a prefix."""
    return stored_name(column) if column == ROW_ID else column


def _column_from(
    kind: str, declared: bool, came: bool = True, silent: bool = False, value_type: str = "unknown"
) -> SeenColumn:
    """Return the column; one recorded before `came` was known counts as one with values."""
    return SeenColumn(parse(kind), declared, came, silent, parse(value_type))
