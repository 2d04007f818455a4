"""A project of many connections in a store, and runs that do to the store what syncs do, without rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from instep.bootstrap import open_project
from instep.control.rollouts.create import RolloutOrder, create, draft, patch_of
from instep.control.rollouts.flow import Rolling
from instep.control.rollouts.gates import DEFAULT, Gates
from instep.control.rollouts.selections import SelectionPatch
from instep.control.rollouts.waves import ConnectionGroup
from instep.model import Rollout, RunOutcome, TableHealth
from instep.operations.values import MemberStatus
from instep.project.project import Project
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.schema.selection.selection import is_on
from instep.store.catalogs.discoveries import CachedDiscovery
from instep.store.store import Store

HEAD = "sources: {db: {type: sqlite, path: shop.db}}\ndestinations: {lake: {type: duckdb, path: lake.duckdb}}\n"
EVERY = ConnectionGroup(matching=("*",))


@dataclass
class Clock:
    time: datetime = field(default=datetime(2026, 3, 1, 12, 0, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.time


def table(name: str, *more: str) -> Table:
    columns = (Column("id", parse("int64"), nullable=False, key=1), *(Column(c, parse("string")) for c in more))
    return Table("main", name, columns)


SEEN = Catalog.of([table("orders", "note", "currency"), table("refunds")])
ACCEPTED = Catalog.of([table("orders", "note")])


class Killed(BaseException):
    """The process ends here: nothing after it happens."""


@dataclass
class Syncs:
    """`Runs` whose sync accepts what is switched on. `fails`: connection -> error; `dies`: is asked before each sync;
    `tables`: what is measured. `slow`: how often a run is still under way when asked."""

    project: Project
    store: Store
    fails: dict[str, str] = field(default_factory=dict)
    tables: dict[str, Mapping[str, TableHealth]] = field(default_factory=dict)
    dies: Callable[[str], bool] = lambda connection: False
    lanes: int = 1
    slow: int = 0
    begun: Counter[tuple[str, str]] = field(default_factory=Counter)
    ended: list[tuple[str, str]] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)
    looked: list[str] = field(default_factory=list)
    most: int = 0
    under_way: dict[str, int] = field(default_factory=dict)

    def sync(self, connection: str, key: str, *, measured: bool) -> RunOutcome | None:
        self.begun[connection, key] += 1
        self.under_way.setdefault(connection, 0)
        self.most = max(self.most, len(self.under_way))
        if self.dies(connection):
            raise Killed
        self.under_way[connection] += 1
        if self.under_way[connection] <= self.slow:
            return None
        del self.under_way[connection]
        self.ended.append((connection, key))
        if error := self.fails.get(connection):
            return RunOutcome(f"r-{connection}", "failed", error)
        self.accept(connection)
        return RunOutcome(f"r-{connection}", "done", tables=self.tables.get(connection, {}))

    def accept(self, connection: str) -> None:
        selection = replace(self.project.selection(connection), on=frozenset(), off=frozenset())
        switched = {s.path: s.enabled for s in self.store.switches.of(connection)}
        tables = [t for t in SEEN.tables if switched.get(t.path, t.name == "orders") and is_on(selection, t)[0]]
        self.store.accepted.add(connection, Catalog.of(tables), who="test", why="sync")

    def detect(self, connection: str, key: str) -> RunOutcome | None:
        self.looked.append(connection)
        see(self.store, connection)
        return RunOutcome("", "done")

    def undo(self, connection: str, change: str, key: str) -> RunOutcome | None:
        self.undone.append(change)
        return RunOutcome("", "done")

    def wait(self) -> None:
        pass


def see(store: Store, connection: str, seen: Catalog = SEEN) -> None:
    store.discoveries.save(connection, CachedDiscovery(seen, "f"))


@dataclass
class Fleet:
    """`count` connections c000, c001... that have orders and do not have refunds. `url`: of the store."""

    folder: Path
    count: int
    clock: Clock = field(default_factory=Clock)
    url: str = ""

    def __post_init__(self) -> None:
        names = [f"c{number:03}" for number in range(self.count)]
        lines = [f"  {n}: {{tags: [{'even' if int(n[1:]) % 2 == 0 else 'odd'}]}}" for n in names]
        (self.folder / "instep.yml").write_text(HEAD + "connections:\n" + "\n".join(lines) + "\n")
        self.project = open_project(self.folder).project
        self.store = Store(self.url or f"sqlite:///{self.folder / 'state.db'}", now=self.clock)
        for name in names:
            see(self.store, name)
            self.store.accepted.add(name, ACCEPTED, who="test", why="first")
        self.names = names
        self.runs = Syncs(self.project, self.store)

    @property
    def patch(self) -> SelectionPatch:
        return SelectionPatch(self.project, self.store, (("on", "main.refunds"),))

    def create(self, sizes: tuple[str, ...] = ("1", "10%", "rest"), gates: Gates = DEFAULT) -> Rollout:
        return create(self.store, draft(RolloutOrder(self.patch, EVERY, sizes, gates), self.names, "ann"))

    def rolling(self, rollout: Rollout) -> Rolling:
        return Rolling(self.store, patch_of(rollout.what, self.project, self.store), self.runs, "ann")

    def advance(self, rollout: Rollout, *, every: bool = False) -> Rollout:
        return self.rolling(rollout).advance(rollout.id, every=every)

    def resume(self, rollout: Rollout, *, every: bool = False, accept: str = "") -> Rollout:
        return self.rolling(rollout).resume(rollout.id, every=every, accept=accept)

    def statuses(self, rollout: Rollout) -> dict[str, MemberStatus]:
        return {m.connection: m.status for m in self.store.rollouts.members(rollout.id)}

    def counted(self, rollout: Rollout) -> Counter[MemberStatus]:
        return Counter(self.statuses(rollout).values())

    def later(self) -> None:
        """As long as a dead process's lease lasts."""
        self.clock.time += timedelta(minutes=2)

    def has_refunds(self, connection: str) -> bool:
        return any(s.path == "main.refunds" and s.enabled for s in self.store.switches.of(connection))
