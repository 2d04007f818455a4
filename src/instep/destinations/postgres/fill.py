# ruff: noqa: S608 - names are quoted, values are parameters
"""Brings values into rows that have none: one UPDATE from the staged values, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from instep.crash import crashpoint
from instep.destinations.base import Commit, Fill, Filled, FillSize, Ref
from instep.destinations.notes import merged
from instep.destinations.postgres.ingest import ORDER, Staging, rows_of, whole
from instep.destinations.postgres.load import known, loading, rows, same
from instep.destinations.postgres.records import named, put, require
from instep.destinations.postgres.rewrite import copy_rows
from instep.destinations.postgres.server import Server, Session
from instep.destinations.postgres.shape import as_document
from instep.destinations.sql.merge import q, within
from instep.destinations.sql.records import KEPT, Record
from instep.errors import DestinationError

NOTES = "_instep_notes"
PLACE, NOTE = "_instep_place", "_instep_note"


def size(server: Server, ref: Ref, columns: Mapping[str, int]) -> FillSize:
    """The table counts as one file. Nothing is left to do once all of these backfills have been through it."""
    with server.reading() as session:
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


def fill(server: Server, ref: Ref, work: Fill, commit: Commit) -> Filled:
    """Rows with NULL in a column get its value; a value that is there is never replaced. Cursor and accepted
    fingerprint stay."""
    record = known(server, ref, commit)
    if record.state is None:
        why = f"table {named(ref)} cannot be filled: it has not been loaded yet"
        raise DestinationError(why, hint="load the whole table again")
    staging = Staging(server, record, commit)
    with staging.used("fill"):
        values = staging.files("fill", record.table, [*work.key, *work.columns, work.meta], work.values)
        with loading(server, ref, commit) as (session, found):
            same(found, record)
            whole(session, values, rows_of(work.values))
            assert found.state is not None, "it is the record that was looked at"
            _note(session, found, work, values)
            crashpoint("fill.rewritten")
            filled = _update(session, found, work, values)
            own = replace(commit, cursor=found.state.cursor, accepted=found.state.accepted)
            fills = tuple(dict.fromkeys((*found.fills, *work.columns.values())))[-KEPT:]
            put(session, replace(found.after_load(own, rows(session, found), new=0), fills=fills))
    crashpoint("fill.committed")
    server.area.consume(work.values)
    return Filled(filled, int(filled > 0), sum(f.bytes for f in work.values))


def _same(record: Record, work: Fill) -> str:
    texts = {k: "::text" if as_document(record.table.by_name[k].type) else "" for k in work.key}
    return " AND ".join(f"t.{q(k)}{texts[k]} = s.{q(k)}{texts[k]}" for k in work.key)


def _gets(work: Fill) -> str:
    """Whether a row lacks a value that was staged."""
    return " OR ".join(f"(t.{q(c)} IS NULL AND s.{q(c)} IS NOT NULL)" for c in work.columns)


def _note(session: Session, record: Record, work: Fill, values: str) -> None:
    """A temporary table with what the notes of rows become: a column that has a value now is not noted any more, one
    whose staged value did not fit is."""
    meta, columns = q(work.meta), list(work.columns)
    lacks = ", ".join(f"t.{q(c)} IS NULL AND s.{q(c)} IS NULL" for c in columns)
    noted = f"t.{meta} IS NOT NULL OR s.{meta} IS NOT NULL"
    found = session.run(
        f"SELECT s.{ORDER}, t.{meta}::text, s.{meta}::text, {lacks} "
        f"FROM {session.name(*record.ref)} AS t JOIN {values} AS s ON {_same(record, work)} WHERE {noted}"
    )
    notes = [
        (place, merged(old, new, {c for c, lack in zip(columns, lacking, strict=True) if lack}, columns), old)
        for place, old, new, *lacking in found
    ]
    session.run(f"CREATE TEMP TABLE {NOTES} ({PLACE} bigint, {NOTE} json) ON COMMIT DROP")
    copy_rows(session, NOTES, [(place, note) for place, note, old in notes if note != old])


def _update(session: Session, record: Record, work: Fill, values: str) -> int:
    """The rows that got a value, or another note."""
    sets = [f"{q(c)} = coalesce(t.{q(c)}, s.{q(c)})" for c in work.columns]
    sets.append(f"{q(work.meta)} = CASE WHEN s.{PLACE} IS NULL THEN t.{q(work.meta)} ELSE s.{NOTE} END")
    source = f"SELECT v.*, n.{PLACE}, n.{NOTE} FROM {values} AS v LEFT JOIN {NOTES} AS n ON n.{PLACE} = v.{ORDER}"
    return session.count(
        f"UPDATE {session.name(*record.ref)} AS t SET {', '.join(sets)} FROM ({source}) AS s "
        f"WHERE {_same(record, work)} AND ({_gets(work)} OR s.{PLACE} IS NOT NULL)"
    )
