"""Keeping tables fast and small; for destinations that do not do it by themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from instep.destinations.base import Ref
from instep.schema.maintenance import Maintenance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Layout:
    """A table's files, from metadata alone: data files and their bytes, delete files, snapshots that are kept, when it
    was maintained last. None: the destination does not tell."""

    files: int | None = None
    bytes: int | None = None
    deletes: int | None = None
    snapshots: int | None = None
    maintained: datetime | None = None


@dataclass(frozen=True)
class Maintained:
    """What maintaining a table did, or would do: its files, delete files, bytes and manifests before and after.
    `rewritten`: data files that were put together; `bytes_rewritten`: of them. `snapshots` that were expired,
    `removed` files that went with them, `orphans` and their bytes. `notes` say what was left and why."""

    files_before: int = 0
    files: int = 0
    bytes_before: int = 0
    bytes: int = 0
    deletes_before: int = 0
    deletes: int = 0
    manifests_before: int = 0
    manifests: int = 0
    rewritten: int = 0
    bytes_rewritten: int = 0
    snapshots: int = 0
    removed: int = 0
    orphans: int = 0
    orphan_bytes: int = 0
    notes: tuple[str, ...] = ()

    @property
    def something(self) -> bool:
        """Whether anything was done."""
        merged = self.manifests < self.manifests_before
        return bool(self.rewritten or self.snapshots or self.removed or self.orphans or merged)


def _no_session() -> None:
    return None


def _always() -> bool:
    return True


@dataclass(frozen=True)
class Upkeep:
    """One table's maintenance. `run` names whose it is, commits are made under `fence`. `live`: when the oldest run
    that is alive began (milliseconds since 1970, None: there is none); no file that is younger is an orphan. `deep`:
    orphans are looked for. `moving`: files under an earlier partition spec are written again. `session` is asked for
    when there is much to write; `go_on` between commits."""

    how: Maintenance
    run: str
    fence: int
    live: int | None = None
    deep: bool = True
    dry_run: bool = False
    moving: bool = False
    session: Callable[[], SparkSession | None] = field(default=_no_session, repr=False)
    told: Callable[[int, int], None] = field(default=lambda rows, size: None, repr=False)
    go_on: Callable[[], bool] = field(default=_always, repr=False)


@runtime_checkable
class Maintains(Protocol):
    """A destination whose tables need maintenance."""

    @property
    def maintenance(self) -> tuple[str, ...]:
        """What it consists of, for people."""
        ...

    def layout(self, ref: Ref) -> Layout:
        """DestinationError for a table that is not there or not ours."""
        ...

    def due(self, ref: Ref, how: Maintenance) -> bool:
        """Whether it is worth looking closer, from metadata that is at hand."""
        ...

    def held_by(self, ref: Ref) -> int:
        """The fence of the table's latest claim."""
        ...

    def maintain(self, ref: Ref, work: Upkeep) -> Maintained:
        """Rows and values stay as they are. Raises Fenced if a later run has claimed the table, Conflict if it moves
        again and again: what was committed by then stays."""
        ...


@runtime_checkable
class Vacuums(Protocol):
    """A destination that is one file, which keeps the space of what was deleted."""

    def vacuum(self, *, dry_run: bool) -> tuple[int, int]:
        """Gives back what can be given back; bytes before and after (dry run: twice the same)."""
        ...
