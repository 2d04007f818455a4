"""A connector as a source, and one that is written for the Connector SDK.

Its catalog is what it has declared and what it has sent so far. A look at it asks for its tables alone; only a run
reads rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from instep.errors import InstepError
from instep.model import Check
from instep.sources.base import WholeCatalog
from instep.sources.connector.config import ConnectorConfig
from instep.sources.connector.dialect import ConnectorDialect, SdkDialect
from instep.sources.connector.seen import SeenTables
from instep.sources.connector.segment import LogLine, OperationCounts, SegmentTable, declared_table
from instep.sources.connector.snapshot import ConnectorSnapshot
from instep.sources.connector.uploads import remove_leftovers
from instep.sources.stream import Granularity, ReceivedCallback, StreamScope
from instep.store.catalogs.connector_states import ConnectorState, PendingOperations

if TYPE_CHECKING:
    from instep.sources.connector.cluster.runner import Cluster, RemoteSegments
    from instep.sources.connector.run import ConnectorRun


LOG = logging.getLogger("instep.connector")


def _log(line: LogLine) -> None:
    LOG.info("%s: %s", line.origin, line.message)


class Memory(Protocol):
    """State of a connection's runs."""

    def state(self) -> ConnectorState: ...

    def shape(self) -> Mapping[str, Any]: ...

    def keep_shape(self, shape: Mapping[str, Any]) -> None: ...

    def pending(self) -> list[PendingOperations]: ...

    def done(
        self,
        state: Mapping[str, Any] | None,
        pending: Sequence[tuple[tuple[str, str], str, int, str]],
        released: Sequence[int],
        run: str,
        fence: int,
    ) -> None:
        """Save the state (None: keep the one before) and which operations are pending or released, in one
        transaction."""
        ...


class ConnectorSource(WholeCatalog):
    """`folder` is where its segments are written, `memory` that of its connection; `salt` is part of the key to
    operations that wait. `uploads` is where files of rows are put ("": in `folder`)."""

    kind = "connector"
    default_schema = ""
    look = "call schema()"
    """Step of a connection test, for its answer."""

    def __init__(
        self, dialect: ConnectorDialect, folder: str, memory: Memory, salt: bytes = b"", uploads: str = ""
    ) -> None:
        self.dialect, self.folder, self.memory, self._salt = dialect, folder, memory, salt
        self.uploads = Path(uploads or folder) / ("" if uploads else "uploads")
        self._run: ConnectorRun | None = None

    @cached_property
    def declared(self) -> tuple[SegmentTable, ...]:
        """Tables that the connector declares, asked once; raises ReadError with its own error."""
        return tuple(map(declared_table, self.documents()))

    def documents(self) -> Sequence[Mapping[str, Any]]:
        """Return the tables as the connector declares them now."""
        from instep.sources.connector.child import answer

        answered: Sequence[Mapping[str, Any]] = answer(self.dialect, "schema", _log)
        return answered

    def test(self) -> list[Check]:
        """Create its environment, and ask it for its tables."""
        try:
            declared = self.declared
        except InstepError as error:
            return [Check(self.look, False, error.message, error.hint)]
        tables = ", ".join(t.name for t in declared[:5]) or "none is declared: they are inferred from what it sends"
        return [Check(self.look, True, f"{len(declared)} tables: {tables}" if declared else tables)]

    @contextmanager
    def snapshot(self) -> Iterator[ConnectorSnapshot]:
        """Yield the tables that a run's group of segments contains, while the run is under way."""
        if self._run is not None:
            run = self._run
            noted = self.dialect.notes_rows
            yield ConnectorSnapshot(run.seen, run.folders, run.readable, self.uploads, run.before, noted=noted)
        else:
            seen = SeenTables.from_dict(self.memory.shape()).after(self.declared, every=self.dialect.lists_all)
            yield ConnectorSnapshot(seen, {})

    def waits(self, ref: tuple[str, str]) -> bool:
        return any(pending.table == ref for pending in self.memory.pending())

    def forget(self, ref: tuple[str, str], column: str) -> None:
        seen = self._run.seen if self._run is not None else SeenTables.from_dict(self.memory.shape())
        left = seen.without(ref, column)
        self.memory.keep_shape(left.to_dict())
        if self._run is not None:
            self._run.seen = left

    def granularity(self) -> Granularity:
        return "run"

    @contextmanager
    def stream(
        self,
        *,
        from_start: bool,
        scope: StreamScope,
        on_counts: Callable[[OperationCounts], None],
        on_received: ReceivedCallback,
        log: Callable[[LogLine], None],
    ) -> Iterator[ConnectorRun]:
        from instep.sources.connector.run import ConnectorRun

        remove_leftovers(self.uploads)
        run = ConnectorRun(
            self.dialect,
            self.folder,
            self.memory,
            self._salt,
            from_start=from_start,
            scope=scope,
            on_counts=on_counts,
            on_received=on_received,
            log=log,
            remote=self._remote(),
        )
        self._run = run
        try:
            yield run
        finally:
            self._run = None
            run.close()

    def _remote(self) -> Callable[..., RemoteSegments] | None:
        """Return a factory for the segments of a run on other machines, None if it runs on this one."""
        return None


class SdkSource(ConnectorSource):
    """A connector that is written for the Connector SDK. `on` answers the machines that a run's child runs on, None for
    this one."""

    def __init__(
        self,
        config: ConnectorConfig,
        folder: str,
        memory: Memory,
        salt: bytes = b"",
        uploads: str = "",
        on: Callable[[], Cluster | None] = lambda: None,
    ) -> None:
        super().__init__(SdkDialect(config), folder, memory, salt, uploads)
        self._config, self._on = config, on

    def _remote(self) -> Callable[..., RemoteSegments] | None:
        from instep.sources.connector.cluster.runner import RemoteSegments

        return None if (cluster := self._on()) is None else partial(RemoteSegments, self._config, on=cluster)
