"""`spark.read.format("instep")`: a source's table as a DataFrame, read by tasks in one snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import instep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from conftest import Shop

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
