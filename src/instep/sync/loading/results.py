"""Request of a run, and the results of its tables."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from instep.errors import ConnectError, SourceLost
from instep.model import TableRun
from instep.operations.values import RunKind
from instep.sync.context import Ref
from instep.sync.loading.load_table import TableResult


@dataclass(frozen=True)
class RunScope:
    """Scope of a run: `tables` (paths; empty: all), everything anew (`full`), consent to lose what the
    source dropped, `drop_columns` (paths) that are no longer read, or nothing but the values of some `columns` of
    the tables. `again` (paths): these are sent from their first row on, beside all others."""

    tables: frozenset[str] = frozenset()
    full: bool = False
    drop_retained: bool = False
    kind: RunKind = "sync"
    columns: tuple[str, ...] = ()
    drop_columns: frozenset[str] = frozenset()
    again: frozenset[str] = frozenset()


@dataclass
class RunOutcome:
    """Filled while a run goes on. `others` are the tables that were not loaded, by accepted name; `filled` those whose
    new columns got their values (see sync/loading/backfill.py), `missing` what is to be
    synced and is not there, `late` the tables that a later pass was to read and has not read yet. `retryable` are those
    of the failed ones that may be complete when they are read again."""

    loaded: list[TableResult] = field(default_factory=list)
    others: dict[Ref, TableRun] = field(default_factory=dict)
    """The tables that were not loaded, by accepted name."""
    filled: dict[Ref, TableRun] = field(default_factory=dict)
    """Tables whose new columns got their values (see sync/loading/backfill.py)."""
    missing: dict[Ref, TableRun] = field(default_factory=dict)
    """Tables that are selected and do not exist."""
    late: dict[Ref, TableRun] = field(default_factory=dict)
    retryable: set[Ref] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    applied: tuple[str, ...] = ()

    @property
    def tables(self) -> tuple[TableRun, ...]:
        """One result a table: the last pass counts (of a stream all of them), and a fill that failed."""
        done: dict[Ref, TableRun] = {}
        for result in self.loaded:
            before = done.get(result.load.table.ref)
            more = before is not None and result.load.counts is not None
            done[result.load.table.ref] = _merged_run(before, result.result) if before and more else result.result
        for ref, filled in self.filled.items():
            both = ref in done and filled.status != "failed"
            done[ref] = (
                replace(done[ref], invalid_values=done[ref].invalid_values + filled.invalid_values) if both else filled
            )
        done |= self.late
        others = {**self.missing, **self.others}
        return (*done.values(), *(t for ref, t in others.items() if ref not in done))

    @property
    def unread(self) -> frozenset[Ref]:
        """Return the tables that failed as their source could not be reached, or has gone."""
        return frozenset(d.load.table.ref for d in self.loaded if isinstance(d.error, SourceLost | ConnectError))

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _merged_run(before: TableRun, after: TableRun) -> TableRun:
    """Return both of one table, one behind the other."""
    counts = ("read", "inserted", "updated", "deleted", "invalid_values", "bytes", "seconds")
    return replace(after, **{name: getattr(before, name) + getattr(after, name) for name in counts})
