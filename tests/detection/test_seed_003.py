"""Schema change management, line by line of its document, over a real PostgreSQL. What is on purpose otherwise stands
in docs/reference/differences.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import replace as changed
from datetime import timedelta

import pytest
from detection_world import Base, text

from instep.control.pauses import resume
from instep.control.reviews import answer
from instep.errors import Blocked
from instep.sync.operations import set_key

MOVES = """
    create table bag (id integer primary key); insert into bag values (7);
    drop table box;
    alter table item add column vat integer; update item set vat = 5 where id = 1;
    insert into item values (2, 20, '2026-02-02', 6);
    alter table customer drop column city;
    alter table item alter column at type boolean using true;
"""
"""A stream that is new and one that is gone, a column that is new, one that is gone, one of another type."""
KINDS = ["column.added", "column.removed", "column.retyped", "table.added", "table.removed"]
BEFORE = {"box": ["id", "size"], "customer": ["city", "id", "name"], "item": ["at", "id", "price"]}
FIELDS = {**BEFORE, "customer": ["id", "name"], "item": ["at", "id", "price", "vat"]}


@dataclass(frozen=True)
class Setting:
    """`lake` afterwards, what is read (`accepted`), what waits, and whether the connection stands still."""

    word: str
    lake: dict[str, list[str]]
    accepted: list[str]
    waiting: list[str] = field(default_factory=list)
    paused: bool = False


SETTINGS = [
    Setting("Propagate field changes only", FIELDS, ["box", "customer", "item"]),
    Setting("Propagate all field and stream changes", {**FIELDS, "bag": ["id"]}, ["bag", "customer", "item"]),
    Setting("Approve all changes myself", BEFORE, ["box", "customer", "item"], KINDS),
    Setting("Stop future syncs", BEFORE, ["box", "customer", "item"], KINDS, True),
]


def said(setting: Setting | str, more: str = "") -> str:
    word = setting if isinstance(setting, str) else setting.word
    return f"detect_and_propagate_schema_changes: {word}{more}"


def later(base: Base) -> None:
    """The day after: a sync looks again."""
    base.now += timedelta(hours=24, seconds=1)


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS, ids=[s.word.split()[1] + s.word.split()[-1] for s in SETTINGS])
def test_each_setting_does_what_its_line_says(base: Base, setting: Setting) -> None:
    base.write(said(setting))
    assert base.do("sync").error == ""
    assert base.lake() == BEFORE
    base.sql(MOVES)
    later(base)
    error = base.do("sync").error
    assert ("is paused" in error) is setting.paused, error
    assert base.lake() == setting.lake
    assert (sorted(base.accepted()), base.waiting()) == (setting.accepted, setting.waiting)
    assert bool(base.paused()) is setting.paused
    assert base.rows("select id, size from shop.box") == [(1, 3)], "the data of a stream that is gone remain"
    if "vat" in setting.lake["item"]:
        assert base.rows("select id, vat from shop.item order by id") == [(1, 5), (2, 6)]
        kept = base.rows('select typeof(any_value("at")), count("at") from shop.item')
        assert kept == [("TIMESTAMP", 0)], "the type stays, and no invalid value goes in"
    if "bag" in setting.lake:
        assert base.rows("select id from shop.bag") == [(7,)], "a new stream comes with all of its data"
    if setting.waiting and not setting.paused:
        assert len(base.rows("select id from shop.item")) == 2, "syncs go on by the schema that was saved"


BREAKS = """
    alter table item drop constraint item_pkey;
    alter table customer drop column id;
    alter table box drop column size;
"""
"""A primary key, a column of one, and a cursor are gone."""


@pytest.mark.sampled
@pytest.mark.parametrize("word", ["propagate_columns", "propagate_fully", "ignore", "disable"])
def test_a_breaking_change_pauses_at_once_under_every_setting(told: Base, word: str) -> None:
    told.write(said(word, ", tables: {public.box: {cursor: size}}, notify: [{on: [paused], to: mail}]"))
    assert told.do("sync").error == ""
    told.sql(BREAKS)
    assert told.detect().error == ""
    breaking = [kind for kind in told.waiting() if kind.startswith(("key", "cursor"))]
    assert breaking == ["cursor.removed", "key.removed", "key.removed"]
    assert told.paused() != ""
    with told.app() as app:
        app.store.jobs.enqueue("shop", "sync")
        assert app.store.jobs.claim("worker") is None, "no sync begins"
        with pytest.raises(Blocked, match="is still open"):
            resume(app.store, "shop", "ann")
    told.turn(seconds=61)
    assert any("paused" in text(mail) for mail in told.mails())


def test_it_goes_on_once_the_key_is_chosen(base: Base) -> None:
    base.write(said("propagate_columns"))
    assert base.do("sync").error == ""
    base.sql("alter table item drop constraint item_pkey")
    assert base.detect().error == ""
    with base.app() as app:
        context = changed(app.sync_context("shop"), who="ann")
        made = set_key.prepare(context, "public.item", ["id"], "rebuild")
        assert "reloads the table" in " ".join(made.lines), "and the old rows are kept beside it"
        set_key.carry_out(context, made)
    assert base.paused() == "", "what the change had stopped goes on with its answer"
    assert base.do("sync").error == ""
    assert (base.paused(), base.waiting()) == ("", [])
    assert base.rows("select id, price from shop.item") == [(1, 10)]


def test_a_sync_looks_once_a_day_and_a_person_at_any_time(base: Base) -> None:
    base.write(said("propagate_fully"))
    assert base.do("sync").error == ""
    base.sql("create table bag (id integer primary key)")
    assert base.do("sync").error == ""
    assert "bag" not in base.lake(), "the last look was today"
    later(base)
    assert base.do("sync").error == ""
    assert "bag" in base.lake()
    base.sql("create table cup (id integer primary key)")
    ended = base.do("detect")
    assert (ended.error, ended.result["counts"]["tables"]["new"]) == ("", 1), "refreshing the source schema"
    base.sql("alter table item add column vat integer")
    assert base.do("sync").error == ""
    assert "cup" in base.lake()
    assert "vat" in base.lake()["item"], "no row is read by the old schema of its table, however young the look is"


def test_without_the_word_a_sync_looks_each_time(base: Base) -> None:
    base.write("policy: propagate_all")
    assert base.do("sync").error == ""
    base.sql("create table bag (id integer primary key)")
    assert base.do("sync").error == ""
    assert "bag" in base.lake()


# backfill | how the change was let in | the new value of a row that was not touched since
BACKFILLS = [
    ("disabled", "propagate_columns", None),
    ("enabled", "propagate_columns", 9),
    ("enabled", "ignore", 9),  # on purpose unlike the document: what a person approves needs its old values as much
    ("disabled", "ignore", None),
]


@pytest.mark.slow
@pytest.mark.parametrize(("backfill", "word", "value"), BACKFILLS)
def test_review_then_save_and_the_backfill(base: Base, backfill: str, word: str, value: int | None) -> None:
    base.write(said(word, f", backfill: {backfill}, tables: {{public.customer: {{cursor: id}}}}"))
    assert base.do("sync").error == ""
    base.sql("alter table customer add column age integer; update customer set age = 9")
    assert base.do("detect").error == ""
    if word == "ignore":
        assert (base.waiting(), "age" in base.lake()["customer"]) == (["column.added"], False)
        assert base.do("sync").error == ""
        assert "age" not in base.lake()["customer"], "nothing is propagated before it is approved"
        with base.app() as app:
            answer(app.store, app.store.reviews.find("shop", ("open",)), "approved", "ann")
    base.sql("insert into customer values (3, 'Cy', 'Rome', 8)")
    assert base.do("sync").error == ""
    assert base.rows("select id, age from shop.customer where id <> 2 order by id") == [(1, value), (3, 8)]


@pytest.mark.slow
@pytest.mark.parametrize("on", [True, False])
def test_notices_of_a_connection_are_a_switch(told: Base, on: bool) -> None:
    told.write(said("propagate_columns", f", notify_schema_changes: {str(on).lower()}"))
    assert told.do("sync").error == ""
    told.turn(seconds=61)
    told.mails()
    told.sql("alter table item add column vat integer")
    later(told)
    assert told.do("sync").error == ""
    told.turn(seconds=61)
    assert bool([m for m in told.mails() if "public.item.vat" in text(m)]) is on
