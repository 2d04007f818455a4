"""What a destination says of the layout of its tables that settings may choose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from instep.destinations.base import Ref
from instep.schema.layout import TableLayout
from instep.schema.partition import PartitionTerm
from instep.schema.types import DataType


@runtime_checkable
class Partitions(Protocol):
    """A destination whose tables have partitions that settings may say. One that is no more than that gives other ones
    to a table that has rows when it is loaded whole."""

    def layouts(self, refs: Iterable[Ref]) -> Mapping[Ref, TableLayout]:
        """Of those of `refs` that exist and wait for no new generation, what was set by settings and is there, or comes
        with the next whole load."""
        ...

    def partition_fault(self, term: PartitionTerm, kind: DataType) -> str:
        """Why a column of this type cannot be partitioned so; "" if it can."""
        ...


@runtime_checkable
class LaidOut(Partitions, Protocol):
    """One whose tables have properties and an order of rows as well, all of which can change at any time."""

    def property_fault(self, name: str) -> str:
        """Why settings cannot set a property; "" if they can."""
        ...
