"""What is dangerous about a change: facts with stable codes, apart from any choice about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from instep.schema.types import Array, Binary, DataType, Decimal, Int, String, Struct

HazardClass = Literal["safe", "needs backfill", "breaks readers", "loses data", "cannot be undone"]


@dataclass(frozen=True)
class Capabilities:
    """What a destination's format can do to a table that exists.

    `promotes` holds the legal in-place promotions as pairs of type forms: plain ones (`("int32", "int64")`) and
    the sized ones of `SIZED`, where `+` means "this or more" (`("decimal(p,s)", "decimal(p+,s)")`).
    `simultaneous_renames`: one commit may swap names without a temporary one. `undo_by_id`: a dropped column comes
    back with its values; otherwise drops are parked under another name. `max_name_bytes` counts UTF-8 bytes.
    """

    name: str
    promotes: frozenset[tuple[str, str]] = frozenset()
    nested: bool = False
    case_sensitive: bool = False
    transactional_ddl: bool = False
    undo_by_id: bool = False
    renames: bool = True
    drops: bool = True
    simultaneous_renames: bool = False
    max_name_bytes: int = 255

    def promotes_in_place(self, before: DataType, after: DataType) -> bool:
        """Whether a column of type `before` may become `after` without its data being written again."""
        if before == after:
            return True
        if isinstance(before, Array) and isinstance(after, Array):
            return self.nested and self.promotes_in_place(before.element, after.element)
        if isinstance(before, Struct) and isinstance(after, Struct):
            return self.nested and self._struct(before, after)
        return any(_fits(form, before, after) for form in self.promotes)

    def _struct(self, before: Struct, after: Struct) -> bool:
        """Fields may be added and promoted, never removed."""
        now = {f.name: f.type for f in after.fields}
        return all(f.name in now and self.promotes_in_place(f.type, now[f.name]) for f in before.fields)


def _digits(a: Decimal, b: Decimal) -> bool:
    return b.scale >= a.scale and b.precision - b.scale >= a.precision - a.scale


def _longer(a: Any, b: Any) -> bool:
    return a.length is not None and (b.length is None or b.length >= a.length)


_INT_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}

SIZED: dict[tuple[str, str], tuple[type, type, Callable[[Any, Any], bool]]] = {
    ("decimal(p,s)", "decimal(p+,s)"): (
        Decimal,
        Decimal,
        lambda a, b: b.scale == a.scale and b.precision >= a.precision,
    ),
    ("decimal(p,s)", "decimal(p+,s+)"): (Decimal, Decimal, _digits),
    ("int", "decimal(p,s)"): (Int, Decimal, lambda a, b: b.precision - b.scale >= _INT_DIGITS[a.bits]),
    ("string(n)", "string(n+)"): (String, String, _longer),
    ("binary(n)", "binary(n+)"): (Binary, Binary, _longer),
}


def _fits(form: tuple[str, str], before: DataType, after: DataType) -> bool:
    if sized := SIZED.get(form):
        a, b, holds = sized
        return isinstance(before, a) and isinstance(after, b) and holds(before, after)
    return form == (str(before), str(after))


@dataclass(frozen=True)
class Hazard:
    """One fact about a change. `code` never changes its meaning; `text` is for people."""

    code: str
    hazard: HazardClass
    text: str
