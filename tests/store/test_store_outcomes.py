"""How the syncs of several connections have gone, in one question."""

from __future__ import annotations

from store_world import Clock

from instep.operations.values import RunKind, RunStatus
from instep.store.store import Store
from instep.store.work.runs import Outcomes


def ran(store: Store, name: str, kind: RunKind, status: RunStatus) -> None:
    store.runs.finish(store.runs.claim(name, kind), status)


def test_the_last_good_and_the_last_bad_end(any_store: Store, clock: Clock) -> None:
    assert any_store.runs.outcomes(["a", "b"]) == {}
    at = {}
    for status in ("failed", "done", "partial", "done"):
        clock.forward(60)
        at[status] = any_store.runs._db.now()
        ran(any_store, "a", "sync", status)
    ran(any_store, "b", "detect", "done")
    ran(any_store, "c", "backfill", "blocked")
    assert any_store.runs.outcomes(["a", "b"]) == {"a": Outcomes(at["done"], at["partial"])}
    assert any_store.runs.outcomes(["c"])["c"].succeeded is None
    any_store.runs.claim("a", "sync")
    assert any_store.runs.outcomes(["a"])["a"].running


def test_paused_as_a_whole(any_store: Store) -> None:
    any_store.pauses.pause("a", "manually")
    any_store.pauses.pause("b", "its key", table=("s", "t"))
    assert any_store.pauses.paused_connections(["a", "b", "c"]) == {"a"}
    any_store.pauses.resume("a", who="ann")
    assert any_store.pauses.paused_connections(["a"]) == frozenset()
