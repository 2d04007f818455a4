"""A JDBC source on Spark, end to end: what is read equals the source, one table's failure is its own, and a login is
nowhere but in the driver."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import one_late_sync
import psycopg
import pytest

from contract.sources import Case
from fault_proxy import CALM, Fault, before
from instep.errors import ConnectError, InstepError, SetupError
from instep.model import Check
from instep.project.sections.jdbc import JdbcJar
from instep.project.sections.tables import TableSettings
from instep.schema.planning.projection import ColumnRead, TableRead
from instep.sources.base import CursorRange
from instep.sources.jdbc.config import JdbcConfig
from instep.sources.jdbc.source import JdbcSnapshot, JdbcSource
from instep.sources.postgres.connect import conninfo
from jdbc_world import PGJDBC, session
from lock_phases import Phases
from postgres_server import Database
from sync_world import World, counts, cursor

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
PARTS = 3


def config_of(database: Database, **said: Any) -> JdbcConfig:
    own = database.config
    known: dict[str, Any] = {
        "subprotocol": "postgresql", "host": own.host, "port": own.port, "database": own.database, "user": own.user,
        "password": own.password, "jars": (PGJDBC,),
    }  # fmt: skip
    return JdbcConfig.resolved(**{**known, **said})


@contextmanager
def world_of(database: Database, folder: Path, **said: Any) -> Iterator[World]:
    """A world over the database by way of its JDBC driver."""

    def source(*, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), restricted: bool = False) -> JdbcSource:
        return JdbcSource(config_of(database, include=include, exclude=exclude, **said), session)

    world = World(Case("jdbc", "public", database.execute, source, str), folder, session, engine="spark")
    try:
        yield world
    finally:
        world.close()


def test_every_way_of_loading_in_several_parts(postgres: Database, tmp_path: Path) -> None:
    with world_of(postgres, tmp_path, partitions=PARTS, max_connections=PARTS, fetch_size=7) as world:
        world.run(
            "CREATE TABLE orders (id bigint PRIMARY KEY, item text, price numeric(10,2), at timestamptz)",
            "INSERT INTO orders SELECT n, 'tea ' || n, n / 8.0, 'epoch'::timestamptz + n * interval '1 us' "
            "FROM generate_series(1, 100) n",
            "CREATE TABLE changes (id int PRIMARY KEY, version int NOT NULL, note text)",
            "INSERT INTO changes SELECT n, n % 10, 'n' FROM generate_series(1, 50) n",
            "CREATE TABLE loose (a int, b text)",
            "INSERT INTO loose SELECT 1, 'same' FROM generate_series(1, 5)",
            "CREATE TABLE empty (id int PRIMARY KEY, b boolean)",
        )
        world.settings |= {"changes": cursor("version", filter="id <> 13"), "orders": TableSettings()}
        first = world.sync()
        assert {t.table[1]: (t.status, t.error, t.read) for t in first.tables} == {
            "orders": ("done", "", 100), "changes": ("done", "", 49), "loose": ("done", "", 5),
            "empty": ("done", "", 0),
        }  # fmt: skip
        assert any("no read point" in note for note in first.notes)
        world.run(
            "UPDATE orders SET price = -1 WHERE id = 7", "DELETE FROM orders WHERE id > 90",
            "UPDATE changes SET version = 11, note = NULL WHERE id = 5", "DELETE FROM changes WHERE id = 6",
            "ALTER TABLE orders ADD COLUMN extra uuid DEFAULT '00000000-0000-0000-0000-0000000000ff'",
            "INSERT INTO loose VALUES (1, 'same')", "INSERT INTO empty VALUES (1, true), (2, false), (3, NULL)",
        )  # fmt: skip
        second = world.sync()
        assert counts(second, "orders")[1:4] == (0, 90, 10) or counts(second, "orders")[1:4] == (0, 1, 10)
        assert counts(second, "changes")[1:4] == (0, 1, 1)
        assert world.differing() == {}
        assert world.rows("empty", "id", "b") == [(1, True), (2, False), (3, None)]
        assert len(world.rows("loose")) == 6


def test_a_key_that_an_inheriting_table_repeats(postgres: Database, tmp_path: Path) -> None:
    """As the PostgreSQL source has it: see tests/log/test_log_sync.py."""
    with world_of(postgres, tmp_path) as world:
        world.settings["c"] = cursor("v")
        for name in ("c", "x"):
            world.run(
                f"CREATE TABLE {name} (id int PRIMARY KEY, v int NOT NULL)",
                f"CREATE TABLE {name}_heir (PRIMARY KEY (id)) INHERITS ({name})",
                f"INSERT INTO {name} VALUES (1, 1)",  # noqa: S608
            )
        world.sync()
        world.run("INSERT INTO x_heir VALUES (1, 10)", "INSERT INTO c_heir VALUES (1, 10)")
        errors = {t.table[1]: t.error for t in world.sync().tables}
        for name in ("c", "x"):
            assert "the key id, which the source does not guarantee, is not unique: 1 rows share it" in errors[name]
            assert errors[f"{name}_heir"] == ""
        world.run("UPDATE x_heir SET id = 5", "UPDATE c_heir SET id = 5")
        assert set(world.statuses(world.sync()).values()) == {"done"}
        assert world.differing() == {}


FAULTY = {"bad": "1 / (id - 1) > 0", "slow": "md5(repeat('x', 300000000 + id)) > ''"}


def tables_of_which_two_fail(database: Database) -> None:
    for name in ("good", *FAULTY):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)")
        database.execute(f"INSERT INTO {name} SELECT generate_series(1, {400 if name == 'slow' else 8})")


def say_why(errors: dict[str, str]) -> None:
    assert errors["good"] == ""
    assert "division by zero" in errors["bad"]
    assert "canceling statement" in errors["slow"]
    assert all("\n\tat " not in e for e in errors.values())


def test_one_table_fails_alone_and_says_why(postgres: Database, tmp_path: Path) -> None:
    with world_of(postgres, tmp_path, query_timeout=1) as world:
        tables_of_which_two_fail(postgres)
        world.settings |= {table: TableSettings(filter=text) for table, text in FAULTY.items()}
        report = world.sync()
        assert world.statuses(report) == {"good": "done", "bad": "failed", "slow": "failed"}
        say_why({t.table[1]: t.error for t in report.tables})


PHASES: dict[str, Fault] = {
    "connect": Fault(times=0),
    "schema": Fault(mark=b"pg_catalog", down=50, times=0),
    "rows": Fault(mark=b'"c1"', down=200_000, times=0),
    "query": Fault(mark=b'"c1"', unheard=True, times=0),
}


@pytest.mark.parametrize("phase", PHASES)
def test_a_source_that_is_lost_ends_with_the_exit_code_of_lost_sources(
    postgres: Database, tmp_path: Path, phase: str
) -> None:
    """As for the sources that this product reads by itself; the tables and the next command are named."""
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY, pad text)")
    postgres.execute("INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 1000) i")
    with before(postgres.config.port) as proxy, world_of(postgres, tmp_path, port=proxy.port) as world:
        proxy.set(PHASES[phase])
        try:
            report = world.sync()
        except InstepError as error:
            text, lost = str(error), error.exit_code == 4
        else:
            text, lost = report.tables[0].error, report.has_no_source and "public.t" in report.tables[0].error
        assert proxy.strikes
        assert lost, text
        assert "instep source test" in text
        assert postgres.config.password not in text
        proxy.set(CALM)
        assert world.sync().status == "done"
        assert world.differing() == {}


def test_a_driver_that_comes_after_the_session_says_as_much(postgres: Database, tmp_path: Path) -> None:
    """As in a process that syncs several connections, or in a session that somebody else has begun."""
    tables_of_which_two_fail(postgres)
    own = postgres.config
    login = {"host": own.host, "port": own.port, "database": own.database, "user": own.user, "password": own.password}
    tests = Path(__file__).parents[1]
    script = [sys.executable, str(tests / "jdbc" / "one_late_sync.py"), str(tmp_path)]
    env = {
        **os.environ, one_late_sync.LOGIN: json.dumps([login, FAULTY]),
        "PYTHONPATH": os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip
    done = subprocess.run(script, env=env, capture_output=True, text=True, check=True)
    say_why(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture
def far_away() -> Iterator[None]:
    """The JVM's own time zone is one with a gap in spring."""
    zone = session()._jvm.java.util.TimeZone
    before = zone.getDefault()
    zone.setDefault(zone.getTimeZone("America/New_York"))
    yield
    zone.setDefault(before)


def test_no_time_zone_shifts_a_moment(far_away: None, postgres: Database, tmp_path: Path) -> None:
    with world_of(postgres, tmp_path, partitions=2) as world:
        world.run(
            "CREATE TABLE t (id int PRIMARY KEY, a timestamp, b timestamptz, c date, d time)",
            "INSERT INTO t VALUES (1, '2024-03-10 02:30:00.000001', '2024-03-10 02:30:00.000001+00', '2024-03-10', "
            "'02:30:00.5'), (2, '0001-01-01', '0001-01-02 00:00+00', '0001-01-01', '23:59:59.999999')",
        )
        world.settings["t"] = cursor("b")
        world.sync()
        assert [list(map(str, row)) for row in world.rows("t")] == [
            ["1", "2024-03-10 02:30:00.000001", "2024-03-10 02:30:00.000001+00:00", "2024-03-10", "02:30:00.5"],
            ["2", "0001-01-01 00:00:00", "0001-01-02 00:00:00+00:00", "0001-01-01", "23:59:59.999999"],
        ]
        assert world.differing() == {}


REFUSED = [
    ("a wrong password", {"password": "wr0ng"}, "connect", "password authentication failed"),
    ("a port without a server", {"port": 1}, "connect", "refused"),
    ("a server without TLS", {"options": {"sslmode": "require"}}, "connect", "SSL"),
    ("no such class", {"driver": "org.nosuch.Driver"}, "set up the driver", "org.nosuch.Driver is not in"),
    ("no such jar", {"jars": (JdbcJar(path="/no/such.jar"),)}, "set up the driver", "/no/such.jar does not exist"),
    ("a refused option", {"options": {"socketFactory": "x"}}, "set up the driver", "not allowed"),
    ("another driver's URL", {"driver": "org.sqlite.JDBC"}, "set up the driver", "does not take URLs"),
]


@pytest.mark.parametrize(("said", "name", "why"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_source_test_says_what_is_wrong(postgres: Database, said: dict[str, Any], name: str, why: str) -> None:
    [check] = JdbcSource(config_of(postgres, **said), session).test()
    assert (check.name, check.ok) == (name, False)
    assert why in check.detail
    assert check.hint
    assert "wr0ng" not in check.detail


def test_source_test_says_what_is_there(postgres: Database) -> None:
    postgres.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    postgres.execute("CREATE TABLE secrets (id int PRIMARY KEY)")
    postgres.execute(f"GRANT SELECT ON orders TO {postgres.reader.user}")
    postgres.execute(f"REVOKE ALL ON secrets FROM {postgres.reader.user}")
    login = {"user": postgres.reader.user, "password": postgres.reader.password}
    found = {c.name: c for c in JdbcSource(config_of(postgres, **login), session).test()}
    assert found["driver"] == Check("driver", True, "PostgreSQL JDBC Driver 42.7.12")
    assert (found["tls"].ok, found["tls"].needed) == (False, False)
    assert "2 tables" in found["list tables"].detail
    denied = found["read public.secrets"]
    assert not denied.ok
    assert "permission denied" in denied.detail
    assert "GRANT SELECT" in denied.hint


def test_spark_connect_is_refused_with_the_reason(postgres: Database) -> None:
    class Remote:
        """What a Connect session has of a classic one: nothing."""

    with pytest.raises(SetupError, match="Spark Connect"), JdbcSource(config_of(postgres), Remote).snapshot():  # type: ignore[arg-type]
        pass


def _spellings(secret: str) -> list[bytes]:
    return [s.encode() for s in (secret, secret[::-1], secret.replace(" ", "%20"))] + [
        base64.b64encode(secret.encode())
    ]


def _command_lines() -> Iterator[tuple[str, bytes]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                yield f"/proc/{folder.name}", (folder / "cmdline").read_bytes().replace(b"\0", b" ")
            except OSError:
                continue


def test_a_password_is_nowhere_but_in_the_driver(postgres: Database, tmp_path: Path) -> None:
    secret = "canary 7f3a9c"
    postgres.execute("CREATE ROLE canary LOGIN SUPERUSER PASSWORD 'canary 7f3a9c'")
    login = {"user": "canary", "password": secret}
    spark = session()
    try:
        with world_of(postgres, tmp_path, **login) as world:
            world.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
            world.run("CREATE VIEW broken AS SELECT 1 / (id - 1) AS id FROM t")
            world.selection = replace(world.selection, on=frozenset({"public.broken"}))
            report = world.sync()
            assert world.statuses(report) == {"t": "done", "broken": "failed"}
            source = world.case.source()
            with source.snapshot() as snapshot:
                table = snapshot.discover().catalog.by_ref["public", "t"]
                chunks = snapshot.chunks(
                    TableRead(table, table, tuple(ColumnRead(c, c) for c in table.columns)), "t", CursorRange()
                )
                reader: Any = snapshot.reader
                frame = reader.frame(spark, chunks)
                plans = frame._jdf.queryExecution().toString() + frame._jdf.queryExecution().simpleString()
                shown = [repr(report), repr(source), repr(snapshot), repr(reader), repr(chunks), plans]
            with pytest.raises(InstepError) as refused:
                JdbcSource(config_of(postgres, **login, port=1), session).discover()
            shown += [str(refused.value), repr(refused.value.__context__), *(e for e in world.events())]
    finally:
        postgres.execute("DROP ROLE canary")
    context = spark.sparkContext
    conf = str(context.getConf().getAll()) + str(spark._jvm.java.lang.System.getProperties().toString())
    places = [("said", "\n".join(shown).encode()), ("conf", conf.encode()), *_command_lines()]
    local = [
        Path(p)
        for p in str(context._jvm.org.apache.spark.util.Utils.getLocalDir(context._jsc.sc().getConf())).split(",")
    ]
    for root in (tmp_path, *local):
        places += [(str(f), f.read_bytes()) for f in root.rglob("*") if f.is_file()]
    assert len(places) > 10
    assert [where for where, data in places for text in _spellings(secret) if text in data] == []
    assert isinstance(refused.value, ConnectError)
    assert os.environ.get("PGPASSWORD") is None


@pytest.mark.parametrize("mode", ["whole", "cursor"])
def test_a_table_is_free_between_the_statements_of_a_sync(
    postgres: Database, tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a part is read, its query has the table, as docs/guides/sources.md says."""

    def want() -> None:
        with psycopg.connect(conninfo(postgres.config)) as connection:
            connection.execute("SET lock_timeout = '20s'")
            connection.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
            connection.execute("ALTER TABLE t ALTER v SET NOT NULL")

    with world_of(postgres, tmp_path, partitions=PARTS) as world:
        world.run(
            "CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t SELECT n, n FROM generate_series(1, 99) n"
        )
        world.settings["t"] = cursor("v", filter="v > 0") if mode == "cursor" else TableSettings()
        with monkeypatch.context() as patch:
            phases = Phases(patch, want)
            phases.behind(
                JdbcSnapshot, "discover", "chunks", "cursor_bounds", "count", "filter_error", "changed_tables"
            )
            assert (report := world.sync()).status == "done", report.tables
            world.run("UPDATE t SET v = v + 1000 WHERE id % 2 = 0")
            assert (report := world.sync()).status == "done", report.tables
        assert phases.met.keys() >= {"discover", "chunks", "changed_tables"}, phases.met
        assert world.differing() == {}
