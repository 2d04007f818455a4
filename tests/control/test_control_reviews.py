"""A person's answers: who may be asked, what is found, and what an answer leaves behind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from control_world import ITEM, ORDER, events, found, recorded

from instep.control.reviews import ChangeFilter, answer, choose, reopen, snooze, until
from instep.errors import Conflict, InstepError
from instep.model import Review
from instep.store.store import Store
from open_changes import waiting


def find(store: Store, ids: Sequence[str], connection: str | None, patterns: Sequence[str]) -> list[Review]:
    """The changes with these ids, and the open ones whose kind or table.column fits a pattern."""
    return choose(store, ChangeFilter(tuple(ids), connection, tuple(patterns)))


ACTIONS = [("review", True), ("pause_table", True), ("pause_connection", True), ("apply", False), ("ignore", False)]


@pytest.mark.parametrize(("action", "waits"), ACTIONS)
def test_what_needs_a_person_waits(store: Store, action: str, waits: bool) -> None:
    [review] = recorded(store, found(action=action))
    assert waiting(store, "shop") == ([review] if waits else [])


def test_answered_and_closed_changes_wait_no_more(store: Store) -> None:
    reviews = recorded(store, *(found(column=c) for c in "abcd"))
    answer(store, reviews[:1], "approved", "ana")
    answer(store, reviews[1:2], "rejected", "ana")
    store.reviews.applied([reviews[2].id])
    assert [r.column for r in waiting(store, "shop")] == ["d"]


def test_each_connection_waits_for_itself(store: Store) -> None:
    [mine] = recorded(store, found())
    [other] = recorded(store, found(), connection="twin")
    assert waiting(store, "shop") == [mine]
    assert waiting(store, "twin") == [other]
    assert {r.id for r in waiting(store)} == {mine.id, other.id}


PATTERNS = [
    ("public.order.note", {"public.order.note"}),
    ("public.order.*", {"public.order.note", "public.order.total"}),
    ("*.note", {"public.order.note", "public.item.note"}),
    ("column.removed", {"public.order.total"}),
    ("table.*", {"public.item"}),
    ("public.item", {"public.item"}),
    ("public.Order.*", set()),
    ("*", {"public.order.note", "public.order.total", "public.item.note", "public.item"}),
]


@pytest.mark.parametrize(("pattern", "wanted"), PATTERNS)
def test_patterns_fit_kinds_and_paths(store: Store, pattern: str, wanted: set[str]) -> None:
    recorded(
        store, found(), found("column.removed", column="total"), found(table=ITEM), found("table.added", ITEM, "")
    )  # fmt: skip
    if not wanted:
        with pytest.raises(InstepError, match=re.escape(f"no open change fits {pattern}")):
            find(store, [], None, [pattern])
        return
    assert {r.summary.split()[0] for r in find(store, [], None, [pattern])} == wanted


def test_ids_and_patterns_add_up_and_nothing_is_found_twice(store: Store) -> None:
    first, second = recorded(store, found(), found(table=ITEM))
    assert find(store, [first.id, first.id], None, ["*.order.*"]) == [first]
    assert {r.id for r in find(store, [second.id[:5]], None, ["*.order.*"])} == {first.id, second.id}


def test_patterns_find_open_changes_only_and_ids_any(store: Store) -> None:
    [review] = answer(store, recorded(store, found()), "rejected", "ana")
    with pytest.raises(InstepError, match=r"no open change fits \*") as error:
        find(store, [], None, ["*"])
    assert "changes list --all" in error.value.hint
    with pytest.raises(InstepError, match="no change was named"):
        find(store, [], None, [])
    assert find(store, [review.id], None, []) == [review]


def test_a_connection_narrows_patterns(store: Store) -> None:
    recorded(store, found())
    [other] = recorded(store, found(), connection="twin")
    assert find(store, [], "twin", ["*"]) == [other]


def test_an_answer_is_recorded_with_its_event(store: Store) -> None:
    yes, no = recorded(store, found(), found(table=ITEM))
    [done] = answer(store, [yes], "approved", "ana")
    answer(store, [no], "rejected", "bo")
    assert (done.status, done.decided_by) == ("approved", "ana")
    assert events(store) == [f"change.approved {yes.id}", f"change.rejected {no.id}"]


def test_answers_are_given_together_or_not_at_all(store: Store) -> None:
    fresh, old = recorded(store, found(), found(table=ORDER, column="gone"))
    store.reviews.applied([old.id])
    with pytest.raises(Conflict, match="already applied"):
        answer(store, [fresh, old], "approved", "ana")
    assert store.reviews.get(fresh.id).status == "open"
    assert events(store) == []


def test_a_mind_may_be_changed_until_it_is_applied(store: Store) -> None:
    reviews = recorded(store, found())
    answer(store, reviews, "rejected", "ana")
    assert answer(store, reviews, "approved", "ana")[0].status == "approved"


NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TIMES = [
    ("90m", None, datetime(2026, 3, 1, 13, 30, tzinfo=UTC)),
    ("4h", None, datetime(2026, 3, 1, 16, 0, tzinfo=UTC)),
    (" 3d ", None, datetime(2026, 3, 4, 12, 0, tzinfo=UTC)),
    ("2w", None, datetime(2026, 3, 15, 12, 0, tzinfo=UTC)),
    (None, "2026-03-02", datetime(2026, 3, 2, tzinfo=UTC)),
    (None, "2026-03-02T08:30", datetime(2026, 3, 2, 8, 30, tzinfo=UTC)),
    (None, "2026-03-02T08:30+02:00", datetime(2026, 3, 2, 6, 30, tzinfo=UTC)),
    ("3", None, None),
    ("0d", None, None),
    ("-1d", None, None),
    ("99999w", None, None),
    (None, "tomorrow", None),
    (None, "2026-03-01", None),
    ("1d", "2026-03-02", None),
    (None, None, None),
]


@pytest.mark.parametrize(("duration", "date", "wanted"), TIMES)
def test_when_a_snooze_ends(duration: str | None, date: str | None, wanted: datetime | None) -> None:
    if wanted is not None:
        assert until(duration, date, NOW) == wanted
        return
    with pytest.raises(InstepError) as error:
        until(duration, date, NOW)
    assert error.value.hint


def test_snoozes_are_given_together_or_not_at_all(store: Store) -> None:
    fresh, old = recorded(store, found(), found(table=ITEM))
    store.reviews.applied([old.id])
    end = datetime.now(UTC) + timedelta(days=1)
    with pytest.raises(Conflict, match="is applied"):
        snooze(store, [fresh, old], end, "ana")
    assert waiting(store, "shop") == [fresh]
    assert snooze(store, [fresh], end, "ana")[0].snoozed_until == end
    assert waiting(store, "shop") == []
    assert events(store) == [f"change.snoozed {fresh.id}"]


def test_ignoring_rejects_with_an_event_of_its_own(store: Store) -> None:
    [done] = answer(store, recorded(store, found()), "ignored", "ana")
    assert (done.status, done.decided_by) == ("rejected", "ana")
    assert events(store) == [f"change.ignored {done.id}"]


def test_an_answer_or_a_snooze_is_taken_back(store: Store) -> None:
    reviews = recorded(store, *(found(column=c) for c in "abcd"))
    answer(store, reviews[:1], "approved", "ana")
    answer(store, reviews[1:2], "ignored", "ana")
    snooze(store, reviews[2:3], datetime.now(UTC) + timedelta(days=1), "ana")
    done = reopen(store, reviews, "bo")
    assert [(one.status, one.snoozed_until) for one in done] == [("open", None)] * 4
    assert done[0].decided_by == "ana", "who had answered stays recorded"
    told = [one.data for one in store.events.latest(types=("change.reopened",))]
    assert {one["change"] for one in told} == {one.id for one in reviews[:3]}, "the last one had no answer"
    assert {one["why"] for one in told} == {"reopened by bo"}


def test_what_is_applied_is_not_reopened(store: Store) -> None:
    [first, second] = recorded(store, found(column="a"), found(column="b"))
    answer(store, [first], "rejected", "ana")
    store.reviews.applied([second.id])
    with pytest.raises(Conflict, match="already applied"):
        reopen(store, [first, second], "bo")
    assert store.reviews.get(first.id).status == "rejected", "all or none"
