# ruff: noqa: S608 - a model is a query
"""Try a change on copies of the store and of the destination's tables, with the code of real runs.

The change is approved in the copy of the store and all others are rejected there, so that what differs afterwards is
its doing alone. New columns get their values from the source, a new table its rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instep.control import reviews
from instep.errors import Blocked, InstepError
from instep.model import Review
from instep.operations.decide.declare_rename import DeclareRenameRequest
from instep.operations.decide.preview_change import PreviewChangeRequest
from instep.operations.spec import DirectWork, Preview
from instep.operations.values import EXISTING, ReviewStatus
from instep.schema.catalog.catalog import Catalog, fingerprint
from instep.schema.maintenance import Maintenance
from instep.schema.planning.naming import destination_ref
from instep.schema.policy.similarity import PROPOSAL
from instep.stage.key_hashes import ColumnSides, ColumnTotals, HashColumns, count_columns
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
    from instep.schema.planning.plan import Plan
    from instep.schema.planning.step import Step
    from instep.sync.context import SyncContext
    from instep.sync.loading.engine import Engine
    from instep.sync.progress import Progress


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
        """Return True if it ran before and no longer runs."""
        return not self.error_before and bool(self.error_after)


@dataclass(frozen=True)
class ChangePreview:
    """Effects of a change."""

    change: str
    summary: str
    steps: tuple[str, ...]
    """Steps at the destination."""
    tables: tuple[PreviewedTable, ...]
    models: tuple[PreviewedModel, ...] = ()
    notes: tuple[str, ...] = ()
    fingerprint: str = ""
    """Digest of the steps, of the tables as they were and as they are to be: what `publish_change` is bound to."""

    @property
    def breaks(self) -> tuple[str, ...]:
        """Return the models that no longer run."""
        return tuple(model.name for model in self.models if model.breaks)


LOADED = ("column.added", "table.added")
"""Kinds of changes whose new values are read with them."""


@dataclass(frozen=True)
class Trial:
    """Effect of one change on the destination, before it is carried out."""

    steps: tuple[Step, ...]
    fingerprint: str

    @classmethod
    def of(cls, context: SyncContext, change: Review, plan: Plan) -> Trial:
        """Return the steps of a plan with a digest of them, of the tables as they are and as they are to be."""
        refs = _touched(plan.steps)
        states = {ref: context.destination.schema.state(ref, version=True) for ref in refs}
        after = Catalog.of(t for t in plan.target.tables if t.ref in refs)
        document = {
            "change": change.id,
            "steps": [[*step.table, step.text] for step in plan.steps],
            "versions": [[*ref, state.version if state else ""] for ref, state in sorted(states.items())],
            "after": fingerprint(after),
        }
        return cls(tuple(plan.steps), hashlib.sha256(json.dumps(document).encode()).hexdigest())


def rename_of(context: SyncContext, change: Review) -> tuple[DeclareRename, Preview]:
    """Return the work that says yes to a suspected rename, as `changes map` does, and what it would do."""
    path, old = ".".join(filter(None, change.table)), _renamed(change)[change.column]
    work = DeclareRename()
    request = DeclareRenameRequest(old=f"{path}.{old}", new=f"{path}.{change.column}")
    return work, work.prepare(context, request)


def load_new(context: SyncContext, change: Review, progress: Progress, engine: Engine) -> tuple[str, ...]:
    """Read the values of a new column, or the rows of a new table; return what failed."""
    table = ".".join(change.table)
    if change.kind not in LOADED:
        return ()
    try:
        if change.kind == "table.added":
            scope = RunScope(frozenset((table,)))
        else:
            of, names = check_columns(context, table, (change.column,))
            for name in names:
                context.store.backfills.request(context.name, of.ref, column=name, why=change.summary)
            scope = RunScope(frozenset((table,)), kind="backfill", columns=names)
        report = sync(context, scope, progress, engine)
    except InstepError as error:
        return (f"no values were read: {error.message}",)
    failed = [table_run for table_run in report.tables if table_run.status == "failed"]
    return tuple(f"{'.'.join(filter(None, table_run.table))}: {table_run.error}" for table_run in failed)


class PreviewChange(DirectWork):
    """The work of the operation `preview_change`."""

    moves_rows = True

    def run(self, context: SyncContext, request: PreviewChangeRequest) -> ChangePreview:
        """Try the change. Raises Blocked where there is no preview of it, InstepError for one that is not there."""
        change = context.store.reviews.get(request.change)
        check_previewed(context, change)
        with _open_preview(context) as tried:
            trial = self._try(tried, change)
            steps, notes = trial.steps, self._load(tried, change)
            before, after = context.destination, tried.destination
            with context.destination_open():
                tables = tuple(_tables(before, after, change, _touched(steps), self.engine or LocalEngine()))
                models = tuple(self._models(context, before, after))
        texts = tuple(step.text for step in steps)
        return ChangePreview(change.id, change.summary, texts, tables, models, notes, trial.fingerprint)

    def _try(self, tried: SyncContext, change: Review) -> Trial:
        """Approve the change in the copy and apply it."""
        if change.rule == PROPOSAL:
            work, shown = rename_of(tried, change)
            trial = Trial.of(tried, change, shown.prepared.mapped.plan)
            work.execute(tried, shown, ())
            return trial
        others = [r.id for r in tried.store.reviews.find(tried.name, EXISTING) if r.id != change.id]
        for review in others:
            tried.store.reviews.decide(review, "rejected", tried.who)
        reviews.answer(tried.store, [change], "approved", tried.who)
        plan = preview(tried).plan
        trial = Trial.of(tried, change, plan)
        evolve(tried, plan, tuple(step.object for step in plan.steps))
        return trial

    def _load(self, tried: SyncContext, change: Review) -> tuple[str, ...]:
        """Bring in what is new."""
        if change.kind in LOADED and tried.log is not None:
            return (f"{'.'.join(change.table)} follows the source's log, so no values were read for the preview",)
        return load_new(tried, change, self.progress, LocalEngine())  # no session of Spark knows the copy

    def _models(self, context: SyncContext, before: Destination, after: Destination) -> Iterator[PreviewedModel]:
        from instep.plans.downstream import configured, read_models

        where = configured(self.app, context.name) if self.app is not None else None
        for model in read_models(where) if where else ():
            yield _model(model, before, after)


def check_previewed(context: SyncContext, change: Review, statuses: Collection[ReviewStatus] = EXISTING) -> None:
    """Raise InstepError for a change of another connection, Blocked where there is no preview of it."""
    if change.connection != context.name:
        raise InstepError(f"change {change.id} is one of connection {change.connection}", hint="name that connection")
    if change.status not in statuses:
        raise Blocked(
            f"change {change.id} is {change.status}: there is nothing to preview", hint="see `instep changes`"
        )
    if context.destination.lifecycle.preview is None or context.shard:
        what = "a shared table" if context.shard else f"destination {context.destination_name}"
        raise Blocked(f"{what} has no previews", hint="`instep plan` and `instep impact` show what a change does")


@contextmanager
def _open_preview(context: SyncContext) -> Iterator[SyncContext]:
    """Open the connection with a copy of the store, over tables beside its own."""
    accepted = [t for t in context.store.accepted.catalog(context.name).tables if not t.retained]
    refs = [destination_ref(table, context.naming) for table in accepted]
    make = context.destination.lifecycle.preview
    assert make is not None, "it was checked"
    with temporary("preview-store") as folder, make(refs) as destination:
        copy = context.store.copied(Path(folder) / "state.db")
        try:
            yield replace(
                context,
                store=copy,
                destination=destination,
                maintenance=Maintenance(after_sync=False),
                log_taken=str,
                four_eyes=False,  # one person sees the effects of what two have to agree on
            )
        finally:
            copy.close()


def _touched(steps: Sequence[Step]) -> list[Ref]:
    return sorted({step.table for step in steps})


def _tables(
    before: Destination, after: Destination, change: Review, refs: Sequence[Ref], engine: Engine
) -> Iterator[PreviewedTable]:
    was, now = before.schema.inspect(refs), after.schema.inspect(refs)
    for ref in refs:
        yield _table(PreviewSides(before, after, ref, engine), was.get(ref), now.get(ref), _renamed(change))


def _renamed(change: Review) -> Mapping[str, str]:
    """Return the old name of the column that is renamed, by its new one."""
    if change.kind != "column.renamed":
        return {}
    old = change.change.get("before")
    return {change.column: str(old["name"] if isinstance(old, Mapping) else old)}


@dataclass(frozen=True)
class PreviewSides:
    """One table in the destination and in the copy, which `engine` reads."""

    before: Destination
    after: Destination
    ref: Ref
    engine: Engine

    def counted(
        self, key: Sequence[str], pairs: Sequence[tuple[str, str]], accepted: Collection[str]
    ) -> dict[str, tuple[int, int | None]]:
        """Return the rows with a value, and those whose value differs, by column; by key, where the table has one."""
        both = [(name, was) for name, was in pairs if key and was in accepted and name not in key]
        names = [*(name for name, _ in both), *(name for name, _ in pairs if name not in dict(both))]
        if not names:
            return {}
        now = HashColumns(tuple(names.index(column) for column in key), tuple(range(len(names))))
        then = HashColumns(tuple(range(len(key))), tuple(range(len(key), len(key) + len(both))))
        old = [*key, *(was for _, was in both)] if both else []
        totals = self._totals(names, old, ColumnSides(now, then))
        changed = dict(zip((name for name, _ in both), totals.differing, strict=True))
        return {name: (filled, changed.get(name)) for name, filled in zip(names, totals.filled, strict=True)}

    def _totals(self, names: Sequence[str], old: Sequence[str], sides: ColumnSides) -> ColumnTotals:
        now = self.after.write.scan(self.ref, names)
        then = self.before.write.scan(self.ref, old) if old else now and replace(now, chunks=())
        if now is not None and then is not None:
            return self.engine.count_columns(now, then, sides)
        read = iter(self.before.write.read(self.ref, old) if old else ())
        return count_columns(sides.now(iter(self.after.write.read(self.ref, names))), sides.then(read), sides)


def _table(sides: PreviewSides, old: Any, new: Any, renamed: Mapping[str, str]) -> PreviewedTable:
    types_before = {c.name: str(c.type) for c in old.columns} if old else {}
    types_after = {c.name: str(c.type) for c in new.columns} if new else {}
    rows_before, rows_after = (d.schema.sizes([sides.ref]).get(sides.ref) for d in (sides.before, sides.after))
    key = [c for c in (new.key if new else ()) if c in types_before]
    pairs = [(name, renamed.get(name, name)) for name in types_after]
    counts = sides.counted(key, pairs, types_before) if old and new else {}
    columns = [
        PreviewedColumn(
            name,
            types_before.get(was, ""),
            types_after[name],
            was if was != name else "",
            *counts.get(name, (None, None)),
        )
        for name, was in pairs
    ]
    gone = [name for name in types_before if name not in {was for _, was in pairs}]
    columns += [PreviewedColumn(name, types_before[name], "") for name in gone]
    changed = [c for c in columns if c.before != c.after or c.was or c.differs]
    return PreviewedTable(
        ".".join(sides.ref),
        rows_before.rows if rows_before else None,
        rows_after.rows if rows_after else None,
        tuple(changed),
    )


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
