"""The compatibility table, and what applies and takes back each sort of patch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from rollouts_world import ACCEPTED, EVERY, SEEN, Fleet, see, table

from instep.control.rollouts.changes import ChangePatch, change_patch
from instep.control.rollouts.create import RolloutOrder, create, draft, patch_of
from instep.control.rollouts.gates import DEFAULT
from instep.control.rollouts.patch import CompatibilityLine
from instep.control.rollouts.policies import policy_patch
from instep.control.rollouts.selections import SelectionPatch
from instep.errors import InstepError, SchemaError
from instep.model import Review
from instep.schema.catalog.catalog import Catalog
from instep.store.catalogs.reviews import DetectedChange

Make = Callable[[int], Fleet]
CURRENCY = "column.added:main.orders.currency"
ADDED = "column main.orders.currency added (string)"


def found(kind: str = "column.added", column: str = "currency", summary: str = ADDED) -> DetectedChange:
    return DetectedChange(
        f"{kind} {column} {summary}", kind, ("main", "orders"), column, summary, {}, "review", "r", "why"
    )


def waits(shop: Fleet, name: str, *findings: DetectedChange) -> list[Review]:
    return shop.store.reviews.record(name, findings or (found(),), "f")


def test_a_change_over_connections_that_see_it_differently(fleet: Make) -> None:
    shop = fleet(7)
    for name in ("c000", "c001", "c004", "c005"):
        waits(shop, name)
    waits(shop, "c002", found(summary="column main.orders.currency added (int32)"))
    shop.store.accepted.add("c003", SEEN, who="test", why="in")
    shop.store.reviews.decide(waits(shop, "c004")[0].id, "rejected", "bo")
    shop.store.pauses.pause("c005", "its key changed")
    patch = change_patch(shop.store, "approved", CURRENCY, shop.names)
    assert patch.text == f"{ADDED}: approved"
    fits = {name: patch.line(name) for name in shop.names}
    assert {name: line.fit for name, line in fits.items()} == {
        "c000": "applies", "c001": "applies", "c002": "conflict", "c003": "already", "c004": "undecided",
        "c005": "undecided", "c006": "conflict",
    }  # fmt: skip
    assert fits["c002"].why == "its change is another one: column main.orders.currency added (int32)"
    assert fits["c004"].why.endswith("was rejected by bo: settle it there first")
    assert fits["c005"].why == "the connection is paused: its key changed"
    assert "has no such change" in fits["c006"].why


@pytest.mark.parametrize("verdict", ["approved", "rejected"])
def test_an_answer_is_given_and_taken_back(fleet: Make, verdict: Any) -> None:
    shop = fleet(1)
    [review] = waits(shop, "c000")
    patch = change_patch(shop.store, verdict, review.id, shop.names)
    before = patch.apply("c000", "ann")
    assert shop.store.reviews.get(review.id).status == verdict
    assert patch.line("c000").fit == ("applies" if verdict == "approved" else "already")
    assert patch.undone_by("c000", before) == ""
    patch.take_back("c000", before, "ann")
    assert shop.store.reviews.get(review.id).status == "open"


def test_what_was_carried_out_is_undone_at_the_destination_first(fleet: Make) -> None:
    shop = fleet(1)
    [review] = waits(shop, "c000")
    patch = change_patch(shop.store, "approved", CURRENCY, shop.names)
    before = patch.apply("c000", "ann")
    shop.store.reviews.applied([review.id])
    shop.store.accepted.add("c000", SEEN, who="test", why="sync")
    assert patch.line("c000") == CompatibilityLine("already", "applied before")
    assert patch.undone_by("c000", before) == review.id


def test_an_approval_of_a_person_before_the_rollout_stays_when_it_is_taken_back(fleet: Make) -> None:
    shop = fleet(1)
    [review] = waits(shop, "c000")
    shop.store.reviews.decide(review.id, "approved", "bo")
    patch = change_patch(shop.store, "approved", CURRENCY, shop.names)
    patch.take_back("c000", patch.apply("c000", "ann"), "ann")
    assert shop.store.reviews.get(review.id).status == "approved"


@pytest.mark.parametrize(
    ("text", "error"),
    [("column.addd:x", "is not a kind"), ("column.added:main.x.y", "none of 1"), ("c-9", "no change")],
)
def test_changes_that_there_are_not(fleet: Make, text: str, error: str) -> None:
    shop = fleet(1)
    with pytest.raises(InstepError, match=error):
        change_patch(shop.store, "approved", text, shop.names)


LINES = [
    (("on", "main.refunds"), "applies", "gets its first load"),
    (("on", "main.orders"), "already", "main.orders on already"),
    (("on", "main.orders.note"), "already", ""),
    (("on", "main.orders.currency"), "applies", "comes in at the next sync"),
    (("off", "main.orders"), "applies", "its rows stay"),
    (("off", "main.orders.note"), "applies", "new rows have NULL"),
    (("off", "main.orders.id"), "conflict", "is in the key"),
    (("hash", "main.orders.note"), "conflict", "has no salt"),
    (("off", "main.refund"), "already", "its source has no such object"),
    (("on", "main.refund"), "conflict", "did you mean main.refunds?"),
]  # fmt: skip


@pytest.mark.parametrize(("turn", "fit", "why"), LINES, ids=lambda value: str(value))
def test_how_a_selection_fits(fleet: Make, turn: Any, fit: str, why: str) -> None:
    shop = fleet(1)
    line = SelectionPatch(shop.project, shop.store, (turn,)).line("c000")
    assert line.fit == fit
    assert why in line.why


def test_a_selection_goes_back_to_what_was_switched_before(fleet: Make) -> None:
    shop = fleet(1)
    turns: Any = (("off", "main.orders"), ("on", "main.refunds"))
    first = SelectionPatch(shop.project, shop.store, (("on", "main.refunds"),))
    first.apply("c000", "bo")
    patch = SelectionPatch(shop.project, shop.store, turns)
    was = {(s.path, s.enabled) for s in shop.store.switches.of("c000")}
    before = patch.apply("c000", "ann")
    assert {(s.path, s.enabled) for s in shop.store.switches.of("c000")} == {
        ("main.orders", False), ("main.refunds", True),
    }  # fmt: skip
    patch.take_back("c000", before, "ann")
    assert {(s.path, s.enabled) for s in shop.store.switches.of("c000")} == was


def test_nothing_is_known_before_the_first_detection(fleet: Make) -> None:
    shop = fleet(1)
    see(shop.store, "c000", Catalog())
    shop.store.accepted.add("c000", Catalog(), who="test", why="empty")
    assert "detect it first" in shop.patch.line("c000").why


@dataclass
class Documents:
    """Connections that are kept as documents beside the project file."""

    kept: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def manages(self, connection: str) -> bool:
        return connection in self.kept

    def policy_values(self, connection: str) -> Mapping[str, Any]:
        return self.kept[connection]

    def put(self, connection: str, said: Mapping[str, Any], who: str) -> None:
        self.kept[connection] = said


def test_a_policy_is_changed_where_it_is_managed(fleet: Make) -> None:
    shop, documents = fleet(2), Documents({"c000": {"policy": "allow_columns"}})
    patch = policy_patch(shop.project, "BLOCK_ALL", documents)
    assert patch.line("c000").fit == "applies"
    assert patch.line("c001").why.endswith("manages it: write `policy: block_all` there")
    before = patch.apply("c000", "ann")
    assert documents.kept == {"c000": {"policy": "block_all"}}
    patch.take_back("c000", before, "ann")
    assert documents.kept == {"c000": {"policy": "allow_columns"}}
    assert policy_patch(shop.project, "allow all").line("c001").fit == "already"
    with pytest.raises(SchemaError, match="unknown preset"):
        policy_patch(shop.project, "sometimes")


def test_patches_come_back_from_the_store(fleet: Make) -> None:
    shop = fleet(1)
    waits(shop, "c000")
    for patch in (
        shop.patch,
        ChangePatch(shop.store, "approved", "column.added", "main.orders.currency", ADDED),
        policy_patch(shop.project, "approve"),
    ):
        assert patch_of(patch.to_dict(), shop.project, shop.store) == patch


NONE: list[Any] = [
    {}, {"magic": {}}, {"selection": []}, {"selection": [["drop", "x"]]}, {"selection": [["on", ""]]},
    {"selection": {"on": "x"}}, {"selection": 1}, {"change": {"verdict": "maybe"}}, {"change": {}},
    {"policy": "approve"}, {"policy": {}},
    {"change": {"verdict": "approved", "kind": "x", "object": "y", "summary": ""}},
    [], None,
    {"selection": [["on", "x"]], "policy": {"preset": "approve"}},
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("what", NONE, ids=str)
def test_what_is_no_patch(fleet: Make, what: Any) -> None:
    shop = fleet(1)
    with pytest.raises(InstepError, match="is not understood"):
        patch_of(what, shop.project, shop.store)


def test_the_canary_comes_first_and_has_to_be_of_the_group(fleet: Make) -> None:
    shop = fleet(5)
    order = RolloutOrder(shop.patch, EVERY, ("1", "2"), DEFAULT, ("c003",))
    waves = {m.connection: m.wave for m in draft(order, shop.names, "ann").members}
    assert waves == {"c003": 1, "c000": 2, "c001": 2, "c002": 3, "c004": 3}
    with pytest.raises(InstepError, match="zz is not in the group"):
        draft(replace(order, canary=("zz",)), shop.names, "ann")


def test_nothing_is_made_where_all_have_it(fleet: Make) -> None:
    shop = fleet(2)
    patch = SelectionPatch(shop.project, shop.store, (("on", "main.orders"),))
    with pytest.raises(InstepError, match="all 2 connections have it already"):
        create(shop.store, draft(RolloutOrder(patch, EVERY, ("rest",), DEFAULT), shop.names, "ann"))
    assert shop.store.rollouts.find() == []


def test_an_object_that_no_source_has_is_not_said_to_be_had_already(fleet: Make) -> None:
    shop = fleet(2)
    patch = SelectionPatch(shop.project, shop.store, (("off", "main.refund"),))
    with pytest.raises(InstepError, match="2 connection") as told:
        create(shop.store, draft(RolloutOrder(patch, EVERY, ("rest",), DEFAULT), shop.names, "ann"))
    assert "no such object" in told.value.message
    assert "already" not in told.value.message
    assert shop.store.rollouts.find() == []
    assert table("orders", "note") in ACCEPTED.tables
