"""`spark.read.format("instep")`: a source's table as a DataFrame, read by tasks in one snapshot."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import instep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from conftest import Shop
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
    assert "main.customer is not in the source any more" in refusal(spark_session, shop)


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
