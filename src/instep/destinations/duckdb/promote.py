# ruff: noqa: S608 - names are quoted or ours, values are parameters
"""Values that were kept as JSON beside a table's rows, taken out into columns of their own: one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from instep.crash import crashpoint
from instep.destinations.base import Commit, Fill, Filled, FillSize, Ref
from instep.destinations.duckdb.file import DuckDbFacet, DuckDbSession
from instep.destinations.duckdb.load import loading, rows, stage
from instep.destinations.duckdb.records import put, require
from instep.destinations.duckdb.shape import arrow_type
from instep.destinations.overflow import OverflowColumn, Promoted
from instep.destinations.sql.fill import NOT_LOADED, NOTE, NOTES, PLACE, FillSql, check_loaded, fill_size
from instep.destinations.sql.merge import q, within
from instep.destinations.sql.records import Record
from instep.destinations.sql.staged import consume
from instep.errors import DestinationError
from instep.stage.conform import compact_json
from instep.stage.overflow import from_texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


BATCH = 100_000
_NEW = "_instep_promoted"


@dataclass
class _DuckDbPromotedRows:
    """Rows that get a value: their places in the table, what their objects become, the values by column."""

    schema: pa.Schema
    batches: list[pa.RecordBatch] = field(default_factory=list)
    invalid_values: int = 0


def _look(
    session: DuckDbSession, record: Record, columns: Mapping[str, OverflowColumn], extra: str
) -> _DuckDbPromotedRows:
    """Only rows without a value that have an object are read."""
    kinds = [pa.field(f"v{i}", arrow_type(column.type)) for i, column in enumerate(columns.values())]
    found = _DuckDbPromotedRows(pa.schema([pa.field("n", pa.int64()), pa.field("o", pa.string()), *kinds]))
    lacks = [f"{q(c)} IS NULL" for c in columns]
    some = f"{q(extra)} IS NOT NULL AND ({' OR '.join(lacks)}) AND {within(record.within)}"
    what = ", ".join(["rowid", f"{q(extra)}::VARCHAR", *lacks])
    for batch in session.batches(f"SELECT {what} FROM {session.name(*record.ref)} WHERE {some}", BATCH):
        found.batches += _of(batch, columns, found)
    return found


def _of(
    batch: pa.RecordBatch, columns: Mapping[str, OverflowColumn], found: _DuckDbPromotedRows
) -> Iterator[pa.RecordBatch]:
    objects: list[dict[str, Any]] = [json.loads(text) for text in batch.column(1).to_pylist()]
    got: list[set[str]] = [set() for _ in objects]
    values: list[pa.Array] = []
    for place, overflow in enumerate(columns.values()):
        lacks = batch.column(place + 2).to_pylist()
        texts = overflow.texts([o.get(overflow.name) if lack else None for o, lack in zip(objects, lacks, strict=True)])
        done = from_texts(texts, overflow.type, found.schema.field(place + 2).type)
        found.invalid_values += len(done.invalid_values)
        values.append(done.values)
        for at, valid in enumerate(done.values.is_valid().to_pylist()):
            got[at] |= {overflow.name} if valid else set()
    left = [{k: v for k, v in o.items() if k not in names} for o, names in zip(objects, got, strict=True)]
    texts = [compact_json(o) if o else None for o in left]
    made = pa.record_batch([batch.column(0), pa.array(texts, pa.string()), *values], schema=found.schema)
    yield made.filter(pa.array([bool(names) for names in got]))


def _write(
    session: DuckDbSession,
    record: Record,
    found: _DuckDbPromotedRows,
    columns: Mapping[str, OverflowColumn],
    extra: str,
) -> None:
    session.db.register(_NEW, pa.Table.from_batches(found.batches, found.schema))
    sets = [f"{q(c)} = coalesce(t.{q(c)}, s.v{i})" for i, c in enumerate(columns)]
    sets.append(f"{q(extra)} = s.o")
    session.run(f"UPDATE {session.name(*record.ref)} AS t SET {', '.join(sets)} FROM {_NEW} AS s WHERE t.rowid = s.n")
    session.db.unregister(_NEW)


VALUES = "_instep_values"


def _note(session: DuckDbSession, notes: list[tuple[int, str | None]]) -> None:
    arrays = [pa.array([p for p, _ in notes], pa.int64()), pa.array([n for _, n in notes], pa.string())]
    session.db.register("_instep_new_notes", pa.table(arrays, names=[PLACE, NOTE]))
    session.run(f"CREATE TEMP TABLE {NOTES} AS SELECT * FROM _instep_new_notes")
    session.db.unregister("_instep_new_notes")


class DuckDbFills(DuckDbFacet):
    """Values for rows that lack them, each time in one transaction."""

    def promote(self, ref: Ref, columns: Mapping[str, OverflowColumn], extra: str, commit: Commit) -> Promoted:
        """Bring kept values into columns, in one transaction."""
        with loading(self.file, ref, commit) as (session, record):
            state = record.state
            if state is None or extra not in record.table.by_name:
                return Promoted()
            if any(c.name.casefold() == "rowid" for c in record.table.columns):
                why = f"table {'.'.join(ref)} has a column called rowid, which hides the places of its rows"
                raise DestinationError(why, hint="load the table again with `instep sync --full`")
            found = _look(session, record, columns, extra)
            done = sum(batch.num_rows for batch in found.batches)
            if done:
                _write(session, record, found, columns, extra)
                own = replace(commit, cursor=state.cursor, accepted=state.accepted)
                put(session, record.after_load(own, rows(session, record), new=0))
        crashpoint("promote.committed")
        return Promoted(done, found.invalid_values)

    def fill_size(self, ref: Ref, columns: Mapping[str, int]) -> FillSize:
        with self.file.reading() as session:
            if session is None:
                return FillSize(why_not=NOT_LOADED)
            record = require(session, ref)
            return fill_size(session, record, columns, rows(session, record))

    def fill(
        self,
        session: SparkSession | None,
        ref: Ref,
        work: Fill,
        commit: Commit,
        on_progress: Callable[[int, int], None],
        go_on: Callable[[], bool],
    ) -> Filled:
        """Rows with NULL in a column get its value; a value that is there is never replaced. In one
        transaction, so that nothing is asked in between. Cursor and accepted fingerprint stay."""
        with self.here(commit, work.values) as (here,):
            done = self._fill(ref, replace(work, values=tuple(here)), commit)
        on_progress(done.rows, done.bytes)
        return done

    def _fill(self, ref: Ref, work: Fill, commit: Commit) -> Filled:
        with loading(self.file, ref, commit) as (session, record):
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

    def restore_dropped_values(self, ref: Ref, column: str, commit: Commit) -> int:
        """Do nothing: a dropped column waits in its table and keeps its values through updates and full loads."""
        return 0
