"""The comparison of a catalog with a data contract."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.promotion import widens
from instep.schema.catalog.types import Array, DataType, Decimal, Float, Int, String, Struct
from instep.schema.contracts.contract import plain

Code = Literal["table.missing", "column.missing", "type.differs", "column.nullable", "key.differs", "column.extra"]


@dataclass(frozen=True)
class ContractColumn:
    """A column of a contract."""

    name: str
    logical: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    type: DataType | None = None
    """Exact where the contract was exported by us; else `logical` and its `options` bound it ("" : nothing said)."""
    required: bool = False
    key: int = 0
    hashed: bool = False
    retained: bool = False
    line: int = 0
    """Line in the file."""


@dataclass(frozen=True)
class ContractTable:
    """A table of a data contract."""

    names: tuple[str, ...]
    """Names that it may have at the source, the likeliest first."""
    columns: tuple[ContractColumn, ...]
    cursor: str = ""
    mode: str = ""
    retained: bool = False
    line: int = 0
    """Line in the file."""

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(c.name for c in sorted((c for c in self.columns if c.key), key=lambda c: c.key))

    @property
    def live(self) -> tuple[ContractColumn, ...]:
        return tuple(c for c in self.columns if not c.retained)


@dataclass(frozen=True)
class ContractDifference:
    """One difference; a note is none that breaks the contract."""

    code: Code
    path: str
    text: str
    line: int = 0

    @property
    def breach(self) -> bool:
        return self.code != "column.extra"


def find(table: ContractTable, catalog: Catalog) -> Table | None:
    """Return the table that the contract means: by its path, else by a name that only one table has."""
    live = [t for t in catalog.tables if not t.retained]
    for name in table.names:
        by_path = [t for t in live if t.path == name]
        if fitting := by_path or [t for t in live if t.name == name]:
            return fitting[0] if len(fitting) == 1 else None
    return None


def check(tables: Iterable[ContractTable], catalog: Catalog) -> tuple[ContractDifference, ...]:
    """Return where a catalog is not within the contract. What was kept after its removal is no part of it, and tables
    that the contract does not name may be there."""
    return tuple(f for t in tables if not t.retained for f in _check_table(t, find(t, catalog)))


def _check_table(promised: ContractTable, table: Table | None) -> Iterator[ContractDifference]:
    if table is None:
        yield ContractDifference(
            "table.missing", promised.names[0], f"table {promised.names[0]} is missing", promised.line
        )
        return
    columns = {c.name: c for c in table.live}
    for column in promised.live:
        path = f"{table.path}.{column.name}"
        if (column_now := columns.get(column.name)) is None:
            yield ContractDifference("column.missing", path, f"column {path} is missing", column.line)
        else:
            yield from _check_column(column, column_now, path)
    if promised.key and promised.key != table.key:
        now = f"({', '.join(table.key)})" if table.key else "none"
        message = f"the key of {table.path} is {now}, the contract says ({', '.join(promised.key)})"
        yield ContractDifference("key.differs", table.path, message, promised.line)
    promised_names = {c.name for c in promised.columns}
    for name in (n for n in columns if n not in promised_names):
        path = f"{table.path}.{name}"
        yield ContractDifference("column.extra", path, f"column {path} is not in the contract", promised.line)


def _check_column(promised: ContractColumn, column: Column, path: str) -> Iterator[ContractDifference]:
    if not promised.hashed and (why := type_mismatch(promised, column.type)):
        yield ContractDifference("type.differs", path, f"column {path} {why}", promised.line)
    if promised.required and column.nullable:
        message = f"column {path} may be NULL, the contract requires a value"
        yield ContractDifference("column.nullable", path, message, promised.line)


def type_mismatch(promised: ContractColumn, kind: DataType) -> str:
    """Return why values of a type are not all within what the contract says of a column; "" if they are."""
    if promised.type is not None:
        return "" if fits(kind, promised.type) else f"is {kind}, the contract says {promised.type}"
    if not promised.logical:
        return ""
    name, options = plain(kind)
    if name != promised.logical and not _is_number(promised.logical, kind):
        return f"is {kind} ({name}), the contract says {promised.logical}"
    beyond = [f"{key}: {value}" for key, value in promised.options.items() if _is_wider(key, value, options, kind)]
    return f"is {kind}, the contract says {promised.logical} with {', '.join(beyond)}" if beyond else ""


def fits(kind: DataType, promised: DataType) -> bool:
    """Return whether it is the same kind of type, and no wider; a struct has all the promised fields."""
    if isinstance(kind, Array) and isinstance(promised, Array):
        return fits(kind.element, promised.element)
    if isinstance(kind, Struct) and isinstance(promised, Struct):
        types = {f.name: f.type for f in kind.fields}
        return all(f.name in types and fits(types[f.name], f.type) for f in promised.fields)
    return type(kind) is type(promised) and widens(kind, promised)


def _is_number(promised: str, kind: DataType) -> bool:
    """Return whether the type keeps the promise: an integer is a number, and a decimal without a scale is an
    integer."""
    if promised == "number":
        return isinstance(kind, Int)
    return promised == "integer" and isinstance(kind, Decimal) and kind.scale == 0


def _is_wider(key: str, value: Any, options: Mapping[str, Any], kind: DataType) -> bool:
    """Return whether a type takes more than an option of the contract says. Options about values alone say nothing of
    it."""
    match key:
        case "maxLength":
            return isinstance(kind, String) and (kind.length is None or kind.length > value)
        case "timezone":
            return bool(options.get(key, value) != value)
        case "format" if isinstance(kind, Int | Float):
            return isinstance(value, str) and value[1:].isdigit() and value[0] in "if" and kind.bits > int(value[1:])
    return False
