"""Each kind of source is read by tasks of Spark, however little there is, into each kind of destination."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import instep
from postgres_server import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conftest import Shop

pytestmark = [pytest.mark.spark, pytest.mark.server]
CODE = """\
from fivetran_connector_sdk import Connector, Operations as op

def schema(configuration):
    return [{"table": "customer", "primary_key": ["id"], "columns": {"id": "LONG", "name": "STRING"}}]

def update(configuration, state):
    op.upsert(table="customer", data={"id": 1, "name": "Ann"})
    op.upsert(table="customer", data={"id": 2, "name": "Bo <b>"})
    op.checkpoint(state={"seen": 2})

connector = Connector(update=update, schema=schema)
"""
PAIRS = [
    ("sqlite", "delta"),
    ("files", "duckdb"),
    ("connector", "iceberg"),
    ("postgres", "postgres"),
    ("sqlite", "iceberg"),
    ("connector", "duckdb"),
]


@pytest.fixture
def sources(tmp_path: Path, postgres: Database) -> dict[str, str]:
    """A source of each kind with two customers."""
    (tmp_path / "drop" / "customer").mkdir(parents=True)
    (tmp_path / "drop" / "customer" / "1.csv").write_text("id,name\n1,Ann\n2,Bo <b>\n")
    (tmp_path / "connector").mkdir()
    (tmp_path / "connector" / "connector.py").write_text(CODE)
    postgres.execute("create table customer (id int primary key, name varchar(30))")
    postgres.execute("insert into customer values (1, 'Ann'), (2, 'Bo <b>')")
    return {
        "sqlite": "{type: sqlite, path: shop.db}",
        "files": "{type: files, path: drop, settle: 0}",
        "connector": "{type: connector, path: connector}",
        "postgres": f"{{type: postgres, {login(postgres)}, include: [public.customer]}}",
    }


def login(database: Database) -> str:
    one = database.config
    place = f"host: {one.host}, port: {one.port}, database: {one.database}"
    return f"{place}, user: {one.user}, password: '${{env:PG_PASSWORD}}'"


@pytest.mark.parametrize(("source", "destination"), PAIRS)
def test_each_kind_is_read_by_spark(
    shop: Shop,
    sources: dict[str, str],
    postgres: Database,
    spark_session: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    destination: str,
) -> None:
    monkeypatch.setenv("PG_PASSWORD", str(postgres.config.password))
    destinations = {
        "iceberg": "{type: iceberg, warehouse: lake}",
        "delta": "{type: delta, warehouse: lake}",
        "duckdb": "{type: duckdb, path: lake.duckdb}",
        "postgres": f"{{type: postgres, {login(postgres)}}}",
    }
    shop.replace("project: shop", "project: shop\nengine: spark")
    shop.replace("{type: sqlite, path: shop.db}", sources[source])
    shop.replace("{type: iceberg, warehouse: lake}", destinations[destination])
    store = spark_session.sparkContext._jsc.sc().statusStore()
    begun = int(store.jobsList(None).size())
    with instep.open(shop.folder, spark=spark_session) as project:
        done = project.connection().sync().raise_for_failure()
        [table] = done.tables
        assert (table.read, done.engine.partition(" ")[0]) == (2, "spark")
        assert int(store.jobsList(None).size()) > begun, "a job of the session has read them"
        project.connection().sync().raise_for_failure()
        found = project.query("select name from shop.customer").rows
    assert sorted(row[0] for row in found) == ["Ann", "Bo <b>"]
