"""Brings values into rows that have none: one UPDATE from the staged values, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping

from instep.crash import crashpoint
from instep.destinations.base import Commit, Fill, Filled, FillSize, Ref
from instep.destinations.postgres.ingest import Staging, rows_of, whole
from instep.destinations.postgres.load import known, loading, rows, same
from instep.destinations.postgres.records import put, require
from instep.destinations.postgres.rewrite import copy_rows
from instep.destinations.postgres.server import Server
from instep.destinations.postgres.shape import as_document
from instep.destinations.sql.fill import NOTE, NOTES, PLACE, FillSql, check_loaded, fill_size


def size(server: Server, ref: Ref, columns: Mapping[str, int]) -> FillSize:
    with server.reading() as session:
        record = require(session, ref)
        return fill_size(session, record, columns, rows(session, record))


def fill(server: Server, ref: Ref, work: Fill, commit: Commit) -> Filled:
    """Rows with NULL in a column get its value; a value that is there is never replaced. Cursor and accepted
    fingerprint stay."""
    record = known(server, ref, commit)
    check_loaded(record)
    staging = Staging(server, record, commit)
    documents = frozenset(c.name for c in record.table.columns if as_document(c.type))
    with staging.used("fill"):
        values = staging.files("fill", record.table, [*work.key, *work.columns, work.meta], work.values)
        with loading(server, ref, commit) as (session, found):
            same(found, record)
            whole(session, values, rows_of(work.values))
            sql = FillSql(work, session.name(*ref), values, documents)
            notes = sql.changed(session.run(sql.notes))
            session.run(f"CREATE TEMP TABLE {NOTES} ({PLACE} bigint, {NOTE} json) ON COMMIT DROP")
            copy_rows(session, NOTES, notes)
            crashpoint("fill.rewritten")
            filled = session.count(sql.update)
            put(session, found.after_fill(commit, rows(session, found), work.columns.values()))
    crashpoint("fill.committed")
    server.area.consume(work.values)
    return Filled(filled, int(filled > 0), sum(f.bytes for f in work.values))
