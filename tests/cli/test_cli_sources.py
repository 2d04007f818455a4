"""`source test`, `source discover`, `destination test`."""

from __future__ import annotations

import pytest
from cli_world import PROJECT, Shop

from postgres_server import Database


def test_source_test_says_what_works(shop: Shop) -> None:
    said = shop.ok("source", "test")
    assert said.out.splitlines()[-1] == "ok   list tables: 2 tables and views"
    assert all(c["ok"] for c in shop.json("source", "test", "db")["checks"])


def test_a_source_that_cannot_be_opened_is_4(shop: Shop) -> None:
    shop.write("{type: sqlite, path: nowhere.db}")
    said = shop.run("source", "test")
    assert said.code == 4
    assert "FAIL" in said.out
    assert "nowhere.db" in said.out
    assert not shop.folder.joinpath("nowhere.db").exists()
    assert shop.run("detect").code == 4
    assert shop.run("plan", "--output", "json").json["type"] == "urn:instep:ConnectError"


def test_names_that_are_not_in_the_project(shop: Shop) -> None:
    said = shop.run("source", "test", "dbb")
    assert (said.code, "unknown source 'dbb', did you mean 'db'?" in said.err) == (1, True)
    assert "unknown destination" in shop.run("destination", "test", "lak").err


def test_discover_lists_tables(shop: Shop) -> None:
    lines = shop.ok("source", "discover").out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["table", "kind"],
        ["main.customer", "table"],
        ["main.order", "table"],
    ]
    assert lines[1].split()[1:] == ["table", "2", "id", "3"]


def test_discover_lists_columns_with_types(shop: Shop) -> None:
    lines = [" ".join(line.split()) for line in shop.ok("source", "discover", "--columns").out.splitlines()]
    assert "name string(30) not null varchar(30)" in lines
    assert "amount decimal(10,2) decimal(10,2)" in lines


def test_discover_as_json_has_every_column(shop: Shop) -> None:
    found = shop.json("source", "discover")
    tables = {t["name"]: [c["name"] for c in t["columns"]] for t in found["tables"]}
    assert tables == {"customer": ["id", "name", "city"], "order": ["id", "customer_id", "amount"]}


def test_destination_test_leaves_nothing_behind(shop: Shop) -> None:
    said = shop.ok("destination", "test")
    assert [line[:4] for line in said.out.splitlines()] == ["ok  "] * 6
    assert shop.json("query", "select 1 as one")["rows"] == [{"one": 1}]


def test_a_warehouse_that_cannot_be_written_fails(shop: Shop) -> None:
    shop.folder.joinpath("lake").write_text("a file, no folder")
    said = shop.run("destination", "test")
    assert said.code in (1, 4)
    assert "lake" in said.out + said.err
    assert shop.folder.joinpath("lake").read_text() == "a file, no folder"


def test_a_wrong_password_is_4_and_is_not_said(shop: Shop, postgres: Database) -> None:
    config = postgres.config
    shop.write(
        f"{{type: postgres, host: 127.0.0.1, port: {config.port}, database: {config.database}, "
        f"user: {config.user}, password: '${{env:PG_PASSWORD}}'}}"
    )
    shop.folder.joinpath(".env").write_text("PG_PASSWORD=not this one\n")
    for words in (("source", "test"), ("source", "discover"), ("plan",), ("detect",)):
        said = shop.run(*words)
        assert said.code == 4, (words, said)
        assert "password" in said.out + said.err
        assert "not this one" not in said.out + said.err


def test_missing_grants_are_named(shop: Shop, postgres: Database) -> None:
    postgres.execute("create table secret (id int primary key); revoke all on secret from reader")
    config = postgres.reader
    shop.write(
        f"{{type: postgres, host: 127.0.0.1, port: {config.port}, database: {config.database}, "
        f"user: {config.user}, password: '${{env:PG_PASSWORD}}'}}"
    )
    shop.folder.joinpath(".env").write_text(f"PG_PASSWORD={config.password}\n")
    said = shop.run("source", "test")
    assert "public.secret" in said.out
    assert "grant" in said.out.lower()


def test_what_is_only_worth_knowing_is_a_note(shop: Shop, postgres: Database) -> None:
    postgres.execute("create table t (id int primary key)")
    config = postgres.config
    shop.write(
        f"{{type: postgres, host: 127.0.0.1, port: {config.port}, database: {config.database}, "
        f"user: {config.user}, password: '${{env:PG_PASSWORD}}'}}"
    )
    shop.folder.joinpath(".env").write_text(f"PG_PASSWORD={config.password}\n")
    assert "note tls: the connection is not encrypted" in shop.ok("source", "test").out
    found = {c["name"]: c for c in shop.json("source", "test")["checks"]}
    assert (found["tls"]["ok"], found["tls"]["needed"]) == (False, False)


UNREADABLE = [
    ('create table odd (id integer primary key, "" text)', "a column of it has an empty name: rename it in the source"),
    ("create table odd (id int); create view v as select * from odd; drop table odd", "no such table: main.odd"),
]


@pytest.mark.parametrize(("sql", "why"), UNREADABLE, ids=["empty column name", "broken view"])
@pytest.mark.parametrize("loaded", [False, True], ids=["from the first sync", "later"])
def test_a_table_that_cannot_be_read_fails_until_it_is_excluded(shop: Shop, sql: str, why: str, loaded: bool) -> None:
    if loaded:
        shop.ok("sync")
    shop.sql(sql)
    for _ in range(2):
        said = shop.run("sync")
        assert (said.code, why in " ".join(said.out.split())) == (6, True), said
    assert "failed" in shop.ok("status").out
    assert "a sync will fail main." in shop.ok("plan").out
    name = "main.v" if "view" in sql else "main.odd"
    shop.write(text=PROJECT.replace("policy: careful}", f"policy: careful, exclude: {{tables: [{name}]}}}}"))
    shop.ok("sync")
    assert why not in shop.ok("status").out


def test_a_check_of_several_lines_stays_readable(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    from instep.model import Check
    from instep.sources.sqlite.source import SqliteSource

    check = Check("environment", False, "it cannot be made:\nERROR: no such version", "correct it\nor another")
    monkeypatch.setattr(SqliteSource, "test", lambda _: [check])
    said = shop.run("source", "test").out.splitlines()
    assert said[0] == "FAIL environment: it cannot be made:"
    assert said[1:] == ["     ERROR: no such version", "     correct it", "     or another"]
