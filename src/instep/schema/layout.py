"""How a destination table is kept beside its columns: properties of its format and the order of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from instep.errors import SchemaError

SortTerm = tuple[str, str]
"""A column and `asc` or `desc`."""


@dataclass(frozen=True)
class TableLayout:
    """What the settings say of a table: `properties` as (name, value) sorted by name, `sort` by destination columns."""

    properties: tuple[tuple[str, str], ...] = ()
    sort: tuple[SortTerm, ...] = ()

    @classmethod
    def of(cls, properties: Mapping[str, str], sort: Sequence[SortTerm] = ()) -> TableLayout:
        return cls(tuple(sorted(properties.items())), tuple(sort))


def sort_term(text: str) -> SortTerm:
    """`name`, `name asc` or `name desc`; raises SchemaError for anything else."""
    name, _, direction = text.strip().rpartition(" ")
    if direction.lower() not in ("asc", "desc"):
        name, direction = text.strip(), "asc"
    if not name.strip():
        raise SchemaError(f"{text!r} is no column to sort by", hint="write a column, or a column and asc or desc")
    return name.strip(), direction.lower()


def describe_layout(before: TableLayout, after: TableLayout) -> str:
    """What changes from one to the other, in one line."""
    old, new = dict(before.properties), dict(after.properties)
    parts = [f"set {name} = {value}" for name, value in after.properties if old.get(name) != value]
    parts += [f"reset {name}" for name, _ in before.properties if name not in new]
    if before.sort != after.sort:
        said = ", ".join(f"{name} {direction}" for name, direction in after.sort)
        parts.append(f"sort rows by {said}" if said else "sort rows no more")
    return "; ".join(parts)


def layout_to_dict(layout: TableLayout) -> dict[str, Any]:
    return {"properties": dict(layout.properties), "sort": [list(term) for term in layout.sort]}


def layout_from_dict(data: Mapping[str, Any]) -> TableLayout:
    return TableLayout.of(data["properties"], [(name, direction) for name, direction in data["sort"]])
