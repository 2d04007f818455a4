"""Tables that several connections share: each owns the rows of its shard, and what is recorded of them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from instep.destinations.base import LoadState, Ref
from instep.errors import Conflict, DestinationError, Fenced
from instep.schema.catalog.catalog import Table
from instep.stage.field_metadata import with_value

TRIES = 20
"""Number of times that a commit is tried again because another shard was faster."""

T = TypeVar("T")


class ShardSchemaChanged(Conflict):
    """Another shard has changed the schema of a table (by its name) since something was planned."""

    def __init__(self, table: str) -> None:
        super().__init__(f"another shard has changed table {table} meanwhile", hint="run this again")


class RowsMoved(Conflict):
    """Rows of a table were met that are no longer as they were."""

    def __init__(self, ref: Ref) -> None:
        super().__init__(f"table {'.'.join(ref)} moved while its rows were looked at", hint="run the replay again")


def shard_column(prefix: str) -> str:
    """Return the name of the column with a row's shard."""
    return f"{prefix}shard"


def with_shard(schema: pa.Schema, within: tuple[str, str] | None) -> pa.Schema:
    """Return the schema that tasks write, with the shard's name in every row of its column."""
    if within is None:
        return schema
    at = schema.get_field_index(within[0])
    return schema.set(at, with_value(schema.field(at), within[1]))


def is_shared(ref: Ref) -> DestinationError:
    """Return the error for a connection that is no shard of the table."""
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
    """A shared table: its columns, those of all shards together, and the shards by name."""

    table: Table
    parts: Mapping[str, ShardStatus]
    shape: int
    """A number that another one takes the place of with each change of schema."""


def retry_commit(attempt: Callable[[], T]) -> T:
    """Retry a commit that other shards were in the way of, as none of them touches its rows; not if it was made for
    another schema or other rows."""
    for number in range(1, TRIES + 1):
        try:
            return attempt()
        except Conflict as error:
            if number == TRIES or isinstance(error, Fenced | ShardSchemaChanged | RowsMoved):
                raise
        wait(number)
    raise AssertionError("the last attempt answers or raises")


def wait(number: int) -> None:
    """Wait for others to commit, up to a second: longer after each lost race."""
    time.sleep(random.uniform(0, min(2**number / 200, 1.0)))


def not_shared_error(ref: Ref) -> DestinationError:
    """Return the error for a table that belongs to a single connection."""
    return DestinationError(
        f"table {'.'.join(ref)} belongs to one connection alone and is not shared",
        hint="choose another namespace for the connections with a `shard`",
    )
