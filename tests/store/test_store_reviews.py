from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from store_world import START, Clock, finding

from instep.errors import Conflict, InstepError
from instep.operations.values import EXISTING, ReviewStatus
from instep.store.catalogs.reviews import DetectedChange
from instep.store.store import Store


def test_a_finding_becomes_a_review(any_store: Store) -> None:
    (review,) = any_store.reviews.record("c", [finding("k1")], "f1")
    assert review.id.startswith("c-")
    assert len(review.id) == 8
    assert (review.status, review.seen, review.first_seen, review.source_fingerprint) == ("open", 1, START, "f1")
    assert (review.table, review.column, review.change["after"]) == (("public", "orders"), "total", "int64")
    assert (review.action, review.rule, review.modifiers) == ("review", "preset approve", {"backfill": "column"})
    assert any_store.reviews.get(review.id) == review


def test_ids_are_the_same_for_the_same_history(store: Store, tmp_path: object) -> None:
    with Store(f"sqlite:///{tmp_path}/twin.db") as twin:
        assert [r.id for r in store.reviews.record("c", [finding("k1"), finding("k2")], "f")] == [
            r.id for r in twin.reviews.record("c", [finding("k1"), finding("k2")], "f")
        ]


def test_ids_are_longer_where_another_change_has_the_short_one(store: Store, tmp_path: Path) -> None:
    by_start: dict[str, list[str]] = {}
    for key in map(str, range(30_000)):
        by_start.setdefault(hashlib.sha256(f"c\0{key}\x000".encode()).hexdigest()[:6], []).append(key)
    first, second = next(keys for keys in by_start.values() if len(keys) > 1)[:2]
    at_once = [r.id for r in store.reviews.record("c", [finding(first), finding(second), finding("k")], "f")]
    assert [len(one) for one in at_once] == [8, 9, 8]
    with Store(f"sqlite:///{tmp_path}/twin.db") as twin:
        twin.reviews.record("c", [finding(first)], "f")
        later = twin.reviews.record("c", [finding(first), finding(second), finding("k")], "f")
        assert [r.id for r in later] == at_once


def test_many_changes_are_recorded_at_once(any_store: Store) -> None:
    keys = [f"k{number}" for number in range(1_203)]
    recorded = any_store.reviews.record("c", [finding(key) for key in keys], "f")
    assert [r.key for r in recorded] == keys
    assert len({r.id for r in recorded}) == len(keys)


def test_reviews_are_found_by_kind(any_store: Store) -> None:
    any_store.reviews.record("c", [finding("k1"), replace(finding("k2"), kind="column.removed")], "f")
    assert {r.key for r in any_store.reviews.find("c", ("open",), kinds=("column.removed", "key.changed"))} == {"k2"}
    assert {r.key for r in any_store.reviews.find("c", ("open",))} == {"k1", "k2"}


def test_seeing_a_change_again_counts(any_store: Store, clock: Clock) -> None:
    any_store.reviews.record("c", [finding("k1")], "f1")
    clock.forward(60)
    (again,) = any_store.reviews.record("c", [finding("k1")], "f2")
    assert (again.seen, again.first_seen, again.source_fingerprint) == (2, START, "f2")
    (same,) = any_store.reviews.record("c", [finding("k1")], "f2", count=False)
    assert same.seen == 2


def test_an_open_change_is_decided_anew_and_a_decided_one_is_not(store: Store) -> None:
    ids = [r.id for r in store.reviews.record("c", [finding("open"), finding("no")], "f")]
    store.reviews.decide(ids[1], "rejected", "ana")
    now = [replace(finding(key, action="apply"), rule="rule 1") for key in ("open", "no")]
    opened, rejected = store.reviews.record("c", now, "f")
    assert (opened.action, opened.rule) == ("apply", "rule 1")
    assert (rejected.action, rejected.status, rejected.decided_by) == ("review", "rejected", "ana")
    assert [opened.id, rejected.id] == ids


@pytest.mark.parametrize("status", EXISTING)
def test_what_is_no_longer_seen_is_obsolete_and_comes_back_new(store: Store, status: ReviewStatus) -> None:
    (first,) = store.reviews.record("c", [finding("k1")], "f1")
    store.reviews.decide(first.id, status, "ana")
    assert store.reviews.record("c", [], "f2") == []
    assert store.reviews.get(first.id).status == "obsolete"
    (second,) = store.reviews.record("c", [finding("k1")], "f3")
    assert second.id != first.id
    assert (second.status, second.seen) == ("open", 1)


def test_changes_of_tables_that_could_not_be_seen_stay(store: Store) -> None:
    (first,) = store.reviews.record("c", [finding("k1", table="secret")], "f1")
    store.reviews.record("c", [], "f2", unseen=[("public", "secret")])
    assert store.reviews.get(first.id).status == "open"


def test_equal_findings_are_one_change(store: Store) -> None:
    one, same = store.reviews.record("c", [finding("k"), finding("k")], "f")
    assert one == same
    assert one.seen == 1


def test_connections_do_not_share_changes(store: Store) -> None:
    (mine,) = store.reviews.record("c", [finding("k")], "f")
    (other,) = store.reviews.record("d", [finding("k")], "f")
    assert mine.id != other.id
    store.reviews.record("d", [], "f")
    assert store.reviews.get(mine.id).status == "open"
    assert store.reviews.existing("d") == {}
    assert store.reviews.existing("c") == {"k": mine}


def test_applied_changes_are_closed(any_store: Store, clock: Clock) -> None:
    one, two = any_store.reviews.record("c", [finding("k1"), finding("k2")], "f")
    clock.forward(1)
    decided = any_store.reviews.decide(one.id, "approved", "ana")
    assert (decided.status, decided.decided_by, decided.decided_at) == ("approved", "ana", clock())
    any_store.reviews.applied([one.id])
    any_store.reviews.obsolete([one.id, two.id])
    assert {r.id: r.status for r in any_store.reviews.find("c")} == {one.id: "applied", two.id: "obsolete"}
    with pytest.raises(Conflict, match=f"change {one.id} is already applied: orders.total"):
        any_store.reviews.decide(one.id, "rejected", "bob")


def test_a_person_may_change_their_mind(store: Store) -> None:
    (review,) = store.reviews.record("c", [finding("k")], "f")
    store.reviews.decide(review.id, "approved", "ana")
    assert store.reviews.decide(review.id, "rejected", "bob").decided_by == "bob"


def test_find_filters(store: Store, clock: Clock) -> None:
    (old,) = store.reviews.record("c", [finding("k1")], "f")
    clock.forward(5)
    old, new = store.reviews.record("c", [finding("k1"), finding("k2")], "f")
    (other,) = store.reviews.record("d", [finding("k1")], "f")
    assert store.reviews.find("c") == [new, old]
    assert {r.id for r in store.reviews.find()} == {old.id, new.id, other.id}
    assert store.reviews.find("c", ["rejected"]) == []
    assert store.reviews.find("c", limit=1) == [new]


def test_changes_are_named_by_the_start_of_their_id(store: Store) -> None:
    keys = [finding(f"k{n}") for n in range(40)]
    found = store.reviews.record("c", keys, "f")
    one = found[0]
    assert store.reviews.get(one.id.removeprefix("c-")) == one
    assert store.reviews.get(one.id[:-1] if _alone(one.id[:-1], found) else one.id) == one
    with pytest.raises(InstepError, match=r"fits several changes: c-"):
        store.reviews.get("c-")
    for wrong in ("zzz", "%", "c-_"):
        with pytest.raises(InstepError, match=r"no change .* is known"):
            store.reviews.get(wrong)


def _alone(prefix: str, reviews: list) -> bool:  # type: ignore[type-arg]
    return sum(r.id.startswith(prefix) for r in reviews) == 1


def test_awkward_text_survives(store: Store) -> None:
    text = 'o\'brien "x" %s :p $1 \\ 名前 🙂'
    odd = DetectedChange(text, "column.added", (text, text), text, text, {text: [None, 1, text]}, "review", text, text)
    (review,) = store.reviews.record(text, [odd], text)
    assert (review.key, review.table, review.change) == (text, (text, text), {text: [None, 1, text]})
