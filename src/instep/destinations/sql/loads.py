# ruff: noqa: S608 - names are quoted
"""Brings staged files into a table: each load is one transaction with its cursor, its fence and its counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from instep.destinations.base import Commit, LoadOutcome, Merge, Ref, SparkStart, StagingTarget
from instep.destinations.shared import with_shard
from instep.destinations.sql.database import SqlFacet, Staging
from instep.destinations.sql.merge import MergeSql, q, shard_condition, text_literal
from instep.destinations.sql.record_tables import find, named, put, require
from instep.destinations.sql.records import Record
from instep.destinations.sql.session import SqlSession
from instep.errors import DestinationError, StageError
from instep.stage.spec import StagedFile, SystemColumns


class SqlLoads(SqlFacet):
    """Loads."""

    def claim(self, ref: Ref, fence: int) -> None:
        """Refuse commits with a lower fence from now on; a missing table is ignored."""
        with self.database.reading() as session:
            record = find(session, ref)
        if record is None or record.fence == fence:
            return
        with self.database.writing() as session:
            record = require(session, ref, lock=True)
            record.check(fence)
            put(session, replace(record, fence=fence))

    def target(self, ref: Ref) -> StagingTarget:
        """Return where tasks write a table's files."""
        with self.database.reading() as session:
            record = require(session, ref)
        area, shape = self.database.area, record.waiting if record.pending else record
        place = area.folder(record.place)
        schema = with_shard(self.database.dialect.arrow_schema(shape), shape.within)
        types = {c.name: c.type for c in shape.table.columns} if shape.within else {}
        return StagingTarget(schema, f"{place}/data", f"{place}/quarantine", area.io, types)

    def append(
        self, ref: Ref, files: Sequence[StagedFile], commit: Commit, spark: SparkStart | None = None
    ) -> LoadOutcome:
        """Add the rows; files that the last commit has brought are not added again."""
        if any(f.rows for f in files):
            record = self.database.known(ref, commit)
            if _has_loaded(record, files):
                return LoadOutcome()
            done = self.database.fitting(ref, lambda: self._append(record, files, commit, spark))
        else:
            with self.database.loading(ref, commit) as (session, current):
                done = _add(session, current, files, commit)
        self.database.area.consume(files)
        return done

    def _append(
        self, record: Record, files: Sequence[StagedFile], commit: Commit, spark: SparkStart | None
    ) -> LoadOutcome:
        with self.database.staging(record, commit, spark) as staging:
            staging.add("rows", record.names, files)
            with staging.loading() as (session, current):
                return _add(session, current, files, commit, staging)

    def overwrite(
        self, ref: Ref, files: Sequence[StagedFile], commit: Commit, spark: SparkStart | None = None
    ) -> LoadOutcome:
        """Return the staged rows in place of all that were; columns that wait for an undo keep their values by
        key."""
        record = self.database.known(ref, commit)
        with self.database.staging(record, commit, spark) as staging:
            staging.add_whole(record.waiting if record.pending else record, files)
            with staging.loading() as (session, current):
                before = current.loaded.rows if current.loaded else 0
                replaced, count, new = staging.exchange(session, current)
                version = _put(session, replaced.after_load(commit, count, files, new=new, replaces_rows=True))
        self.database.area.consume(files)
        return LoadOutcome(inserted=count, deleted=before, version=version)

    def merge(
        self, spark: SparkStart | None, ref: Ref, files: Sequence[StagedFile], how: Merge, commit: Commit
    ) -> LoadOutcome:
        """Merge in the database. StageError for staged rows without a key, or a table with twins."""
        record = self.database.known(ref, commit)
        if record.pending is not None and not how.complete:
            raise _replaced(ref)
        if record.pending is not None:
            return self.overwrite(ref, files, commit, spark)
        if not how.key and how.since is None:
            raise DestinationError(f"table {named(ref)} has no key to merge by", hint="name one in `key:`")
        return self.database.fitting(ref, lambda: self._merge(record, files, how, commit, spark))

    def _merge(
        self, record: Record, files: Sequence[StagedFile], how: Merge, commit: Commit, spark: SparkStart | None
    ) -> LoadOutcome:
        system = SystemColumns.of(record.table, self.database.config.prefix)
        with self.database.staging(record, commit, spark) as staging:
            staging.add("rows", record.names, files, how if how.since is None else None)
            if how.since is None and (keys := how.keys or how.requested):
                staging.add("keys", how.key, keys)
            with staging.loading() as (session, current):
                if how.since is not None:
                    outcome, removed = _since(session, current, staging, *how.since), True
                else:
                    outcome, removed = _upsert(session, current, staging, how, system), how.deletes == "hard"
                marked = how.deletes == "soft" and how.since is None and outcome.deleted > 0 and bool(system.deleted)
                left = _left(session, current, outcome.inserted, outcome.deleted if removed else 0)
                version = _put(session, current.after_load(commit, left, files, new=outcome.inserted, deleted=marked))
        return replace(outcome, version=version)


def _has_loaded(record: Record, files: Sequence[StagedFile]) -> bool:
    """Return whether the last commit has loaded these files; DestinationError for a table that waits for its rows."""
    if record.pending is not None:
        raise _replaced(record.ref)
    return bool(files and record.loaded and record.loaded.last == tuple(sorted(f.path for f in files)))


def _add(
    session: SqlSession, record: Record, files: Sequence[StagedFile], commit: Commit, staging: Staging | None = None
) -> LoadOutcome:
    """Add what is staged of files, unless another attempt with them was faster."""
    if _has_loaded(record, files):
        return LoadOutcome()
    added = staging.insert(session, record, "rows") if staging else 0
    version = _put(session, record.after_load(commit, _left(session, record, added), files, new=added))
    return LoadOutcome(inserted=added, version=version)


def _put(session: SqlSession, record: Record) -> str:
    """Write the record of a load; returns the version of the rows, as they are in this transaction."""
    put(session, record)
    return session.version(record)


def _replaced(ref: Ref) -> DestinationError:
    return DestinationError(f"table {named(ref)} was replaced: load it whole", hint="run `instep sync --full`")


def count_rows(session: SqlSession, record: Record) -> int:
    return session.count(f"SELECT count(*) FROM {session.name(*record.ref)} WHERE {shard_condition(record.within)}")


def _left(session: SqlSession, before: Record, new: int, removed: int = 0) -> int:
    rows = None if session.dialect.counts_quickly else before.rows_after(new, removed)
    return count_rows(session, before) if rows is None else rows


def _since(session: SqlSession, record: Record, staging: Staging, column: str, low: str) -> LoadOutcome:
    kind = session.dialect.sql_type(record.table.by_name[column].type)
    since = f"{q(column)} >= {text_literal(low)}::{kind} AND {shard_condition(record.within)}"
    deleted = session.count(f"DELETE FROM {session.name(*record.ref)} WHERE {since}")
    return LoadOutcome(inserted=staging.insert(session, record, "rows"), deleted=deleted)


def _upsert(session: SqlSession, record: Record, staging: Staging, how: Merge, system: SystemColumns) -> LoadOutcome:
    rows, keys = staging.table("rows"), staging.table("keys") if how.keys or how.requested else ""
    staged = MergeSql(
        record.table,
        system,
        how,
        session.name(*record.ref),
        rows,
        keys if how.keys else "",
        _now(session, rows, system.synced),
        keys if how.requested else "",
        session.dialect.documents(record.table),
        record.within,
    )
    if nulls := sum(session.count(staged.null_keys(table)) for table in (rows, keys) if table):
        hint = "correct them at the source"
        raise StageError(f"table {named(record.ref)}: {nulls} staged rows have NULL in their key", hint=hint)
    session.check_texts(record)
    with staging.last_of_each_key(session, staged) as sql:
        if not session.is_unique(sql.target, how.key) and (twins := session.count(sql.count_table_duplicates)):
            raise StageError(
                f"table {named(record.ref)} holds {twins} keys more than once: nothing was written",
                hint="`instep backfill` reloads it",
            )
        session.prefer_index()
        return sql.outcome(session.count)


def _now(session: SqlSession, rows: str, synced: str) -> str:
    """Return the time of the staged rows, as rows that leave or return get it."""
    latest = session.run(f"SELECT max({q(synced)})::text FROM {rows}") if synced else []
    at = latest[0][0] if latest and latest[0][0] is not None else datetime.now(UTC).isoformat()
    return f"{text_literal(at)}::timestamptz"
