"""Executes the steps of one table, all of them in one commit with the record of what they lead to."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from instep.crash import crashpoint
from instep.destinations.base import HERE, Commit, FileWorkers, Ref
from instep.destinations.delta.change import DeltaCommit, begin
from instep.destinations.delta.rewrite import Rewriting, ValueCast, recast_columns
from instep.destinations.delta.shape import (
    BEFORE,
    DeltaField,
    first_fields,
    guards,
    new_field,
    partition_error,
    promoted,
    schema_string,
    terms,
)
from instep.destinations.delta.table_state import (
    DeltaTableState,
    ParkedField,
    find,
    missing,
    named,
    not_ours,
    require,
    state_in,
    with_stored,
)
from instep.destinations.delta.warehouse import DeltaFacet, Folders, ObjectWarehouse, Warehouse, now_ms
from instep.destinations.iceberg.evolve import spark_sql
from instep.destinations.shared import ShardSchemaChanged, retry_commit
from instep.destinations.sql.evolve import ColumnOrigin, Evolution, evolve
from instep.destinations.sql.records import Parked, Record
from instep.destinations.types import DELTA_PROMOTIONS
from instep.errors import Conflict, DestinationError, IllegalChange
from instep.schema.catalog.catalog import Table
from instep.schema.changes.describe import ColumnRenamed, TableAdded, TableRemoved, TableRenamed, TableReplaced
from instep.schema.planning.guard import first_violation
from instep.schema.planning.hazard import Capabilities
from instep.schema.planning.naming import quote
from instep.schema.planning.step import SetLayout, Step

CAPABILITIES = Capabilities(
    name="delta",
    promotes=DELTA_PROMOTIONS,
    undo_by_id=True,
    simultaneous_renames=True,
    comments=True,
    keys=True,
    max_name_bytes=240,
    versions=True,
)


def _execute(
    warehouse: Warehouse, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit, how: Rewriting
) -> None:
    state = find(warehouse, ref)
    if state is not None and after is not None and state.table() == after and _is_laid_out(state, steps):
        if commit.part:
            change = DeltaCommit(state, state.record.after_changes(commit, [s.id for s in steps]))
            recast_columns(change, state.layout, {}, commit, how)
            change.land("CHANGE COLUMNS", commit, warehouse)
        return
    match steps[0].change:
        case TableAdded(after=table):
            create(warehouse, after or table, steps, commit)
        case TableRemoved():
            _park(warehouse, ref, commit)
        case TableReplaced(after=table):
            _replace(warehouse, require(warehouse, ref), after or table, steps, commit)
        case _:
            _alter(warehouse, ref, steps, after, commit, how)


def create(warehouse: Warehouse, table: Table, steps: Sequence[Step], commit: Commit) -> None:
    """Create an empty table; raises Conflict if the name is taken."""
    fields = first_fields(table, count(1))
    new_record = with_stored(Record(_plain(table), uuid.uuid4().hex), fields, {})
    record = new_record.after_changes(commit, [s.id for s in steps])
    by_name = {f.name: f for f in fields}
    first = (commit.part.column,) if commit.part else ()
    by = [by_name[name] for name in (*first, *(_requested_by(steps) or ()))]
    if warehouse.is_taken(table.ref) or not begin(warehouse, record, fields, commit, by):
        exists = find(warehouse, table.ref) is not None
        if exists and commit.part:
            raise ShardSchemaChanged(table.path)
        hint = "plan again" if exists else not_ours(table.ref).hint
        raise Conflict(f"table {named(table.ref)} exists", hint=hint)


def _requested_by(steps: Sequence[Step]) -> tuple[str, ...] | None:
    """Return the partition columns that the steps give the table; None if they say nothing of it."""
    layouts = [s.change.after.partition for s in steps if isinstance(s.change, SetLayout)]
    return tuple(term.column for term in layouts[-1]) if layouts else None


def _is_laid_out(state: DeltaTableState, steps: Sequence[Step]) -> bool:
    """Return whether the table has the partitions of the steps, or gets them with the next whole load."""
    requested = _requested_by(steps)
    return requested is None or requested == tuple(f.name for f in state.next_by)


def _plain(table: Table) -> Table:
    return replace(table, comment=table.comment or None)


def _park(warehouse: Warehouse, ref: Ref, commit: Commit) -> None:
    """Move a dropped table out of sight; it is deleted when its undo period ends."""
    with warehouse.moving():
        state = find(warehouse, ref)
        if state is None:
            if warehouse.is_taken(ref):
                raise not_ours(ref)
            return
        state.record.check(commit.fence)
        crashpoint("delta.moved.before")
        if isinstance(warehouse, ObjectWarehouse):
            drop(warehouse, state, commit)
        elif isinstance(warehouse, Folders):
            warehouse.park(ref, state.record.table.id)


def drop(warehouse: ObjectWarehouse, state: DeltaTableState, commit: Commit) -> None:
    """Drop a table by a commit in its own log; the place where it is kept is recorded first."""
    at, source_id = now_ms(), state.record.table.id
    warehouse.wait(state.ref, source_id, state.folder, at)
    DeltaCommit(state, state.record, records=warehouse.name_record(state.ref, at, source_id)).land(
        "DROP TABLE", commit, warehouse
    )


def _replace(warehouse: Warehouse, state: DeltaTableState, table: Table, steps: Sequence[Step], commit: Commit) -> None:
    """Prepare the new generation beside the old one, which readers keep until the first load swaps it in."""
    schema_string(first_fields(table, count(1)))
    requested = _requested_by(steps)
    by = [f.name for f in state.next_by] if requested is None else requested
    by_name = {c.name: c for c in table.columns}
    by = tuple(n for n in by if n in by_name and not partition_error(terms([n])[0], by_name[n].type))
    pending = replace(state.record, pending=_plain(table), by=by)
    record = pending.after_changes(commit, [s.id for s in steps])
    DeltaCommit(state, record).land("REPLACE TABLE", commit, warehouse)


def _alter(
    warehouse: Warehouse, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit, how: Rewriting
) -> None:
    moved = next((s.change.after for s in steps if isinstance(s.change, TableRenamed)), None)
    if moved is not None and moved.ref != ref:
        _move(warehouse, ref, moved.ref, commit)
        ref = moved.ref
    state = find(warehouse, ref)
    if state is None or state.record.copy:
        raise not_ours(ref) if state or warehouse.is_taken(ref) else missing(ref)
    target = after or moved
    if target is None:
        raise DestinationError(f"the steps for table {named(ref)} come without the table that they lead to")
    if state.table() == target and _is_laid_out(state, steps):
        return
    state.record.check(commit.fence)
    changes = [s.id for s in steps]
    if state.record.pending is not None:
        pending = replace(state.record, pending=_plain(target), by=_next_by(state, steps))
        record = pending.after_changes(commit, changes)
        DeltaCommit(state, record).land("REPLACE TABLE", commit, warehouse)
    else:
        _columns(state, steps, target, changes, commit, how).land("CHANGE COLUMNS", commit, warehouse)


def _move(warehouse: Warehouse, ref: Ref, new: Ref, commit: Commit) -> None:
    """Rename the folder first: a run that dies afterwards finds it there and goes on."""
    with warehouse.moving():
        state = find(warehouse, ref)
        if state is None and find(warehouse, new) is not None:
            return
        if state is None or state.record.copy:
            raise not_ours(ref) if state or warehouse.is_taken(ref) else missing(ref)
        state.record.check(commit.fence)
        if warehouse.is_taken(new):
            raise Conflict(f"table {named(ref)} cannot be renamed: {named(new)} exists", hint="plan again")
        crashpoint("delta.moved.before")
        if isinstance(warehouse, ObjectWarehouse):
            _called(warehouse, state, new, commit)
        elif isinstance(warehouse, Folders):
            warehouse.move(ref, new)
    crashpoint("delta.moved.after")


def _called(warehouse: ObjectWarehouse, state: DeltaTableState, ref: Ref, commit: Commit) -> None:
    """Rename the table, from the next commit of its log on, without moving its files."""
    warehouse.point(ref, state.folder)
    table = replace(state.record.table, schema=ref[0], name=ref[1])
    record = replace(state.record, table=table, fence=max(commit.fence, state.record.fence))
    DeltaCommit(state, record, records=warehouse.name_record(ref)).land("RENAME TABLE", commit, warehouse)


@dataclass(frozen=True)
class _Next:
    """The columns that a table gets."""

    fields: tuple[DeltaField, ...]
    casts: Mapping[str, ValueCast]
    """Values for columns that are rewritten, by the column that gets them."""


def _columns(
    state: DeltaTableState,
    steps: Sequence[Step],
    target: Table,
    changes: Sequence[str],
    commit: Commit,
    how: Rewriting,
) -> DeltaCommit:
    """Return the table with its next columns; its rows stay."""
    now = state.table()
    if why := first_violation(state.ref, [s.change for s in steps], guards((*state.by, *state.next_by))):
        raise IllegalChange(why, hint="nothing was changed")
    evolution = evolve(now, state.record.parked, steps, target)
    by_name = {f.name: f for f in state.fields}
    new = _next(state, evolution, by_name)
    gone = dict(_parking(state, evolution, by_name))
    back = {s.parked.place for s in evolution.columns if s.parked}
    at = now_ms()
    waits = {p: f for p, f in state.parked.items() if p not in back} | gone
    parked = (
        *(p for p in state.record.parked if p.place not in back),
        *(Parked(p.field.name, place, p.field.id, at) for place, p in gone.items()),
    )
    table = replace(_plain(target), columns=tuple(s.column for s in evolution.columns))
    record = with_stored(replace(state.record, table=table, parked=parked), new.fields, waits)
    record = replace(record, by=_next_by(state, steps)).after_changes(commit, changes)
    change = DeltaCommit(state, record, new.fields)
    layout = (*new.fields, *(replace(p.field, nullable=True) for p in waits.values()))
    recast_columns(change, layout, new.casts, commit, how)
    return change


def _next_by(state: DeltaTableState, steps: Sequence[Step]) -> tuple[str, ...] | None:
    """Return the partition columns of the next whole load, by their names after the steps; None if they are those of
    today."""
    new = {s.change.before.name: s.change.after.name for s in steps if isinstance(s.change, ColumnRenamed)}
    requested, next_by = _requested_by(steps), state.record.by
    if requested is None:
        requested = None if next_by is None else tuple(new.get(name, name) for name in next_by)
    today = tuple(new.get(f.name, f.name) for f in state.by)
    return None if state.record.pending is None and requested == today else requested


def _next(state: DeltaTableState, evolution: Evolution, by_name: Mapping[str, DeltaField]) -> _Next:
    ids = count(state.highest + 1)
    fields, casts = list[DeltaField](), dict[str, ValueCast]()
    for source in evolution.columns:
        column, before = source.column, by_name.get(source.before.name) if source.before else None
        if source.parked is not None:
            waits = state.parked[source.parked.place]
            field = _fitting(waits.field, source)
            field = replace(field, facts={**field.facts, BEFORE: waits.version})
        elif before is None or source.rewrite is not None:
            field = new_field(column, ids, log=str(state.snapshot.metadata["id"]))
            if before is not None and source.before is not None:
                casts[field.physical] = ValueCast(column.name, before.physical, source.before.type, column.type)
        else:
            field = _fitting(before, source)
        fields.append(field)
    return _Next(tuple(fields), casts)


def _fitting(before: DeltaField, source: ColumnOrigin) -> DeltaField:
    """Return the column under its new name, with its type, its NULLs and its comment."""
    column, was = source.column, source.before
    if was is not None and not CAPABILITIES.promotes_in_place(was.type, column.type):
        raise IllegalChange(
            f"column {column.name!r}: Delta cannot turn {was.type} into {column.type} in place",
            hint="the column has to be rewritten: add a new column, fill it, drop the old one",
        )
    field = promoted(before, column.type)
    nullable = True if source.parked else column.nullable
    return replace(field, name=column.name, nullable=nullable, comment=column.comment or None)


def _parking(
    state: DeltaTableState, evolution: Evolution, by_name: Mapping[str, DeltaField]
) -> Iterator[tuple[str, ParkedField]]:
    """Yield the columns whose values stay in the files under their physical names: dropped columns, and the old
    values of rewritten ones."""
    lost = [*evolution.dropped, *(s.before for s in evolution.columns if s.before and s.rewrite)]
    for column in lost:
        field = by_name[column.name]
        yield field.physical, ParkedField(field, state.snapshot.version)


def statements(steps: Sequence[Step]) -> list[str]:
    """Return the statements in Spark SQL, as for Iceberg. Partitions come with the table, or with its next whole
    load."""
    by = {s.table: _sql_columns(s.change) for s in steps if isinstance(s.change, SetLayout)}
    created = {s.table for s in steps if isinstance(s.change, TableAdded | TableReplaced)}
    out: list[str] = []
    for step in steps:
        if not isinstance(step.change, SetLayout):
            lines = spark_sql.statements([step], "delta")
            partition = isinstance(step.change, TableAdded | TableReplaced) and by.get(step.table)
            out += [line.replace("\n) USING delta", f"\n) USING delta\nPARTITIONED BY ({partition})") for line in lines]
        elif step.table not in created:
            clause = f"partitioned by ({by[step.table]})" if by[step.table] else "not partitioned"
            out.append(f"-- the next whole load leaves {'.'.join(step.table)} {clause}")
    return out


def _sql_columns(change: SetLayout) -> str:
    return ", ".join(quote(term.column, "spark") for term in change.after.partition)


class DeltaDdl(DeltaFacet):
    """Schema changes of Delta tables."""

    def __init__(self, warehouse: Warehouse, prefix: str, upsert_rows: int) -> None:
        super().__init__(warehouse, prefix)
        self.upsert_rows = upsert_rows

    def execute(
        self, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit, workers: FileWorkers = HERE
    ) -> None:
        """Execute all steps of one table; steps that a crashed run has done already are skipped. A shard's steps are
        retried as long as others only load their rows meanwhile."""
        rewriting = Rewriting(workers, self.upsert_rows)
        if commit.part:
            retry_commit(lambda: _execute(self.warehouse, ref, steps, after, commit, rewriting))
        else:
            _execute(self.warehouse, ref, steps, after, commit, rewriting)

    def undrop_table(self, ref: Ref, table: Table, commit: Commit) -> None:
        """Bring back a dropped table under its name with its rows; do nothing if it is back already."""
        with self.warehouse.moving():
            if (existing := find(self.warehouse, ref)) is not None:
                if existing.record.table.id != table.id:
                    hint = "rename or drop that one first"
                    raise DestinationError(f"another table is now called {named(ref)}", hint=hint)
                return
            old = self.warehouse.parked(ref, table.id)
            if old is None:
                hint = "its time for undoing is over: restore a backup"
                raise DestinationError(f"table {named(ref)} is no longer retained", hint=hint)
            if self.warehouse.is_taken(ref):
                raise not_ours(ref)
            if isinstance(self.warehouse, ObjectWarehouse):
                _called(self.warehouse, state_in(old.folder, ref), ref, commit)
            elif isinstance(self.warehouse, Folders):
                self.warehouse.undrop(old)
        table_state = require(self.warehouse, ref)
        if table_state.record.fence < commit.fence:
            DeltaCommit(table_state, replace(table_state.record, fence=commit.fence)).land(
                "CLAIM", commit, self.warehouse
            )
