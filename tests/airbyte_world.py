"""A scripted connector that speaks Airbyte's protocol, into a real destination."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from connector_world import STREAM, Case, ConnectorWorld
from instep.errors import InstepError
from instep.project.sections.connector import ConnectorLimits
from instep.project.sections.tables import TableSettings
from instep.schema.catalog.catalog import Table
from instep.schema.planning.naming import Naming
from instep.schema.selection.selection import Pattern, Selection
from instep.sources.airbyte.config import AirbyteConfig
from instep.sources.airbyte.source import AirbyteSource
from instep.spark.settings import SparkSettings
from instep.sync.context import SyncContext
from instep.sync.progress import Progress, SyncReport
from instep.sync.run import RunScope, sync
from sync_world import PREFIX

PLAYER = """
import json, os, sys, time

here = os.path.dirname(os.path.abspath(__file__))
command, arguments = sys.argv[1], sys.argv[2:]

def given(name):
    return json.load(open(arguments[arguments.index(name) + 1])) if name in arguments else None

def say(message):
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\\n")

script = json.load(open(os.path.join(here, "script.json")))
reads = os.path.join(here, "reads")
if command == "spec":
    say({"type": "SPEC", "spec": {"connectionSpecification": script["specification"]}})
elif command == "check":
    say({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}})
elif command == "discover":
    played = os.path.exists(os.path.join(here, "played"))
    say({"type": "CATALOG", "catalog": {"streams": script["after" if played else "streams"]}})
else:
    place = os.path.dirname(arguments[arguments.index("--config") + 1])
    seen = {"catalog": given("--catalog"), "state": given("--state"), "configuration": given("--config")}
    paths = [place, *(os.path.join(place, name) for name in os.listdir(place))]
    seen["modes"] = [os.stat(path).st_mode & 0o777 for path in paths]
    seen["argv"], seen["environment"] = sys.argv, dict(os.environ)
    json.dump(seen, open(os.path.join(here, "seen.json"), "w"))
    open(os.path.join(here, "played"), "w")
    for line in script["lines"]:
        if isinstance(line, dict):
            say(line)
        elif isinstance(line, str):
            sys.stdout.buffer.write(line.encode("latin-1") + b"\\n")
        elif line[0] == "exit":
            sys.stdout.flush()
            os._exit(line[1])
        elif line[0] == "print":
            print(line[1], file=sys.stderr)
        elif line[0] == "sleep":
            sys.stdout.flush()
            time.sleep(line[1])
        elif line[0] == "kill":
            sys.stdout.flush()
            os.kill(os.getpid(), 9)
        elif line[0] == "wait":
            sys.stdout.flush()
            while not os.path.exists(line[1]):
                time.sleep(0.02)
        elif line[0] == "flood":
            sys.stderr.write(("x" * 99 + chr(10)) * line[1])
        elif line[0] == "linger":
            sys.stdout.flush()
            if not os.fork():
                time.sleep(line[1])
                os._exit(0)
        elif line[0] == "long":
            sys.stdout.buffer.write(b'{"type":"RECORD","record":{"stream":"users","data":{"id":2,"name":"')
            for _ in range(line[1]):
                sys.stdout.buffer.write(b"x" * (1 << 20))
            sys.stdout.buffer.write(b'"}}}' + bytes([10]))
        elif line[0] == "cut":
            sys.stdout.buffer.write(line[1].encode())
"""
Message = dict[str, Any]
Line = Message | str | list[Any]
INTEGER: Mapping[str, Any] = {"type": "integer"}
TEXT: Mapping[str, Any] = {"type": ["null", "string"]}


def stream(
    name: str = "users", /, *, key: Sequence[str] = ("id",), incremental: bool = True, **columns: Any
) -> Message:
    """A stream with an integer `id` and these properties."""
    modes = ["full_refresh", "incremental"] if incremental else ["full_refresh"]
    return {
        "name": name,
        "json_schema": {"type": "object", "properties": {"id": INTEGER, **columns}},
        "supported_sync_modes": modes,
        "source_defined_cursor": incremental,
        "source_defined_primary_key": [[k] for k in key],
    }


def record(name: str = "users", /, **data: Any) -> Message:
    return {"type": "RECORD", "record": {"stream": name, "data": data, "emitted_at": 1}}


def records(first: int, last: int, name: str = "users") -> list[Message]:
    return [record(name, id=i) for i in range(first, last + 1)]


def state(at: int, count: int | None = None, name: str = "users") -> Message:
    one = {"stream_descriptor": {"name": name}, "stream_state": {"at": at}}
    stats = {"sourceStats": {"recordCount": float(count)}} if count is not None else {}
    return {"type": "STATE", "state": {"type": "STREAM", "stream": one, **stats}}


def shared_state(at: int, states: Mapping[str, Any], count: int | None = None) -> Message:
    each = [{"stream_descriptor": {"name": name}, "stream_state": one} for name, one in states.items()]
    stats = {"sourceStats": {"recordCount": float(count)}} if count is not None else {}
    whole = {"shared_state": {"lsn": at}, "stream_states": each}
    return {"type": "STATE", "state": {"type": "GLOBAL", "global": whole, **stats}}


def trace(kind: str, **content: Any) -> Message:
    return {"type": "TRACE", "trace": {"type": kind, "emitted_at": 1, kind.lower(): content}}


def status(what: str = "COMPLETE", name: str = "users") -> Message:
    return trace("STREAM_STATUS", stream_descriptor={"name": name}, status=what)


def error(message: str, failure_type: str = "system_error", name: str = "") -> Message:
    where = {"stream_descriptor": {"name": name}} if name else {}
    return trace("ERROR", message=message, failure_type=failure_type, **where)


@dataclass
class AirbyteWorld(ConnectorWorld):
    """`streams` are what the connector offers, `after` what it offers behind a read (None: the same)."""

    streams: list[Message] = field(default_factory=lambda: [stream(name=TEXT)])
    after: list[Message] | None = None
    lines: list[Line] = field(default_factory=list)
    specification: Message = field(default_factory=dict)
    configuration: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, TableSettings] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    flatten: tuple[str, ...] = ()

    @property
    def airbyte(self) -> AirbyteSource:
        place = self.folder / "connector"
        place.mkdir(exist_ok=True)
        (place / "player.py").write_text(PLAYER)
        (place / "played").unlink(missing_ok=True)
        script = {
            "streams": self.streams,
            "after": self.streams if self.after is None else self.after,
            "lines": self.lines,
            "specification": self.specification,
        }
        (place / "script.json").write_text(json.dumps(script))
        config = AirbyteConfig.resolved(
            command=[sys.executable, str(place / "player.py")],
            configuration=self.configuration,
            name="shop",
            folder=str(self.folder),
            flatten=self.flatten,
            limits=ConnectorLimits(**{"time": 600, **self.limits}),
        )
        memory = self.store.connectors.of("shop")
        return AirbyteSource(
            config,
            str(self.folder / "spool"),
            memory,
            lambda ref: self.tables.get(ref[1], TableSettings()),
            lambda: self.store.accepted.catalog("shop").by_ref,
        )

    @property
    def context(self) -> SyncContext:
        naming = Naming(namespace="shop", prefix=PREFIX, reserved=self.destination.capabilities.reserved)
        return SyncContext(
            name="shop", source=self.airbyte, destination=self.destination, policy=self.policy,
            selection=self.selection, naming=naming, settings=self._settings,
            store=self.store, spark=SparkSettings(), salt=b"salt", who="test",
        )  # fmt: skip

    def _settings(self, table: Table) -> TableSettings:
        """Those of the project file, as an application has them for a connector."""
        own = self.tables.get(table.name, STREAM).model_copy(update={"mode": "stream"})
        return self.settings.get(table.name, own)

    def read(self, *lines: Line, progress: Progress | None = None, **wanted: Any) -> SyncReport:
        """A sync in which the connector sends these lines."""
        self.lines = list(lines)
        return sync(self.context, RunScope(**wanted), progress, engine=self.rows_by)

    def failed(self, *lines: Line, **wanted: Any) -> str:
        """The error of such a sync."""
        with pytest.raises(InstepError) as raised:
            self.read(*lines, **wanted)
        return str(raised.value)

    def excluded(self, *names: str) -> None:
        self.selection = Selection(exclude_tables=tuple(map(Pattern, names)))

    @property
    def seen(self) -> dict[str, Any]:
        """What the connector was given when it was read last."""
        found: dict[str, Any] = json.loads((self.folder / "connector" / "seen.json").read_text())
        return found

    @property
    def states(self) -> dict[str, Any]:
        """The saved state by stream."""
        return {one["name"]: one["state"] for one in self.state.get("streams", ())}

    def ids(self, name: str = "users") -> list[Any]:
        return sorted(row["id"] for row in self.records(name, "id"))


def airbyte_world(folder: Path, **given: Any) -> AirbyteWorld:
    return AirbyteWorld(Case(), folder, **given)  # type: ignore[arg-type]
