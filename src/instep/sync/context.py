"""The context of a run: everything that one connection's sync needs, assembled by bootstrap.

Tables that people name: an error that says which one was probably meant, before anything is done.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from instep.destinations.base import FileWorkers
from instep.destinations.facets import Destination
from instep.model import LogNames, Run
from instep.project.sections.tables import TableSettings
from instep.schema.catalog.catalog import Table
from instep.schema.maintenance import BackfillLimits, Maintenance
from instep.schema.planning.naming import Naming
from instep.schema.policy.policy import Policy
from instep.schema.policy.safeguards import MAX_NEW_COLUMNS
from instep.schema.selection.overrides import sides
from instep.schema.selection.pii import Protect
from instep.schema.selection.selection import Selection, is_on
from instep.sources.base import Discovery, Source
from instep.store.store import Store
from instep.suggest import unknown_table
from instep.sync.progress import Progress, Silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from instep.spark.settings import SparkSettings
    from instep.sync.loading.engine import Engine


Ref = tuple[str, str]


def _no_source() -> Source:
    raise LookupError("no source was named")


def _no_engine() -> None:
    return None


@dataclass(frozen=True)
class Scope:
    """The tables that the section of a source lets a connection see, and what the connection says of columns."""

    source: str = ""
    include: tuple[str, ...] = ()
    unfiltered: Callable[[], Source] = _no_source  # the same source without `include` and `exclude`
    exclude: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)  # patterns of columns, and the key that has them


@dataclass(frozen=True)
class SyncContext:
    """One connection: its source, destination, rules and store."""

    # `selection` goes by the source's names, `before` by the accepted ones (None: they are the same), `file` is what
    # the project file says without what people have switched by command (None: `selection` is that).
    name: str
    source: Source
    destination: Destination
    policy: Policy
    selection: Selection
    naming: Naming
    settings: Callable[[Table], TableSettings]
    store: Store
    spark: SparkSettings
    types: Mapping[str, str] = field(default_factory=dict)
    """Types chosen for all tables, by source type."""
    tags: tuple[str, ...] = ()
    salt: bytes = field(default=b"", repr=False)
    who: str = "cli"
    """Goes into the history."""
    run: Run | None = None
    """The run that holds the connection, once there is one."""
    backfill_limits: BackfillLimits = field(default_factory=BackfillLimits)
    max_new_columns: int = MAX_NEW_COLUMNS
    detect_every: float = 0.0
    """A sync relies on a detection for `detect_every` seconds."""
    file: Selection | None = None
    before: Selection | None = None
    protect: Protect = field(default_factory=Protect)
    destination_name: str = ""
    """Name of the destination in the project file."""
    log: LogNames | None = None
    """There if some table may follow one."""
    log_taken: Callable[[], str] = str  # the other connection whose slot it is, "" for none
    maintenance: Maintenance = field(default_factory=Maintenance)
    shard: str = ""
    """The connection's, if it shares its tables with others."""
    four_eyes: bool = False  # who approves a destructive change is not who carries it out
    tables_named: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The tables that the project file names one by one, with the columns that it gives other names."""
    scope: Scope = field(default_factory=Scope)
    engine: Callable[[], Engine | None] = _no_engine  # does large work on the files of tables; None: this process does
    progress: Progress = field(default_factory=Silent)  # hears of it

    def workers(self, path: str, operation: str) -> FileWorkers:
        """Return who does large work on the files of a table."""

        def session() -> SparkSession | None:
            engine = self.engine()
            return engine.for_large(self.progress.step, f"{path}: {operation}") if engine else None

        def on_progress(rows: int, size: int) -> None:
            self.progress.table(path, rows=rows, bytes=size, step=operation)

        return FileWorkers(session, on_progress)

    @property
    def project_selection(self) -> Selection:
        """The selection of the project file."""
        return self.file or self.selection

    @property
    def selected_before(self) -> Selection:
        return self.before or self.selection

    def destination_open(self) -> AbstractContextManager[None]:
        """Open the destination once for many operations in a row."""
        session = self.destination.lifecycle.session
        return session() if session else nullcontext()

    def deferred_creation(self) -> AbstractContextManager[None]:
        """Defer the creation of the run's tables until their first rows, where the destination can do that."""
        return self.destination.lifecycle.deferred_create()

    def table(self, path: str, among: Iterable[Table] | None = None) -> Table:
        """Return the table of this path, of the accepted ones or `among` others; InstepError if there is none."""
        tables = {t.path: t for t in (self.store.accepted.catalog(self.name).tables if among is None else among)}
        if path not in tables:
            raise unknown_table(f"connection {self.name} has no table {path}", path, tables)
        return tables[path]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Open a transaction of the store; raises Fenced, with nothing written, once a later run has taken over."""
        with self.store.transaction(self.name):
            if self.run is not None:
                self.store.runs.check(self.run)
            yield


def check_named(context: SyncContext, names: Collection[str], seen: Discovery) -> None:
    """Raise InstepError for paths that are neither accepted nor at the source and switched on; writes nothing."""
    if not names:
        return
    accepted = context.store.accepted.catalog(context.name)
    chosen = sides(
        context.project_selection, context.store.switches.of(context.name), seen.catalog, accepted, seen.identity
    )
    paths = {t.path for t in accepted.tables} | {t.path for t in seen.catalog.tables if is_on(chosen.now, t)[0]}
    for name in sorted(set(names) - paths):
        raise unknown_table(f"connection {context.name} syncs no table {name}", name, paths)
