"""Runs of connections in this process, one after the other, each ended with what became of it: what a rollout asks
for, and what a worker does for a job of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from instep.errors import InstepError
from instep.model import Measure, RunOutcome, TableHealth
from instep.schema.catalog.catalog import Table
from instep.schema.planning.naming import destination_ref
from instep.sync.context import SyncContext
from instep.sync.loading.engine import Engine
from instep.sync.progress import SyncReport
from instep.sync.run import sync
from instep.sync.schema_changes.evolve import preview
from instep.sync.schema_changes.undo import apply_undo, find, prepare, undone

COUNTED_ROWS = 1_000_000
"""Rows up to which NULLs of a table are counted: all its columns are read for it, twice."""


@dataclass(frozen=True)
class InProcess:
    """`pipe` and `engine` put together what one connection's run needs. Whatever goes wrong with one connection is its
    outcome, and no error; only what ends the process comes through."""

    lanes: ClassVar[int] = 1
    pipe: Callable[[str], SyncContext]
    engine: Callable[[str], Engine]

    def detect(self, connection: str, key: str) -> RunOutcome:
        """Looks at the source, records what has changed, pauses what policy pauses."""
        return _outcome(lambda: _looked(self.pipe(connection)))

    def sync(self, connection: str, key: str, *, measured: bool) -> RunOutcome:
        """One sync, with each table's rows before and after; `measured`: and their NULLs."""
        return _outcome(lambda: measured_sync(self.pipe(connection), self.engine(connection), nulls=measured))

    def undo(self, connection: str, change: str, key: str) -> RunOutcome:
        """Takes an applied change back; done, too, if it was taken back before. Drops nothing."""
        return _outcome(lambda: undo(self.pipe(connection), change))

    def wait(self) -> None:
        """Nothing is under way beside the caller."""


def _outcome(run: Callable[[], RunOutcome]) -> RunOutcome:
    try:
        return run()
    except InstepError as error:
        return RunOutcome("", "failed", f"{error.message}; {error.hint}".rstrip("; "))
    except Exception as error:
        return RunOutcome("", "failed", f"{type(error).__name__}: {error}")


def _looked(pipe: SyncContext) -> RunOutcome:
    preview(pipe, count=True, pauses=True)
    return RunOutcome("", "done")


def undo(pipe: SyncContext, change: str) -> RunOutcome:
    """Takes an applied change back; done, too, if it was taken back before. Raises what an undo raises."""
    if undone(pipe, change) is None:
        apply_undo(pipe, prepare(pipe, find(pipe, change)))
    return RunOutcome("", "done")


def measured_sync(pipe: SyncContext, engine: Engine, *, nulls: bool) -> RunOutcome:
    """One sync with what it did to each table's rows. Raises what a sync raises."""
    before = measures(pipe, nulls=nulls)
    report = sync(pipe, engine=engine)
    after = measures(pipe, nulls=nulls)
    runs = {".".join(filter(None, t.table)): t for t in report.tables}
    tables = {
        path: TableHealth(run.read, run.invalid_values, before.get(path), after.get(path)) for path, run in runs.items()
    }
    return RunOutcome(report.run, report.status, _error(report), tables)


def _error(report: SyncReport) -> str:
    failed = [t for t in report.tables if t.status == "failed"]
    return "; ".join(f"{'.'.join(filter(None, t.table))}: {t.error}" for t in failed)


def measures(pipe: SyncContext, *, nulls: bool) -> dict[str, Measure]:
    """Path -> rows at the destination, for the accepted tables that were loaded; with `nulls` how many rows have NULL
    in each column, of tables that are not large."""
    tables = [t for t in pipe.store.accepted.catalog(pipe.name).tables if not t.retained]
    with pipe.destination_open():
        return {t.path: found for t in tables if (found := _measure(pipe, t, nulls)) is not None}


def _measure(pipe: SyncContext, table: Table, nulls: bool) -> Measure | None:
    ref = destination_ref(table, pipe.naming)
    state = pipe.destination.state(ref)
    if state is None:
        return None
    return Measure(state.rows, _nulls(pipe, ref) if nulls and state.rows <= COUNTED_ROWS else {})


def _nulls(pipe: SyncContext, ref: tuple[str, str]) -> dict[str, int]:
    rows = pipe.destination.read(ref)
    counts = {name: 0 for name in rows.schema.names if not name.startswith(pipe.naming.prefix)}
    for batch in rows:
        for name in counts:
            counts[name] += batch.column(name).null_count
    return counts
