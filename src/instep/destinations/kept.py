"""Values that are kept as JSON beside a table's rows, for destinations that can take them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from instep.destinations.base import Commit, Ref
from instep.schema.types import DataType


@dataclass(frozen=True)
class Kept:
    """Under which `name` the objects have a column's values, and the accepted type that they are cast to."""

    name: str
    type: DataType


@dataclass(frozen=True)
class Promoted:
    """`rows` that got a value; `misfits`: values that do not fit their column and stay where they are."""

    rows: int = 0
    misfits: int = 0


@runtime_checkable
class Promotes(Protocol):
    """A destination that can bring kept values into columns."""

    def promote(self, ref: Ref, columns: Mapping[str, Kept], extra: str, commit: Commit) -> Promoted:
        """Rows with NULL in one of these columns (by destination name) get the value that their object in the column
        `extra` has, which leaves the object; a value that is there stays, and so does the object then. Soft-deleted
        rows too. In commits of their own, cursor and accepted fingerprint stay; Conflict if the table moves meanwhile:
        what is committed by then stays."""
        ...
