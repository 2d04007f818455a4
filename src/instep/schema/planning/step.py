"""One step of a plan: an edit of one destination table, with what is dangerous about it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from instep.schema.catalog.catalog import Column, column_from_dict, column_to_dict
from instep.schema.catalog.layout import TableLayout, describe_layout, layout_from_dict, layout_to_dict
from instep.schema.changes.describe import (
    Change,
    ColumnRemoved,
    ColumnWidened,
    TableRemoved,
    change_from_dict,
    change_to_dict,
    describe,
)
from instep.schema.planning.hazard import Hazard

Ref = tuple[str, str]


@dataclass(frozen=True)
class RewriteColumn:
    """A type change that the format cannot make in place: new column, cast backfill, swap, in one commit. `before`
    and `after` have the same name."""

    kind: ClassVar[str] = "column.rewritten"
    table: Ref
    before: Column
    after: Column


@dataclass(frozen=True)
class RecordIdentity:
    """The column stays; the source id and name recorded beside it become those of `after`. Nothing else is asked
    for: a destination records the ids and names of the table that its steps lead to anyway."""

    kind: ClassVar[str] = "column.recorded"
    table: Ref
    before: Column
    after: Column


@dataclass(frozen=True)
class UndropColumn:
    """A dropped column comes back with the values that its rows had: `before` is what it was, `after` what it is."""

    kind: ClassVar[str] = "column.undropped"
    table: Ref
    before: Column
    after: Column


@dataclass(frozen=True)
class SetLayout:
    """Properties, sort order and partitions of a table become what the settings say; no row is touched."""

    kind: ClassVar[str] = "table.layout"
    table: Ref
    before: TableLayout
    after: TableLayout


Own = RewriteColumn | RecordIdentity | UndropColumn
StepChange = Change | Own | SetLayout
_OWN: dict[str, type[Own]] = {c.kind: c for c in (RewriteColumn, RecordIdentity, UndropColumn)}


@dataclass(frozen=True)
class Step:
    """A step of a plan at the destination."""

    id: str
    """Depends on the content only."""
    table: Ref
    """The destination table (namespace, name) as it is called when the step starts."""
    change: StepChange
    hazards: tuple[Hazard, ...] = ()
    text: str = ""
    destructive: bool = False
    object: str = ""
    """Names what a destructive step takes away."""
    reversible: bool = True
    consent: str = ""
    """The rule that allowed it by `removed: drop` ("" asks a person)."""


def step(table: Ref, change: StepChange, hazards: tuple[Hazard, ...] = (), consent: str = "") -> Step:
    """Return the step for one edit."""
    data = json.dumps([table, change_dict(change)], sort_keys=True, separators=(",", ":"))
    return Step(
        id=hashlib.sha256(data.encode()).hexdigest()[:12],
        table=table,
        change=change,
        hazards=hazards,
        text=describe_step(change),
        destructive=isinstance(change, TableRemoved | ColumnRemoved),
        object=_object(table, change),
        reversible=not isinstance(change, ColumnWidened) and all(h.level != "cannot be undone" for h in hazards),
        consent=consent,
    )


def _object(table: Ref, change: StepChange) -> str:
    path = ".".join(filter(None, table))
    match change:
        case TableRemoved():
            return path
        case ColumnRemoved():
            return f"{path}.{change.before.name}"
    return ""


def describe_step(change: StepChange) -> str:
    """Return one line for people."""
    match change:
        case RewriteColumn():
            return f"rewrite column {change.before.name}: {change.before.type} becomes {change.after.type}"
        case RecordIdentity():
            return f"record that column {change.after.name} comes from {change.after.alias}"
        case UndropColumn():
            return f"bring back column {change.after.name} with its values"
        case SetLayout():
            return describe_layout(change.before, change.after)
        case _:
            return describe(change)


def change_dict(change: StepChange) -> dict[str, Any]:
    if isinstance(change, Own):
        sides = {"before": column_to_dict(change.before), "after": column_to_dict(change.after)}
        return {"kind": change.kind, "table": list(change.table), **sides}
    if isinstance(change, SetLayout):
        layouts = {"before": layout_to_dict(change.before), "after": layout_to_dict(change.after)}
        return {"kind": change.kind, "table": list(change.table), **layouts}
    return change_to_dict(change)


def step_to_dict(step: Step) -> dict[str, Any]:
    return {
        "id": step.id,
        "table": list(step.table),
        "change": change_dict(step.change),
        "hazards": [{"code": h.code, "level": h.level, "text": h.text} for h in step.hazards],
        "text": step.text,
        "destructive": step.destructive,
        "object": step.object,
        "reversible": step.reversible,
        "consent": step.consent,
    }


def step_from_dict(data: Mapping[str, Any]) -> Step:
    return Step(
        **{
            **data,
            "table": tuple(data["table"]),
            "change": _change_from_dict(data["change"]),
            "hazards": tuple(Hazard(**h) for h in data["hazards"]),
        }
    )


def _change_from_dict(data: Mapping[str, Any]) -> StepChange:
    if make := _OWN.get(data["kind"]):
        return make(
            (data["table"][0], data["table"][1]), column_from_dict(data["before"]), column_from_dict(data["after"])
        )
    if data["kind"] == SetLayout.kind:
        sides = layout_from_dict(data["before"]), layout_from_dict(data["after"])
        return SetLayout((data["table"][0], data["table"][1]), *sides)
    return change_from_dict(data)
