"""What a destination says of the layout of its tables that settings may choose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from instep.destinations.base import Ref
from instep.schema.layout import TableLayout
from instep.schema.partition import PartitionTerm
from instep.schema.types import DataType


@runtime_checkable
class LaidOut(Protocol):
    """A destination whose tables have properties, an order of rows and partitions that settings may say."""

    def layouts(self, refs: Iterable[Ref]) -> Mapping[Ref, TableLayout]:
        """Of those of `refs` that exist and wait for no new generation, what was set by settings and is there."""
        ...

    def property_fault(self, name: str) -> str:
        """Why settings cannot set a property; "" if they can."""
        ...

    def partition_fault(self, term: PartitionTerm, kind: DataType) -> str:
        """Why a column of this type cannot be partitioned so; "" if it can."""
        ...
