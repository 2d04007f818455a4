"""One connector into a real destination: write its code, sync, and look at what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.destinations import postgres
from instep.destinations.delta.destination import DeltaConfig, DeltaDestination
from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.destinations.facets import Destination
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.project.sections.connector import ConnectorLimits
from instep.project.sections.tables import TableSettings
from instep.schema.planning.naming import Naming
from instep.schema.selection.overrides import Switch
from instep.sources.connector.config import ConnectorConfig
from instep.sources.connector.source import SdkSource
from instep.spark.settings import SparkSettings
from instep.store.store import Store
from instep.sync.context import SyncContext
from instep.sync.loading.engine import Engine, LocalEngine
from instep.sync.progress import Silent, SyncReport
from instep.sync.run import RunScope, sync
from postgres_server import Database
from sync_world import PREFIX, World

STREAM = TableSettings().model_copy(update={"mode": "stream"})
PLAYER = """
import datetime, decimal, io, json, os, time
from fivetran_connector_sdk import Connector, FileUpload
from fivetran_connector_sdk import Operations as op

TYPES = {"date": datetime.date.fromisoformat, "decimal": decimal.Decimal, "bytes": bytes.fromhex}

def value(v):
    if isinstance(v, dict) and len(v) == 1 and next(iter(v)) in TYPES:
        kind, text = next(iter(v.items()))
        return TYPES[kind](text)
    return v

def script(configuration):
    with open(configuration["script"]) as file:
        return json.load(file)

def schema(configuration):
    return script(configuration)["schema"]

def update(configuration, state):
    steps = script(configuration)["steps"]
    for number, step in enumerate(steps[state.get("at", 0):], state.get("at", 0) + 1):
        what, *rest = step
        if what == "checkpoint":
            op.checkpoint({"at": number})
        elif what == "fail":
            raise RuntimeError(rest[0])
        elif what == "wait":
            while not os.path.exists(rest[0]):
                time.sleep(0.02)
        elif what == "truncate":
            op.truncate(rest[0])
        elif what == "file":
            kind, table, row, path, text = rest
            getattr(op, kind)(table, row, file=FileUpload(path, io.BytesIO(text.encode())))
        else:
            getattr(op, what)(rest[0], {k: value(v) for k, v in rest[1].items()})

connector = Connector(update=update, schema=schema)
"""
"""A connector that plays a script: a list of operations, from the place on that its state names."""

Step = list[Any]


@dataclass(frozen=True)
class Case:
    """What a world asks of its source."""

    schema: str = ""
    table_ids: bool = False


@dataclass
class ConnectorWorld(World):
    """`declared` and `steps` are what the connector's `schema()` says and what it sends. The state is how far it got,
    so that steps are added behind those that were played. `database` is where `into` postgres goes."""

    into: str = "duckdb"
    declared: list[dict[str, Any]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    code: str = PLAYER
    database: Database | None = None

    def __post_init__(self) -> None:
        self.store = Store(f"sqlite:///{self.folder / 'control.db'}")
        self.destination: Destination = self._destination()  # type: ignore[assignment]

    def _destination(self) -> Destination:
        if self.into == "iceberg":
            return IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(self.folder / "lake")))
        if self.into == "delta":
            return DeltaDestination(DeltaConfig.resolved(name="delta", warehouse=str(self.folder / "delta")))
        if self.into == "postgres":
            assert self.database is not None
            return postgres(self.folder, self.database)
        return DuckDbDestination(DuckDbConfig.resolved(name="duck", path=str(self.folder / "warehouse.db")))

    @property
    def context(self) -> SyncContext:
        place = self.folder / "connector"
        place.mkdir(exist_ok=True)
        (place / "connector.py").write_text(self.code)
        (self.folder / "script.json").write_text(json.dumps({"schema": self.declared, "steps": self.steps}))
        config = ConnectorConfig.resolved(
            path=str(place),
            configuration={"script": str(self.folder / "script.json")},
            name="shop",
            limits=ConnectorLimits(time=600),
        )
        source = SdkSource(config, str(self.folder / "spool"), self.store.connectors.of("shop"))
        reserved = self.destination.capabilities.reserved
        naming = Naming(namespace="shop", prefix=PREFIX, reserved=reserved)
        return SyncContext(
            name="shop", source=source, destination=self.destination, policy=self.policy, selection=self.selection,
            naming=naming, settings=lambda t: self.settings.get(t.name, STREAM),
            store=self.store, spark=SparkSettings(), salt=b"salt", who="test",
        )  # fmt: skip

    def play(self, *steps: Step, **wanted: Any) -> SyncReport:
        """Syncs with these steps behind those from before."""
        self.steps += steps
        return sync(self.context, RunScope(**wanted), engine=self.rows_by)

    @property
    def rows_by(self) -> Engine | None:
        return LocalEngine()

    def switch_on(self, table: str, column: str = "") -> None:
        self.store.switches.set("shop", [Switch("", table, column, True)], "test")

    @property
    def state(self) -> dict[str, Any]:
        return dict(self.store.connectors.get("shop").state)

    def records(self, name: str, *columns: str) -> list[dict[str, Any]]:
        """The rows that are not deleted, without NULLs, in order."""
        table = self.accepted(name)
        names = columns or tuple(c.alias for c in table.columns)
        rows = (dict(zip(names, row, strict=True)) for row in self.rows(name, *names))
        return sorted(({k: v for k, v in r.items() if v is not None} for r in rows), key=repr)


def upserts(table: str, *rows: dict[str, Any]) -> Iterable[Step]:
    return [["upsert", table, row] for row in rows]


def moved(steps: Iterable[Step], table: str) -> list[Step]:
    """The same operations on another table."""
    return [[what, table, *rest[1:]] if rest else [what] for what, *rest in steps]


CHECKPOINT: Step = ["checkpoint"]
AGAIN = "t waits for all of its rows, so the connector sends everything again"
MakeConnector = Callable[..., ConnectorWorld]


class At(Silent):
    """Does something once, at the nth of such a step, and lets the connector go on behind its `wait`."""

    def __init__(self, text: str, number: int, act: Callable[[], object], gate: Path) -> None:
        self.text, self.number, self.act, self.gate, self.seen = text, number, act, gate, 0

    def step(self, text: str) -> None:
        self.seen += text == self.text
        if text == self.text and self.seen == self.number:
            self.act()
            self.gate.touch()


def waiting(world: ConnectorWorld) -> list[tuple[str, str]]:
    return [(b.table[1], b.scope) for b in world.store.backfills.waiting("shop")]
