"""The layout of a destination table beside its columns: properties of its format, the order of its rows, partitions.

A term of a partition spec is a column, or a transform of one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from instep.errors import SchemaError

PLAIN = ("identity", "year", "month", "day", "hour")
WIDE = ("bucket", "truncate")
"""Transforms with a number: how many buckets, or how wide a piece of the values."""
_CALL = re.compile(rf"({'|'.join((*PLAIN, *WIDE))})\s*\((.*)\)", re.IGNORECASE | re.DOTALL)
MAX_WIDTH = 2**31 - 1


@dataclass(frozen=True)
class PartitionTerm:
    """A term of a table's partitioning."""

    transform: str
    column: str
    width: int = 0
    """The number of a bucket or truncate, 0 for the others."""

    @property
    def text(self) -> str:
        """Return the term in the notation of settings: `region`, `day(at)`, `bucket(16, id)`."""
        if self.transform == "identity":
            return self.column
        return f"{self.transform}({f'{self.width}, ' if self.width else ''}{self.column})"


def partition_term(text: str) -> PartitionTerm:
    """Raise SchemaError for what is no term. Anything that is no call of a transform is a column's name."""
    match = _CALL.fullmatch(text.strip())
    transform, inside = (match[1].lower(), match[2].strip()) if match else ("identity", text.strip())
    width = 0
    if transform in WIDE:
        number, _, inside = (part.strip() for part in inside.partition(","))
        if not number.isdecimal() or not 0 < int(number) <= MAX_WIDTH:
            raise _wrong(text)
        width = int(number)
    if not inside:
        raise _wrong(text)
    return PartitionTerm(transform, inside, width)


def _wrong(text: str) -> SchemaError:
    return SchemaError(
        f"{text!r} is nothing to partition by",
        hint="write a column, or year, month, day, hour (column), bucket(16, column) or truncate(4, column)",
    )


SortTerm = tuple[str, str]
"""A column and `asc` or `desc`."""


@dataclass(frozen=True)
class TableLayout:
    """Layout of a table by its settings: `properties` as (name, value) sorted by name, `sort` and `partition` by
    destination columns."""

    properties: tuple[tuple[str, str], ...] = ()
    sort: tuple[SortTerm, ...] = ()
    partition: tuple[PartitionTerm, ...] = ()

    @classmethod
    def of(
        cls, properties: Mapping[str, str], sort: Sequence[SortTerm] = (), partition: Sequence[PartitionTerm] = ()
    ) -> TableLayout:
        return cls(tuple(sorted(properties.items())), tuple(sort), tuple(partition))


def sort_term(text: str) -> SortTerm:
    """Parse `name`, `name asc` or `name desc`; raises SchemaError for anything else."""
    name, _, direction = text.strip().rpartition(" ")
    if direction.lower() not in ("asc", "desc"):
        name, direction = text.strip(), "asc"
    if not name.strip():
        raise SchemaError(f"{text!r} is not a column to sort by", hint="write a column, or a column and asc or desc")
    return name.strip(), direction.lower()


def describe_layout(before: TableLayout, after: TableLayout) -> str:
    """Return the differences between two layouts, in one line."""
    old, new = dict(before.properties), dict(after.properties)
    parts = [f"set {name} = {value}" for name, value in after.properties if old.get(name) != value]
    parts += [f"reset {name}" for name, _ in before.properties if name not in new]
    if before.sort != after.sort:
        text = ", ".join(f"{name} {direction}" for name, direction in after.sort)
        parts.append(f"sort rows by {text}" if text else "stop sorting rows")
    if before.partition != after.partition:
        text = ", ".join(term.text for term in after.partition)
        parts.append(f"partition new files by {text}" if text else "stop partitioning new files")
    return "; ".join(parts)


def layout_to_dict(layout: TableLayout) -> dict[str, Any]:
    document = {"properties": dict(layout.properties), "sort": [list(term) for term in layout.sort]}
    return {**document, "partition": [term.text for term in layout.partition]} if layout.partition else document


def layout_from_dict(data: Mapping[str, Any]) -> TableLayout:
    sort = [(name, direction) for name, direction in data["sort"]]
    return TableLayout.of(data["properties"], sort, [partition_term(text) for text in data.get("partition", ())])
