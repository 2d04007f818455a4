"""One sync of a PostgreSQL database by way of its driver, in a process whose session began without it:
`python one_late_sync.py FOLDER`, the login in JDBC_TEST_LOGIN. Prints the errors of tables as JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from contract.sources import Case
from instep.project.sections.tables import TableSettings
from instep.sources.jdbc.config import JdbcConfig
from instep.sources.jdbc.source import JdbcSource
from jdbc_world import PGJDBC
from sync_world import World

LOGIN = "JDBC_TEST_LOGIN"


def session() -> Any:
    from instep.spark.session import start
    from instep.spark.settings import SparkSettings

    return start(SparkSettings(master="local[2]", driver_memory="1g"))


def main() -> None:
    login, filters = json.loads(os.environ[LOGIN])

    def source(*, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), restricted: bool = False) -> JdbcSource:
        config = JdbcConfig.resolved(
            subprotocol="postgresql", jars=(PGJDBC,), include=include, exclude=exclude, query_timeout=1, **login
        )
        return JdbcSource(config, session)

    session().range(8).repartition(4).collect()  # threads that take in answers are there
    world = World(Case("jdbc", "public", print, source, str), Path(sys.argv[1]), session, engine="spark")
    world.settings |= {table: TableSettings(filter=text) for table, text in filters.items()}
    report = world.sync()
    world.close()
    print(json.dumps({t.table[1]: t.error for t in report.tables}))


if __name__ == "__main__":
    main()
