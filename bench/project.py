"""The `instep.yml` of a benchmark run: a PostgreSQL source, an Iceberg lake in a local folder."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from data import Workload
from server import Server

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
    include: ["{schema}.*"]
destinations:
  lake: {{type: iceberg, warehouse: "{warehouse}", namespace: shop}}
policies:
  follow:
    preset: allow_all
    rules:
      - {{on: [column.added], decide: apply, backfill: new_columns}}
connections:
  {connection}:
    source: shop
    destination: lake
    policy: follow
"""


def write(folder: Path, server: Server, workload: Workload, *, merge: bool) -> Path:
    """Writes the project file into `folder`; `merge` asks for upserts by key along the cursor column."""
    parts = urlsplit(server.uri)
    path = folder / "instep.yml"
    path.write_text(
        TEXT.format(
            port=server.port,
            database=parts.path.lstrip("/"),
            user=parts.username,
            schema=workload.schema,
            warehouse=folder / "lake",
            connection=CONNECTION,
        )
    )
    return path
