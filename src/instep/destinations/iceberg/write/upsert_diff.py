# ruff: noqa: S608 - columns are numbered, values are not part of the text
"""What a MERGE would do, found in this process: staged rows meet the table's by key, exactly and column by column.

No hashes of rows stand in for the rows: the join on the key has to be made anyway, and comparing the values then
costs little. DuckDB compares as Spark's `<=>` does: NULL equals NULL, NaN equals NaN, 0.0 equals -0.0.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cache
from typing import Any

import duckdb
import numpy as np

from instep.destinations.iceberg.commit.row_reader import Positions, RowReader, numbered
from instep.spark.merge import MergePlan
from instep.temporary import Temporary

MEMORY = "1GB"
_KINDS = {"TIMESTAMP_NTZ": "TIMESTAMP", "TIMESTAMP": "TIMESTAMPTZ", "STRING": "VARCHAR"}
_LOCK = threading.Lock()


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


@cache
def _engine() -> duckdb.DuckDBPyConnection:
    """Return one for the process: it takes longer to make than a small table to compare, and its memory is for all
    threads. What does not fit there goes to the disk, below a folder that leaves with it."""
    spill = Temporary("merge")
    config: dict[str, Any] = {"memory_limit": MEMORY, "temp_directory": spill.path}
    engine = duckdb.connect(":memory:", config={**config, "preserve_insertion_order": False})
    atexit.register(spill.close)
    atexit.register(engine.close)
    return engine


def find_delta(plan: MergePlan, staged: RowReader, keys: RowReader | None, table: RowReader) -> Delta | None:
    """Return the upsert; None where only Spark can find it: keys that are there twice already. `keys` are those of
    `plan.keys` or of `plan.asked`, which count only as given or not."""
    with _LOCK:
        db = _engine().cursor()
    with db:
        db.register("r", numbered(staged, _compared(plan), plan.cursor))
        db.register("t", numbered(table, [*_compared(plan), *_deleted(plan)], plan.cursor))
        if keys is not None:
            columns = ", ".join(f"c{i}" for i in range(len(plan.key)))
            db.register("k", numbered(keys, plan.key))
            db.execute(f"CREATE TEMP TABLE known AS SELECT DISTINCT {columns}, true AS here FROM k")
        db.execute(f"CREATE TEMP TABLE met AS {met_sql(plan)}")
        return _read(db, plan)


def find_since(since: tuple[str, str, str], staged: RowReader, table: RowReader) -> Delta:
    """Return all staged rows in the place of those from a value on. `since`: (column, literal, SQL type as Spark has
    it)."""
    column, low, kind = since
    with _LOCK:
        db = _engine().cursor()
    with db:
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


def _read(db: duckdb.DuckDBPyConnection, plan: MergePlan) -> Delta | None:
    pairs, staged, rows, found = db.execute(
        "SELECT count(sf), count(DISTINCT (sf, sp)) FILTER (sf IS NOT NULL), count(tf), list(DISTINCT what) FROM met"
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
    """Return every row of the table and every staged one, paired by key, and `what` the clauses of the MERGE make of
    it."""
    on = _same("t", "s", range(len(plan.key)))
    here, known = "false", ""
    if plan.keys or plan.requested:
        here, known = "coalesce(k.here, false)", f" LEFT JOIN known k ON {_same('t', 'k', range(len(plan.key)))}"
    return (
        f"SELECT s.f AS sf, s.p AS sp, t.f AS tf, t.p AS tp, {here} AS here, {_what(plan)} AS what "
        f"FROM t FULL JOIN ({_latest(plan)}) s ON {on}{known}"
    )


def _same(left: str, right: str, columns: Sequence[int] | range) -> str:
    return " AND ".join(f"{left}.c{i} = {right}.c{i}" for i in columns)


def _latest(plan: MergePlan) -> str:
    """Return the staged rows without duplicate keys, as `spark.merge.latest_sql` has them."""
    keys = ", ".join(f"c{i}" for i in range(len(plan.key)))
    newest = f"c{_compared(plan).index(plan.cursor)} DESC NULLS LAST, " if plan.cursor else ""
    return f"SELECT * FROM r QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY {newest}f DESC, p DESC) = 1"


def _what(plan: MergePlan) -> str:
    compared = _compared(plan)
    deleted = f"coalesce(t.c{len(compared)}, false)" if plan.deleted else "false"
    differs = [f"t.c{i} IS DISTINCT FROM s.c{i}" for i in range(len(plan.key), len(compared))]
    newer = f"coalesce(s.c{(c := compared.index(plan.cursor))} >= t.c{c}, true)" if plan.cursor else "true"
    cases = [
        ("t.f IS NULL", "'inserted'"),
        (f"s.f IS NOT NULL AND {newer} AND ({' OR '.join([deleted, *differs])})", "'updated'"),
    ]
    if plan.keys:  # also of a row that came, and is older
        cases.append(("k.here", f"CASE WHEN {deleted} THEN 'returned' END"))
    cases.append(("s.f IS NOT NULL", "NULL"))
    if plan.requested:
        cases.append(("k.here IS NULL", "NULL"))
    says = plan.complete or plan.keys or plan.requested
    if says and plan.deletes == "hard":
        cases.append(("true", "'removed'"))
    if says and plan.deletes == "soft" and plan.deleted:
        cases.append((f"NOT {deleted}", "'marked'"))
    return "CASE " + " ".join(f"WHEN {when} THEN {then}" for when, then in cases) + " END"
