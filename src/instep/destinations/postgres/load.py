# ruff: noqa: S608 - names are quoted or ours, values are parameters
"""Brings staged files into a table: each load is one transaction with its cursor, its fence and its counts.

Rows are copied into a staging table first, without a lock on the table itself. The transaction then checks the fence
under the lock of the table's record, and moves them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from instep.crash import crashpoint
from instep.destinations.base import Commit, LoadOutcome, Merge, Ref, SparkStart
from instep.destinations.postgres.ddl import definitions, describe, park, with_types
from instep.destinations.postgres.dependants import INDEX, copy_rights, index, is_plain, loosen, proves_unique
from instep.destinations.postgres.ingest import Staging, plain_reader, rows_of, whole
from instep.destinations.postgres.records import find, prepare, put, require
from instep.destinations.postgres.server import PostgresFacet, PostgresServer, PostgresSession, literal
from instep.destinations.postgres.shape import as_document, sql_type
from instep.destinations.sql.alter import SCHEMA, named
from instep.destinations.sql.merge import MergeSql, columns, q, within
from instep.destinations.sql.records import Record
from instep.destinations.sql.staged import ORDER, filled
from instep.errors import Conflict, DestinationError, InstepError, StageError
from instep.stage.spec import StagedFile, SystemColumns

_OLD = "_instep_old"


def next_generation(staging: Staging, shape: Record, files: Sequence[StagedFile]) -> None:
    """A table with the rows of the files, indexed and analysed, under a name of its own."""
    names = [c.name for c in shape.table.columns]
    name = staging.make("next", definitions(shape.table), logged=True)
    staging.copy("next", [plain_reader(f, names, staging.server.area) for f in filled(files)])
    with staging.server.writing() as session:
        if shape.table.key:
            index(session, name, shape.table.key, shape.place)
        session.run(f"ANALYZE {name}")


def exchange(session: PostgresSession, record: Record, new: str, count: int) -> tuple[Record, int]:
    """Put the table `new` (as SQL names it), with its `count` rows, or these rows, into the place of the table; the
    record as it is then, and how many rows have no value in the columns that wait for an undo."""
    if record.pending is not None:
        park(session, replace(record, pending=None))
        return _take_place(session, record.waiting, new), count
    if not record.parked and record.within is None and is_plain(session, record.ref, new, INDEX):
        copy_rights(session, session.name(*record.ref), new)
        session.run(f"DROP TABLE {session.name(*record.ref)}")
        return _take_place(session, record, new), count
    return record, count - _rows_only(session, record, new)


def _take_place(session: PostgresSession, record: Record, new: str) -> Record:
    schema, name = record.ref
    bare = new.removeprefix(f"{q(SCHEMA)}.")
    session.run(f"ALTER TABLE {new} SET SCHEMA {session.schema(schema)}")
    session.run(f"ALTER TABLE {session.schema(schema)}.{bare} RENAME TO {q(name)}")
    describe(session, record.table)
    return with_types(session, record)


def _rows_only(session: PostgresSession, record: Record, new: str) -> int:
    """Return how many rows got back what they had in the columns that wait for an undo."""
    name, key, into = session.name(*record.ref), record.table.key, columns([c.name for c in record.table.columns])
    waiting = [p.place for p in record.parked] if key else []
    if waiting:
        sql = f"CREATE TEMP TABLE {_OLD} ON COMMIT DROP AS SELECT {columns((*key, *waiting))} FROM {name}"
        session.run(f"{sql} WHERE {within(record.within)}")
    session.run(f"DELETE FROM {name} WHERE {within(record.within)}")
    session.run(f"INSERT INTO {name} ({into}) SELECT {into} FROM {new}")
    if not waiting:
        return 0
    sets = ", ".join(f"{q(w)} = o.{q(w)}" for w in waiting)
    texts = {k: "::text" if as_document(record.table.by_name[k].type) else "" for k in key}
    same = " AND ".join(f"t.{q(k)}{texts[k]} = o.{q(k)}{texts[k]}" for k in key)
    return session.count(f"UPDATE {name} AS t SET {sets} FROM {_OLD} AS o WHERE {same}")


T = TypeVar("T")
_LOOK_UP = """
SELECT set_config(name, '1.1', true) FROM pg_settings WHERE name = 'random_page_cost' AND source = 'default'
"""
"""By the default, that of a disk with an arm, the server reads the whole table to change a hundredth of its rows."""


@contextmanager
def loading(server: PostgresServer, ref: Ref, commit: Commit) -> Iterator[tuple[PostgresSession, Record]]:
    """A transaction over a table that no later run has claimed, and that nobody else writes meanwhile."""
    with server.writing() as session:
        prepare(session)
        record = require(session, ref, lock=True)
        record.check(commit.fence)
        session.run(f"LOCK TABLE {session.name(*ref)} IN SHARE ROW EXCLUSIVE MODE")
        yield session, record
        crashpoint("postgres.commit.before")
    crashpoint("postgres.commit.after")


def known(server: PostgresServer, ref: Ref, commit: Commit) -> Record:
    """Return the record of a table before anything is staged for it."""
    with server.reading() as session:
        record = require(session, ref)
    record.check(commit.fence)
    return record


def _append(server: PostgresServer, record: Record, files: Sequence[StagedFile], commit: Commit) -> LoadOutcome:
    staging = Staging(server, record, commit)
    with staging.used("rows"):
        staged = staging.files("rows", record.table, names(record), files)
        with loading(server, record.ref, commit) as (session, found):
            same(found, record)
            whole(session, staged, rows_of(files))
            added = _insert(session, found, staged)
            put(session, found.after_load(commit, _left(session, found, added), files, new=added))
    return LoadOutcome(inserted=added)


def names(record: Record) -> list[str]:
    return [c.name for c in record.table.columns]


def same(found: Record, staged: Record) -> None:
    """Raise DestinationError if the table is not the one that rows were staged for, Conflict if that may have been
    another shard's doing: they can be staged anew."""
    if (found.table, found.pending, found.place) != (staged.table, staged.pending, staged.place):
        kind = DestinationError if found.within is None else Conflict
        raise kind(
            f"table {named(found.ref)} was changed while rows were copied", hint="another run is at work: sync again"
        )


def _insert(session: PostgresSession, record: Record, staged: str) -> int:
    into = columns(names(record))
    sql = f"INSERT INTO {session.name(*record.ref)} ({into}) SELECT {into} FROM {staged} ORDER BY {ORDER}"
    return session.count(sql)


def rows(session: PostgresSession, record: Record) -> int:
    return session.count(f"SELECT count(*) FROM {session.name(*record.ref)} WHERE {within(record.within)}")


def _left(session: PostgresSession, before: Record, new: int, removed: int = 0) -> int:
    known = before.rows_after(new, removed)
    return rows(session, before) if known is None else known


def _replaced(ref: Ref) -> DestinationError:
    return DestinationError(f"table {named(ref)} was replaced: load it whole", hint="run `instep sync --full`")


def fitting(server: PostgresServer, ref: Ref, attempt: Callable[[], T]) -> T:
    """Return what `attempt` answers; if rows do not fit the index on the key, it is tried without that."""
    try:
        return attempt()
    except InstepError as error:
        if not loosen(server, ref, error.__cause__):
            raise
    return attempt()


def _merge(
    server: PostgresServer, record: Record, files: Sequence[StagedFile], how: Merge, commit: Commit, prefix: str
) -> LoadOutcome:
    staging, by_key = Staging(server, record, commit), how.keys or how.requested
    with staging.used("rows", "keys"):
        staged = staging.files("rows", record.table, names(record), files)
        keys = staging.files("keys", record.table, how.key, by_key) if by_key else ""
        with loading(server, record.ref, commit) as (session, found):
            same(found, record)
            whole(session, staged, rows_of(files))
            if by_key:
                whole(session, keys, rows_of(by_key))
            if how.since is not None:
                outcome = _since(session, found, staged, how.since)
            else:
                outcome = _upsert(session, found, staged, keys, how, SystemColumns.of(found.table, prefix))
            marks = how.deletes == "soft" and how.since is None and outcome.deleted > 0
            deleted = marks and bool(SystemColumns.of(found.table, prefix).deleted)
            removed = outcome.deleted if how.deletes == "hard" or how.since is not None else 0
            left = _left(session, found, outcome.inserted, removed)
            put(session, found.after_load(commit, left, files, new=outcome.inserted, deleted=deleted))
    return outcome


def _since(session: PostgresSession, record: Record, staged: str, from_: tuple[str, str]) -> LoadOutcome:
    column, low = from_
    kind = sql_type(record.table.by_name[column].type)
    since = f"{q(column)} >= {literal(low)}::{kind}"
    deleted = session.count(f"DELETE FROM {session.name(*record.ref)} WHERE {since} AND {within(record.within)}")
    return LoadOutcome(inserted=_insert(session, record, staged), deleted=deleted)


def _upsert(
    session: PostgresSession, record: Record, staged: str, keys: str, how: Merge, system: SystemColumns
) -> LoadOutcome:
    documents = frozenset(c.name for c in record.table.columns if as_document(c.type))
    one = MergeSql(
        record.table,
        system,
        how,
        session.name(*record.ref),
        _latest(session, staged, how, documents),
        keys if how.keys else "",
        _now(session, staged, system.synced),
        keys if how.requested else "",
        documents,
        record.within,
    )
    for table in filter(None, (staged, keys)):
        if nulls := session.count(one.null_keys(table)):
            hint = "correct them at the source"
            raise StageError(f"table {named(record.ref)}: {nulls} staged rows have NULL in their key", hint=hint)
    if not proves_unique(session, one.target, how.key) and (twins := session.count(one.twins)):
        raise StageError(
            f"table {named(record.ref)} holds {twins} keys more than once: nothing was written",
            hint="`instep sync --full` rebuilds it",
        )
    session.run(_LOOK_UP)
    return one.outcome(session.count)


def _latest(session: PostgresSession, staged: str, how: Merge, documents: frozenset[str]) -> str:
    """Return a table with one row a key: the highest by cursor, then the last one staged; `staged` itself if it is
    one."""
    key = ", ".join(f"{q(k)}::text" if k in documents else q(k) for k in how.key)
    twins = f"SELECT count(*) FROM (SELECT 1 FROM {staged} GROUP BY {key} HAVING count(*) > 1 LIMIT 1) AS twins"
    if not session.count(twins):
        return staged
    order = f"{q(how.cursor)} DESC NULLS LAST, {ORDER} DESC" if how.cursor else f"{ORDER} DESC"
    session.run(
        f"CREATE TEMP TABLE _instep_rows ON COMMIT DROP AS SELECT DISTINCT ON ({key}) * FROM {staged} "
        f"ORDER BY {key}, {order}"
    )
    session.run("ANALYZE _instep_rows")
    return "_instep_rows"


def _now(session: PostgresSession, staged: str, synced: str) -> str:
    """Return the time of the staged rows, as rows that leave or return get it."""
    found = session.run(f"SELECT max({q(synced)})::text FROM {staged}") if synced else []
    at = literal(found[0][0]) if found and found[0][0] is not None else f"to_timestamp({time.time_ns() // 1000} / 1e6)"
    return f"{at}::timestamptz"


class PostgresLoads(PostgresFacet):
    """Loads."""

    def claim(self, ref: Ref, fence: int) -> None:
        """From now on a lower fence is refused. A table that is not there is fine."""
        with self.server.reading() as session:
            record = find(session, ref)
        if record is None or record.fence == fence:
            return
        with self.server.writing() as session:
            record = require(session, ref, lock=True)
            record.check(fence)
            put(session, replace(record, fence=fence))

    def append(self, ref: Ref, files: Sequence[StagedFile], commit: Commit) -> LoadOutcome:
        """The rows are added; files that the last commit has brought are not brought again."""
        record = known(self.server, ref, commit)
        if record.pending is not None:
            raise _replaced(ref)
        if files and record.loaded and record.loaded.last == tuple(sorted(f.path for f in files)):
            return LoadOutcome()
        done = fitting(self.server, ref, lambda: _append(self.server, record, files, commit))
        self.server.area.consume(files)
        return done

    def overwrite(self, ref: Ref, files: Sequence[StagedFile], commit: Commit) -> LoadOutcome:
        """Return the staged rows in the place of all that were; columns that wait for an undo keep their values by
        key."""
        record = known(self.server, ref, commit)
        shape = record.waiting if record.pending is not None else record
        staging, count = Staging(self.server, record, commit), rows_of(files)
        with staging.used("next"):
            next_generation(staging, shape, files)
            with loading(self.server, ref, commit) as (session, found):
                same(found, record)
                whole(session, staging.name("next"), rows_of(files))
                before = found.loaded.rows if found.loaded else 0
                made, new = exchange(session, found, staging.name("next"), count)
                put(session, made.after_load(commit, count, files, new=new, anew=True))
        self.server.area.consume(files)
        return LoadOutcome(inserted=count, deleted=before)

    def merge(
        self, spark: SparkStart | None, ref: Ref, files: Sequence[StagedFile], how: Merge, commit: Commit
    ) -> LoadOutcome:
        """Merge without Spark. StageError for staged rows without a key, or a table with twins."""
        record = known(self.server, ref, commit)
        if record.pending is not None and not how.complete:
            raise _replaced(ref)
        if record.pending is not None:
            return self.overwrite(ref, files, commit)
        if not how.key and how.since is None:
            raise DestinationError(f"table {named(ref)} has no key to merge by", hint="name one in `key:`")
        return fitting(
            self.server, ref, lambda: _merge(self.server, record, files, how, commit, self.server.config.prefix)
        )
