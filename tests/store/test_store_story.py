"""Every query once, on SQLite and on PostgreSQL: what goes in comes out, also after reopening."""

from __future__ import annotations

import pytest
from store_world import START, Clock, catalog, finding

from instep.errors import Blocked, Conflict, Fenced, InstepError, StalePlan
from instep.events import ChangeDetected, RunStarted
from instep.model import Pause, TableRun
from instep.schema.catalog.catalog import Catalog, fingerprint
from instep.store.catalogs.discoveries import CachedDiscovery
from instep.store.catalogs.plans import PlannedStep
from instep.store.store import Store

ORDERS = ("public", "orders")
ITEMS = ("public", "items")


def test_connections(any_store: Store, clock: Clock) -> None:
    first = any_store.connections.put("c", destination="lake", namespace="shop")
    assert (first.name, first.namespace, first.fence, first.created) == ("c", "shop", 0, START)
    clock.forward(60)
    assert any_store.connections.put("c", destination="lake", namespace="shop") == first
    moved = any_store.connections.put("c", destination="lake", namespace="market")
    assert (moved.namespace, moved.created, moved.updated) == ("market", START, clock())
    assert any_store.connections.get("c") == moved
    assert any_store.connections.get("nope") is None


def test_destination_names(any_store: Store) -> None:
    names, old, new = any_store.names, ("shop", "orders"), ("shop", "orders_v2")
    names.set_owned("c", "lake", {ORDERS: old})
    names.set_owned("c", "lake", {ORDERS: old})
    with pytest.raises(Conflict, match=r"shop.orders of destination lake belongs to another connection"):
        names.set_owned("d", "lake", {ITEMS: new, ORDERS: old})
    assert names.of("d") == {}
    names.set_owned("d", "other", {ORDERS: old})
    names.set_owned("c", "lake", {ORDERS: new, ITEMS: old})
    names.set_owned("c", "lake", {ORDERS: old, ITEMS: new})
    assert names.of("c") == {ORDERS: old, ITEMS: new}
    assert names.owners("lake", [old, ("shop", "x")]) == {old: "c"}
    assert names.owners("other", [old, new]) == {old: "d"}
    names.set_owned("c", "lake", {})
    assert (names.of("c"), names.owners("lake", [])) == ({}, {})


@pytest.mark.parametrize(
    ("destination", "namespace", "said"),
    [
        ("other", "shop", "already loaded into destination 'lake'"),
        ("lake", "b", "loaded into namespace 'shop'"),
    ],
)
def test_a_loaded_connection_stays(store: Store, destination: str, namespace: str, said: str) -> None:
    store.connections.put("c", destination="lake", namespace="shop")
    store.connections.put("c", destination="lake", namespace="shop2")
    store.connections.put("c", destination="lake", namespace="shop")
    store.names.set_owned("c", "lake", {ORDERS: ("shop", "orders")})
    for ask in (store.connections.put, store.connections.check):
        with pytest.raises(Blocked, match=said):
            ask("c", destination=destination, namespace=namespace)
    store.connections.check("c", destination="lake", namespace="shop")


def test_accepted_versions(any_store: Store, clock: Clock) -> None:
    assert any_store.accepted.latest("c") is None
    assert any_store.accepted.catalog("c") == Catalog()
    one = any_store.accepted.add("c", catalog("orders"), who="ana", why="first", base="")
    assert (one.version, one.fingerprint, one.at) == (1, fingerprint(catalog("orders")), START)
    clock.forward(1)
    assert any_store.accepted.add("c", catalog("orders"), who="bob", why="same") == one
    two = any_store.accepted.add("c", catalog("orders", "items"), who="bob", why="table", base=one.fingerprint)
    assert any_store.accepted.catalog("c") == catalog("orders", "items")
    assert any_store.accepted.catalog("c", 1) == catalog("orders")
    assert any_store.accepted.history("c") == [two, one]
    with pytest.raises(StalePlan, match="moved to version 2"):
        any_store.accepted.add("c", Catalog(), who="x", why="y", base=one.fingerprint)
    with pytest.raises(InstepError, match="no accepted version 9"):
        any_store.accepted.catalog("c", 9)
    assert any_store.accepted.history("other") == []


def test_discovery_cache(any_store: Store) -> None:
    assert any_store.discoveries.get("c") is None
    assert any_store.discoveries.fingerprint("c") == ""
    seen = CachedDiscovery(
        catalog("orders"), "f1", {ORDERS: (1000, 1 << 40)}, {("public", "t", "ssn"): "no grant"}, "sys/5", True, START
    )
    any_store.discoveries.save("c", seen)
    assert any_store.discoveries.get("c") == seen
    any_store.discoveries.save("c", CachedDiscovery(Catalog(), "f2"))
    assert any_store.discoveries.fingerprint("c") == "f2"


def test_discovery_seen_again(store: Store, clock: Clock) -> None:
    store.discoveries.save("c", CachedDiscovery(Catalog(), "f"))
    clock.forward(90)
    store.discoveries.touch("c")
    found = store.discoveries.get("c")
    assert found is not None
    assert found.at == clock()


def test_plans_and_journal(any_store: Store, clock: Clock) -> None:
    bases = {"base_accepted": "a", "base_destination": "d"}
    two = [PlannedStep("s1", "n.t", "column.added", "add"), PlannedStep("s2", "n.t", "column.rewritten", "cast", 50)]
    assert any_store.plans.history("c") == []
    old = any_store.plans.open("c", "p-1", {"steps": []}, (), **bases)
    new = any_store.plans.open("c", "p-2", {"steps": ["add"]}, two, **bases, run="r1", who="ana")
    assert any_store.plans.get(old.id) == old
    assert any_store.plans.unfinished("c") == any_store.plans.history("c") == [new, old]
    with pytest.raises(InstepError, match="no plan 'p-x' is known"):
        any_store.plans.get("p-x")
    with pytest.raises(InstepError, match="plan p-2 has no step s2, s3"):
        any_store.steps.start(new.id, ["s2", "s3"])
    any_store.steps.start(new.id, ["s2"])
    clock.forward(4)
    any_store.steps.end(new.id, ["s2"], "done")
    any_store.plans.close(new.id, "done", version=3, changes=["c-1"])
    assert [(s.step, s.status) for s in any_store.steps.of(new.id)] == [("s1", "skipped"), ("s2", "done")]
    (timed,) = any_store.steps.timed("c", "column.rewritten")
    assert timed.started is not None
    assert timed.ended is not None
    assert (timed.rows, (timed.ended - timed.started).total_seconds()) == (50, 4)
    closed = any_store.plans.get(new.id)
    assert (closed.status, closed.version, closed.changes, closed.who) == ("done", 3, ("c-1",), "ana")
    assert any_store.plans.unfinished("c") == []


def test_a_plan_that_is_applied_again_has_a_record_of_its_own(any_store: Store) -> None:
    made = [any_store.plans.open("c", "p-1", {}, (), base_accepted="", base_destination="").id for _ in range(3)]
    assert made == ["p-1", "p-1-2", "p-1-3"]


def test_cursors_never_go_back(any_store: Store) -> None:
    any_store.cursors.save("c", {ORDERS: '{"upper": "5"}'}, run="r1", fence=2)
    any_store.cursors.save("c", {ORDERS: '{"upper": "9"}'}, run="r1", fence=2)
    with pytest.raises(Fenced, match=r"later run has loaded public\.orders"):
        any_store.cursors.save("c", {ORDERS: '{"upper": "6"}'}, run="r0", fence=1)
    assert any_store.cursors.of("c")[ORDERS].cursor == '{"upper": "9"}'
    any_store.cursors.forget("c", ORDERS)
    assert any_store.cursors.of("c") == {}


def test_events_keep_their_order(any_store: Store) -> None:
    any_store.events.add()
    assert any_store.events.last_number() == 0
    happened = [RunStarted("c", f"r{n}", "sync") for n in range(5)]
    any_store.events.add(*happened[:3])
    any_store.events.add(*happened[3:], ChangeDetected("d", "c-1", "column.added", "é added"))
    log = any_store.events.after()
    assert [e.event for e in log][:5] == happened
    assert [e.number for e in log] == sorted({e.number for e in log})
    assert [e.event for e in any_store.events.after(log[3].number)] == [happened[4], log[5].event]
    assert [e.event for e in any_store.events.latest(connection="c", limit=2)] == [happened[4], happened[3]]
    assert [e.connection for e in any_store.events.after(types=["change.detected"])] == ["d"]
    assert any_store.events.last_number() == log[-1].number


def test_pauses(any_store: Store, clock: Clock) -> None:
    pauses = any_store.pauses
    assert pauses.pause("c", "key changed", change="c-1", table=ORDERS)
    assert not pauses.pause("c", "key changed", change="c-1", table=ORDERS)
    clock.forward(1)
    assert pauses.pause("c", "cursor gone", change="c-2", table=ORDERS)
    assert pauses.pause("c", "manually")
    assert [p.reason for p in pauses.active("c")] == ["manually", "key changed", "cursor gone"]
    assert pauses.connection("c") == Pause("manually", clock())
    assert pauses.tables("c") == {ORDERS: Pause("key changed", START, "c-1", ORDERS)}
    assert [p.reason for p in pauses.resume("c", who="ana")] == ["manually"]
    assert [p.change for p in pauses.resume_change("c", "c-1", who="ana")] == ["c-1"]
    assert pauses.tables("c")[ORDERS].change == "c-2"
    assert [p.change for p in pauses.resume("c", table=ORDERS, who="ana")] == ["c-2"]
    assert pauses.active("c") == []
    assert pauses.pause("c", "key changed", change="c-1", table=ORDERS)


def test_backfills(any_store: Store) -> None:
    backfills = any_store.backfills
    assert backfills.request("c", ORDERS, column="note", why="column added", change="c-1")
    assert not backfills.request("c", ORDERS, column="note")
    assert backfills.request("c", ORDERS)
    column, table = backfills.waiting("c")
    assert (column.scope, column.column, column.why, table.scope, table.column) == (
        "column", "note", "column added", "table", "",
    )  # fmt: skip
    backfills.start(column.number, "r1")
    assert [b.status for b in backfills.waiting("c")] == ["running", "requested"]
    assert not backfills.request("c", ORDERS, column="note")
    backfills.done(column.number)
    backfills.cancel(table.number)
    backfills.cancel(column.number)
    assert [b.status for b in backfills.find("c")] == ["done", "cancelled"]
    assert backfills.request("c", ORDERS, column="note")


def test_run_results(any_store: Store, clock: Clock) -> None:
    run = any_store.runs.claim("c", "sync", "ana")
    good = TableRun(run.id, ORDERS, "done", "upsert", 10, 1, 2, 3, 4, 5, 0.5)
    any_store.runs.record_tables(TableRun(run.id, ORDERS, "failed", error="lost"))
    any_store.runs.record_tables(good)
    any_store.runs.record_tables(TableRun(run.id, ("public", "items"), "missing"))
    assert any_store.runs.tables(run.id) == [TableRun(run.id, ("public", "items"), "missing"), good]
    ended = any_store.runs.finish(run, "partial", "1 table failed", {"rows": 10})
    assert (ended.status, ended.error, ended.detail, ended.ended) == ("partial", "1 table failed", {"rows": 10}, START)
    clock.forward(1)
    second = any_store.runs.claim("c", "backfill")
    any_store.runs.record_tables(TableRun(second.id, ORDERS, "unchanged"))
    assert any_store.runs.latest_tables("c")[ORDERS].status == "unchanged"
    assert any_store.runs.latest_tables("c")["public", "items"].status == "missing"
    assert any_store.runs.history("c") == [second, ended]
    assert any_store.runs.latest("c", "sync") == ended
    assert any_store.runs.history("other") == []


def test_everything_is_there_after_reopening(any_url: str) -> None:
    with Store(any_url) as store:
        run = store.runs.claim("c", "sync")
        store.accepted.add("c", catalog("orders"), who="ana", why="first")
        (review,) = store.reviews.record("c", [finding("k")], "f")
        store.events.add(RunStarted("c", run.id, "sync"))
        store.pauses.pause("c", "why")
        ended = store.runs.finish(run, "done")
    with Store(any_url) as store:
        assert store.runs.latest("c") == ended
        assert store.accepted.catalog("c") == catalog("orders")
        assert store.reviews.get(review.id) == review
        assert [e.type for e in store.events.after()] == ["run.started"]
        assert store.pauses.connection("c") is not None
