"""Changes as people look for them: by text, by regular expression, by view, and counted; by few statements however many
there are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event
from store_world import Clock, finding

from instep.errors import InstepError, SchemaError
from instep.operations.values import ChangeView
from instep.store.server.change_pages import ChangeSearch, views_of
from instep.store.store import Store
from many_changes import fill

VIEWS: tuple[ChangeView, ...] = (
    "review", "blocked", "snoozed", "pending", "applied", "auto_applied", "rejected", "ignored", "obsolete",
)  # fmt: skip


@contextmanager
def read(store: Store) -> Iterator[list[str]]:
    """Collect the statements that the store is asked."""
    found: list[str] = []

    def note(*given: object) -> None:
        if str(given[2]).startswith("SELECT"):
            found.append(str(given[2]))

    event.listen(store._db.engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(store._db.engine, "before_cursor_execute", note)


def all_in_all(store: Store, clock: Clock) -> dict[ChangeView, list[str]]:
    """Record a change of each view."""
    actions = ["review", "pause_table", "review", "apply", "review", "apply", "review", "ignore", "review"]
    found = store.reviews.record(
        "c", [finding(name, column=name, action=action) for name, action in zip(VIEWS, actions, strict=True)], "f"
    )
    ids = {one.column: one.id for one in found}
    store.reviews.snooze_many([ids["snoozed"]], clock() + timedelta(hours=1))
    store.reviews.decide(ids["applied"], "approved", "ann")
    store.reviews.applied([ids["applied"], ids["auto_applied"]])
    store.reviews.decide(ids["rejected"], "rejected", "ann")
    store.reviews.obsolete([ids["obsolete"]])
    return {view: [ids[view], *([ids["blocked"]] if view == "review" else [])] for view in VIEWS}


def test_each_change_is_in_its_view_and_counted_there(any_store: Store, clock: Clock) -> None:
    expected = all_in_all(any_store, clock)
    for view in VIEWS:
        assert {one.id for one in any_store.changes.page(ChangeSearch(view=view))} == set(expected[view]), view
        assert any_store.changes.counts(ChangeSearch(view=view)).total == len(expected[view]), view
    assert any_store.changes.counts(ChangeSearch()).views == {view: len(ids) for view, ids in expected.items()}
    clock.forward(7200)
    assert expected["snoozed"][0] in {one.id for one in any_store.changes.page(ChangeSearch(view="review"))}


@given(
    status=st.sampled_from(["open", "approved", "rejected", "applied", "obsolete"]),
    action=st.sampled_from(["apply", "ignore", "review", "pause_table", "pause_connection"]),
    decided=st.booleans(),
    asleep=st.booleans(),
)
def test_every_change_has_a_view(status: str, action: str, decided: bool, asleep: bool) -> None:
    found = views_of(status, action, decided, asleep)
    assert len(set(found) - {"blocked"}) == 1
    assert set(found) <= set(VIEWS)


def names(store: Store, text: str) -> set[str]:
    return {one.column for one in store.changes.page(ChangeSearch(text=text))}


def test_a_text_is_a_part_of_a_name_and_no_pattern(any_store: Store) -> None:
    given = ("Mail", "e_mail", "e%", "exmail", "Größe")
    any_store.reviews.record("shop", [finding(name, column=name) for name in given], "f")
    assert names(any_store, "mail") == {"Mail", "e_mail", "exmail"}
    assert names(any_store, "e_m") == {"e_mail"}
    assert names(any_store, "%") == {"e%"}
    assert names(any_store, "Größe") == {"Größe"}
    assert names(any_store, "SHOP") == set(given), "the connection's name counts"
    assert names(any_store, "orders.mail") == {"Mail"}
    assert names(any_store, "'; drop table reviews; --") == set()


def test_a_regular_expression_fits_all_of_a_name(any_store: Store) -> None:
    any_store.reviews.record("shop", [finding(name, column=name) for name in ("a_id", "b_id", "id_c")], "f")
    assert names(any_store, r"re:.*_id") == {"a_id", "b_id"}
    assert names(any_store, r"re:public\.orders") == {"a_id", "b_id", "id_c"}
    assert any_store.changes.counts(ChangeSearch(text=r"re:.*_id")).total == 2
    first = any_store.changes.page(ChangeSearch(text=r"re:.*_id"), limit=1)
    rest = any_store.changes.page(ChangeSearch(text=r"re:.*_id"), (first[0].first_seen, first[0].id))
    assert {one.column for one in (*first, *rest)} == {"a_id", "b_id"}


@pytest.mark.parametrize("text", ["re:(a+)+$", "re:(a|a)*b", "re:(.*)*x", "re:[", "re:" + "a?" * 30, r"re:(a)\1"])
def test_an_expression_that_may_be_slow_is_refused(store: Store, text: str) -> None:
    store.reviews.record("c", [finding("k", column="a" * 60)], "f")
    for ask in (store.changes.page, store.changes.counts):
        with pytest.raises(SchemaError, match="regular expression"):
            ask(ChangeSearch(text=text))


def test_the_same_change_elsewhere_follows_its_words(any_store: Store) -> None:
    """A change that is seen again may be told in other words; then it is another one's same no more."""
    for name in ("a", "b"):
        any_store.reviews.record(name, [finding("x", column="x")], "f")
    [of_a] = any_store.reviews.find("a")
    assert any_store.changes.count_elsewhere([of_a]) == {of_a.id: 1}
    any_store.reviews.record("b", [replace(finding("x", column="x"), summary="in other words")], "f")
    assert any_store.changes.count_elsewhere([of_a]) == {of_a.id: 0}


def test_the_same_change_elsewhere_counts_connections(any_store: Store) -> None:
    for name in ("a", "b", "c"):
        any_store.reviews.record(name, [finding(name, column="x"), finding(f"{name}2", column=name)], "f")
    [of_a] = any_store.changes.page(ChangeSearch({"a"}, text="orders.x"))
    [own] = any_store.changes.page(ChangeSearch({"a"}, text="orders.a"))
    assert any_store.changes.count_elsewhere([of_a, own]) == {of_a.id: 2, own.id: 0}
    assert any_store.changes.count_elsewhere([of_a], {"a", "b"}) == {of_a.id: 1}, "hidden ones are not counted"


def test_an_expression_may_fit_more_names_than_one_statement_takes(any_store: Store) -> None:
    any_store.reviews.record("c", [finding(f"k{n}", column=f"col_{n}") for n in range(600)], "f")
    found = any_store.changes.page(ChangeSearch(text="re:.*col_.*"), limit=5)
    again = any_store.changes.page(ChangeSearch(), limit=5)
    assert [one.id for one in found] == [one.id for one in again]
    assert len(any_store.changes.page(ChangeSearch(text="re:.*col_.*"), limit=None)) == 600


def test_changes_of_one_detection_have_one_time(store: Store) -> None:
    found = store.reviews.record("c", [finding(name, column=name) for name in "abc"], "f")
    assert len({one.first_seen for one in found}) == 1


@pytest.mark.parametrize("text", ["", "col_7", r"re:.*\.col_3\d", "nothing has this name"])
def test_fifty_thousand_changes_take_as_many_statements_as_few(store: Store, text: str) -> None:
    """The time is measured and not asserted; see the report of the page."""
    fill(store, 50_000, 5_000)
    search = ChangeSearch(view="review", text=text)
    with read(store) as page:
        found = store.changes.page(search)
    with read(store) as beside:
        store.changes.count_elsewhere(found)
        store.changes.rows(found)
        store.comments.counts([one.id for one in found])
    with read(store) as counted:
        total = store.changes.counts(search).total
    assert len(found) <= 100
    assert total >= len(found)
    assert (len(page) <= 3, len(counted) == 1, len(beside) <= 3) == (True, True, True)


def test_comments_stand_with_the_change_in_order(any_store: Store, clock: Clock) -> None:
    one, other = any_store.reviews.record("c", [finding("k", column="a"), finding("l", column="b")], "f")
    for text in ("first", "second"):
        any_store.comments.add(one, "ann", text)
        clock.forward(1)
    assert [(it.who, it.text) for it in any_store.comments.find(one.id)] == [("ann", "first"), ("ann", "second")]
    assert any_store.comments.counts([one.id, other.id]) == {one.id: 2}
    [second] = any_store.comments.find(one.id, any_store.comments.find(one.id)[0].number)
    assert second.text == "second"


def test_an_assignee_is_found(any_store: Store) -> None:
    one, _ = any_store.reviews.record("c", [finding("k", column="a"), finding("l", column="b")], "f")
    assert any_store.reviews.assign(one.id, "ann").assignee == "ann"
    assert [it.id for it in any_store.changes.page(ChangeSearch(assignee="ann"))] == [one.id]
    assert any_store.reviews.assign(one.id, "").assignee == ""


def test_a_key_has_filters_of_its_own(any_store: Store) -> None:
    any_store.filters.save("k-1", "mine", {"search": "a"})
    any_store.filters.save("k-1", "mine", {"search": "b"})
    any_store.filters.save("k-2", "mine", {"search": "c"})
    assert [(it.name, it.filter) for it in any_store.filters.find("k-1")] == [("mine", {"search": "b"})]
    assert any_store.filters.delete("k-1", "mine")
    assert not any_store.filters.delete("k-1", "mine")
    assert any_store.filters.find("k-2")


def test_saved_filters_are_bounded(store: Store) -> None:
    for number in range(100):
        store.filters.save("k", f"f{number}", {})
    store.filters.save("k", "f1", {"search": "again"})
    with pytest.raises(InstepError, match="100 saved filters"):
        store.filters.save("k", "one more", {})
