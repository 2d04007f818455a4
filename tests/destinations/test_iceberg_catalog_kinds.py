"""Catalogs by configuration: a database, and those whose library or kind is missing."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

import instep
from instep.destinations.iceberg.metadata.catalog import IcebergConfig, Lake
from instep.errors import SetupError
from postgres_server import Database, store_url

PROJECT = """\
version: 1
project: shop
engine: local
sources: {{db: {{type: sqlite, path: shop.db}}}}
destinations:
  lake: {{type: iceberg, warehouse: "file://{folder}/lake", catalog: sql, properties: {{uri: "${{env:CATALOG}}"}}}}
connections: {{shop: {{source: db, destination: lake}}}}
"""


@pytest.mark.server
def test_a_database_is_the_catalog(tmp_path: Path, postgres: Database) -> None:
    import sqlite3
    from contextlib import closing

    def sql(script: str) -> None:
        with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
            database.executescript(script)

    sql("create table item (id integer primary key, n int); insert into item values (1, 2), (2, 3)")
    (tmp_path / "instep.yml").write_text(PROJECT.format(folder=tmp_path))
    (tmp_path / ".env").write_text(f"CATALOG={store_url(postgres)}\n")
    with instep.open(tmp_path) as project:
        connection = project.connection()
        connection.sync().raise_for_failure()
        sql("alter table item add column note text; update item set n = 9, note = 'new' where id = 1")
        connection.sync().raise_for_failure()
        assert project.query("select id, n, note from shop.item order by id").rows == [(1, 9, "new"), (2, 3, None)]
        assert all(one.equal for one in connection.verify())
    assert postgres.execute("select count(*) from iceberg_tables where table_name = 'item'") == [(1,)]


def test_spark_has_its_login_apart() -> None:
    properties = {"uri": "postgresql+psycopg://ann:hush@db.internal:5433/lake"}
    lake = Lake(IcebergConfig.resolved(name="lake", warehouse="s3://bucket/lake", catalog="sql", properties=properties))
    conf = lake.spark_conf()
    assert conf["spark.sql.catalog.lake.type"] == "jdbc"
    assert conf["spark.sql.catalog.lake.uri"] == "jdbc:postgresql://db.internal:5433/lake"
    assert conf["spark.sql.catalog.lake.jdbc.user"] == "ann"
    assert "hush" not in str(conf)
    assert lake.spark_secrets() == {"spark.sql.catalog.lake.jdbc.password": "hush"}


def sql_lake(uri: str) -> Lake:
    return Lake(
        IcebergConfig.resolved(name="lake", warehouse="s3://bucket/lake", catalog="sql", properties={"uri": uri})
    )


def test_spark_connects_as_the_address_says() -> None:
    """Encryption and what is checked of it go over; a name with signs in it stays that name."""
    uri = "postgresql+psycopg://ann:hush@[::1]:5433/a%3Fb?sslmode=verify-full&sslrootcert=/srv/my%20ca.pem&connect_timeout=9"
    conf = sql_lake(uri).spark_conf()
    query = "sslmode=verify-full&sslrootcert=%2Fsrv%2Fmy+ca.pem&connectTimeout=9"
    assert conf["spark.sql.catalog.lake.uri"] == f"jdbc:postgresql://[::1]:5433/a%3Fb?{query}"


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("postgresql+psycopg://ann@db/lake?password=hush22", "password in the uri"),
        ("postgresql+psycopg://ann:hush22@/lake?host=/run/pg", "host in the uri"),
        ("postgresql+psycopg://ann:hush22@db/lake?channel_binding=require", "channel_binding in the uri"),
        ("postgresql+psycopg://ann:hush22@db/lake?sslmode=require&sslmode=disable", "sslmode in the uri"),
        ("mysql+pymysql://ann:hush22@db/lake", "which is in mysql(.|\n)*engine: local"),
        ("sqlite:////srv/catalog.db", "which is in sqlite"),
        ("postgresql+psycopg//ann:hush22@db/lake", "not a database's address"),
        ("postgresql+psycopg://ann:hush22@db:port/lake", "not a database's address"),
    ],
)
def test_what_spark_cannot_be_told_of_a_database_is_refused(uri: str, text: str) -> None:
    for act in (Lake.spark_conf, Lake.spark_secrets):
        with pytest.raises(SetupError, match=text) as caught:
            act(sql_lake(uri))
        assert "hush22" not in f"{caught.value} {caught.value.hint}"
        assert caught.value.__cause__ is None


@pytest.mark.parametrize("uri", ["", "postgresql+psycopg//ann:hush22@db/lake"])
def test_an_address_that_is_none_is_not_quoted(uri: str) -> None:
    with pytest.raises(SetupError, match="not a database's address") as caught:
        _ = sql_lake(uri).catalog
    assert "hush22" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            "dynamodb",
            "dynamodb is not a kind of catalog(.|\n)*one of sqlite, rest, sql, hive, glue, or the URI of a REST",
        ),
        ("hive", r"package thrift(.|\n)*instep\[hive\]"),
        ("nessie", "nessie is not a kind of catalog(.|\n)*sqlite, rest"),
    ],
)
def test_a_catalog_that_cannot_be_opened_is_told(kind: str, text: str) -> None:
    if kind == "hive" and find_spec("thrift") is not None:
        pytest.skip("thrift is installed")
    with pytest.raises(SetupError, match=text):
        _ = Lake(IcebergConfig.resolved(name="lake", warehouse="s3://bucket/lake", catalog=kind)).catalog
