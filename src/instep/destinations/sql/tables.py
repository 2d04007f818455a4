# ruff: noqa: S608 - names are quoted
"""The steps of one table, all of them in one transaction with the record of what they lead to."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from instep.destinations.base import Commit, Ref
from instep.destinations.rows import cast_all
from instep.destinations.sql.evolve import ColumnOrigin, Evolution, evolve, moved_values
from instep.destinations.sql.merge import q, text_literal
from instep.destinations.sql.record_tables import (
    ANOTHER_NAME,
    dropped,
    find,
    last_dropped,
    missing,
    named,
    not_ours,
    put,
    put_dropped,
    remove,
    remove_dropped,
    require,
)
from instep.destinations.sql.records import Parked, Record, load, numbered
from instep.destinations.sql.session import SqlSession
from instep.destinations.sql.shape import Relation, as_it_is
from instep.destinations.types import casts_exactly
from instep.errors import Conflict, DestinationError, IllegalChange
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import DataType
from instep.schema.changes.describe import TableAdded, TableRemoved, TableRenamed, TableReplaced
from instep.schema.planning.step import Step

PARKED = "_instep_dropped_"
"""The beginning of the names of parked tables and columns."""
MOVING = "_instep_moving_"
_VALUES = "_instep_values"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def described_table(session: SqlSession, record: Record, relation: Relation | None) -> Table:
    """Return the table as its record and the database together tell."""
    physical = relation or Relation((), None)
    return as_it_is(record, physical.columns, physical.comment, session.dialect.data_type)


def table_as_it_is(session: SqlSession, record: Record) -> Table:
    return described_table(session, record, session.relations([record.ref]).get(record.ref))


def execute(session: SqlSession, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit) -> None:
    """Execute all steps of one table; steps that a crashed run has done already are skipped."""
    record = find(session, ref, lock=True)
    if record is not None and after is not None and table_as_it_is(session, record) == after:
        if commit.part:
            put(session, _after_moves(session, record.after_changes(commit, [s.id for s in steps]), commit))
        return
    put_back = session.detach_views(ref)
    match steps[0].change:
        case TableAdded(after=table):
            _create(session, after or table, [s.id for s in steps], commit)
        case TableRemoved():
            if record is not None:
                record.check(commit.fence)
                park(session, record)
                remove(session, ref)
        case TableReplaced(after=table):
            _replace(session, require(session, ref), after or table, steps, commit)
        case _:
            _alter(session, ref, record, steps, after, commit)
    put_back(steps)


def undrop(session: SqlSession, ref: Ref, table: Table, commit: Commit) -> None:
    """Bring back a dropped table under its name with its rows; do nothing if it is back already."""
    if (existing := find(session, ref, lock=True)) is not None:
        if existing.table.id != table.id:
            hint = "rename or drop that one first"
            raise DestinationError(f"another table is now called {named(existing.ref)}", hint=hint)
        return
    old = last_dropped(dropped(session, ref), table.id)
    if old is None:
        hint = "its time for undoing is over: restore a backup"
        raise DestinationError(f"table {named(ref)} is no longer retained", hint=hint)
    if session.is_taken(ref):
        raise not_ours(session, ref)
    session.run(f"ALTER TABLE {session.name(ref[0], old.place)} RENAME TO {q(ref[1])}")
    remove_dropped(session, old)
    put(session, load(ref, commit.fence, old.text))


def _create(session: SqlSession, table: Table, changes: Sequence[str], commit: Commit) -> None:
    """Make an empty table; Conflict if the name is taken."""
    hint = "plan again" if find(session, table.ref) else ANOTHER_NAME
    new_record = make(session, numbered(Record(table, uuid.uuid4().hex)), hint)
    session.index_key(new_record, table.key)
    put(session, new_record.after_changes(commit, changes))


def make(session: SqlSession, record: Record, hint: str = ANOTHER_NAME) -> Record:
    """Create the table of a record; returns the record with the types as the database tells them."""
    session.dialect.check_names(record.table, 0)
    session.make_schema(record.ref[0])
    session.create_table(record.ref, session.dialect.definitions(record.table), hint)
    describe(session, record.table)
    return with_types(session, record)


def describe(session: SqlSession, table: Table) -> None:
    """Set the comments of a table that has none yet."""
    name = session.name(*table.ref)
    if table.comment:
        _comment(session, f"TABLE {name}", table.comment)
    for column in table.columns:
        if column.comment:
            _comment(session, f"COLUMN {name}.{q(column.name)}", column.comment)


def with_types(session: SqlSession, record: Record) -> Record:
    return replace(record, stored=session.types_of(record.ref))


def _comment(session: SqlSession, what: str, text: str | None) -> None:
    session.run(f"COMMENT ON {what} IS {text_literal(text) if text else 'NULL'}")


def park(session: SqlSession, record: Record) -> None:
    """Move a dropped table out of sight, to be deleted when its time for undoing is over."""
    _refuse_dependants(session, record.ref, f"table {named(record.ref)}")
    place = f"{PARKED}{uuid.uuid4().hex[:12]}"
    session.run(f"ALTER TABLE {session.name(*record.ref)} RENAME TO {q(place)}")
    put_dropped(session, record, place, now_ms())


def swap_in(session: SqlSession, record: Record) -> Record:
    """Park the table and make the generation that waits, without rows."""
    put_back = session.detach_views(record.ref)
    park(session, replace(record, pending=None))
    new_record = make(session, record.waiting)
    put_back(())
    return new_record


def _refuse_dependants(session: SqlSession, ref: Ref, what: str, columns: Iterable[str] | None = None) -> None:
    """Raise IllegalChange, and list them, if anything of others would break: nothing is dropped in cascade."""
    if dependants := session.dependants(ref, columns):
        needs = "needs" if len(dependants) == 1 else "need"
        raise IllegalChange(
            f"{what} cannot be changed: somebody else's {', '.join(dependants)} {needs} it",
            hint=f"drop that first, then run this again: table {named(ref)} is left as it is",
        )


def _plain(table: Table) -> Table:
    return replace(table, comment=table.comment or None)


def _replace(session: SqlSession, record: Record, table: Table, steps: Sequence[Step], commit: Commit) -> None:
    """Record the new generation, which waits beside the old one; readers keep the old one until the first load swaps
    it in."""
    record.check(commit.fence)
    session.dialect.check_names(table, 0)
    put(session, replace(record, pending=_plain(table)).after_changes(commit, [s.id for s in steps]))


def _alter(
    session: SqlSession, ref: Ref, record: Record | None, steps: Sequence[Step], after: Table | None, commit: Commit
) -> None:
    moved = next((s.change.after for s in steps if isinstance(s.change, TableRenamed)), None)
    if moved is not None and record is None and find(session, moved.ref) is not None:
        return
    if record is None or record.copy:
        raise not_ours(session, ref) if session.is_taken(ref) else missing(ref)
    record.check(commit.fence)
    target = after or moved
    if target is None:
        raise DestinationError(f"the steps for table {named(ref)} come without the table that they lead to")
    if record.pending is not None:
        altered = replace(record, pending=_plain(target))
    else:
        altered = _columns(session, record, steps, replace(target, schema=ref[0], name=ref[1]))
    if moved is not None:
        altered = _rename(session, altered, moved.ref)
    put(session, _after_moves(session, altered.after_changes(commit, [s.id for s in steps]), commit), was=ref)


def _rename(session: SqlSession, record: Record, new: Ref) -> Record:
    """Rename the table, also to another schema; raises Conflict if anything but the table itself has that name."""
    if session.is_taken(new) and not session.is_one_name(new, record.ref):
        raise Conflict(f"table {named(record.ref)} cannot be renamed: {named(new)} exists", hint="plan again")
    return session.move(record, new)


def _after_moves(session: SqlSession, record: Record, commit: Commit) -> Record:
    """Return the record, once the values of a shard's rows went to other columns."""
    if commit.part and commit.part.moves:
        session.run(moved_values(session.name(*record.ref), record, commit.part))
    return record


def _columns(session: SqlSession, record: Record, steps: Sequence[Step], target: Table) -> Record:
    """Return the table with its next columns; its rows stay."""
    now = table_as_it_is(session, record)
    evolution = evolve(now, record.parked, steps, target)
    name = session.name(*record.ref)
    lost = evolution.parking(record, PARKED, now_ms())
    session.dialect.check_names(target, len(record.parked) + len(lost))
    for column, waits in lost:
        what = f"column {column.name!r} of table {named(record.ref)}"
        _refuse_dependants(session, record.ref, what, [column.name])
        _hide_column(session, name, column, waits.place)
    _rename_columns(session, name, evolution)
    evolved = _evolved(record, evolution, target, lost)
    hidden = {p.name: p.place for _, p in lost}
    for origin in evolution.columns:
        _fit(session, evolved, origin, hidden)
    if (now.comment or "") != (target.comment or ""):
        _comment(session, f"TABLE {name}", target.comment)
    # the names that the columns of the key have had; an index goes along with a rename, not with a rewrite
    before = {s.column.name: s.place if s.rewrite is None else "" for s in evolution.columns}
    if tuple(before[k] for k in target.key) != record.table.key:
        session.index_key(evolved, target.key, rebuild=True)
    return with_types(session, evolved)


def _hide_column(session: SqlSession, table: str, column: Column, place: str) -> None:
    """Rename a dropped column, which stays in the table until its undo period ends."""
    session.run(f"ALTER TABLE {table} RENAME COLUMN {q(column.name)} TO {q(place)}")
    if not column.nullable:
        session.run(f"ALTER TABLE {table} ALTER COLUMN {q(place)} DROP NOT NULL")


def _rename_columns(session: SqlSession, table: str, evolution: Evolution) -> None:
    """Rename all at once: a name may be another column's until its own turn comes."""
    names = [(s.place, s.column.name) for s in evolution.columns if s.place and s.rewrite is None]
    moves = [(a, b) for a, b in names if a != b]
    for number, (before, _) in enumerate(moves):
        session.run(f"ALTER TABLE {table} RENAME COLUMN {q(before)} TO {q(f'{MOVING}{number}')}")
    for number, (_, after) in enumerate(moves):
        session.run(f"ALTER TABLE {table} RENAME COLUMN {q(f'{MOVING}{number}')} TO {q(after)}")


def _evolved(record: Record, evolution: Evolution, target: Table, lost: Sequence[tuple[Column, Parked]]) -> Record:
    """Return the record of a table with its next columns; `lost` are those that it loses, and where they wait."""
    back = {s.parked.place for s in evolution.columns if s.parked}
    return numbered(
        replace(
            record,
            table=replace(target, columns=tuple(s.column for s in evolution.columns)),
            numbers=evolution.numbers(record),
            parked=(*(p for p in record.parked if p.place not in back), *(p for _, p in lost)),
        )
    )


def _fit(session: SqlSession, record: Record, origin: ColumnOrigin, hidden: dict[str, str]) -> None:
    """Set the type, nullability and comment of the column, already under its new name."""
    column, before, table = origin.column, origin.before, session.name(*record.ref)
    if origin.rewrite is not None and before is not None:
        _rewrite(session, record, hidden[before.name], before.type, column)
    elif before is None and origin.parked is None:
        session.run(f"ALTER TABLE {table} ADD COLUMN {q(column.name)} {session.dialect.sql_type(column.type)}")
    elif before is not None:
        _alter_column(session, record.ref, before, column)
    if (column.comment or "") != ((before.comment if before and not origin.rewrite else "") or ""):
        _comment(session, f"COLUMN {table}.{q(column.name)}", column.comment)


def _alter_column(session: SqlSession, ref: Ref, before: Column, column: Column) -> None:
    dialect, name = session.dialect, q(column.name)
    alter = f"ALTER TABLE {session.name(*ref)} ALTER COLUMN {name}"
    if not dialect.capabilities.promotes_in_place(before.type, column.type):
        raise IllegalChange(
            f"column {column.name!r}: {dialect.label} cannot turn {before.type} into {column.type} in place",
            hint="the column has to be rewritten: add a new column, fill it, drop the old one",
        )
    if (kind := dialect.sql_type(column.type)) != dialect.sql_type(before.type):
        what = f"the type of column {column.name!r} of table {named(ref)}"
        _refuse_dependants(session, ref, what, [column.name])
        session.run(f"{alter} SET DATA TYPE {kind} USING {name}::{kind}")
    if column.nullable and not before.nullable:
        session.run(f"{alter} DROP NOT NULL")


def _rewrite(session: SqlSession, record: Record, place: str, before: DataType, column: Column) -> None:
    """Add `column` with the values that the column at `place`, of the type `before`, holds; IllegalChange if one does
    not fit. Values whose text or number the database makes as we do stay there; others pass through this process."""
    dialect, table = session.dialect, session.name(*record.ref)
    row, kind, target = dialect.row_id, dialect.sql_type(column.type), dialect.arrow_type(column.type)
    if casts_exactly(before, column.type):
        session.run(f"ALTER TABLE {table} ADD COLUMN {q(column.name)} {kind}")
        session.run(f"UPDATE {table} SET {q(column.name)} = CAST({q(place)} AS {kind}) WHERE {q(place)} IS NOT NULL")
        return
    if dialect.hides_rows(record.table):
        hint = "call it another name at the source, or load the table again with `instep sync --full`"
        why = f"column {column.name!r} cannot be rewritten beside a column called {row.name}"
        raise IllegalChange(why, hint=hint)
    read = pa.schema([("n", row.arrow), ("v", dialect.arrow_type(before))])
    sql = f"SELECT {row.shown} AS n, {dialect.shown(place, before)} AS v FROM {table} WHERE {q(place)} IS NOT NULL"

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in session.scan(sql, read):
            values = cast_all(column.name, batch.column(1), before, column.type, target)
            yield pa.record_batch([batch.column(0), values], names=["n", "v"])

    with session.temporary(_VALUES, {"n": row.type, "v": kind}, batches()):
        session.run(f"ALTER TABLE {table} ADD COLUMN {q(column.name)} {kind}")
        session.run(f"UPDATE {table} AS t SET {q(column.name)} = s.v FROM {_VALUES} AS s WHERE t.{row.name} = s.n")
