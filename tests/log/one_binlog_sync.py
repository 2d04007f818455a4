"""One sync of a MariaDB database in a process of its own, which a test may kill: `python one_binlog_sync.py FOLDER`,
the login in LOG_TEST_LOGIN."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from binlog_world import BinlogWorld

from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.sources.mysql.connect import MySqlConfig
from mariadb import MariaDatabase

LOGIN = "LOG_TEST_LOGIN"


def login(database: MariaDatabase) -> dict[str, str]:
    """The environment that tells the process where to log in."""
    config = database.config
    return {LOGIN: json.dumps({k: v for k, v in asdict(config).items() if isinstance(v, str | int)})}


def world_in(database: MariaDatabase, folder: Path) -> BinlogWorld:
    """A world whose tables are in a DuckDB file."""
    destination: Any = DuckDbDestination(DuckDbConfig("warehouse", str(folder / "shop.duckdb"), lock_timeout=30))
    return BinlogWorld.of(database, folder, destination)


def main() -> int:
    config = MySqlConfig(**json.loads(os.environ[LOGIN]))
    world = world_in(MariaDatabase(config, config, config), Path(sys.argv[1]))
    report = world.sync()
    world.close()
    print(report)
    return 0 if report.status == "done" else 1


if __name__ == "__main__":
    raise SystemExit(main())
