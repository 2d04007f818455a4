# ruff: noqa: S608 - names are ours
"""Rows of both sides of one table compared by key, and a reader of the source's rows whose keys differ.

Keys and hashes stand in tables of DuckDB: what memory does not hold is on the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from instep.schema.catalog.types import Int
from instep.schema.planning.projection import TableRead
from instep.sources.base import CursorRange
from instep.stage.conform import Conformer, select_rows
from instep.stage.duckdb_memory import in_duckdb
from instep.stage.spec import Chunk, Reader, ReadSession, SourceLimits, StageColumn, StageSpec, SystemColumns, limits_of
from instep.sync.loading.row_sums import FoldResult
from instep.sync.loading.table_sides import ranged

if TYPE_CHECKING:
    import duckdb

SHOWN = 5
"""Keys shown of rows that differ."""
DIFFERS = "differs"
MISSING = "missing"
EXTRA = "only in the destination"
TWINS = "in more rows on one side than on the other"
RANGES, GAP = 16, 100_000
"""How many ranges of the key are read at most, and how many numbers between two keys are worth another range."""


WRAP = 1 << 64


class RowComparison:
    """Keys and hashes of both sides' rows of one table.

    Keys are called k0, k1, ... there, in the order of the accepted key.
    """

    def __init__(self, db: duckdb.DuckDBPyConnection, key: Sequence[str]) -> None:
        self.db, self.key = db, tuple(key)
        self.names = tuple(f"k{at}" for at in range(len(self.key)))

    def load(self, side: Literal["source", "destination"], results: Iterable[FoldResult]) -> list[int]:
        """Take the rows of one side, in the place of those that were read before; return the sums of each column's
        hashes, as far as the results have them."""
        self.db.execute(f"DROP TABLE IF EXISTS {side}_rows")
        sums, created = list[int](), False
        for result in results:
            sums = [sum(pair) % WRAP for pair in zip_longest(sums, result.columns, fillvalue=0)]
            if not result.rows:
                continue
            self.db.register("coming", pa.ipc.open_stream(result.rows).read_all())
            into = f"INSERT INTO {side}_rows" if created else f"CREATE TEMP TABLE {side}_rows AS"
            self.db.execute(f"{into} SELECT * FROM coming")
            self.db.unregister("coming")
            created = True
        return sums

    def _fill_up(self) -> None:
        """Make the table of a side that has no rows."""
        existing = {
            name for (name,) in self.db.execute("SELECT table_name FROM duckdb_tables() WHERE temporary").fetchall()
        }
        pair = ("source_rows", "destination_rows")
        like = next((f"FROM {name} LIMIT 0" for name in pair if name in existing), "")
        columns = "*" if like else ", ".join([*(f"NULL::VARCHAR AS {n}" for n in self.names), "NULL::UBIGINT AS h"])
        for name in pair:
            if name not in existing:
                self.db.execute(f"CREATE TEMP TABLE {name} AS SELECT {columns} {like or 'LIMIT 0'}")

    def compare(self) -> None:
        """Find the keys of rows that are on one side only, differ, or are not as many on both sides."""
        self._fill_up()
        same = " AND ".join(f"s.{n} IS NOT DISTINCT FROM d.{n}" for n in self.names)
        keys = ", ".join(f"coalesce(s.{n}, d.{n}) AS {n}" for n in self.names)
        both = (
            f"FROM (SELECT {', '.join(self.names)}, count(*) AS n FROM source_rows GROUP BY ALL) s JOIN "
            f"(SELECT {', '.join(self.names)}, count(*) AS n FROM destination_rows GROUP BY ALL) d ON {same}"
        )
        self.db.execute(
            f"CREATE OR REPLACE TEMP TABLE different AS SELECT {keys}, CASE WHEN s.h IS NULL THEN '{EXTRA}' "
            f"WHEN d.h IS NULL THEN '{MISSING}' ELSE '{DIFFERS}' END AS what, 1 AS n "
            f"FROM source_rows s FULL JOIN destination_rows d ON {same} WHERE s.h IS DISTINCT FROM d.h "
            f"UNION ALL SELECT {keys}, '{TWINS}', greatest(s.n, d.n) {both} WHERE s.n <> d.n"
        )

    @property
    def rows(self) -> tuple[int, int]:
        """Return the number of rows of the source, and of the destination."""
        counts = "SELECT (SELECT count(*) FROM source_rows), (SELECT count(*) FROM destination_rows)"
        [(source, destination)] = self.db.execute(counts).fetchall()
        return source, destination

    def counts(self) -> dict[str, int]:
        """Return how many rows differ, by how they do."""
        counts = dict(self.db.execute("SELECT what, sum(n)::bigint FROM different GROUP BY what").fetchall())
        return {what: counts[what] for what in (DIFFERS, MISSING, EXTRA, TWINS) if what in counts}

    def examples(self, what: str) -> list[str]:
        """Return the first keys of the rows that differ so."""
        shown = f"concat_ws(', ', {', '.join(f'{n}::varchar' for n in self.names)})"
        query = f"SELECT {shown} AS shown FROM different WHERE what = ? ORDER BY shown LIMIT {SHOWN}"
        return [text for (text,) in self.db.execute(query, [what]).fetchall()]

    def ranges(self, read: TableRead) -> list[CursorRange]:
        """Return what to read for the differing keys: ranges of the first key column, or the whole table."""
        [(low, high)] = self.db.execute(f"SELECT min(k0), max(k0) FROM different WHERE what <> '{EXTRA}'").fetchall()
        if low is None:
            return []
        if (first := ranged(read)) is None:
            return [CursorRange()]
        keys = f"SELECT DISTINCT k0::hugeint AS k FROM different WHERE what <> '{EXTRA}'"
        gaps = self.db.execute(
            f"SELECT last, k FROM (SELECT k, lag(k) OVER (ORDER BY k) AS last FROM ({keys})) WHERE k - last > {GAP} "
            f"ORDER BY k - last DESC LIMIT {RANGES - 1}"
        ).fetchall()
        ends = [low, *(end for gap in sorted(gaps) for end in gap), high]
        pairs = zip(ends[::2], ends[1::2], strict=True)
        return [CursorRange(first.column.name, str(begin), str(end)) for begin, end in pairs]

    def count_within(self, ranges: Sequence[CursorRange]) -> int:
        """Return how many rows of the source are in these ranges."""
        within = " OR ".join(f"k0 BETWEEN {r.lower} AND {r.upper}" if r.column else "true" for r in ranges)
        [(count,)] = self.db.execute(f"SELECT count(*) FROM source_rows WHERE {within or 'false'}").fetchall()
        return int(count)


@contextmanager
def row_comparison(read: TableRead) -> Iterator[RowComparison]:
    """Open the comparison of a table with a key."""
    aliases = {c.column.name: c.column.alias or c.column.name for c in read.columns}
    with in_duckdb(lossless=True) as db:
        yield RowComparison(db, [aliases[k] for k in read.table.key])


class KeyReader:
    """Reads what another reader reads, and hands on the rows whose keys differ."""

    def __init__(self, reader: Reader, spec: StageSpec, rows: RowComparison) -> None:
        self.reader, self.rows, self.lock = reader, rows, threading.Lock()
        sourced = [c for c in spec.columns if c.source is not None]
        by_name = {column.name: (at, column) for at, column in enumerate(sourced)}
        self.places = sorted(by_name[name][0] for name in rows.key)
        named = dict(zip(rows.key, rows.names, strict=True))
        keys = [replace(sourced[at], name=named[sourced[at].name]) for at in self.places]
        fields = [
            spec.schema.field(sourced[at].name).with_name(key.name) for at, key in zip(self.places, keys, strict=True)
        ]
        self.spec = replace(
            spec,
            columns=(*keys, StageColumn("place", Int(64), Int(64), "place")),
            system=SystemColumns(),
            schema=pa.schema([*fields, pa.field("place", pa.int64())]),
            on_invalid_value="null",
            extra=(),
            partition=None,
        )
        names = ", ".join(rows.names)
        rows.db.execute(
            f"CREATE OR REPLACE TEMP TABLE requested AS SELECT DISTINCT {names} FROM different WHERE what <> '{EXTRA}'"
        )

    @property
    def limits(self) -> SourceLimits:
        """The limits of the other reader."""
        return limits_of(self.reader)

    @contextmanager
    def open(self) -> Iterator[ReadSession]:
        """Open a session of the other reader."""
        with self.reader.open() as session:
            yield _KeySession(self, session)

    def differing(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch, as the source gave it, whose keys differ."""
        numbers = pa.array(range(len(batch)), pa.int64())
        names = [f"c{at}" for at in self.places]
        keys = pa.RecordBatch.from_arrays([*(batch.column(at) for at in self.places), numbers], names=[*names, "place"])
        conformed = Conformer(self.spec).conform(keys).batch
        joined = f"SELECT place FROM coming JOIN requested USING ({', '.join(self.rows.names)}) ORDER BY place"
        with self.lock:
            self.rows.db.register("coming", pa.Table.from_batches([conformed]))
            places = [place for (place,) in self.rows.db.execute(joined).fetchall()]
            self.rows.db.unregister("coming")
        return select_rows(batch, pa.array(places, pa.int64()))


@dataclass(frozen=True)
class _KeySession:
    reader: KeyReader
    session: ReadSession

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        for batch in self.session.read(chunk):
            yield self.reader.differing(batch)
