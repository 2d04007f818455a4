"""`type: jdbc` in the project file: what is refused when it is loaded, and what its source is told. No JVM starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from project_types import Loads

from instep.bootstrap import App
from instep.errors import ProjectError
from instep.sources.jdbc.source import JdbcSource
from instep.sync.loading.engine import OnSpark

SECRET = "correct horse"
SHA = "31fbf6f06b2217fb51d5100cee51b22625cc81640da0679b47914e54c1e6377c"
PROJECT = f"""\
engine: ENGINE
sources:
  erp:
    type: jdbc
    subprotocol: sqlserver
    host: ${{env:HOST}}
    database: shop
    user: me
    password: ${{env:PASSWORD}}
    jars: [lib/mssql.jar, {{maven: "org.postgresql:postgresql:42.7.12", sha256: {SHA}}}]
    options: {{encrypt: strict, trustStorePassword: "${{env:PASSWORD}}", loginTimeout: 3}}
    schemas: [dbo, erp]
    partition_columns: {{"erp.*": created}}
    query_timeout: 2m
destinations: {{lake: {{type: duckdb, path: lake.duckdb}}}}
connections: {{c: {{source: erp, destination: lake}}}}
"""
VARIABLES = {"HOST": "db.local", "PASSWORD": SECRET}


def app(loads: Loads, engine: str = "spark") -> App:
    return App(loads(PROJECT.replace("ENGINE", engine), VARIABLES))


def test_what_the_source_is_told(loads: Loads, tmp_path: Path) -> None:
    source = app(loads).source("erp")
    assert isinstance(source, JdbcSource)
    config = source.config
    assert config.address == "jdbc:sqlserver://db.local:1433;databaseName=shop"
    assert (config.schemas, config.query_timeout, config.partition_columns) == (
        ("dbo", "erp"),
        120,
        {"erp.*": "created"},
    )
    assert config.options == {"encrypt": "strict", "trustStorePassword": SECRET, "loginTimeout": 3}
    assert [(j.path, j.maven, j.sha256) for j in config.jars] == [
        (str(tmp_path / "lib/mssql.jar"), "", ""), ("", "org.postgresql:postgresql:42.7.12", SHA),
    ]  # fmt: skip
    assert SECRET not in repr(config)
    assert source.default_schema == "dbo"


def test_a_jar_that_is_not_there_is_named_before_a_jvm_starts(loads: Loads) -> None:
    [check] = app(loads).source("erp").test()
    assert not check.ok
    assert "mssql.jar does not exist" in check.detail


def test_spark_reads_it(loads: Loads) -> None:
    assert isinstance(app(loads).engine("c"), OnSpark)


def test_the_process_cannot_read_it(loads: Loads) -> None:
    with pytest.raises(ProjectError, match="is read by Spark"):
        app(loads, "local").engine("c")


BAD = [
    ("neither address", "{type: jdbc, host: h}", "needs `subprotocol`"),
    ("both addresses", "{type: jdbc, subprotocol: db2, url: 'jdbc:db2:x'}", "needs `subprotocol`"),
    ("a password in the URL", "{type: jdbc, url: 'jdbc:mysql://me:pw@h/d'}", "password"),
    ("a password in the file", "{type: jdbc, subprotocol: db2, password: plain}", "secret"),
    ("a secret option in the file", "{type: jdbc, subprotocol: db2, options: {sslTrustStorePassword: x}}", "secret"),
    ("a jar without its hash", "{type: jdbc, subprotocol: db2, jars: [{maven: 'a:b:1'}]}", "sha256"),
    ("a jar that is two", "{type: jdbc, subprotocol: db2, jars: [{maven: 'a:b:1', path: x}]}", "`path` of a file"),
]


@pytest.mark.parametrize(("source", "why"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_sources(loads: Loads, source: str, why: str) -> None:
    with pytest.raises(ProjectError, match=why):
        loads(f"sources: {{a: {source}}}\n")


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("subprotocol: sqlserver", 'url: "jdbc:sqlserver://db;databaseName=x;userName=me"', "login"),
        ("subprotocol: sqlserver", 'url: "jdbc:sqlserver://db;socketFactoryClass=x"', "socketFactoryClass"),
        ("subprotocol: sqlserver", "url: no-url", "not a JDBC URL"),
        ("loginTimeout: 3", "socketFactoryClass: x.Y", "socketFactoryClass"),
        ("database: shop", "database: shop;integratedSecurity=true", "database"),
    ],
)
def test_an_address_that_is_refused_is_so_when_the_file_is_read(
    loads: Loads, before: str, after: str, why: str
) -> None:
    text = PROJECT.replace(before, after).replace("${env:HOST}", "db.local").replace("ENGINE", "spark")
    with pytest.raises(ProjectError, match=r"sources\.erp") as refused:
        loads(text, VARIABLES)
    assert why in str(refused.value)
