"""Compares a destination to the source, row by row and column by column, and says what is wrong where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import duckdb

from contents import Contents, Unreadable, open_table
from data import STORED_AS, Columns, Kind
from lines import Line, Task

EXPECTED_TYPES: dict[Kind, tuple[str, ...]] = {
    "integer": ("BIGINT", "INTEGER", "SMALLINT", "HUGEINT"),
    "decimal": ("DECIMAL", "NUMERIC"),
    "instant": ("TIMESTAMP WITH TIME ZONE",),
    "date": ("DATE",),
    "boolean": ("BOOLEAN",),
    "json": ("JSON", "VARCHAR", "TEXT", "STRUCT"),
    "text": ("VARCHAR", "TEXT", "CHARACTER VARYING"),
}


@dataclass
class Verdict:
    """`faults` are lost, doubled or different rows and values; `types` are columns that lost their type."""

    rows: int = 0
    sums: dict[str, str] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    types: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "faults": dict(self.faults)}


def check(line: Line, task: Task, truth: Path) -> Verdict:
    """Counts faults over all tables; a fault's number is that of rows."""
    verdict = Verdict()
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.execute(f"attach '{truth}' as truth (read_only)")
        for table in task.workload.tables:
            check_table(line, task, table, connection, verdict)
    return verdict


def check_table(line: Line, task: Task, table: str, connection: duckdb.DuckDBPyConnection, verdict: Verdict) -> None:
    try:
        contents = open_table(line, task, table, connection)
    except Unreadable as error:
        verdict.faults[str(error)] += task.workload.rows
        return
    wanted = task.workload.columns
    present = tuple((name, kind) for name, kind in wanted if name in contents.columns)
    for name, _ in set(wanted) - set(present):
        verdict.faults[f"column {name} is missing"] += task.workload.rows
    verdict.types |= dict(lost_types(contents, present))
    connection.execute(f"create or replace temp view arrived as {arrived_select(contents, present, connection)}")
    compare(table, present, connection, verdict)


def lost_types(contents: Contents, columns: Columns) -> Iterator[tuple[str, str]]:
    for name, kind in columns:
        declared = contents.types.get(name)
        if declared and not declared.startswith(EXPECTED_TYPES[kind]):
            yield name, declared


def arrived_select(contents: Contents, columns: Columns, connection: duckdb.DuckDBPyConnection) -> str:
    described = connection.execute(f"describe select * from {contents.relation}").fetchall()
    stored = {name: str(kind) for name, kind, *_ in described}
    chosen = ", ".join(f'{canonical(name, kind, stored[name])} as "{name}"' for name, kind in columns)
    alive = " where not coalesce(_instep_deleted::boolean, false)" if "_instep_deleted" in contents.columns else ""
    return f"select {chosen} from {contents.relation}{alive}"


def canonical(name: str, kind: Kind, stored: str) -> str:
    """The SQL that brings a column as it arrived to the form of the truth; what cannot be brought there is NULL."""
    column = f'"{name}"'
    if kind == "instant":
        if not stored.startswith("TIMESTAMP"):
            return f"epoch_us(try_cast(replace({column}, ' +', '+') as timestamptz))"
        return f"epoch_us({column}::timestamp)" if stored.startswith("TIMESTAMP_") else f"epoch_us({column})"
    if kind == "json":
        parts = ", ".join(
            f"try_cast({column}::varchar as json) ->> '$.{key}'" for key in ("source", "score", "tags", "n")
        )
        return f"case when {column} is not null then replace(concat_ws('|', {parts}), ' ', '') end"
    return f"try_cast({column} as {STORED_AS[kind]})"


def compare(table: str, columns: Columns, connection: duckdb.DuckDBPyConnection, verdict: Verdict) -> None:
    names = [name for name, _ in columns if name != "id"]
    both = "s.id is not null and a.id is not null"
    different = ", ".join(f'count(*) filter ({both} and s."{n}" is distinct from a."{n}")' for n in names)
    missing, extra, *counts = fetch(
        connection,
        f"""select count(*) filter (a.id is null), count(*) filter (s.id is null), {different}
            from truth."{table}" s full join arrived a on a.id = s.id""",
    )
    rows, distinct, *sums = fetch(connection, f"select count(*), count(distinct id), {summary(columns)} from arrived")
    verdict.rows += rows
    if len(verdict.sums) == 0:
        verdict.sums = {label: str(value) for label, value in zip(summary_labels(columns), sums, strict=True)}
    found = {"rows are missing": missing, "rows are extra": extra, "rows are double": rows - distinct}
    found |= {f"{name} differs": count for name, count in zip(names, counts, strict=True)}
    verdict.faults.update({what: count for what, count in found.items() if count})


def fetch(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[int, ...]:
    (row,) = connection.execute(query).fetchall()
    return tuple(row)


def summary_labels(columns: Columns) -> list[str]:
    labels = [f"sum of {name}" for name, kind in columns if kind == "decimal"]
    return labels + [
        f"{what} of {name}" for name, kind in columns if kind == "instant" for what in ("highest", "count")
    ]


def summary(columns: Columns) -> str:
    parts = [f'sum("{name}")' for name, kind in columns if kind == "decimal"]
    for name, kind in columns:
        if kind == "instant":
            parts += [f'make_timestamp(max("{name}"))', f'count("{name}")']
    return ", ".join(parts)
