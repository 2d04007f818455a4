"""Catalog > Table > Column: what a source has, what policy accepted, what a destination holds.

The three catalogs of a connection (source, accepted, destination) share these records. They are values:
frozen, comparable, with a fingerprint that depends on content only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from instep.errors import SchemaError
from instep.schema.catalog.types import DataType, String, parse

FOUND = "found in data"
"""The note of a column whose values do not fit the type that the source declares: its type holds them all."""
ROW_ID = "_instep_id"
"""The name of the row id at a source whose tables have it as their key."""
_ROW_ID = "row id"


@dataclass(frozen=True)
class Column:
    """A column; its position is its place in the table.

    `id` is the source's immutable identity (PostgreSQL attnum) or None. `key` is the 1-based position in
    the primary key, 0 outside it. `native` is the source's own type text, `note` why the type was mapped
    to something looser (an unbounded numeric kept as string). `retained` marks a column that the source
    no longer has and the destination keeps: it is never read. `alias` is the name at the destination, given
    when the column is accepted and kept until it is renamed; empty in a source catalog.
    """

    name: str
    type: DataType
    nullable: bool = True
    id: str | None = None
    key: int = 0
    default: str | None = None
    comment: str | None = None
    native: str = ""
    note: str = ""
    retained: bool = False
    alias: str = ""


def row_id() -> Column:
    """Return the key of a source's table that has no other: at the destination it is the system column of that name."""
    return Column(ROW_ID, String(), nullable=False, key=1, native=_ROW_ID)


def is_row_id(column: Column) -> bool:
    return column.name == ROW_ID and column.native == _ROW_ID


@dataclass(frozen=True)
class Table:
    """A table; `id` is the source's immutable identity (PostgreSQL oid) or None. One that starts with `~` (MySQL's
    InnoDB table id) proves a rename when it is equal, and nothing when it differs.

    `kind` is table, view, materialized_view or foreign. `cursor` names the column that orders changes,
    if one is in use. `generation` counts replacements under one name. `retained` and `alias` as for columns. `extra`
    names source columns that are not accepted and whose values are kept as JSON in a system column, which the table
    has from the first such column on (None: not yet). `history`: the destination keeps every version of its rows.
    """

    schema: str
    name: str
    columns: tuple[Column, ...]
    id: str | None = None
    kind: str = "table"
    cursor: str | None = None
    comment: str | None = None
    generation: int = 0
    retained: bool = False
    alias: str = ""
    extra: tuple[str, ...] | None = None
    history: bool = False

    @property
    def path(self) -> str:
        """`schema.name`, the form that people and patterns use (not parsed back: names may hold dots)."""
        return f"{self.schema}.{self.name}" if self.schema else self.name

    @property
    def ref(self) -> tuple[str, str]:
        """(schema, name), the unambiguous reference."""
        return self.schema, self.name

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        return {c.name: c for c in self.columns}

    @cached_property
    def document(self) -> Mapping[str, Any]:
        """Itself as a JSON-ready dict that leaves defaults out; not to be changed. A run needs it a dozen times."""
        out: dict[str, Any] = {"schema": self.schema, "name": self.name}
        out |= {field: value for field, default in _TABLE_DEFAULTS if (value := getattr(self, field)) != default}
        if self.extra is not None:
            out["extra"] = list(self.extra)
        out["columns"] = [column_to_dict(c) for c in self.columns]
        return out

    @property
    def key(self) -> tuple[str, ...]:
        """The primary key's column names in key order; empty for a keyless table."""
        return tuple(c.name for c in sorted((c for c in self.columns if c.key), key=lambda c: c.key))

    @property
    def live(self) -> tuple[Column, ...]:
        """The columns that are read: all but the retained ones."""
        return tuple(c for c in self.columns if not c.retained)


@dataclass(frozen=True)
class Catalog:
    """Tables by (schema, name); their order carries no meaning."""

    tables: tuple[Table, ...] = ()

    def __post_init__(self) -> None:
        if len(self.by_ref) != len(self.tables):
            raise SchemaError("a catalog holds two tables of the same schema and name")

    @classmethod
    def of(cls, tables: Iterable[Table]) -> Catalog:
        """Return a catalog with its tables in canonical order, so that equal content is equal."""
        return cls(tuple(sorted(tables, key=lambda t: t.ref)))

    @cached_property
    def by_ref(self) -> Mapping[tuple[str, str], Table]:
        return {t.ref: t for t in self.tables}

    @cached_property
    def by_id(self) -> Mapping[str, Table]:
        """The tables that have an id; of several with one, the first."""
        return {t.id: t for t in reversed(self.tables) if t.id}

    @property
    def schemas(self) -> frozenset[str]:
        return frozenset(t.schema for t in self.tables)

    def get(self, ref: tuple[str, str]) -> Table | None:
        return self.by_ref.get(ref)

    def put(self, table: Table) -> Catalog:
        """Return this catalog with `table` in the place of the one with its (schema, name), or added."""
        return Catalog.of([*(t for t in self.tables if t.ref != table.ref), table])

    def drop(self, ref: tuple[str, str]) -> Catalog:
        return Catalog.of(t for t in self.tables if t.ref != ref)


def table_fingerprint(table: Table) -> str:
    """Return the SHA-256 (first 32 hex digits) of the table's content."""
    return _digest(table.document)


def fingerprint(catalog: Catalog) -> str:
    """Return the SHA-256 (first 32 hex digits) of the catalog's content; independent of the order of its tables."""
    return _digest([t.document for t in sorted(catalog.tables, key=lambda t: t.ref)])


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


_COLUMN = Column("", parse("unknown"))
_TABLE = Table("", "", ())
_COLUMN_DEFAULTS = tuple(
    (field, getattr(_COLUMN, field))
    for field in ("nullable", "id", "key", "default", "comment", "native", "note", "retained", "alias")
)
_TABLE_DEFAULTS = tuple(
    (field, getattr(_TABLE, field))
    for field in ("id", "kind", "cursor", "comment", "generation", "retained", "alias", "history")
)


def column_to_dict(column: Column) -> dict[str, Any]:
    """Return a JSON-ready dict that leaves defaults out."""
    out: dict[str, Any] = {"name": column.name, "type": str(column.type)}
    for field, default in _COLUMN_DEFAULTS:
        if (value := getattr(column, field)) != default:
            out[field] = value
    return out


def column_from_dict(data: Mapping[str, Any]) -> Column:
    return Column(**{**data, "type": parse(data["type"])})


def table_to_dict(table: Table) -> dict[str, Any]:
    """Return a JSON-ready dict that leaves defaults out."""
    out = dict(table.document)
    if table.extra is not None:
        out["extra"] = list(table.extra)
    out["columns"] = [dict(column) for column in out["columns"]]
    return out


def table_from_dict(data: Mapping[str, Any]) -> Table:
    more = {"extra": tuple(data["extra"])} if data.get("extra") is not None else {}
    return replace(_TABLE, **{**data, "columns": tuple(column_from_dict(c) for c in data["columns"]), **more})


def catalog_to_dict(catalog: Catalog) -> dict[str, Any]:
    return {"tables": [table_to_dict(t) for t in catalog.tables]}


def catalog_from_dict(data: Mapping[str, Any]) -> Catalog:
    return Catalog.of(table_from_dict(t) for t in data["tables"])


def unbound(table: Table) -> Table:
    """Return the table without ids."""
    return replace(table, id=None, columns=tuple(replace(c, id=None) for c in table.columns))


def by_names(catalog: Catalog) -> Catalog:
    """Return the catalog without ids, so that only names pair."""
    return Catalog.of(map(unbound, catalog.tables))


def fold_case(name: str) -> str:
    """Fold a name as engines that ignore case compare: by the upper case's lower case, where that is one character.
    So `ß` and `SS` are two names, as they are for them."""
    return name.lower() if name.isascii() else "".join(map(_lower, name))


def _lower(character: str) -> str:
    upper = character.upper()
    return (upper if len(upper) == 1 else character).lower()
