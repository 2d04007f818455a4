"""Brings values into rows that have none: one UPDATE from the staged files, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from instep.crash import crashpoint
from instep.destinations.base import Commit, Fill, Filled, FillSize, Ref
from instep.destinations.duckdb.file import DatabaseFile, Session
from instep.destinations.duckdb.load import loading, rows, stage
from instep.destinations.duckdb.records import put, require
from instep.destinations.sql.fill import NOT_LOADED, NOTE, NOTES, PLACE, FillSql, check_loaded, fill_size
from instep.destinations.sql.staged import consume

VALUES = "_instep_values"


def size(file: DatabaseFile, ref: Ref, columns: Mapping[str, int]) -> FillSize:
    with file.reading() as session:
        if session is None:
            return FillSize(why_not=NOT_LOADED)
        record = require(session, ref)
        return fill_size(session, record, columns, rows(session, record))


def fill(file: DatabaseFile, ref: Ref, work: Fill, commit: Commit) -> Filled:
    """Rows with NULL in a column get its value; a value that is there is never replaced. Cursor and accepted
    fingerprint stay."""
    with loading(file, ref, commit) as (session, record):
        check_loaded(record)
        stage(session, record, VALUES, [*work.key, *work.columns, work.meta], work.values)
        sql = FillSql(work, session.name(*ref), VALUES)
        _note(session, sql.changed(session.run(sql.notes)))
        crashpoint("fill.rewritten")
        filled = session.count(sql.update)
        for table in (VALUES, NOTES):
            session.run(f"DROP TABLE {table}")
        put(session, record.after_fill(commit, rows(session, record), work.columns.values()))
    crashpoint("fill.committed")
    consume(work.values)
    return Filled(filled, int(filled > 0), sum(f.bytes for f in work.values))


def _note(session: Session, notes: list[tuple[int, str | None]]) -> None:
    arrays = [pa.array([p for p, _ in notes], pa.int64()), pa.array([n for _, n in notes], pa.string())]
    session.db.register("_instep_new_notes", pa.table(arrays, names=[PLACE, NOTE]))
    session.run(f"CREATE TEMP TABLE {NOTES} AS SELECT * FROM _instep_new_notes")  # noqa: S608
    session.db.unregister("_instep_new_notes")
