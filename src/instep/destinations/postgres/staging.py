# ruff: noqa: S608 - names are quoted
"""Rows into staging tables: `COPY ... FROM STDIN (FORMAT BINARY)` out of Arrow, several files at a time.

Staging tables are `_instep."rows_..."`, unlogged, and named by what they are for, the table, the fence, the attempt
and the run: an attempt that wakes up late writes into its own and into no other's, as does one with the same commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from instep.crash import crashpoint
from instep.destinations.base import Commit, Merge, SparkStart
from instep.destinations.postgres.connect import APPLICATION
from instep.destinations.postgres.copy_task import CopyTask, copy_by_tasks, copy_by_threads
from instep.destinations.postgres.dependants import INDEX, copy_rights, index, is_plain
from instep.destinations.postgres.session import PostgresSession
from instep.destinations.sql.database import Staging
from instep.destinations.sql.merge import columns, q
from instep.destinations.sql.record_tables import prepare
from instep.destinations.sql.records import Record
from instep.destinations.sql.session import BATCH, SCHEMA, SqlSession
from instep.destinations.sql.staged import ORDER, Files, filled
from instep.destinations.sql.tables import describe, park, with_types
from instep.errors import InstepError, StageError

if TYPE_CHECKING:
    from instep.destinations.postgres.server import PostgresServer

_TRIES = 2
"""Tries to drop what was staged: where a server was restarted, the first one finds connections that it has ended."""


class PostgresStaging(Staging):
    """Staging tables of one attempt at one table."""

    def __init__(self, server: PostgresServer, record: Record, commit: Commit, spark: SparkStart | None = None) -> None:
        super().__init__(server, record, commit)
        self.server, self._spark = server, spark
        self._attempt = uuid.uuid4().hex[:8]
        self._counts: dict[str, int] = {}

    def add(self, what: str, names: Sequence[str], files: Files, how: Merge | None = None) -> None:
        """Stage the files' rows in a table and analyse it, so that the server knows how the keys are distributed."""
        kinds = self.server.dialect.kinds(self.record.table, names)
        table = self.make(what, {**kinds, ORDER: "bigint"}, sum(f.rows for f in files))
        self.copy(what, self._schema(self.record, names), filled(files), numbered=True)
        key = [n for n in self.record.table.key if n in kinds]
        with self.server.writing() as session:
            session.run(f"ANALYZE {table} ({columns(key)})" if key else f"ANALYZE {table}")

    def add_rows(self, what: str, types: Mapping[str, str], rows: pa.Table) -> None:
        self.make(what, types, len(rows))
        if len(rows):
            with self.server.arrow() as arrow:
                arrow.append(self.bare(what), rows.to_reader(BATCH))

    def add_whole(self, shape: Record, files: Files) -> None:
        """Stage the next generation of the table, indexed and analysed, under its own name."""
        name = self.make("next", self.server.dialect.definitions(shape.table), sum(f.rows for f in files), logged=True)
        self.copy("next", self._schema(shape, shape.names), filled(files), numbered=False)
        with self.server.writing() as session:
            index(session, name, shape.table.key, shape.place)
            session.analyze(name)

    def _schema(self, record: Record, names: Sequence[str]) -> pa.Schema:
        """Return the columns as COPY takes them."""
        kinds = record.table.by_name
        return pa.schema([(n, self.server.dialect.arrow_type(kinds[n].type)) for n in names])

    def table(self, what: str) -> str:
        return f"{q(SCHEMA)}.{q(self.bare(what))}"

    def rows(self, what: str) -> str:
        return self.table(what) if what == "next" else f"{self.table(what)} ORDER BY {ORDER}"

    def exchange(self, session: SqlSession, record: Record) -> tuple[Record, int, int]:
        """Put the new table in place of the old one if nothing references that; else replace its rows."""
        assert isinstance(session, PostgresSession)
        new, count = self.table("next"), self._counts["next"]
        if record.pending is not None:
            park(session, replace(record, pending=None))
            return self._take_place(session, record.waiting), count, count
        if not record.parked and record.within is None and is_plain(session, record.ref, new, INDEX):
            copy_rights(session, session.name(*record.ref), new)
            session.run(f"DROP TABLE {session.name(*record.ref)}")
            return self._take_place(session, record), count, count
        return (record, *self.replace_rows(session, record, "next"))

    def _take_place(self, session: SqlSession, record: Record) -> Record:
        schema, name = record.ref
        session.run(f"ALTER TABLE {self.table('next')} SET SCHEMA {session.schema(schema)}")
        session.run(f"ALTER TABLE {session.name(schema, self.bare('next'))} RENAME TO {q(name)}")
        describe(session, record.table)
        return with_types(session, record)

    @contextmanager
    def opened(self, session: SqlSession) -> Iterator[None]:
        """Check that staged rows are all there: a server that crashes empties unlogged tables, and missing rows
        would be taken for deleted ones."""
        for what, rows in self._counts.items():
            if (count := session.count(f"SELECT count(*) FROM {self.table(what)}")) != rows:
                why = f"{count:,} of {rows:,} staged rows are on the server: nothing was written"
                raise StageError(why, hint="sync again")
        yield

    def bare(self, what: str) -> str:
        """Return a table's name in the schema `_instep`: at most 63 bytes."""
        name = f"{what}_{self.record.place[:8]}_{self.commit.fence}_{self._attempt}_{self.commit.run}"
        return name.encode()[:63].decode(errors="ignore")

    def make(self, what: str, columns: Mapping[str, str] | str, rows: int, *, logged: bool = False) -> str:
        """Return an empty table for so many rows, by its SQL name."""
        name, kind = self.table(what), "TABLE" if logged else "UNLOGGED TABLE"
        listed = columns if isinstance(columns, str) else ", ".join(f"{q(n)} {t}" for n, t in columns.items())
        self._counts[what] = rows
        with self.server.writing() as session:
            prepare(session)
            session.run(f"CREATE {kind} {name} ({listed})")
        return name

    def copy(self, what: str, schema: pa.Schema, files: Files, *, numbered: bool) -> None:
        """Append the rows of files to a table of this attempt."""
        if not files:
            return
        server, start = self.server, self._spark
        work = CopyTask(server.config, server.area, self.bare(what), schema, numbered, tuple(enumerate(files)))
        session = start() if start and sum(f.rows for f in files) >= server.config.copy_rows else None
        if session is None:
            copy_by_threads(work, server.arrow)
            return
        parts = f"{what}parts"
        self.make(parts, {"part": "bigint PRIMARY KEY"}, len(files))
        work = replace(work, parts=self.bare(parts))
        if uncopied := copy_by_tasks(session, work):
            copy_by_threads(replace(work, files=uncopied), server.arrow)
        crashpoint("sql.copied")

    def close(self) -> None:
        """Drop what was staged, as far as possible: the next run removes the rest."""
        for _ in range(_TRIES):
            with suppress(InstepError), self.server.writing() as session:
                for what in self._counts:
                    session.run(f"DROP TABLE IF EXISTS {self.table(what)}")
                return


_ENDED = """
SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.relation = to_regclass($1) AND l.database = a.datid AND a.pid <> pg_backend_pid()
  AND a.usename = current_user AND a.application_name = $2
"""


def remove_staging_tables(server: PostgresServer, record: Record, fences: Iterable[int]) -> None:
    """Drop what attempts with these fences, and with others from before the table's last claim, have left of it. Those
    that are still at it are ended: nothing that they bring is committed to the table."""
    over = set(fences)
    sql = "SELECT c.relname FROM pg_class c WHERE c.relnamespace = to_regnamespace('_instep') AND c.relkind = 'r'"
    with server.reading() as session:
        names = [name for (name,) in session.run(sql)]
    for name in names:
        parts = name.split("_", 3)
        if len(parts) < 4 or parts[1] != record.place[:8] or not parts[2].isdecimal():
            continue
        if int(parts[2]) in over or int(parts[2]) < record.fence:
            with suppress(InstepError), server.writing() as session:
                session.run(_ENDED, [session.name(SCHEMA, name), APPLICATION])
                session.run(f"DROP TABLE IF EXISTS {session.name(SCHEMA, name)}")
