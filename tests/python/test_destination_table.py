"""`project.table(...).to_spark()`: a destination's table as a DataFrame, with the rows of a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import instep
from instep.errors import DestinationError, NotFound
from instep.python import frames
from instep.spark.destination_table import frame_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from conftest import Shop
    from postgres_server import Database

pytestmark = pytest.mark.spark


def rows(frame: DataFrame) -> list[str]:
    """The rows, whatever their order."""
    return sorted(repr(tuple(row)) for row in frame.collect())


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().optimizedPlan())  # type: ignore[operator]


@pytest.mark.sampled
@pytest.mark.server
@pytest.mark.parametrize(
    ("kind", "read_by"),
    [("iceberg", "lake.shop"), ("delta", "LocalRelation"), ("duckdb", "LocalRelation"), ("postgres", "LocalRelation")],
)
def test_its_rows_are_those_of_a_query(
    shop: Shop, postgres: Database, spark_session: SparkSession, kind: str, read_by: str
) -> None:
    one = postgres.config
    login = f"host: {one.host}, port: {one.port}, database: {one.database}, user: {one.user}"
    sections = {
        "iceberg": "{type: iceberg, warehouse: lake}",
        "delta": "{type: delta, warehouse: lake}",
        "duckdb": "{type: duckdb, path: lake.duckdb}",
        "postgres": f"{{type: postgres, {login}, password: '${{env:PG_PASSWORD}}'}}",
    }
    (shop.folder / ".env").write_text(f"PG_PASSWORD={one.password}\n")
    shop.replace("{type: iceberg, warehouse: lake}", sections[kind])
    shop.sql(
        "create table odd (id integer primary key, day date, amount decimal(9,2), data blob, clock timestamp);"
        "insert into odd values (1, '2026-01-02', 3.25, x'00ff', '2026-01-02 03:04:05'), (2, null, null, null, null)"
    )
    with instep.open(shop.folder, spark=spark_session) as project:
        project.connection().sync().raise_for_failure()
        shop.sql("delete from customer where id = 1")
        project.connection().sync().raise_for_failure()
        for name in ("customer", "odd"):
            found = project.table(f"shop.{name}").to_spark()
            asked = project.query(f"select * from shop.{name}").to_spark()  # noqa: S608
            assert (found.columns, rows(found)) == (asked.columns, rows(asked))
            assert found.dtypes == asked.dtypes
            assert read_by in plan(found), "what Spark can read by itself does not go through this process"
        joined = found.join(spark_session.range(3), "id")
        assert joined.count() == 2, "it meets frames of the caller's session"
    assert "lake" not in [one.name for one in spark_session.catalog.listCatalogs()]


def test_a_session_that_has_the_catalog_reads_by_it(shop: Shop, spark_session: SparkSession) -> None:
    with instep.open(shop.folder) as project:
        project.connection().sync().raise_for_failure()
        session = spark_session.newSession()
        for key, value in instep.spark_conf(shop.folder).items():
            if key.startswith("spark.sql.catalog."):
                session.conf.set(key, value)
        found = project.table("CUSTOMER").to_spark(session)
        assert found.sparkSession is session
        assert found.count() == session.table("lake.shop.customer").count() == 2


def test_a_table_that_cannot_be_had_is_named(
    shop: Shop, spark_session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.replace("{type: iceberg, warehouse: lake}", "{type: delta, warehouse: lake}")
    with instep.open(shop.folder) as project:
        project.connection().sync().raise_for_failure()
        with pytest.raises(NotFound, match=r"no table shop.custmer(.|\n)*shop.customer"):
            project.table("shop.custmer")
        monkeypatch.setattr(frames, "MOST_BYTES", 10)
        with pytest.raises(DestinationError, match=r"shop.customer has more than .* GiB(.|\n)*instep.spark_conf"):
            project.table("shop.customer").to_spark(spark_session)


@pytest.mark.parametrize("kind", ["{type: duckdb, path: lake.duckdb}", "{type: delta, warehouse: lake}"])
def test_a_table_of_an_unknown_size_is_bounded_while_it_is_read(
    shop: Shop, spark_session: SparkSession, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Files say less than rows take in memory, or nothing."""
    shop.replace("{type: iceberg, warehouse: lake}", kind)
    shop.sql(
        "create table same (id integer primary key, t text);"
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)"
        "insert into same select i, hex(zeroblob(100)) from n"
    )
    with instep.open(shop.folder) as project:
        project.connection().sync().raise_for_failure()
        table = project.table("shop.same")
        assert table.to_spark(spark_session).count() == 20_000
        monkeypatch.setattr(frames, "MOST_BYTES", 2_000_000)
        stated = table._destination.schema.sizes([table._ref])[table._ref].bytes
        assert (stated or 0) < 2_000_000
        with pytest.raises(DestinationError, match=r"shop.same has more than .* GiB(.|\n)*read the part"):
            table.to_spark(spark_session)


def test_a_session_that_fails_to_read_is_told_of(shop: Shop, spark_session: SparkSession) -> None:
    with instep.open(shop.folder) as project:
        project.connection().sync().raise_for_failure()
        table = project.table("shop.customer")
        kind = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hush"}
        settings = {f"spark.sql.catalog.lake{key}": value for key, value in kind.items()}
        with pytest.warns(RuntimeWarning, match=r"Spark could not read .*customer") as caught:
            found = frame_of(spark_session, "iceberg", "lake.shop.customer", settings, {"a": "hush"})
        assert found is None
        assert "hush" not in str(caught[0].message)
        assert table.to_spark(spark_session).count() == 2
