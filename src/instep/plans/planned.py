"""A plan with its costs, impact and notes, in the form that commands print and plan files and jobs store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from instep.errors import InstepError
from instep.operations.everyday.apply import ApplyRequest
from instep.operations.spec import DirectWork

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.model import Job, Review
    from instep.operations.everyday.plan import PlanRequest
    from instep.sync.context import SyncContext
    from instep.sync.schema_changes.evolve import PlanPreview


DdlLine = tuple[str, str]


def ddl_of(app: App, connection: str, preview: PlanPreview) -> list[str]:
    """Return the statements of a plan; none for a destination without SQL."""

    destination = app.destination(app.project.destination_of(connection))
    return list(destination.schema.render_ddl(preview.plan.steps))


def ddl_lines(statements: Sequence[str]) -> Iterator[DdlLine]:
    """Yield the statements as they can be pasted."""
    if statements:
        yield "Equivalent SQL (for reference; instep executes the steps above)", "bold"
    for statement in statements:
        for line in statement.splitlines():
            yield f"  {line}", "dim" if line.startswith("--") else ""


def key_lines(app: App, connection: str, reviews: Sequence[Review]) -> list[str]:
    """Return lines on open changes of keys, with the commands that settle them; without any, nothing is read."""
    keys = [r for r in reviews if r.kind in ("key.changed", "key.removed") and r.status == "open"]
    if not keys:
        return []

    from instep.sync.operations.set_key import key_report

    context = app.sync_context(connection)
    return [line for r in keys if (report := key_report(context, r)) is not None for line in report.lines]


Line = tuple[str, str]
_SHOWN = ("connection", "id", "plan", "notes", "missing", "others", "keys", "costs", "ddl", "engine", "large")


@dataclass(frozen=True)
class Planned:
    """`document` is what a plan file has. `lines` (text, style) say it to people, `downstream` what it does to models;
    `pending`: something of it is for a person, or would be applied. `unaccepted`: what the accepted schema lacks; a
    connection that has not `begun` has accepted nothing, and lacks nothing. `job`: the one that has made it at a
    server."""

    document: Mapping[str, Any] = field(repr=False)
    lines: Sequence[Line] = ()
    downstream: Sequence[Line] = ()
    pending: bool = False
    unaccepted: Sequence[str] = ()
    begun: bool = False
    waiting: Sequence[str] = ()
    """The ids of the changes that wait for a decision."""
    drops: Sequence[str] = ()
    """Objects that `apply` has to allow by name."""

    @property
    def connection(self) -> str:
        return str(self.document["connection"])

    @property
    def job(self) -> str:
        return str(self.document.get("job", ""))

    def text(self, *, ddl: bool = False) -> Iterator[Line]:
        """Yield the plan for people."""
        from instep.plans.costs import cost_lines
        from instep.plans.paths import large_lines

        yield from self.lines
        yield from large_lines(self.document.get("large", ()))
        if ddl:
            yield from ddl_lines(self.document["ddl"])
        if self.document.get("costs"):
            yield from cost_lines(self.document["costs"])
        yield from ((line, "") for line in self.document.get("keys", ()))
        yield from self.downstream

    def to_dict(self) -> dict[str, Any]:
        """Return the result of a job: lines and their styles apart, for clients that show no styles."""
        shown = {"lines": [text for text, _ in self.lines], "styles": [style for _, style in self.lines]}
        return {**self.document, **shown, "downstream": [*map(list, self.downstream)], **self._facts()}

    def _facts(self) -> dict[str, Any]:
        facts = {"pending": self.pending, "unaccepted": list(self.unaccepted), "begun": self.begun}
        return {**facts, "waiting": list(self.waiting), "drops": list(self.drops)}

    def apply_request(self, allow: Sequence[str]) -> ApplyRequest:
        """Return the request to apply it exactly as it was shown."""
        return ApplyRequest(plan=self.job, allow=tuple(allow), document=self.document)

    @classmethod
    def of_job(cls, job: Job, decode: Callable[[Any, Mapping[str, Any]], Any]) -> Planned:
        """Return the plan that `to_dict` has written into the result of this job."""
        return _of_result({**job.result, "connection": job.connection}, job.id)


def _of_result(result: Mapping[str, Any], job: str) -> Planned:
    document = {name: result[name] for name in _SHOWN if name in result}
    lines = tuple(zip(result["lines"], result["styles"], strict=True))
    downstream = tuple((str(text), str(style)) for text, style in result["downstream"])
    facts = bool(result["pending"]), tuple(result["unaccepted"]), bool(result["begun"])
    open_ = tuple(result.get("waiting", ())), tuple(result.get("drops", ()))
    return Planned({**document, "job": job}, lines, downstream, *facts, *open_)


def planned(
    app: App, connection: str, preview: PlanPreview, *, sample: int | None, every: bool = False, keys: bool = True
) -> Planned:
    """Return a plan with all that people read of it.

    `sample`: also its costs, with type changes tried on so many rows; None: neither costs nor keys. `every`: how each
    table is synced, not only new ones. `keys`: keys of rows may be shown.
    """
    from instep.plans.costs import costs
    from instep.plans.downstream import downstream_lines
    from instep.plans.paths import large_work
    from instep.plans.text import plan_lines
    from instep.schema.planning.plan import plan_to_dict, unnamed_drops

    engine = app.engine_use()
    document: dict[str, Any] = {"connection": connection, "id": preview.id, "plan": plan_to_dict(preview.plan)}
    document["notes"] = [*preview.partial, *preview.old_names, *preview.detection.notes]
    document |= {
        "missing": preview.missing,
        "others": preview.others,
        "engine": {"name": engine.name, "where": engine.where},
    }
    document["large"] = large_work(app, connection, preview, engine, every=every)
    downstream = downstream_lines(app, connection, preview)
    if sample is not None:
        waiting = [r for r in preview.reviews.values() if r.id in preview.waiting]
        spent, sql = costs(app, connection, preview, sample, keys=keys), ddl_of(app, connection, preview)
        document |= {"keys": key_lines(app, connection, waiting), "costs": spent, "ddl": sql}
    # What was rejected, snoozed or is listed as switched off is no reason to call anybody.
    decided = any(d.applied or d.effect == "waiting" for d in preview.detection.decisions)
    pending, lines = bool(preview.waiting) or decided, tuple(plan_lines(preview, engine, every=every))
    drops = tuple(step.object for step in unnamed_drops(preview.plan))
    facts = pending, _unaccepted(preview), bool(preview.detection.version), tuple(preview.waiting), drops
    return Planned(document, lines, downstream, *facts)


def _unaccepted(preview: PlanPreview) -> tuple[str, ...]:
    from instep.schema.changes.describe import describe

    if not preview.detection.version:
        return ()
    new = (d for d in preview.detection.decisions if d.applied or d.needs_review or d.effect == "waiting")
    return tuple(f"not accepted yet: {describe(d.change)}" for d in new)


class MakePlan(DirectWork):
    """The work of the operation `plan`."""

    def run(self, context: SyncContext, request: PlanRequest) -> Planned:
        """Make a plan of the open changes; StalePlan for `current` if an approval no longer counts."""
        from instep.sync.schema_changes.answer import refuse_stale
        from instep.sync.schema_changes.evolve import preview

        previewed = preview(context)
        if request.current:
            refuse_stale(previewed.detection)
        sample, every = request.sample, request.all
        return planned(self.app, context.name, previewed, sample=sample, every=every, keys=self.at_project)

    def document(self, result: Planned) -> Mapping[str, Any]:
        """Return the plan as `Planned.of_job` reads it."""
        return result.to_dict()


@dataclass(frozen=True)
class ApplyReport:
    """The accepted version, and the id of the plan that was applied."""

    version: int
    id: str


class ApplyPlan(DirectWork):
    """The work of the operation `apply`."""

    makes_run = rewrites = True

    def run(self, context: SyncContext, request: ApplyRequest) -> ApplyReport:
        """Apply the plan that is given, or that a job has made."""
        from instep.schema.planning.plan import plan_from_dict
        from instep.sync.schema_changes.evolve import evolve

        context = replace(context, progress=self.progress or context.progress)
        document = request.document or _made_plan(self.app, context.name, request.plan)
        plan, id = plan_from_dict(document["plan"]), str(document.get("id", ""))
        version = evolve(context, plan, tuple(request.allow), id=id)
        return ApplyReport(version, context.store.plans.history(context.name, 1)[0].id)


def _made_plan(app: App, connection: str, job: str) -> Mapping[str, Any]:
    """Return the result of a job that has made a plan for this connection; InstepError for any other."""
    planning = app.store.jobs.get(job)
    if (planning.connection, planning.kind, planning.status) != (connection, "plan", "done"):
        raise InstepError(f"job {job} has made no plan for connection {connection}", hint="make a plan first")
    return planning.result
