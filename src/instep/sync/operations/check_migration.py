"""Check of a source's migration: carried out in memory, then compared, decided and planned.

The store is read and nothing is written; neither source nor destination is opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from instep.errors import InstepError, ProjectError, SchemaError
from instep.lineage.migration.statements import FileLine, Migration, UnreadStatement
from instep.lineage.model import Model
from instep.model import Review
from instep.operations.queries.work import FillEstimate
from instep.schema.catalog.catalog import Catalog
from instep.schema.changes import edits
from instep.schema.changes.describe import (
    Change,
    TableRemoved,
    TableRenamed,
    column_of,
    describe,
    family,
    key,
    table_of,
)
from instep.schema.changes.rehearse import Rehearsal, Rules
from instep.schema.planning.accept import accept
from instep.schema.planning.hazard import Hazard, HazardClass, hazards, worst
from instep.schema.planning.naming import assign
from instep.schema.planning.plan import Plan, desired, plan
from instep.schema.policy.policy import Decision
from instep.sources.base import Discovery
from instep.sources.declared import DIALECTS, declared_type
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.detect import DetectionResult, detect, redetect_from_store, to_discovery
from instep.sync.detection.table_renames import TableRenames
from instep.sync.loading.backfill import MODE
from instep.sync.operations.impact import ImpactReport, report
from instep.sync.schema_changes.apply import backfill_of
from instep.sync.schema_changes.backfill_plan import estimate_new, why_whole
from instep.sync.schema_changes.evolve import PlanPreview
from instep.sync.schema_changes.overflow_columns import record_extra
from instep.sync.table_mode import mode_name


@dataclass(frozen=True)
class ReadAgain:
    """Data that a change makes a sync read again, by the source's statistics of the last detection."""

    ref: Ref
    mode: str
    size: FillEstimate


@dataclass(frozen=True)
class Consequence:
    """One change that the migration leads to."""

    id: str
    """Id that is made for this check."""
    at: tuple[FileLine, ...]
    """The statements behind it."""
    statement: str
    summary: str
    decision: Decision
    level: HazardClass
    hazards: tuple[Hazard, ...]
    waits: bool
    """A person has to decide, whether or not something pauses."""
    backfill: ReadAgain | None = None


@dataclass(frozen=True)
class MigrationCheck:
    """Consequences of a migration for one connection."""

    connection: str
    consequences: tuple[Consequence, ...]
    unread: tuple[UnreadStatement, ...]
    notes: tuple[UnreadStatement, ...]
    elsewhere: tuple[UnreadStatement, ...]
    """Statements about tables that it does not have."""
    settled: tuple[str, ...]
    """Recorded changes that the migration takes back."""
    steps: tuple[str, ...]
    """Steps at the destination."""
    refused: Mapping[str, str]
    """Changes that the destination refuses, and why."""
    preview: PlanPreview
    concerned: bool = True
    """Tables that it has are among those that are altered."""


def dialect_of(context: SyncContext) -> str:
    """Return the SQL of the connection's source; ProjectError if it has none."""
    if context.source.kind not in DIALECTS:
        raise ProjectError(
            f"the source of {context.name} is of type {context.source.kind}, which no SQL migrates",
            hint="name a connection with --connection whose source is a database",
        )
    return DIALECTS[context.source.kind]


def predict_migration(context: SyncContext, migration: Migration) -> MigrationCheck:
    """Return what the migration would lead to if it were run at the source as it was at the last detection. InstepError
    before the first one."""
    cached = context.store.discoveries.get(context.name)
    now = redetect_from_store(context, {})
    if cached is None or now is None:
        raise InstepError(
            f"nothing of the source of {context.name} is known yet", hint=f"run `instep detect {context.name}` first"
        )
    rehearsal, unread = _rehearse(context, cached.catalog, migration)
    seen = replace(to_discovery(cached), catalog=rehearsal.catalog, proves_absence=True)
    then = detect(context, seen, count=False, assumed={}, recalled=True)
    before, after = _plan(context, now), _plan(context, then)
    old = {key(d.change): d for d in now.decisions}
    fresh = [d for d in then.decisions if key(d.change) not in old]
    reviews = {key(d.change): _review(context, d, f"m{n}") for n, d in enumerate(fresh, 1)}
    consequences = [
        _consequence(context, d, reviews[key(d.change)].id, rehearsal, migration, seen, after) for d in fresh
    ]
    renames = tuple(_renames(context, cached.catalog, migration))
    gone = old.keys() - {key(d.change) for d in then.decisions}
    shown = {(s.table, s.text) for s in before.steps}
    return MigrationCheck(
        context.name,
        tuple(sorted(_with_doubts(consequences, then, renames), key=lambda c: c.at)),
        (*migration.unread, *unread),
        renames,
        tuple(UnreadStatement(migration.steps[n].at, name) for n, name in sorted(rehearsal.unknown.items())),
        tuple(describe(old[k].change) for k in old if k in gone),
        tuple(s.text for s in after.steps if (s.table, s.text) not in shown),
        {".".join(ref): why for ref, why in after.refused.items() if ref not in before.refused},
        PlanPreview(context.name, then, reviews, after, {}, {}),
        any(t.tables & cached.catalog.by_ref.keys() for t in rehearsal.touches),
    )


def downstream(context: SyncContext, check: MigrationCheck, models: Sequence[Model]) -> ImpactReport:
    """Return what the changes do to views and models; the ids are those of the consequences."""
    return report(context, check.preview, models)


def _rehearse(context: SyncContext, catalog: Catalog, migration: Migration) -> tuple[Rehearsal, list[UnreadStatement]]:
    dialect = dialect_of(context)
    types = {c.native.lower(): (c.type, c.native, c.note) for t in catalog.tables for c in t.columns if c.note}

    def declared(text: str) -> tuple[object, str, str]:
        """Return the type of a declaration; types of the database's own are as in other columns of them."""
        return types.get(text.lower()) or declared_type(dialect, text)

    rules = Rules.of(dialect, context.source.default_schema, declared)  # type: ignore[arg-type]
    rehearsal = Rehearsal.of(catalog, rules)
    unread = []
    for number, step in enumerate(migration.steps):
        try:
            rehearsal.run(number, step.edits)
        except SchemaError as error:
            unread.append(UnreadStatement(step.at, error.message))
    return rehearsal, unread


def _plan(context: SyncContext, detection: DetectionResult) -> Plan:
    """Plan as `make_plan` does, against the destination as it was left."""
    after = assign(accept(detection.decisions, detection.accepted, detection.source), context.naming)
    after = record_extra(context, after, detection)
    existing = context.store.schemas.latest(context.name, "destination") or desired(detection.accepted, context.naming)
    capabilities, target = context.destination.capabilities, desired(after, context.naming)
    return plan(
        detection.decisions, detection.accepted, after, existing, target, capabilities, prefix=context.naming.prefix
    )


def _review(context: SyncContext, decision: Decision, id: str) -> Review:
    """Return the change as if it were recorded, so that it can be looked at like one."""
    change = decision.change
    return Review(
        id,
        context.name,
        key(change),
        change.kind,
        table_of(change) or ("", ""),
        column_of(change),
        describe(change),
        {},
        decision.action,
        decision.rule,
        decision.why,
        "open",
        "",
        datetime.fromtimestamp(0, UTC),
    )


def _consequence(
    context: SyncContext,
    decision: Decision,
    id: str,
    rehearsal: Rehearsal,
    migration: Migration,
    seen: Discovery,
    after: Plan,
) -> Consequence:
    change = decision.change
    steps = [migration.steps[n] for n in _statements_of(rehearsal, change)]
    risks = hazards(change, context.destination.capabilities, removed=decision.modifiers.removed)
    return Consequence(
        id,
        tuple(s.at for s in steps),
        steps[-1].text if steps else "",
        describe(change),
        decision,
        worst(risks),
        risks,
        decision.needs_review,
        _backfill(context, decision, seen, after),
    )


def _statements_of(rehearsal: Rehearsal, change: Change) -> list[int]:
    """Return the numbers of the statements that lead to a change: about its column or key, else about its table."""
    names = {r for r in (table_of(change), _ref_before(change)) if r}
    schema = getattr(change, "name", "")
    touching = [t for t in rehearsal.touches if names & t.tables or any(ref[0] == schema for ref in t.tables)]
    columns = {column_of(change), getattr(getattr(change, "before", None), "name", "")} - {""}
    if family(change) == "column" and columns:
        exact = [t for t in touching if t.columns is not None and columns & t.columns]
    elif family(change) == "key":
        exact = [t for t in touching if t.key]
    else:
        exact = [t for t in touching if t.columns is None]
    return sorted({t.statement for t in exact or touching})


def _ref_before(change: Change) -> Ref | None:
    return change.before.ref if isinstance(change, TableRenamed | TableRemoved) else None


def _backfill(context: SyncContext, decision: Decision, seen: Discovery, after: Plan) -> ReadAgain | None:
    places = TableRenames.of(after.decisions)
    ref, was = places.after(decision.change), places.before(decision.change)
    table, source = after.after.get(ref), table_of(decision.change)
    if not decision.applied or table is None or source is None or was in after.refused:
        return None
    accepted = context.store.accepted.catalog(context.name).get(was)
    chosen = backfill_of(context, decision, accepted, after, places)
    stats = seen.stats.get(accepted.ref if accepted else source)
    if chosen is None or chosen[0] == "since" or stats is None or not stats.rows:
        return None
    whole = chosen[0] == "table" or bool(why_whole(context, table, chosen[1]))
    size = estimate_new(table, () if whole else (chosen[1],), stats.rows, stats.bytes)
    return ReadAgain(ref, mode_name(table, context.settings(table)) if whole else MODE, size)


def _with_doubts(
    consequences: Sequence[Consequence], then: DetectionResult, renames: Sequence[UnreadStatement]
) -> Iterator[Consequence]:
    """Yield both halves of a rename without ids wait for a person, whatever was decided about them."""
    suspected = {
        key(half) for proposal in then.inferred_renames.proposals for half in (proposal.removed, proposal.added)
    }
    places = {r.at for r in renames}
    for consequence in consequences:
        change = consequence.decision.change
        half = change.kind in ("column.removed", "column.added", "table.removed", "table.added")
        doubted = half and (key(change) in suspected or bool(places & set(consequence.at)))
        yield replace(consequence, waits=True) if doubted else consequence


def _renames(context: SyncContext, catalog: Catalog, migration: Migration) -> Iterator[UnreadStatement]:
    """Yield renames for which the source gives no ids: they are detected as a removal and an addition."""
    ids = {t.ref: (bool(t.id), any(c.id for c in t.columns)) for t in catalog.tables}
    has_ids = {name.casefold(): flags for (_, name), flags in ids.items()}
    for step, edit in ((s, e) for s in migration.steps for e in s.edits):
        if isinstance(edit, edits.RenameColumn | edits.RedefineColumn):
            to = edit.to if isinstance(edit, edits.RenameColumn) else edit.column.name
            if to.casefold() != edit.name.casefold() and not has_ids.get(edit.table[-1].casefold(), (True, True))[1]:
                yield UnreadStatement(step.at, _unseen(context, f"column {edit.name}", f"column {to}"))
        elif isinstance(edit, edits.RenameTable) and not has_ids.get(edit.table[-1].casefold(), (True, True))[0]:
            yield UnreadStatement(step.at, _unseen(context, f"table {edit.table[-1]}", f"table {edit.name}"))


def _unseen(context: SyncContext, old: str, new: str) -> str:
    return (
        f"{context.source.kind} gives no ids for the rename of {old} to {new}: it will be seen as a removal and an "
        "addition, and proposed as a rename (`instep changes map OLD NEW`)"
    )
