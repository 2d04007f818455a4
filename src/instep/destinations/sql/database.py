# ruff: noqa: S608 - names are quoted
"""A database as a destination has it: its transactions, its queries, and how staged rows come into it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import ClassVar, Protocol, Self, TypeVar

import pyarrow as pa

from instep.crash import crashpoint
from instep.destinations.base import Commit, Merge, Ref, SparkStart
from instep.destinations.sql.merge import MergeSql, columns, q, shard_condition
from instep.destinations.sql.record_tables import named, prepare, require
from instep.destinations.sql.records import Record
from instep.destinations.sql.session import Dialect, SqlSession
from instep.destinations.sql.staged import Files, StagingArea
from instep.errors import Conflict, DestinationError
from instep.schema.planning.guard import Guards

T = TypeVar("T")
_OLD, _LAST = "_instep_old", "_instep_rows"


class SqlConfig(Protocol):
    """The settings of a database that the destination needs."""

    @property
    def prefix(self) -> str: ...

    @property
    def quarantine_days(self) -> int: ...

    @property
    def undo_days(self) -> float: ...


class SqlDatabase(ABC):
    """A database, or one shard's view of it."""

    kind: ClassVar[str]
    dialect: ClassVar[Dialect]
    config: SqlConfig
    part: tuple[str, str] | None
    """The shard column and the name of the only shard that is looked at."""

    @property
    @abstractmethod
    def area(self) -> StagingArea:
        """Return the folder and the schema that tasks write."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[SqlSession]:
        """Open a transaction that sees one state of the database, which may not exist yet."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[SqlSession]:
        """Open a transaction: all of it is committed or, if anything is raised, nothing."""

    @abstractmethod
    def select(
        self, ref: Ref, sql: Callable[[SqlSession, Record], str], keys: tuple[str, pa.Table] | None = None
    ) -> tuple[Record, Iterator[pa.RecordBatch]]:
        """Return a table's record and what a query over the table answers; what the query needs stays open until the
        last batch is taken. `keys`: a table that it reads besides, by its name."""

    @abstractmethod
    def staging(self, record: Record, commit: Commit, spark: SparkStart | None = None) -> Staging:
        """Return the way of staged rows into a table; tasks of Spark take them where the database can be written by
        several processes, if they are many."""

    def guards(self, refs: Sequence[Ref]) -> Mapping[Ref, Guards]:
        """Return the columns on which something of others stands."""
        return {}

    def fitting(self, ref: Ref, attempt: Callable[[], T]) -> T:
        """Return the result of `attempt`, retried where rows did not fit an index of ours."""
        return attempt()

    def remove_staged(self, record: Record, fences: Iterable[int]) -> None:
        """Delete what attempts with these fences have left of a table in the database."""
        return

    def known(self, ref: Ref, commit: Commit) -> Record:
        """Return the record of a table before anything is staged for it."""
        with self.reading() as session:
            record = require(session, ref)
        record.check(commit.fence)
        return record

    @contextmanager
    def loading(self, ref: Ref, commit: Commit) -> Iterator[tuple[SqlSession, Record]]:
        """Open a transaction over a table that no later run has claimed, and that nobody else writes meanwhile."""
        with self.writing() as session:
            prepare(session)
            record = require(session, ref, lock=True)
            record.check(commit.fence)
            session.lock_table(ref)
            yield session, record
            crashpoint("sql.commit.before")
        crashpoint("sql.commit.after")


class Staging(ABC):
    """Rows of one attempt at one table, on their way into it. They are added first, each lot under its own name;
    then `loading` opens the transaction that moves them."""

    def __init__(self, database: SqlDatabase, record: Record, commit: Commit) -> None:
        self.database, self.record, self.commit = database, record, commit

    @abstractmethod
    def add(self, what: str, names: Sequence[str], files: Files, how: Merge | None = None) -> None:
        """Stage these columns of files; `how` their rows are merged, if they are compared with those of the table."""

    @abstractmethod
    def add_rows(self, what: str, types: Mapping[str, str], rows: pa.Table) -> None:
        """Stage rows of this process; `types` by column."""

    @abstractmethod
    def add_whole(self, shape: Record, files: Files) -> None:
        """Stage all rows of the table, which is as `shape` from then on."""

    @abstractmethod
    def table(self, what: str) -> str:
        """Return a table of staged rows within the transaction, as SQL names it; those of files are numbered by ORDER
        as they came."""

    @abstractmethod
    def rows(self, what: str) -> str:
        """Return what follows FROM in a query for staged rows, as they came."""

    @abstractmethod
    def exchange(self, session: SqlSession, record: Record) -> tuple[Record, int, int]:
        """Replace the table, or its rows, by all staged rows. Return its record, the number of rows, and how many of
        them have no value in columns that wait for an undo."""

    @abstractmethod
    def opened(self, session: SqlSession) -> AbstractContextManager[None]:
        """Make the staged rows available in a transaction; raises StageError if some are gone."""

    @abstractmethod
    def close(self) -> None:
        """Delete what is left of the staged rows."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def loading(self) -> Iterator[tuple[SqlSession, Record]]:
        """Open the transaction that moves the rows. Raises DestinationError if the table is not the one for which
        they were staged, Conflict if that may be another shard's doing: they can be staged again."""
        with self.database.loading(self.record.ref, self.commit) as (session, current):
            was = self.record
            if (current.table, current.pending, current.place) != (was.table, was.pending, was.place):
                kind = DestinationError if current.within is None else Conflict
                why = f"table {named(current.ref)} was changed while rows were copied"
                raise kind(why, hint="another run is at work: sync again")
            with self.opened(session):
                yield session, current

    def insert(self, session: SqlSession, record: Record, what: str) -> int:
        """Add staged rows to the table of a record; returns how many."""
        names = columns(record.names)
        into = f"INSERT INTO {session.name(*record.ref)} ({names})"
        return session.count(f"{into} SELECT {names} FROM {self.rows(what)}")

    def replace_rows(self, session: SqlSession, record: Record, what: str) -> tuple[int, int]:
        """Replace the table's rows by staged ones; columns that wait for an undo keep their values by key. Return
        their number, and how many of them have no value in those columns."""
        name, key = session.name(*record.ref), record.table.key
        waiting = [p.place for p in record.parked] if key else []
        if waiting:
            session.check_texts(record)
            stored = f"SELECT {columns((*key, *waiting))} FROM {name} WHERE {shard_condition(record.within)}"
            session.run(f"CREATE TEMP TABLE {_OLD} AS {stored}")
        session.run(f"DELETE FROM {name} WHERE {shard_condition(record.within)}")
        added = self.insert(session, record, what)
        if not waiting:
            return added, added
        sets = ", ".join(f"{q(w)} = o.{q(w)}" for w in waiting)
        kinds, shown = record.table.by_name, session.dialect.shown
        same = " AND ".join(f"{shown(k, kinds[k].type, 't')} = {shown(k, kinds[k].type, 'o')}" for k in key)
        met = session.count(f"UPDATE {name} AS t SET {sets} FROM {_OLD} AS o WHERE {same}")
        session.run(f"DROP TABLE {_OLD}")
        return added, added - met

    @contextmanager
    def last_of_each_key(self, session: SqlSession, sql: MergeSql) -> Iterator[MergeSql]:
        """Yield the merge of a table with one row per key, the highest by cursor, then the last one staged; of the
        staged table itself if it is one."""
        if not session.count(sql.count_staged_duplicates):
            yield sql
            return
        session.run(f"CREATE TEMP TABLE {_LAST} AS {sql.last}")
        session.analyze(_LAST)
        yield replace(sql, staged=_LAST)
        session.run(f"DROP TABLE {_LAST}")


class SqlFacet:
    """The base of the facets of the destination."""

    def __init__(self, database: SqlDatabase) -> None:
        self.database = database
