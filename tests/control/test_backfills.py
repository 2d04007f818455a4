"""The end of backfills that nobody wants any more: which records and which jobs it takes along."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from instep.control.backfills import cancel
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import Int
from instep.store.catalogs.backfills import BY_PERSON
from instep.store.store import Store

ITEM = Table("main", "item", (Column("id", Int(64), key=1), Column("a", Int(64)), Column("b", Int(64))))
OTHER = ("main", "other")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'state.db'}") as opened:
        yield opened


def wanted(store: Store) -> dict[str, str]:
    """All there is: columns, a whole table, those of another one; and the jobs by what they are for."""
    for ref, column in ((ITEM.ref, "a"), (ITEM.ref, "b"), (ITEM.ref, ""), (OTHER, "a")):
        store.backfills.request("shop", ref, column=column, why=f"{BY_PERSON}ann")
    asked: dict[str, dict[str, Any]] = {
        "whole": {"table": "main.item", "columns": []},
        "a": {"table": "main.item", "columns": ["a"]},
        "both": {"table": "main.item", "columns": ["a", "b"]},
        "other": {"table": "main.other", "columns": ["a"]},
    }
    return {name: store.jobs.enqueue("shop", "backfill", key=name, options=of)[0].id for name, of in asked.items()}


CASES = [
    ((), {"a", "b", ""}, {"whole", "a", "both"}),
    (("a",), {"a"}, {"a"}),
    (("a", "b"), {"a", "b"}, {"a", "both"}),
    (("none",), set(), set()),
]


@pytest.mark.parametrize(("columns", "gone", "jobs"), CASES)
def test_what_goes(store: Store, columns: tuple[str, ...], gone: set[str], jobs: set[str]) -> None:
    known = wanted(store)
    found = cancel(store, "shop", ITEM, columns, "ann")
    assert {b.column for b in found.backfills} == gone
    assert {b.status for b in found.backfills} <= {"cancelled"}
    assert set(found.jobs) == {known[name] for name in jobs}
    assert bool(found) == bool(gone or jobs)
    left = {(b.table, b.column) for b in store.backfills.waiting("shop")}
    assert left == {(OTHER, "a"), *((ITEM.ref, c) for c in {"a", "b", ""} - gone)}
    assert {j.id for j in store.jobs.find(status=("queued",))} == {known[n] for n in known.keys() - jobs}
    told = [(e.data["column"], e.data["who"]) for e in store.events.after(0) if e.type == "backfill.cancelled"]
    assert sorted(told) == sorted((column, "ann") for column in gone)
    assert not cancel(store, "shop", ITEM, columns, "ann"), "once is enough"


REQUESTS: list[tuple[dict[str, Any], bool]] = [
    ({"why": "the key has changed"}, True),
    ({"why": f"{BY_PERSON}ann"}, False),
    ({"why": "column a was added", "column": "a"}, False),
    ({"why": "column a was added", "column": "a", "scope": "since"}, False),
    ({"why": "column a was added", "column": "a", "scope": "extra"}, True),
]


@pytest.mark.parametrize("columns", [(), ("", "a")])
@pytest.mark.parametrize(("request_of", "is_required"), REQUESTS)
def test_what_a_table_needs_to_equal_its_source_is_not_cancelled(
    store: Store, request_of: dict[str, Any], is_required: bool, columns: tuple[str, ...]
) -> None:
    store.backfills.request("shop", ITEM.ref, **request_of)
    found = cancel(store, "shop", ITEM, columns, "ann")
    assert (len(found.required), len(found.backfills)) == ((1, 0) if is_required else (0, 1))
    assert bool(store.backfills.waiting("shop")) is is_required


@pytest.mark.parametrize("person_first", [True, False])
def test_what_a_person_and_a_rule_ask_for_is_what_the_rule_asks_for(store: Store, person_first: bool) -> None:
    reasons = [(f"{BY_PERSON}ann", ""), ("the key has changed", "c-1")]
    for why, change in reasons if person_first else reasons[::-1]:
        store.backfills.request("shop", ITEM.ref, why=why, change=change)
        store.backfills.request("shop", OTHER, why=f"{BY_PERSON}ann")
    [one] = cancel(store, "shop", ITEM, (), "ann").required
    assert (one.why, one.change) == reasons[1]
    assert [b.why for b in store.backfills.waiting("shop") if b.table == OTHER] == [f"{BY_PERSON}ann"]


def test_one_that_runs_is_asked_to_stop(store: Store) -> None:
    store.backfills.request("shop", ITEM.ref, column="a")
    store.backfills.start(store.backfills.waiting("shop")[0].number, "r-1")
    job, _ = store.jobs.enqueue("shop", "backfill", options={"table": "main.item", "columns": ["a"]})
    assert store.jobs.claim("w-1") is not None
    found = cancel(store, "shop", ITEM, ("a",), "ann")
    assert (found.jobs, store.jobs.get(job.id).stop) == ((job.id,), "ann")
    assert [b.status for b in store.backfills.find("shop")] == ["cancelled"]
    store.backfills.done(found.backfills[0].number)
    assert [b.status for b in store.backfills.find("shop")] == ["cancelled"], "a run that ends now does not say done"
