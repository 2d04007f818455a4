# ruff: noqa: S608 - columns are numbered
"""A load into a table that keeps its history: its rows become versions before they are merged.

The destination knows nothing of histories. Its table has the key and the begin of a version as its key, and what is
merged are versions: ended ones with their end, new ones. So a load is one commit with its cursor and its fence as
any other, and one that is done again finds the current versions equal to the source, and makes none.

Staged rows meet the versions of a table's rows: which end, which begin, which only get what they lacked. Pure SQL.

Columns are c0, c1, ... in the order of `columns`. The tables are DuckDB's: `staged` (one row a key, `n` its number),
`known` (keys of the source) and `there` (the versions that matter: current ones, `open`, and ended ones that may come
back). `met` is made from them, `written` reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from instep.crash import crashpoint
from instep.destinations.base import Commit, LoadOutcome, Merge, Ref
from instep.destinations.filters import ColumnFilter
from instep.stage.files.writer import ChunkWriter
from instep.stage.spec import StagedFile, StageSpec, SystemColumns
from instep.sync.context import SyncContext
from instep.sync.loading.row_matching import (
    BATCH,
    MOMENT,
    as_plain,
    as_stored,
    database,
    numbered,
    staged_rows,
    tabled,
    with_column,
)
from instep.sync.loading.table_load import Load
from instep.sync.loading.version_rows import (
    Hashes,
    LargeVersions,
    LastMoments,
    VersionColumns,
    Which,
    combined_hashes,
)

if TYPE_CHECKING:
    import duckdb

    from instep.destinations.facets import WriteFacet
    from instep.sync.loading.engine import Engine


FEW = 100_000
"""Keys whose versions a database looks up; for more it hands over all of its current ones."""
MergeBy = Callable[[Sequence[StagedFile], Merge, Commit], LoadOutcome]


@dataclass(frozen=True)
class FreshColumns:
    """Columns whose values a load may bring into current versions: see `versions.Plan`."""

    again: frozenset[str] = frozenset()
    filled: frozenset[str] = frozenset()


def fresh_columns(context: SyncContext, load: Load) -> FreshColumns:
    """Return new columns by their names at the destination."""
    read = {c.name: c.read for c in context.store.loaded.of(context.name, [load.table.ref]).get(load.table.ref, ())}
    waiting = {b.column for b in context.store.backfills.waiting(context.name) if b.table == load.table.ref}
    names = {c.column.name: c.column.alias or c.column.name for c in load.read.columns if c.source is not None}
    again = frozenset(alias for name, alias in names.items() if read and not read.get(name))
    return FreshColumns(again, frozenset(alias for name, alias in names.items() if name in waiting))


def reads_by_tasks(write: WriteFacet, ref: Ref, coming: Sequence[StagedFile]) -> bool:
    """Return whether tasks read the versions that these rows meet, from metadata alone."""
    return write.is_large(ref, coming) and write.scan(ref, []) is not None


def merge_versions(
    context: SyncContext,
    load: Load,
    files: Sequence[StagedFile],
    how: Merge,
    spec: StageSpec,
    commit: Commit,
    merge: MergeBy,
    engine: Engine,
) -> LoadOutcome:
    """Merge staged rows as versions, by `merge`; answers keys that came, changed and left. `how` is the merge that the
    rows themselves would be. Tasks of the `engine` read a large table."""
    large: LargeVersions | None = None
    write, coming = context.destination.write, [*files, *how.keys, *how.requested]
    in_files = write.scan(load.ref, []) is not None
    if reads_by_tasks(write, load.ref, coming):
        large = LargeVersions(engine, partial(write.scan, load.ref), spec, how.key)
        engine.for_large(lambda step: None, f"{load.table.path}: history")
    few = not (in_files or how.complete or how.keys) and sum(f.rows for f in coming) <= FEW
    return _Versions(context, load, tuple(files), how, spec, commit, merge, large, few).all()


@dataclass(frozen=True)
class _Versions:
    context: SyncContext
    load: Load
    files: tuple[StagedFile, ...]
    how: Merge
    spec: StageSpec
    commit: Commit
    merge: MergeBy
    large: LargeVersions | None
    few: bool
    """True if a database is to look versions up by the keys that came."""

    @property
    def ref(self) -> Ref:
        return self.load.ref

    @property
    def system(self) -> SystemColumns:
        return self.spec.system

    def all(self) -> LoadOutcome:
        last, before = self.last_moment()
        if before:
            self.begin(last)
            crashpoint("history.begun")
        at = max(self.load.read_at, last + 1)
        with database() as db:
            plan = self.plan(at)
            self.fill(db, plan)
            counts = {str(what): int(n) for what, n in db.execute(plan.counts).fetchall()}
            [(absent,)] = db.execute(plan.absent).fetchall() if self.how.keys else [(0,)]
            files = self.write(iter(db.sql(plan.written).to_arrow_reader(BATCH)), 0)
        crashpoint("history.written")
        self.merge(files, Merge((*self.how.key, self.system.valid_from), deletes="ignore"), self.commit)
        count = {what: counts.get(what, 0) for what in COUNTS}
        updated = count["changed"] + count["filled"]
        return LoadOutcome(count["begun"], updated, count["gone"], int(absent), count["returned"])

    def plan(self, at: int) -> VersionPlan:
        choice, names = self.load.choice, {c.name: c.alias or c.name for c in self.load.table.columns}
        fresh = fresh_columns(self.context, self.load)
        cursor = names[choice.cursor] if choice.cursor else ""
        return VersionPlan(
            tuple(self.spec.schema.names),
            self.how,
            self.system,
            cursor,
            fresh.again,
            fresh.filled,
            at,
            self.spec.synced,
        )

    def last_moment(self) -> tuple[int, bool]:
        """Return the last moment that the table's versions tell of, and whether it has rows that are none yet."""
        if self.large is not None:
            return self.large.last_moment()
        names = [self.system.valid_from, self.system.valid_to, self.system.synced]
        [moments] = LastMoments()(b.select(names) for b in self.context.destination.write.read(self.ref, names))
        return moments

    def begin(self, last: int) -> None:
        """Turn rows from before the history into versions: valid since they were last written, ended then if the
        source had deleted them. In a commit of its own, which moves no cursor."""
        state = self.context.destination.schema.state(self.ref)
        assert state is not None, "a table with rows has been loaded"
        files = self.write((self.as_versions(b, last) for b in self.rows("before")), 1)
        commit = Commit(self.commit.run, self.commit.fence, state.cursor, state.accepted)
        self.merge(files, Merge(self.how.key, deletes="ignore"), commit)

    def as_versions(self, batch: pa.RecordBatch, last: int) -> pa.RecordBatch:
        s = self.system
        written = pc.fill_null(self.of(batch, s.synced), pa.scalar(last, pa.int64()).cast(MOMENT))
        ended = pc.fill_null(self.of(batch, s.deleted), False)
        values = {
            s.valid_from: written,
            s.valid_to: pc.if_else(ended, written, pa.scalar(None, MOMENT)),
            s.current: pc.invert(ended),
        }
        columns = [values.get(n, c) for n, c in zip(self.spec.schema.names, batch.columns, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def of(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        return batch.column(self.spec.schema.get_field_index(name))

    def rows(self, which: Which, hashes: Hashes | None = None) -> Iterator[pa.RecordBatch]:
        """Yield rows of the table as c0, c1, ..., without extension types; of a large one those of keys with these
        hashes."""
        if self.large is not None:
            yield from self.large.versions(which, hashes)
            return
        names, columns = self.spec.schema.names, self.columns
        filters = [ColumnFilter(self.system.current, "=", (True,))] if which == "current" else []
        batches = (b.select(names) for b in self.context.destination.write.read(self.ref, names, filters))
        for batch in columns.plain(batches):
            filtered = batch.filter(columns.mask(batch, which))
            if len(filtered):
                yield filtered

    @cached_property
    def columns(self) -> VersionColumns:
        names, s = self.spec.schema.names, self.system
        places = (names.index(n) for n in (s.current, s.deleted, s.valid_from))
        return VersionColumns(numbered(self.spec.schema), tuple(map(names.index, self.how.key)), *places)

    def affected_hashes(self, plan: VersionPlan) -> Hashes | None:
        """Return the hashes of the keys whose rows have to be looked at, in a large table; None: of all."""
        if self.large is None:
            return None
        if self.how.complete:
            return self.large.differing(self.files, plan.values)
        hashes = self.large.staged_hashes(self.files, self.how.requested)
        return combined_hashes(hashes, self.large.differing(self.how.keys, ())) if self.how.keys else hashes

    def fill(self, db: duckdb.DuckDBPyConnection, plan: VersionPlan) -> None:
        """Make `staged`, `known` and `met`."""
        schema, touched = numbered(self.spec.schema), self.affected_hashes(plan)
        self.staged(db, "staged", self.files, self.spec.schema.names, touched)
        db.execute(f"DELETE FROM staged WHERE n IN ({plan.superseded_rows})").fetchall()
        if key_files := self.how.keys or self.how.requested:
            self.staged(db, "bare", key_files, self.how.key, touched)
            own = ", ".join(f"c{at} AS {plan.column(k)}" for at, k in enumerate(self.how.key))
            db.execute(f"CREATE TEMP TABLE known AS SELECT DISTINCT {own}, true AS here FROM bare").fetchall()
        # with bare keys of the source also those that a delete has ended, for they may be back
        which: Which = "ended or current" if self.how.keys else "current"
        stored = self.looked_up(db, plan) if self.few else self.rows(which, touched)
        current = self.columns.current
        marked = (with_column(b, "open", pc.fill_null(b.column(current), False)) for b in stored)
        db.register("there", pa.RecordBatchReader.from_batches(schema.append(pa.field("open", pa.bool_())), marked))
        db.execute(f"CREATE TEMP TABLE met AS {plan.matches}").fetchall()
        db.unregister("there")
        [(returned,)] = db.execute("SELECT count(*) FROM met WHERE what = 'returned'").fetchall()
        if returned:
            self.return_only_gone(db, plan, touched)

    def looked_up(self, db: duckdb.DuckDBPyConnection, plan: VersionPlan) -> list[pa.RecordBatch]:
        """Return the current versions of the keys that came, found by the destination."""
        write, key = self.context.destination.write, ", ".join(plan.key)
        other_keys = f" UNION SELECT {key} FROM known" if self.how.requested else ""
        keys = db.sql(f"SELECT DISTINCT {key} FROM staged{other_keys}").to_arrow_table().combine_chunks()
        if not len(keys) or self.context.destination.schema.state(self.ref) is None:
            return []
        kinds = [self.spec.schema.field(k).type for k in self.how.key]
        columns = [as_stored(c.combine_chunks(), kind) for c, kind in zip(keys.columns, kinds, strict=True)]
        rows = write.lookup_rows(self.ref, pa.table(columns, names=list(self.how.key))).rows
        plain = self.columns.plain(rows.select(self.spec.schema.names).to_batches())
        return [batch.filter(self.columns.mask(batch, "current")) for batch in plain]

    def staged(
        self,
        db: duckdb.DuckDBPyConnection,
        table: str,
        files: Sequence[StagedFile],
        names: Sequence[str],
        touched: Hashes | None,
    ) -> None:
        """Make a table of columns of staged rows, with their numbers; of a large one of those that are touched."""
        schema = numbered(pa.schema([self.spec.schema.field(n) for n in names]))
        if self.large is None or touched is None:
            tabled(db, table, staged_rows(files, self.spec, names), schema)
        else:
            tabled(db, table, self.large.staged(files, names, touched), schema, are_numbered=True)

    def return_only_gone(self, db: duckdb.DuckDBPyConnection, plan: VersionPlan, touched: Hashes | None) -> None:
        schema = numbered(self.spec.schema)
        some = pa.schema([schema.field(plan.column(k)) for k in self.how.key])
        if self.large is not None:
            current = self.large.keys(touched)
        else:
            key, flag = list(self.how.key), self.system.current
            filters = [ColumnFilter(flag, "=", (True,))]
            read = self.context.destination.write.read(self.ref, [*key, flag], filters)
            current = (b.filter(b.column(flag)).select(key) for b in read)
        rows = (
            pa.RecordBatch.from_arrays(
                [as_plain(c, f.type) for c, f in zip(b.columns, some, strict=False)], schema=some
            )
            for b in current
        )
        tabled(db, "stands", rows, some)
        db.execute(plan.delete_surplus_returned).fetchall()

    def write(self, batches: Iterator[pa.RecordBatch], part: int) -> tuple[StagedFile, ...]:
        """Stage rows as tasks do, beside what they have staged."""
        writer = ChunkWriter(
            replace(self.spec, columns=()), max((f.chunk for f in self.files), default=0) + 1 + part, 0
        )
        try:
            for batch in batches:
                columns = [as_stored(c, f.type) for c, f in zip(batch.columns, self.spec.schema, strict=True)]
                writer.write(pa.RecordBatch.from_arrays(columns, schema=self.spec.schema))
            return writer.close()
        except BaseException:
            writer.abort()
            raise


COUNTS = ("begun", "changed", "filled", "gone", "returned")
"""What becomes of a key: its first version, another one, values in the current one, an end. `returned`: its versions
have ended, the source has it, and its row was not read."""


@dataclass(frozen=True)
class VersionPlan:
    """One load's rows and versions."""

    columns: tuple[str, ...]
    how: Merge
    system: SystemColumns
    cursor: str = ""
    """Orders changes, "" without: a row whose cursor stands still has not changed, so a value that it lacked is
    filled in."""
    again: frozenset[str] = frozenset()
    """Columns whose values are read for the first time since they were accepted or switched on."""
    filled: frozenset[str] = frozenset()
    """Columns that wait for a backfill: their differences make no version, in rows without a value."""
    at: int = 0
    """Time at which new versions begin."""
    synced: int = 0
    """The run's time (microseconds since 1970 UTC)."""

    def column(self, name: str) -> str:
        return f"c{self.columns.index(name)}"

    @cached_property
    def values(self) -> tuple[str, ...]:
        """Columns that are compared."""
        s = self.system
        out = {s.synced, s.deleted, s.valid_from, s.valid_to, s.current, *self.how.key, *self.how.unread}
        return tuple(c for c in self.columns if c not in out)

    @property
    def key(self) -> list[str]:
        return [self.column(k) for k in self.how.key]

    def same_key(self, a: str, b: str) -> str:
        return " AND ".join(f"{a}.{k} = {b}.{k}" for k in self.key)

    @property
    def superseded_rows(self) -> str:
        """The numbers of staged rows that another one of their key supersedes: the highest cursor, then the last."""
        order = f"{self.column(self.cursor)} DESC NULLS LAST, n DESC" if self.cursor else "n DESC"
        ranked = (
            f"SELECT n, row_number() OVER (PARTITION BY {', '.join(self.key)} ORDER BY {order}) AS place FROM staged"
        )
        return f"SELECT n FROM ({ranked}) WHERE place > 1"

    @property
    def matches(self) -> str:
        """`what` becomes of each version: `n` is the number of the staged row that it met, `known` tells a current one
        whose key the source has. Values of versions that stay are left out."""
        keyed = self.how.keys or self.how.requested
        known_keys = f" LEFT JOIN known AS k ON {self.same_key('t', 'k')}" if keyed else ""
        join = f"there AS t LEFT JOIN staged AS s ON {self.same_key('t', 's')}{known_keys}"
        in_source = "t.open AND coalesce(k.here, false)" if self.how.keys else "false"
        what = f"{self._outcome_sql} AS what, {in_source} AS known"
        outcomes = f"SELECT t.*, CASE WHEN t.open THEN s.n END AS n, {what} FROM {join}"
        columns = ", ".join(f"CASE WHEN what <> 'same' THEN c{i} END AS c{i}" for i in range(len(self.columns)))
        return f"SELECT what, n, known, {columns} FROM ({outcomes}) WHERE what <> 'same' OR n IS NOT NULL OR known"

    @property
    def _outcome_sql(self) -> str:
        in_source = "k.here" if self.how.keys or self.how.requested else "false"
        cases = [
            ("NOT t.open", f"CASE WHEN s.n IS NULL AND {in_source} THEN 'returned' ELSE 'same' END"),
            (
                "s.n IS NOT NULL",
                f"CASE WHEN {self._late} THEN 'same' WHEN {self._changed} THEN 'changed' "
                f"WHEN {self._differs} THEN 'filled' ELSE 'same' END",
            ),
            (self._ended_condition, "'gone'"),
        ]
        return "CASE " + " ".join(f"WHEN {when} THEN {then}" for when, then in cases) + " ELSE 'same' END"

    @property
    def _late(self) -> str:
        if not self.how.cursor:
            return "false"
        cursor = self.column(self.how.cursor)
        return f"coalesce(s.{cursor} < t.{cursor}, false)"

    @property
    def _ended_condition(self) -> str:
        """Return the SQL condition for a version without a staged row."""
        if self.how.deletes == "ignore":
            return "false"
        if self.how.keys:
            return "k.here IS NULL"
        return "k.here" if self.how.requested else str(self.how.complete).lower()

    @property
    def _differs(self) -> str:
        return self._any([self._distinct(c) for c in self.values])

    @property
    def _changed(self) -> str:
        notes = {self.system.meta, self.system.extra}
        own = (c for c in self.values if c not in notes and c not in self.again)
        return self._any([f"({self._distinct(c)}{self._unless_filled(c)})" for c in own])

    def _distinct(self, name: str) -> str:
        return f"t.{self.column(name)} IS DISTINCT FROM s.{self.column(name)}"

    def _unless_filled(self, name: str) -> str:
        has = f"t.{self.column(name)} IS NOT NULL"
        if name in self.filled:
            return f" AND {has}"
        if not self.cursor or name == self.cursor:
            return ""
        return f" AND ({has} OR {self._distinct(self.cursor)})"

    @staticmethod
    def _any(conditions: Sequence[str]) -> str:
        return " OR ".join(conditions) or "false"

    @property
    def delete_surplus_returned(self) -> str:
        """Keeps of the ended versions whose key is back the last one of keys without a current version (`stands`)."""
        begin = self.column(self.system.valid_from)
        stands = f"SELECT 1 FROM stands AS c WHERE {self.same_key('c', 'met')}"
        same = self.same_key("o", "met")
        later = f"SELECT 1 FROM met AS o WHERE o.what = 'returned' AND o.{begin} > met.{begin} AND {same}"
        return f"DELETE FROM met WHERE what = 'returned' AND (EXISTS ({stands}) OR EXISTS ({later}))"

    @property
    def counts(self) -> str:
        begun = "SELECT 'begun' AS what FROM staged AS s WHERE NOT EXISTS (SELECT 1 FROM met WHERE met.n = s.n)"
        return f"SELECT what, count(*) FROM (SELECT what FROM met UNION ALL {begun}) GROUP BY what"

    @property
    def absent(self) -> str:
        """Counts the keys of the source that neither a version nor a staged row has."""
        begun = "SELECT 1 FROM staged AS s WHERE NOT EXISTS (SELECT 1 FROM met WHERE met.n = s.n)"
        present = f"(SELECT count(*) FROM met WHERE known OR what = 'returned') + (SELECT count(*) FROM ({begun}))"
        return f"SELECT greatest(count(*) - ({present}), 0) FROM known"

    @property
    def written(self) -> str:
        """The rows to merge by key and begin: ended versions, begun ones, current ones that got values."""
        unread = set(self.how.unread) & set(self.columns)
        staged = {c: f"s.{self.column(c)}" for c in self.columns}
        values = staged | {c: f"m.{self.column(c)}" for c in unread}
        old = {c: f"m.{self.column(c)}" for c in self.columns}
        alone = "staged AS s WHERE NOT EXISTS (SELECT 1 FROM met WHERE met.n = s.n)"
        pairs = "met AS m JOIN staged AS s ON m.n = s.n WHERE m.what ="
        begin = old[self.system.valid_from]
        parts = [
            (staged | self._open(self._moment(self.at)), alone),
            (values | self._open(self._moment(self.at)), f"{pairs} 'changed'"),
            (values | self._open(begin), f"{pairs} 'filled'"),
            (old | self._ended, "met AS m WHERE m.what IN ('changed', 'gone')"),
        ]
        return " UNION ALL ".join(
            f"SELECT {', '.join(f'{row[c]} AS c{i}' for i, c in enumerate(self.columns))} FROM {source}"
            for row, source in parts
        )

    def _open(self, begin: str) -> dict[str, str]:
        s = self.system
        return {s.valid_from: begin, s.valid_to: "NULL", s.current: "true", s.deleted: "false"}

    @property
    def _ended(self) -> dict[str, str]:
        s = self.system
        return self._stamp | {s.valid_to: self._moment(self.at), s.current: "false", s.deleted: "m.what = 'gone'"}

    @property
    def _stamp(self) -> dict[str, str]:
        return {self.system.synced: self._moment(self.synced)}

    @staticmethod
    def _moment(at: int) -> str:
        return f"make_timestamptz({at})"
