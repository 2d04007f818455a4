# ruff: noqa: S608 - names are quoted or ours, values are parameters
"""Values that were kept as JSON beside a table's rows, taken out into columns of their own: one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from instep.crash import crashpoint
from instep.destinations.base import Commit, Fill, Filled, FillSize, Ref
from instep.destinations.overflow import OverflowColumn, Promoted
from instep.destinations.postgres.ingest import Staging, rows_of, whole
from instep.destinations.postgres.load import known, loading, rows, same
from instep.destinations.postgres.records import put, require
from instep.destinations.postgres.rewrite import BATCH, copy_rows
from instep.destinations.postgres.server import PostgresFacet, PostgresSession
from instep.destinations.postgres.shape import arrow_type, as_document, limits, sql_type
from instep.destinations.sql.fill import NOTE, NOTES, PLACE, FillSql, check_loaded, fill_size
from instep.destinations.sql.merge import q, within
from instep.destinations.sql.records import Record
from instep.stage.conform import compact_json
from instep.stage.field_metadata import limited
from instep.stage.overflow import from_texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_NEW = "_instep_promoted"
Row = tuple[Any, ...]


def _look(
    session: PostgresSession, record: Record, columns: Mapping[str, OverflowColumn], extra: str
) -> Iterator[list[Row]]:
    """(place, object, whether each column lacks a value) of the rows without a value that have an object."""
    lacks = [f"{q(c)} IS NULL" for c in columns]
    some = f"{q(extra)} IS NOT NULL AND ({' OR '.join(lacks)}) AND {within(record.within)}"
    what = ", ".join(["ctid::text", f"{q(extra)}::text", *lacks])
    with session.db.cursor("instep_promote") as cursor:
        cursor.execute(f"SELECT {what} FROM {session.name(*record.ref)} WHERE {some}".encode())
        while found := cursor.fetchmany(BATCH):
            yield found


def _of(found: Sequence[Row], columns: Mapping[str, OverflowColumn]) -> tuple[list[Row], int]:
    """Return rows that got a value (place, what is left of the object, the values), and how many values do not fit."""
    objects: list[dict[str, Any]] = [json.loads(row[1]) for row in found]
    got: list[set[str]] = [set() for _ in objects]
    values: list[list[Any]] = []
    invalid_values = 0
    for place, overflow in enumerate(columns.values(), 2):
        texts = overflow.texts(
            [o.get(overflow.name) if row[place] else None for o, row in zip(objects, found, strict=True)]
        )
        target = arrow_type(overflow.type)
        done = limited(from_texts(texts, overflow.type, target), pa.field("", target, metadata=limits(overflow.type)))
        invalid_values += len(done.invalid_values)
        values.append(done.values.to_pylist())
        for at, value in enumerate(values[-1]):
            got[at] |= {overflow.name} if value is not None else set()
    left = [{k: v for k, v in o.items() if k not in names} for o, names in zip(objects, got, strict=True)]
    texts = [compact_json(o) if o else None for o in left]
    made = zip((row[0] for row in found), texts, *values, strict=True)
    return [row for row, names in zip(made, got, strict=True) if names], invalid_values


class PostgresFills(PostgresFacet):
    """Values for rows that lack them, each time in one transaction."""

    def promote(self, ref: Ref, columns: Mapping[str, OverflowColumn], extra: str, commit: Commit) -> Promoted:
        """Bring kept values into columns, in one transaction."""
        with loading(self.server, ref, commit) as (session, record):
            state = record.state
            if state is None or extra not in record.table.by_name:
                return Promoted()
            kinds = [f"v{i} {sql_type(column.type)}" for i, column in enumerate(columns.values())]
            session.run(f"CREATE TEMP TABLE {_NEW} (n tid, o json, {', '.join(kinds)}) ON COMMIT DROP")
            done = invalid_values = 0
            for found in _look(session, record, columns, extra):
                made, odd = _of(found, columns)
                copy_rows(session, _NEW, made)
                done, invalid_values = done + len(made), invalid_values + odd
            if done:
                sets = [f"{q(c)} = coalesce(t.{q(c)}, s.v{i})" for i, c in enumerate(columns)]
                target = session.name(*ref)
                session.run(
                    f"UPDATE {target} AS t SET {', '.join(sets)}, {q(extra)} = s.o FROM {_NEW} AS s WHERE t.ctid = s.n"
                )
                own = replace(commit, cursor=state.cursor, accepted=state.accepted)
                put(session, record.after_load(own, rows(session, record), new=0))
        crashpoint("promote.committed")
        return Promoted(done, invalid_values)

    def fill_size(self, ref: Ref, columns: Mapping[str, int]) -> FillSize:
        with self.server.reading() as session:
            record = require(session, ref)
            return fill_size(session, record, columns, rows(session, record))

    def fill(
        self,
        spark: SparkSession | None,
        ref: Ref,
        work: Fill,
        commit: Commit,
        on_progress: Callable[[int, int], None],
        go_on: Callable[[], bool],
    ) -> Filled:
        """Rows with NULL in a column get its value; a value that is there is never replaced. In one
        transaction, so that nothing is asked in between. Cursor and accepted fingerprint stay."""
        record = known(self.server, ref, commit)
        check_loaded(record)
        staging = Staging(self.server, record, commit)
        documents = frozenset(c.name for c in record.table.columns if as_document(c.type))
        with staging.used("fill"):
            values = staging.files("fill", record.table, [*work.key, *work.columns, work.meta], work.values)
            with loading(self.server, ref, commit) as (session, found):
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
        self.server.area.consume(work.values)
        done = Filled(filled, int(filled > 0), sum(f.bytes for f in work.values))
        on_progress(done.rows, done.bytes)
        return done

    def restore_dropped_values(self, ref: Ref, column: str, commit: Commit) -> int:
        """Do nothing: a dropped column waits in its table and keeps its values through updates and full loads."""
        return 0
