"""`sync`, `backfill` and `verify`: commands that read rows."""

from __future__ import annotations

from typing import Any

import pytest
from cli_world import CHANGED, REMOVED, Shop

from lake import SPARK

pytestmark = [*SPARK, pytest.mark.usefixtures("kept")]


def report(shop: Shop, *words: str) -> dict[str, tuple[Any, ...]]:
    """Table -> (status, read, inserted, updated, deleted) of the run."""
    found = shop.json(*words)["tables"]
    return {t["table"][1]: tuple(t[k] for k in ("status", "read", "inserted", "updated", "deleted")) for t in found}


def test_the_first_sync_and_the_next(shop: Shop) -> None:
    said = shop.ok("sync")
    lines = [line.split() for line in said.out.splitlines()]
    assert lines[0] == ["table", "mode", "read", "inserted", "updated", "deleted", "invalid", "status"]
    assert ["main.customer", "upsert", "2", "2", "·", "·", "·", "done"] in lines
    assert "done in" in said.err
    shop.sql("update customer set city = 'Rome' where id = 2; delete from customer where id = 1;")
    shop.sql("insert into customer values (3, 'Cy', null)")
    assert report(shop, "sync") == {"customer": ("done", 2, 1, 1, 1), "order": ("done", 2, 0, 0, 0)}
    sql = "select id, city from shop.customer where not _instep_deleted order by id"
    assert shop.json("query", sql)["rows"] == [{"id": 2, "city": "Rome"}, {"id": 3, "city": None}]
    assert [line.split(":")[0] for line in shop.ok("verify").out.splitlines()] == [
        "equal   main.customer", "equal   main.order", "compared by local",
    ]  # fmt: skip
    [status] = shop.json("status")["connections"]
    assert (status["last_run"]["status"], {t["status"] for t in status["tables"]}) == ("done", {"done"})


def test_only_the_named_table(shop: Shop) -> None:
    shop.applied()
    assert report(shop, "sync", "--table", "main.order") == {"order": ("done", 2, 2, 0, 0)}
    assert shop.json("query", "select * from shop.customer")["rows"] == []


def test_verify_names_what_differs_and_is_1(shop: Shop) -> None:
    shop.ok("sync")
    shop.sql("update customer set name = 'Bob' where id = 2; delete from customer where id = 1;")
    said = shop.run("verify")
    assert said.code == 1
    assert "DIFFERS main.customer" in said.out
    assert "equal   main.order" in said.out
    assert "differs (1 rows): key 2" in said.out
    assert shop.run("verify", "--table", "main.order").code == 0
    tables = {t["table"]: t["equal"] for t in shop.run("verify", "--output", "json").json["tables"]}
    assert tables == {"main.customer": False, "main.order": True}


def test_verify_counts_what_is_held_and_is_7(shop: Shop) -> None:
    shop.sql("create table n (id int primary key, v int); insert into n values (1, 'x'), (2, 2);")
    shop.ok("sync")
    said = shop.run("verify", "--table", "main.n")
    assert (said.code, said.out) == (
        7,
        "equal, 1 value quarantined  main.n: 2 rows in the source, 2 in the destination\ncompared by local\n",
    )
    (found,) = shop.run("verify", "--table", "main.n", "--output", "json").json["tables"]
    assert (found["equal"], found["held"], found["skipped"]) == (True, 1, "")
    assert shop.run("verify", "--table", "main.order").code == 0


def test_a_held_change_stops_nothing_and_an_applied_one_is_filled(shop: Shop) -> None:
    shop.ok("sync")
    shop.sql(CHANGED)
    shop.sql("update \"order\" set note = 'gift'")
    said = shop.ok("sync")
    assert "1 change(s) wait for a review" in said.err
    assert list(shop.changes()) == [REMOVED]
    assert shop.json("query", 'select distinct note from shop."order"')["rows"] == [{"note": "gift"}]
    assert shop.json("query", "select city from shop.customer where id = 1")["rows"] == [{"city": "Oslo"}]
    assert report(shop, "backfill", "main.order")["order"][:2] == ("done", 2)
    assert shop.run("verify", "-t", "main.order").code == 0


def test_a_value_that_does_not_fit_is_held_and_said(shop: Shop) -> None:
    shop.ok("sync")
    shop.sql("insert into \"order\" values (3, 1, 'many')")
    said = shop.ok("sync")
    [line] = [line.split() for line in said.out.splitlines() if line.startswith("main.order")]
    assert line[-2:] == ["1", "done"]
    assert "main.order: 1 value(s) or rows in quarantine" in shop.ok("status").out


def test_one_table_that_fails_is_6_and_the_others_are_done(shop: Shop) -> None:
    file = shop.folder / "instep.yml"
    file.write_text(
        file.read_text().replace("policy: careful}", "policy: careful, tables: {main.order: {on_invalid_value: fail}}}")
    )
    shop.ok("sync")
    shop.sql("insert into \"order\" values (3, 1, 'many'); insert into customer values (3, 'Cy', null);")
    said = shop.run("sync")
    assert said.code == 6, said
    assert "main.order: " in said.out
    assert shop.json("query", "select count(*) as n from shop.customer")["rows"] == [{"n": 3}]
    assert shop.json("query", 'select count(*) as n from shop."order"')["rows"] == [{"n": 2}]
    assert "main.order: failed" in shop.ok("status").out
    assert shop.run("sync", "-t", "main.order").code == 1, "all that was asked for failed"


def test_a_paused_table_is_left_alone(shop: Shop) -> None:
    shop.ok("sync")
    shop.ok("pause", "--table", "main.order", "--reason", "later")
    shop.sql('delete from "order"')
    said = shop.ok("sync")
    assert "main.order: later" in said.out
    assert report(shop, "sync")["order"][0] == "paused"
    shop.ok("resume", "--table", "main.order")
    assert report(shop, "sync")["order"] == ("done", 0, 0, 0, 2)


def test_a_table_that_nobody_knows(shop: Shop) -> None:
    shop.ok("sync")
    for words in (("sync", "--table", "main.nothing"), ("backfill", "main.nothing"), ("verify", "-t", "main.nothing")):
        said = shop.run(*words)
        assert (said.code, "main.nothing" in said.err) == (1, True), (words, said)


def test_a_long_story_in_a_pipe_is_told_without_ansi(shop: Shop) -> None:
    shop.sql('create table "we[b]ird" (id integer primary key, "a[/]b" text); insert into "we[b]ird" values (1, \'x\')')
    said = shop.ok("sync", "--full")
    assert "main.we[b]ird" in said.out
    assert "\x1b" not in said.out + said.err
    assert shop.ok("verify").out.count("equal") == 3
