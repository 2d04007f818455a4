# ruff: noqa: S608 - names are quoted, values are parameters
"""Brings staged files into a table: each load is one transaction with its cursor, its fence and its counts.

Merges rows of many megabytes: long values are compared by their digests, and only rows that differ are staged.

DuckDB holds what it joins and what it stages in memory, several times over. Six rows of 75 MB took 3 GB in which one
had changed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from instep.crash import crashpoint
from instep.destinations.base import Commit, LoadOutcome, Merge, Ref, SparkStart
from instep.destinations.duckdb.ddl import swap_in
from instep.destinations.duckdb.file import DatabaseFile, DuckDbFacet, DuckDbSession, exactly
from instep.destinations.duckdb.records import find, prepare, put, require, sql_type
from instep.destinations.sql.alter import named
from instep.destinations.sql.merge import MergeSql, columns, q, within
from instep.destinations.sql.records import Record
from instep.destinations.sql.staged import ORDER, consume, filled
from instep.errors import DestinationError, StageError
from instep.stage.files.place import local
from instep.stage.spec import StagedFile, SystemColumns

OLD, ROWS, KEYS, STAGED = "_instep_old", "_instep_rows", "_instep_keys", "_instep_staged"


@contextmanager
def loading(file: DatabaseFile, ref: Ref, commit: Commit) -> Iterator[tuple[DuckDbSession, Record]]:
    """A transaction over a table that no later run has claimed."""
    with file.writing() as session:
        prepare(session)
        record = require(session, ref)
        record.check(commit.fence)
        yield session, record
        crashpoint("duckdb.commit.before")


def _exchange(session: DuckDbSession, record: Record, files: Sequence[StagedFile]) -> tuple[int, int]:
    """Return how many rows came, and how many of them have no value in the columns that wait for an undo."""
    name, key = session.name(*record.ref), record.table.key
    waiting = [p.place for p in record.parked] if key else []
    if waiting:
        stored = columns((*key, *waiting))
        session.run(f"CREATE TEMP TABLE {OLD} AS SELECT {stored} FROM {name} WHERE {within(record.within)}")
    session.run(f"DELETE FROM {name} WHERE {within(record.within)}")
    added = insert(session, record, files)
    met = 0
    if waiting:
        sets = ", ".join(f"{q(w)} = o.{q(w)}" for w in waiting)
        same = " AND ".join(f"t.{q(k)} = o.{q(k)}" for k in key)
        met = session.count(f"UPDATE {name} AS t SET {sets} FROM {OLD} AS o WHERE {same}")
        session.run(f"DROP TABLE {OLD}")
    return added, added - met


def _replaced(ref: Ref) -> DestinationError:
    return DestinationError(f"table {named(ref)} was replaced: load it whole", hint="run `instep sync --full`")


def insert(session: DuckDbSession, record: Record, files: Sequence[StagedFile]) -> int:
    """Add the rows of the files to the table; returns how many."""
    names = [c.name for c in record.table.columns]
    into = f"INSERT INTO {session.name(*record.ref)} ({columns(names)})"
    return session.count(f"{into} SELECT {columns(names)} FROM {_scan()}", _paths(files)) if filled(files) else 0


def _paths(files: Sequence[StagedFile]) -> list[str]:
    """Their paths as patterns that nothing else matches."""
    return [exactly(str(local(f.path))) for f in filled(files)]


def _scan() -> str:
    return "read_parquet(?, hive_partitioning = false)"


def rows(session: DuckDbSession, record: Record) -> int:
    return session.count(f"SELECT count(*) FROM {session.name(*record.ref)} WHERE {within(record.within)}")


def _since(session: DuckDbSession, record: Record, files: Sequence[StagedFile], how: Merge) -> LoadOutcome:
    assert how.since is not None, "asked for by the caller"
    column, low = how.since
    kind = sql_type(record.table.by_name[column].type)
    gone = f"DELETE FROM {session.name(*record.ref)} WHERE {q(column)} >= CAST(? AS {kind}) AND {within(record.within)}"
    deleted = session.count(gone, low)
    return LoadOutcome(inserted=insert(session, record, files), deleted=deleted)


def _upsert(
    session: DuckDbSession, record: Record, files: Sequence[StagedFile], how: Merge, prefix: str
) -> LoadOutcome:
    if not is_wide(files):
        stage(session, record, STAGED, [c.name for c in record.table.columns], files)
        return _met(session, record, how, prefix, None)
    with frugal(session):
        wide = WideRows(session, record, how, _paths(files), STAGED)
        wide.stage_digests()
        return _met(session, record, how, prefix, wide)


def _met(session: DuckDbSession, record: Record, how: Merge, prefix: str, wide: WideRows | None) -> LoadOutcome:
    """Let the staged rows meet those of the table."""
    system = SystemColumns.of(record.table, prefix)
    if known := how.keys or how.requested:
        stage(session, record, KEYS, how.key, known)
    keys, requested = KEYS if how.keys else "", KEYS if how.requested else ""
    now, others = _now(session, system.synced), STAGED if wide else ""
    sql = MergeSql(
        record.table,
        system,
        how,
        session.name(*record.ref),
        ROWS,
        keys,
        now,
        requested,
        within=record.within,
        others=others,
    )
    _check(session, record, sql, [STAGED, *([KEYS] if known else [])])
    if wide:
        wide.stage_changed(ROWS, sql)
    else:
        # one row a key: the highest by cursor, then the last one staged
        order = f"{q(how.cursor)} DESC NULLS LAST, {ORDER} DESC" if how.cursor else f"{ORDER} DESC"
        session.run(
            f"CREATE TEMP TABLE {ROWS} AS SELECT * FROM {STAGED} "
            f"QUALIFY row_number() OVER (PARTITION BY {columns(how.key)} ORDER BY {order}) = 1"
        )
    if twins := session.count(sql.twins):
        raise StageError(
            f"table {named(record.ref)} holds {twins} keys more than once: nothing was written",
            hint="`instep sync --full` rebuilds it",
        )
    outcome = sql.outcome(session.count)
    for table in (STAGED, ROWS, *([KEYS] if known else [])):
        session.run(f"DROP TABLE {table}")
    return outcome


def stage(
    session: DuckDbSession, record: Record, table: str, names: Sequence[str], files: Sequence[StagedFile]
) -> None:
    """A temporary table with the rows of the files; `ORDER` numbers them as they came."""
    kinds = {c.name: sql_type(c.type) for c in record.table.columns}
    session.run(f"CREATE TEMP TABLE {table} ({', '.join(f'{q(n)} {kinds[n]}' for n in names)}, {ORDER} BIGINT)")
    if filled(files):
        sql = f"INSERT INTO {table} SELECT {columns(names)}, row_number() OVER () FROM {_scan()}"
        session.run(sql, [_paths(files)])


def _check(session: DuckDbSession, record: Record, sql: MergeSql, tables: Sequence[str]) -> None:
    if nulls := sum(session.count(sql.null_keys(t)) for t in tables):
        raise StageError(
            f"table {named(record.ref)}: {nulls} staged rows have NULL in their key", hint="correct them at the source"
        )


def _now(session: DuckDbSession, synced: str) -> str:
    """Return the time of the staged rows, as rows that leave or return get it."""
    found = session.run(f"SELECT epoch_us(max({q(synced)})) FROM {STAGED}") if synced else []
    at = found[0][0] if found and found[0][0] is not None else time.time_ns() // 1000
    return f"make_timestamptz({int(at)})"


class DuckDbLoads(DuckDbFacet):
    """Loads."""

    def claim(self, ref: Ref, fence: int) -> None:
        """From now on a lower fence is refused. A table that is not there is fine."""
        with self.file.reading() as session:
            record = find(session, ref) if session else None
        if record is None or record.fence == fence:
            return
        with self.file.writing() as session:
            record = require(session, ref)
            record.check(fence)
            put(session, replace(record, fence=fence))

    def append(self, ref: Ref, files: Sequence[StagedFile], commit: Commit) -> LoadOutcome:
        """The rows are added; files that the last commit has brought are not brought again."""
        with self.here(commit, files) as (here,):
            with loading(self.file, ref, commit) as (session, record):
                if record.pending is not None:
                    raise _replaced(ref)
                if here and record.loaded and record.loaded.last == tuple(sorted(f.path for f in here)):
                    return LoadOutcome()
                added = insert(session, record, here)
                put(session, record.after_load(commit, rows(session, record), here, new=added))
            consume(here)
        return LoadOutcome(inserted=added)

    def overwrite(self, ref: Ref, files: Sequence[StagedFile], commit: Commit) -> LoadOutcome:
        """Return the staged rows in the place of all that were; columns that wait for an undo keep their values by
        key."""
        with self.here(commit, files) as (here,):
            return self._overwrite(ref, here, commit)

    def _overwrite(self, ref: Ref, files: Sequence[StagedFile], commit: Commit) -> LoadOutcome:
        with loading(self.file, ref, commit) as (session, record):
            before = record.loaded.rows if record.loaded else 0
            if record.pending is not None:
                record = swap_in(session, record)
                added = new = insert(session, record, files)
            else:
                added, new = _exchange(session, record, files)
            put(session, record.after_load(commit, added, files, new=new, anew=True))
        consume(files)
        return LoadOutcome(inserted=added, deleted=before)

    def merge(
        self, spark: SparkStart | None, ref: Ref, files: Sequence[StagedFile], how: Merge, commit: Commit
    ) -> LoadOutcome:
        """Merge without Spark. StageError for staged rows without a key, or a table with twins."""
        with self.here(commit, files, how.keys, how.requested) as (here, keys, requested):
            return self._merge(ref, here, replace(how, keys=tuple(keys), requested=tuple(requested)), commit)

    def _merge(self, ref: Ref, files: Sequence[StagedFile], how: Merge, commit: Commit) -> LoadOutcome:
        prefix = self.config.prefix
        with self.file.reading() as session:
            waits = session is not None and require(session, ref).pending is not None
        if waits and not how.complete:
            raise _replaced(ref)
        if waits:
            return self._overwrite(ref, files, commit)
        if not how.key and how.since is None:
            raise DestinationError(f"table {named(ref)} has no key to merge by", hint="name one in `key:`")
        with loading(self.file, ref, commit) as (session, record):
            outcome = _since(session, record, files, how) if how.since else _upsert(session, record, files, how, prefix)
            marks = how.deletes == "soft" and how.since is None and outcome.deleted > 0
            deleted = marks and bool(SystemColumns.of(record.table, prefix).deleted)
            after = record.after_load(commit, rows(session, record), files, new=outcome.inserted, deleted=deleted)
            put(session, after)
        return outcome


WIDE = 1 << 20
"""Bytes of a row, on average, from which rows are compared by digests."""
FILE, ROW = "_instep_file", "_instep_row"
_LONG = ("VARCHAR", "BLOB", "JSON")
"""Types of columns whose values may be long."""


@dataclass(frozen=True)
class WideRows:
    """The staged rows in `paths` of one merge. `digests`: a temporary table with their keys, their short values and the
    digests of their long ones."""

    session: DuckDbSession
    record: Record
    how: Merge
    paths: list[str]
    digests: str

    @property
    def _kinds(self) -> dict[str, str]:
        return {c.name: sql_type(c.type) for c in self.record.table.columns}

    def _digest(self, name: str) -> str:
        kind = self._kinds[name]
        if kind not in _LONG or name in self.how.key or name == self.how.cursor:
            return f"CAST({q(name)} AS {kind}) AS {q(name)}"
        return f"sha256(CAST({q(name)} AS {'BLOB' if kind == 'BLOB' else 'VARCHAR'})) AS {q(name)}"

    def stage_digests(self) -> None:
        """Make the table of digests; `ORDER` numbers the rows as they came."""
        names = [c.name for c in self.record.table.columns]
        made = ", ".join(self._digest(name) for name in names)
        place = f"filename AS {FILE}, file_row_number AS {ROW}, row_number() OVER () AS {ORDER}"
        self.session.run(f"CREATE TEMP TABLE {self.digests} AS SELECT {made}, {place} FROM {_SCAN}", [self.paths])

    def stage_changed(self, rows: str, sql: MergeSql) -> None:
        """Make the table `rows` with the last row of each key, without those that the destination has as they are."""
        names = [c.name for c in self.record.table.columns]
        order = ", ".join([*([f"{q(self.how.cursor)} DESC NULLS LAST"] if self.how.cursor else []), f"{ORDER} DESC"])
        last = (
            f"SELECT * FROM {self.digests} "
            f"QUALIFY row_number() OVER (PARTITION BY {columns(self.how.key)} ORDER BY {order}) = 1"
        )
        compared = [*self.how.key, *sql.values, *([sql.system.deleted] if sql.system.deleted else [])]
        there = ", ".join(self._digest(name) for name in dict.fromkeys(compared))
        same = [f"s.{q(name)} IS NOT DISTINCT FROM t.{q(name)}" for name in sql.values]
        known = f"SELECT {there} FROM {sql.target}"
        as_they_are = (
            f"SELECT 1 FROM known AS t WHERE {' AND '.join([sql.same_key('t', 's'), f'NOT {sql.gone}', *same])}"
        )
        changed = f"WITH known AS ({known}), last AS ({last}) SELECT {FILE}, {ROW} FROM last AS s"
        self.session.run(
            f"CREATE TEMP TABLE {rows} AS SELECT {columns(names, 'f')} FROM {_SCAN} AS f "
            f"SEMI JOIN ({changed} WHERE NOT EXISTS ({as_they_are})) AS c "
            f"ON f.filename = c.{FILE} AND f.file_row_number = c.{ROW}",
            [self.paths],
        )


_SCAN = "read_parquet(?, hive_partitioning = false, filename = true, file_row_number = true)"


@contextmanager
def frugal(session: DuckDbSession) -> Iterator[None]:
    """Hold as few rows in memory as there can be: those of one thread, and nothing that reading them has left."""
    pa.default_memory_pool().release_unused()
    session.run("SET threads = 1")
    try:
        yield
    finally:
        session.run("RESET threads")


def is_wide(files: Sequence[StagedFile]) -> bool:
    """Tell from the footers of staged files whether their rows are long; no file is opened."""
    rows = sum(file.rows for file in files)
    return bool(rows) and sum(map(_uncompressed, files)) > rows * WIDE


def _uncompressed(file: StagedFile) -> int:
    footer = pq.read_metadata(pa.BufferReader(file.footer))
    return sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups))
