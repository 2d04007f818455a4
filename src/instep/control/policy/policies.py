"""The policy of a connection: shown, explained for one change, tested on sample changes. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from instep.control.policy.sample_changes import OF_COLUMN, question, sample
from instep.control.policy.sample_changes import PolicyQuestion as Sample
from instep.control.policy.simulation import DecisionOutcome, SimulatedDecision, Simulation
from instep.errors import SchemaError
from instep.model import Review
from instep.operations.values import EXISTING, ReviewStatus
from instep.project.files.imported import imported_keys
from instep.project.files.policy_files import SampleCase, read_config
from instep.project.project import Project
from instep.project.text.tree import Path as Place
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import String
from instep.schema.changes.describe import (
    Change,
    ColumnRemoved,
    CursorRemoved,
    KeyRemoved,
    change_from_dict,
    change_to_dict,
    column_of,
    describe,
    table_of,
)
from instep.schema.policy.new_objects import object_of
from instep.schema.policy.policy import (
    Decision,
    Explicit,
    Modifiers,
    Policy,
    Rule,
    RuleEvaluation,
    Trace,
    decide,
    trace,
)
from instep.schema.policy.presets import KINDS, choice, effect_of
from instep.schema.selection.selection import column_is_on, is_on
from instep.store.store import Store
from instep.suggest import did_you_mean


def place_of(project: Project, connection: str, evaluation: RuleEvaluation) -> str:
    """Return where the rule or preset stands, as `instep.yml:<line>`; empty for a default and for a person's answer. Of
    an option that is not written, the line around it."""
    base: Place = project.policy_place(connection)
    if evaluation.rule and evaluation.rule.option:
        unsaid = "" if evaluation.rule.origin in project.tree.lines else " (default)"
        return f"{project.file.name}:{project.tree.line(evaluation.rule.origin)}{unsaid}"
    if evaluation.level == "override":
        base = ("connections", connection, "tables", evaluation.match)
    path = (*base, "rules", evaluation.number - 1) if evaluation.rule else (*base, "preset")
    if not evaluation.rule and evaluation.level != "override" and base[0] == "connections":
        path = base
    return f"{project.file.name}:{project.tree.line(path)}" if path in project.tree.lines else ""


@dataclass(frozen=True)
class RuleShown:
    """A rule with its 1-based number and where it stands."""

    number: int
    rule: Rule
    where: str


@dataclass(frozen=True)
class KindShown:
    """Decision of the preset alone on one kind of change."""

    kind: str
    action: str
    effect: str
    modifiers: Mapping[str, Any]


@dataclass(frozen=True)
class PolicyShown:
    """A connection's policy."""

    connection: str
    policy: Policy
    tags: tuple[str, ...]
    preset_where: str
    rules: tuple[RuleShown, ...]
    overrides: Mapping[str, tuple[RuleShown, ...]]
    """The pattern of each with its preset, rules and modifiers."""
    modifiers: Modifiers
    kinds: tuple[KindShown, ...]

    def document(self) -> dict[str, Any]:
        """Return the record as JSON has it."""
        overrides = [
            {"match": o.match, "preset": o.preset, "modifiers": o.modifiers, "rules": _rules(self.overrides[o.match])}
            for o in self.policy.overrides
        ]
        return {
            "connection": self.connection,
            "policy": self.policy.name,
            "preset": self.policy.preset,
            "where": self.preset_where,
            "tags": self.tags,
            "modifiers": self.policy.modifiers,
            "rules": _rules(self.rules),
            "overrides": overrides,
            "kinds": [asdict(k) for k in self.kinds],
        }


def _rules(rules: tuple[RuleShown, ...]) -> list[dict[str, Any]]:
    return [{"number": r.number, "where": r.where, **asdict(r.rule), "text": str(r.rule)} for r in rules]


def shown(project: Project, connection: str) -> PolicyShown:
    """Return what stands for a connection. ProjectError for an unknown one."""
    policy = project.policy(connection)

    def rules(rules: tuple[Rule, ...], evaluation: RuleEvaluation) -> tuple[RuleShown, ...]:
        evaluations = (evaluation._replace(number=n, rule=r) for n, r in enumerate(rules, 1))
        return tuple(
            RuleShown(v.number, r, place_of(project, connection, v)) for v, r in zip(evaluations, rules, strict=True)
        )

    return PolicyShown(
        connection,
        policy,
        tuple(project.connection(connection).tags),
        place_of(project, connection, RuleEvaluation("", "preset")),
        rules(policy.rules, RuleEvaluation("", "policy")),
        {o.match: rules(o.rules, RuleEvaluation("", "override", o.match)) for o in policy.overrides},
        Modifiers().with_changes(policy.modifiers),
        tuple(_kind(kind, policy) for kind in KINDS),
    )


def _kind(kind: str, policy: Policy) -> KindShown:
    cell = choice(kind, policy.preset)
    modifiers = {name: policy.modifiers.get(name, value) for name, value in cell.modifiers.items()}
    return KindShown(kind, cell.action, cell.effect or effect_of(kind, cell.action), modifiers)


@dataclass(frozen=True)
class Explanation:
    """Explanation of a decision. `places` is parallel to `trace.asked`; `review` is the recorded change, if this is
    one; `notes` say what happens beside the policy."""

    connection: str
    change: Change
    trace: Trace
    places: tuple[str, ...]
    review: Review | None
    notes: tuple[str, ...]

    @property
    def decision(self) -> Decision:
        return self.trace.decision


def explain(
    project: Project, store: Store, connection: str, path: str, kind: str, before: str = "", after: str = ""
) -> Explanation:
    """Return what is decided about such a change of `path` (`schema.table` or `schema.table.column`). Without types it
    is the recorded change of that kind, if one stands, with the answer that a person gave. InstepError if it is
    unclear."""
    accepted = store.accepted.catalog(connection)
    subject = question(path, kind, accepted, before, after)
    review = None if before or after else _existing_review(store, connection, subject)
    change = change_from_dict(review.change) if review else sample(subject, accepted)
    policy, tags = project.policy(connection), project.connection(connection).tags
    traced = trace(change, policy, explicit=_answer(review), tags=tags)
    places = tuple(place_of(project, connection, evaluation) for evaluation in traced.evaluations)
    notes = (
        *_left_out(project, store, connection, change, accepted),
        *_side_effects(change, traced.decision, policy, tags, accepted),
    )
    return Explanation(connection, change, traced, places, review, notes)


def _existing_review(store: Store, connection: str, sample: Sample) -> Review | None:
    path = ".".join(filter(None, (sample.table, sample.column)))
    for review in store.reviews.find(connection, EXISTING):
        if review.kind == sample.kind and ".".join(filter(None, (*review.table, review.column))) == path:
            return review
    return None


def _answer(review: Review | None) -> Explicit | None:
    match review.status if review else None:
        case "approved":
            return "approved"
        case "rejected":
            return "rejected"
    return None


def _left_out(project: Project, store: Store, connection: str, change: Change, accepted: Catalog) -> Iterator[str]:
    """Yield why a change is not compared: its object is not selected, or its table is unknown, which may be a typo."""
    place = object_of(change)
    if any((*s.ref, s.column) == place for s in store.switches.of(connection) if s.listed_off and not s.enabled):
        yield "it was deselected when it was found, and stays so until it is selected"
    ref = table_of(change)
    if ref is None:
        return
    selection, known = project.selection(connection), accepted.get(ref)
    table = known or Table(*ref, ())
    if known is None and not change.kind.startswith("table."):
        hint = did_you_mean(table.path, (t.path for t in accepted.tables), form="; did you mean {}?")
        yield f"{table.path} is not an accepted table of {connection}: answered for a table of that name{hint}"
    on, why = is_on(selection, table)
    if not on:
        yield f"{table.path} is not read ({why}): its changes are not looked at"
    if on and change.kind in OF_COLUMN:
        column = table.by_name.get(column_of(change)) or Column(column_of(change), String())
        read, why = column_is_on(selection, table, column)
        if not read:
            yield f"{table.path}.{column.name} is not read ({why}): its changes are not looked at"


def _side_effects(
    change: Change, decision: Decision, policy: Policy, tags: tuple[str, ...], accepted: Catalog
) -> Iterator[str]:
    """Yield what comes on top of the policy."""
    if change.kind.endswith(".removed") and decision.applied and not change.kind.startswith(("key", "cursor")):
        yield (
            "applied once two detections agree that it is gone (one where the catalog proves it); "
            "when much goes at once, the connection pauses instead"
        )
    if change.kind == "table.replaced":
        yield "with another primary key it is decided as key.changed"
    for other in _of_key(change, accepted):
        first = decide(other, policy, tags=tags)
        more = "" if first.applied else "; the removal waits for it"
        yield f"it comes with {other.kind}, which is decided as {first.action} by {first.rule}{more}"


def _of_key(change: Change, accepted: Catalog) -> Iterator[Change]:
    table = accepted.get(change.table) if isinstance(change, ColumnRemoved) else None
    if table is None or not isinstance(change, ColumnRemoved):
        return
    if change.before.name in table.key:
        yield KeyRemoved(table.ref, table.key)
    if change.before.name == table.cursor:
        yield CursorRemoved(table.ref, table.cursor)


@dataclass(frozen=True)
class EvaluatedCase:
    """A case with what was decided."""

    sample: Sample
    trace: Trace
    wrong: tuple[str, ...]
    """Differences from what is expected, empty if there are none."""


def run_cases(project: Project, connection: str, cases: Sequence[SampleCase]) -> list[EvaluatedCase | str]:
    """Decide every case; of one that can be no such change, why."""
    policy, tags = project.policy(connection), project.connection(connection).tags
    return [_run(case, policy, tags) for case in cases]


def _run(case: SampleCase, policy: Policy, tags: tuple[str, ...]) -> EvaluatedCase | str:
    case_sample = Sample(case.change, case.table, case.column, case.before, case.after)
    try:
        change = sample(case_sample)
    except SchemaError as error:
        return f"{error.message}; {error.hint}".strip("; ")
    traced = trace(change, policy, tags=tags if case.tags is None else case.tags)
    return EvaluatedCase(case_sample, traced, tuple(_wrong(case, traced.decision)))


def _wrong(case: SampleCase, decision: Decision) -> Iterator[str]:
    if decision.action != case.expect:
        yield f"expected {case.expect}, decided {decision.action}"
    if case.effect is not None and decision.effect != case.effect:
        yield f"expected effect {case.effect or 'none'}, decided {decision.effect or 'none'}"
    if case.rule and decision.rule != case.rule and not decision.rule.startswith(f"{case.rule} of "):
        yield f"expected {case.rule}, decided by {decision.rule}"
    for name, value in case.modifiers().items():
        if (given := getattr(decision.modifiers, name)) != value:
            yield f"expected {name}: {value}, decided {name}: {given}"


@dataclass(frozen=True)
class TakenOver:
    """Keys of a connection, also as the text of a project file, and what is not as in the document."""

    keys: Mapping[str, Any]
    text: str
    notes: tuple[str, ...]


def take_over(project: Project, store: Store, connection: str, file: Path) -> TakenOver:
    """Return a connector's schema config as keys of the connection. ProjectError if the file is wrong."""
    import yaml

    seen = store.discoveries.get(connection)
    tables = (*(seen.catalog.tables if seen else ()), *store.accepted.catalog(connection).tables)
    keys = imported_keys(read_config(file), {t.path: t.key for t in tables})
    given = project.connection(connection).model_fields_set
    already = sorted(given & {*keys.keys, "policy", "detect_and_propagate_schema_changes"})
    if already:
        keys.notes.append(f"connection {connection} has {', '.join(already)} already: merge them yourself")
    text = yaml.safe_dump({"connections": {connection: keys.keys}}, sort_keys=False, allow_unicode=True)
    return TakenOver(keys.keys, text, tuple(keys.notes))


def explained(explanation: Explanation) -> dict[str, Any]:
    return {
        "connection": explanation.connection,
        "summary": describe(explanation.change),
        "change": change_to_dict(explanation.change),
        "recorded": explanation.review.id if explanation.review else None,
        **_trace(explanation.trace, explanation.places),
        "notes": list(explanation.notes),
    }


def _trace(trace: Trace, places: tuple[str, ...]) -> dict[str, Any]:
    decision = trace.decision
    return {
        "decision": {"action": decision.action, "effect": decision.effect, "rule": decision.rule, "why": decision.why},
        "modifiers": {n: {"value": v, "by": trace.origins[n]} for n, v in asdict(decision.modifiers).items()},
        "evaluations": [_evaluation_document(v, place) for v, place in zip(trace.evaluations, places, strict=True)],
    }


def _evaluation_document(evaluation: RuleEvaluation, place: str) -> dict[str, Any]:
    return {
        "name": evaluation.name,
        "level": evaluation.level,
        "where": place,
        "decided": not evaluation.misses,
        "rule": {**asdict(evaluation.rule), "text": str(evaluation.rule)} if evaluation.rule else None,
        "misses": [asdict(m) for m in evaluation.misses],
    }


def tested(result: EvaluatedCase | str) -> dict[str, Any]:
    """Return a case with what was decided; `problem` says why it can be no such change, which has nothing else then."""
    if isinstance(result, str):
        return {"problem": result}
    decision, evaluations = result.trace.decision, result.trace.evaluations
    return {
        **asdict(result.sample),
        "passed": not result.wrong,
        "wrong": list(result.wrong),
        "action": decision.action,
        "effect": decision.effect,
        "rule": decision.rule,
        "why": decision.why,
        "modifiers": asdict(decision.modifiers),
        "evaluations": [_evaluation_document(evaluation, "") for evaluation in evaluations],
    }


@dataclass(frozen=True)
class OutcomeCount:
    """The number of changes with an outcome."""

    outcome: str
    """The action that was or would be taken."""
    then: int
    """The number of changes as they were decided."""
    now: int
    """The number of changes under the other policy."""


@dataclass(frozen=True)
class OutcomeSummary:
    """The action that was or would be taken on one change."""

    outcome: str
    """The action with what matters of its modifiers."""
    action: str
    rule: str
    why: str

    @classmethod
    def of(cls, decision_outcome: DecisionOutcome) -> OutcomeSummary:
        """Return the summary of an outcome."""
        return cls(decision_outcome.text, decision_outcome.action, decision_outcome.rule, decision_outcome.why)


@dataclass(frozen=True)
class DifferentDecision:
    """A recorded change that would be decided otherwise."""

    id: str
    summary: str
    kind: str
    status: ReviewStatus
    first_seen: datetime
    then: OutcomeSummary
    now: OutcomeSummary

    @classmethod
    def of(cls, simulated: SimulatedDecision) -> DifferentDecision:
        """Return the record of a change that was simulated."""
        r, then, now = simulated.review, OutcomeSummary.of(simulated.then), OutcomeSummary.of(simulated.now)
        return cls(r.id, r.summary, r.kind, r.status, r.first_seen, then, now)


@dataclass(frozen=True)
class PolicySimulation:
    """Decisions of another policy on the recorded changes of a connection."""

    connection: str
    policy: str
    recorded: int
    counts: tuple[OutcomeCount, ...]
    """Most frequent first."""
    different: tuple[DifferentDecision, ...]
    """Oldest first."""
    unread: tuple[str, ...]
    """The ids of changes that this version cannot read."""

    @classmethod
    def of(cls, s: Simulation) -> PolicySimulation:
        """Return the record of a simulation."""
        counts = tuple(OutcomeCount(text, then, now) for text, (then, now) in s.counts.items())
        different = tuple(map(DifferentDecision.of, s.different))
        return cls(s.connection, s.policy.name, len(s.compared) + len(s.unread), counts, different, tuple(s.unread))
