"""`migration check`: what a producer's SQL leads to, before anybody runs it."""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli_world import PROJECT, Shop

CI = Path(__file__).parents[2] / "docs" / "guides" / "ci.md"
TWO = PROJECT.replace("policy: careful}", "policy: careful}\n  other: {source: db2, destination: lake}").replace(
    "  db: SOURCE\n", "  db: SOURCE\n  db2: {type: sqlite, path: other.db}\n"
)


@pytest.fixture
def loaded(shop: Shop) -> Shop:
    shop.applied()
    return shop


def script(shop: Shop, text: str, name: str = "m.sql") -> str:
    path = shop.folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return str(path)


def check(shop: Shop, text: str, *words: str, code: int = 0) -> Any:
    said = shop.run("migration", "check", script(shop, text), "--output", "json", *words)
    assert said.code == code, said
    return said.json["connections"][0]


CASES = [
    ("a column", "alter table customer add column phone varchar(20)", 0, [("column.added", "apply", "needs backfill")]),
    ("a table", "create table item (id integer primary key)", 0, [("table.added", "apply", "safe")]),
    ("rows only", "update customer set name = 'x'; create index i on customer (name)", 0, []),
    ("a removal that policy holds", "alter table customer drop column city", 3,
     [("column.removed", "review", "breaks readers")]),
    ("a key", 'alter table "order" rename to tmp; create table "order" (id integer, customer_id int,'
     ' amount decimal(10,2)); drop table tmp', 3, [("key.removed", "pause_table", "breaks readers")]),
    ("back and forth", "alter table customer rename city to town; alter table customer rename town to city", 0, []),
    ("it was never there", "create table x (id int); drop table x", 0, []),
    ("rolled back", "begin; drop table customer; rollback", 0, []),
]  # fmt: skip


def test_each_change_with_what_is_decided(loaded: Shop) -> None:
    for name, sql, code, changes in CASES:
        found = check(loaded, sql, code=code)
        kept = [c for c in found["changes"] if c["kind"] not in ("column.nullability", "column.reordered")]
        assert [(c["kind"], c["action"], c["class"]) for c in kept] == changes, name
        assert found["unread"] == [], name
    assert loaded.json("changes", "list")["changes"] == [], "nothing is recorded"


def test_statements_with_their_lines_for_people(loaded: Shop) -> None:
    text = "-- one\nalter table customer add column a int;\n\nalter table customer\n  drop column city;\nselect f();\n"
    said = loaded.run("migration", "check", script(loaded, f"{text}drop table nobody"))
    assert said.code == 3
    for part in (
        "shop: 2 changes\n",
        "m.sql:2: column main.customer.a added (int64)\n",
        "m.sql:4: column main.customer.city removed (string)\n    waits for a review (rule 1 of policy careful)",
        "m.sql:6: not understood: select f: the effect of f() is not known\n",
        "m.sql:7: nobody is not a table of shop\n",
    ):
        assert part in said.out


def test_annotations_for_github(loaded: Shop) -> None:
    path = script(loaded, "alter table customer add column a int;\nalter table customer drop column city;\ncall x();")
    said = loaded.run("migration", "check", path, "--output", "github")
    lines = said.out.splitlines()
    assert lines[0].startswith(f"::warning file={path},line=1,title=instep shop::column main.customer.a added")
    assert lines[1].startswith(
        f"::error file={path},line=2,title=instep shop::column main.customer.city removed (string)%0A"
    )
    assert lines[2].startswith(f"::warning file={path},line=3,title=instep shop::not understood: call x")
    assert (said.code, len(lines)) == (3, 3)
    assert loaded.run("status", "--output", "github").code == 64


def test_a_rename_without_ids_waits_for_a_person(loaded: Shop) -> None:
    found = check(loaded, 'alter table "order" rename column amount to total', code=3)
    assert {(c["kind"], c["waits"]) for c in found["changes"]} == {("column.removed", True), ("column.added", True)}
    assert "sqlite gives no ids for the rename of column amount to column total" in found["notes"][0]["text"]


FAILS = [
    ("review", 3, "alter table customer drop column city"),
    ("never", 0, "alter table customer drop column city"),
    ("breaks", 2, "alter table customer drop column city"),
    ("loses", 0, "alter table customer drop column city"),
    ("loses", 2, "create table t as select 1; drop table customer; create table customer (id integer primary key,"
     " name int not null, city text)"),
    ("breaks", 0, "alter table customer add column a int"),
]  # fmt: skip


def test_what_fails(loaded: Shop) -> None:
    for level, code, sql in FAILS:
        assert loaded.run("migration", "check", script(loaded, sql), "--fail-on", level).code == code, (level, sql)


def test_strict_is_for_what_is_not_understood(loaded: Shop) -> None:
    path = script(loaded, "create trigger g after insert on customer begin drop table x; end")
    assert loaded.run("migration", "check", path).code == 0
    assert loaded.run("migration", "check", path, "--strict").code == 1
    bad = script(loaded, "alter table customer drop column never")
    said = loaded.run("migration", "check", bad, "--strict")
    assert (said.code, "table main.customer has no column never" in said.out) == (1, True)


def test_what_waits_already_is_not_this_migrations(loaded: Shop) -> None:
    loaded.sql("alter table customer drop column city")
    loaded.ok("detect")
    found = check(loaded, 'alter table "order" add column a int')
    assert [c["kind"] for c in found["changes"]] == ["column.added"]
    again = check(loaded, "alter table customer add column city text")
    assert again["settled"] == ["column main.customer.city removed (string)"]


def test_backfills_and_models(shop: Shop) -> None:
    text = PROJECT.replace(
        "decide: review}",
        "decide: apply, removed: drop}\n      - {on: [column.added], decide: apply, backfill: column}",
    )
    shop.write(text=text.replace("policy: careful}", "policy: careful, downstream: {sql: views}}"))
    script(shop, "select city from shop.customer", "views/cities.sql")
    shop.applied()
    found = check(shop, "alter table customer add column a int; alter table customer drop column city")
    added = next(c for c in found["changes"] if c["kind"] == "column.added")
    removed = next(c for c in found["changes"] if c["kind"] == "column.removed")
    assert (added["backfill"]["columns"], added["backfill"]["rows"]) == (["a"], 2)
    assert added["backfill"]["time"] == "time unknown (no runs yet)"
    assert (removed["breaks"], removed["class"]) == (["cities"], "loses data")
    assert any("city" in step for step in found["steps"])
    out = shop.run("migration", "check", str(shop.folder / "m.sql"), "--fail-on", "breaks")
    assert (out.code, "breaks 1 model: cities" in out.out, "is filled: about 2 rows" in out.out) == (2, True, True)


def test_folders_in_their_order_and_standard_input(loaded: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    script(loaded, "alter table made rename to done;", "sql/V10__b.sql")
    script(loaded, "create table made (id integer primary key);", "sql/V9__a.sql")
    script(loaded, "drop table customer;", "sql/U10__b.sql")
    found = loaded.json("migration", "check", str(loaded.folder / "sql"))["connections"][0]
    assert [c["summary"].partition(" (")[0] for c in found["changes"]] == ["table main.done added"]
    assert [at["line"] for at in found["changes"][0]["at"]] == [1, 1]
    monkeypatch.setattr("sys.stdin", io.StringIO("alter table customer add column a int"))
    assert "stdin:1: column main.customer.a added" in loaded.ok("migration", "check", "-").out


def test_only_what_git_has_new(loaded: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(loaded.folder)

    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    script(loaded, "drop table customer;", "sql/V1.sql")
    git("add", "sql")
    git("commit", "-qm", "one")
    git("checkout", "-qb", "feature")
    script(loaded, "alter table customer add column a int;", "sql/V2.sql")
    git("add", "sql")
    git("commit", "-qm", "two")
    assert "sql/V2.sql:1: column main.customer.a added" in loaded.ok("migration", "check", "--git-diff", "main").out
    [command] = re.findall(r"run: instep (migration check .*)", CI.read_text(encoding="utf-8"))
    words = command.replace("db/migrations", "sql").replace("origin/${{ github.base_ref }}", "main").split()
    assert loaded.ok(*words).out.startswith("::warning file=sql/V2.sql,line=1,title=instep shop::column")
    [hook] = re.findall(r"entry: instep (.*)", CI.read_text(encoding="utf-8"))
    assert "column main.customer.a added" in loaded.ok(*hook.split(), "sql/V2.sql").out
    assert loaded.run("migration", "check", "sql", "--git-diff", "main").code == 0
    said = loaded.run("migration", "check", "--git-diff", "nowhere")
    assert (said.code, "fetch the base branch" in said.err) == (1, True)
    monkeypatch.chdir("/")
    said = loaded.run("migration", "check", "--git-diff", "main")
    assert (said.code, "run it in a clone of the repository" in said.err) == (1, True)


def test_the_connections_that_have_the_tables(shop: Shop) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(shop.folder / "other.db")) as connection:
        connection.execute("create table thing (id integer primary key)")
    shop.write(text=TWO)
    for name in ("shop", "other"):
        shop.ok("apply", name, "--yes")
    path = script(shop, "alter table thing add column a int")
    found = shop.json("migration", "check", path)["connections"]
    assert [c["connection"] for c in found] == ["other"]
    both = shop.json("migration", "check", script(shop, "create table x (id int)"))["connections"]
    assert [c["connection"] for c in both] == ["shop", "other"]


WRONG = [
    ("nothing named", (), 1, "no migration is named"),
    ("no such file", ("none.sql",), 1, "none.sql: No such file"),
    ("no such level", ("m.sql", "--fail-on", "some"), 64, "'some' is not one of"),
    ("no such dialect", ("m.sql", "--dialect", "oracle"), 1, "the dialect 'oracle'"),
    ("another dialect", ("m.sql", "--dialect", "mysql", "-c", "shop"), 1, "speaks sqlite, not mysql"),
    ("before a detection", ("m.sql",), 1, "run `instep detect shop` first"),
]


def test_wrong_words(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop.folder)
    assert "has no .sql files" in shop.run("migration", "check", ".").err
    script(shop, "select 1")
    for name, words, code, said in WRONG:
        answer = shop.run("migration", "check", *words)
        assert (answer.code, said in answer.err) == (code, True), (name, answer)
