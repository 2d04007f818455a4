"""A plan with all that is told of it, as a command prints it, as a plan file has it, and as a job keeps it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.model import Review
    from instep.sync.schema_changes.evolve import PlanPreview


DdlLine = tuple[str, str]


def ddl_of(app: App, connection: str, found: PlanPreview) -> list[str]:
    """The statements of a plan; none for a destination without SQL."""
    from instep.destinations.base import RendersDdl

    destination = app.destination(app.project.destination_of(connection))
    return list(destination.ddl(found.plan.steps)) if isinstance(destination, RendersDdl) else []


def ddl_lines(statements: Sequence[str]) -> Iterator[DdlLine]:
    """The statements as they can be pasted."""
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

    from instep.sync.operations.key_report import key_report

    context = app.sync_context(connection)
    return [line for r in keys if (found := key_report(context, r)) is not None for line in found.lines]


Line = tuple[str, str]
_TOLD = ("connection", "id", "plan", "notes", "missing", "others", "keys", "costs", "ddl")


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

    @property
    def connection(self) -> str:
        return str(self.document["connection"])

    @property
    def job(self) -> str:
        return str(self.document.get("job", ""))

    def text(self, *, ddl: bool = False) -> Iterator[Line]:
        """All of it for people."""
        from instep.plans.costs import cost_lines

        yield from self.lines
        if ddl:
            yield from ddl_lines(self.document["ddl"])
        if self.document.get("costs"):
            yield from cost_lines(self.document["costs"])
        yield from ((line, "") for line in self.document.get("keys", ()))
        yield from self.downstream

    def to_dict(self) -> dict[str, Any]:
        """The result of a job: lines and their styles apart, for clients that show no styles."""
        shown = {"lines": [text for text, _ in self.lines], "styles": [style for _, style in self.lines]}
        return {**self.document, **shown, "downstream": [*map(list, self.downstream)], **self._standing()}

    def _standing(self) -> dict[str, Any]:
        return {"pending": self.pending, "unaccepted": list(self.unaccepted), "begun": self.begun}


def of_result(result: Mapping[str, Any], job: str) -> Planned:
    """Return the plan that `to_dict` has written into the result of this job."""
    document = {name: result[name] for name in _TOLD if name in result}
    lines = tuple(zip(result["lines"], result["styles"], strict=True))
    downstream = tuple((str(text), str(style)) for text, style in result["downstream"])
    standing = bool(result["pending"]), tuple(result["unaccepted"]), bool(result["begun"])
    return Planned({**document, "job": job}, lines, downstream, *standing)


def planned(
    app: App, connection: str, found: PlanPreview, *, sample: int | None, every: bool = False, keys: bool = True
) -> Planned:
    """Return a plan with all that people read of it.

    `sample`: also its costs, with type changes tried on so many rows; None: neither costs nor keys. `every`: how each
    table is synced, not only new ones. `keys`: keys of rows may be shown.
    """
    from instep.plans.costs import costs
    from instep.plans.downstream import downstream_lines
    from instep.plans.text import plan_lines
    from instep.schema.planning.plan import plan_to_dict

    document: dict[str, Any] = {"connection": connection, "id": found.id, "plan": plan_to_dict(found.plan)}
    document["notes"] = [*found.partial, *found.old_names, *found.detection.notes]
    document |= {"missing": found.missing, "others": found.others}
    downstream = downstream_lines(app, connection, found)
    if sample is not None:
        waiting = [r for r in found.reviews.values() if r.id in found.waiting]
        spent, sql = costs(app, connection, found, sample, keys=keys), ddl_of(app, connection, found)
        document |= {"keys": key_lines(app, connection, waiting), "costs": spent, "ddl": sql}
    # What was rejected, snoozed or is listed as switched off is no reason to call anybody.
    decided = any(d.applied or d.effect == "waiting" for d in found.detection.decisions)
    pending, lines = bool(found.waiting) or decided, tuple(plan_lines(found, every=every))
    return Planned(document, lines, downstream, pending, _unaccepted(found), bool(found.detection.version))


def _unaccepted(found: PlanPreview) -> tuple[str, ...]:
    from instep.schema.changes.describe import describe

    if not found.detection.version:
        return ()
    new = (d for d in found.detection.decisions if d.applied or d.needs_review or d.effect == "waiting")
    return tuple(f"not accepted yet: {describe(d.change)}" for d in new)
