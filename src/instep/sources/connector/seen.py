"""What a connector has declared and sent so far. Pure.

A table or column is there as long as it is declared or was ever sent without being declared: that nothing of it comes
in a sync says nothing. A declaration that is dropped is believed where rows of the table come without the column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from instep.schema.names import ROW_ID, row_id
from instep.schema.table import Catalog, Column, Table
from instep.schema.types import DataType, Float, Int, Unknown, parse
from instep.schema.widen import promote
from instep.sources.connector.segment import SegmentTable

Ref = tuple[str, str]


@dataclass(frozen=True)
class SeenColumn:
    """`declared`: its type was when it came last."""

    type: DataType
    declared: bool = False


@dataclass(frozen=True)
class SeenTable:
    """`key` is the declared one, empty for none. `sent`: rows of it have come."""

    key: tuple[str, ...]
    columns: Mapping[str, SeenColumn]
    declared: bool = False
    sent: bool = False

    def table(self, ref: Ref) -> Table:
        """As a source has it. Without a key the row id is the key."""
        places = {name: place for place, name in enumerate(self.key, 1)}
        known = [name for name in (*self.key, *self.columns) if self._has_type(name)]
        columns = (self._column(name, places.get(name, 0)) for name in dict.fromkeys(known))
        return Table(*ref, tuple(columns) if self.key else (row_id(), *columns))

    def _column(self, name: str, place: int) -> Column:
        return Column(name, self.columns[name].type, nullable=not place, key=place)

    def _has_type(self, name: str) -> bool:
        return name in self.columns and not isinstance(self.columns[name].type, Unknown)

    @property
    def usable(self) -> bool:
        """Whether its key is known; a key without a type waits for its first value."""
        named = all(map(self._has_type, self.key))
        return named and ROW_ID not in self.columns and any(map(self._has_type, self.columns))


@dataclass(frozen=True)
class Seen:
    tables: Mapping[Ref, SeenTable] = field(default_factory=dict)

    def after(self, told: Iterable[SegmentTable]) -> Seen:
        """With what a segment or a declaration has told, which names every declared table."""
        now = {(t.schema, t.name): t for t in told}
        kept = {
            ref: replace(t, declared=False) if ref not in now else t
            for ref, t in self.tables.items()
            if ref in now or t.sent or not t.declared
        }
        return Seen(kept | {ref: _met(kept.get(ref), t) for ref, t in now.items()})

    @property
    def catalog(self) -> Catalog:
        return Catalog.of(t.table(ref) for ref, t in self.tables.items() if t.usable)

    def to_dict(self) -> dict[str, Any]:
        return {"tables": [_to_dict(ref, t) for ref, t in sorted(self.tables.items())]}

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> Seen:
        return cls(dict(_from_dict(t) for t in said.get("tables", ())))


def _met(before: SeenTable | None, now: SegmentTable) -> SeenTable:
    columns = {c.name: SeenColumn(c.type, c.declared) for c in now.columns}
    sent = bool(now.rows)
    if before is None:
        return SeenTable(now.key, columns, now.declared, sent)
    known = {
        name: c for name, c in before.columns.items() if name in columns or not c.declared or not sent
    }  # what was declared, and is not now, has left once rows come without it
    met = {name: _column(known.get(name), c) for name, c in columns.items()}
    return SeenTable(now.key, {**known, **met}, now.declared, before.sent or sent)


def _column(before: SeenColumn | None, now: SeenColumn) -> SeenColumn:
    """A declared type is what it says; one that is inferred never becomes narrower. Integers fit into floats as long as
    they are small: one that does not is a misfit, which is better than a column of texts."""
    if before is None or now.declared:
        return now
    if isinstance(before.type, Float) and isinstance(now.type, Int):
        return SeenColumn(before.type)
    return SeenColumn(promote(before.type, now.type))


def _to_dict(ref: Ref, table: SeenTable) -> dict[str, Any]:
    columns = [[name, str(c.type), c.declared] for name, c in table.columns.items()]
    return {
        "schema": ref[0], "name": ref[1], "key": list(table.key), "declared": table.declared, "sent": table.sent,
        "columns": columns,
    }  # fmt: skip


def _from_dict(said: Mapping[str, Any]) -> tuple[Ref, SeenTable]:
    columns = {name: SeenColumn(parse(kind), declared) for name, kind, declared in said["columns"]}
    table = SeenTable(tuple(said["key"]), columns, said["declared"], said["sent"])
    return (said["schema"], said["name"]), table
