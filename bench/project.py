"""The `instep.yml` of a benchmark run: a PostgreSQL source, a destination, defaults elsewhere."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from data import BEFORE_SCHEMA, Workload
from server import DESTINATION, Server

CONNECTION, BEFORE = "shop_to_lake", "before_to_lake"
TEXT = """\
version: 1
project: bench
sources:
  shop: {{{source}, include: ["{schema}.*"]}}
  before: {{{source}, include: ["{before}.*"]}}
destinations:
  lake: {destination}
connections:
  before_to_lake: {{source: before, destination: lake}}
  shop_to_lake:
    source: shop
    destination: lake
"""
SOURCE = "type: postgres, host: 127.0.0.1, port: PORT, database: DATABASE, user: USER, tls: {mode: disable}"
DESTINATIONS = {
    "iceberg": "{type: iceberg, warehouse: lake, namespace: shop}",
    "delta": "{type: delta, warehouse: lake, namespace: shop}",
    "duckdb": "{type: duckdb, path: lake.duckdb, namespace: shop}",
    "postgres": "{type: postgres, host: 127.0.0.1, port: PORT, database: DATABASE, user: USER, namespace: SCHEMA}",
}
# The other tools follow the same cursor, and none of them looks for deleted rows.
BY_CURSOR = """\
    tables:
      "{schema}.*": {{mode: upsert, cursor: updated_at, deletes: ignore}}
"""


def write(
    folder: Path, server: Server, workload: Workload, *, by_cursor: bool, format: str = "iceberg", schema: str = ""
) -> Path:
    """Writes the project file into `folder`; `by_cursor` asks for upserts along the cursor column.

    `schema`: where a PostgreSQL destination has the tables. A second connection is what an engine syncs before.
    """
    parts = urlsplit(server.uri)

    def of(text: str, database: str) -> str:
        return text.replace("PORT", str(parts.port)).replace("DATABASE", database).replace("USER", str(parts.username))

    text = TEXT.format(
        source=of(SOURCE, parts.path.lstrip("/")),
        schema=workload.schema,
        before=BEFORE_SCHEMA,
        destination=of(DESTINATIONS[format], DESTINATION).replace("SCHEMA", schema),
    )
    path = folder / "instep.yml"
    path.write_text(text + (BY_CURSOR.format(schema=workload.schema) if by_cursor else ""))
    return path
