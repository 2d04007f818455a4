"""Pages of long lists: each row once, in order, whatever is added meanwhile, and always by an index."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Select
from store_world import START, Clock, finding

from instep.store.catalogs.plans import PlannedStep
from instep.store.server.change_pages import ChangeSearch
from instep.store.server.pages import Place, RowFilter, page_of
from instep.store.store import Store
from instep.store.tables.catalogs import reviews, runs


def changes(store: Store, connection: str, *keys: str) -> None:
    found = [finding(key, column=key) for key in keys]
    store.reviews.record(connection, found, "f", unseen={("public", "orders")})


def all_pages(store: Store, only: ChangeSearch, limit: int) -> list[str]:
    found: list[str] = []
    place: Place | None = None
    while page := store.changes.page(only, place, limit):
        found += [r.id for r in page]
        place = (page[-1].first_seen, page[-1].id)
    return found


def test_pages_are_the_list_in_pieces(any_store: Store, clock: Clock) -> None:
    for number in range(7):
        changes(any_store, f"c{number % 2}", *(f"{number}{letter}" for letter in "abc"))
        clock.forward(1 if number % 3 else 0)
    whole = any_store.changes.page(ChangeSearch(), limit=100)
    assert len(whole) == 21
    assert [r.first_seen for r in whole] == sorted((r.first_seen for r in whole), reverse=True)
    for limit in (1, 2, 5, 21):
        assert all_pages(any_store, ChangeSearch(), limit) == [r.id for r in whole]
    of_one = [r.id for r in whole if r.connection == "c1"]
    assert all_pages(any_store, ChangeSearch({"c1"}, ("open",), ("column.widened", "x")), 4) == of_one
    assert all_pages(any_store, ChangeSearch(()), 4) == []


def test_what_is_added_meanwhile_moves_nothing(store: Store, clock: Clock) -> None:
    changes(store, "c", "a", "b", "d")
    clock.forward(1)
    first = store.changes.page(ChangeSearch(), limit=2)
    changes(store, "c", "new")
    rest = store.changes.page(ChangeSearch(), (first[-1].first_seen, first[-1].id), 9)
    assert len({r.id for r in [*first, *rest]}) == 3


@given(times=st.lists(st.integers(0, 3), max_size=12), limit=st.integers(1, 5))
@settings(max_examples=15, deadline=None)
def test_runs_come_once_each(tmp_path_factory: pytest.TempPathFactory, times: list[int], limit: int) -> None:
    clock = Clock()
    with Store(f"sqlite:///{tmp_path_factory.mktemp('p') / 'state.db'}", now=clock) as store:
        for number, wait in enumerate(times):
            clock.forward(wait)
            store.runs.finish(store.runs.claim(f"c{number}", "sync"), "done")
        found: list[str] = []
        place: Place | None = None
        while page := store.pages.runs(RowFilter(), place, limit):
            found += [r.id for r in page]
            place = (page[-1].started, page[-1].id)
        assert len(found) == len(set(found)) == len(times)


def test_a_page_of_connections(any_store: Store, clock: Clock) -> None:
    changes(any_store, "a", "x", "y")
    any_store.reviews.snooze_many([any_store.reviews.find("a")[0].id], START + timedelta(hours=1))
    any_store.runs.finish(any_store.runs.claim("a", "detect"), "failed")
    last = any_store.runs.claim("a", "sync")
    any_store.pauses.pause("b", "manually")
    any_store.pauses.pause("a", "one table", table=("public", "orders"))
    names = ["a", "b", "unknown"]
    assert {name: run.id for name, run in any_store.pages.latest_runs(names).items()} == {"a": last.id}
    assert any_store.pages.waiting(names) == {"a": 1}
    assert any_store.pages.paused(names) == {"b"}
    clock.forward(3600)
    assert any_store.pages.waiting(names) == {"a": 2}


def test_plans_by_number(any_store: Store) -> None:
    for number in range(4):
        step = PlannedStep("s", "t", "add column", "text")
        any_store.plans.open("c", f"p{number}", {}, [step], base_accepted="a", base_destination="d")
    found = any_store.pages.plans("c", limit=2)
    assert [plan.id for _, plan in found] == ["p3", "p2"]
    assert [plan.id for _, plan in any_store.pages.plans("c", found[-1][0])] == ["p1", "p0"]


def test_events_before_and_of_several(any_store: Store) -> None:
    from instep.events import Paused

    any_store.events.add(*(Paused(name, "why", "") for name in "abcabc"))
    newest = any_store.events.latest(connections={"a", "c"}, limit=2)
    assert [e.connection for e in newest] == ["c", "a"]
    assert [e.connection for e in any_store.events.latest(connections={"a", "c"}, before=newest[-1].number)] == [
        "c",
        "a",
    ]
    assert any_store.events.after(0, connections=()) == []


BEHIND = (START, "x")
PAGES = {
    "changes": page_of(reviews, reviews.c.first_seen, ChangeSearch(), BEHIND, 100),
    "open changes": page_of(reviews, reviews.c.first_seen, ChangeSearch(statuses=("open",)), BEHIND, 100),
    "changes of one": page_of(reviews, reviews.c.first_seen, ChangeSearch({"c"}), BEHIND, 100),
    "runs": page_of(runs, runs.c.started, RowFilter(), BEHIND, 100),
}


@pytest.mark.parametrize("name", PAGES)
def test_no_page_is_sorted_or_scanned(store: Store, name: str) -> None:
    query: Select[tuple[object, ...]] = PAGES[name]
    with store._db.read() as transaction:
        text = query.compile(transaction.engine, compile_kwargs={"literal_binds": False})
        bound = {k: v.isoformat(" ") if hasattr(v, "isoformat") else v for k, v in text.params.items()}
        values = tuple(bound[p] for p in text.positiontup or ())
        steps = [row[3] for row in transaction.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values)]
    assert all("USING INDEX" in step for step in steps), steps
    assert all("SEARCH" in step for step in steps), steps
