"""Merges rows by Spark into a lake whose REST catalog an API has set: a process of its own, as a session gets its jars
when it starts. Arguments: the lake's settings as JSON, and the rows. Prints the rows of the table, or the error."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import lake
from instep.destinations.base import Commit, Merge
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.iceberg.write import key_ranges
from instep.errors import InstepError
from instep.spark.session import start, stop
from instep.spark.settings import SparkSettings
from lake import REF, rows_of, stage


def main(settings: str, rows: str) -> None:
    key_ranges.MOST_READS = 0  # Spark itself opens the files
    lake._numbers = itertools.count(1_000)  # the names of files that another process has not staged
    to = IcebergDestination(IcebergConfig.resolved(**json.loads(settings)))
    conf = {**to.lifecycle.spark_catalog()}
    session = start(SparkSettings(master="local[2]", driver_memory="1g", conf=conf))
    try:
        to.write.claim(REF, 9)
        staged = [stage(to, REF, json.loads(rows))]
        done = to.write.merge(lambda: session, REF, staged, Merge(("id",)), Commit("r9", 9))
        found = {"counts": [done.inserted, done.updated], "rows": rows_of(to, REF, ["id", "name"])}
    except InstepError as error:
        found = {"error": str(error)}
    finally:
        stop(session)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
