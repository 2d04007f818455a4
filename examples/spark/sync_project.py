"""Sync a project in the Spark session that spark-submit starts, on whatever cluster that is.

    python sync_project.py --conf FOLDER > instep.conf
    spark-submit --master spark://head:7077 --properties-file instep.conf sync_project.py FOLDER [CONNECTION ...]

`--conf` prints what the session needs from its start on: the pinned jars, Iceberg's extensions, the destinations as
catalogs. Nothing in it is secret. The exit code is 1 if a table was not loaded, 3 if a person has to decide first.
"""

from __future__ import annotations

import sys

import instep
from instep.errors import InstepError


def settings(folder: str) -> str:
    """Return the properties file of a session for the project."""
    lines = (f"{key} {value}" for key, value in instep.spark_conf(folder).items())
    return "\n".join(lines).replace("\\", "\\\\")


def sync(folder: str, names: list[str]) -> int:
    """Sync the named connections, or all; return the exit code."""
    from pyspark.sql import SparkSession

    spark, worst = SparkSession.builder.appName("instep").getOrCreate(), 0
    with instep.open(folder, spark=spark) as project:
        for connection in [project.connection(name) for name in names] or project.connections:
            try:
                done = connection.sync()
            except InstepError as error:
                print(f"{connection.name}: {error}", file=sys.stderr)
                worst = max(worst, error.exit_code)
                continue
            print(f"{connection.name}: {done.status}, {sum(table.read for table in done.tables)} rows, {done.engine}")
            for table, error in done.failed.items():
                print(f"{connection.name}: {table}: {error}", file=sys.stderr)
            worst = max(worst, 0 if done.ok else 1)
    return worst


if __name__ == "__main__":
    if sys.argv[1:2] == ["--conf"]:
        print(settings(*sys.argv[2:3]))
    else:
        sys.exit(sync(sys.argv[1], sys.argv[2:]))
