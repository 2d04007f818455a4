"""Executes the steps of one table, all of them in one transaction with the record of what they lead to."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

from instep.destinations.base import Commit, Ref
from instep.destinations.postgres.dependants import index, refuse, reindex
from instep.destinations.postgres.records import (
    dropped,
    find,
    is_taken,
    make_schema,
    not_ours,
    prepare,
    put,
    put_dropped,
    remove,
    remove_dropped,
    require,
)
from instep.destinations.postgres.server import PostgresFacet, PostgresSession, literal
from instep.destinations.postgres.shape import RESERVED, check_names, converted, data_type, relations, rewrite, sql_type
from instep.destinations.sql.alter import (
    MOVING,
    PARKED,
    evolved,
    gone,
    hide_column,
    missing,
    named,
    now_ms,
    parked,
    plain,
    refuse_another,
    rename_columns,
    taken_along,
)
from instep.destinations.sql.evolve import ColumnOrigin, evolve
from instep.destinations.sql.merge import q
from instep.destinations.sql.records import Parked, Record, load, numbered
from instep.destinations.sql.shape import as_it_is
from instep.destinations.types import POSTGRES_PROMOTIONS
from instep.errors import Conflict, DestinationError, IllegalChange
from instep.schema.catalog.catalog import Column, Table
from instep.schema.changes.describe import TableAdded, TableRemoved, TableRenamed, TableReplaced
from instep.schema.planning.hazard import Capabilities
from instep.schema.planning.step import Step

CAPABILITIES = Capabilities(
    name="postgres",
    promotes=POSTGRES_PROMOTIONS,
    case_sensitive=True,
    transactional_ddl=True,
    undo_by_id=True,
    simultaneous_renames=True,
    comments=True,
    keys=True,
    max_name_bytes=63,
    merges_requested=True,
    reserved=RESERVED,
)


def table_as_it_is(session: PostgresSession, record: Record) -> Table:
    there = relations(session, [record.ref]).get(record.ref)
    return as_it_is(record, there.columns if there else (), there.comment if there else None, data_type)


def create(session: PostgresSession, table: Table, changes: Sequence[str], commit: Commit) -> None:
    """An empty table; Conflict if the name is taken."""
    if is_taken(session, table.ref):
        hint = "plan again" if find(session, table.ref) else not_ours(table.ref).hint
        raise Conflict(f"table {named(table.ref)} exists", hint=hint)
    made = make(session, numbered(Record(table, uuid.uuid4().hex)))
    put(session, made.after_changes(commit, changes))


def make(session: PostgresSession, record: Record, *, indexed: bool = True) -> Record:
    """Create the table of a record; returns the record with the types as the server tells them."""
    table = record.table
    check_names(table)
    make_schema(session, table.schema)
    name = session.name(*table.ref)
    session.run(f"CREATE TABLE {name} ({', '.join(f'{q(n)} {kind}' for n, kind in definitions(table).items())})")
    describe(session, table)
    if indexed and table.key:
        index(session, name, table.key, record.place)
    return with_types(session, record)


def definitions(table: Table) -> dict[str, str]:
    """Type, with NOT NULL, by column."""
    return {c.name: f"{sql_type(c.type)}{'' if c.nullable else ' NOT NULL'}" for c in table.columns}


def describe(session: PostgresSession, table: Table) -> None:
    """Comments of a table that has none yet."""
    name = session.name(*table.ref)
    if table.comment:
        comment(session, f"TABLE {name}", table.comment)
    for column in table.columns:
        if column.comment:
            comment(session, f"COLUMN {name}.{q(column.name)}", column.comment)


def with_types(session: PostgresSession, record: Record) -> Record:
    there = relations(session, [record.ref])[record.ref]
    return replace(record, stored={p.name: p.type for p in there.columns})


def comment(session: PostgresSession, what: str, text: str | None) -> None:
    session.run(f"COMMENT ON {what} IS {literal(text) if text else 'NULL'}")


def _park(session: PostgresSession, ref: Ref, commit: Commit) -> None:
    """A dropped table moves out of sight, to be deleted when its time for undoing is over."""
    if (record := find(session, ref)) is not None:
        record.check(commit.fence)
        park(session, record)
        remove(session, ref)


def park(session: PostgresSession, record: Record) -> None:
    refuse(session, record.ref, f"table {named(record.ref)}")
    place = f"{PARKED}{uuid.uuid4().hex[:12]}"
    session.run(f"ALTER TABLE {session.name(*record.ref)} RENAME TO {q(place)}")
    put_dropped(session, record, place, now_ms())


def _replace(session: PostgresSession, record: Record, table: Table, steps: Sequence[Step], commit: Commit) -> None:
    """The new generation waits beside the old one, which readers keep until the first load swaps it in."""
    record.check(commit.fence)
    check_names(table)
    put(session, replace(record, pending=plain(table)).after_changes(commit, [s.id for s in steps]))


def _alter(session: PostgresSession, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit) -> None:
    moved = next((s.change.after for s in steps if isinstance(s.change, TableRenamed)), None)
    record = find(session, ref)
    if moved is not None and record is None and find(session, moved.ref) is not None:
        return
    if record is None or record.copy:
        raise not_ours(ref) if is_taken(session, ref) else missing(ref)
    record.check(commit.fence)
    wanted = after or moved
    if wanted is None:
        raise DestinationError(f"the steps for table {named(ref)} come without the table that they lead to")
    if record.pending is not None:
        made = replace(record, pending=plain(wanted))
    else:
        made = _columns(session, record, steps, replace(wanted, schema=ref[0], name=ref[1]))
    if moved is not None:
        made = _move(session, made, moved.ref)
    made = made.after_changes(commit, [s.id for s in steps])
    put(session, taken_along(session, made, commit), was=ref)


def _columns(session: PostgresSession, record: Record, steps: Sequence[Step], wanted: Table) -> Record:
    """Return the table with its next columns; its rows stay."""
    now = table_as_it_is(session, record)
    evolution = evolve(now, record.parked, steps, wanted)
    name, at = session.name(*record.ref), now_ms()
    lost = evolution.parking(record, PARKED, at)
    check_names(wanted, len(record.parked) + len(lost))
    refuse_lost(session, record.ref, lost)
    for column, waits in lost:
        hide_column(session, name, column, waits.place)
    rename_columns(session, name, evolution)
    made = evolved(record, evolution, wanted, lost)
    hidden = {p.name: p.place for _, p in lost}
    for source in evolution.columns:
        _fit(session, record.ref, source, hidden)
    if (now.comment or "") != (wanted.comment or ""):
        comment(session, f"TABLE {name}", wanted.comment)
    # the names that the columns of the key have had; an index goes along with a rename, not with a rewrite
    before = {s.column.name: s.place if s.rewrite is None else "" for s in evolution.columns}
    if tuple(before[k] for k in wanted.key) != record.table.key:
        reindex(session, name, wanted.key, record.place)
    return with_types(session, made)


def refuse_lost(session: PostgresSession, ref: Ref, lost: Sequence[tuple[Column, Parked]]) -> None:
    for column, _ in lost:
        refuse(session, ref, f"column {column.name!r} of table {named(ref)}", [column.name])


def _fit(session: PostgresSession, ref: Ref, source: ColumnOrigin, hidden: dict[str, str]) -> None:
    """The column, under its new name already, gets its type, its NULLs and its comment."""
    column, before, table = source.column, source.before, session.name(*ref)
    if source.rewrite is not None and before is not None:
        rewrite(session, table, hidden[before.name], before.type, column)
    elif before is None and source.parked is None:
        session.run(f"ALTER TABLE {table} ADD COLUMN {q(column.name)} {sql_type(column.type)}")
    elif before is not None:
        _alter_column(session, ref, before, column)
    if (column.comment or "") != ((before.comment if before and not source.rewrite else "") or ""):
        comment(session, f"COLUMN {table}.{q(column.name)}", column.comment)


def _alter_column(session: PostgresSession, ref: Ref, before: Column, column: Column) -> None:
    table = session.name(*ref)
    if not CAPABILITIES.promotes_in_place(before.type, column.type):
        raise IllegalChange(
            f"column {column.name!r}: PostgreSQL cannot turn {before.type} into {column.type} in place",
            hint="the column has to be rewritten: add a new column, fill it, drop the old one",
        )
    if sql_type(before.type) != sql_type(column.type):
        refuse(session, ref, f"the type of column {column.name!r} of table {named(ref)}", [column.name])
        using = converted(q(column.name), before.type, column.type)
        kind = sql_type(column.type)
        session.run(f"ALTER TABLE {table} ALTER COLUMN {q(column.name)} SET DATA TYPE {kind} USING {using}")
    if column.nullable and not before.nullable:
        session.run(f"ALTER TABLE {table} ALTER COLUMN {q(column.name)} DROP NOT NULL")


def _move(session: PostgresSession, record: Record, new: Ref) -> Record:
    """Under another name or into another schema: its rows are not touched."""
    if is_taken(session, new):
        raise Conflict(f"table {named(record.ref)} cannot be renamed: {named(new)} exists", hint="plan again")
    old = record.ref
    if new[0] != old[0]:
        make_schema(session, new[0])
        # Under a name of its own between the two: neither schema may have the other's.
        session.run(f"ALTER TABLE {session.name(*old)} RENAME TO {q(between := f'{MOVING}{record.place[:12]}')}")
        session.run(f"ALTER TABLE {session.name(old[0], between)} SET SCHEMA {session.schema(new[0])}")
        old = (new[0], between)
    session.run(f"ALTER TABLE {session.name(*old)} RENAME TO {q(new[1])}")
    return replace(record, table=replace(record.table, schema=new[0], name=new[1]))


class PostgresDdl(PostgresFacet):
    """What changes tables."""

    def execute(self, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit) -> None:
        """All steps of one table; what is done already (a run before this one crashed) is not done again."""
        with self.server.writing() as session:
            prepare(session)
            record = find(session, ref, lock=True)
            if record is not None and after is not None and table_as_it_is(session, record) == after:
                if commit.part:
                    put(session, taken_along(session, record.after_changes(commit, [s.id for s in steps]), commit))
                return
            match steps[0].change:
                case TableAdded(after=table):
                    create(session, after or table, [s.id for s in steps], commit)
                case TableRemoved():
                    _park(session, ref, commit)
                case TableReplaced(after=table):
                    _replace(session, require(session, ref), after or table, steps, commit)
                case _:
                    _alter(session, ref, steps, after, commit)

    def undrop_table(self, ref: Ref, table: Table, commit: Commit) -> None:
        """A dropped table comes back under its name with its rows; nothing if it is back already."""
        with self.server.writing() as session:
            prepare(session)
            if (there := find(session, ref, lock=True)) is not None:
                refuse_another(there, table)
                return
            old = parked(dropped(session, ref), table.id)
            if old is None:
                raise gone(ref)
            if is_taken(session, ref):
                raise not_ours(ref)
            session.run(f"ALTER TABLE {session.name(ref[0], old.place)} RENAME TO {q(ref[1])}")
            remove_dropped(session, old)
            put(session, load(ref, commit.fence, old.text))
