"""Publish a previewed change: what was tried on the copy is done to the tables, or refused.

A copy's commits cannot become the table's own: the fence, the cursor and the origin of each column stand in the table's
commits, and the store has to accept the schema that they lead to. So the steps are planned once more on the tables, for
this change alone, and carried out only if they and the tables are those of the preview.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from instep.control import reviews
from instep.crash import crashpoint
from instep.errors import Blocked, StalePlan
from instep.operations.decide.publish_change import PublishChangeRequest
from instep.operations.spec import DirectWork
from instep.operations.values import EXISTING
from instep.plans.preview_change import Trial, check_previewed, load_new, rename_of
from instep.schema.changes.describe import key
from instep.schema.policy.similarity import PROPOSAL
from instep.sync.detection.four_eyes import RULE as FOUR_EYES
from instep.sync.schema_changes.answer import plan_alone
from instep.sync.schema_changes.evolve import evolve

if TYPE_CHECKING:
    from instep.model import Review
    from instep.schema.planning.plan import Plan
    from instep.sync.context import SyncContext


@dataclass(frozen=True)
class PublishedChange:
    """A change that was published: the accepted version, the plan that was applied, and its steps. `notes`: what was
    not read of its new values, and why."""

    change: str
    summary: str
    version: int
    plan: str
    steps: tuple[str, ...]
    notes: tuple[str, ...] = ()


class PublishChange(DirectWork):
    """The work of the operation `publish_change`."""

    moves_rows = rewrites = makes_run = True

    def run(self, context: SyncContext, request: PublishChangeRequest) -> PublishedChange:
        """Publish the change. Raises StalePlan if it would not be what was previewed, Blocked where a second person or
        a consent is missing. One that was applied and has no values yet, because its process died, is given them."""
        change = context.store.reviews.get(request.change)
        check_previewed(context, change, (*EXISTING, "applied"))
        context = replace(context, progress=self.progress or context.progress)
        steps: tuple[str, ...] = ()
        if change.status != "applied":
            steps = self._apply(context, change, request)
            crashpoint("publish.applied")
        notes = load_new(context, change, self.progress or context.progress, self.engine)
        accepted, plans = context.store.accepted.latest(context.name), context.store.plans.history(context.name, 1)
        version, plan = accepted.version if accepted else 0, plans[0].id if plans else ""
        return PublishedChange(change.id, change.summary, version, plan, steps, notes)

    def _apply(self, context: SyncContext, change: Review, request: PublishChangeRequest) -> tuple[str, ...]:
        if change.rule == PROPOSAL:
            work, shown = rename_of(context, change)
            trial = Trial.of(context, change, shown.prepared.mapped.plan)
            _check_same(change, trial, request)
            work.execute(context, shown, request.allow)
            return tuple(step.text for step in trial.steps)
        plan = plan_alone(context, change)
        _check_applied(change, plan)
        trial = Trial.of(context, change, plan)
        _check_same(change, trial, request)
        if change.status != "approved":
            reviews.answer(context.store, [change], "approved", context.who)
        crashpoint("publish.approved")
        evolve(context, plan, tuple(request.allow))
        return tuple(step.text for step in trial.steps)


def _check_applied(change: Review, plan: Plan) -> None:
    """Raise Blocked if the change would stay out although it is approved, such as for its approver under four_eyes."""
    decision = next((d for d in plan.decisions if key(d.change) == change.key), None)
    if decision is not None and decision.action == "review":
        raise Blocked(
            f"change {change.id} cannot be published: {change.summary}: {decision.why}",
            hint="ask another person to publish it"
            if decision.rule == FOUR_EYES
            else f"see `instep plan {change.connection}`",
        )


def _check_same(change: Review, trial: Trial, request: PublishChangeRequest) -> None:
    if trial.fingerprint == request.fingerprint:
        return
    tables = ", ".join(sorted({".".join(step.table) for step in trial.steps})) or ".".join(filter(None, change.table))
    approved = ", or apply it as it is approved: `instep apply`" if change.status == "approved" else ""
    raise StalePlan(
        f"change {change.id} cannot be published: {tables} or the steps have changed since the preview",
        hint=f"preview it again: `instep preview {change.id}`{approved}",
    )
