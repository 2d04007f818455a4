"""`spark.read.format("instep")`: a source's table as a DataFrame, read by tasks in one snapshot."""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import instep
from instep.bootstrap import source_reads
from instep.bootstrap.source_reads import MOST_SNAPSHOTS, SnapshotServer
from instep.errors import Blocked, InstepError, ReadError, SetupError
from instep.spark.data_source import Part, ReadRequest, TableReader, ask
from instep.temporary import temporary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from conftest import Shop
    from mariadb import MariaDatabase
    from postgres_server import Database

pytestmark = pytest.mark.spark


def load(spark: SparkSession, shop: Shop, table: str = "main.customer", **options: object) -> DataFrame:
    instep.register(spark)
    named = {"project": str(shop.folder), "connection": "shop", "table": table, **options}
    return spark.read.format("instep").options(**named).load()


def synced(shop: Shop) -> Shop:
    with instep.open(shop.folder) as project:
        project.connection().sync().raise_for_failure()
    return shop


def test_a_table_is_a_frame_of_its_accepted_schema(shop: Shop, spark_session: SparkSession) -> None:
    synced(shop)
    shop.sql("insert into customer values (3, 'Cy', 'Bergen')")  # the source is read, not the destination
    found = load(spark_session, shop)
    assert found.dtypes == [("id", "bigint"), ("name", "string"), ("city", "string")]
    assert sorted(map(tuple, found.collect())) == [(1, "Ann", "Oslo"), (2, "Bo <b>", None), (3, "Cy", "Bergen")]
    assert found.groupBy().sum("id").collect()[0][0] == 6


def refusal(spark: SparkSession, shop: Shop, **options: object) -> str:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        load(spark, shop, **options).collect()
    return str(caught.value)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"password": "hunter22"}, 'format("instep") has no option password'),
        ({"connection": ""}, "needs the option connection"),
        ({"connection": "shp"}, "shp"),
        ({"project": "/nowhere"}, "instep.yml"),
        ({"table": "main.custmer"}, "connection shop has accepted no table main.custmer"),
        ({"on_invalid_value": "quarantine"}, "on_invalid_value is fail or null"),
        ({"snapshot_seconds": "0"}, "snapshot_seconds is 1 to 86400"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(
    shop: Shop, spark_session: SparkSession, options: dict[str, str], text: str
) -> None:
    synced(shop)
    found = refusal(spark_session, shop, **options)
    assert text in found
    assert "hunter22" not in found


def test_a_table_that_syncs_do_not_read_is_not_read(shop: Shop, spark_session: SparkSession) -> None:
    synced(shop)
    with instep.open(shop.folder) as project:
        connection = project.connection()
        connection.pause("people look at it")
        assert "connection shop is paused: people look at it" in refusal(spark_session, shop)
        connection.resume()
        connection.selection.off("main.customer")
        assert "table main.customer of connection shop is switched off" in refusal(spark_session, shop)
        connection.selection.on("main.customer")
        connection.selection.off("main.customer.city")
    assert load(spark_session, shop).columns == ["id", "name"]
    shop.sql("drop table customer")
    assert "main.customer is no longer in the source" in refusal(spark_session, shop)


def test_a_value_that_does_not_fit_is_an_error_or_null(shop: Shop, spark_session: SparkSession) -> None:
    synced(shop)
    shop.sql("create table fresh (id integer primary key, at date); insert into fresh values (1, '2026-01-02')")
    synced(shop)
    shop.sql("insert into fresh values (2, 'soon'), (3, null)")
    found = refusal(spark_session, shop, table="main.fresh")
    assert "a value of the shape `aaaa`" in found
    rows = load(spark_session, shop, table="main.fresh", on_invalid_value="null").collect()
    assert [(row.id, str(row.at)) for row in rows] == [(1, "2026-01-02"), (2, "None"), (3, "None")]


@pytest.fixture
def in_postgres(shop: Shop, postgres: Database) -> Shop:
    """The shop in PostgreSQL, its login and salt in .env, synced."""
    postgres.execute("create table customer (id bigint primary key, name text, at timestamptz, tags text[])")
    postgres.execute("insert into customer values (1, 'Ann', '2026-01-02 03:04:05+01', '{a,b}'), (2, null, null, null)")
    one = postgres.config
    login = f"host: {one.host}, port: {one.port}, database: {one.database}, user: {one.user}"
    source = f"{{type: postgres, {login}, password: '${{env:PG_PASSWORD}}', include: [public.customer]}}"
    shop.replace("{type: sqlite, path: shop.db}", source)
    shop.replace("policy: careful}", "policy: careful, salt: '${env:SALT}', hash: [public.customer.name]}")
    (shop.folder / ".env").write_text(f"PG_PASSWORD={one.password}\nSALT=0123456789abcdef0123456789abcdef\n")
    return synced(shop)


def snapshots(postgres: Database) -> int:
    """How many sessions have a transaction open in the database, but for the one that looks."""
    text = "select count(*) from pg_stat_activity where datname = current_database() and xact_start is not null"
    return int(postgres.execute(f"{text} and pid <> pg_backend_pid()")[0][0])


@pytest.mark.server
def test_all_reads_of_a_frame_are_of_one_snapshot(
    in_postgres: Shop, postgres: Database, spark_session: SparkSession
) -> None:
    """It is closed once nothing was read for as long as the option says, and the next read says so."""
    from pyspark.errors import PySparkException

    found = load(spark_session, in_postgres, "public.customer", snapshot_seconds="5")
    rows = found.collect()
    assert snapshots(postgres) == 1, "it stays open"
    postgres.execute("update customer set at = null; insert into customer values (3, 'Cy', null, null)")
    assert found.collect() == rows, "the same plan reads what it has read"
    assert len(load(spark_session, in_postgres, "public.customer").collect()) == 3
    ends = time.monotonic() + 120
    while snapshots(postgres) > 1 and time.monotonic() < ends:
        time.sleep(0.2)
    with pytest.raises(PySparkException, match=r"the snapshot of this read is closed.*\n.*load the table again"):
        found.collect()


@pytest.mark.server
def test_values_are_those_of_a_sync_and_no_plan_shows_a_login(
    in_postgres: Shop, postgres: Database, spark_session: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    found = load(spark_session, in_postgres, "public.customer")
    kinds = [("id", "bigint"), ("name", "string"), ("at", "timestamp"), ("tags", "array<string>")]
    assert found.dtypes == kinds
    with instep.open(in_postgres.folder) as project:
        loaded = project.query('select id, name, "at", tags from shop.customer').to_spark(spark_session)
    rows = found.collect()
    assert sorted(rows, key=repr) == sorted(loaded.collect(), key=repr)
    assert len(rows[0].name) == 64, "it is hashed"
    found.explain(mode="extended")
    seen = capfd.readouterr().out + repr(spark_session.sparkContext.getConf().getAll())
    assert "BatchScan instep" in seen
    assert str(postgres.config.password) not in seen
    assert "0123456789abcdef" not in seen


@pytest.mark.server
@pytest.mark.sampled
@pytest.mark.parametrize(
    "statement",
    [
        "truncate customer",
        "alter table customer alter column id type int",
        "alter table customer rename name to city; alter table customer rename id to name",
        "drop table customer",
        "vacuum full customer",
    ],
)
def test_a_table_that_the_snapshot_does_not_show_any_more_is_not_read(
    in_postgres: Shop, postgres: Database, spark_session: SparkSession, statement: str
) -> None:
    """A rewritten table is empty for an older snapshot, and names may be those of other columns."""
    from pyspark.errors import PySparkException

    found = load(spark_session, in_postgres, "public.customer")
    assert len(found.collect()) == 2
    for one in statement.split(";"):
        postgres.execute(one)
    for read in (found.collect, found.count, found.limit(1).collect):
        with pytest.raises(PySparkException, match=r"customer"):
            read()


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_file_is_read_from_one_copy(shop: Shop, spark_session: SparkSession, mode: str) -> None:
    """All actions of a frame show one moment, in WAL mode, too."""
    shop.sql(f"pragma journal_mode = {mode}")
    synced(shop)
    found = load(spark_session, shop)
    before = sorted(found.collect())
    shop.sql("update customer set city = 'Rome'; insert into customer values (4, 'Di', null)")
    assert sorted(found.collect()) == before
    assert {row.city for row in load(spark_session, shop).collect()} == {"Rome", None}


def test_files_are_read_as_they_were_listed(shop: Shop, spark_session: SparkSession) -> None:
    """A file that comes later is not read; one that has changed is an error."""
    from pyspark.errors import PySparkException

    (shop.folder / "in").mkdir()
    (shop.folder / "in" / "customer.csv").write_text("id,name\n1,Ann\n2,Bo\n")
    shop.replace("{type: sqlite, path: shop.db}", "{type: files, path: in, settle: 0}")
    synced(shop)
    with instep.open(shop.folder) as project:
        [table] = project.connection().tables()
    found = load(spark_session, shop, table.table)
    rows = sorted(found.collect())
    assert len(rows) == 2
    assert sorted(found.collect()) == rows
    (shop.folder / "in" / "customer.csv").write_text("id,name\n1,Anna\n2,Bo\n3,Cy\n")
    with pytest.raises(PySparkException, match=r"customer.csv was changed"):
        found.collect()


@pytest.fixture
def in_mysql(shop: Shop, mariadb: MariaDatabase) -> Shop:
    mariadb.execute("create table customer (id bigint primary key, name text)")
    one = mariadb.config.model_copy(update={"user": "frames"})
    mariadb.execute("create or replace user frames identified by 'plain'")
    mariadb.execute(f"grant select on {one.database}.* to frames")
    login = f"host: {one.host}, port: {one.port}, database: {one.database}, user: {one.user}"
    source = f"{{type: mysql, {login}, password: '${{env:DB_PASSWORD}}'}}"
    shop.replace("{type: sqlite, path: shop.db}", source)
    (shop.folder / ".env").write_text("DB_PASSWORD=plain\n")
    return synced(shop)


@pytest.mark.server
def test_a_source_whose_tasks_see_several_moments_is_refused(in_mysql: Shop, spark_session: SparkSession) -> None:
    with instep.open(in_mysql.folder) as project:
        [table] = project.connection().tables()
    found = refusal(spark_session, in_mysql, table=table.table)
    assert "cannot show the tasks of a DataFrame the same rows: a read point belongs to one connection" in found
    assert "project.table(...).to_spark()" in found


@pytest.mark.server
def test_snapshots_end_soon_and_do_not_pile_up(
    in_postgres: Shop, postgres: Database, spark_session: SparkSession
) -> None:
    """A driver has no more of them than a fixed number: those that were read give way to new ones."""
    rounds = MOST_SNAPSHOTS + 2
    for _ in range(rounds):
        assert load(spark_session, in_postgres, "public.customer", snapshot_seconds="3600").count() == 2
        assert snapshots(postgres) <= MOST_SNAPSHOTS
    last = load(spark_session, in_postgres, "public.customer", snapshot_seconds="1")
    assert last.count() == 2
    ends = time.monotonic() + 120
    while snapshots(postgres) > MOST_SNAPSHOTS - 1 and time.monotonic() < ends:
        time.sleep(0.2)
    assert snapshots(postgres) == MOST_SNAPSHOTS - 1


def test_snapshots_that_wait_to_be_read_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame of many tables plans them all before it reads one: what was not read yet is not ended for another."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(source_reads, "_ROOM_SECONDS", 0.0)
    monkeypatch.setattr(source_reads, "_POLL", 0.0)
    request = ReadRequest("shop", "shop", "main.customer", spark=7)
    with ExitStack() as stack:
        made = [Path(stack.enter_context(temporary("read"))) for _ in range(MOST_SNAPSHOTS + 1)]
        for folder in made[:-1]:
            source_reads._make_room(folder, request, "db")
        with pytest.raises(Blocked, match=r"snapshots of the source of connection shop are open(.|\n)*to_spark"):
            source_reads._make_room(made[-1], request, "db")
        source_reads._make_room(made[-1], request, "another")
        (made[0] / "idle").touch()
        with pytest.raises(Blocked):
            source_reads._make_room(made[-1], request, "db")
        assert not any((folder / "end").exists() for folder in made[1:])


def test_what_goes_wrong_is_told_without_secrets(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a package prints when it is imported is no part of the answer; an answer that does not come has a cause."""
    synced(shop)
    noise = shop.folder / "noise"
    noise.mkdir()
    request = ReadRequest(str(shop.folder), "shop", "main.customer")
    monkeypatch.syspath_prepend(noise)
    (noise / "sitecustomize.py").write_text("import os; os.write(1, b'loaded'); print('ready')")
    assert [name for name, _ in ask(request)] == ["id", "name", "city"]
    (noise / "sitecustomize.py").write_text("import sys; sys.modules['instep.temporary'] = None")
    with pytest.raises(SetupError, match=r"could not be started by .*: ModuleNotFoundError: .*instep\.temporary"):
        ask(request)
    (noise / "sitecustomize.py").write_text(
        "import instep.sync.read_source as read\n"
        "from instep.redaction import hide\n"
        "hide('hunter22')\n"
        "def broken(*given): raise KeyError('no hunter22 here')\n"
        "read.readable_columns = broken\n"
    )
    with pytest.raises(InstepError, match=r"could not be planned: KeyError: .*no .* here") as caught:
        ask(request)
    assert "hunter22" not in str(caught.value)


def test_a_task_on_another_machine_is_connected_while_it_reads() -> None:
    """The snapshot sees it come and go, and lets nobody in without the token, or once it is closed."""
    found = [""]
    reader = TableReader(ReadRequest("shop", "shop", "main.customer"), ["id"])
    with SnapshotServer("", lambda: found[0]) as server:
        part = Part(b"", server.port, server.token, socket.gethostbyname(socket.gethostname()), "another")
        assert not server.end_after(0), "the first task has time to come"
        with reader._attached(part) as check:
            check()
            assert not server.is_idle
            assert not server.end_after(0)
            found[0] = "main.customer: it was rewritten"
            with pytest.raises(ReadError, match="it was rewritten"):
                check()
        until(lambda: server.is_idle)
        stranger = Part(b"", server.port, b"x" * len(server.token), part.host, "another")
        with pytest.raises(ReadError, match=r"snapshot of this read is closed, or .* cannot be reached"):
            reader._attached(stranger).__enter__()
        until(lambda: server.end_after(0))
        with pytest.raises(ReadError, match="snapshot of this read is closed"):
            reader._attached(part).__enter__()


def until(holds: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.01)
