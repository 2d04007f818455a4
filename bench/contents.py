"""Opens what a tool has written as a DuckDB relation, whatever the format, with the types declared there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError
from psycopg import sql

from iceberg_lake import copy_table
from lines import Line, Task


class Unreadable(Exception):
    """The destination holds no such table, or one that cannot be read; the message says why."""


@dataclass(frozen=True)
class Contents:
    """`relation` can stand after FROM; `types` maps each column to its declared type, empty where there are none."""

    relation: str
    columns: tuple[str, ...]
    types: dict[str, str]


def open_table(line: Line, task: Task, table: str, connection: duckdb.DuckDBPyConnection) -> Contents:
    openers = {
        "parquet": open_parquet,
        "csv": open_csv,
        "delta": open_delta,
        "duckdb": open_duckdb,
        "iceberg": open_iceberg,
    }
    if line.tool == "instep":  # tables of a schema that is not the source's default carry its name
        table = f"{task.workload.schema}__{table}"
    try:
        if line.format == "postgres":
            return open_postgres(line.schema, task, table)
        return openers[line.format](line.location(task, table), task, table, connection)
    except (duckdb.Error, psycopg.Error, OSError, LookupError, DeltaError) as error:
        raise Unreadable(f"cannot be read: {str(error).splitlines()[0][:200]}") from error


def described(relation: str, connection: duckdb.DuckDBPyConnection, *, typed: bool = True) -> Contents:
    columns = connection.execute(f"describe select * from {relation}").fetchall()
    types = {name: kind for name, kind, *_ in columns}
    return Contents(relation, tuple(types), types if typed else {})


def parquet_relation(files: list[str]) -> str:
    quoted = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    return f"read_parquet([{quoted}], union_by_name=true)"


def open_parquet(path: Path, task: Task, table: str, connection: duckdb.DuckDBPyConnection) -> Contents:
    files = sorted(map(str, path.rglob("*.parquet"))) if path.is_dir() else [str(path)]
    if not files:
        raise FileNotFoundError("no Parquet file")
    return described(parquet_relation(files), connection)


def open_csv(path: Path, task: Task, table: str, connection: duckdb.DuckDBPyConnection) -> Contents:
    relation = f"read_csv('{path}', header=true, all_varchar=true, quote='\"', escape='\"')"
    return described(relation, connection, typed=False)


def open_delta(path: Path, task: Task, table: str, connection: duckdb.DuckDBPyConnection) -> Contents:
    """By delta-rs and its SQL, none of the product's code: its PyArrow reader knows no mapped names of columns."""
    found = QueryBuilder().register("t", DeltaTable(str(path))).execute("select * from t")
    connection.register("lake_reader", pa.RecordBatchReader.from_stream(found))
    connection.execute("create or replace temp table lake_rows as select * from lake_reader")
    connection.unregister("lake_reader")
    return described("lake_rows", connection)


def open_duckdb(path: Path, task: Task, table: str, connection: duckdb.DuckDBPyConnection) -> Contents:
    connection.execute(f"attach if not exists '{path}' as lake (read_only)")
    return described(f'lake.shop."{table}"', connection)


def open_postgres(schema: str, task: Task, table: str) -> Contents:
    """The rows travel as text; the declared types come from the server's catalog. Each line has a schema of its own."""
    file = task.folder / f"{table}.check.csv"
    with psycopg.connect(task.server.destination_uri) as server:
        types = postgres_types(server, schema, table)
        texts = sql.SQL(", ").join(sql.SQL("{0}::text").format(sql.Identifier(name)) for name in types)
        query = sql.SQL("copy (select {0} from {1}) to stdout (format csv, null '\\N')")
        with server.cursor().copy(query.format(texts, sql.Identifier(schema, table))) as rows, file.open("wb") as out:
            for block in rows:
                out.write(block)
    names = ", ".join(f"'{name}': 'varchar'" for name in types)
    relation = f"read_csv('{file}', header=false, nullstr='\\N', quote='\"', escape='\"', columns={{{names}}})"
    return Contents(relation, tuple(types), types)


def postgres_types(server: psycopg.Connection[Any], schema: str, table: str) -> dict[str, str]:
    query = """select attname, format_type(atttypid, atttypmod) from pg_attribute
               where attrelid = format('%%I.%%I', %s::text, %s::text)::regclass and attnum > 0 and not attisdropped
               order by attnum"""
    return {name: kind.upper() for name, kind in server.execute(query, [schema, table]).fetchall()}


def open_iceberg(path: Path, task: Task, table: str, connection: duckdb.DuckDBPyConnection) -> Contents:
    return described(copy_table(path, table, connection), connection)
