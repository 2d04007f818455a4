"""The `instep.yml` of a benchmark run: a PostgreSQL source, a destination, defaults elsewhere."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from data import BEFORE_SCHEMA, Workload
from server import DESTINATION, Server

CONNECTION = "shop_to_lake"
TEXT = """\
version: 1
project: bench
sources:
  shop:
    type: postgres
    host: 127.0.0.1
    port: {port}
    database: {database}
    user: {user}
    sslmode: disable
    include: {include}
destinations:
  lake: {destination}
connections:
  {connection}:
    source: shop
    destination: lake
"""
DESTINATIONS = {
    "iceberg": "{type: iceberg, warehouse: lake, namespace: shop}",
    "duckdb": "{type: duckdb, path: lake.duckdb, namespace: shop}",
    "postgres": "{type: postgres, host: 127.0.0.1, port: PORT, database: DATABASE, user: USER, namespace: instep}",
}
# The other tools follow the same cursor, and none of them looks for deleted rows.
BY_CURSOR = """\
    tables:
      "{schema}.*": {{mode: upsert, cursor: updated_at, deletes: ignore}}
"""


def write(
    folder: Path, server: Server, workload: Workload, *, merge: bool, warm: bool = False, format: str = "iceberg"
) -> Path:
    """Writes the project file into `folder`; `merge` asks for upserts along the cursor column."""
    parts = urlsplit(server.uri)
    include = [f"{workload.schema}.*", *([f"{BEFORE_SCHEMA}.*"] if warm else [])]
    text = TEXT.format(
        port=parts.port,
        database=parts.path.lstrip("/"),
        user=parts.username,
        include="[" + ", ".join(f'"{pattern}"' for pattern in include) + "]",
        connection=CONNECTION,
        destination=DESTINATIONS[format]
        .replace("PORT", str(parts.port))
        .replace("DATABASE", DESTINATION)
        .replace("USER", str(parts.username)),
    )
    path = folder / "instep.yml"
    path.write_text(text + (BY_CURSOR.format(schema=workload.schema) if merge else ""))
    return path
