# ruff: noqa: S608 - identifiers pass through `name`, values through `text`
"""The upsert as one Spark MERGE on a branch of its own, in a session of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from instep.errors import SetupError
from instep.spark.payload import job_tag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Name = tuple[str, ...]


@dataclass(frozen=True)
class MergePlan:
    """Plan of a merge.

    `table`, `rows` and `keys` are catalog, namespace, name; `rows` holds the staged rows, `keys` the keys of the
    whole source table (empty: not known), `requested` those that the source was asked for (empty: all or none). `order`
    are the staged files, oldest first. `values` are compared and set, `stamps` (system columns) set but not compared,
    `inserted` all columns of a new row. `synced` and `deleted` are system columns ("" without); `at` is microseconds
    since 1970 UTC. `since`: (column, literal, SQL type). `within`: a column and its value in all rows that may be
    touched.
    """

    table: Name
    branch: str
    rows: Name
    key: tuple[str, ...]
    values: tuple[str, ...]
    stamps: tuple[str, ...]
    inserted: tuple[str, ...]
    at: int
    keys: Name = ()
    requested: Name = ()
    order: tuple[str, ...] = ()
    cursor: str = ""
    complete: bool = False
    deletes: Literal["soft", "hard", "ignore"] = "soft"
    synced: str = ""
    deleted: str = ""
    since: tuple[str, str, str] | None = None
    within: tuple[str, str] | None = None


@dataclass(frozen=True)
class MergeResult:
    """The branch after the statements: its `rows`; how many distinct keys were `staged`, how many rows have one of
    them (`found`), and whether those keys are the `same` (by the sum of their hashes). Of the keys of the whole source,
    `absent` are in no row, `returned` in one that is marked as deleted."""

    rows: int
    staged: int = 0
    found: int = 0
    same: bool = True
    absent: int = 0
    returned: int = 0


@dataclass(frozen=True)
class MergeSettings:
    """`properties` go into the snapshot's summary, `conf` is for this session only, `secrets` are settings of its
    catalog that nobody may see. `catalog` is the catalog's file, where it is one: Spark's driver has to see it."""

    properties: Mapping[str, str]
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    catalog: str = ""


def run_merge(spark: SparkSession, plan: MergePlan, settings: MergeSettings) -> MergeResult:
    """Run the statements of `plan` on its branch and look at what came of them."""
    session = own_session(spark, settings)
    open_catalog(session, plan.table[0], settings.secrets)
    if _is_connect(spark):
        check_server(session, plan.table[0], settings.catalog)
    if not _is_connect(spark):
        spark.sparkContext.addJobTag(job_tag())
    for statement in statements(plan):
        session.sql(statement)
    row = session.sql(audit_sql(plan)).collect()[0]
    known = session.sql(known_sql(plan)).collect()[0] if plan.keys else {"absent": 0, "returned": 0}
    same = row["staged"]["sum"] == row["sum"]
    return MergeResult(row["rows"], row["staged"]["n"], row["found"], same, known["absent"], known["returned"])


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
                hint="give the destination a REST catalog, or merge here: raise the destination's upsert_rows",
            ) from error
    try:
        session.sql(f"SHOW NAMESPACES IN {name(catalog)}")
    except PySparkException as error:
        raise SetupError(
            f"the Spark server cannot open the destination {name(catalog)} for this merge: {first_line(error)}",
            hint="the server needs Iceberg's jar and its extensions from its start on: docs/guides/cluster.md",
        ) from error


def first_line(error: Exception) -> str:
    """Return what an exception says first, at most 300 characters."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def own_session(spark: SparkSession, settings: MergeSettings) -> SparkSession:
    """Return a session that shares the context and nothing else; on Connect `newSession` does not exist."""
    new = getattr(spark, "newSession", None)
    session: SparkSession = spark.cloneSession() if _is_connect(spark) or new is None else new()  # type: ignore[attr-defined]
    for key, value in settings.conf.items():
        session.conf.set(key, value)
    for key, value in settings.properties.items():
        session.conf.set(f"spark.sql.iceberg.snapshot-property.{key}", value)
    session.conf.set("spark.sql.storeAssignmentPolicy", "STRICT")
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


def _is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def statements(plan: MergePlan) -> list[str]:
    """Return the statements of `plan`, in order; each makes a snapshot on the branch."""
    if plan.since is None:
        return [merge_sql(plan)]
    column, literal, kind = plan.since
    bound = f"CAST({text(literal)} AS {kind})"
    columns = _list(plan.inserted)
    return [
        f"DELETE FROM {target(plan)} WHERE {name(column)} >= {bound}{_within(plan, ' AND ')}",
        f"INSERT INTO {target(plan)} ({columns}) SELECT {columns} FROM {path(plan.rows)}",
    ]


def merge_sql(plan: MergePlan) -> str:
    """Return one MERGE: changed rows updated, new ones inserted, rows that left the source marked or deleted."""
    on = " AND ".join(f"t.{name(k)} <=> s.{name(k)}" for k in plan.key)
    on += _within(plan, " AND t.")
    return f"MERGE INTO {target(plan)} t USING ({source_sql(plan)}) s ON {on}\n" + "\n".join(_clauses(plan))


def _clauses(plan: MergePlan) -> list[str]:
    columns = [*plan.values, *plan.stamps]
    sets = ", ".join(f"t.{name(c)} = s.{name(c)}" for c in columns)
    values = ", ".join(f"s.{name(c)}" for c in plan.inserted)
    found = [f"WHEN MATCHED AND {_updates(plan)} THEN UPDATE SET {sets}"]
    if plan.requested:
        found += _gone(plan)
    found.append(f"WHEN NOT MATCHED AND s.{STAGED} THEN INSERT ({_list(plan.inserted)}) VALUES ({values})")
    if (plan.complete or plan.keys) and plan.deletes == "hard":
        found.append(f"WHEN NOT MATCHED BY SOURCE{_within(plan, ' AND t.')} THEN DELETE")
    if (plan.complete or plan.keys) and plan.deletes == "soft" and plan.deleted:
        mine = _within(plan, " AND t.")
        mark = f"AND NOT {_is_deleted(plan)} THEN UPDATE SET {_mark(plan)}"
        found.append(f"WHEN NOT MATCHED BY SOURCE{mine} {mark}")
    return found


def _within(plan: MergePlan, before: str) -> str:
    """Return the condition that a row of the table may be touched, after `before`; nothing where all may."""
    return f"{before}{name(plan.within[0])} = {text(plan.within[1])}" if plan.within else ""


def _gone(plan: MergePlan) -> list[str]:
    """What becomes of a row whose key the source was asked for and does not have."""
    if plan.deletes == "hard":
        return [f"WHEN MATCHED AND NOT s.{STAGED} THEN DELETE"]
    if plan.deletes == "soft" and plan.deleted:
        return [f"WHEN MATCHED AND NOT s.{STAGED} AND NOT {_is_deleted(plan)} THEN UPDATE SET {_mark(plan)}"]
    return []


def _updates(plan: MergePlan) -> str:
    """Return a staged row that is not older than the table's and differs from it, or comes back."""
    same = " AND ".join(f"t.{name(c)} <=> s.{name(c)}" for c in plan.values) or "true"
    differs = f"NOT ({same})"
    if plan.deleted:
        differs = f"({_is_deleted(plan)} OR {differs})"
    if not plan.cursor:
        return f"s.{STAGED} AND {differs}"
    cursor = name(plan.cursor)
    return f"s.{STAGED} AND coalesce(s.{cursor} >= t.{cursor}, true) AND {differs}"


def _is_deleted(plan: MergePlan) -> str:
    return f"coalesce(t.{name(plan.deleted)}, false)"


def _mark(plan: MergePlan) -> str:
    stamp = f", t.{name(plan.synced)} = timestamp_micros({plan.at})" if plan.synced else ""
    return f"t.{name(plan.deleted)} = true{stamp}"


STAGED, _RANK, _ORDER = "`__staged`", "`__rank`", "`__order`"


def source_sql(plan: MergePlan) -> str:
    """Return one row a key: the latest staged one, or the bare key where only `keys` or `asked` has it."""
    if not (known := plan.keys or plan.requested):
        return f"SELECT *, true AS {STAGED} FROM ({latest_sql(plan)})"
    keyed = ", ".join(f"coalesce(r.{name(k)}, k.{name(k)}) AS {name(k)}" for k in plan.key)
    rest = "".join(f", r.{name(c)}" for c in plan.inserted if c not in plan.key)
    on = " AND ".join(f"r.{name(k)} <=> k.{name(k)}" for k in plan.key)
    return (
        f"SELECT {keyed}{rest}, r.{name(plan.key[0])} IS NOT NULL AS {STAGED} FROM ({latest_sql(plan)}) r "
        f"FULL OUTER JOIN (SELECT DISTINCT {_list(plan.key)} FROM {path(known)}) k ON {on}"
    )


def latest_sql(plan: MergePlan) -> str:
    """Return the staged rows without duplicate keys: the highest cursor wins, then the later file, then the later
    row."""
    order = [f"r.{name(plan.cursor)} DESC NULLS LAST"] if plan.cursor else []
    join = ""
    if len(plan.order) > 1:
        files = ", ".join(f"({text(file)}, {number})" for number, file in enumerate(plan.order))
        join = f" LEFT JOIN (SELECT * FROM VALUES {files} AS f(`__file`, {_ORDER})) f ON r.`__path` = f.`__file`"
        order.append(f"f.{_ORDER} DESC")
    order.append("r.`__pos` DESC")
    rows = f"(SELECT {_list(plan.inserted)}, _file AS `__path`, _pos AS `__pos` FROM {path(plan.rows)})"
    rank = f"row_number() OVER (PARTITION BY {_list(plan.key, 'r')} ORDER BY {', '.join(order)}) AS {_RANK}"
    return (
        f"SELECT {_list(plan.inserted)} FROM (SELECT {_list(plan.inserted, 'r')}, {rank} FROM {rows} r{join}) "
        f"WHERE {_RANK} = 1"
    )


def audit_sql(plan: MergePlan) -> str:
    """Return rows of the branch and staged keys among them, in one scan of the key columns."""
    if not plan.key:
        none = "named_struct('n', 0L, 'sum', 0L) AS staged, 0L AS found, 0L AS sum"
        return f"SELECT count(*) AS rows, {none} FROM {target(plan)}{_within(plan, ' WHERE ')}"
    on = " AND ".join(f"t.{name(k)} <=> s.{name(k)}" for k in plan.key)
    hashed = f"xxhash64({_list(plan.key)}) % 1000000007 AS `__hash`"
    staged = f"SELECT {_list(plan.key)}, {hashed} FROM (SELECT DISTINCT {_list(plan.key)} FROM {path(plan.rows)})"
    known = f"SELECT struct(count(*) AS n, coalesce(sum(`__hash`), 0) AS sum) FROM ({staged})"
    return (
        f"SELECT count(*) AS rows, ({known}) AS staged, count(s.`__hash`) AS found, "
        f"coalesce(sum(s.`__hash`), 0) AS sum FROM {target(plan)} t LEFT JOIN ({staged}) s ON {on}"
        f"{_within(plan, ' WHERE t.')}"
    )


def known_sql(plan: MergePlan) -> str:
    """Count the keys of the whole source that no row of the branch has, and rows marked as deleted that have one."""
    on = " AND ".join(f"t.{name(k)} <=> k.{name(k)}" for k in plan.key)
    returned = f"count_if({_is_deleted(plan)})" if plan.deleted else "0L"
    return (
        f"SELECT count_if(t.{name(plan.key[0])} IS NULL) AS absent, {returned} AS returned "
        f"FROM (SELECT DISTINCT {_list(plan.key)} FROM {path(plan.keys)}) k "
        f"LEFT JOIN {target(plan)} t ON {on}{_within(plan, ' AND t.')}"
    )


def target(plan: MergePlan) -> str:
    return path((*plan.table, f"branch_{plan.branch}"))


def path(parts: Sequence[str]) -> str:
    return ".".join(name(part) for part in parts)


def name(identifier: str) -> str:
    return "`" + identifier.replace("`", "``") + "`"


def text(value: str) -> str:
    """Return a string literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _list(columns: Sequence[str], table: str = "") -> str:
    prefix = f"{table}." if table else ""
    return ", ".join(prefix + name(c) for c in columns)
