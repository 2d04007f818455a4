# ruff: noqa: S608 - names are quoted
"""Fill columns in existing rows: from a backfill, or from the overflow JSON of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from instep.crash import crashpoint
from instep.destinations.base import HERE, BackfillResult, Commit, FileWorkers, Fill, FillSize, Ref
from instep.destinations.overflow import OverflowColumn, Promoted, extract_values
from instep.destinations.sql.database import SqlFacet
from instep.destinations.sql.loads import count_rows
from instep.destinations.sql.merge import NOTE, NOTES, PLACE, FillSql, q, shard_condition
from instep.destinations.sql.record_tables import named, put, require
from instep.destinations.sql.records import Record
from instep.destinations.sql.session import Dialect, SqlSession
from instep.errors import DestinationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROMOTED, _NOT_LOADED = "_instep_promoted", "it has not been loaded yet"


@dataclass
class _Promotion:
    """Rows of a table that get values out of their objects in the column `extra`."""

    dialect: Dialect
    columns: Mapping[str, OverflowColumn]
    extra: str
    invalid_values: int = 0

    @property
    def types(self) -> dict[str, str]:
        """The places of the rows, what their objects become, the values by column."""
        values = {f"v{i}": self.dialect.sql_type(c.type) for i, c in enumerate(self.columns.values())}
        return {"n": self.dialect.row_id.type, "o": "json", **values}

    def rows(self, session: SqlSession, record: Record) -> Iterator[pa.RecordBatch]:
        """Yield rows that have no value but an overflow object."""
        lacks, row = [f"{q(c)} IS NULL" for c in self.columns], self.dialect.row_id
        some = f"{q(self.extra)} IS NOT NULL AND ({' OR '.join(lacks)}) AND {shard_condition(record.within)}"
        what = ", ".join([row.shown, f"{q(self.extra)}::text", *lacks])
        flags = [(f"l{i}", pa.bool_()) for i in range(len(lacks))]
        read = pa.schema([("n", row.arrow), ("o", pa.string()), *flags])
        for batch in session.scan(f"SELECT {what} FROM {session.name(*record.ref)} WHERE {some}", read):
            if len(promoted := self._promoted(batch)):
                yield promoted

    def _promoted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = list(self.columns.values())
        fields = [pa.field("", self.dialect.arrow_type(c.type), metadata=self.dialect.limits(c.type)) for c in columns]
        done = extract_values(batch.column(1), batch.columns[2:], columns, fields)
        self.invalid_values += done.invalid_values
        values = pa.record_batch([batch.column(0), done.left, *done.values], names=list(self.types))
        return values.filter(done.gets)

    @property
    def sets(self) -> str:
        values = [f"{q(c)} = coalesce(t.{q(c)}, s.v{i})" for i, c in enumerate(self.columns)]
        return ", ".join([*values, f"{q(self.extra)} = s.o"])


class SqlFills(SqlFacet):
    """Values for rows that lack them, each time in one transaction."""

    def promote(
        self,
        ref: Ref,
        columns: Mapping[str, OverflowColumn],
        extra: str,
        commit: Commit,
        workers: FileWorkers = HERE,
    ) -> Promoted:
        """Move overflow values into columns, in one transaction."""
        row, work = self.database.dialect.row_id, _Promotion(self.database.dialect, columns, extra)
        with self.database.loading(ref, commit) as (session, record):
            state = record.state
            if state is None or extra not in record.table.by_name:
                return Promoted()
            if session.dialect.hides_rows(record.table):
                why = f"table {named(ref)} has a column called {row.name}, which hides the places of its rows"
                raise DestinationError(why, hint="load the table again with `instep sync --full`")
            with session.temporary(_PROMOTED, work.types, work.rows(session, record)) as done:
                if done:
                    same = f"t.{row.name} = s.n"
                    session.run(f"UPDATE {session.name(*ref)} AS t SET {work.sets} FROM {_PROMOTED} AS s WHERE {same}")
                    own = replace(commit, cursor=state.cursor, accepted=state.accepted)
                    put(session, record.after_load(own, count_rows(session, record), new=0))
        crashpoint("promote.committed")
        return Promoted(done, work.invalid_values)

    def fill_size(self, ref: Ref, columns: Mapping[str, int]) -> FillSize:
        """Estimate a fill; the table counts as one file. Nothing is left to do once all of these backfills have
        covered it."""
        with self.database.reading() as session:
            if not session.has_records("dropped"):
                return FillSize(why_not=_NOT_LOADED)
            record = require(session, ref)
            if record.state is None:
                return FillSize(why_not=_NOT_LOADED)
            rows, lacking = count_rows(session, record), 0
            if not set(columns.values()) <= set(record.fills):
                lacks = " OR ".join(f"{q(c)} IS NULL" for c in columns)
                some = f"({lacks}) AND {shard_condition(record.within)}"
                lacking = session.count(f"SELECT count(*) FROM {session.name(*ref)} WHERE {some}")
        share = lacking / rows if rows else 0
        return FillSize(int(lacking > 0), lacking, int(record.state.bytes * share), 1)

    def fill(
        self,
        session: SparkSession | None,
        ref: Ref,
        work: Fill,
        commit: Commit,
        on_progress: Callable[[int, int], None],
        go_on: Callable[[], bool],
    ) -> BackfillResult:
        """Fill NULLs of a column with its value, never replacing a value, in one transaction. Cursor and accepted
        fingerprint stay."""
        record = self.database.known(ref, commit)
        if record.state is None:
            why = f"table {named(ref)} cannot be filled: {_NOT_LOADED}"
            raise DestinationError(why, hint="load the whole table again")
        with self.database.staging(record, commit, lambda: session) as staging:
            staging.add("fill", [*work.key, *work.columns, work.meta], work.values)
            with staging.loading() as (transaction, current):
                filled = _fill(transaction, current, work, staging.table("fill"))
                rows = count_rows(transaction, current)
                put(transaction, current.after_fill(commit, rows, work.columns.values()))
        crashpoint("fill.committed")
        self.database.area.consume(work.values)
        done = BackfillResult(filled, int(filled > 0), sum(f.bytes for f in work.values))
        on_progress(done.rows, done.bytes)
        return done

    def restore_dropped_values(self, ref: Ref, column: str, commit: Commit, workers: FileWorkers = HERE) -> int:
        """No-op: a dropped column waits in its table and keeps its values through updates and full loads."""
        return 0


def _fill(session: SqlSession, record: Record, work: Fill, values: str) -> int:
    """Return how many rows get a value or another note."""
    session.check_texts(record)
    sql = FillSql(work, session.name(*record.ref), values, session.dialect.documents(record.table))
    notes = sql.changed(session.run(sql.notes))
    arrays = [pa.array([p for p, _ in notes], pa.int64()), pa.array([n for _, n in notes], pa.string())]
    batch = pa.record_batch(arrays, names=[PLACE, NOTE])
    with session.temporary(NOTES, {PLACE: "bigint", NOTE: "json"}, [batch]):
        crashpoint("fill.rewritten")
        return session.count(sql.update)
