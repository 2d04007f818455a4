"""What is replicated: deterministic tables, made in the server from row numbers, and the truth about them.

`orders` has 10 columns of 9 types, `deliveries` 5; `many` is 200 small tables of 8 columns. `churn` is what happens
between two syncs: 1 % of the rows updated, and to `orders` also 1 % inserted and a column added whose default fills the
old rows without touching `updated_at`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import duckdb
import psycopg
from psycopg import sql

from places import TRUTH
from server import Server

Kind = Literal["integer", "decimal", "text", "instant", "date", "boolean", "json"]
Columns = tuple[tuple[str, Kind], ...]

ORDER_COLUMNS: Columns = (
    ("id", "integer"),
    ("customer_id", "integer"),
    ("amount", "decimal"),
    ("status", "text"),
    ("created_at", "instant"),
    ("updated_at", "instant"),
    ("ship_date", "date"),
    ("gift", "boolean"),
    ("meta", "json"),
    ("note", "text"),
)
LARGE_COLUMNS: Columns = (
    ("id", "integer"),
    ("customer_id", "integer"),
    ("amount", "decimal"),
    ("updated_at", "instant"),
    ("note", "text"),
)
SMALL_COLUMNS: Columns = (
    ("id", "integer"),
    ("a", "integer"),
    ("b", "decimal"),
    ("c", "text"),
    ("d", "instant"),
    ("e", "date"),
    ("f", "boolean"),
    ("g", "json"),
)

BEFORE_SCHEMA, BEFORE_TABLE, BEFORE_ROWS = "before", "first", 50_000
"""What a resident line reads first, in a schema of its own."""

CREATE_ORDERS = """
create table {table} (
  id bigint not null, customer_id integer not null, amount numeric(12,2), status text, created_at timestamptz,
  updated_at timestamptz not null, ship_date date, gift boolean, meta jsonb, note varchar(200){more})
"""
# (i * prime) % 2^32 scatters the values; nothing random, so two runs have the same bytes.
FILL_ORDERS = """
insert into {table}
select i, (h % 200000)::integer, (h % 10000000) / 100.0,
  (array['new', 'paid', 'shipped', 'returned', 'cancelled'])[1 + h % 5],
  timestamptz '2023-01-01' + (i % 31536000) * interval '1 second',
  timestamptz '2023-01-01 01:00' + (i % 31536000) * interval '1 second',
  case when i % 7 <> 0 then date '2023-01-01' + (i % 700)::integer end,
  i % 10 = 0,
  jsonb_build_object('source', (array['web', 'app', 'store'])[1 + i % 3], 'score', h % 1000,
                     'tags', jsonb_build_array('a', 'b' || i % 9)),
  case when i % 3 <> 0 then 'note ' || md5(i::text) end{more}
from (select i, i * 2654435761 % 4294967296 as h from generate_series(1::bigint, {rows}) as i) as numbers
"""
CREATE_LARGE = """
create table {table} (
  id bigint primary key, customer_id integer, amount numeric(12,2), updated_at timestamptz not null, note text)
"""
FILL_LARGE = """
insert into {table}
select i, (h % 200000)::integer, (h % 10000000) / 100.0, timestamptz '2023-01-01' + i * interval '1 second',
  'delivered: ' || md5(i::text)
from (select i, i * 2654435761 % 4294967296 as h from generate_series(1::bigint, {rows}) as i) as numbers
"""
CREATE_SMALL = """
create table {table} (
  id bigint primary key, a integer, b numeric(10,2), c text, d timestamptz, e date, f boolean, g jsonb)
"""
FILL_SMALL = """
insert into {table}
select i, i % 97, i / 3.0, md5((i * {number})::text), timestamptz '2024-01-01' + i * interval '1 minute',
  date '2024-01-01' + i % 300, i % 2 = 0, jsonb_build_object('n', i)
from generate_series(1, {rows}) as i
"""
CHURN = (
    "alter table {table} add column discount numeric(8,4) default 0.1250",
    """update {table} set status = 'reworked', amount = amount + 1, discount = 0.5,
         updated_at = timestamptz '2026-01-01' + id * interval '1 millisecond' where id % 100 = 0""",
    """insert into {table}
       select i, i % 1000, 9.99, 'new', timestamptz '2026-02-01',
         timestamptz '2026-02-01' + (i - {rows}) * interval '1 millisecond', null, false,
         '{{"source": "web", "score": 7, "tags": ["a", "b1"]}}', 'late', 0.25
       from generate_series({rows}::bigint + 1, {rows} + {rows} / 100) as i""",
)
CHURN_LARGE = (
    """update {table} set amount = amount + 1, updated_at = timestamptz '2026-01-01' + id * interval '1 millisecond'
       where id % 100 = 0""",
)
CANONICAL = {
    "instant": "(extract(epoch from {0}) * 1000000)::bigint",
    "json": "replace(concat_ws('|', {0} ->> 'source', {0} ->> 'score', {0} ->> 'tags', {0} ->> 'n'), ' ', '')",
}
STORED_AS = {
    "integer": "bigint",
    "decimal": "decimal(18,4)",
    "instant": "bigint",
    "date": "date",
    "boolean": "boolean",
    "json": "varchar",
    "text": "varchar",
}


@dataclass(frozen=True)
class Workload:
    """Tables of one shape in one schema of the source; `rows` is per table."""

    name: str
    tables: tuple[str, ...]
    rows: int
    columns: Columns
    schema: str = "shop"

    @property
    def total_rows(self) -> int:
        return self.rows * len(self.tables)

    @property
    def is_orders(self) -> bool:
        return self.columns[: len(ORDER_COLUMNS)] == ORDER_COLUMNS

    @property
    def is_large(self) -> bool:
        return self.columns == LARGE_COLUMNS

    def churned(self) -> Workload:
        if self.is_large:
            return self
        return replace(self, rows=self.rows + self.rows // 100, columns=(*self.columns, ("discount", "decimal")))


def orders(name: str, rows: int) -> Workload:
    return Workload(name, ("orders",), rows, ORDER_COLUMNS)


def small_tables(name: str, tables: int, rows: int) -> Workload:
    return Workload(name, tuple(f"t{number:03}" for number in range(1, tables + 1)), rows, SMALL_COLUMNS)


def large(name: str, rows: int) -> Workload:
    return Workload(name, ("deliveries",), rows, LARGE_COLUMNS)


def wide(name: str, rows: int, more: int) -> Workload:
    """`orders` with `more` columns beside its own, integers and texts in turn."""
    added: Columns = tuple((f"x{number:02}", "text" if number % 2 else "integer") for number in range(1, more + 1))
    return Workload(name, ("orders",), rows, (*ORDER_COLUMNS, *added))


def run(
    connection: psycopg.Connection[Any], statement: str, table: sql.Identifier, more: str = "", **numbers: int
) -> None:
    values: dict[str, sql.Composable] = {name: sql.Literal(value) for name, value in numbers.items()}
    values["more"] = sql.SQL(more)  # type: ignore[arg-type]
    connection.execute(sql.SQL(statement).format(table=table, **values))


def generate(server: Server, workload: Workload) -> None:
    """Makes the workload's schema anew: it holds nothing else, so a tool that reads it all reads these tables."""
    with server.connect() as connection:
        connection.execute(sql.SQL("drop schema if exists {0} cascade").format(sql.Identifier(workload.schema)))
        connection.execute(sql.SQL("create schema {0}").format(sql.Identifier(workload.schema)))
        for number, name in enumerate(workload.tables, 1):
            table = sql.Identifier(workload.schema, name)
            if workload.is_orders:
                generate_orders(connection, table, workload)
            elif workload.is_large:
                run(connection, CREATE_LARGE, table)
                run(connection, FILL_LARGE, table, rows=workload.rows)
                run(connection, "create index on {table} (updated_at)", table)
            else:
                run(connection, CREATE_SMALL, table)
                run(connection, FILL_SMALL, table, number=number, rows=workload.rows)
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")


def generate_before(server: Server) -> None:
    generate(server, Workload("before", (BEFORE_TABLE,), BEFORE_ROWS, ORDER_COLUMNS, BEFORE_SCHEMA))


def generate_orders(connection: psycopg.Connection[Any], table: sql.Identifier, workload: Workload) -> None:
    more = workload.columns[len(ORDER_COLUMNS) :]
    kinds = "".join(f", {name} {'text' if kind == 'text' else 'bigint'}" for name, kind in more)
    values = "".join(f", {'md5(i::text)' if kind == 'text' else 'i * 7'}" for _, kind in more)
    run(connection, CREATE_ORDERS, table, kinds)
    run(connection, FILL_ORDERS, table, values, rows=workload.rows)
    run(connection, "alter table {table} add primary key (id)", table)
    run(connection, "create index on {table} (updated_at)", table)


def churn(server: Server, workload: Workload) -> Workload:
    """Changes the source between two syncs; returns the workload as it is now."""
    with server.connect() as connection:
        for name in workload.tables:
            for statement in CHURN_LARGE if workload.is_large else CHURN:
                run(connection, statement, sql.Identifier(workload.schema, name), rows=workload.rows)
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")
    return workload.churned()


def canonical_select(columns: Columns) -> str:
    return ", ".join(CANONICAL.get(kind, "{0}").format(f'"{name}"') for name, kind in columns)


def record_truth(server: Server, workload: Workload) -> Path:
    """A DuckDB file with one table per source table, values in canonical form; instants are microseconds."""
    path = TRUTH / f"{workload.name}.duckdb"
    path.unlink(missing_ok=True)
    with server.connect() as source, duckdb.connect(str(path)) as truth:
        for table in workload.tables:
            copy_truth(source, truth, workload, table, path.with_suffix(".csv"))
    return path


def copy_truth(
    source: psycopg.Connection[Any], truth: duckdb.DuckDBPyConnection, workload: Workload, table: str, file: Path
) -> None:
    select = sql.SQL(f"select {canonical_select(workload.columns)} from {{0}}")
    query = sql.SQL("copy ({0}) to stdout (format csv, null '\\N')").format(
        select.format(sql.Identifier(workload.schema, table))
    )
    with source.cursor().copy(query) as rows, file.open("wb") as output:
        for block in rows:
            output.write(block)
    truth.execute(f'create table "{table}" as select * from {read_csv(file, workload.columns)}')
    file.unlink()


def read_csv(file: Path, columns: Sequence[tuple[str, Kind]]) -> str:
    types = ", ".join(f"'{name}': '{STORED_AS[kind]}'" for name, kind in columns)
    return f"read_csv('{file}', header=false, nullstr='\\N', quote='\"', escape='\"', columns={{{types}}})"
