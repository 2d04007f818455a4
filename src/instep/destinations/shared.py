"""Tables that several connections share: each owns the rows of its shard, and what is recorded of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from instep.destinations.base import Destination, LoadState, Ref
from instep.errors import Conflict, DestinationError
from instep.schema.catalog.catalog import Table
from instep.schema.planning.step import Step
from instep.stage.field_metadata import with_value


class Reshaped(Conflict):
    """Another shard has changed the schema of a table (by its name) since something was planned."""

    def __init__(self, table: str) -> None:
        super().__init__(f"another shard has changed table {table} meanwhile", hint="run this again")


def shard_column(prefix: str) -> str:
    """Return what the column is called that tells a row's shard."""
    return f"{prefix}shard"


def with_shard(schema: pa.Schema, within: tuple[str, str] | None) -> pa.Schema:
    """Return what a task writes, with the shard's name in every row of its column."""
    if within is None:
        return schema
    at = schema.get_field_index(within[0])
    return schema.set(at, with_value(schema.field(at), within[1]))


def is_shared(ref: Ref) -> DestinationError:
    """Return what is said to a connection that is no shard of the table."""
    return DestinationError(
        f"table {'.'.join(ref)} is shared by connections with a `shard`",
        hint="choose another namespace, or give this connection a `shard`, too",
    )


@dataclass(frozen=True)
class ShardStatus:
    """One shard of a shared table: the table as it has it, and its last data commit."""

    table: Table
    state: LoadState | None


@dataclass(frozen=True)
class SharedTable:
    """A shared table: its columns, those of all shards together, and the shards by name. `shape` is a number that
    another one takes the place of with each change of schema."""

    table: Table
    parts: Mapping[str, ShardStatus]
    shape: int


@runtime_checkable
class Shares(Protocol):
    """A destination that can hold several connections' rows in one table."""

    def part(self, shard: str) -> Destination:
        """Return the same destination, as one shard loads and reads it: only rows and columns of its own, and what is
        recorded of them. Tables that the shard does not have are not there."""
        ...

    def whole(self, ref: Ref) -> SharedTable | None:
        """Return a table with its shards (none: it is not shared); None if it is not there."""
        ...


@runtime_checkable
class SharesSome(Protocol):
    """A destination that shares tables in some of its settings only."""

    @property
    def why_no_shards(self) -> str:
        """What is in the way, in a sentence for people; "" if nothing is."""
        ...


@runtime_checkable
class SharesLayouts(Protocol):
    """One whose shared tables have properties, an order and partitions: those that one of their shards said last."""

    @property
    def shares_layouts(self) -> bool: ...


@runtime_checkable
class Shared(Protocol):
    """A destination as one connection has it that shares its tables with others."""

    @property
    def shard(self) -> str: ...

    def why_not(self, ref: Ref, steps: Sequence[Step], after: Table | None) -> str:
        """Why these steps cannot be taken while others share the table; "" if they can."""
        ...

    def remarks(self, steps: Sequence[Step]) -> list[str]:
        """Return which of the columns that these steps name the other shards lack, in sentences for people."""
        ...
