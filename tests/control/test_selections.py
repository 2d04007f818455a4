"""Switching by command: what is listed, what is refused, and the six events of a schema config."""

from __future__ import annotations

from typing import Any

import pytest
from selection_desk import PROJECT, Desk, desk

from instep.errors import Blocked, InstepError

__all__ = ["desk"]


def config(handling: str, **tables: Any) -> Any:
    return {"schema_change_handling": handling, "schemas": {"main": {"enabled": True, "tables": tables}}}


ON, OFF = {"enabled": True}, {"enabled": False}


def test_nothing_is_listed_before_the_first_detection(desk: Desk) -> None:
    assert desk.tree() == {"schema_change_handling": "ALLOW_ALL", "schemas": {}}
    with pytest.raises(InstepError, match="nothing of connection shop is listed yet"):
        desk.switch("off", "main.table_1")


def test_the_six_events_of_a_schema_config(desk: Desk) -> None:
    desk.detect()
    assert desk.tree() == config("ALLOW_ALL", table_1=ON), "1: schemas and tables, no columns"
    desk.sql("create table table_2 (column_1 text, column_2 text)")
    desk.detect()
    assert desk.tree() == config("ALLOW_ALL", table_1=ON, table_2=ON), "2: a new table is on"
    both = {"column_1", "column_2"}
    assert desk.reads() == {"table_1": both, "table_2": both}
    desk.write("ALLOW_COLUMNS")
    assert desk.tree() == config("ALLOW_COLUMNS", table_1=ON, table_2=ON), "3: another handling changes nothing"
    desk.sql("create table table_3 (column_1 text, column_2 text)")
    desk.detect()
    assert desk.tree() == config("ALLOW_COLUMNS", table_1=ON, table_2=ON, table_3=OFF), "4: a new table is off"
    assert desk.reads() == {"table_1": both, "table_2": both}
    desk.switch("off", "main.table_1.column_1")
    touched = {"enabled": True, "columns": {"column_1": {"enabled": False, "hashed": False}}}
    assert desk.tree() == config("ALLOW_COLUMNS", table_1=touched, table_2=ON, table_3=OFF), "5: touched, so listed"
    desk.sql("alter table table_1 add column column_3 text")
    desk.detect()
    assert desk.tree() == config("ALLOW_COLUMNS", table_1=touched, table_2=ON, table_3=OFF), "6: new, on, not listed"
    assert desk.reads() == {"table_1": {"column_2", "column_3"}, "table_2": both}


def test_a_new_column_is_listed_off_under_block_all(desk: Desk) -> None:
    desk.write("BLOCK_ALL")
    desk.detect()
    desk.sql("alter table table_1 add column column_3 text; create table table_2 (id integer primary key)")
    desk.detect()
    off = {"column_3": {"enabled": False, "hashed": False}}
    assert desk.tree() == config("BLOCK_ALL", table_1={"enabled": True, "columns": off}, table_2=OFF)
    assert desk.why("main.table_1.column_3").startswith("off: not applied: listed as switched off")


def test_switching_on_outranks_every_rule(desk: Desk) -> None:
    desk.write("BLOCK_ALL")
    desk.detect()
    desk.sql("alter table table_1 add column column_3 text; create table table_2 (id integer primary key)")
    desk.detect()
    desk.switch("on", "main.table_1.column_3", "main.table_2")
    desk.detect()
    assert desk.reads() == {"table_1": {"column_1", "column_2", "column_3"}, "table_2": {"id"}}
    assert desk.why("main.table_2") == "on: switched on"


def test_a_rejected_addition_comes_in_once_it_is_switched_on(desk: Desk) -> None:
    from instep.control.reviews import answer

    desk.write("approve")
    desk.detect()
    desk.sql("alter table table_1 add column column_3 text")
    desk.detect()
    with desk.app() as app:
        answer(app.store, app.store.reviews.find("shop", ("open",)), "rejected", "ann")
    desk.detect()
    assert desk.reads() == {"table_1": {"column_1", "column_2"}}
    desk.switch("on", "main.table_1.column_3")
    desk.detect()
    assert desk.reads() == {"table_1": {"column_1", "column_2", "column_3"}}


def test_choices_outlive_a_table_that_is_made_again(desk: Desk) -> None:
    desk.sql("create table table_2 (id integer primary key)")
    desk.detect()
    desk.switch("off", "main.table_2")
    desk.sql("drop table table_2")
    for _ in range(3):
        desk.detect()
    assert desk.why("main.table_2") == "off: switched off; it is not at the source"
    desk.sql("create table table_2 (id integer primary key, more text)")
    desk.detect()
    assert desk.tree() == config("ALLOW_ALL", table_1=ON, table_2=OFF)
    assert set(desk.reads()) == {"table_1"}


def test_switching_off_never_removes(desk: Desk) -> None:
    desk.sql("create table table_2 (id integer primary key)")
    desk.detect()
    desk.switch("off", "main.table_2", "main.table_1.column_2")
    desk.sql("drop table table_2; alter table table_1 drop column column_2")
    for _ in range(3):
        desk.detect()
    with desk.app() as app:
        accepted = app.store.accepted.catalog("shop")
        assert [r.kind for r in app.store.reviews.find("shop") if r.kind.endswith(".removed")] == []
    assert {t.name: [c.name for c in t.live] for t in accepted.tables} == {
        "table_1": ["column_1", "column_2"], "table_2": ["id"],
    }  # fmt: skip


def test_a_schema_that_is_off_closes_its_tables(desk: Desk) -> None:
    desk.detect()
    desk.switch("off", "main")
    desk.switch("on", "main.table_1")
    assert desk.tree()["schemas"]["main"]["enabled"] is False
    assert desk.why("main.table_1") == "on: switched on; the schema main is switched off"
    assert desk.reads() == {}
    desk.switch("on", "main")
    assert set(desk.reads()) == {"table_1"}


KEYED = "create table t (id integer primary key, at integer not null, note text, email text)"
FILE = PROJECT.replace(
    'salt: "${env:SALT}"',
    'salt: "${env:SALT}", hash: ["*.email"], exclude: {tables: [main.gone], columns: [main.t.note]},\n'
    "  tables: {main.t: {cursor: at}, main.table_1: {enabled: true}}",
)
REFUSED: list[tuple[str, str, str, str, str]] = [
    ("the key", "off", "main.t.id", "main.t.id is in the key of its table", "`instep selection off main.t`"),
    ("the cursor", "off", "main.t.at", "is in the cursor of its table", "`instep selection off main.t`"),
    ("what the file says", "off", "main.table_1", "instep.yml:5: connections.shop.tables.main.table_1.enabled",
     '"main.table_1": {enabled: false}'),
    ("what the file excludes", "on", "main.gone", "instep.yml:4: connections.shop.exclude.tables.0",
     "take 'main.gone'"),
    ("a column that the file excludes", "on", "main.t.note", "instep.yml:4", "take 'main.t.note'"),
    ("what the file hashes", "unhash", "main.t.email", "instep.yml:4: connections.shop.hash.0", "take '*.email'"),
    ("a loaded key", "hash", "main.t.id", "cannot be hashed once it is loaded", "before the first load"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "verb", "path", "message", "hint"), REFUSED, ids=[r[0] for r in REFUSED])
def test_what_is_refused(desk: Desk, name: str, verb: str, path: str, message: str, hint: str) -> None:
    desk.write(text=FILE)
    desk.sql(f"{KEYED}; create table gone (id integer primary key)")
    desk.detect()
    with pytest.raises(Blocked) as error:
        desk.switch(verb, path)
    assert message in error.value.message
    assert hint in error.value.hint
    with desk.app() as app:
        assert app.store.switches.of("shop") == []


def test_hashing_needs_a_salt(desk: Desk) -> None:
    desk.write(text=PROJECT.replace(', salt: "${env:SALT}"', ""))
    desk.detect()
    with pytest.raises(Blocked, match="no salt to hash"):
        desk.switch("hash", "main.table_1.column_1")


def test_unknown_names_say_what_was_probably_meant(desk: Desk) -> None:
    desk.detect()
    with pytest.raises(InstepError) as error:
        desk.switch("off", "main.tabel_1")
    assert error.value.hint == "did you mean main.table_1?"
    with pytest.raises(InstepError, match="matches nothing"):
        desk.switch("off", match=("*.nope",))
    with pytest.raises(InstepError, match="only columns are hashed"):
        desk.switch("hash", "main.table_1")


def test_a_hashed_column_asks_for_its_table_again_and_becomes_text(desk: Desk) -> None:
    desk.sql("create table t (id integer primary key, age integer)")
    desk.detect()
    [step] = desk.switch("hash", "main.t.age")
    assert step.lines[0].startswith("rows that are loaded are in clear until the table is read again")
    desk.detect()
    with desk.app() as app:
        assert [(b.table, b.column) for b in app.store.backfills.waiting("shop")] == [(("main", "t"), "")]
        table = app.store.accepted.catalog("shop").get(("main", "t"))
    assert table is not None
    assert str(table.by_name["age"].type) == "string"
    assert desk.reads()["t"] == {"id", "#age"}


def test_a_column_that_is_read_again_is_filled_as_the_policy_says(desk: Desk) -> None:
    desk.write(text=PROJECT.replace("preset: PRESET", "preset: allow_all, backfill: column"))
    desk.sql(KEYED)
    desk.detect()
    desk.switch("off", "main.t.note")
    desk.detect()
    desk.switch("on", "main.t.note")
    with desk.app() as app:
        assert [(b.table[1], b.column) for b in app.store.backfills.waiting("shop")] == [("t", "")]


def test_switches_are_in_the_history(desk: Desk) -> None:
    desk.detect()
    desk.switch("off", match=("*.column_*",))
    assert desk.switch("off", "main.table_1.column_1") == [], "it is off already"
    with desk.app() as app:
        found = [e.data for e in app.store.events.after(connection="shop", types=("selection.changed",))]
    assert [(e["object"], e["choice"], e["who"]) for e in found] == [
        ("main.table_1.column_1", "off", "ann"), ("main.table_1.column_2", "off", "ann"),
    ]  # fmt: skip
