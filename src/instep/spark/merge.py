# ruff: noqa: S608 - columns are numbered, names pass through `name`, values through `text`
"""The upsert of a large Iceberg table as Spark jobs that never move a whole row.

Of each row only its key, its place (data file and position) and a 128-bit hash of the values that are compared take
part in the join. What comes of it are edits: places of rows that go, and of staged rows that come. Tasks then read the
rows at these places, and nothing of the others.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from instep.errors import InstepError, SetupError
from instep.spark.failure import explain
from instep.spark.payload import check_size, job_tag, packed, unpacked

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

Name = tuple[str, ...]


@dataclass(frozen=True)
class MergePlan:
    """Plan of a merge.

    `table`, `rows` and `keys` are catalog, namespace, name; `rows` holds the staged rows, `keys` the keys of the
    whole source table (empty: not known), `requested` those that the source was asked for (empty: all or none).
    `values` are compared and set, `stamps` (system columns) set but not compared, `inserted` all columns of a new row.
    `synced` and `deleted` are system columns ("" without); `at` is microseconds since 1970 UTC. `since`: (column,
    literal, SQL type). `within`: a column and its value in all rows that may be touched.
    """

    table: Name
    rows: Name
    key: tuple[str, ...]
    values: tuple[str, ...]
    stamps: tuple[str, ...]
    inserted: tuple[str, ...]
    at: int
    keys: Name = ()
    requested: Name = ()
    cursor: str = ""
    complete: bool = False
    deletes: Literal["soft", "hard", "ignore"] = "soft"
    synced: str = ""
    deleted: str = ""
    since: tuple[str, str, str] | None = None
    within: tuple[str, str] | None = None

    @property
    def leaves_others(self) -> bool:
        """Return whether rows of the table whose key is neither staged nor requested stay, whatever they are."""
        return not (self.complete or self.keys or self.since)

    @property
    def meets_by_key(self) -> bool:
        """Return whether rows with one key, staged and in the table, tell all that becomes of them."""
        return bool(self.key) and not (self.keys or self.requested or self.since)

    @property
    def is_whole(self) -> bool:
        """Return whether the staged rows are all that the source has, and are met by their key."""
        return self.complete and self.meets_by_key


@dataclass(frozen=True)
class MergeSettings:
    """Settings of a merge on Spark."""

    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings for this session only."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of its catalog that nobody may see."""
    catalog: str = ""
    """The catalog's file, where it is one: Spark's driver has to see it."""


@dataclass(frozen=True)
class MergeFiles:
    """The paths of the table's files and of those that are staged, by number; a later staged file wins over an
    earlier one."""

    table: Sequence[str]
    staged: Sequence[str]
    rows: int
    """Rows of the staged files, those with requested keys included."""


@dataclass(frozen=True)
class Edits:
    """The edits of a merge, row by row: (what, sf, sp, tf, tp), the place of the staged row and of the table's, as
    the number of a file and the position there."""

    frame: DataFrame
    counts: Mapping[str, int]
    """Rows by `what`; "twin" has a key that the table has twice, "moved" is in a file that nobody named."""
    absent: int = 0
    """Keys of the whole source that no row had before."""

    def run(self, write: Write, work: Any, kinds: Sequence[str], by: str, tasks: int) -> list[Any]:
        """Return what `write` makes of the edits of these kinds; those of one file (by the expression `by`) are one
        task's. `work` is packed as one, and may hold credentials."""
        payload = packed((write, work))
        check_size(self.frame.sparkSession, [payload])
        listed = ", ".join(text(kind) for kind in kinds)
        frame = self.frame.where(f"what IN ({listed})").selectExpr("*", f"{by} AS `by`").repartition(tasks, "by")
        with explained():
            parts = frame.select("what", "sf", "sp", "tf", "tp").mapInArrow(WriteTask(payload), "result binary")
            return [pickle.loads(bytes(row[0])) for row in parts.collect()]


Write = Callable[[Any, pa.Table, int, int], Any]
"""(work, edits, number, attempt) to a result; a function of a module, so that workers find it by its name."""


@dataclass(frozen=True)
class WriteTask:
    """A task that is sent to the workers: it is given edits, and answers with one result."""

    payload: bytes = field(repr=False)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        if not (parts := [batch for batch in batches if len(batch)]):
            return
        context = TaskContext.get()
        number, attempt = (context.partitionId(), context.attemptNumber()) if context else (0, 0)
        write, work = unpacked(self.payload)
        result = pickle.dumps(write(work, pa.Table.from_batches(parts), number, attempt))
        yield pa.record_batch([pa.array([result], pa.binary())], names=["result"])


Find = Callable[[Any, int], pa.Table]
"""(work, number of the part) to its edits, as `EDIT_COLUMNS`; a function of a module."""
EDIT_COLUMNS = pa.schema(
    [("what", pa.string()), ("sf", pa.int32()), ("sp", pa.int64()), ("tf", pa.int32()), ("tp", pa.int64())]
)
BEYOND = "beyond"
"""The edits of a part whose rows have to be joined."""


@dataclass(frozen=True)
class FindTask:
    """A task that finds the edits of some parts."""

    payload: bytes = field(repr=False)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        find, work = unpacked(self.payload)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from find(work, number).to_batches()


@contextmanager
def find_in_parts(spark: SparkSession, find: Find, work: Any, parts: int) -> Iterator[Edits]:
    """Yield the edits that `find` makes of the parts, a task each. `work` may hold credentials."""
    payload = packed((find, work))
    check_size(spark, [payload])
    with explained():
        if not is_connect(spark):
            spark.sparkContext.addJobTag(job_tag())
        numbers = own_session(spark, MergeSettings()).range(0, parts, 1, parts)
        kinds = "what string, sf int, sp bigint, tf int, tp bigint"
        frame = numbers.mapInArrow(FindTask(payload), kinds).persist()
    with counted(frame) as counts:
        yield Edits(frame, counts)


@contextmanager
def counted(frame: DataFrame) -> Iterator[dict[str, int]]:
    """Yield how many edits of each kind there are; the frame is not kept afterwards."""
    try:
        with explained():
            counts = {row[0]: row[1] for row in frame.groupBy("what").count().collect()}
        yield counts
    finally:
        with suppress(Exception):  # the session may have ended
            frame.unpersist()


BROADCAST_BYTES = 64 << 20
"""Staged keys of so many bytes are sent to all tasks; the table's other rows are then dropped where they are read."""
_NUMBER_BYTES, _TEXT_BYTES = 16, 64
"""Approximate bytes of a key's column in a task's memory: four million numbers, or one million texts, are sent."""


@contextmanager
def find_edits(spark: SparkSession, plan: MergePlan, settings: MergeSettings, files: MergeFiles) -> Iterator[Edits]:
    """Yield the edits that `plan` asks for."""
    with explained():
        session = own_session(spark, settings)
        open_catalog(session, plan.table[0], settings.secrets)
        if is_connect(spark):
            check_server(session, plan.table[0], settings.catalog)
        else:
            spark.sparkContext.addJobTag(job_tag())
        _views(session, plan, files)
        frame = session.sql(edits_sql(plan)).persist()
    with counted(frame) as counts:
        with explained():
            absent = session.sql(absent_sql(plan)).collect()[0][0] if plan.keys else 0
        yield Edits(frame, counts, absent)


@contextmanager
def explained() -> Iterator[None]:
    try:
        yield
    except InstepError:
        raise
    except Exception as error:
        raise explain(error) from error


def _views(session: SparkSession, plan: MergePlan, files: MergeFiles) -> None:
    """Name the table's rows t, the staged ones r, the known or requested keys k."""
    frames = {"r": _narrow(session, plan, plan.rows, files.staged)}
    if key_table := plan.keys or plan.requested:
        keys = session.table(path(key_table))
        frames["k"] = keys.select(*_keys(_functions(session), plan)).distinct()
    frames["t"] = _narrow(session, plan, plan.table, files.table)
    rows_needed = frames["r"].select(*_numbered(plan))
    if plan.leaves_others and files.rows * key_bytes(rows_needed.schema) <= BROADCAST_BYTES:
        rows_needed = rows_needed.union(frames["k"]) if key_table else rows_needed
        frames["t"] = frames["t"].join(rows_needed.distinct().hint("broadcast"), _numbered(plan), "left_semi")
    for view, frame in frames.items():
        frame.createOrReplaceTempView(view)


def _narrow(session: SparkSession, plan: MergePlan, table: Name, files: Sequence[str]) -> DataFrame:
    """Return the key (c0, ...), the hashes of the compared values (h0, h1), cursor, mark and place of each row."""
    f, rows = _functions(session), session.table(path(table))
    if plan.within and table == plan.table:
        rows = rows.where(f.col(name(plan.within[0])) == f.lit(plan.within[1]))
    kinds = {field.name: field.dataType for field in rows.schema}
    hashed = [part for c in plan.values for part in _hashed(f, f.col(name(c)), kinds[c])] if plan.key else []
    columns = [
        *_keys(f, plan),
        *(f.xxhash64(f.lit(seed), *hashed).alias(f"h{seed}") for seed in (0, 1)),
        *([f.col(name(plan.cursor)).alias("cursor")] if plan.cursor else []),
        *([f.col(name(plan.deleted)).alias("deleted")] if plan.deleted else []),
        f.xxhash64(rows.metadataColumn("_file")).alias("path"),
        rows.metadataColumn("_pos").alias("p"),
    ]
    paths = session.createDataFrame(
        pa.table({"file": pa.array(files, pa.string()), "f": pa.array(range(len(files)), pa.int32())})
    )
    numbers = paths.select(f.xxhash64("file").alias("path"), "f").hint("broadcast")
    numbered = rows.select(*columns).join(numbers, "path", "left").drop("path")
    return numbered.withColumn("f", f.coalesce("f", f.lit(-1)))


def key_bytes(key: StructType) -> int:
    """Return about how many bytes a key takes in the memory of a task."""
    from pyspark.sql.types import DatetimeType, IntegralType

    return sum(_NUMBER_BYTES if isinstance(c.dataType, IntegralType | DatetimeType) else _TEXT_BYTES for c in key)


def _functions(session: SparkSession) -> Any:
    """Return the functions that make columns for this kind of session."""
    if is_connect(session):
        from pyspark.sql.connect import functions as remote

        return remote
    from pyspark.sql import functions

    return functions


def _keys(f: Any, plan: MergePlan) -> list[Column]:
    columns = plan.key if plan.since is None else [plan.since[0]]
    return [f.col(name(c)).alias(f"c{i}") for i, c in enumerate(columns)]


def _numbered(plan: MergePlan) -> list[str]:
    return [f"c{i}" for i in range(len(plan.key))]


def _hashed(f: Any, value: Column, kind: DataType) -> list[Column]:
    """Return what is hashed of a value. `xxhash64` skips NULL and the ends of lists, so both are told; 0.0 and -0.0,
    and all NaN, are alike for it as they are for `<=>`."""
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, StructType):
        fields = [part for e in kind for part in _hashed(f, value.getField(e.name), e.dataType)]
        return [value.isNull(), *fields]
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return [value.isNull(), f.size(value), f.transform(value, lambda e: f.struct(*_hashed(f, e, element)))]
    return [value.isNull(), value]


def edits_sql(plan: MergePlan) -> str:
    """Return the edits: each row of the table and each staged one of which something becomes."""
    edits = since_sql(plan.since) if plan.since else pairs_sql(plan)
    return (
        "SELECT CASE WHEN sf = -1 OR tf = -1 THEN 'moved' ELSE what END AS what, sf, sp, tf, tp "
        f"FROM ({edits}) WHERE what IS NOT NULL"
    )


def pairs_sql(plan: MergePlan) -> str:
    """Return every row of the table and every staged one, paired by key, and `what` becomes of it."""
    columns = range(len(plan.key))
    keys = ", ".join(f"c{i}" for i in columns)
    keys_join = has_key = ""
    if plan.keys or plan.requested:
        has_key = ", k.here"
        keys_join = f" LEFT JOIN (SELECT *, true AS here FROM k) k ON {same_key('t', 'k', columns)}"
    newest = "cursor DESC NULLS LAST, " if plan.cursor else ""
    latest = f"row_number() OVER (PARTITION BY {keys} ORDER BY {newest}f DESC, p DESC)"
    case = outcome_sql("t.h0 <> s.h0 OR t.h1 <> s.h1", plan)
    return (
        f"SELECT CASE WHEN s.f IS NOT NULL AND t.n > 1 THEN 'twin' ELSE {case} END AS what, "
        f"s.f AS sf, s.p AS sp, t.f AS tf, t.p AS tp FROM "
        f"(SELECT t.*{has_key} FROM (SELECT *, count(*) OVER (PARTITION BY {keys}) AS n FROM t) t{keys_join}) t "
        f"FULL JOIN (SELECT * FROM (SELECT *, {latest} AS n FROM r) WHERE n = 1) s ON {same_key('t', 's', columns)}"
    )


def outcome_sql(differs: str, plan: MergePlan) -> str:
    """Return what becomes of a row of the table (t), a staged one (s) or both, in SQL that Spark and DuckDB share:
    'inserted', 'updated', 'marked', 'removed', 'returned' (known by its key alone, and marked as deleted) or NULL.
    `differs`: that the compared values do; t.here tells that the key is known or requested."""
    deleted = "coalesce(t.deleted, false)" if plan.deleted else "false"
    newer = "coalesce(s.cursor >= t.cursor, true)" if plan.cursor else "true"
    cases = [
        ("t.f IS NULL", "'inserted'"),
        (f"s.f IS NOT NULL AND {newer} AND ({deleted} OR {differs})", "'updated'"),
    ]
    if plan.keys:  # also of a row that came, and is older
        cases.append(("t.here", f"CASE WHEN {deleted} THEN 'returned' END"))
    cases.append(("s.f IS NOT NULL", "NULL"))
    if plan.requested:
        cases.append(("t.here IS NULL", "NULL"))
    leave = plan.complete or plan.keys or plan.requested
    if leave and plan.deletes == "hard":
        cases.append(("true", "'removed'"))
    if leave and plan.deletes == "soft" and plan.deleted:
        cases.append((f"NOT {deleted}", "'marked'"))
    return "CASE " + " ".join(f"WHEN {when} THEN {then}" for when, then in cases) + " END"


def same_key(left: str, right: str, columns: Iterable[int]) -> str:
    """Return the condition that two rows have the same key. NULL is nobody's key."""
    return " AND ".join(f"{left}.c{i} = {right}.c{i}" for i in columns)


def absent_sql(plan: MergePlan) -> str:
    """Count the keys of the whole source that no row of the table has."""
    return f"SELECT count(*) FROM k LEFT ANTI JOIN t ON {same_key('t', 'k', range(len(plan.key)))}"


def since_sql(since: tuple[str, str, str]) -> str:
    """Return the edits that put all staged rows in the place of those from a value on."""
    _, literal, kind = since
    return (
        "SELECT 'inserted' AS what, f AS sf, p AS sp, CAST(NULL AS INT) AS tf, CAST(NULL AS BIGINT) AS tp FROM r "
        f"UNION ALL SELECT 'removed', NULL, NULL, f, p FROM t WHERE c0 >= CAST({text(literal)} AS {kind})"
    )


def check_server(session: SparkSession, catalog: str, file: str) -> None:
    """Raise SetupError where a Connect server has no Iceberg, or does not see the catalog's `file`; it would make an
    empty one in its place."""
    from pyspark.errors import AnalysisException, PySparkException

    if file:
        try:
            _ = session.read.format("binaryFile").load(f"file://{file}").schema  # it is the schema that is asked for
        except AnalysisException as error:
            raise SetupError(
                f"this merge is done by the Spark server, which does not see the catalog {file} of this machine",
                hint="give the destination a REST catalog in instep.yml, or merge here: raise its `upsert_rows`",
            ) from error
    try:
        session.sql(f"SHOW NAMESPACES IN {name(catalog)}")
    except PySparkException as error:
        raise SetupError(
            f"the Spark server cannot open the destination {name(catalog)} for this merge: {first_line(error)}",
            hint="the server needs Iceberg's jar and its extensions from its start on: docs/guides/cluster.md",
        ) from error


def first_line(error: Exception) -> str:
    """Return the first line of an exception, at most 300 characters."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def own_session(spark: SparkSession, settings: MergeSettings) -> SparkSession:
    """Return a session that shares the context and nothing else; on Connect `newSession` does not exist."""
    new = getattr(spark, "newSession", None)
    session: SparkSession = spark.cloneSession() if is_connect(spark) or new is None else new()  # type: ignore[attr-defined]
    for key, value in settings.conf.items():
        session.conf.set(key, value)
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def open_catalog(session: SparkSession, catalog: str, secrets: Mapping[str, str]) -> None:
    """Make the session's catalog while its settings hold `secrets`, and take them out again: what a session has set
    goes with every job as its properties, which the event log tells without redaction."""
    if not secrets:
        return
    try:
        for key, value in secrets.items():
            session.conf.set(key, value)
        with suppress(Exception):  # a statement that needs the catalog tells what is wrong with it
            session.sql(f"USE {name(catalog)}")  # no job; `setCurrentCatalog` reads another session's settings
    finally:
        for key in secrets:
            session.conf.unset(key)


def is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def path(parts: Sequence[str]) -> str:
    return ".".join(name(part) for part in parts)


def name(identifier: str) -> str:
    return "`" + identifier.replace("`", "``") + "`"


def text(value: str) -> str:
    """Return a string literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
