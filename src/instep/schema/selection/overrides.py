"""Selection by command: explicit choices about tables and columns, which follow them by id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import String
from instep.schema.changes.kinds import (
    Change,
    ColumnAdded,
    ColumnNarrowed,
    ColumnRetyped,
    ColumnWidened,
    Ref,
    SchemaAdded,
    TableAdded,
)
from instep.schema.selection.selection import Selection

NOTHING = Catalog()


@dataclass(frozen=True)
class Switch:
    """A choice about a schema (`table` is ""), a table (`column` is "") or a column, as it is called at the source.

    `enabled` and `hashed` are None where nothing was chosen. `listed_off`: a policy has left the object out when it
    was found, which stays so under any later policy until a person switches it on. The ids are the source's, valid
    within its `identity`; they take no part in comparisons of what was chosen.
    """

    schema: str
    table: str = ""
    column: str = ""
    enabled: bool | None = None
    hashed: bool | None = None
    table_id: str | None = field(default=None, compare=False)
    column_id: str | None = field(default=None, compare=False)
    identity: str = field(default="", compare=False)
    who: str = field(default="", compare=False)
    at: datetime | None = field(default=None, compare=False)
    listed_off: bool = False

    @property
    def ref(self) -> Ref:
        return self.schema, self.table

    @property
    def path(self) -> str:
        """`schema`, `schema.table` or `schema.table.column`."""
        return ".".join(filter(None, (self.schema, self.table, self.column)))

    @property
    def is_chosen(self) -> bool:
        """True if a person has chosen something about the object; False if it is only listed off."""
        return self.enabled is not None or self.hashed is not None


def located(switch: Switch, catalog: Catalog, identity: str = "") -> tuple[Table, Column | None] | None:
    """Return the table, and the column of a column's switch, that it is about in `catalog`; None if there is no such
    thing.

    By id first. Another id under the same name, or another server, leaves the name: what is dropped and made again
    stays as it was switched.
    """
    table = catalog.by_id.get(switch.table_id or "") if switch.identity == identity else None
    proven = table is not None
    table = table or catalog.get(switch.ref)
    if table is None or not switch.column:
        return (table, None) if table else None
    column = _by_id(table.live, switch.column_id) if proven else None
    column = column or table.by_name.get(switch.column)
    return (table, column) if column else None


def _by_id(things: Iterable[Column], id: str | None) -> Column | None:
    return next((t for t in things if t.id == id), None) if id else None


def bind(switch: Switch, catalog: Catalog, identity: str) -> Switch:
    """Return the switch under the name that its object has in `catalog`, with its ids there; as it is if it is not
    there."""
    object_ = located(switch, catalog, identity)
    if object_ is None:
        return switch
    table, column = object_
    name, id = (column.name, column.id) if column else ("", None)
    return replace(
        switch, schema=table.schema, table=table.name, column=name, table_id=table.id, column_id=id, identity=identity
    )


def moves(switches: Sequence[Switch], catalog: Catalog, identity: str) -> list[tuple[Switch, Switch]]:
    """Return (as recorded, as it is now) of the switches whose object has been renamed or has other ids."""
    bound = ((s, bind(s, catalog, identity)) for s in switches if s.table)
    return [(old, new) for old, new in bound if _place(old) != _place(new)]


def _place(switch: Switch) -> tuple[str | None, ...]:
    return *switch.ref, switch.column, switch.table_id, switch.column_id, switch.identity


@dataclass(frozen=True)
class SelectionSides:
    """A selection by the names of the source (`now`) and by those of what was accepted (`before`)."""

    now: Selection
    before: Selection


def sides(
    selection: Selection, switches: Sequence[Switch], source: Catalog, accepted: Catalog, identity: str = ""
) -> SelectionSides:
    """Return `selection` with the switches applied, under the names that their objects have on either side."""
    if not switches:
        return SelectionSides(selection, selection)
    return SelectionSides(*(with_switches(selection, switches, side, identity) for side in (source, accepted)))


def with_switches(
    selection: Selection, switches: Sequence[Switch], catalog: Catalog = NOTHING, identity: str = ""
) -> Selection:
    """Return `selection` with the switches applied, each under the name that its object has in `catalog`, or under
    its own where it has none: what is gone may come back."""
    paths: dict[str, set[str]] = {name: set() for name in ("on", "off", "masked", "schemas_on", "schemas_off")}
    for switch in switches:
        path = bind(switch, catalog, identity).path if switch.table else switch.path
        for name in _sets(switch):
            paths[name].add(path)
    on, off = (selection.on - paths["off"]) | paths["on"], (selection.off - paths["on"]) | paths["off"]
    return replace(
        selection,
        on=frozenset(on),
        off=frozenset(off),
        masked=selection.masked | paths["masked"],
        schemas_on=selection.schemas_on | paths["schemas_on"],
        schemas_off=selection.schemas_off | paths["schemas_off"],
    )


def _sets(switch: Switch) -> Iterator[str]:
    if switch.enabled is not None:
        yield ("" if switch.table else "schemas_") + ("on" if switch.enabled else "off")
    if switch.hashed:
        yield "masked"


def chosen(selection: Selection, change: Change, source: Catalog) -> Literal["on", "hashed"] | None:
    """Return a person's choice about the object of this change, where that answers it."""
    match change:
        case SchemaAdded():
            tables = (t for t in source.tables if t.schema == change.name)
            return "on" if change.name in selection.schemas_on or any(t.path in selection.on for t in tables) else None
        case TableAdded():
            return "on" if change.after.path in selection.on else None
        case ColumnAdded():
            path = _path(change.table, change.after)
            return None if path not in selection.on else "hashed" if path in selection.masked else "on"
        case ColumnWidened() | ColumnNarrowed() | ColumnRetyped() if change.after.type == String():
            return "hashed" if _path(change.table, change.after) in selection.masked else None
    return None


def _path(table: Ref, column: Column) -> str:
    return ".".join(filter(None, (*table, column.name)))


Handling = Literal["ALLOW_ALL", "ALLOW_COLUMNS", "BLOCK_ALL"]
_HANDLING: dict[str, Handling] = {
    "allow_all": "ALLOW_ALL",
    "propagate_all": "ALLOW_ALL",
    "allow_columns": "ALLOW_COLUMNS",
    "propagate_columns": "ALLOW_COLUMNS",
    "block_all": "BLOCK_ALL",
    "approve": "BLOCK_ALL",
    "stop": "BLOCK_ALL",
}


def handling(preset: str) -> Handling:
    """Return the nearest of the three words that a schema config has for a preset."""
    return _HANDLING[preset]
