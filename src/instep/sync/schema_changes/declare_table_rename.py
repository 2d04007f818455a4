"""Turn a removal and an addition of a table into a rename that a person declares.

The accepted table takes the new name, at the destination too, and keeps its rows; its columns go on by name. If the
new table was accepted meanwhile, what was loaded into it stays beside it as `<name>__v<n>`. The request is recorded
before the destination is touched, so that a mapping that was interrupted is finished by the next run.

Renames that a person has named are changes on record, so that they can be taken back like all others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from instep.errors import Blocked, IllegalChange, InstepError
from instep.events import ChangeMapped
from instep.model import Review, Run
from instep.schema.catalog.catalog import Catalog, Table, fingerprint, unbound
from instep.schema.catalog.promotion import fitting
from instep.schema.changes.describe import (
    Change,
    ColumnRenamed,
    TableAdded,
    TableRemoved,
    TableRenamed,
    change_from_dict,
    change_to_dict,
    column_of,
    describe,
    key,
)
from instep.schema.changes.diff import pair
from instep.schema.planning.accept import accept
from instep.schema.planning.naming import assign, destination_ref
from instep.schema.planning.plan import Plan, desired, plan
from instep.schema.policy.policy import Decision
from instep.schema.policy.similarity import PROPOSAL
from instep.schema.selection.selection import column_is_on, hashed, is_on
from instep.store.catalogs.renames import DeclaredRename
from instep.store.catalogs.reviews import DetectedChange
from instep.suggest import unknown_table
from instep.sync.claim import claimed
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.detect import detect_if_changed
from instep.sync.schema_changes.apply import apply_plan, follow
from instep.sync.schema_changes.table_setting import recorded_tables


@dataclass(frozen=True)
class MappedTable:
    """Plan of a declared table rename. `old` is the accepted table, `new` the source's; `interim` the accepted table
    that was loaded under the new name meanwhile, if any. `gone` and `fresh` are columns that only one of them has.
    `empty`: rows that lack values afterwards; none, as every row is read."""

    old: Table
    new: Table
    interim: Table | None
    plan: Plan
    gone: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()
    empty: int = 0

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the text for people."""
        lines = [f"table {self.old.path} is read from {self.new.path} and keeps its rows"]
        lines += [f"{'.'.join(s.table)}: {s.text}" for s in self.plan.steps]
        if self.interim is not None:
            lines.append(f"what was loaded into {self.new.path} meanwhile stays beside it")
        lines += [f"column {name} is not in {self.new.path}: a removal, which the policy decides" for name in self.gone]
        lines += [
            f"column {name} is new in {self.new.path}: an addition, which the policy decides" for name in self.fresh
        ]
        return (*lines, f"{self.new.path} is read as a whole by the next sync")


def prepare(context: SyncContext, old: str, new: str) -> MappedTable:
    """Return the plan of declaring `old` renamed to `new` (schema.table both); writes nothing. Raises InstepError if
    either does not exist, Blocked if the old table is still at the source, or the two cannot be one: another key,
    columns of one name whose types do not fit or that only one side hashes, a table that is switched off."""
    detection = detect_if_changed(context, count=False)
    accepted = detection.accepted
    table = _named(accepted, old, "accepted")
    source = _named(detection.source, new, "at the source")
    interim = _check(context, accepted, detection.source, table, source)
    rename_plan = _plan(context, accepted, table, source, interim)
    names, source_names = {c.name for c in table.live}, {c.name for c in source.columns}
    gone, fresh = tuple(sorted(names - source_names)), tuple(sorted(source_names - names))
    return MappedTable(table, source, interim, rename_plan, gone, fresh)


def carry_out(context: SyncContext, mapped: MappedTable) -> int:
    """Execute it as one run and return the accepted version."""
    with claimed(context, "apply") as run:
        locked = replace(context, run=run)
        declared = locked.store.mappings.request(
            context.name, mapped.old.ref, "", json.dumps(mapped.new.ref), context.who
        )
        return _finish(locked, run, declared, mapped)


def resume_mapping(context: SyncContext, run: Run, declared: DeclaredRename) -> None:
    """Finish an interrupted declaration; one that no longer fits is given up: its changes wait as before."""
    new: Ref = tuple(json.loads(declared.new))
    accepted = context.store.accepted.catalog(context.name)
    latest = context.store.accepted.latest(context.name)
    if latest is not None and declared.table not in accepted.by_ref and new in accepted.by_ref:
        _note(context, declared, new, latest.version)
        return
    try:
        mapped = prepare(context, _path(declared.table), _path(new))
    except InstepError as error:
        give_up(context, declared, (declared.table, ""), (new, ""), error)
    _finish(context, run, declared, mapped)


def _finish(context: SyncContext, run: Run, declared: DeclaredRename, mapped: MappedTable) -> int:
    rename = rename_of(mapped.plan)
    review = record_rename(context, rename, declared.who)
    version = apply_plan(context, run, mapped.plan, {key(rename): review})
    _note(context, declared, mapped.new.ref, version, review.id)
    return version


def _note(context: SyncContext, declared: DeclaredRename, new: Ref, version: int, change: str = "") -> None:
    """Settle both changes, and request that every row is read once: the new table may have moved on."""
    with context.transaction():
        existing = context.store.reviews.existing(context.name).values()
        sides = (("table.removed", declared.table), ("table.added", new), ("table.renamed", new))
        context.store.reviews.obsolete([r.id for r in existing if (r.kind, r.table) in sides])
        follow(context, {declared.table: new})
        why = f"{_path(declared.table)} was mapped to {_path(new)}"
        context.store.backfills.request(context.name, new, why=why)
        event = ChangeMapped(context.name, _path(new), _path(declared.table), _path(new), declared.who, version, change)
        context.store.events.add(event)
        context.store.mappings.end(declared.number)


def _path(ref: Ref) -> str:
    return ".".join(filter(None, ref))


def _named(catalog: Catalog, path: str, where: str) -> Table:
    tables = {t.path: t for t in catalog.tables}
    if path in tables:
        return tables[path]
    raise unknown_table(
        f"there is no table {path} {where}", path, tables, "write schema.table, as `instep plan` shows it"
    )


def _check(context: SyncContext, accepted: Catalog, seen: Catalog, old: Table, new: Table) -> Table | None:
    """Return the accepted table that reads `new` already, if there is one; Blocked if they cannot be one table."""
    reading = {b.ref: a for a, b in pair(accepted, seen).same}
    if not old.retained and any(a.ref == old.ref for a in reading.values()):
        raise Blocked(f"{old.path} is still at the source", hint="only what the source has dropped can be mapped")
    interim = reading.get(new.ref)
    if interim is not None and interim.ref != new.ref:
        raise Blocked(f"{new.path} is read into {interim.path}", hint="decide about its rename first")
    if not is_on(context.selection, new)[0]:
        raise Blocked(f"{new.path} is switched off", hint="switch it on first")
    if set(old.key) != set(new.key):
        keys = f"{old.path} has the key ({', '.join(old.key)}) and {new.path} ({', '.join(new.key)})"
        raise Blocked(
            f"{keys}: rows of two keys never mix",
            hint="keep both tables, or give one of them the other's key: `instep table set-key`",
        )
    for column in old.live:
        now = new.by_name.get(column.name)
        if now is not None and fitting(column.type, now.type) is None:
            raise Blocked(
                f"{old.path}.{column.name} is {column.type} and {new.path}.{column.name} is {now.type}: "
                "the types are not compatible",
                hint="keep both tables, or change the type at the source first",
            )
    for column in new.columns:
        sides = ((context.selected_before, old), (context.selection, new))
        shown = {(column_is_on(s, t, column)[0], hashed(s, t.ref, column.name)) for s, t in sides}
        if len(shown) > 1:
            raise Blocked(
                f"only one of {old.path}.{column.name} and {new.path}.{column.name} is hashed or switched off",
                hint="select or hash both in the same way, by command or in the project file",
            )
    return interim


def _plan(context: SyncContext, accepted: Catalog, old: Table, new: Table, interim: Table | None) -> Plan:
    before = Catalog.of([old, *([interim] if interim else [])])
    decisions = [Decision(c, "apply", "mapped", f"mapped by {context.who}") for c in _changes(old, new, interim)]
    now = accept(decisions, before, Catalog())
    now = now.put(_with_source_identity(now.by_ref[new.ref], new))
    others = [t for t in accepted.tables if t.ref not in before.by_ref]
    after = assign(Catalog.of([*others, *now.tables]), context.naming)
    mine = Catalog.of(t for t in after.tables if t.ref in now.by_ref)
    refs = {destination_ref(t, context.naming) for c in (before, mine) for t in c.tables}
    existing, target = context.destination.schema.inspect(sorted(refs)), desired(mine, context.naming)
    capabilities, prefix = context.destination.capabilities, context.naming.prefix
    rename_plan = plan(decisions, before, mine, existing, target, capabilities, prefix=prefix)
    if rename_plan.refused:
        raise IllegalChange(f"{old.path}: {next(iter(rename_plan.refused.values()))}", hint="nothing was changed")
    whole = recorded_tables(context, rename_plan.target)
    return replace(rename_plan, base_accepted=fingerprint(accepted), after=after, target=whole)


def _changes(old: Table, new: Table, interim: Table | None) -> Sequence[Change]:
    """Return the changes: the old table is undropped, the one loaded meanwhile is retained, then the rename."""
    live = replace(old, retained=False)
    changes: list[Change] = [TableAdded(live)] if old.retained else []
    if interim is not None:
        changes.append(TableRemoved(interim))
    return [*changes, TableRenamed(live, replace(live, schema=new.schema, name=new.name))]


def _with_source_identity(table: Table, new: Table) -> Table:
    """Return the accepted table with the identity of the source's; ids of another table's columns say nothing."""
    ids = {c.name: c.id for c in new.columns}
    columns = tuple(replace(c, id=None if c.retained else ids.get(c.name)) for c in table.columns)
    return replace(unbound(table), id=new.id, kind=new.kind, columns=columns)


Rename = ColumnRenamed | TableRenamed
Side = tuple[Ref, str]
"""A table, and a column of it or ""."""


def rename_of(plan: Plan) -> Rename:
    """Return the rename that the plan of a declaration applies."""
    return next(d.change for d in plan.decisions if isinstance(d.change, Rename))


def record_rename(context: SyncContext, rename: Rename, who: str) -> Review:
    """Return the proposal of this very rename, else a change of its own; approved."""
    if review := _proposal(context, *_sides(rename)):
        return context.store.reviews.decide(review.id, "approved", who)
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


def request_approved_renames(context: SyncContext) -> None:
    """Request renames whose proposals were answered like any other change, over the API or by a rollout."""
    for review in context.store.reviews.find(context.name, ("approved",)):
        change = change_from_dict(review.change) if review.rule == PROPOSAL else None
        if isinstance(change, Rename):
            (ref, old), (place, new) = _sides(change)
            context.store.mappings.request(context.name, ref, old, new or json.dumps(place), review.decided_by)


class DoesNotFit(InstepError):
    """Two columns or tables were to be one, and can no longer be."""


def give_up(context: SyncContext, declared: DeclaredRename, old: Side, new: Side, why: InstepError) -> NoReturn:
    """Give up a declaration that no longer fits: its changes wait as before. Raises DoesNotFit."""
    review = _proposal(context, old, new)
    with context.transaction():
        context.store.reviews.reopen([review.id] if review else [])
        context.store.mappings.end(declared.number)
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


__all__ = ["MappedTable", "carry_out", "prepare", "resume_mapping"]
