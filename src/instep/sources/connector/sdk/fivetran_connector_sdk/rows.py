"""Rows of one table: looked at when they are given, kept as they are sent, and handed on as columns."""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

from . import convert, pack
from .declared import RESERVED, TableSpec, is_blank
from .shown import shown

UPSERT, UPDATE, DELETE = 0, 1, 2
MOST_ROWS, MOST_BYTES, MOST_SECONDS = 2000, 1 << 20, 5.0
LARGEST_ROW = 128 << 20
_MEMO = 2000
_NONE = type(None)
_NUMBERS = (bool, int, float, _NONE)
_PLAIN = frozenset({str, bytes, *_NUMBERS})
_SIZED = ("string", "json", "binary", "decimal")
_BASES: tuple[tuple[type, convert.Convert], ...] = (
    (int, lambda v: int(v)),
    (float, lambda v: float(v)),
    (str, convert.string),
    (bytes, bytes),
    (bytearray, bytes),
    (memoryview, bytes),
    (dict, convert.inferred_json),
    (list, convert.inferred_json),
)
Converts = tuple[tuple[int, convert.Convert], ...]


class Shape:
    """Rows with the same columns in the same order. What to do with their values is found once for the classes that the
    values of a row have."""

    def __init__(self, table: TableSpec, names: tuple[Any, ...], keep_invalid_values: bool) -> None:
        for name in names:
            _check_name(table, name)
        self.table, self.names = table, names
        self.plans: dict[tuple[type, ...], tuple[Converts, tuple[int, ...]]] = {}
        self._keeps = keep_invalid_values
        if missing := [k for k in table.key if k not in names]:
            raise ValueError(
                f"table {table.label}: the row has no {missing[0]!r}, which is a column of its primary key"
            )
        self._keys = [names.index(k) for k in table.key]

    def plan(self, types: tuple[type, ...]) -> tuple[Converts, tuple[int, ...]]:
        """Return (what to convert, where texts and bytes are) for values of these classes."""
        for index in self._keys:
            if types[index] is _NONE:
                name = self.names[index]
                raise ValueError(f"table {self.table.label}: {name!r} is null, and it is a column of the primary key")
        steps = [(i, self._convert(name, kind)) for i, (name, kind) in enumerate(zip(self.names, types))]
        converts = tuple((i, step) for i, step in steps if step is not None)
        sized = tuple(i for i, (name, kind) in enumerate(zip(self.names, types)) if self._is_sized(name, kind))
        if len(self.plans) >= _MEMO:
            self.plans.clear()
        self.plans[types] = converts, sized
        return converts, sized

    def _is_sized(self, name: str, kind: type) -> bool:
        """Return whether what is sent for it is a text or bytes."""
        declared = self.table.types.get(name)
        return not issubclass(kind, _NUMBERS) and (declared is None or declared.kind.startswith(_SIZED))

    def _convert(self, name: str, kind: type) -> convert.Convert | None:
        if kind is _NONE:
            return None
        declared = self.table.types.get(name)
        if declared is None:
            return None if kind in _PLAIN else _inferred(kind)
        if declared.exact is kind:
            return None
        return convert.with_fallback(declared.convert) if declared.lenient and self._keeps else declared.convert


def _check_name(table: TableSpec, name: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(f"table {table.label}: the column name {name!r} is not a text")
    if is_blank(name):
        raise ValueError(
            f"table {table.label}: the row has a column without a name, or with a blank one: {shown(name, 100)}"
        )
    if "\0" in name:
        raise ValueError(f"table {table.label}: the column name {shown(name, 100)} has a NUL")
    if not name.isprintable() and not is_unicode(name):
        raise ValueError(f"table {table.label}: the column name {name!r} is not Unicode text")
    if name in RESERVED:
        raise ValueError(f"table {table.label}: a column cannot be named {name!r}")


def is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _size(value: Any) -> int:
    """Return the bytes of a text or bytes; raises ValueError for a text that UTF-8 cannot encode."""
    if type(value) is not bytes and not value.isascii():
        try:
            return len(value.encode())
        except UnicodeEncodeError:
            raise ValueError("holds half a surrogate pair, which is not Unicode text") from None
    return len(value)


def _inferred(kind: type) -> convert.Convert:
    """Return the conversion: subclasses as their base, anything else as its text."""
    return next((step for base, step in _BASES if issubclass(kind, base)), str)


class Bucket:
    """The rows of a table that were not handed on yet."""

    def __init__(self, number: int, table: TableSpec, keep_invalid_values: bool) -> None:
        self.number, self.table = number, table
        self._keeps = keep_invalid_values
        self._shapes: dict[tuple[Any, ...], Shape] = {}
        self._clear()

    def _clear(self) -> None:
        self._rows: list[list[Any]] = []
        self._of: list[Shape] = []
        self._operations = bytearray()
        self._numbers = array("q")
        self._bytes = 0
        self._since = time.monotonic()

    def looked_at(self, data: Mapping[str, Any]) -> tuple[Shape, list[Any], int]:
        """Return the row as it will be sent, and its size. Raises ValueError or TypeError that names what is wrong."""
        names = tuple(data)
        shape = self._shapes.get(names) or self._shape(names)
        values = list(data.values())
        types = tuple(map(type, values))
        converts, sized = shape.plans.get(types) or shape.plan(types)
        index = size = 0
        try:
            for index, step in converts:
                values[index] = step(values[index])
            for index in sized:
                size += _size(values[index])
        except (ValueError, TypeError) as error:
            refused = TypeError if isinstance(error, TypeError) else ValueError
            raise refused(self._refusal(names, data, index, error)) from None
        if size > LARGEST_ROW:
            raise ValueError(f"table {self.table.label}: a row of {size:,} bytes; at most {LARGEST_ROW:,} can be sent")
        return shape, values, size

    def _shape(self, names: tuple[Any, ...]) -> Shape:
        shape = Shape(self.table, names, self._keeps)
        if len(self._shapes) >= _MEMO:
            self._shapes.clear()
        self._shapes[names] = shape
        return shape

    def _refusal(self, names: tuple[str, ...], data: Mapping[str, Any], index: int, error: Exception) -> str:
        name = names[index]
        declared = self.table.types.get(name)
        key = ", ".join(f"{k}={shown(data[k], 60)}" for k in self.table.key)
        where = f"table {self.table.label}, column {name}" + (f", key {key}" if key else "")
        return f"{where}: {shown(data[name], 100)} {error}" + (
            f" (declared {declared.kind})" if declared and not key else ""
        )

    def add(self, operation: int, number: int, shape: Shape, values: list[Any], size: int) -> bool:
        """Return whether there is enough now to hand it on."""
        rows = self._rows
        rows.append(values)
        self._of.append(shape)
        self._operations.append(operation)
        self._numbers.append(number)
        self._bytes += size
        if len(rows) >= MOST_ROWS or self._bytes >= MOST_BYTES:
            return True
        return len(rows) % 16 == 1 and time.monotonic() - self._since > MOST_SECONDS

    def pack(self) -> tuple[dict[str, Any], list[bytes]] | None:
        """Return (the head, the bytes) of the rows and forget them; None if there are none."""
        if not self._rows:
            return None
        body = [bytes(self._operations), self._numbers.tobytes()]
        head: dict[str, Any] = {"frame": "rows", "table": self.number, "rows": len(self._rows)}
        if UPDATE in self._operations:
            head["given"] = self._updated_columns(body)
        head["columns"] = [c for name, values in self._columns() if (c := self._packed(name, values, body))]
        head["parts"] = list(map(len, body))
        self._clear()
        return head, body

    def _updated_columns(self, body: list[bytes]) -> list[list[str]]:
        """Return the columns that updates have, and for each row which of these lists is its own."""
        order = {shape: place for place, shape in enumerate(dict.fromkeys(self._of))}
        body.append(array("i", [order[shape] for shape in self._of]).tobytes())
        return [list(shape.names) for shape in order]

    def _columns(self) -> Iterable[tuple[str, Any]]:
        shapes = dict.fromkeys(self._of)
        if len(shapes) == 1:
            yield from zip(self._of[0].names, zip(*self._rows))
            return
        names = dict.fromkeys(name for shape in shapes for name in shape.names)
        rows = [dict(zip(shape.names, values)) for shape, values in zip(self._of, self._rows)]
        for name in names:
            yield name, [row.get(name) for row in rows]

    def _packed(self, name: str, values: Any, body: list[bytes]) -> list[Any] | None:
        packed = pack.column(values)
        if packed is None:
            return None
        parts, rows = packed
        for _, pieces in parts:
            body.extend(pieces)
        if rows:
            body.append(rows)
        return [name, [kind for kind, _ in parts], bool(rows)]
