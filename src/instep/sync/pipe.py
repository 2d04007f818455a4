"""Everything that one connection's run needs, put together by bootstrap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from instep.destinations.base import Destination
from instep.model import TableSettings
from instep.schema.names import Naming
from instep.schema.policy import Policy
from instep.schema.selection import Selection
from instep.schema.table import Table
from instep.sources.base import Source
from instep.store.store import Store

if TYPE_CHECKING:
    from instep.spark.session import SparkSettings

Ref = tuple[str, str]


@dataclass(frozen=True)
class Pipe:
    """One connection: its source, destination, rules and store. `who` goes into the history."""

    name: str
    source: Source
    destination: Destination
    policy: Policy
    selection: Selection
    naming: Naming
    settings: Callable[[Table], TableSettings]
    store: Store
    spark: SparkSettings
    tags: tuple[str, ...] = ()
    salt: bytes = field(default=b"", repr=False)
    who: str = "cli"
