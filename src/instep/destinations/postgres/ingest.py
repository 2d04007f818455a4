# ruff: noqa: S608 - names are quoted
"""Rows into staging tables: `COPY ... FROM STDIN (FORMAT BINARY)` out of Arrow, several files at a time.

Staging tables are `_instep."rows_..."`, unlogged, and named by what they are for, the table, the fence and the run: an
attempt that wakes up late writes into its own and into no other's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from instep.destinations.base import Commit
from instep.destinations.postgres.records import prepare
from instep.destinations.postgres.server import PostgresServer, PostgresSession
from instep.destinations.postgres.shape import sql_type
from instep.destinations.sql.alter import SCHEMA
from instep.destinations.sql.merge import columns, q
from instep.destinations.sql.records import Record
from instep.destinations.sql.staged import ORDER, StagingArea, filled
from instep.errors import DestinationError, InstepError, StageError
from instep.schema.catalog.catalog import Table
from instep.stage.spec import StagedFile

BATCH = 50_000
_FILE = 1 << 40


@dataclass(frozen=True)
class Staging:
    """Staging tables of one attempt at one table."""

    server: PostgresServer
    record: Record
    commit: Commit

    def name(self, what: str) -> str:
        """Return the name in SQL."""
        return f"{q(SCHEMA)}.{q(self.bare(what))}"

    def bare(self, what: str) -> str:
        """Return what it is called in the schema `_instep`: at most 63 bytes."""
        name = f"{what}_{self.record.place[:8]}_{self.commit.fence}_{self.commit.run}"
        return name.encode()[:63].decode(errors="ignore")

    def make(self, what: str, columns: Mapping[str, str], *, logged: bool = False) -> str:
        """Return an empty table with these types by column, in the place of what an earlier try has left; its SQL
        name."""
        name, kind = self.name(what), "TABLE" if logged else "UNLOGGED TABLE"
        with self.server.writing() as session:
            prepare(session)
            session.run(f"DROP TABLE IF EXISTS {name}")
            session.run(f"CREATE {kind} {name} ({', '.join(f'{q(n)} {t}' for n, t in columns.items())})")
        return name

    def files(self, what: str, table: Table, names: Sequence[str], files: Sequence[StagedFile]) -> str:
        """Return a table with these columns of the files, and `ORDER`; the server knows how its keys are spread."""
        kinds = {n: sql_type(table.by_name[n].type) for n in names}
        made = self.make(what, {**kinds, ORDER: "bigint"})
        self.copy(what, [_numbered(n, f, names, self.server.area) for n, f in enumerate(filled(files))])
        key = [n for n in table.key if n in kinds]
        with self.server.writing() as session:
            session.run(f"ANALYZE {made} ({columns(key)})" if key else f"ANALYZE {made}")
        return made

    def rows(self, what: str, columns: Mapping[str, str], rows: pa.Table) -> str:
        """Return a table with rows of this process."""
        made = self.make(what, columns)
        if len(rows):
            self.copy(what, [lambda: rows.to_reader(BATCH)])
        return made

    def copy(self, what: str, readers: Sequence[Callable[[], pa.RecordBatchReader]]) -> None:
        """Append what each reader gives to a table of this attempt; each in a transaction of its own."""
        with ThreadPoolExecutor(max(1, min(len(readers), os.cpu_count() or 1)), thread_name_prefix="copy") as pool:
            for done in [pool.submit(self._copy, what, reader) for reader in readers]:
                done.result()

    def _copy(self, what: str, reader: Callable[[], pa.RecordBatchReader]) -> None:
        with self.server.arrow() as arrow:
            arrow.append(SCHEMA, self.bare(what), reader())

    def drop(self, *names: str) -> None:
        """Best effort: what stays is removed."""
        for _ in range(2):  # a server that was restarted has ended the connections that wait
            with suppress(InstepError), self.server.writing() as session:
                for name in names:
                    session.run(f"DROP TABLE IF EXISTS {self.name(name)}")
                return

    @contextmanager
    def used(self, *names: str) -> Iterator[None]:
        """Whatever happens, these tables are gone afterwards."""
        try:
            yield
        finally:
            self.drop(*names)


def whole(session: PostgresSession, staged: str, rows: int) -> None:
    """Raise StageError unless a staging table holds so many rows: a server that crashes empties unlogged tables, and
    rows that are missing there would be taken for deleted ones."""
    found = session.count(f"SELECT count(*) FROM {staged}")
    if found != rows:
        raise StageError(f"{found:,} of {rows:,} staged rows are on the server: nothing was written", hint="sync again")


def rows_of(files: Iterable[StagedFile]) -> int:
    return sum(f.rows for f in files)


def plain_reader(file: StagedFile, names: Sequence[str], area: StagingArea) -> Callable[[], pa.RecordBatchReader]:
    """Return the rows of a file."""

    def read() -> pa.RecordBatchReader:
        opened = pq.ParquetFile(area.open(file))
        there = set(opened.schema_arrow.names)
        if missing := [n for n in names if n not in there]:
            raise DestinationError(
                f"a staged file has no column {missing[0]!r}, which the table has",
                hint="the table was changed while rows were staged: sync again",
            )
        schema = pa.schema([opened.schema_arrow.field(n) for n in names])
        batches = opened.iter_batches(BATCH, columns=list(names))
        return pa.RecordBatchReader.from_batches(schema, (b.select(list(names)).cast(schema) for b in batches))

    return read


def _numbered(
    number: int, file: StagedFile, names: Sequence[str], area: StagingArea
) -> Callable[[], pa.RecordBatchReader]:
    """Yield the rows of a file with their numbers among all."""

    def read() -> pa.RecordBatchReader:
        reader = plain_reader(file, names, area)()
        schema = reader.schema.append(pa.field(ORDER, pa.int64()))

        def batches() -> Iterator[pa.RecordBatch]:
            at = number * _FILE
            for batch in reader:
                places = pa.array(range(at, at + len(batch)), pa.int64())
                yield pa.RecordBatch.from_arrays([*batch.columns, places], schema=schema)
                at += len(batch)

        return pa.RecordBatchReader.from_batches(schema, batches())

    return read


def remove_uncommitted_files(server: PostgresServer, record: Record, fences: Iterable[int]) -> None:
    """Drop what attempts with these fences have left of a table; what is locked is left for another time."""
    over = {str(fence) for fence in fences}
    sql = "SELECT c.relname FROM pg_class c WHERE c.relnamespace = to_regnamespace('_instep') AND c.relkind = 'r'"
    with server.reading() as session:
        there = [name for (name,) in session.run(sql)]
    for name in there:
        parts = name.split("_", 3)
        if len(parts) == 4 and parts[1] == record.place[:8] and parts[2] in over:
            with suppress(InstepError), server.writing() as session:
                session.run(f"DROP TABLE IF EXISTS {session.name(SCHEMA, name)}")
