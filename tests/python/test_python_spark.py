"""A session of the caller's: it does the project's Spark work, and stays as it was."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import instep
from instep.errors import SetupError
from instep.spark.provided_session import GivenSession, own_settings
from instep.spark.settings import OWN_WORKERS, SparkSettings
from instep.stage.pandas_free import OWN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conftest import Shop

pytestmark = pytest.mark.spark


def jobs(spark: SparkSession) -> int:
    """How many jobs this session's context has begun."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


def test_all_spark_work_is_done_in_the_given_session(shop: Shop, spark_session: SparkSession) -> None:
    shop.replace("project: shop", "project: shop\nengine: spark")
    shop.replace("warehouse: lake}", "warehouse: lake, upsert_rows: 0}")  # Spark merges
    shop.replace('spark: {master: "local[1]"}', 'spark: {master: "spark://nowhere.invalid:7077"}')  # does not count
    spark_session.range(3).createOrReplaceTempView("mine")
    before, begun = spark_session.conf.getAll, jobs(spark_session)
    with instep.open(shop.folder, spark=spark_session) as project:
        connection = project.connection()
        connection.sync().raise_for_failure()
        read = jobs(spark_session)
        assert read > begun, "rows were read by jobs of the session"
        shop.sql("update customer set name = 'Cy' where id = 1; insert into customer values (3, 'Di', 'Bergen')")
        [table] = connection.sync().raise_for_failure().tables
        assert (table.mode, table.inserted, table.updated) == ("upsert", 1, 1)
        assert jobs(spark_session) > read + 1, "and merged"
        found = project.query("select id, name from shop.customer order by id").to_spark()
        assert found.sparkSession is spark_session
        assert [tuple(row) for row in found.collect()] == [(1, "Cy"), (2, "Bo <b>"), (3, "Di")]
    assert not spark_session.sparkContext._jsc.sc().isStopped()
    assert spark_session.conf.getAll == before
    assert spark_session.table("mine").count() == 3
    assert spark_session.catalog.currentCatalog() == "spark_catalog"


def test_what_the_session_lacks_is_named_before_anything_is_read(shop: Shop, spark_session: SparkSession) -> None:
    shop.replace("project: shop", "project: shop\nengine: spark")
    shop.replace(
        '{master: "local[1]"}', "{conf: {spark.executor.memory: 9g, spark.sql.catalog.other: org.example.Catalog}}"
    )
    with instep.open(shop.folder, spark=spark_session) as project:
        with pytest.raises(SetupError) as caught:
            project.connection().sync()
        assert "the class org.example.Catalog" in caught.value.message
        assert "spark.executor.memory=9g (it has none)" in caught.value.message
        assert "instep.spark_conf(FOLDER)" in str(caught.value.hint)
        assert project.connection().runs() != [], "the run is on record"
        assert "9g" not in str(spark_session.conf.getAll)


def test_a_secret_setting_is_refused_before_it_reaches_the_session(spark_session: SparkSession) -> None:
    conf = {"spark.executorEnv.DB_PASSWORD": "hunter22", "spark.executor.memory": "9g"}
    with pytest.raises(SetupError) as caught:
        GivenSession(spark_session).session(SparkSettings(conf=conf))
    assert "spark.executorEnv.DB_PASSWORD looks like a secret" in caught.value.message
    assert "hunter22" not in str(caught.value) + repr(caught.value.__cause__)


def test_the_value_of_a_setting_that_may_be_secret_is_in_no_error(spark_session: SparkSession) -> None:
    conf = {"spark.security.credentials.renewalRatio": "0.1234", "spark.executor.memory": "9g"}
    with pytest.raises(SetupError) as caught:
        GivenSession(spark_session).session(SparkSettings(conf=conf))
    assert "spark.security.credentials.renewalRatio" in caught.value.message
    assert "spark.executor.memory=9g (it has none)" in caught.value.message
    assert "0.1234" not in str(caught.value)


def test_a_stopped_session_is_refused(shop: Shop, spark_session: SparkSession) -> None:
    from pyspark.sql import SparkSession as Class

    stopped = object.__new__(Class)
    stopped.__dict__.update(spark_session.__dict__)
    stopped._sc = object.__new__(type(spark_session.sparkContext))
    stopped._sc._jsc = None  # as `stop` leaves it
    with pytest.raises(SetupError, match="is stopped"):
        instep.open(shop.folder, spark=stopped)


def test_one_session_is_derived_for_the_same_settings(spark_session: SparkSession) -> None:
    given = GivenSession(spark_session)
    one = given.session(SparkSettings(conf={"spark.sql.shuffle.partitions": "3"}))
    assert given.session(SparkSettings(conf={"spark.sql.shuffle.partitions": "3"})) is one
    other = given.session(SparkSettings(conf={"spark.sql.shuffle.partitions": "5"}))
    assert [s.conf.get("spark.sql.shuffle.partitions") for s in (one, other)] == ["3", "5"]
    assert one.conf.get("spark.sql.storeAssignmentPolicy") == "STRICT"
    given.close()
    assert spark_session.range(2).count() == 2


def test_settings_of_a_session_that_can_be_given(shop: Shop) -> None:
    with instep.open(shop.folder) as project:
        project.connection().sync()
    conf = instep.spark_conf(shop.folder)
    assert conf["spark.sql.catalog.lake"] == "org.apache.iceberg.spark.SparkCatalog"
    assert conf["spark.sql.catalog.lake.warehouse"].endswith("/lake")
    assert "iceberg-spark-runtime" in conf["spark.jars"]
    assert own_settings(SparkSettings())["spark.sql.session.timeZone"] == "UTC"


def test_workers_of_our_own_sessions_are_known(spark_session: SparkSession) -> None:
    found = spark_session.sparkContext.parallelize([0], 1).map(lambda _: OWN in os.environ).collect()
    assert found == [True]
    assert OWN == OWN_WORKERS


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("select 1::hugeint as x", "bigint"),
        ("select sum(id) as x from shop.customer", "bigint"),
        ("select 170141183460469231731687303715884105::hugeint as x", "decimal(38,0)"),
        ("select 7::ubigint as x", "decimal(20,0)"),
        ("select time '10:00:01' as x", "string"),
        ("select interval 3 month as x", "string"),
        ("select 'a'::enum('a', 'b') as x", "string"),
        ("select timestamptz '2026-01-02 03:04:05+00' as x", "timestamp"),
        ("select timestamp '2026-01-02 03:04:05' as x", "timestamp_ntz"),
        ("select [1, 2] as x", "array<int>"),
        ("select null as x", "void"),
    ],
)
def test_types_of_a_query_in_spark(shop: Shop, spark_session: SparkSession, sql: str, kind: str) -> None:
    with instep.open(shop.folder) as project:
        project.connection().sync()
        found = project.query(sql)
    frame = found.to_spark(spark_session)
    assert [t for _, t in frame.dtypes] == [kind]
    assert frame.count() == len(found) == 1
    assert found.to_pandas().shape == (1, 1)
