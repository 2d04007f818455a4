"""Several connections into one destination, each a shard of its tables; sources in memory, with ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contract.sources import SOURCES, Case
from instep.control.reviews import answer
from instep.destinations.shared import shard_column
from instep.model import Review
from instep.schema.catalog.catalog import Table
from instep.store.store import Store
from instep.sync.context import SyncContext
from instep.sync.schema_changes.owned_tables import of_shard
from open_changes import waiting
from sync_world import PREFIX, Rows, World

SHARD = shard_column(PREFIX)
REF = ("shop", "t")


@dataclass
class ShardWorld(World):
    """One of the connections; `base` (the destination) and `shared` (the store) are everybody's."""

    shard: str = "a"
    base: Any = None
    shared: Store | None = None

    def __post_init__(self) -> None:
        assert self.shared is not None
        self.store = self.shared
        self.destination: Any = self.context.destination

    def accepted(self, name: str) -> Table:
        found = self.store.accepted.catalog(self.shard).get((self.case.schema, name))
        assert found is not None, f"{name} is not accepted"
        return found

    def answer(self, status: Any, *kinds: str) -> list[Review]:
        found = [r for r in waiting(self.store, self.shard) if not kinds or r.kind in kinds]
        return answer(self.store, found, status, "test")

    @property
    def context(self) -> SyncContext:
        self.destination = self.base
        context = of_shard(replace(super().context, name=self.shard, destination_name="lake"), self.shard)
        self.destination = context.destination
        return context


@dataclass
class Shop:
    """The connections by shard."""

    shards: dict[str, ShardWorld]
    base: Any

    def __getitem__(self, shard: str) -> ShardWorld:
        return self.shards[shard]

    def run(self, *statements: str) -> None:
        for shard in self.shards.values():
            shard.run(*statements)

    def sync(self, **wanted: Any) -> None:
        """All of them; each table is loaded."""
        for shard in self.shards.values():
            report = shard.sync(**wanted)
            assert {t.status for t in report.tables} == {"done"}, report.tables

    def rows(self, *columns: str, ref: tuple[str, str] = REF) -> Rows:
        """What a reader of the destination's own table sees, without rows that are marked as deleted."""
        read = self.base.write.read(ref).read_all().to_pylist()
        mark = f"{PREFIX}deleted"
        return sorted((tuple(r[n] for n in (SHARD, *columns)) for r in read if not r.get(mark)), key=repr)

    def columns(self, ref: tuple[str, str] = REF) -> list[str]:
        whole = self.base.sharing.shared_table(ref)
        return [c.name for c in whole.table.columns if not c.name.startswith(PREFIX)] if whole else []

    def differing(self) -> dict[str, Any]:
        return {name: found for name, shard in self.shards.items() if (found := shard.differing())}


@contextmanager
def opened(
    folder: Path, base: Any, names: Iterable[str] = "abc", kind: str = "memory", **options: Any
) -> Iterator[Shop]:
    """A shop with these shards."""
    store = Store(f"sqlite:///{folder / 'control.db'}")
    with ExitStack() as stack:
        stack.callback(store.close)
        cases: dict[str, Case] = {n: stack.enter_context(SOURCES["memory"](None)) for n in names}  # type: ignore[arg-type]
        yield Shop(
            {n: ShardWorld(c, folder, shard=n, base=base, shared=store, **options) for n, c in cases.items()}, base
        )
