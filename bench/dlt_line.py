"""One dlt pipeline run, in dlt's own environment: python dlt_line.py SETTINGS (JSON, see DltLine in lines.py)."""

from __future__ import annotations

import json
import sys
from typing import Any

import dlt
from dlt.sources.sql_database import sql_database


def destination(settings: dict[str, Any]) -> Any:
    if settings["format"] == "duckdb":
        return dlt.destinations.duckdb(f"{settings['folder']}/lake.duckdb")
    return dlt.destinations.filesystem(f"file://{settings['folder']}/lake")


def source(settings: dict[str, Any]) -> Any:
    tables = sql_database(
        settings["uri"], schema=settings["schema"], table_names=list(settings["tables"]), backend="connectorx"
    )
    hints: dict[str, Any] = {"write_disposition": "replace"}
    if settings["merge"]:
        hints = {
            "write_disposition": "merge",
            "primary_key": "id",
            "incremental": dlt.sources.incremental("updated_at"),
        }
    if settings["format"] == "delta":
        hints["table_format"] = "delta"
    for resource in tables.resources.values():
        resource.apply_hints(**hints)
    return tables


def main(settings: dict[str, Any]) -> None:
    pipeline = dlt.pipeline("bench", destination=destination(settings), dataset_name="shop")
    file_format = "parquet" if settings["format"] == "parquet" else None
    print(pipeline.run(source(settings), loader_file_format=file_format))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
