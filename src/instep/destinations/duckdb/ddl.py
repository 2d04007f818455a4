# ruff: noqa: S608 - names are quoted or ours, values are parameters
"""Executes the steps of one table, all of them in one transaction with the record of what they lead to.

Views of ours in the file: the text that the file tells of each is on record, so that another's is known for one.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa

from instep.destinations.base import Commit, Ref
from instep.destinations.duckdb.file import DuckDbFacet, DuckDbSession
from instep.destinations.duckdb.records import (
    arrow_type,
    as_it_is,
    begun,
    check_names,
    comments,
    dropped,
    find,
    is_taken,
    not_ours,
    physical,
    prepare,
    put,
    put_dropped,
    remove,
    remove_dropped,
    require,
    sql_type,
    types_of,
)
from instep.destinations.rows import cast_all
from instep.destinations.sql.alter import (
    PARKED,
    SCHEMA,
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
from instep.destinations.sql.records import Record, load, numbered
from instep.destinations.sql.shape import Physical
from instep.destinations.types import DUCKDB_PROMOTIONS
from instep.errors import Conflict, DestinationError, IllegalChange
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import Boolean, DataType, Json
from instep.schema.changes.describe import TableAdded, TableRemoved, TableRenamed, TableReplaced
from instep.schema.planning.aliases import View, carried
from instep.schema.planning.hazard import Capabilities
from instep.schema.planning.step import Step

BATCH = 100_000


def rewrite(session: DuckDbSession, table: str, place: str, before: DataType, column: Column) -> None:
    """Add `column` with the values that the column at `place`, of the type `before`, holds; IllegalChange if one does
    not fit."""
    target = arrow_type(column.type)
    schema = pa.schema([("n", pa.int64()), ("v", target)])
    value = f"{q(place)}::VARCHAR" if isinstance(before, Json) else q(place)
    sql = f"SELECT rowid AS n, {value} AS v FROM {table} WHERE {q(place)} IS NOT NULL"

    # a boolean comes as an 8-bit integer of its own type, whose text would be a number
    def batches() -> Iterator[pa.RecordBatch]:
        for batch in session.batches(sql, BATCH):
            own = batch.column(1).cast(pa.bool_()) if isinstance(before, Boolean) else batch.column(1)
            values = cast_all(column.name, own, before, column.type, target)
            yield pa.record_batch([batch.column(0), values], schema=schema)

    made = pa.Table.from_batches(list(batches()), schema)
    session.run(f"ALTER TABLE {table} ADD COLUMN {q(column.name)} {sql_type(column.type)}")
    session.db.register("_instep_values", made)
    session.run(f"UPDATE {table} AS t SET {q(column.name)} = s.v FROM _instep_values AS s WHERE t.rowid = s.n")
    session.db.unregister("_instep_values")


CAPABILITIES = Capabilities(
    name="duckdb",
    promotes=DUCKDB_PROMOTIONS,
    transactional_ddl=True,
    undo_by_id=True,
    simultaneous_renames=True,
    comments=True,
    keys=True,
    views=True,
    merges_requested=True,
)


def table_as_it_is(session: DuckDbSession, record: Record) -> Table:
    return as_it_is(record, physical(session).get(record.ref, ()), comments(session).get(record.ref))


def create(session: DuckDbSession, table: Table, changes: Sequence[str], commit: Commit) -> None:
    """An empty table; Conflict if the name is taken."""
    hint = "plan again" if find(session, table.ref) else not_ours(table.ref).hint
    try:
        made = make(session, numbered(Record(table, uuid.uuid4().hex)))
    except duckdb.CatalogException as error:
        if "already exists" not in str(error):
            raise
        raise Conflict(f"table {named(table.ref)} exists", hint=hint) from error
    put(session, made.after_changes(commit, changes))


def make(session: DuckDbSession, record: Record) -> Record:
    """Create the table of a record; returns the record with the types as the file tells them."""
    table = record.table
    check_names(table)
    session.run(f"CREATE SCHEMA IF NOT EXISTS {session.schema(table.schema)}")
    columns = (f"{q(c.name)} {sql_type(c.type)}{'' if c.nullable else ' NOT NULL'}" for c in table.columns)
    name = session.name(*table.ref)
    session.run(f"CREATE TABLE {name} ({', '.join(columns)})")
    if table.comment:
        _comment(session, f"TABLE {name}", table.comment)
    for column in table.columns:
        if column.comment:
            _comment(session, f"COLUMN {name}.{q(column.name)}", column.comment)
    return with_types(session, record)


def with_types(session: DuckDbSession, record: Record) -> Record:
    return replace(record, stored=types_of(session, *record.ref))


def _comment(session: DuckDbSession, what: str, text: str | None) -> None:
    literal = "NULL" if not text else "'" + text.replace("'", "''") + "'"
    session.run(f"COMMENT ON {what} IS {literal}")


def _park(session: DuckDbSession, ref: Ref, commit: Commit) -> None:
    """A dropped table moves out of sight, to be deleted when its time for undoing is over."""
    if (record := find(session, ref)) is not None:
        record.check(commit.fence)
        park(session, record)
        remove(session, ref)


def park(session: DuckDbSession, record: Record) -> None:
    place = f"{PARKED}{uuid.uuid4().hex[:12]}"
    session.run(f"ALTER TABLE {session.name(*record.ref)} RENAME TO {q(place)}")
    put_dropped(session, record, place, now_ms())


def _replace(session: DuckDbSession, record: Record, table: Table, steps: Sequence[Step], commit: Commit) -> None:
    """The new generation waits beside the old one, which readers keep until the first load swaps it in."""
    record.check(commit.fence)
    check_names(table)
    put(session, replace(record, pending=plain(table)).after_changes(commit, [s.id for s in steps]))


def swap_in(session: DuckDbSession, record: Record) -> Record:
    """Parks the table and makes the generation that waits, without rows."""
    put_back = apart(session, record.ref)
    park(session, replace(record, pending=None))
    made = make(session, record.waiting)
    put_back(())
    return made


def _alter(session: DuckDbSession, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit) -> None:
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
    changes = [s.id for s in steps]
    if record.pending is not None:
        made = replace(record, pending=plain(wanted))
    else:
        made = _columns(session, record, steps, replace(wanted, schema=ref[0], name=ref[1]))
    if moved is not None:
        made = _move(session, made, moved.ref)
    put(session, taken_along(session, made.after_changes(commit, changes), commit), was=ref)


def _columns(session: DuckDbSession, record: Record, steps: Sequence[Step], wanted: Table) -> Record:
    """Return the table with its next columns; its rows stay."""
    check_names(wanted)
    now = table_as_it_is(session, record)
    evolution = evolve(now, record.parked, steps, wanted)
    name, at = session.name(*record.ref), now_ms()
    lost = evolution.parking(record, PARKED, at)
    for column, waits in lost:
        hide_column(session, name, column, waits.place)
    rename_columns(session, name, evolution)
    made = evolved(record, evolution, wanted, lost)
    hidden = {p.name: p.place for _, p in lost}
    has_rowid = any(c.name.casefold() == "rowid" for c in wanted.columns)
    for source in evolution.columns:
        _fit(session, name, source, hidden, has_rowid=has_rowid)
    if (now.comment or "") != (wanted.comment or ""):
        _comment(session, f"TABLE {name}", wanted.comment)
    return with_types(session, made)


def _fit(session: DuckDbSession, table: str, source: ColumnOrigin, hidden: dict[str, str], *, has_rowid: bool) -> None:
    """The column, under its new name already, gets its type, its NULLs and its comment."""
    column, before = source.column, source.before
    if source.rewrite is not None and before is not None:
        if has_rowid:
            hint = "call it another name at the source, or load the table again with `instep sync --full`"
            raise IllegalChange(f"column {column.name!r} cannot be rewritten beside a column called rowid", hint=hint)
        rewrite(session, table, hidden[before.name], before.type, column)
    elif before is None and source.parked is None:
        session.run(f"ALTER TABLE {table} ADD COLUMN {q(column.name)} {sql_type(column.type)}")
    elif before is not None:
        if not CAPABILITIES.promotes_in_place(before.type, column.type):
            raise IllegalChange(
                f"column {column.name!r}: DuckDB cannot turn {before.type} into {column.type} in place",
                hint="the column has to be rewritten: add a new column, fill it, drop the old one",
            )
        if sql_type(before.type) != sql_type(column.type):
            session.run(f"ALTER TABLE {table} ALTER COLUMN {q(column.name)} SET DATA TYPE {sql_type(column.type)}")
        if column.nullable and not before.nullable:
            session.run(f"ALTER TABLE {table} ALTER COLUMN {q(column.name)} DROP NOT NULL")
    if (column.comment or "") != ((before.comment if before and not source.rewrite else "") or ""):
        _comment(session, f"COLUMN {table}.{q(column.name)}", column.comment)


def _move(session: DuckDbSession, record: Record, new: Ref) -> Record:
    """Under another name; into another schema it is rewritten, as DuckDB moves no table."""
    if is_taken(session, new) and new[1].casefold() != record.ref[1].casefold():
        raise Conflict(f"table {named(record.ref)} cannot be renamed: {named(new)} exists", hint="plan again")
    moved = replace(record, table=replace(record.table, schema=new[0], name=new[1]))
    old, schema = session.name(*record.ref), record.ref[0]
    if new[0] == schema:
        session.run(f"ALTER TABLE {old} RENAME TO {q(new[1])}")
        return moved
    made = make(session, moved)
    for waits in record.parked:
        kind = record.stored.get(waits.place, "VARCHAR")
        session.run(f"ALTER TABLE {session.name(*new)} ADD COLUMN {q(waits.place)} {kind}")
    names = ", ".join(q(n) for n in (*(c.name for c in moved.table.columns), *(p.place for p in record.parked)))
    session.run(f"INSERT INTO {session.name(*new)} ({names}) SELECT {names} FROM {old}")
    session.run(f"DROP TABLE {old}")
    return with_types(session, made)


class DuckDbDdl(DuckDbFacet):
    """What changes tables."""

    def execute(self, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit) -> None:
        """All steps of one table; what is done already (a run before this one crashed) is not done again."""
        with self.file.writing() as session:
            prepare(session)
            record = find(session, ref)
            if record is not None and after is not None and table_as_it_is(session, record) == after:
                if commit.part:
                    put(session, taken_along(session, record.after_changes(commit, [s.id for s in steps]), commit))
                return
            put_back = apart(session, ref)
            match steps[0].change:
                case TableAdded(after=table):
                    create(session, after or table, [s.id for s in steps], commit)
                case TableRemoved():
                    _park(session, ref, commit)
                case TableReplaced(after=table):
                    _replace(session, require(session, ref), after or table, steps, commit)
                case _:
                    _alter(session, ref, steps, after, commit)
            put_back(steps)

    def undrop_table(self, ref: Ref, table: Table, commit: Commit) -> None:
        """A dropped table comes back under its name with its rows; nothing if it is back already."""
        with self.file.writing() as session:
            prepare(session)
            if (there := find(session, ref)) is not None:
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


_TEXTS = "SELECT schema_name, view_name, sql FROM duckdb_views() WHERE database_name = ? AND NOT internal"


@dataclass(frozen=True)
class _RecordedView:
    """A view on record: the types of its columns when it was made, and what the file told of it then."""

    view: View
    types: tuple[str, ...]
    text: str


def _table(session: DuckDbSession) -> str:
    return session.name(SCHEMA, "views")


def _recorded_views(session: DuckDbSession) -> dict[Ref, _RecordedView]:
    """Return the views on record that stand as they were made."""
    if not begun(session, "views"):
        return {}
    rows = session.run(f"SELECT namespace, name, record FROM {_table(session)}")
    if not rows:
        return {}
    texts = {(schema, name): text for schema, name, text in session.run(_TEXTS, [session.catalog])}
    found = {}
    for schema, name, record in rows:
        document = json.loads(record)
        columns = tuple((a, b) for a, b in document["columns"])
        view = View((schema, name), (document["table"][0], document["table"][1]), columns, document["owner"])
        if texts.get(view.ref) == document["text"]:
            found[view.ref] = _RecordedView(view, tuple(document["types"]), document["text"])
    return found


def views(session: DuckDbSession) -> dict[Ref, View]:
    """Return all that are ours."""
    return {ref: recorded.view for ref, recorded in _recorded_views(session).items()}


def not_views(session: DuckDbSession) -> dict[Ref, tuple[Physical, ...]]:
    """Return what there is beside our views: the columns of tables, and of views that others have made."""
    hidden = _recorded_views(session)
    return {ref: columns for ref, columns in physical(session).items() if ref not in hidden}


def _is_taken(session: DuckDbSession, ref: Ref) -> bool:
    wanted = (ref[0].casefold(), ref[1].casefold())
    return any((r[0].casefold(), r[1].casefold()) == wanted for r in physical(session))


def _drop(session: DuckDbSession, refs: Iterable[Ref]) -> None:
    for ref in refs:
        session.run(f"DROP VIEW {session.name(*ref)}")
        session.run(f"DELETE FROM {_table(session)} WHERE namespace = ? AND name = ?", ref)


def _write(session: DuckDbSession, view: View, before: _RecordedView | None) -> None:
    """By the table's columns as they are; nothing that is already so."""
    there = {p.name: p.type for p in physical(session).get(view.table, ())}
    columns = tuple((name, column) for name, column in view.columns if column in there)
    made = View(view.ref, view.table, columns, view.owner)
    types = tuple(there[column] for _, column in columns)
    if not columns or (before is not None and (before.view, before.types) == (made, types)):
        return
    if before is not None:
        _drop(session, [view.ref])
    shown = ", ".join(q(c) if n == c else f"{q(c)} AS {q(n)}" for n, c in columns)
    # DuckDB looks for the table beside the view; with its schema it would be ambiguous in a file of the schema's name
    session.run(f"CREATE VIEW {session.name(*view.ref)} AS SELECT {shown} FROM {q(view.table[1])}")
    [text] = [t for s, n, t in session.run(_TEXTS, [session.catalog]) if (s, n) == view.ref]
    document = {"table": view.table, "columns": columns, "owner": view.owner, "types": types, "text": text}
    session.run(f"INSERT INTO {_table(session)} VALUES (?, ?, ?)", [*view.ref, json.dumps(document)])


def apart(session: DuckDbSession, table: Ref) -> Callable[[Sequence[Step]], None]:
    """Take the views of a table away while it is altered in this transaction; what it answers puts those back, in
    the same transaction, that something is left of once the table has been through the steps."""
    mine = [view for view in views(session).values() if view.table == table]
    _drop(session, [view.ref for view in mine])

    def put_back(steps: Sequence[Step]) -> None:
        for moved in (carried(view, steps) for view in mine):
            if moved is not None:
                _write(session, moved, None)

    return put_back


class DuckDbViews(DuckDbFacet):
    """Views of ours."""

    why_none = ""

    def all(self) -> dict[Ref, View]:
        """Return all that are ours."""
        with self.file.reading() as session:
            return views(session) if session else {}

    def put(self, view: View, fence: int) -> None:
        """Make or change a view by its table's columns as they are now; Fenced if a later run has claimed the table."""
        with self.file.writing() as session:
            prepare(session)
            record = find(session, view.table)
            if record is None:
                return
            record.check(fence)
            recorded = _recorded_views(session)
            if view.ref not in recorded and _is_taken(session, view.ref):
                raise Conflict(
                    f"{named(view.ref)} exists and is not ours", hint="rename it, or do without the old name"
                )
            _write(session, view, recorded.get(view.ref))

    def drop(self, ref: Ref) -> None:
        """Nothing if there is no view of ours of this name."""
        with self.file.writing() as session:
            _drop(session, [ref] if ref in _recorded_views(session) else [])
