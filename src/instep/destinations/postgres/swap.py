# ruff: noqa: S608 - names are quoted
"""A whole load: the next generation is built and indexed beside the table, and takes its place in one transaction.

Readers wait for the moments that the catalog needs, and see the old rows or the new ones. A table that others have
something on (views, triggers, indexes, a publication) stays itself, and its rows are exchanged: that takes longer, and
no lock that readers would wait for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from instep.destinations.postgres.ddl import definitions, describe, park, with_types
from instep.destinations.postgres.dependants import copy_rights, is_plain
from instep.destinations.postgres.index import INDEX, index
from instep.destinations.postgres.ingest import Staging, plain_reader
from instep.destinations.postgres.records import SCHEMA
from instep.destinations.postgres.server import Session
from instep.destinations.postgres.shape import as_document
from instep.destinations.sql.merge import columns, q, within
from instep.destinations.sql.records import Record
from instep.destinations.sql.staged import filled
from instep.stage.spec import StagedFile

_OLD = "_instep_old"


def next_generation(staging: Staging, shape: Record, files: Sequence[StagedFile]) -> None:
    """A table with the rows of the files, indexed and analysed, under a name of its own."""
    names = [c.name for c in shape.table.columns]
    name = staging.make("next", definitions(shape.table), logged=True)
    staging.copy("next", [plain_reader(f, names, staging.server.area) for f in filled(files)])
    with staging.server.writing() as session:
        if shape.table.key:
            index(session, name, shape.table.key, shape.place)
        session.run(f"ANALYZE {name}")


def exchange(session: Session, record: Record, new: str, count: int) -> tuple[Record, int]:
    """Puts the table `new` (as SQL names it), with its `count` rows, or these rows, into the place of the table; the
    record as it is then, and how many rows have no value in the columns that wait for an undo."""
    if record.pending is not None:
        park(session, replace(record, pending=None))
        return _take_place(session, record.waiting, new), count
    if not record.parked and record.within is None and is_plain(session, record.ref, new, INDEX):
        copy_rights(session, session.name(*record.ref), new)
        session.run(f"DROP TABLE {session.name(*record.ref)}")
        return _take_place(session, record, new), count
    return record, count - _rows_only(session, record, new)


def _take_place(session: Session, record: Record, new: str) -> Record:
    schema, name = record.ref
    bare = new.removeprefix(f"{q(SCHEMA)}.")
    session.run(f"ALTER TABLE {new} SET SCHEMA {session.schema(schema)}")
    session.run(f"ALTER TABLE {session.schema(schema)}.{bare} RENAME TO {q(name)}")
    describe(session, record.table)
    return with_types(session, record)


def _rows_only(session: Session, record: Record, new: str) -> int:
    """How many rows got back what they had in the columns that wait for an undo."""
    name, key, into = session.name(*record.ref), record.table.key, columns([c.name for c in record.table.columns])
    waiting = [p.place for p in record.parked] if key else []
    if waiting:
        sql = f"CREATE TEMP TABLE {_OLD} ON COMMIT DROP AS SELECT {columns((*key, *waiting))} FROM {name}"
        session.run(f"{sql} WHERE {within(record.within)}")
    session.run(f"DELETE FROM {name} WHERE {within(record.within)}")
    session.run(f"INSERT INTO {name} ({into}) SELECT {into} FROM {new}")
    if not waiting:
        return 0
    sets = ", ".join(f"{q(w)} = o.{q(w)}" for w in waiting)
    texts = {k: "::text" if as_document(record.table.by_name[k].type) else "" for k in key}
    same = " AND ".join(f"t.{q(k)}{texts[k]} = o.{q(k)}{texts[k]}" for k in key)
    return session.count(f"UPDATE {name} AS t SET {sets} FROM {_OLD} AS o WHERE {same}")
