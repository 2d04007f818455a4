"""Databases behind JDBC drivers: the session whose JVM the drivers run in, and the jars of the tests."""

from __future__ import annotations

import atexit
import os
from functools import cache
from typing import Any

from instep.project.sections.jdbc import JdbcJar
from instep.sources.jdbc.config import jar_file

PGJDBC = JdbcJar(
    maven="org.postgresql:postgresql:42.7.12",
    sha256="31fbf6f06b2217fb51d5100cee51b22625cc81640da0679b47914e54c1e6377c",
)


def session() -> Any:
    """The one session of this process, which ends with it."""
    from instep.spark.session import start
    from instep.spark.settings import SparkSettings

    os.environ.setdefault("INSTEP_ARCHIVE", "off")
    _end()
    return start(SparkSettings(master="local[2]", driver_memory="1g", drivers=(jar_file(PGJDBC),)))


@cache
def _end() -> None:
    from instep.spark.session import stop

    atexit.register(lambda: stop(session()))
