"""The hazards of a change: facts with stable codes, apart from any choice about them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from instep.schema.catalog.catalog import fold_case
from instep.schema.catalog.promotion import INT_DIGITS, widens
from instep.schema.catalog.types import Array, Binary, DataType, Decimal, Int, String, Struct
from instep.schema.changes.kinds import (
    Change,
    ColumnAdded,
    ColumnNarrowed,
    ColumnRemoved,
    ColumnRenamed,
    ColumnRetyped,
    ColumnWidened,
    CursorChanged,
    CursorRemoved,
    DestinationDrifted,
    KeyChanged,
    KeyRemoved,
    NameCollided,
    SchemaRemoved,
    TableAdded,
    TableRemoved,
    TableRenamed,
    TableReplaced,
)

HazardClass = Literal["safe", "needs backfill", "breaks readers", "loses data", "cannot be undone"]


@dataclass(frozen=True)
class Capabilities:
    """Capabilities of a destination's format for existing tables.

    `promotes` holds the legal in-place promotions as pairs of type forms: plain ones (`("int32", "int64")`) and
    the sized ones of `SIZED`, where `+` means "this or more" (`("decimal(p,s)", "decimal(p+,s)")`).
    `simultaneous_renames`: one commit may swap names without a temporary one. `undo_by_id`: a dropped column comes
    back with its values; otherwise drops are parked under another name. `comments`, `keys`: inspect and execute know
    them. `views`: old names can be shown beside the new ones.
    `max_name_bytes` counts UTF-8 bytes. `merges_requested`: a merge finds rows that are gone among the keys asked for.
    `reserved`: names that no column may have. `versions`: a table tells that something was committed to it.
    """

    name: str
    promotes: frozenset[tuple[str, str]] = frozenset()
    nested: bool = False
    case_sensitive: bool = False
    undo_by_id: bool = False
    renames: bool = True
    drops: bool = True
    simultaneous_renames: bool = False
    comments: bool = False
    keys: bool = False
    views: bool = False
    max_name_bytes: int = 255
    merges_requested: bool = False
    versions: bool = False
    reserved: frozenset[str] = frozenset()

    def fold(self, name: str) -> str:
        """Names that the format holds for one are equal."""
        return name if self.case_sensitive else fold_case(name)

    def promotes_in_place(self, before: DataType, after: DataType) -> bool:
        """Return whether a column of type `before` may become `after` without its data being rewritten."""
        if before == after:
            return True
        if isinstance(before, Array) and isinstance(after, Array):
            return self.nested and self.promotes_in_place(before.element, after.element)
        if isinstance(before, Struct) and isinstance(after, Struct):
            return self.nested and self._struct(before, after)
        return any(_fits(form, before, after) for form in self.promotes)

    def _struct(self, before: Struct, after: Struct) -> bool:
        """Return whether the struct can be promoted: fields may be added and promoted, never removed."""
        now = {f.name: f.type for f in after.fields}
        return all(f.name in now and self.promotes_in_place(f.type, now[f.name]) for f in before.fields)


def _digits(a: Decimal, b: Decimal) -> bool:
    return b.scale >= a.scale and b.precision - b.scale >= a.precision - a.scale


def _longer(a: Any, b: Any) -> bool:
    return a.length is not None and (b.length is None or b.length >= a.length)


SIZED: dict[tuple[str, str], tuple[type, type, Callable[[Any, Any], bool]]] = {
    ("decimal(p,s)", "decimal(p+,s)"): (
        Decimal,
        Decimal,
        lambda a, b: b.scale == a.scale and b.precision >= a.precision,
    ),
    ("decimal(p,s)", "decimal(p+,s+)"): (Decimal, Decimal, _digits),
    ("int", "decimal(p,s)"): (Int, Decimal, lambda a, b: b.precision - b.scale >= INT_DIGITS[a.bits]),
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
    """One fact about a change."""

    code: str
    """Never changes its meaning."""
    level: HazardClass
    text: str
    """For people."""


_ORDER: tuple[HazardClass, ...] = ("safe", "needs backfill", "breaks readers", "loses data", "cannot be undone")


def worst(hazards_found: Iterable[Hazard]) -> HazardClass:
    """Return the class shown for a change: that of its worst hazard, `safe` without any."""
    return max((h.level for h in hazards_found), key=_ORDER.index, default="safe")


def hazards(
    change: Change,
    capabilities: Capabilities,
    *,
    removed: Literal["retain", "drop"] = "drop",
    used: Collection[str] = (),
) -> tuple[Hazard, ...]:
    """Return the hazards of a change at a destination; none for a safe one. `removed`: whether removed objects are
    retained; `used`: the names that the table (for a table: its schema) has already, retained ones included."""
    hazards_of_step = [*_of_kind(change, capabilities, removed)]
    if isinstance(change, ColumnAdded | ColumnRenamed | TableAdded | TableRenamed):
        hazards_of_step += _of_name(change.after.name, capabilities, used)
    return tuple(hazards_of_step)


def _of_kind(change: Change, capabilities: Capabilities, removed: str) -> Iterator[Hazard]:
    match change:
        case ColumnAdded():
            text = f"rows loaded before have NULL in {change.after.name} until they are updated or backfilled"
            yield Hazard("ColumnEmpty", "needs backfill", text)
        case ColumnRemoved() | TableRemoved() | SchemaRemoved():
            yield from _of_removal(change, removed)
        case ColumnRenamed() | TableRenamed():
            text = f"queries that use {change.before.name} must use {change.after.name}"
            yield Hazard("NameChanged", "breaks readers", text)
        case ColumnWidened() | ColumnNarrowed() | ColumnRetyped():
            yield from _of_type(change, capabilities)
        case TableReplaced():
            yield Hazard(
                "TableReloaded",
                "needs backfill",
                f"another table is now called {change.after.path}: all rows are reloaded",
            )
        case KeyChanged() | KeyRemoved():
            yield Hazard(
                "KeyMoved", "breaks readers", f"rows of {'.'.join(change.table)} are no longer matched by the old key"
            )
        case CursorChanged() | CursorRemoved():
            yield Hazard(
                "CursorMoved",
                "needs backfill",
                f"what the old cursor of {'.'.join(change.table)} has read must be read again",
            )
        case DestinationDrifted():
            yield Hazard("Drifted", "breaks readers", change.detail)
        case NameCollided():
            yield Hazard("NameTaken", "breaks readers", change.detail)


def _of_removal(change: ColumnRemoved | TableRemoved | SchemaRemoved, removed: str) -> Iterator[Hazard]:
    match change:
        case SchemaRemoved():
            name, code = change.name, "Schema"
        case TableRemoved():
            name, code = change.before.path, "Table"
        case ColumnRemoved():
            name, code = change.before.name, "Column"
    if removed == "drop":
        yield Hazard(f"{code}Dropped", "loses data", f"{name} and its values are gone after the undo window")
    else:
        yield Hazard(f"{code}Left", "breaks readers", f"{name} stays as it is and gets no new values")


def _of_type(change: ColumnWidened | ColumnNarrowed | ColumnRetyped, capabilities: Capabilities) -> Iterator[Hazard]:
    before, after, name = change.before.type, change.after.type, change.before.name
    fits = widens(before, after)
    if type(before) is not type(after):
        yield Hazard(
            "TypeChanged", "breaks readers", f"{name} was {before} and is {after}: queries may compare it as {before}"
        )
    if not capabilities.promotes_in_place(before, after):
        yield Hazard(
            "Rewritten",
            "needs backfill",
            f"{capabilities.name} cannot turn {before} into {after} in place: {name} is rewritten",
        )
    if not fits:
        yield Hazard("MayNotFit", "loses data", f"values of {name} that do not fit {after} go to quarantine")
    if not fits and not capabilities.undo_by_id:
        yield Hazard("NoWayBack", "cannot be undone", f"{capabilities.name} cannot bring back the old values of {name}")


def _of_name(name: str, capabilities: Capabilities, used: Collection[str]) -> Iterator[Hazard]:
    if len(name.encode()) > capabilities.max_name_bytes:
        yield Hazard("NameTooLong", "breaks readers", f"{name!r} has more than {capabilities.max_name_bytes} bytes")
    if name in used:
        yield Hazard("NameTaken", "breaks readers", f"{name!r} is taken at the destination")
    elif twin := next((t for t in used if capabilities.fold(t) == capabilities.fold(name)), None):
        yield Hazard("CaseTwin", "breaks readers", f"{name!r} and {twin!r} are one name for {capabilities.name}")
