"""Impact of a connection's changes on those who read its tables: edits of destination columns, and verdicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from instep.errors import InstepError
from instep.lineage.shape import Kind, Level, ModelEdit, ModelField, ModelRelation, RelationShape
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import Array, DataType, Struct
from instep.schema.changes.describe import (
    ColumnAdded,
    ColumnNarrowed,
    ColumnRemoved,
    ColumnRenamed,
    ColumnRetyped,
    ColumnWidened,
    TableRemoved,
    TableRenamed,
    TableReplaced,
    key,
)
from instep.schema.planning.plan import desired
from instep.schema.policy.policy import Decision
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.table_renames import TableRenames
from instep.sync.schema_changes.evolve import PlanPreview

if TYPE_CHECKING:
    from instep.lineage.assess import ModelVerdict
    from instep.lineage.model import Model


@dataclass(frozen=True)
class ChangeImpact:
    """Downstream impact of one change: names of models, with where and why in `verdicts` of the report."""

    id: str
    summary: str
    planned: bool
    models: Mapping[Level, tuple[str, ...]] = field(default_factory=dict)

    @property
    def harmless(self) -> bool:
        return not any(self.models.get(level) for level in ("breaks", "unknown", "silent"))


@dataclass(frozen=True)
class ImpactReport:
    """Downstream impact of changes."""

    outcomes: tuple[ChangeImpact, ...]
    """Outcomes, one per change."""
    verdicts: tuple[ModelVerdict, ...]
    """Verdicts, one per model, the worst first."""

    @property
    def breaks(self) -> bool:
        return any(v.level == "breaks" for v in self.verdicts)


@dataclass(frozen=True)
class ImpactScope:
    """Changes and the tables that they touch, before any model is assessed."""

    changes: tuple[ChangeImpact, ...]
    """Before any model was looked at, and what they do to the tables."""
    relations: tuple[ModelRelation, ...]


def looked(context: SyncContext, preview: PlanPreview, change: str = "") -> ImpactScope:
    """Open and planned changes; `change` (the first characters of an id) looks at that one only, whatever was decided
    about it. Raises InstepError if it is not among today's."""
    decisions, edits = _looked_at(preview, change), _Edits(context, preview)
    for decision in decisions:
        edits.add(decision)
    reviews = [(preview.reviews[key(d.change)], d.applied) for d in decisions]
    return ImpactScope(
        tuple(ChangeImpact(r.id, r.summary, applied) for r, applied in reviews), tuple(edits.relations())
    )


def judged(scope: ImpactScope, models: Sequence[Model]) -> ImpactReport:
    """Return what they do to the models."""
    from instep.lineage.assess import assess

    verdicts = assess(models, scope.relations)
    return ImpactReport(tuple(_outcome(change, verdicts) for change in scope.changes), verdicts)


def report(context: SyncContext, preview: PlanPreview, models: Sequence[Model], change: str = "") -> ImpactReport:
    """Evaluate the changes, as `looked` detects them, against the models."""
    return judged(looked(context, preview, change), models)


def _looked_at(preview: PlanPreview, change: str) -> list[Decision]:
    decisions = [d for d in preview.detection.decisions if key(d.change) in preview.reviews]
    if not change:
        return [d for d in decisions if d.applied or d.needs_review or d.effect == "waiting"]
    named = [d for d in decisions if preview.reviews[key(d.change)].id.startswith(change)]
    if len(named) == 1:
        return named
    what = "matches several ids" if named else "is not one of the changes that the source shows now"
    raise InstepError(f"{change} {what}", hint="see `instep changes list` for the ids")


def _outcome(change_impact: ChangeImpact, verdicts: Iterable[ModelVerdict]) -> ChangeImpact:
    models: dict[Level, list[str]] = defaultdict(list)
    for verdict in verdicts:
        models[verdict.of(change_impact.id)].append(verdict.model.name)
    return replace(change_impact, models={k: tuple(v) for k, v in models.items()})


class _Edits:
    """The tables of the destination as their readers see them today, and what is going to happen to them.

    A held change is taken as if it were approved: that is the question that people have.
    """

    def __init__(self, context: SyncContext, preview: PlanPreview) -> None:
        detection = preview.detection
        self._preview = preview
        self._places = TableRenames.of(detection.decisions)
        target = desired(detection.accepted, context.naming)
        by_path = {t.alias: t for t in target.tables}
        self._tables: dict[Ref, Table] = {t.ref: by_path[t.path] for t in detection.accepted.tables}
        self._renamed = {
            (c.table, c.after.name): c.before.name
            for c in (d.change for d in detection.decisions)
            if isinstance(c, ColumnRenamed)
        }
        self._whole: dict[Ref, list[ModelEdit]] = defaultdict(list)
        self._of: dict[tuple[Ref, str], list[ModelEdit]] = defaultdict(list)
        self._new: dict[Ref, list[ModelField]] = defaultdict(list)

    def relations(self) -> Iterator[ModelRelation]:
        for ref, table in self._tables.items():
            fields = [ModelField(c.name, tuple(self._of[ref, c.alias])) for c in table.columns]
            yield ModelRelation(table.ref, RelationShape((*fields, *self._new[ref]), edits=tuple(self._whole[ref])))

    def add(self, decision: Decision) -> None:
        change, ref = decision.change, self._places.before(decision.change)
        if ref not in self._tables or decision.effect == "kept":
            return
        match change:
            case TableRemoved():
                self._table(decision, ref, _removal(decision))
            case TableRenamed():
                self._table_renamed(decision, ref, change)
            case TableReplaced():
                self._replaced(decision, ref, change)
            case ColumnRemoved():
                self._column(decision, ref, change.before.name, *_removal(decision))
            case ColumnAdded():
                self._added(decision, ref, change.after)
            case ColumnRenamed():
                self._column_renamed(decision, ref, change)
            case ColumnWidened() | ColumnNarrowed() | ColumnRetyped():
                self._retyped(decision, ref, change.before, change.after)

    def _id(self, decision: Decision) -> str:
        return self._preview.reviews[key(decision.change)].id

    def _table(self, decision: Decision, ref: Ref, effect: tuple[Kind, str]) -> None:
        path = ".".join(self._tables[ref].ref)
        self._whole[ref].append(ModelEdit(self._id(decision), effect[0], f"{path} {effect[1]}"))

    def _column(self, decision: Decision, ref: Ref, name: str, kind: Kind, what: str) -> None:
        """Report a column's change under its accepted name, `name`."""
        column = self._at(ref, name)
        if column is not None:
            text = f"{'.'.join(self._tables[ref].ref)}.{column.name} {what}"
            self._of[ref, name].append(ModelEdit(self._id(decision), kind, text))

    def _at(self, ref: Ref, name: str) -> Column | None:
        """Return the destination's column of an accepted one."""
        return next((c for c in self._tables[ref].columns if c.alias == name), None)

    def _table_renamed(self, decision: Decision, ref: Ref, change: TableRenamed) -> None:
        after = self._preview.plan.after.get(change.after.ref)
        name = (after and after.alias) or change.after.name
        if name != self._tables[ref].name:
            self._table(decision, ref, ("renamed", f"is renamed to {name}"))

    def _column_renamed(self, decision: Decision, ref: Ref, change: ColumnRenamed) -> None:
        column, name = self._at(ref, change.before.name), self._name_after(change)
        if column is not None and column.name != name:
            self._column(decision, ref, change.before.name, "renamed", f"is renamed to {name}")
            text = f"{'.'.join(self._tables[ref].ref)}.{name} is the new name of {column.name}"
            self._new[ref].append(ModelField(name, (ModelEdit(self._id(decision), "renamed", text),), coming=True))

    def _name_after(self, change: ColumnRenamed) -> str:
        table = self._preview.plan.after.get(self._places.after(change))
        column = table.by_name.get(change.after.name) if table else None
        return (column and column.alias) or change.after.name

    def _added(self, decision: Decision, ref: Ref, column: Column) -> None:
        """Report an added column; a name that returns has existed all the time, perhaps with another type."""
        old = self._at(ref, column.name)
        if old is not None:
            self._retyped(decision, ref, old, column, name=column.name)
            return
        text = f"{'.'.join(self._tables[ref].ref)}.{column.name} is added"
        self._new[ref].append(ModelField(column.name, (ModelEdit(self._id(decision), "added", text),), coming=True))

    def _retyped(self, decision: Decision, ref: Ref, before: Column, after: Column, name: str = "") -> None:
        accepted = name or self._renamed.get((getattr(decision.change, "table", ref), before.name), before.name)
        if reads_alike(before.type, after.type):
            return
        self._column(decision, ref, accepted, "retyped", f"becomes {after.type}, it was {before.type}")

    def _replaced(self, decision: Decision, ref: Ref, change: TableReplaced) -> None:
        now, before = change.after.by_name, {c.alias: c for c in self._tables[ref].columns if c.alias}
        for name in before:
            if name not in now:
                self._column(decision, ref, name, "stale", "stays, without values")
        for column in change.after.columns:
            self._added(decision, ref, column)


def _removal(decision: Decision) -> tuple[Kind, str]:
    if decision.modifiers.removed == "drop":
        return "gone", "is dropped"
    return "stale", "stays and gets no new values"


def reads_alike(before: DataType, after: DataType) -> bool:
    """Return whether queries that work with the one work with the other: the same class of type, only wider or
    narrower; of a struct, every field is still there."""
    if isinstance(before, Array) and isinstance(after, Array):
        return reads_alike(before.element, after.element)
    if isinstance(before, Struct) and isinstance(after, Struct):
        now = {f.name: f.type for f in after.fields}
        return all(f.name in now and reads_alike(f.type, now[f.name]) for f in before.fields)
    return type(before) is type(after)
