# ruff: noqa: S608 - names of copies
"""`instep table ...`: what it shows, counts, asks and refuses."""

from __future__ import annotations

import pytest
from cli_world import PROJECT, Shop

from lake import SPARK

SET = ("table", "set-key", "main.item")


@pytest.fixture
def item(shop: Shop) -> Shop:
    """A table without a key, whose column `sku` could be one."""
    shop.sql("create table item (sku int not null, name text, at timestamp); insert into item values (1, 'a', null)")
    shop.applied()
    return shop


def test_show_says_who_named_key_and_cursor(item: Shop) -> None:
    found = item.json("table", "show", "main.item")
    assert (found["mode"], found["key"], found["cursor"]) == ("full_refresh", [], None)
    assert (found["key_from"], found["cursor_from"]) == ("the source has none", "nobody has set one")
    item.ok(*SET, "sku", "--rekey")
    found = item.json("table", "show", "main.item")
    assert (found["mode"], found["key"], found["key_from"][:7]) == ("upsert", ["sku"], "set by ")
    assert "key          (sku): set by " in item.ok("table", "show", "main.item").out
    assert item.json("table", "show", "main.customer")["key_from"] == "the source"
    [event] = [e for e in item.json("history")["events"] if e["type"] == "table.key_set"]
    assert (event["data"]["key"], event["data"]["how"]) == (["sku"], "rekey")


def test_without_a_way_it_only_counts_and_offers(item: Shop) -> None:
    said = item.ok(*SET, "sku").out
    assert "at the source: 1 rows, 0 duplicates, 0 with NULL" in said
    assert [f"--{way}:" in said for way in ("rekey", "rebuild", "clear")] == [True] * 3
    assert item.json("table", "show", "main.item")["key"] == []
    item.sql("insert into item values (1, 'b', null)")
    assert "1 rows of the source would be lost" in item.ok(*SET, "sku").out
    assert "refused: the key (sku)" in item.ok(*SET, "sku", "--rekey", "--dry-run").out
    found = item.json(*SET, "sku", "--rebuild", "--dry-run")
    assert (found["source"], found["applied"]) == ({"rows": 2, "duplicates": 1, "nulls": 0}, False)
    assert item.run(*SET, "sku", "--rebuild").code == 3


REFUSED = [
    ("no table", ("set-key", "main.itm", "sku", "--rekey"), 1, "did you mean main.item?"),
    ("no column", ("set-key", "main.item", "skU", "--rekey"), 1, "did you mean sku?"),
    ("a column twice", ("set-key", "main.item", "sku,sku", "--rekey"), 1, "different columns"),
    ("two ways", ("set-key", "main.item", "sku", "--rekey", "--clear"), 1, "cannot be combined"),
    ("no cursor", ("set-cursor", "main.item"), 1, "no cursor is named"),
    ("from without a cursor", ("set-cursor", "main.item", "--none", "--from", "1"), 1, "--from needs a cursor"),
    ("a text", ("set-cursor", "main.item", "name"), 1, "cannot be a cursor"),
    ("NULLs", ("set-cursor", "main.item", "at"), 3, "is NULL in 1 rows"),
    ("no value of it", ("set-cursor", "main.item", "sku", "--from", "x"), 1, "'x' is not a value of column"),
    ("no such table to show", ("show", "main.itm"), 1, "did you mean main.item?"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("words", "code", "said"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refusals(item: Shop, words: tuple[str, ...], code: int, said: str) -> None:
    found = item.run("table", *words)
    assert (found.code, said in found.err) == (code, True), found


@pytest.mark.parametrize(
    ("setting", "words", "said"),
    [
        ("key: [sku]", ("set-key", "main.item", "name", "--rekey"), '{"main.item": {key: [name]}}'),
        ("cursor: sku", ("set-cursor", "main.item", "sku"), '{"main.item": {cursor: sku}}'),
        ("cursor: sku", ("set-cursor", "main.item", "--none"), """{"main.item": {cursor: ''}}"""),
        ("mode: full_refresh", ("set-cursor", "main.item", "sku"), "change its mode"),
    ],
)
def test_what_the_project_file_names_is_changed_there(
    item: Shop, setting: str, words: tuple[str, ...], said: str
) -> None:
    tables = f", tables: {{main.item: {{{setting}}}}}}}"
    item.write(text=PROJECT.replace("policy: careful}", "policy: careful" + tables))
    found = item.run("table", *words)
    assert (found.code, "instep.yml" in found.err, said in found.err) == (3, True, True), found


def test_a_cursor_is_set_and_taken_away(item: Shop) -> None:
    said = item.ok("table", "set-cursor", "main.item", "sku", "--from", "1", "--dry-run").out
    assert "the newest sku at the source is 1" in said
    found = item.json("table", "set-cursor", "main.item", "sku", "--from", "1")
    assert (found["cursor"], found["from"], found["applied"]) == ("sku", "1", True)
    found = item.json("table", "show", "main.item")
    assert (found["mode"], found["cursor"]) == ("append", "sku")
    assert found["cursor_from"].endswith("first read from 1")
    item.ok("table", "set-cursor", "main.item", "--none")
    assert item.json("table", "show", "main.item")["cursor"] is None
    assert item.changes() == {}


def test_a_changed_key_is_counted_in_plan_and_show(item: Shop) -> None:
    item.ok(*SET, "sku", "--rekey")
    item.sql("alter table item drop column sku")
    item.ok("detect")
    [id] = [id for summary, id in item.changes().items() if summary.startswith("primary key of main.item removed")]
    for words in (("changes", "show", id), ("plan",)):
        out = item.ok(*words).out
        assert f"{id}: key (sku) at the source: not counted: sku is gone" in out
        assert "choose another key: instep table set-key main.item COL[,COL...]" in out
    assert len(item.json("changes", "show", id)["keys"]) == len(item.json("plan")["keys"]) == 3
    said = item.run("resume", "--table", "main.item")
    assert (said.code, id in said.err, "set-key" in said.err) == (3, True, True)
    item.sql("insert into item (name) values ('b')")
    item.ok(*SET, "name", "--rekey")
    assert item.ok("table", "show", "main.item").out.count("paused") == 0


def test_a_terminal_is_asked(item: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *words, **more: False)
    for words in ((*SET, "sku", "--rekey"), ("table", "set-cursor", "main.item", "sku")):
        said = item.run(*words)
        assert (said.code, "nothing was changed" in said.err) == (3, True)


@SPARK[0]
@SPARK[1]
@pytest.mark.usefixtures("kept")
def test_a_copy_is_shown_and_purged(item: Shop) -> None:
    item.ok("sync")
    found = item.json(*SET, "sku", "--rebuild")
    name = found["copy"]
    assert name.startswith("shop.item__before_")
    for words in (("status",), ("schema", "show"), ("table", "show", "main.item")):
        assert f"{name}: 1 rows, before the key (sku)" in item.ok(*words).out, words
    item.ok("sync")
    assert item.json("query", f"select sku from {name}")["rows"] == [{"sku": 1}]
    assert item.run("table", "purge", "main.item", "--no-input").code == 3
    assert item.json("table", "purge", "main.item", "--dry-run")["purged"] is False
    assert item.json("--yes", "table", "purge", "main.item")["purged"] is True
    assert item.json("status")["connections"][0]["copies"] == []
    assert item.run("query", f"select sku from {name}").code != 0
    assert "no copies" in item.ok("table", "purge", "main.item").out
