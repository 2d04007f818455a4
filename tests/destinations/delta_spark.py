"""What Spark says of Delta tables, in a process of its own: its class path is not that of other tests.

`python delta_spark.py FOLDER` runs the statements in FOLDER/asked.json and leaves their rows in FOLDER/said.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]


def ask(folder: Path, statements: Sequence[str]) -> list[Rows]:
    """The rows of each statement, values as text."""
    folder.joinpath("asked.json").write_text(json.dumps(list(statements)))
    done = subprocess.run(
        [sys.executable, __file__, str(folder)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said: list[Rows] = json.loads(folder.joinpath("said.json").read_text())
    return said


def plain(rows: Rows) -> Rows:
    """Rows with each value as text that is the same whoever read it."""
    return sorted(({k: _text(v) for k, v in row.items()} for row in rows), key=repr)


def _text(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _text(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_text(v) for v in value]
    return value.isoformat() if hasattr(value, "isoformat") else None if value is None else str(value)


def main(folder: Path) -> None:
    from instep.spark.jars import DELTA, ensure
    from instep.spark.session import start, stop
    from instep.spark.settings import SparkSettings

    conf = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "1",
    }
    jars = tuple(str(path) for path in ensure(DELTA))
    settings = SparkSettings(master="local[2]", driver_memory="1g", conf=conf, jars=jars)
    session = start(settings)
    asked = json.loads(folder.joinpath("asked.json").read_text())
    said = list[Rows]()
    for statement in asked:
        found = session.sql(statement)
        said.append(plain(found.toArrow().to_pylist()) if statement.startswith("SELECT") else [])
    folder.joinpath("said.json").write_text(json.dumps(said))
    stop(session)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
