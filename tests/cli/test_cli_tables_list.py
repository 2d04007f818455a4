"""`instep tables`: what stands at each destination, compared with a reading of the test's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from cli_world import Shop
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import event
from sqlalchemy.engine import Engine

from instep.backends.local import LocalBackend
from instep.model import TableRun
from instep.operations.queries.work import ListTableStatus
from postgres_server import Database

PROJECT = """\
version: 1
project: shop
engine: local
sources:
  db: {type: sqlite, path: shop.db}
destinations:
  lake: PLACE
connections:
  shop:
    source: db
    destination: lake
    policy: allow_all
    salt: '${env:SALT}'
    hash: [main.item.name]
    exclude: {columns: [main.item.secret]}
    tables:
      main.entry: {cursor: id, mode: append}
      main.part: {deletes: hard}
      main.item: {history: true}
"""
TABLES = """
    create table item (id integer primary key, name varchar(30) not null, secret text, size int, old text, raw blob);
    insert into item values (1, 'pen', 'x', 1, 'o', x'6162'), (2, 'ink', null, 2, null, null);
    create table entry (id integer, what text);
    insert into entry values (1, 'a'), (2, 'b');
    create table note (at text, what text);
    insert into note values ('a', 'b');
    create table part (id integer primary key, price decimal(9,2));
    insert into part values (1, '1.50'), (2, '2'), (3, '3');
    create table customer (id integer primary key, name text);
    insert into customer values (1, 'Ann'), (2, 'Bo');
    create table empty (id integer primary key);
"""
CHANGED = """
    update item set name = 'pencil' where id = 1;
    update item set size = 'many' where id = 2;
    insert into item values (3, 'cap', null, null, 'p', null);
    insert into entry values (3, 'c');
    insert into note values ('c', 'd');
    delete from part where id = 2;
    delete from customer where id = 2;
"""
Count = Callable[[str], int]


@dataclass(frozen=True)
class Place:
    """A shop whose tables stand at one kind of destination. `count` reads the rows of a table without the product."""

    shop: Shop
    kind: str
    count: Count

    def tables(self, *words: str) -> dict[str, Any]:
        return {one["table"]: one for one in self.shop.json("tables", *words)["tables"]}

    def columns(self, table: str) -> dict[str, Any]:
        return {one["column"]: one for one in self.shop.json("tables", table)["columns"]}


def _iceberg(folder: Path) -> Count:
    def count(table: str) -> int:
        file = next((folder / "lake").rglob("*.db"))
        catalog = SqlCatalog("lake", uri=f"sqlite:///{file}", warehouse=f"file://{folder / 'lake'}")
        return int(catalog.load_table(("shop", table)).scan().to_arrow().num_rows)

    return count


def _delta(folder: Path) -> Count:
    def count(table: str) -> int:
        place, files = folder / "lake" / "shop" / table, set[str]()
        for log in sorted((place / "_delta_log").glob("*.json")):
            for action in map(json.loads, log.read_text().splitlines()):
                files |= {action["add"]["path"]} if "add" in action else set()
                files -= {action["remove"]["path"]} if "remove" in action else set()
        return sum(pq.read_table(place / path).num_rows for path in files)

    return count


def _duckdb(folder: Path) -> Count:
    def count(table: str) -> int:
        with duckdb.connect(str(folder / "shop.duckdb"), read_only=True) as file:
            [(rows,)] = file.execute(f'select count(*) from shop.shop."{table}"').fetchall()  # noqa: S608
        return int(rows)

    return count


def _postgres(database: Database) -> Count:
    return lambda table: int(database.execute(f'select count(*) from shop."{table}"')[0][0])  # noqa: S608


PLACES = {
    "iceberg": ("{type: iceberg, warehouse: lake}", _iceberg),
    "delta": ("{type: delta, warehouse: lake}", _delta),
    "duckdb": ("{type: duckdb, path: shop.duckdb}", _duckdb),
}


@pytest.fixture(params=[*PLACES, pytest.param("postgres", marks=pytest.mark.server)])
def place(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    shop, kind = Shop(tmp_path, capsys), request.param
    tmp_path.joinpath(".env").write_text("SALT=0123456789abcdef0123\nPASSWORD=\n")
    if kind == "postgres":
        database = request.getfixturevalue("postgres")
        c = database.config
        at = f"{{type: postgres, host: 127.0.0.1, port: {c.port}, database: {c.database}, user: {c.user}, "
        at += "password: '${env:PASSWORD}'}"
        tmp_path.joinpath(".env").write_text(f"SALT=0123456789abcdef0123\nPASSWORD={c.password}\n")
        count = _postgres(database)
    else:
        at, counted = PLACES[kind]
        count = counted(tmp_path)
    shop.write(text=PROJECT.replace("PLACE", at))
    shop.sql(TABLES)
    return Place(shop, kind, count)


MODES = {
    "main.item": ("upsert", True, ["id"], 5),
    "main.entry": ("append", False, [], 3),
    "main.note": ("full_refresh", False, [], 2),
    "main.part": ("upsert", False, ["id"], 2),
    "main.customer": ("upsert", False, ["id"], 2),
    "main.empty": ("upsert", False, ["id"], 0),
}
"""By table: mode, whether versions are kept, key, and the rows after `CHANGED`: soft-deleted ones and versions, too."""


def test_what_stands_is_what_a_reading_finds(place: Place) -> None:
    place.shop.ok("sync")
    place.shop.sql(CHANGED)
    place.shop.run("sync")
    found = place.tables()
    assert list(found) == sorted(MODES)
    for table, (mode, history, key, rows) in MODES.items():
        one = found[table]
        assert (one["mode"], one["history"], one["key"], one["rows"]) == (mode, history, key, rows), table
        assert one["rows"] == place.count(table.partition(".")[2]), table
        assert (one["source"], one["destination"]) == (table, f"shop.{table.partition('.')[2]}")
        assert (one["bytes"] is None) == (place.kind == "duckdb")
        assert one["bytes"] or not rows or place.kind == "duckdb"
        assert (one["last_run"]["kind"], one["last_run"]["status"]) == ("sync", "done")
        assert (one["paused"], one["error"], one["backfills"], one["note"]) == (None, None, [], "")
    assert {table: one["columns"] for table, one in found.items()} == {
        "main.item": 5, "main.entry": 2, "main.note": 2, "main.part": 2, "main.customer": 2, "main.empty": 1,
    }  # fmt: skip
    assert {table: one["quarantined"] for table, one in found.items() if one["quarantined"]} == {"main.item": 1}
    out = place.shop.ok("tables").out
    assert "main.item: 1 value(s) or rows in quarantine: instep quarantine list main.item" in out
    assert len([line for line in out.splitlines() if "shop." in line]) == len(MODES)


def test_what_is_not_loaded_yet_says_the_next_command(place: Place) -> None:
    assert "no tables: `instep plan` shows what a sync would load" in place.shop.ok("tables").out
    place.shop.ok("detect")
    for table, one in place.tables().items():
        assert (one["source"], one["destination"], one["rows"], one["last_run"]) == (table, None, None, None)
        assert "selected, not accepted: run `instep plan`" in one["note"]
    assert {name: one["status"] for name, one in place.columns("main.item").items()} == {
        "id": "new", "name": "new", "secret": "off", "size": "new", "old": "new", "raw": "new",
    }  # fmt: skip
    assert place.shop.run("tables", "main.item", "--preview", "1").code == 1
    place.shop.ok("apply", "--yes")
    for one in place.tables().values():
        assert (one["rows"], one["bytes"]) == (None, None)
        assert one["columns"] >= 1
        assert one["note"] == "not loaded yet: `instep sync` loads it"
    said = place.shop.run("tables", "main.item", "--preview", "1")
    assert said.code == 1
    assert "table main.item has no rows to show: not loaded yet" in said.err


def test_columns_say_where_they_stand(place: Place) -> None:
    place.shop.ok("sync")
    place.shop.sql("alter table item drop column old; alter table item add column late int")
    place.shop.run("sync")
    assert place.columns("main.item")["old"]["status"] == "missing", "its removal is not confirmed yet"
    place.shop.run("sync")
    found = place.columns("main.item")
    assert {name: one["status"] for name, one in found.items()} == {
        "id": "read", "name": "hashed", "size": "read", "old": "retained", "raw": "read", "late": "read",
        "secret": "off",
    }  # fmt: skip
    assert (found["old"]["source_type"], found["old"]["destination_type"]) == (None, "string")
    assert (found["secret"]["source_type"], found["secret"]["destination"]) == ("TEXT", None)
    assert (found["name"]["source_type"], found["name"]["destination_type"]) == ("varchar(30)", "string")
    assert [one["key"] for one in found.values()] == [1, 0, 0, 0, 0, 0, 0]
    assert found["late"]["since"] > found["raw"]["since"] == found["id"]["since"]
    assert place.tables()["main.item"]["columns"] == 6
    out = place.shop.ok("tables", "main.item").out
    assert "varchar(30)" in out
    assert "retained" in out


def test_first_rows_are_as_the_destination_has_them(place: Place) -> None:
    place.shop.ok("sync")
    long = "x" * 300
    place.shop.sql("insert into customer values (3, replace(hex(zeroblob(150)), '0', 'x'))")
    place.shop.ok("sync")
    found = place.shop.json("tables", "main.item", "--preview", "100")["preview"]
    assert found["columns"][:3] == ["id", "name", "size"]
    assert "_instep_deleted" in found["columns"]
    rows = {one["id"]: one for one in found["rows"]}
    assert rows.keys() == {1, 2}
    assert len(rows[1]["name"]) == 64, "hashed on its way, and hashed here"
    assert (rows[1]["raw"], rows[2]["raw"]) == ("\\x6162", None)
    assert {one["price"] for one in place.shop.json("tables", "main.part", "--preview", "3")["preview"]["rows"]} == {
        "1.50", "2.00", "3.00",
    }  # fmt: skip
    assert len(place.shop.json("tables", "main.part", "--preview", "2")["preview"]["rows"]) == 2
    assert place.shop.json("tables", "main.empty", "--preview", "2")["preview"]["rows"] == []
    whole = place.shop.json("tables", "main.customer", "--preview", "9")["preview"]["rows"]
    assert long in {one["name"] for one in whole}
    out = place.shop.ok("tables", "main.customer", "--preview", "9").out
    assert long not in out
    assert f"{'x' * 39}…" in out
    asked = place.shop.json("query", "select * from shop.part")["rows"]
    shown = place.shop.json("tables", "main.part", "--preview", "9")["preview"]["rows"]
    assert sorted(shown, key=str) == sorted(asked, key=str), "values are told as `query` tells them"


@pytest.fixture
def lake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shop:
    """Loaded tables in Iceberg."""
    shop = Shop(tmp_path, capsys)
    tmp_path.joinpath(".env").write_text("SALT=0123456789abcdef0123\n")
    shop.write(text=PROJECT.replace("PLACE", PLACES["iceberg"][0]))
    shop.sql(TABLES)
    shop.ok("sync")
    return shop


def _one(shop: Shop, table: str) -> dict[str, Any]:
    found = shop.json("tables", table)
    assert [one["table"] for one in found["tables"]] == [table]
    [one] = found["tables"]
    assert isinstance(one, dict)
    return one


def test_no_data_file_is_opened_without_a_preview(lake: Shop) -> None:
    for file in (lake.folder / "lake").rglob("*.parquet"):
        file.unlink()
    assert _one(lake, "main.customer")["rows"] == 2
    assert lake.run("tables", "main.customer", "--preview", "1").code != 0


def test_what_holds_a_table_up(lake: Shop) -> None:
    lake.ok("pause", "--table", "main.part", "--reason", "a migration")
    with lake.store() as store:
        store.backfills.request("shop", ("main", "customer"), column="name", why="asked for")
        store.backfills.request("shop", ("main", "entry"), why="asked for")
    assert _one(lake, "main.part")["paused"] == "a migration"
    assert _one(lake, "main.customer")["backfills"] == ["name"]
    assert _one(lake, "main.entry")["backfills"] == ["*"]
    out = lake.ok("tables").out
    for line in (
        "main.part: paused: a migration",
        "main.customer: backfill pending: name",
        "main.entry: backfill pending: the whole table",
    ):
        assert line in out
    lake.ok("pause", "--reason", "all of it")
    assert _one(lake, "main.customer")["paused"] == "all of it"


def test_settings_that_do_not_fit_are_told_as_an_error(lake: Shop) -> None:
    text = (lake.folder / "instep.yml").read_text()
    lake.write(text=text.replace("main.part: {deletes: hard}", "main.note: {mode: upsert}"))
    one = _one(lake, "main.note")
    assert one["mode"] is None
    assert "has no primary key, so it cannot be synced by upsert" in one["error"]


def test_a_table_that_was_not_loaded_by_the_last_run(lake: Shop) -> None:
    with lake.store() as store:
        run = store.runs.claim("shop", "sync")
        store.runs.record_tables(TableRun(run.id, ("main", "part"), "failed", "upsert", error="no\nspace"))
        store.runs.finish(run, "partial")
    one = _one(lake, "main.part")
    assert (one["error"], one["last_run"]["status"], one["rows"]) == ("no\nspace", "failed", 3)
    assert "main.part: no; space" in lake.ok("tables").out


def test_status_asks_for_the_tables_that_were_not_loaded_alone(lake: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    with lake.store() as store:
        run = store.runs.claim("shop", "sync")
        store.runs.record_tables(TableRun(run.id, ("main", "part"), "failed", "upsert", error="no\nspace"))
        store.runs.finish(run, "partial")
    answered, items = [], LocalBackend.items

    def noted(backend: LocalBackend, query: Any, *more: Any) -> Any:
        found = items(backend, query, *more)
        answered.extend(".".join(one.table) for one in found if isinstance(query, ListTableStatus))
        return found

    monkeypatch.setattr(LocalBackend, "items", noted)
    assert "main.part: failed: no; space" in lake.ok("status").out
    assert answered == ["main.part"]


def test_a_name_that_is_taken_by_what_is_not_ours(lake: Shop) -> None:
    catalog = SqlCatalog(
        "lake",
        uri=f"sqlite:///{next((lake.folder / 'lake').rglob('*.db'))}",
        warehouse=f"file://{lake.folder / 'lake'}",
    )
    schema = catalog.load_table(("shop", "note")).schema()
    catalog.drop_table(("shop", "note"))
    catalog.create_table(("shop", "note"), schema)
    one = _one(lake, "main.note")
    assert (one["rows"], one["columns"]) == (None, 0)
    assert "exists and is not ours" in one["note"]


WRONG = [
    (("tables", "main.custome"), 1, "connection shop has no table main.custome"),
    (("tables", "--preview", "3"), 64, "name the table whose rows are shown"),
    (("tables", "main.part", "--preview", "101"), 64, "less than or equal to 100"),
    (("tables", "main.part", "--preview", "0"), 64, "greater than or equal to 1"),
    (("tables", "-c", "ship"), 1, "ship"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("words", "code", "told"), WRONG)
def test_what_cannot_be_shown_is_said(lake: Shop, words: tuple[str, ...], code: int, told: str) -> None:
    said = lake.run(*words)
    assert said.code == code, said
    assert told in said.err


def test_a_few_statements_do_for_many_tables(lake: Shop) -> None:
    """The store is asked as often for thirty tables more."""
    asked = []
    for number in range(2):
        with counted() as seen:
            lake.ok("tables")
        asked.append(len(seen))
        lake.sql("".join(f"create table t{number}_{n} (id integer primary key);" for n in range(30)))
        lake.ok("sync")
    assert asked[0] == asked[1]


@contextmanager
def counted() -> Iterator[list[str]]:
    """The statements that any store is asked within."""
    seen: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", note)
