"""Plans and applies schema changes without moving rows: what `plan` shows and `apply` does. No JVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from instep.errors import Blocked, ProjectError
from instep.model import Review
from instep.schema.catalog.catalog import Catalog
from instep.schema.planning.explain import Impact
from instep.schema.planning.plan import Plan, unnamed_drops
from instep.schema.selection.selection import is_on
from instep.sync.aliases import old_name_notes
from instep.sync.claim import claimed
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.detect import DetectionResult, detect_if_changed, record, waiting_ids
from instep.sync.detection.filters import planned_faults
from instep.sync.detection.four_eyes import check_second_person
from instep.sync.detection.pause import pause_and_resume, reconsider
from instep.sync.journal import plan_id
from instep.sync.schema_changes.answer import check_approvals
from instep.sync.schema_changes.apply import apply_plan, check, has_pending_changes, make_plan
from instep.sync.schema_changes.backfill_plan import waiting_notes
from instep.sync.schema_changes.declare_column_rename import resume_mappings
from instep.sync.schema_changes.selection_change import partial_columns
from instep.sync.schema_changes.undo import resume_undos
from instep.sync.table_mode import TableMode, choose


@dataclass(frozen=True)
class PlanPreview:
    """A plan with what people want to know beside it."""

    connection: str
    detection: DetectionResult
    reviews: Mapping[str, Review]
    plan: Plan
    impact: Mapping[Ref, Impact]
    choices: Mapping[Ref, TableMode]
    """Mode of each table that is read."""
    partial: tuple[str, ...] = ()
    """Notes on what new columns lack until a backfill, on backfills that wait, on tables that a sync refuses, or reads
    again because of their filter, and on settings without effect."""
    waiting: tuple[str, ...] = ()
    """Ids of the changes that wait for a person now."""
    old_names: tuple[str, ...] = ()
    """Notes on which old names stay readable, and which no longer do."""

    @property
    def missing(self) -> list[str]:
        """Errors of patterns of `include` that no table fits."""
        return list(self.detection.missing.values())

    @property
    def others(self) -> bool:
        """True if what is missing is not all that was asked for."""
        return self.detection.others

    @property
    def id(self) -> str:
        """The plan's id once it is applied."""
        return plan_id(self.connection, self.detection.version, self.plan)


def preview(context: SyncContext, *, count: bool = False, pauses: bool = False) -> PlanPreview:
    """Detect, decide and plan; record the reviews so that they can be answered. `count`: this detection may confirm
    removals. `pauses`: pause what policy pauses."""
    detection = detect_if_changed(context, count=count)
    reviews = record(context, detection, count=count)
    if pauses:
        pause_and_resume(context, detection, reviews)
    plan = make_plan(context, detection)
    choices, refused = _choices(context, plan.after, detection.accepted)
    impacts = {}
    for ref in {s.table for s in plan.steps}:
        state = context.destination.schema.state(ref)
        if state:
            impacts[ref] = Impact(state.rows, state.bytes, state.files)
    return PlanPreview(
        context.name,
        detection,
        reviews,
        plan,
        impacts,
        choices,
        (
            *plan.remarks,
            *refused,
            *(f"a sync will fail {'.'.join(ref)}: {why}" for ref, why in sorted(detection.broken.items())),
            *planned_faults(context, detection.discovery.catalog),
            *partial_columns(context, detection, plan.after),
            *waiting_notes(context, plan.after),
        ),
        waiting_ids(context, replace(detection, decisions=plan.decisions), reviews),
        old_name_notes(context, plan),
    )


def _choices(context: SyncContext, accepted: Catalog, before: Catalog) -> tuple[dict[Ref, TableMode], list[str]]:
    """Return how tables are synced, and of those whose settings do not fit why a sync refuses them."""
    modes, refused = {}, []
    for table in accepted.tables:
        if table.retained:
            continue
        try:
            modes[table.ref] = choose(table, context.settings(table), new=before.get(table.ref) is None)
        except ProjectError as error:
            if is_on(context.selection, table)[0]:
                refused.append(f"a sync will refuse {table.path}: {error.message} ({error.hint})")
    return modes, refused


def evolve(context: SyncContext, plan: Plan, allowed: tuple[str, ...] = (), *, id: str = "") -> int:
    """Apply a plan as one run and returns the accepted version. `id`: under which it was shown.

    Raises StalePlan if its base or what it applies has moved, Blocked if it drops what neither policy nor
    `allowed` names, or where a second person is needed.
    """
    drops = unnamed_drops(plan, allowed)
    if drops:
        names = ", ".join(s.object for s in drops)
        raise Blocked(f"the plan drops {names}", hint=f"name it: --allow-destructive '{drops[0].object}'")
    check_second_person(context, plan, context.store.reviews.existing(context.name))
    reconsider(context)
    with claimed(context, "apply") as run:
        resume_undos(replace(context, run=run), run)
        resume_mappings(replace(context, run=run), run)
        reviews = context.store.reviews.existing(context.name)
        check(context, plan, reviews)
        check_approvals(context, plan)
        version = apply_plan(replace(context, run=run), run, plan, reviews, id=id)
        if has_pending_changes(context, plan):
            record(context, detect_if_changed(context, count=False), count=False)
        return version
