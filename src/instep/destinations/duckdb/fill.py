# ruff: noqa: S608 - names are quoted, values are parameters
"""Brings values into rows that have none: one UPDATE from the staged files, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from instep.crash import crashpoint
from instep.destinations.base import Commit, Fill, Filled, FillSize, Ref
from instep.destinations.duckdb.file import DatabaseFile, Session
from instep.destinations.duckdb.load import ORDER, loading, rows, stage
from instep.destinations.duckdb.records import named, put, require
from instep.destinations.notes import merged
from instep.destinations.sql.merge import q, within
from instep.destinations.sql.records import KEPT, Record
from instep.destinations.sql.staged import consume
from instep.errors import DestinationError

VALUES, NOTES = "_instep_values", "_instep_notes"
PLACE, NOTE = "_instep_place", "_instep_note"


def size(file: DatabaseFile, ref: Ref, columns: Mapping[str, int]) -> FillSize:
    """The table counts as one file. Nothing is left to do once all of these backfills have been through it."""
    with file.reading() as session:
        if session is None:
            return FillSize(why_not="it has not been loaded yet")
        record = require(session, ref)
        if record.state is None:
            return FillSize(why_not="it has not been loaded yet")
        mine = within(record.within)
        lacks = " OR ".join(f"{q(c)} IS NULL" for c in columns)
        done = set(columns.values()) <= set(record.fills)
        count = 0 if done else session.count(f"SELECT count(*) FROM {session.name(*ref)} WHERE ({lacks}) AND {mine}")
        whole = rows(session, record)
    share = count / whole if whole else 0
    return FillSize(int(count > 0), count, int(record.state.bytes * share), 1)


def fill(file: DatabaseFile, ref: Ref, work: Fill, commit: Commit) -> Filled:
    """Rows with NULL in a column get its value; a value that is there is never replaced. Cursor and accepted
    fingerprint stay."""
    with loading(file, ref, commit) as (session, record):
        state = record.state
        if state is None:
            why = f"table {named(ref)} cannot be filled: it has not been loaded yet"
            raise DestinationError(why, hint="load the whole table again")
        stage(session, record, VALUES, [*work.key, *work.columns, work.meta], work.values)
        _note(session, record, work)
        crashpoint("fill.rewritten")
        filled = _update(session, record, work)
        own = replace(commit, cursor=state.cursor, accepted=state.accepted)
        fills = tuple(dict.fromkeys((*record.fills, *work.columns.values())))[-KEPT:]
        put(session, replace(record.after_load(own, rows(session, record), new=0), fills=fills))
    crashpoint("fill.committed")
    consume(work.values)
    return Filled(filled, int(filled > 0), sum(f.bytes for f in work.values))


def _same(work: Fill) -> str:
    return " AND ".join(f"t.{q(k)} = s.{q(k)}" for k in work.key)


def _gets(work: Fill, side: str = "s") -> str:
    """Whether a row lacks a value that was staged."""
    return " OR ".join(f"(t.{q(c)} IS NULL AND {side}.{q(c)} IS NOT NULL)" for c in work.columns)


def _note(session: Session, record: Record, work: Fill) -> None:
    """A temporary table with what the notes of rows become: a column that has a value now is not noted any more, one
    whose staged value did not fit is."""
    meta, columns = q(work.meta), list(work.columns)
    lacks = ", ".join(f"t.{q(c)} IS NULL AND s.{q(c)} IS NULL" for c in columns)
    noted = f"t.{meta} IS NOT NULL OR s.{meta} IS NOT NULL"
    found = session.run(
        f"SELECT s.{ORDER}, t.{meta}::VARCHAR, s.{meta}::VARCHAR, {lacks} "
        f"FROM {session.name(*record.ref)} AS t JOIN {VALUES} AS s ON {_same(work)} WHERE {noted}"
    )
    notes = [
        (place, merged(old, new, {c for c, lack in zip(columns, lacking, strict=True) if lack}, columns), old)
        for place, old, new, *lacking in found
    ]
    changed = [(place, note) for place, note, old in notes if note != old]
    arrays = [pa.array([p for p, _ in changed], pa.int64()), pa.array([n for _, n in changed], pa.string())]
    session.db.register("_instep_new_notes", pa.table(arrays, names=[PLACE, NOTE]))
    session.run(f"CREATE TEMP TABLE {NOTES} AS SELECT * FROM _instep_new_notes")
    session.db.unregister("_instep_new_notes")


def _update(session: Session, record: Record, work: Fill) -> int:
    """The rows that got a value, or another note."""
    sets = [f"{q(c)} = coalesce(t.{q(c)}, s.{q(c)})" for c in work.columns]
    sets.append(f"{q(work.meta)} = CASE WHEN s.{PLACE} IS NULL THEN t.{q(work.meta)} ELSE s.{NOTE} END")
    source = f"SELECT v.*, n.{PLACE}, n.{NOTE} FROM {VALUES} AS v LEFT JOIN {NOTES} AS n ON n.{PLACE} = v.{ORDER}"
    number = session.count(
        f"UPDATE {session.name(*record.ref)} AS t SET {', '.join(sets)} FROM ({source}) AS s "
        f"WHERE {_same(work)} AND ({_gets(work)} OR s.{PLACE} IS NOT NULL)"
    )
    for table in (VALUES, NOTES):
        session.run(f"DROP TABLE {table}")
    return number
