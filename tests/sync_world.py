"""One connection from a real source into a real lake: run SQL at the source, sync, and look at what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from contract.sources import Case
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.model import Deletes, Review
from instep.project.sections.tables import TableSettings
from instep.schema.catalog.catalog import Column, Table
from instep.schema.maintenance import BackfillLimits
from instep.schema.planning.naming import Naming, destination_ref
from instep.schema.policy.policy import Policy, Rule
from instep.schema.selection.selection import Selection
from instep.spark.settings import SparkSettings
from instep.store.store import Store
from instep.sync.context import SyncContext
from instep.sync.loading.engine import Engine, LocalEngine, OnSpark
from instep.sync.operations.verify import VerifyResult, verify
from instep.sync.progress import SyncReport
from instep.sync.run import RunScope, sync
from instep.sync.schema_changes.evolve import PlanPreview, evolve, preview
from open_changes import waiting

PREFIX = "_instep_"
Rows = list[tuple[Any, ...]]


@dataclass
class World:
    """`policy`, `selection` and `settings` (by table name) may be changed between runs. `start` gives the session;
    `engine` local: rows are read and merged in this process, and no session is started."""

    case: Case
    folder: Path
    start: Callable[[], Any] | None = None
    policy: Policy = field(default_factory=Policy)
    selection: Selection = field(default_factory=Selection)
    settings: dict[str, TableSettings] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    restricted: bool = False
    include: tuple[str, ...] = ()
    limits: BackfillLimits = field(default_factory=BackfillLimits)
    engine: Literal["spark", "local"] = "local"
    salt: bytes = b"salt"

    def __post_init__(self) -> None:
        self.store = Store(f"sqlite:///{self.folder / 'control.db'}")
        self.destination = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(self.folder / "lake")))

    def close(self) -> None:
        self.store.close()

    @property
    def context(self) -> SyncContext:
        source = self.case.source(restricted=self.restricted, include=self.include)
        reserved = self.destination.capabilities.reserved
        naming = Naming(namespace="shop", prefix=PREFIX, default_schema=self.case.schema, reserved=reserved)
        return SyncContext(
            name="shop", source=source, destination=self.destination, policy=self.policy, selection=self.selection,
            naming=naming, settings=lambda t: self.settings.get(t.name, TableSettings()), store=self.store,
            spark=SparkSettings(), salt=self.salt, who="test", backfill_limits=self.limits,
            types=self.types,
        )  # fmt: skip

    def run(self, *statements: str) -> None:
        """SQL at the source, committed one by one."""
        for statement in statements:
            self.case.execute(statement)

    def sync(self, *, again: int = 0, **wanted: Any) -> SyncReport:
        """One sync, and `again` more of them: removals that the catalog cannot prove count from the second on."""
        for _ in range(again):
            sync(self.context, RunScope(**wanted), engine=self.rows_by)
        return sync(self.context, RunScope(**wanted), engine=self.rows_by)

    @property
    def rows_by(self) -> Engine | None:
        if self.engine == "local":
            return LocalEngine()
        return OnSpark(self.start) if self.start else None

    def settled(self) -> SyncReport:
        """Syncs until removals are believed on every source."""
        return self.sync(again=0 if self.case.table_ids else 1)

    def preview(self, **options: Any) -> PlanPreview:
        return preview(self.context, **options)

    def evolve(self, found: PlanPreview | None = None, allowed: tuple[str, ...] = ()) -> int:
        return evolve(self.context, (found or self.preview()).plan, allowed)

    def detect(self) -> PlanPreview:
        """What `instep detect` does."""
        return self.preview(count=True, pauses=True)

    def answer(self, status: Any, *kinds: str) -> list[Review]:
        """Approves or rejects the open changes of these kinds (none: all that wait)."""
        from instep.control.reviews import answer

        found = [r for r in waiting(self.store, "shop") if not kinds or r.kind in kinds]
        return answer(self.store, found, status, "test")

    def verify(self) -> dict[str, VerifyResult]:
        found = verify(self.context, engine=self.rows_by)
        return {v.table.removeprefix(f"{self.case.schema}."): v for v in found}

    def differing(self) -> dict[str, tuple[str, ...]]:
        """The tables that are not equal to their source, and why."""
        return {name: v.differences for name, v in self.verify().items() if not v.equal}

    def accepted(self, name: str) -> Table:
        found = self.store.accepted.catalog("shop").get((self.case.schema, name))
        assert found is not None, f"{name} is not accepted"
        return found

    def schema(self, name: str) -> str:
        """The accepted columns as text: `!` for the key, `~` for what is retained."""
        return ", ".join(map(_column, self.accepted(name).columns))

    def tables(self) -> dict[str, str]:
        """Accepted table to the destination's name, with `~` for what is retained."""
        found = self.store.accepted.catalog("shop").tables
        return {t.name: f"{t.alias}{'~' if t.retained else ''}" for t in found}

    def rows(self, name: str, *columns: str, deleted: bool = False) -> Rows:
        """The destination's rows in order, without system columns; those marked as deleted only if asked for."""
        table = self.accepted(name)
        columns = columns or tuple(c.alias for c in table.columns)
        return self.rows_at(destination_ref(table, self.context.naming), *columns, deleted=deleted)

    def rows_at(self, ref: tuple[str, str], *columns: str, deleted: bool = False) -> Rows:
        read = self.destination.write.read(ref).read_all()
        names = list(columns) or [n for n in read.column_names if not n.startswith(PREFIX)]
        rows = read.to_pylist()
        mark = f"{PREFIX}deleted"
        return sorted((tuple(r[n] for n in names) for r in rows if deleted or not r.get(mark)), key=repr)

    def reviews(self, *statuses: Any) -> dict[str, str]:
        """Summary to decision of the recorded changes with these statuses (none: those that stand)."""
        found = self.store.reviews.find("shop", statuses or ("open", "approved", "rejected"))
        return {r.summary.replace(f"{self.case.schema}.", ""): r.action for r in found}

    def events(self, *kinds: str) -> list[str]:
        """The types of what happened, oldest first; only these kinds, if any."""
        found = [e.event.type for e in self.store.events.after(0, connection="shop")]
        return [e for e in found if not kinds or e in kinds]

    def pauses(self) -> dict[str, str]:
        """What is paused ("" for the connection) and why."""
        return {".".join(p.table[1:]) if p.table else "": p.reason for p in self.store.pauses.active("shop")}

    def statuses(self, report: SyncReport) -> dict[str, str]:
        return {t.table[1]: t.status for t in report.tables}


def counts(report: SyncReport, name: str) -> tuple[int, int, int, int, int]:
    """(read, inserted, updated, deleted, invalid values) of a table."""
    found = next(t for t in report.tables if t.table[1] == name)
    return found.read, found.inserted, found.updated, found.deleted, found.invalid_values


def _column(column: Column) -> str:
    return f"{column.name} {column.type}{'!' if column.key else ''}{'~' if column.retained else ''}"


def preset(name: str, *rules: Rule, **modifiers: Any) -> Policy:
    return Policy(preset=name, rules=rules, modifiers=modifiers)


def by_key(*key: str, **more: Any) -> TableSettings:
    return TableSettings(key=key, **more)


def cursor(column: str, deletes: Deletes = "soft", **more: Any) -> TableSettings:
    return TableSettings(cursor=column, deletes=deletes, **more)


def flat(values: Iterable[Any]) -> Rows:
    """Single values as rows."""
    return [(v,) for v in values]


__all__ = ["PREFIX", "Rows", "World", "by_key", "counts", "cursor", "flat", "preset"]


MakeWorld = Callable[..., World]
"""(source kind, options) to a world."""
