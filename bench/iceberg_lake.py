"""Reads a table of a local lake with pyiceberg alone, none of the product's code: as any other reader would."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
from pyiceberg.table import StaticTable

FIND = (
    "select metadata_location from iceberg_tables where table_name = ? and table_namespace not like '\\_%' escape '\\'"
)


def metadata_location(warehouse: Path, table: str) -> str:
    """Where the table's current metadata file is, from the catalog's SQLite file."""
    catalog = warehouse / "catalog.db"
    if not catalog.exists():
        raise FileNotFoundError("there is no catalog.db in the warehouse")
    with closing(sqlite3.connect(catalog)) as database:
        found = database.execute(FIND, [table]).fetchall()
    if len(found) != 1:
        raise LookupError(f"the catalog lists it {len(found)} times")
    return str(found[0][0])


def copy_table(warehouse: Path, table: str, connection: duckdb.DuckDBPyConnection) -> str:
    """Copies the table's live rows (deletes applied) into a temporary table and returns its name."""
    reader = StaticTable.from_metadata(metadata_location(warehouse, table)).scan().to_arrow_batch_reader()
    connection.register("lake_reader", reader)
    connection.execute("create or replace temp table lake_rows as select * from lake_reader")
    connection.unregister("lake_reader")
    return "lake_rows"
