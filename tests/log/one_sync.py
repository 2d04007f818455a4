"""One sync in a process of its own, which a test may kill: `python one_sync.py FOLDER`, the login in LOG_TEST_LOGIN."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from binlog_world import BinlogWorld
from followed import Followed
from log_world import LogWorld

from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.project.sections.databases import MySqlSourceSection, PostgresSourceSection
from mariadb import MariaDatabase
from postgres_server import Database

LOGIN = "LOG_TEST_LOGIN"


def login(database: Database | MariaDatabase) -> dict[str, str]:
    """The environment that tells the process where to log in."""
    said = {k: v for k, v in database.config if isinstance(v, str | int) and k != "type"}
    return {LOGIN: json.dumps([isinstance(database, MariaDatabase), said])}


def world_in(database: Database | MariaDatabase, folder: Path) -> Followed:
    """A world whose tables are in a DuckDB file."""
    destination: Any = DuckDbDestination(
        DuckDbConfig.resolved(name="warehouse", path=str(folder / "shop.duckdb"), lock_timeout=30)
    )
    if isinstance(database, MariaDatabase):
        return BinlogWorld.of(database, folder, destination)
    return LogWorld.of(database, folder, destination)


def main() -> int:
    mariadb, said = json.loads(os.environ[LOGIN])
    if mariadb:
        config = MySqlSourceSection.resolved(type="mysql", **said)
        world = world_in(MariaDatabase(config, config, config), Path(sys.argv[1]))
    else:
        login = PostgresSourceSection.resolved(type="postgres", **said)
        world = world_in(Database(login, login), Path(sys.argv[1]))
    report = world.sync()
    world.close()
    print(report)
    return 0 if report.status == "done" else 1


if __name__ == "__main__":
    raise SystemExit(main())
