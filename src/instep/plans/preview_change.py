# ruff: noqa: S608 - names are ours and quoted
"""Try a change on copies of the store and of the destination's tables, with the code of real runs.

The change is approved in the copy of the store and all others are rejected there, so that what differs afterwards is
its doing alone. New columns get their values from the source, a new table its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from instep.control import reviews
from instep.errors import Blocked, InstepError
from instep.model import Review
from instep.operations.decide.declare_rename import DeclareRenameRequest
from instep.operations.decide.preview_change import PreviewChangeRequest
from instep.operations.spec import DirectWork
from instep.operations.values import EXISTING
from instep.schema.maintenance import Maintenance
from instep.schema.planning.naming import destination_ref, quote
from instep.schema.policy.similarity import PROPOSAL
from instep.sync.loading.engine import LocalEngine
from instep.sync.loading.results import RunScope
from instep.sync.query import ask
from instep.sync.run import sync
from instep.sync.schema_changes.backfill_plan import check_columns
from instep.sync.schema_changes.declare_column_rename import DeclareRename
from instep.sync.schema_changes.evolve import evolve, preview
from instep.temporary import temporary

if TYPE_CHECKING:
    from instep.destinations.base import Ref
    from instep.destinations.facets import Destination
    from instep.lineage.model import Model
    from instep.schema.planning.step import Step
    from instep.sync.context import SyncContext

COMPARED_ROWS = 20_000_000
"""Rows of a table up to which its values are compared, too."""
MEMORY = "512MB"
"""Memory of that comparison, which streams both tables."""


@dataclass(frozen=True)
class PreviewedColumn:
    """A column of a table. `before` and `after` are its types; "" where it is not there. `differs`: rows whose value is
    another one; None where that was not compared."""

    name: str
    before: str
    after: str
    was: str = ""
    """The name that it had, if it was renamed."""
    filled: int | None = None
    """Rows in which it has a value afterwards."""
    differs: int | None = None


@dataclass(frozen=True)
class PreviewedTable:
    """A table before and after. `rows_before` and `rows_after` are None where it is not there."""

    table: str
    rows_before: int | None
    rows_after: int | None
    columns: tuple[PreviewedColumn, ...] = ()


@dataclass(frozen=True)
class PreviewedModel:
    """A model's result before and after: rows and columns, or why it cannot be run."""

    name: str
    rows_before: int | None
    rows_after: int | None
    columns_before: tuple[str, ...] = ()
    columns_after: tuple[str, ...] = ()
    error_before: str = ""
    error_after: str = ""

    @property
    def breaks(self) -> bool:
        """Return True if it ran before and does not run any more."""
        return not self.error_before and bool(self.error_after)


@dataclass(frozen=True)
class ChangePreview:
    """Effects of a change."""

    change: str
    summary: str
    steps: tuple[str, ...]
    """Those at the destination."""
    tables: tuple[PreviewedTable, ...]
    models: tuple[PreviewedModel, ...] = ()
    notes: tuple[str, ...] = ()
    """What was left out."""

    @property
    def breaks(self) -> tuple[str, ...]:
        """Return the models that do not run any more."""
        return tuple(one.name for one in self.models if one.breaks)


class PreviewChange(DirectWork):
    """The work of the operation `preview_change`."""

    moves_rows = True

    def run(self, context: SyncContext, request: PreviewChangeRequest) -> ChangePreview:
        """Try the change. Raises Blocked where there is no preview of it, InstepError for one that is not there."""
        change = context.store.reviews.get(request.change)
        _check(context, change)
        with _beside(context) as tried:
            steps, notes = self._try(tried, change)
            before, after = context.destination, tried.destination
            with context.destination_open():
                tables = tuple(_tables(before, after, change, _touched(steps)))
                notes = (*notes, *_too_large(tables))
                models = tuple(self._models(context, before, after))
        return ChangePreview(change.id, change.summary, tuple(one.text for one in steps), tables, models, notes)

    def _try(self, tried: SyncContext, change: Review) -> tuple[Sequence[Step], tuple[str, ...]]:
        """Approve the change in the copy, apply it, and bring in what is new."""
        if change.rule == PROPOSAL:
            return self._rename(tried, change), ()
        others = [r.id for r in tried.store.reviews.find(tried.name, EXISTING) if r.id != change.id]
        for one in others:
            tried.store.reviews.decide(one, "rejected", tried.who)
        reviews.answer(tried.store, [change], "approved", tried.who)
        made = preview(tried).plan
        steps = tuple(made.steps)
        evolve(tried, made, tuple(step.object for step in steps))
        return steps, self._load(tried, change)

    def _rename(self, tried: SyncContext, change: Review) -> Sequence[Step]:
        """Approve a proposed rename, as `changes map` does; return the steps that this plans."""
        path, old = ".".join(filter(None, change.table)), _renamed(change)[change.column]
        work = DeclareRename()
        request = DeclareRenameRequest(old=f"{path}.{old}", new=f"{path}.{change.column}")
        shown = work.prepare(tried, request)
        work.execute(tried, shown, ())
        return tuple(shown.prepared.mapped.plan.steps)

    def _load(self, tried: SyncContext, change: Review) -> tuple[str, ...]:
        table = ".".join(change.table)
        if change.kind not in ("column.added", "table.added"):
            return ()
        if _follows_log(tried):
            return (f"{table} follows the source's log, so no values were read for the preview",)
        try:
            if change.kind == "table.added":
                scope = RunScope(frozenset((table,)))
            else:
                of, names = check_columns(tried, table, (change.column,))
                for name in names:
                    tried.store.backfills.request(tried.name, of.ref, column=name, why="preview")
                scope = RunScope(frozenset((table,)), kind="backfill", columns=names)
            report = sync(tried, scope, self.progress, LocalEngine())  # no session of Spark knows the copy
        except InstepError as error:
            return (f"no values were read: {error.message}",)
        failed = [one for one in report.tables if one.status == "failed"]
        return tuple(f"{'.'.join(filter(None, one.table))}: {one.error}" for one in failed)

    def _models(self, context: SyncContext, before: Destination, after: Destination) -> Iterator[PreviewedModel]:
        from instep.plans.downstream import configured, read_models

        where = configured(self.app, context.name) if self.app is not None else None
        for model in read_models(where) if where else ():
            yield _model(model, before, after)


def _check(context: SyncContext, change: Review) -> None:
    if change.connection != context.name:
        raise InstepError(f"change {change.id} is one of connection {change.connection}", hint="name that connection")
    if change.status not in EXISTING:
        raise Blocked(
            f"change {change.id} is {change.status}: there is nothing to preview", hint="see `instep changes`"
        )
    if context.destination.lifecycle.preview is None or context.shard:
        what = "a shared table" if context.shard else f"destination {context.destination_name}"
        raise Blocked(f"{what} has no previews", hint="`instep plan` and `instep impact` tell what a change does")


def _follows_log(context: SyncContext) -> bool:
    return context.log is not None


@contextmanager
def _beside(context: SyncContext) -> Iterator[SyncContext]:
    """Open the connection with a copy of the store, over tables beside its own."""
    accepted = [t for t in context.store.accepted.catalog(context.name).tables if not t.retained]
    refs = [destination_ref(table, context.naming) for table in accepted]
    make = context.destination.lifecycle.preview
    assert make is not None, "it was checked"
    with temporary("preview-store") as folder, make(refs) as destination:
        copy = context.store.copied(Path(folder) / "state.db")
        try:
            yield replace(
                context, store=copy, destination=destination, maintenance=Maintenance(after_sync=False), log_taken=str
            )
        finally:
            copy.close()


def _touched(steps: Sequence[Step]) -> list[Ref]:
    return sorted({step.table for step in steps})


def _tables(before: Destination, after: Destination, change: Review, refs: Sequence[Ref]) -> Iterator[PreviewedTable]:
    was, now = before.schema.inspect(refs), after.schema.inspect(refs)
    for ref in refs:
        old, new = was.get(ref), now.get(ref)
        yield _table(before, after, ref, old, new, _renamed(change))


def _too_large(tables: Sequence[PreviewedTable]) -> Iterator[str]:
    for one in tables:
        rows = (one.rows_before or 0, one.rows_after or 0)
        if min(rows) and max(rows) > COMPARED_ROWS:
            yield f"{one.table} has {max(rows):,} rows: its values were not compared"


def _renamed(change: Review) -> Mapping[str, str]:
    """Return the old name of the column that is renamed, by its new one."""
    if change.kind != "column.renamed":
        return {}
    old = change.change.get("before")
    return {change.column: str(old["name"] if isinstance(old, Mapping) else old)}


def _table(
    before: Destination, after: Destination, ref: Ref, old: Any, new: Any, renamed: Mapping[str, str]
) -> PreviewedTable:
    types_before = {c.name: str(c.type) for c in old.columns} if old else {}
    types_after = {c.name: str(c.type) for c in new.columns} if new else {}
    rows_before, rows_after = (one.schema.sizes([ref]).get(ref) for one in (before, after))
    counted = max((size.rows or 0) for size in (rows_before, rows_after) if size) if rows_before or rows_after else 0
    key = [c for c in (new.key if new else ()) if c in types_before]
    pairs = [(name, renamed.get(name, name)) for name in types_after]
    found = _compared(before, after, ref, key, pairs, types_before) if old and new and counted <= COMPARED_ROWS else {}
    columns = [
        PreviewedColumn(
            name,
            types_before.get(was, ""),
            types_after[name],
            was if was != name else "",
            *found.get(name, (None, None)),
        )
        for name, was in pairs
    ]
    gone = [name for name in types_before if name not in {was for _, was in pairs}]
    columns += [PreviewedColumn(name, types_before[name], "") for name in gone]
    changed = [c for c in columns if c.before != c.after or c.was or c.differs]
    return PreviewedTable(
        ".".join(ref),
        rows_before.rows if rows_before else None,
        rows_after.rows if rows_after else None,
        tuple(changed),
    )


def _compared(
    before: Destination,
    after: Destination,
    ref: Ref,
    key: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    known: Mapping[str, str],
) -> dict[str, tuple[int | None, int | None]]:
    """Return the rows with a value, and those whose value differs, by column; by key, where the table has one."""
    both = [(name, was) for name, was in pairs if key and was in known and name not in key]
    sums = [f"count(a.{quote(name)})" for name, _ in pairs]
    there = f"b.{quote(key[0])} is not null and" if key else ""
    sums += [f"count(*) filter ({there} a.{quote(n)}::varchar is distinct from b.{quote(w)}::varchar)" for n, w in both]
    joined = " and ".join(f"a.{quote(one)} = b.{quote(one)}" for one in key)
    beside = f" left join before_rows b on {joined}" if both else ""
    with temporary("preview-compare") as spill, _comparer(spill) as connection:
        connection.register("after_rows", after.write.read(ref, [name for name, _ in pairs]))
        if both:
            connection.register("before_rows", before.write.read(ref, [*key, *(was for _, was in both)]))
        found = connection.execute(f"select {', '.join(sums)} from after_rows a{beside}").fetchone() if sums else ()
    counts, other = (found or ())[: len(pairs)], (found or ())[len(pairs) :]
    changed = dict(zip((name for name, _ in both), other, strict=True))
    return {name: (counted, changed.get(name)) for (name, _), counted in zip(pairs, counts, strict=True)}


@contextmanager
def _comparer(spill: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database that joins streams in bounded memory, and on disk what is more than that."""
    config: dict[str, Any] = {"memory_limit": MEMORY, "temp_directory": spill}
    with duckdb.connect(":memory:", config=config) as connection:
        connection.execute("set timezone = 'UTC'")
        connection.execute("set enable_external_access = false")
        yield connection


def _model(model: Model, before: Destination, after: Destination) -> PreviewedModel:
    if model.query is None:
        return PreviewedModel(model.name, None, None, error_before=model.problem, error_after=model.problem)
    rows_before, columns_before, error_before = _answer(model, before)
    rows_after, columns_after, error_after = _answer(model, after)
    return PreviewedModel(model.name, rows_before, rows_after, columns_before, columns_after, error_before, error_after)


def _answer(model: Model, destination: Destination) -> tuple[int | None, tuple[str, ...], str]:
    """Return the rows and columns that a model's query gives on a destination, or why it gives none."""
    query: Any = model.query
    try:
        text = (getattr(query, "expression", None) or query).sql(dialect="duckdb")
        columns = ask(destination, f"select * from ({text}) limit 0").columns
        rows = ask(destination, f"select count(*) from ({text})").rows[0][0]
    except InstepError as error:
        return None, (), error.message.partition("\n")[0]
    return int(rows), tuple(columns), ""
