"""A connector that speaks Airbyte's protocol as a source.

Its catalog is what it offers when it is asked, before each read and again behind it. A read goes the way of our own
connectors' runs: a child sends frames, segments are loaded, the state behind them is saved. The child is our bridge.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from pathlib import Path
from typing import Any

import instep
from instep.allocators import FRUGAL
from instep.errors import InstepError, ProjectError, ReadError, SourceLost
from instep.model import Check
from instep.project.sections.connector import ConnectorLimits
from instep.project.sections.tables import TableSettings
from instep.project.sections.values import Patterns
from instep.schema.catalog.catalog import Table
from instep.schema.selection.selection import patterns
from instep.sources.airbyte import requests
from instep.sources.airbyte.catalog import StreamTable, stream_tables
from instep.sources.airbyte.config import AirbyteConfig
from instep.sources.airbyte.program import Pin, Program, program
from instep.sources.airbyte.specification import Specification
from instep.sources.airbyte.state import ConnectorProgress, numbers_of
from instep.sources.base import Discovery
from instep.sources.connector.config import Hidden
from instep.sources.connector.dialect import ChildEnvironment, Launch, passed_environment
from instep.sources.connector.seen import SeenTables
from instep.sources.connector.segment import LogLine, declared_table
from instep.sources.connector.snapshot import ConnectorSnapshot
from instep.sources.connector.source import ConnectorSource, Memory
from instep.sources.stream import Granularity, StreamScope
from instep.sources.versions import BreakingChange, read_breaking_changes
from instep.store.catalogs.airbyte_states import BESIDE_ROWS, restarted, state_problem
from instep.store.catalogs.connector_states import ConnectorState, PendingOperations

Ref = tuple[str, str]
NoteCallback = Callable[[Sequence[tuple[str, ...]]], None]
"""Is given the fields of a configuration that its connector does not call secret."""
LOG = logging.getLogger("instep.connector")


class ConfiguredMemory:
    """The memory of a connection's runs, and the configuration that its connector wants to have from now on: it is
    saved at once, and stays where a state of an earlier moment is saved later."""

    def __init__(self, memory: Memory, written: Mapping[str, Any]) -> None:
        """Take the saved configuration; it is void once `written`, that of the project file, has changed."""
        self._memory, self._written = memory, written
        self._of = hashlib.sha256(json.dumps(written, sort_keys=True, default=str).encode()).hexdigest()
        self._lock = threading.Lock()

    @property
    def configuration(self) -> Mapping[str, Any]:
        state = self._memory.state().state
        new: Mapping[str, Any] | None = state.get("configuration")
        return new if new is not None and state.get("configuration_of") == self._of else self._written

    def save_configuration(self, configuration: Mapping[str, Any]) -> None:
        new = {"configuration": dict(configuration), "configuration_of": self._of}
        with self._lock:
            self._memory.done({**self._memory.state().state, **new}, (), (), "", 0)

    def reserve(self, numbers: Mapping[Ref, int], *, begins: bool = False) -> None:
        """Save up to where records of these streams may get numbers from now on; `begins`: where they ended before
        counts no more."""
        with self._lock:
            saved = self._memory.state().state
            state = dict(restarted(saved) if state_problem(saved) else saved)
            known = ConnectorProgress(state)
            state["reserved"] = numbers_of({**known.reserved, **numbers})
            if begins:
                state["ends"] = numbers_of({ref: at for ref, at in known.ends.items() if ref not in numbers})
            self._memory.done(state, (), (), "", 0)

    def drop_catalog(self) -> None:
        """Drop the catalog that was accepted at another product."""
        with self._lock:
            state = {name: value for name, value in self._memory.state().state.items() if name != "catalog"}
            self._memory.done(state, (), (), "", 0)

    def state(self) -> ConnectorState:
        return self._memory.state()

    def shape(self) -> Mapping[str, Any]:
        return self._memory.shape()

    def keep_shape(self, shape: Mapping[str, Any]) -> None:
        self._memory.keep_shape(shape)

    def pending(self) -> list[PendingOperations]:
        return self._memory.pending()

    def done(
        self,
        state: Mapping[str, Any] | None,
        pending: Sequence[tuple[Ref, str, int, str]],
        released: Sequence[int],
        run: str,
        fence: int,
    ) -> None:
        with self._lock:
            if state is not None:
                known = self._memory.state().state
                state = {**state, **{name: known[name] for name in (*BESIDE_ROWS, "reserved") if name in known}}
            self._memory.done(state, pending, released, run, fence)


class AirbyteDialect:
    """A connector that speaks Airbyte's protocol. `settings` are those of the tables in the project file, `accepted`
    answers the tables as they were accepted last."""

    end = "its read was over"
    lists_all = True
    notes_rows = True

    def __init__(
        self,
        config: AirbyteConfig,
        memory: ConfiguredMemory,
        settings: Callable[[Ref], TableSettings],
        accepted: Callable[[], Mapping[Ref, Table]],
        note_open: NoteCallback,
    ) -> None:
        self._written, self._memory, self._settings, self._accepted = config, memory, settings, accepted
        self._note_open = note_open
        self._omitted: frozenset[Ref] = frozenset()
        self._whole: frozenset[Ref] = frozenset()
        self._log: Callable[[LogLine], None] = _log
        self._scratch, self._streams = "", requests.DiscoveredStreams(())
        self._known: tuple[Mapping[str, Any] | None, ConnectorProgress] = (None, ConnectorProgress({}))

    @property
    def config(self) -> AirbyteConfig:
        """With the configuration that is right now."""
        return self._written.model_copy(update={"configuration": dict(self._memory.configuration)})

    @property
    def name(self) -> str:
        return self._written.name

    @property
    def limits(self) -> ConnectorLimits:
        return self._written.limits

    @property
    def sandbox(self) -> bool:
        return self._written.sandbox

    @cached_property
    def specification(self) -> Specification:
        return requests.spec(self._written, self._log)

    def check(self) -> None:
        """No-op: the connector's program is looked for when it is started."""

    def secrets(self) -> Iterable[tuple[str, str]]:
        written = requests.secrets_of(self._written, self.specification)
        return [*written, *requests.secrets_of(self.config, self.specification)]

    def discovered(self) -> tuple[StreamTable, ...]:
        """Return the tables that the connector offers now."""
        self._streams = requests.discover(self.config, self._log, self._memory.save_configuration, self.know)
        return self._tables()

    def know(self, specification: Specification) -> None:
        """Note which fields of the configuration in the project file may be shown."""
        self._note_open(specification.open_fields(self._written.configuration))

    def tables_of_streams(self, streams: requests.DiscoveredStreams) -> tuple[StreamTable, ...]:
        """Return the tables that these streams are."""
        self._streams = streams
        return self._tables()

    def _tables(self) -> tuple[StreamTable, ...]:
        flattened = _TablePatterns(self._written.flatten)
        return stream_tables(self.name, self._streams.streams, self._settings, flattened, self._accepted())

    def configured_elsewhere(self, catalog: Mapping[str, Any]) -> tuple[StreamTable, ...]:
        """Return the tables of a configured catalog of another product. A table that cannot be read as the project
        file says is as the stream itself says."""
        flattened = _TablePatterns(self._written.flatten)
        tables: list[StreamTable] = []
        for stream in (entry["stream"] for entry in catalog["streams"]):
            try:
                tables += stream_tables(self.name, [stream], self._settings, flattened, {})
            except ProjectError:
                tables += stream_tables(self.name, [stream], lambda ref: TableSettings(), flattened, {})
        return tuple(tables)

    def look_again(self) -> Sequence[Mapping[str, Any]] | None:
        before = self._streams.fingerprint
        try:
            tables = self.discovered()
        except InstepError as error:
            text = f"it was not asked for its catalog behind the read: {error.message}"
            self._log(LogLine("warning", text, "instep"))
            return None
        return [table.document() for table in tables] if self._streams.fingerprint != before else None

    def launch(self, scratch: str, host: ChildEnvironment, log: Callable[[LogLine], None]) -> Launch:
        self._scratch, self._log = scratch, log
        found = self._program
        self.discovered()
        code = str(Path(instep.__file__).parent.parent)
        own = {"HOME": scratch, "TMPDIR": scratch, "PYTHONPATH": code, "PYTHONUTF8": "1", **FRUGAL}
        return Launch(
            command=(sys.executable, "-B", "-P", "-m", "instep.sources.airbyte.bridge"),
            folder=scratch,
            environment={**passed_environment(), **own},
            shown=(sys.prefix, sys.base_prefix, code, *found.folders),
        )

    @cached_property
    def _program(self) -> Program:
        return program(self._written, self._log)

    def request(self, command: str, state: Mapping[str, Any], scope: StreamScope) -> Mapping[str, Any]:
        tables, progress = self._tables(), ConnectorProgress(state)
        selected = [table for table in tables if scope.takes(table.ref)]
        chosen = [table for table in selected if not table.lost]
        self._omit([table for table in selected if table.lost])
        again = {ref for ref in progress.streams if ".".join(filter(None, ref)) in scope.again}
        progress.forget(again - self._omitted)
        self._whole = frozenset(table.ref for table in chosen if table.overwrite)
        progress.replace(self._whole)
        restarting = {table.ref for table in chosen if table.path in scope.again}
        from_first = restarting | {
            t.ref for t in chosen if t.sync_mode == "incremental" and progress.was_replaced(t.ref)
        }
        sync, configured = int(time.time()), []
        for table in chosen:
            known = table.ref in progress.generations and not progress.starts(table.ref)
            goes_on = known and not table.overwrite and table.ref not in restarting
            generation = progress.generations[table.ref] if goes_on else progress.next_generation(table.ref)
            configured.append(table.configured(generation, sync))
        keyless = [t.ref for t in chosen if not t.key and not t.overwrite]
        sent = self._number_records(progress, keyless, from_first)
        messages = progress.messages(table.ref for table in chosen)
        folder = Path(self._scratch, "airbyte")
        files = ["--config", str(folder / "configuration.json"), "--catalog", str(folder / "catalog.json")]
        files += ["--state", str(folder / "state.json")] if messages is not None else []
        config, found = self.config, self._program
        own = {"HOME": self._scratch, "TMPDIR": self._scratch, "PYTHONUTF8": "1", "MALLOC_ARENA_MAX": "2"}
        read = {
            "program": found.command("read", *files),
            "environment": {**passed_environment(), **own, **found.environment, **config.environment},
            "folder": self._scratch if config.sandbox else config.folder or self._scratch,
            "configuration": self.specification.fitted(config.configuration),
            "catalog": {"streams": configured},
            "messages": messages,
            "state": progress.document(),
            "tables": [table.document() for table in tables],
            "streams": [_plan(table, progress, sent.get(table.ref, 0)) for table in chosen],
            "file_bytes": config.limits.file_bytes,
        }
        return {"command": command, "read": read}

    def _omit(self, tables: Sequence[StreamTable]) -> None:
        self._omitted = frozenset(table.ref for table in tables)
        for table in tables:
            text = f"{table.path} is not read: {table.lost} is gone from the catalog, which is a change to decide"
            self._log(LogLine("warning", text, "instep"))

    def omits(self, table: Ref) -> bool:
        return table in self._omitted

    def _number_records(self, progress: ConnectorProgress, refs: Sequence[Ref], again: Set[Ref]) -> Mapping[Ref, int]:
        """Number the records of streams without a key; return up to where runs before may have given numbers. New
        numbers are saved before any record comes, so that a run that is repeated gives the same ones; a read from the
        first record on is not given up then."""

        if progress.number_records(refs, again.__contains__, time.time_ns()):
            document = progress.document()
            if progress.replaced.isdisjoint(refs):
                document = {**self._memory.state().state, "records": document["records"]}
            self._memory.done(document, (), (), "", 0)
        sent = progress.begin(refs)
        if refs:
            self._memory.reserve({ref: progress.reserved[ref] for ref in refs}, begins=True)
        return sent

    def reply(self, head: Mapping[str, Any], hidden: Hidden) -> Mapping[str, Any] | None:
        match head["frame"]:
            case "configuration":
                self._memory.save_configuration(head["configuration"])
                hidden.note_given(self.secrets())
                return {"saved": True}
            case "reserve":
                schema, name = head["stream"]
                self._memory.reserve({(schema, name): int(head["number"])})
                return {"reserved": True}
        return None

    def failed(self, head: Mapping[str, Any], hidden: Hidden) -> InstepError:
        if kind := head["kind"]:
            return requests.failure(self.name, {"message": head["message"], "failure_type": kind}, hidden)
        lost = SourceLost if head.get("lost") else ReadError
        return lost(
            f"connector {self.name}: {hidden.clean(str(head['message']))}",
            hint="what was complete before is loaded; its log lines are in the run; run `instep sync` again",
        )

    def notices(self) -> Iterator[LogLine]:
        yield from ()

    def is_lenient(self, table: str) -> bool:
        return True

    def starts(self, state: Mapping[str, Any], table: Ref) -> bool:
        if self._known[0] is not state:
            self._known = (state, ConnectorProgress(state))
        return table in self._whole or self._known[1].starts(table)

    def restarted(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the part of a state that survives a restart from nothing: generations go on counting."""
        return restarted(state)


class _TablePatterns:
    def __init__(self, texts: Patterns) -> None:
        self._patterns = patterns(texts)

    def __call__(self, path: str) -> bool:
        return any(pattern.matches(path) for pattern in self._patterns)


def _log(line: LogLine) -> None:
    LOG.info("%s: %s", line.origin, line.message)


def _plan(table: StreamTable, progress: ConnectorProgress, sent: int) -> dict[str, Any]:
    """Return what the bridge has to know of a stream; `sent`: up to where runs before may have given numbers."""
    return {
        "ref": list(table.ref),
        "columns": {name: str(kind) for name, kind in table.columns.items()},
        "key": list(table.key),
        "paths": {name: list(path) for name, path in table.paths.items()},
        "key_values": {name: list(path) for name, path in table.key_values.items()},
        "required": sorted(table.required),
        "overwrite": table.overwrite,
        "deletes": table.deletes,
        "resumes": table.sync_mode == "incremental",
        "first": 0 if table.key or table.overwrite else progress.records[table.ref],
        "sent": sent,
        "reserved": progress.reserved.get(table.ref, 0),
        "replaces": not table.key and not table.overwrite and table.ref in progress.replaced,
    }


class AirbyteSource(ConnectorSource):
    """Folders and memory as those of other connectors; `settings` are those of the tables in the project file,
    `accepted` answers the tables as they were accepted last."""

    kind = "airbyte"
    look = "discover streams"

    def __init__(
        self,
        config: AirbyteConfig,
        folder: str,
        memory: Memory,
        settings: Callable[[Ref], TableSettings],
        accepted: Callable[[], Mapping[Ref, Table]],
        salt: bytes = b"",
        uploads: str = "",
        note_open: NoteCallback = lambda _: None,
    ) -> None:
        self._configured = ConfiguredMemory(memory, config.configuration)
        self._airbyte = AirbyteDialect(config, self._configured, settings, accepted, note_open)
        super().__init__(self._airbyte, folder, self._configured, salt, uploads)

    @property
    def config(self) -> AirbyteConfig:
        """The current configuration, with rotated tokens."""
        return self._airbyte.config

    def save_configuration(self, configuration: Mapping[str, Any]) -> None:
        """Save the configuration that the connector wants to have from now on."""
        self._configured.save_configuration(configuration)

    def know(self, streams: requests.DiscoveredStreams) -> None:
        """Take these streams for what the connector offers, instead of asking it."""
        tables = self._airbyte.tables_of_streams(streams)
        self.__dict__["declared"] = tuple(declared_table(table.document()) for table in tables)

    def accepted_elsewhere(self) -> Discovery | None:
        """Return what an import has brought, until the first detection adopts it."""
        if (catalog := self.memory.state().state.get("catalog")) is None:
            return None
        tables = self._airbyte.configured_elsewhere(catalog)
        seen = SeenTables().after([declared_table(table.document()) for table in tables], every=True)
        return ConnectorSnapshot(seen, {}).discover()

    def adopted(self) -> None:
        """Drop it: a run's state comes without it from now on."""
        self._configured.drop_catalog()

    def connector_version(self) -> str:
        """Return the version of its package, "" for a command or a manifest."""
        package = self._airbyte.config.package
        return Pin.parse(package).version if package else ""

    def breaking_changes(self) -> Sequence[BreakingChange]:
        """Return the breaking changes in the file that `metadata` names."""
        file = self._airbyte.config.metadata
        return read_breaking_changes(Path(file)) if file else ()

    def documents(self) -> Sequence[Mapping[str, Any]]:
        return [table.document() for table in self._airbyte.discovered()]

    def test(self) -> list[Check]:
        """Ask the connector to reach its source, then for its streams."""
        try:
            answer = requests.check(self._airbyte.config, _log, self._configured.save_configuration, self._airbyte.know)
        except InstepError as error:
            return [Check("check", False, error.message, error.hint)]
        if not answer.succeeded:
            return [Check("check", False, answer.message, "correct `configuration` of the source")]
        return [Check("check", True, answer.message or "the connector reaches its source"), *super().test()]

    def granularity(self) -> Granularity:
        """Return what is read at once: streams with a state each by themselves, those that share one all together."""
        state = self.memory.state().state
        progress = ConnectorProgress({} if (damaged := bool(state_problem(state))) else state)
        if damaged or progress.is_undivided:
            return "run"
        return "restart" if progress.type == "GLOBAL" else "table"
