# ruff: noqa: S608 - columns are numbered, values are not part of the text
"""The upsert of a table that fits: its delta found here, its rows written here, one fenced commit, no Spark job.

Staged rows meet the table's by key, exactly and column by column; see write/spark_upsert.py for what does not fit.

No hashes of rows stand in for the rows: the join on the key has to be made anyway, and comparing the values then
costs little. DuckDB compares as Spark's `<=>` does: NULL equals NULL, NaN equals NaN, 0.0 equals -0.0.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table as IcebergTable

from instep.destinations.base import Commit, LoadOutcome, Merge
from instep.destinations.equal_rows import WholeTableComparison, set_equal_aside
from instep.destinations.iceberg.commit.position_deletes import Deletes, delete_rows
from instep.destinations.iceberg.commit.row_reader import (
    Positions,
    RowReader,
    current_rows,
    numbered,
    rows_at,
    staged_rows,
)
from instep.destinations.iceberg.commit.shard_table import own_data, staged_schema
from instep.destinations.iceberg.metadata.files import arrow_schema, data_files, merge_compression, readable_files
from instep.destinations.iceberg.metadata.partition import partitioning
from instep.destinations.iceberg.metadata.records import current_fields
from instep.destinations.iceberg.metadata.shards import shard_key_of, totals
from instep.errors import Conflict, DestinationError
from instep.spark.merge import MergePlan, outcome_sql, same_key
from instep.stage.duckdb_memory import duckdb_cursor
from instep.stage.partition import by_partition
from instep.stage.spec import StagedFile

MEMORY = "600MB"
SOON_JOINED = 30_000
"""Rows of both sides whose join takes less time than to set equal rows aside."""
_KINDS = {"TIMESTAMP_NTZ": "TIMESTAMP", "TIMESTAMP": "TIMESTAMPTZ", "STRING": "VARCHAR"}
OUT_OF_REACH = (
    duckdb.OutOfMemoryException,
    duckdb.IOException,  # the disk that it spills to is full; it opens no file of the table
    duckdb.NotImplementedException,
    pa.ArrowNotImplementedError,
    pa.ArrowCapacityError,
    MemoryError,
)
"""Errors of what takes more memory than there is here, or has a type that DuckDB or Arrow lacks."""


@dataclass(frozen=True)
class Delta:
    """The rows that a MERGE would touch. Each array holds one line a row, by file number and position in it.

    `inserted`: (staged file, position); `updated`: (staged file, position, table file, position), by staged file;
    `marked`, `removed`: (table file, position). `rows`: how many the table holds before. `absent`, `returned`: see
    `destinations.base.Outcome`.
    """

    inserted: Positions
    updated: Positions
    marked: Positions
    removed: Positions
    rows: int
    absent: int = 0
    returned: int = 0

    def __bool__(self) -> bool:
        return any(map(len, (self.inserted, self.updated, self.marked, self.removed)))


def find_delta(plan: MergePlan, staged: RowReader, keys: RowReader | None, table: RowReader) -> Delta | None:
    """Return the upsert; None where only Spark can find it: keys that are there twice already. `keys` are those of
    `plan.keys` or of `plan.asked`, which count only as given or not."""
    with duckdb_cursor(MEMORY, streams=True) as db:
        if not (_sets_aside(plan, staged, table) and set_equal_aside(db, _whole_compare(plan, staged, table))):
            db.register("r", numbered(staged, _compared(plan), plan.cursor))
            db.register("t", numbered(table, [*_compared(plan), *_deleted(plan)], plan.cursor))
        if keys is not None:
            columns = ", ".join(f"c{i}" for i in range(len(plan.key)))
            db.register("k", numbered(keys, plan.key))
            db.execute(f"CREATE TEMP TABLE known AS SELECT DISTINCT {columns}, true AS here FROM k")
        _load_staged(db, plan)
        if plan.leaves_others:
            db.execute(f"CREATE TEMP TABLE near AS {near_sql(plan)}")
        db.execute(f"CREATE TEMP TABLE met AS {met_sql(plan)}")
        return _read(db, plan, table.rows)


def _sets_aside(plan: MergePlan, staged: RowReader, table: RowReader) -> bool:
    """Return whether equal rows are set aside before the join: those of whole tables, unless they are soon joined."""
    return plan.is_whole and staged.rows + table.rows > SOON_JOINED


@dataclass(frozen=True)
class _Compared:
    """One side of a whole compare: `columns`, of which the first are the key, as the cursor among them is ordered."""

    reader: RowReader
    columns: Sequence[str]
    key: int
    cursor: str

    @property
    def files(self) -> int:
        return len(self.reader.files)

    @property
    def rows(self) -> int:
        return self.reader.rows

    def read(self, files: Sequence[int] | None = None, *, keys: bool = False) -> pa.RecordBatchReader:
        return numbered(self.reader, self.columns[: self.key] if keys else self.columns, self.cursor, files)


def _whole_compare(plan: MergePlan, staged: RowReader, table: RowReader) -> WholeTableComparison:
    compared, key = _compared(plan), len(plan.key)
    sides = (
        _Compared(staged, compared, key, plan.cursor),
        _Compared(table, [*compared, *_deleted(plan)], key, plan.cursor),
    )
    return WholeTableComparison(*sides, key, len(compared), bool(plan.deleted))


def find_since(since: tuple[str, str, str], staged: RowReader, table: RowReader) -> Delta:
    """Return all staged rows in place of those from a value on. `since`: (column, literal, SQL type as Spark has
    it)."""
    column, low, kind = since
    with duckdb_cursor(MEMORY, streams=True) as db:
        db.execute("SET TimeZone = 'UTC'")
        db.register("t", numbered(table, [column]))
        bound = f"CAST(? AS {_KINDS.get(kind, kind)})"
        db.execute(f"CREATE TEMP TABLE old AS SELECT f, p, coalesce(c0 >= {bound}, false) AS gone FROM t", [low])
        [(rows,)] = db.execute("SELECT count(*) FROM old").fetchall()
        gone = db.execute("SELECT f, p FROM old WHERE gone ORDER BY ALL").fetchnumpy()
        none = np.empty((0, 2), dtype=np.int64)
        return Delta(
            inserted=_all_of(staged),
            updated=np.empty((0, 4), dtype=np.int64),
            marked=none,
            removed=np.stack([np.asarray(gone[c], dtype=np.int64) for c in ("f", "p")], axis=1),
            rows=rows,
        )


def _all_of(rows: RowReader) -> Positions:
    counts = [file.record_count for file in rows.files]
    numbers = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    return np.stack([numbers, np.concatenate([np.arange(n, dtype=np.int64) for n in [0, *counts]])], axis=1)


def _compared(plan: MergePlan) -> list[str]:
    return [*plan.key, *plan.values]


def _deleted(plan: MergePlan) -> list[str]:
    return [plan.deleted] if plan.deleted else []


def _read(db: duckdb.DuckDBPyConnection, plan: MergePlan, rows: int) -> Delta | None:
    pairs, staged, found = db.execute(
        "SELECT count(sf), (SELECT count(*) FROM s), list(DISTINCT what) FROM met"
    ).fetchall()[0]
    if pairs != staged:
        return None
    found, absent, returned = set(found or ()), 0, 0
    if plan.keys:
        [(keys,)] = db.execute("SELECT count(*) FROM known").fetchall()
        counts = "count(*) FILTER (here OR what = 'inserted'), count(*) FILTER (what = 'returned')"
        [(there, returned)] = db.execute(f"SELECT {counts} FROM met").fetchall()
        absent = max(keys - there, 0)
    return Delta(
        inserted=_positions(db, found, "inserted", "sf", "sp"),
        updated=_positions(db, found, "updated", "sf", "sp", "tf", "tp"),
        marked=_positions(db, found, "marked", "tf", "tp"),
        removed=_positions(db, found, "removed", "tf", "tp"),
        rows=rows,
        absent=absent,
        returned=returned,
    )


def _positions(db: duckdb.DuckDBPyConnection, found: Set[str], what: str, *columns: str) -> Positions:
    if what not in found:
        return np.empty((0, len(columns)), dtype=np.int64)
    lines = db.execute(f"SELECT {', '.join(columns)} FROM met WHERE what = ? ORDER BY ALL", [what]).fetchnumpy()
    return np.stack([np.asarray(lines[c], dtype=np.int64) for c in columns], axis=1)


def met_sql(plan: MergePlan) -> str:
    """Return the rows of the table and the staged ones, paired by key, and `what` becomes of each."""
    compared, columns = _compared(plan), range(len(plan.key))
    here, known = "NULL", ""
    if plan.keys or plan.requested:
        here, known = "k.here", f" LEFT JOIN known k ON {same_key('t', 'k', columns)}"
    cursor = f", t.c{compared.index(plan.cursor)} AS cursor" if plan.cursor else ""
    deleted = f", t.c{len(compared)} AS deleted" if plan.deleted else ""
    differs = " OR ".join(f"t.c{i} IS DISTINCT FROM s.c{i}" for i in range(len(plan.key), len(compared))) or "false"
    rows = "near" if plan.leaves_others else "t"
    return (
        "SELECT s.f AS sf, s.p AS sp, t.f AS tf, t.p AS tp, coalesce(t.here, false) AS here, "
        f"{outcome_sql(differs, plan)} AS what "
        f"FROM (SELECT t.*{cursor}{deleted}, {here} AS here FROM {rows} t{known}) t "
        f"FULL JOIN s ON {same_key('t', 's', columns)}"
    )


def _load_staged(db: duckdb.DuckDBPyConnection, plan: MergePlan) -> None:
    """Make `s` of the staged rows, of each key the one that counts."""
    keys = ", ".join(f"c{i}" for i in range(len(plan.key)))
    cursor = f", c{_compared(plan).index(plan.cursor)} AS cursor" if plan.cursor else ""
    db.execute(f"CREATE TEMP TABLE s AS SELECT *{cursor} FROM r")
    distinct = f"SELECT count(*) FROM (SELECT DISTINCT {keys} FROM s)"
    [(twins,)] = db.execute(f"SELECT count(*) - ({distinct}) FROM s").fetchall()
    if twins:
        newest = "cursor DESC NULLS LAST, " if cursor else ""
        latest = f"row_number() OVER (PARTITION BY {keys} ORDER BY {newest}f DESC, p DESC) = 1"
        db.execute(f"CREATE OR REPLACE TEMP TABLE s AS SELECT * FROM s QUALIFY {latest}")


def near_sql(plan: MergePlan) -> str:
    """Return the rows of the table whose key is staged or requested: the others pass by."""
    keys = ", ".join(f"c{i}" for i in range(len(plan.key)))
    requested = f" UNION SELECT {keys} FROM known" if plan.requested else ""
    return f"SELECT * FROM t SEMI JOIN (SELECT {keys} FROM s{requested}) USING ({keys})"


ROWS = 20_000_000
BYTES = 512 << 20
PACKED = {"zstd": 1.0, "lz4": 0.5}
"""Size of files in a table, as a share of their own size."""
_USE_SPARK = "set `engine: spark` in instep.yml"
_KEYS = ("boolean", "int", "long", "date", "timestamp", "timestamptz", "string", "uuid", "binary")


@dataclass(frozen=True)
class SparkOnly:
    """Reason why only Spark can find an upsert, and what a person without Spark can do."""

    why: str
    hint: str = _USE_SPARK


def fits_in_process(
    metadata: Mapping[str, Any], files: Sequence[StagedFile], how: Merge, limit: int = ROWS, size: int = BYTES
) -> bool:
    """Return whether an upsert can be found here."""
    return why_spark(metadata, files, how, limit, size) is None


def why_spark(
    metadata: Mapping[str, Any], files: Sequence[StagedFile], how: Merge, limit: int = ROWS, size: int = BYTES
) -> SparkOnly | None:
    """Return why table and staged files are too large, or key or cursor of a type that may compare in Spark otherwise
    than here; None if the upsert can be found here."""
    kinds = {f.name: f.type for f in current_fields(metadata)}
    used = how.key if how.since is None else [how.since[0]]
    for name in used:
        if not str(kind := kinds[name]).startswith((*_KEYS, "decimal", "fixed")):
            of = kind["type"] if isinstance(kind, Mapping) else kind
            use = "key" if how.since is None else "cursor"
            return SparkOnly(
                f"its {use} {name} is of the type {of}, which only Spark compares",
                f"{_USE_SPARK}, or `mode: full_refresh` for this table",
            )
    there, coming = totals(metadata), [*files, *how.keys, *how.requested]
    here = there.get("records", 0 if shard_key_of(metadata["properties"]) else ROWS + 1)
    if "records" in there and how.leaves_others:
        here = 0  # they pass by: only those whose key comes are compared
    rows = here + sum(f.rows for f in coming)
    if rows > limit:
        many = f"more than {limit:,} rows (`upsert_rows` of the destination) would be compared"
        return SparkOnly(many, f"{_USE_SPARK}, or raise `upsert_rows` if there is memory for it")
    packed = sum(f.bytes * PACKED[merge_compression(f.path)] for f in coming)
    if there.get("files-size", 0) + packed > size:
        return SparkOnly(f"its files and the new rows have more than {size >> 20:,} MiB")
    return None


@dataclass(frozen=True)
class Upsert:
    """Upsert of `plan` on the current snapshot of `table`."""

    table: IcebergTable
    plan: MergePlan
    staged: RowReader
    rows: RowReader
    delta: Delta

    @property
    def empty(self) -> bool:
        return not self.delta

    @property
    def outcome(self) -> LoadOutcome:
        d = self.delta
        return LoadOutcome(len(d.inserted), len(d.updated), len(d.marked) + len(d.removed), d.absent, d.returned)

    @property
    def rows_after(self) -> int:
        return self.delta.rows + len(self.delta.inserted) - len(self.delta.removed)

    @contextmanager
    def written(self, commit: Commit) -> Iterator[tuple[list[DataFile], Deletes]]:
        """Yield the files of the delta; they are removed if the commit is refused."""
        old = old_values(self.plan, self.rows, self.delta.updated[:, 2:])
        new = new_rows(self.plan, self.staged, self.rows, self.delta, old)
        with row_delta(self.rows, new, _removed_positions(self.delta), commit.fence) as added:
            yield added


def find_upsert(table: IcebergTable, files: Sequence[StagedFile], how: Merge, plan: MergePlan) -> Upsert | SparkOnly:
    """Return the upsert, or why only Spark can find it: DuckDB or Arrow lacks the memory or the type, or the table has
    twins or deletes that are not by position. Any other error is raised."""
    metadata, schema = table.metadata, table.schema()
    ordered = sorted(files, key=lambda f: (f.chunk, f.path))
    own = staged_schema(table) or schema
    staged = staged_rows(table, readable_files(ordered, metadata, own))
    known = how.keys or how.requested
    keys = staged_rows(table, readable_files(known, metadata, own.select(*how.key))) if known else None
    rows = current_rows(table)
    if rows is None:
        return SparkOnly("another program deleted rows of it by their values, which only Spark reads")
    try:
        delta = find_delta(plan, staged, keys, rows) if plan.since is None else find_since(plan.since, staged, rows)
    except Exception as error:
        unread = next((e for read in (staged, keys, rows) if read for e in read.errors), None)
        if isinstance(lack := unread or error, OUT_OF_REACH):
            [line, *_] = str(lack).splitlines() or [type(lack).__name__]
            return SparkOnly(f"this process cannot compare its rows: {line[:200]}")
        if unread is None:
            raise
        raise DestinationError(
            f"table {'.'.join(table.name())}: rows of it cannot be read: {unread}",
            hint="sync again; if a file is gone, run `instep restore`, or reload the table: `instep sync --full`",
        ) from unread
    if delta is None:
        return SparkOnly("it has keys in more than one row", "`instep backfill` reloads it")
    return Upsert(table, plan, staged, rows, delta)


@contextmanager
def row_delta(rows: RowReader, new: pa.Table, gone: Positions, fence: int) -> Iterator[tuple[list[DataFile], Deletes]]:
    """Yield data files with the `new` rows, and delete files for the rows at the positions `gone`."""
    added: list[DataFile] = []
    name = f"{own_data(rows.table)}/upsert-{fence}-{uuid.uuid4().hex[:12]}"
    try:
        data = _write(rows.table, new, name)
        added += data
        deletes = list(delete_rows(rows, gone, name))
        added += [file for file, _ in deletes]
        replaced = [old for _, files in deletes for old in files]
        yield data, Deletes([file for file, _ in deletes], replaced)
    except Conflict:
        for file in added:
            with suppress(OSError):
                rows.table.io.delete(file.file_path)
        raise


def _removed_positions(delta: Delta) -> Positions:
    """Return the positions of rows that are deleted or rewritten."""
    return np.concatenate([delta.updated[:, 2:], delta.marked, delta.removed])


@dataclass(frozen=True)
class OldValues:
    """Values of rows of the table at `places`, in ascending order."""

    places: Positions
    rows: pa.Table

    def rows_at(self, places: Positions) -> pa.Table:
        """Return the rows at some of the positions, in their order."""
        return self.rows.take(pa.array(np.searchsorted(_numbers(self.places), _numbers(places))))


def _numbers(places: Positions) -> npt.NDArray[np.int64]:
    return (places[:, 0] << 40) + places[:, 1]


def old_values(plan: MergePlan, table: RowReader, places: Positions) -> OldValues | None:
    """Return values that were not read of the source, as the table has them, opening each of its files once; None if
    there are none."""
    unchanged = [c for c in plan.inserted if c not in {*plan.key, *plan.values, *plan.stamps}]
    if not unchanged or not len(places):
        return None
    ordered, target = places[np.lexsort((places[:, 1], places[:, 0]))], arrow_schema(table.table.schema())
    return OldValues(ordered, rows_at(table, ordered, pa.schema([target.field(c) for c in unchanged])))


def new_rows(plan: MergePlan, staged: RowReader, table: RowReader, delta: Delta, old: OldValues | None) -> pa.Table:
    """Return inserted rows as they came, updated rows with the values that were not read, and rows that left."""
    target = arrow_schema(table.table.schema())
    parts = [rows_at(staged, delta.inserted, target), _updated(staged, delta.updated, target, old)]
    if len(delta.marked):
        rows = rows_at(table, delta.marked, target)
        parts.append(_all(_all(rows, plan.deleted, True), plan.synced, plan.at))
    return pa.concat_tables(parts)


def _updated(staged: RowReader, places: Positions, target: pa.Schema, old: OldValues | None) -> pa.Table:
    rows = rows_at(staged, places[:, :2], target)
    if old is None or not len(places):
        return rows
    values = old.rows_at(places[:, 2:])
    for column in values.column_names:
        rows = rows.set_column(target.get_field_index(column), target.field(column), values.column(column))
    return rows


def _all(rows: pa.Table, column: str, value: bool | int) -> pa.Table:
    """Return the rows with one value in a column, if there is one of that name."""
    if not column:
        return rows
    place, field = rows.schema.get_field_index(column), rows.schema.field(column)
    return rows.set_column(place, field, pa.repeat(pa.scalar(value, field.type), len(rows)))


def _write(table: IcebergTable, rows: pa.Table, stem: str) -> list[DataFile]:
    """Return a file, or one a partition; their names begin with `stem`. Those of a failure are nobody's, and are
    removed."""
    by = partitioning(table.metadata)
    if by is None:
        return data_files([_file(table, rows, f"{stem}.parquet")] if len(rows) else [], table.metadata)
    parts = enumerate(by_partition(rows, by))
    files = [replace(_file(table, part, f"{stem}-{n}.parquet"), partition=place) for n, (place, part) in parts]
    return data_files(files, table.metadata)


def _file(table: IcebergTable, rows: pa.Table, path: str) -> StagedFile:
    footers: list[Any] = []
    output, sink = table.io.new_output(path), pa.BufferOutputStream()
    with (
        output.create() as stream,
        pq.ParquetWriter(stream, rows.schema, compression="zstd", metadata_collector=footers) as writer,
    ):
        writer.write_table(rows)
    footers[0].write_metadata_file(sink)
    size = len(table.io.new_input(path))
    return StagedFile("", 0, path, len(rows), size, bytes(sink.getvalue()))
