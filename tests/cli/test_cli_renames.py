"""Suspected renames as commands show them, and how they are answered."""

from __future__ import annotations

from typing import Any

import pytest
from cli_world import Shop

from instep.control.reviews import answer

PAIR = "city -> town: "
PATHS = ("main.customer.city", "main.customer.town")


@pytest.fixture
def suspected(shop: Shop) -> Shop:
    """Both sides are let in (or wait) by policy, and a proposal is open."""
    shop.applied()
    shop.sql("alter table customer rename column city to town")
    shop.ok("detect")
    return shop


def proposal(shop: Shop) -> Any:
    [found] = [c for c in shop.json("changes", "list")["changes"] if c["rule"] == "rename proposal"]
    return found


def test_everywhere_with_score_and_evidence(suspected: Shop) -> None:
    found = proposal(suspected)
    assert found["kind"] == "column.renamed"
    assert found["evidence"]["line"].startswith(PAIR)
    assert "same position" in found["evidence"]["evidence"]
    assert 0.8 <= found["evidence"]["score"] <= 1
    assert PAIR in suspected.ok("changes", "list").out.replace("\n", " ")
    shown = suspected.ok("changes", "show", found["id"]).out
    assert "same position" in shown and "evidence" in shown  # noqa: PT018
    planned = suspected.ok("plan").out
    assert "Suspected renames" in planned
    assert f"instep changes map {found['id']}" in planned
    [event] = [e for e in suspected.json("history")["events"] if e["type"] == "change.rename_suspected"]
    assert event["data"]["evidence"] == found["evidence"]["evidence"]


@pytest.mark.parametrize("verb", ["map", "approve"])
def test_map_takes_its_id_and_approving_it_is_mapping_it(suspected: Shop, verb: str) -> None:
    id = proposal(suspected)["id"]
    said = suspected.json("changes", verb, id)
    [said] = said.get("mapped", [said])
    assert (said["old"], said["new"]) == PATHS
    assert suspected.changes() == {}
    columns = suspected.json("query", "select * from shop.customer")["columns"]
    assert ("town" in columns, "city" in columns) == (True, False)
    done = suspected.json("changes", "show", id)
    assert (done["status"], bool(done["decided_by"])) == ("applied", True)


def test_one_that_is_approved_over_the_api_is_in_the_plan_and_done_by_a_sync(suspected: Shop) -> None:
    id = proposal(suspected)["id"]
    store = suspected.store()
    answer(store, [store.reviews.get(id)], "approved", "ann")
    assert "ann approved it: the next sync maps the two" in " ".join(suspected.ok("plan").out.split())
    suspected.ok("sync")
    assert suspected.json("changes", "show", id)["status"] == "applied"
    assert "Suspected renames" not in suspected.ok("plan").out


def test_rejecting_it_leaves_two_changes(suspected: Shop) -> None:
    suspected.ok("changes", "reject", proposal(suspected)["id"])
    suspected.ok("detect")
    rules = {c["rule"] for c in suspected.json("changes", "list")["changes"]}
    assert "rename proposal" not in rules
    assert "Suspected renames" not in suspected.ok("plan").out


def test_it_is_answered_by_itself(suspected: Shop) -> None:
    found = suspected.json("changes", "list", "--all")["changes"]
    said = suspected.run("changes", "approve", *(c["id"] for c in found if c["status"] == "open"))
    assert said.code == 3
    assert "answer it separately" in said.err
    suspected.ok("changes", "approve", "--match", "main.customer.*")
    assert proposal(suspected)["status"] == "open"


def test_only_a_proposal_stands_for_two_columns(suspected: Shop) -> None:
    other = next(c for c in suspected.json("changes", "list", "--all")["changes"] if c["kind"] == "column.removed")
    said = suspected.run("changes", "map", other["id"])
    assert said.code == 1
    assert "proposes no rename" in said.err


def test_a_proposal_about_tables_maps_them(shop: Shop) -> None:
    shop.applied()
    shop.sql("alter table customer rename to client")
    shop.ok("detect")
    said = shop.json("changes", "map", proposal(shop)["id"])
    assert (said["old"], said["new"]) == ("main.customer", "main.client")
    assert shop.changes() == {}
