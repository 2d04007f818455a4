"""Renames that a person has named are changes on record, so that they can be taken back like all others."""

from __future__ import annotations

import json
from typing import NoReturn

from instep.errors import InstepError
from instep.model import Review
from instep.schema.changes.describe import (
    ColumnRenamed,
    TableRenamed,
    change_from_dict,
    change_to_dict,
    column_of,
    describe,
    key,
)
from instep.schema.planning.plan import Plan
from instep.schema.policy.similarity import PROPOSAL
from instep.store.catalogs.declared_renames import DeclaredRename
from instep.store.catalogs.reviews import DetectedChange
from instep.sync.context import Ref, SyncContext

Rename = ColumnRenamed | TableRenamed
Side = tuple[Ref, str]
"""A table, and a column of it or ""."""


def rename_of(made: Plan) -> Rename:
    """Return the one that the plan of a mapping carries out."""
    return next(d.change for d in made.decisions if isinstance(d.change, Rename))


def put_on_record(context: SyncContext, rename: Rename, who: str) -> Review:
    """Return the proposal of this very rename, else a change of its own; approved."""
    if found := _proposal(context, *_sides(rename)):
        return context.store.reviews.decide(found.id, "approved", who)
    table = rename.after.ref if isinstance(rename, TableRenamed) else rename.table
    finding = DetectedChange(
        key(rename),
        rename.kind,
        table,
        column_of(rename),
        describe(rename),
        change_to_dict(rename),
        "apply",
        "mapped",
        f"mapped by {who}",
    )
    return context.store.reviews.open_approved(context.name, finding, who)


def want_approved(context: SyncContext) -> None:
    """Proposals that were answered like any other change, over the API or by a rollout."""
    for review in context.store.reviews.find(context.name, ("approved",)):
        change = change_from_dict(review.change) if review.rule == PROPOSAL else None
        if isinstance(change, Rename):
            (ref, old), (place, new) = _sides(change)
            context.store.mappings.want(context.name, ref, old, new or json.dumps(place), review.decided_by)


class DoesNotFit(InstepError):
    """Two columns or tables were to be one, and cannot be any more."""


def give_up(context: SyncContext, wanted: DeclaredRename, old: Side, new: Side, why: InstepError) -> NoReturn:
    """A mapping that does not fit any more: its changes wait as before. Raises DoesNotFit."""
    found = _proposal(context, old, new)
    with context.transaction():
        context.store.reviews.reopen([found.id] if found else [])
        context.store.mappings.end(wanted.number)
    paths = [".".join(filter(None, (*ref, column))) for ref, column in (old, new)]
    raise DoesNotFit(f"{paths[0]} was not mapped to {paths[1]}: {why.message} ({why.hint})")


def _proposal(context: SyncContext, old: Side, new: Side) -> Review | None:
    for review in context.store.reviews.existing(context.name).values():
        change = change_from_dict(review.change) if review.rule == PROPOSAL else None
        if isinstance(change, Rename) and _sides(change) == (old, new):
            return review
    return None


def _sides(rename: Rename) -> tuple[Side, Side]:
    if isinstance(rename, TableRenamed):
        return (rename.before.ref, ""), (rename.after.ref, "")
    return (rename.table, rename.before.name), (rename.table, rename.after.name)
