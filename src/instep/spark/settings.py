"""Settings of a Spark session, known without anything that starts one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

OWN_WORKERS = "INSTEP_OWN_WORKERS"
"""The variable that workers of a session of instep's have, as `stage.pandas_free` reads it."""


@dataclass(frozen=True)
class SparkSettings:
    """Settings of a Spark session.

    `master`: a Spark master; `local[N]` always becomes `local[N,4]`, without which a task is never retried.
    `remote`: a Connect address (`sc://host:port`), which wins over `master`. `driver_memory`: as `-Xmx` takes
    it, "" for a quarter of this machine's memory, 1 to 4 GB. `conf`: further Spark settings. `catalogs`: per
    name its settings, with or without the prefix `spark.sql.catalog.<name>`. `jars`: files beside the pinned
    ones. `drivers`: those of JDBC drivers, last on the class path. `cache`: folder for jars and class archives.
    `quick`: start fast and compile little (a run of minutes); False for a process that lives for hours. `resident`:
    start fast, and compile all the same, for many short runs.
    """

    master: str = "local[*]"
    remote: str | None = None
    driver_memory: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)
    catalogs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    jars: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    cache: str = ""
    quick: bool = True
    resident: bool = False

    @property
    def where(self) -> str:
        """Return the master, or the Connect server without what may be a token."""
        return self.remote.partition(";")[0].rstrip("/") if self.remote else self.master
