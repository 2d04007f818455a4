"""Work that is asked for: whose job is answered, what a forced sync stops, waiting for an end; and tables to be read
again, columns to be dropped."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selection_desk import Desk, desk

from instep.control.queue import ask, key_of
from instep.control.resync import ask as ask_again
from instep.control.resync import chosen, droppable
from instep.control.selection.schema_patch import NotListed
from instep.control.times import aware, utc
from instep.errors import Conflict, InstepError
from instep.model import Job, JobKind
from instep.store.store import Store

__all__ = ["desk"]
OPTIONS = st.dictionaries(st.text(max_size=5), st.booleans() | st.integers() | st.lists(st.text(max_size=3)))


def claimed(store: Store) -> Job:
    job = store.jobs.claim("w")
    assert job is not None
    return job


def told(store: Store) -> list[str]:
    return [e.type for e in store.events.after(connection="shop")]


@given(OPTIONS, OPTIONS)
def test_the_same_options_are_the_same_work(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert key_of(one) == key_of(dict(reversed(one.items()))), "their order says nothing"
    assert (key_of(one) == "") == (not one)
    if key_of(one) != key_of(other):
        assert one != other


# the options of two requests, whether they are one job
TWICE: list[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None, bool]] = [
    (None, {}, True), ({"full": True}, {"full": True}, True), ({"full": True}, None, False),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True), ({"tables": ["a"]}, {"tables": ["b"]}, False),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second", "same"), TWICE)
def test_what_waits_already_is_answered(
    store: Store, first: Mapping[str, Any] | None, second: Mapping[str, Any] | None, same: bool
) -> None:
    one, other = (ask(store, "shop", "sync", "ann", options) for options in (first, second))
    assert (one.new, other.new, one.job.id == other.job.id) == (True, not same, same)
    assert told(store).count("sync.requested") == (1 if same else 2), "a sync is told of once"
    assert ask(store, "twin", "sync", "ann", first).new, "another connection's is another one"


WORDS: list[tuple[JobKind, bool]] = [
    ("undo", True), ("discard_quarantine", True), ("verify", False), ("replay_quarantine", False),
    ("delete_connection", False), ("set_key", True), ("set_cursor", True), ("restore", True),
    ("list_savepoints", False),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "own"), WORDS)
def test_where_people_are_counted_each_has_a_job(store: Store, kind: JobKind, own: bool) -> None:
    asked = [ask(store, "shop", kind, who, {"ids": ["q-1"]}).job for who in ("ann", "bob", "ann", "bob")]
    assert len({job.id for job in asked}) == (2 if own else 1)
    assert {job.who for job in asked} == ({"ann", "bob"} if own else {"ann"})
    assert ask(store, "shop", kind, "ann", {"ids": ["q-2"]}).new


def test_only_syncs_are_told_of(store: Store) -> None:
    for kind in ("detect", "backfill", "plan"):
        assert ask(store, "shop", kind, "ann").new
    assert "sync.requested" not in told(store)


def test_another_kind_of_work_keeps_no_sync_away(store: Store) -> None:
    ask(store, "shop", "detect", "ann")
    claimed(store)
    assert ask(store, "shop", "sync", "ann").new


MOMENTS = [
    ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)), ("2026-03-01T08:30", datetime(2026, 3, 1, 8, 30, tzinfo=UTC)),
    ("2026-03-01T08:30+02:00", datetime(2026, 3, 1, 6, 30, tzinfo=UTC)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "at"), MOMENTS)
def test_times_without_an_offset_are_utc(text: str, at: datetime) -> None:
    assert utc(text) == at


@given(st.datetimes() | st.datetimes(timezones=st.timezones()))
def test_no_time_is_moved(at: datetime) -> None:
    found = aware(at)
    assert found.replace(tzinfo=None) == at.replace(tzinfo=None)
    assert found.tzinfo == (at.tzinfo or UTC)
    assert aware(found) == found
    assert found - timedelta(0) == found


@pytest.fixture
def loaded(desk: Desk) -> Desk:
    """Two accepted tables, of which one and a column of the other are switched off."""
    desk.sql("create table table_2 (a text)")
    desk.detect()
    desk.switch("off", "main.table_2", "main.table_1.column_2")
    return desk


# what is to be read again, the tables that are meant or what is wrong
SCOPES: list[tuple[Any, list[str] | str]] = [
    (None, ["table_1"]), ({"main": ["table_1"]}, ["table_1"]),
    ({"main": ["table_2", "table_1"]}, ["table_2", "table_1"]),
    ({}, "names no table"), ({"main": []}, "names no table"), ({"main": ["table_1"], "other": []}, "names no table"),
    ({"main": ["table_3"]}, "no loaded table main.table_3"), ({"other": ["table_1"]}, "no loaded table other.table_1"),
]  # fmt: skip


def test_what_is_to_be_read_again(loaded: Desk) -> None:
    with loaded.app() as app:
        place = loaded.place(app)
        for scope, wanted in SCOPES:
            if isinstance(wanted, str):
                with pytest.raises(InstepError, match=wanted) as error:
                    chosen(place, scope)
                assert error.value.hint
                assert isinstance(error.value, NotListed) == ("loaded" in wanted)
            else:
                assert [name for _, name in chosen(place, scope)] == wanted, scope
        refs = chosen(place, None)
        before = len(app.store.backfills.waiting("shop"))
        new = ask_again(app.store, "shop", refs, "ann", whole=True)
        assert (new, ask_again(app.store, "shop", refs, "bo")) == (1, 0), "what waits already is not asked for twice"
        assert len(app.store.backfills.waiting("shop")) == before + 1
        asked = [e.data for e in app.store.events.after(connection="shop") if "tables" in e.data and "who" in e.data]
        assert [(list(one["tables"]), one["who"]) for one in asked[-2:]] == [([], "ann"), (["main.table_1"], "bo")]


# columns that are to be dropped, their paths or what is wrong
DROPPED: list[tuple[tuple[str, str], list[str], list[str] | str]] = [
    (("main", "table_1"), ["column_2"], ["main.table_1.column_2"]), (("main", "table_1"), [], []),
    (("main", "table_1"), ["column_2", "column_1"], "column_1 is not blocked"),
    (("main", "table_1"), ["column_3"], "has no column main.table_1.column_3"),
    (("main", "none"), ["a"], "has no column main.none.a"),
]  # fmt: skip


def test_only_what_is_off_is_dropped(loaded: Desk) -> None:
    with loaded.app() as app:
        place = loaded.place(app)
        for ref, names, wanted in DROPPED:
            if isinstance(wanted, list):
                assert droppable(place, {ref: names}) == wanted
                continue
            with pytest.raises(InstepError, match=wanted) as error:
                droppable(place, {ref: names})
            assert isinstance(error.value, Conflict) == ("blocked" in wanted)
