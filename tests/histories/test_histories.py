"""Any order of schema changes, decisions and syncs over real PostgreSQL, MariaDB and SQLite: see machine.py.

INSTEP_HISTORIES=500 runs as many of each, INSTEP_SEED=n others, INSTEP_ENGINE=spark all of them on Spark (else what
only Spark can do); fewer run in CI.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import get_state_machine_test

from histories.databases import MariaLive, PostgresLive, SqliteLive
from histories.machine import Histories
from instep.destinations.delta.destination import DeltaConfig, DeltaDestination
from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.postgres.connect import PostgresServerConfig
from instep.destinations.postgres.destination import PostgresDestination
from mariadb import MariaDatabase, MariaServer, open_as
from postgres_server import Database, Server, launch, make_database

MANY = int(os.environ.get("INSTEP_HISTORIES", "0"))
FEW, STEPS = 6, 20
SHRINK = "INSTEP_SHRINK" in os.environ
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def logical_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A PostgreSQL whose log can be followed; two databases of it serve all histories."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="instep-histories-"))
    folder.chmod(0o755)
    server = launch(folder / "server", 18, "-c wal_level=logical -c max_replication_slots=10")
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


Emptied = Callable[[], Any]


@pytest.fixture
def warehouse(logical_server: Server) -> Database:
    return make_database(logical_server, f"warehouse_{next(_numbers)}")


def emptied(database: Database) -> Database:
    """All schemas gone but an empty `public`."""
    for (name,) in database.execute(
        "SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'"
    ):
        database.execute(f'DROP SCHEMA "{name}" CASCADE')
    database.execute("CREATE SCHEMA public")
    database.execute("DROP PUBLICATION IF EXISTS instep_shop")
    return database


@pytest.fixture
def open_destination(warehouse: Database) -> Callable[[Path, int], Any]:
    def make(folder: Path, number: int) -> Any:
        match number:
            case 0:
                return IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(folder / "lake")))
            case 1:
                return DuckDbDestination(DuckDbConfig.resolved(name="lake", path=str(folder / "lake.duckdb")))
            case 2:
                return DeltaDestination(DeltaConfig.resolved(name="lake", warehouse=str(folder / "delta")))
        login = emptied(warehouse).login
        config = PostgresServerConfig.resolved(name="lake", **login, staging=str(folder / "staging"))
        return PostgresDestination(config)

    return make


@pytest.fixture(scope="session")
def start_spark() -> Iterator[Callable[[], Any]]:
    """A session that all share, started when the first one needs it."""
    from instep.spark.session import start, stop
    from instep.spark.settings import SparkSettings

    @cache
    def session() -> Any:
        return start(SparkSettings(master="local[2]", driver_memory="1g"))

    yield session
    if session.cache_info().currsize:
        stop(session())


@pytest.fixture(params=["postgres", "mariadb", "sqlite"])
def machine(
    request: pytest.FixtureRequest,
    open_destination: Callable[[Path, int], Any],
    start_spark: Callable[[], Any],
) -> Iterator[type[Histories]]:
    with ExitStack() as stack:
        opens, key = SOURCES[request.param](request, stack)

        class Machine(Histories):
            open_database = staticmethod(opens)
            shortest_key = key

        Machine.open_destination = staticmethod(open_destination)
        Machine.start_spark = staticmethod(start_spark)
        yield Machine


def over_postgres(request: pytest.FixtureRequest, _: ExitStack) -> tuple[Callable[[Path], Any], str]:
    database = make_database(request.getfixturevalue("logical_server"), f"history_{next(_numbers)}")
    return lambda _: PostgresLive(emptied(database)), "integer"


def over_mariadb(request: pytest.FixtureRequest, stack: ExitStack) -> tuple[Callable[[Path], Any], str]:
    server: MariaServer = request.getfixturevalue("mariadb_server")

    def execute(sql: str) -> None:
        with open_as(server.admin) as connection, connection.cursor() as cursor:
            cursor.execute(sql)

    def make(_: Path) -> MariaLive:
        """A database of its own: MariaDB's log names it, and it may be read from its start."""
        name = f"history_{next(_numbers)}"
        execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        stack.callback(execute, f"DROP DATABASE {name}")
        admin = server.admin.model_copy(update={"database": name})
        return MariaLive(MariaDatabase(server.admin, admin, admin))

    return make, "int"


def over_sqlite(_: pytest.FixtureRequest, __: ExitStack) -> tuple[Callable[[Path], Any], str]:
    return SqliteLive, "integer"


SOURCES = {"postgres": over_postgres, "mariadb": over_mariadb, "sqlite": over_sqlite}


@pytest.mark.sampled
@pytest.mark.slow
def test_what_differs_has_a_reason(machine: type[Histories]) -> None:
    test = get_state_machine_test(
        machine,
        settings=settings(
            settings(), max_examples=MANY or FEW, stateful_step_count=STEPS, deadline=None, print_blob=True,
            database=None, phases=(Phase.generate, Phase.shrink) if SHRINK else (Phase.generate,),
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck), derandomize=False,
        ),
    )  # fmt: skip
    seed(int(os.environ.get("INSTEP_SEED", "1")))(test)()
