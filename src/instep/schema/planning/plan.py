"""The plan: the steps that bring a destination to the accepted schema, first explained, then executed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import Any

from instep.errors import SchemaError, StalePlan
from instep.schema.catalog.catalog import Catalog, Column, Table, catalog_from_dict, catalog_to_dict, fingerprint
from instep.schema.catalog.globs import fits_glob
from instep.schema.catalog.types import Boolean, Json, String, TimestampTz
from instep.schema.changes.describe import (
    Change,
    ColumnRemoved,
    TableRemoved,
    TableRenamed,
    change_from_dict,
    change_to_dict,
)
from instep.schema.planning.accept import lineage
from instep.schema.planning.arrange import PlanInputs, arrange
from instep.schema.planning.hazard import Capabilities
from instep.schema.planning.naming import Naming, destination_ref
from instep.schema.planning.step import RecordIdentity, Ref, RewriteColumn, Step, step_from_dict, step_to_dict
from instep.schema.policy.policy import Decision, Modifiers

__all__ = [
    "Plan",
    "RecordIdentity",
    "RewriteColumn",
    "Step",
    "StepGroup",
    "check_base",
    "desired",
    "plan",
    "plan_from_dict",
    "plan_to_dict",
    "unnamed_drops",
]
FORMAT_VERSION = 1


@dataclass(frozen=True)
class StepGroup:
    """Steps of one table that belong into one commit."""

    ref: Ref
    """Its name when they start."""
    steps: tuple[Step, ...]
    after: Table | None
    """The table that they lead to; None for a drop."""


@dataclass(frozen=True)
class Plan:
    """`base_accepted` and `base_destination` are the fingerprints that it starts from. `after` is the accepted catalog
    that it leads to, `target` the destination's tables then. `notes` are facts found on the way (drift); `refused`
    names accepted tables whose changes the destination cannot take and why: they stay as accepted before. `remarks`:
    what settings ask for and is left out, in sentences for people; no part of what the plan does."""

    base_accepted: str
    base_destination: str
    decisions: tuple[Decision, ...]
    steps: tuple[Step, ...]
    after: Catalog
    target: Catalog
    notes: tuple[Change, ...] = ()
    refused: Mapping[Ref, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = field(default=(), compare=False)

    def groups(self) -> tuple[StepGroup, ...]:
        """Return the steps in the order of their execution; each drop and rename of a table is a group of its own."""
        out = []
        for (ref, _), steps in groupby(self.steps, key=lambda s: (s.table, s.id if _alone(s) else "")):
            group = tuple(steps)
            out.append(StepGroup(ref, group, self._after(group)))
        return tuple(out)

    def _after(self, group: tuple[Step, ...]) -> Table | None:
        change = group[-1].change
        if isinstance(change, TableRemoved):
            return None
        if isinstance(change, TableRenamed):
            return change.after
        return self.target.get(group[-1].table)


def _alone(step: Step) -> bool:
    return isinstance(step.change, TableRemoved | TableRenamed)


def desired(accepted: Catalog, naming: Naming) -> Catalog:
    """Return the destination's tables for an accepted catalog with names assigned.

    A column has its destination name, `id` the source id and `alias` the source name; all are nullable. System
    columns come last and have neither id nor alias.
    """
    return Catalog.of(_desired(t, naming) for t in accepted.tables)


def _desired(table: Table, naming: Naming) -> Table:
    namespace, name = destination_ref(table, naming)
    columns = tuple(
        replace(c, name=c.alias or c.name, alias=c.name, nullable=True, default=None) for c in table.columns
    )
    columns += _system(table, naming.prefix)
    return replace(table, schema=namespace, name=name, alias=table.path, cursor=None, extra=None, columns=columns)


def _system(table: Table, prefix: str) -> tuple[Column, ...]:
    column = Column(f"{prefix}deleted", Boolean()) if table.key else Column(f"{prefix}id", String())
    extra = (Column(f"{prefix}extra", Json()),) if table.extra is not None else ()
    synced, meta = Column(f"{prefix}synced", TimestampTz()), Column(f"{prefix}meta", Json())
    return synced, column, meta, *extra, *_interval(table, prefix)


def _interval(table: Table, prefix: str) -> tuple[Column, ...]:
    """Return the columns of a version. Its begin is a part of the key there: keys alone come again."""
    if not table.history or not table.key:
        return ()
    begin = Column(f"{prefix}valid_from", TimestampTz(), key=len(table.key) + 1)
    return begin, Column(f"{prefix}valid_to", TimestampTz()), Column(f"{prefix}current", Boolean())


def plan(
    decisions: Sequence[Decision],
    accepted_before: Catalog,
    accepted_after: Catalog,
    destination: Catalog,
    target: Catalog,
    capabilities: Capabilities,
    *,
    prefix: str = "_instep_",
    foreign: Mapping[Ref, str] | None = None,
) -> Plan:
    """Return the steps from what the destination has (`inspect`) to its target (`desired`).

    Tables and columns are paired by recorded source id, then by the recorded source name (followed through the
    decisions), then by name. A column at the destination that we do not know is drift: noted, never dropped. A table
    whose changes are illegal is refused with the reason and left out; the others continue. So is one in whose place a
    table stands that is not ours (`foreign`: by name, and why).
    """
    inputs = PlanInputs(
        accepted_before,
        accepted_after,
        destination,
        target,
        capabilities,
        prefix,
        lineage(decisions, accepted_before),
        _consents(decisions),
        foreign or {},
    )
    arranged = arrange(inputs)
    return Plan(
        base_accepted=fingerprint(accepted_before),
        base_destination=fingerprint(destination),
        decisions=tuple(decisions),
        steps=tuple(arranged.steps),
        after=_put_back(inputs, arranged.refused),
        target=Catalog.of(arranged.after),
        notes=tuple(arranged.notes),
        refused=arranged.refused,
    )


def _put_back(inputs: PlanInputs, refused: Collection[Ref]) -> Catalog:
    """Return the catalog with refused tables as they were accepted before; new ones are left out."""
    after = inputs.accepted
    for ref in refused:
        after = after.drop(inputs.moves.get((ref, ""), (ref, ""))[0])
    for ref in refused:
        if table := inputs.before.get(ref):
            after = after.put(table)
    return after


def _consents(decisions: Sequence[Decision]) -> dict[tuple[Ref, str], str]:
    """Return the rule that permits the drop, by accepted (table, column) before it. A column's change names its
    table as it is called after renames."""
    old = {d.change.after.ref: d.change.before.ref for d in decisions if isinstance(d.change, TableRenamed)}
    out: dict[tuple[Ref, str], str] = {}
    for d in decisions:
        if not d.applied or d.modifiers.removed != "drop":
            continue
        if isinstance(d.change, TableRemoved):
            out[d.change.before.ref, ""] = d.rule
        elif isinstance(d.change, ColumnRemoved):
            out[old.get(d.change.table, d.change.table), d.change.before.name] = d.rule
    return out


def check_base(plan: Plan, accepted: Catalog, destination: Catalog) -> None:
    """Raise StalePlan if the accepted catalog or the destination is not what the plan was made from."""
    bases = (("accepted schema", plan.base_accepted, accepted), ("destination", plan.base_destination, destination))
    for what, base, now in bases:
        if fingerprint(now) != base:
            raise StalePlan(
                f"the {what} has changed since the plan was made", hint="plan again and review the new plan"
            )


def unnamed_drops(plan: Plan, allowed: Iterable[str] = ()) -> tuple[Step, ...]:
    """Return destructive steps that neither a policy's `removed: drop` nor one of the patterns allows: a person has
    to name their objects first."""
    patterns = tuple(allowed)
    return tuple(
        s for s in plan.steps if s.destructive and not s.consent and not any(fits_glob(s.object, p) for p in patterns)
    )


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """Return a JSON-ready dict; `format_version` grows when its meaning changes."""
    return {
        "format_version": FORMAT_VERSION,
        "base_accepted": plan.base_accepted,
        "base_destination": plan.base_destination,
        "decisions": [decision_to_dict(d) for d in plan.decisions],
        "steps": [step_to_dict(s) for s in plan.steps],
        "after": catalog_to_dict(plan.after),
        "target": catalog_to_dict(plan.target),
        "notes": [change_to_dict(c) for c in plan.notes],
        "refused": [{"table": list(ref), "why": why} for ref, why in sorted(plan.refused.items())],
    }


def plan_from_dict(data: Mapping[str, Any]) -> Plan:
    """Return the plan that `plan_to_dict` was given; raises SchemaError for another format version or a damaged one."""
    version = data.get("format_version")
    if version != FORMAT_VERSION:
        raise SchemaError(f"the plan has format version {version}, not {FORMAT_VERSION}", hint="plan again")
    try:
        return Plan(
            base_accepted=data["base_accepted"],
            base_destination=data["base_destination"],
            decisions=tuple(decision_from_dict(d) for d in data["decisions"]),
            steps=tuple(step_from_dict(s) for s in data["steps"]),
            after=catalog_from_dict(data["after"]),
            target=catalog_from_dict(data["target"]),
            notes=tuple(change_from_dict(c) for c in data["notes"]),
            refused={(r["table"][0], r["table"][1]): r["why"] for r in data["refused"]},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SchemaError(f"the plan is damaged: {type(error).__name__} {error}", hint="plan again") from None


def decision_to_dict(decision: Decision) -> dict[str, Any]:
    return {
        **{f: getattr(decision, f) for f in _FIELDS},
        "change": change_to_dict(decision.change),
        "modifiers": asdict(decision.modifiers),
    }


def decision_from_dict(data: Mapping[str, Any]) -> Decision:
    modifiers = Modifiers().with_changes(data["modifiers"])
    return Decision(change=change_from_dict(data["change"]), modifiers=modifiers, **{f: data[f] for f in _FIELDS})


_FIELDS = ("action", "rule", "why", "effect")
