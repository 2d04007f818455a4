"""Writers of one connection wait for each other, and for nobody else; what is numbered is committed in its order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from instep.errors import Conflict, RunInProgress
from instep.events import RunStarted
from instep.store.store import Store
from postgres_server import Database, store_url

HANGS = 30.0
"""Seconds after which a test has hung."""


@pytest.fixture
def stores(postgres: Database) -> Iterator[tuple[Store, Store]]:
    """Two processes' stores of one server."""
    with Store(store_url(postgres)) as one, Store(store_url(postgres)) as other:
        for name in ("a", "b"):
            one.connections.put(name, destination="d")
        yield one, other


def is_waiting(postgres: Database) -> bool:
    query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    return bool(postgres.execute(query)[0][0])


def wait_until(happens: Callable[[], bool]) -> None:
    end = threading.Event()
    for _ in range(int(HANGS * 100)):
        if happens():
            return
        end.wait(0.01)
    raise AssertionError("it did not happen")


def test_a_connection_does_not_wait_for_another(stores: tuple[Store, Store]) -> None:
    one, other = stores
    run = one.runs.claim("b", "sync")
    with one.transaction("a"):
        one.pauses.pause("a", "why")

        def work() -> None:
            other.runs.heartbeat(run)
            with other.transaction("b"):
                other.cursors.save("b", {("s", "t"): "1"}, run=run.id, fence=run.fence)
            other.runs.finish(run, "done")

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(HANGS)
        assert not thread.is_alive(), "it waits for the transaction of another connection"
        assert other.runs.get(run.id).status == "done"
        assert other.pauses.connection("a") is None


def queued_work(store: Store) -> dict[str, Callable[[], object]]:
    """What workers do all the time, whatever the runs do: each leaves the store as another process expects it."""
    store.jobs.enqueue("b", "sync")
    job = store.jobs.claim("w")
    assert job is not None
    worker = store.workers.register(1)
    return {
        "claim": lambda: store.jobs.claim("w"),
        "heartbeat": lambda: store.jobs.heartbeat(job),
        "beat": lambda: store.workers.beat(worker),
        "gather": store.outbox.gather,
        "deliver": store.outbox.claim,
        "fail": lambda: store.jobs.fail(job, "why", retryable=True),
    }


QUEUED = ("claim", "heartbeat", "beat", "gather", "deliver", "fail")


@pytest.mark.parametrize("what", QUEUED)
def test_the_queue_does_not_wait_for_a_connection(stores: tuple[Store, Store], what: str) -> None:
    one, other = stores
    act = queued_work(other)[what]
    with one.transaction("a"):
        one.pauses.pause("a", "why")
        thread = threading.Thread(target=act)
        thread.start()
        thread.join(HANGS)
        assert not thread.is_alive()


@pytest.mark.parametrize("what", QUEUED)
def test_nobody_waits_for_the_queue_that_waits(stores: tuple[Store, Store], postgres: Database, what: str) -> None:
    """A request that waits for a lock lets no later one pass, be that one compatible with who has the lock now."""
    one, other = stores
    run, act = one.runs.claim("b", "sync"), queued_work(other)[what]
    with one.transaction("a"):
        one.events.add(RunStarted("a", "r1", "sync"))
        waiting = threading.Thread(target=act)
        waiting.start()
        wait_until(lambda: is_waiting(postgres))
        beat = threading.Thread(target=lambda: other.runs.heartbeat(run))
        beat.start()
        beat.join(HANGS)
        assert not beat.is_alive(), "it waits for what waits"
        assert waiting.is_alive()
    waiting.join(HANGS)
    assert not waiting.is_alive()


def test_no_connection_is_locked_after_common_rows(stores: tuple[Store, Store], postgres: Database) -> None:
    """A job that dies is told of in the transaction of whoever finds it; its connection has a transaction open that
    comes to common rows, too: neither waits for the other."""
    one, other = stores
    one.jobs.enqueue("a", "sync", attempts=1)
    job = one.jobs.claim("w")
    assert job is not None
    with one.transaction("a"):
        one.pauses.pause("a", "why")
        thread = threading.Thread(target=lambda: other.jobs.abandon(["w"]))
        thread.start()
        thread.join(HANGS)
        assert not thread.is_alive()
        one.events.add(RunStarted("a", "r1", "sync"))
    assert one.jobs.get(job.id).status == "dead"
    assert [e.type for e in one.events.after()] == ["job.dead", "run.started"]


@pytest.mark.parametrize("name", ["a", ""])
def test_others_wait(stores: tuple[Store, Store], postgres: Database, name: str) -> None:
    """Those of the same connection, and those whose rows may be any connection's."""
    one, other = stores
    order: list[str] = []

    def write() -> None:
        with other.transaction(name):
            order.append("second")

    with one.transaction("a"):
        thread = threading.Thread(target=write)
        thread.start()
        wait_until(lambda: is_waiting(postgres))
        order.append("first")
    thread.join(HANGS)
    assert order == ["first", "second"]


def test_events_are_committed_in_the_order_of_their_numbers(stores: tuple[Store, Store], postgres: Database) -> None:
    one, other = stores
    seen: list[list[str]] = []
    with one.transaction("a"):
        one.events.add(RunStarted("a", "r1", "sync"))
        thread = threading.Thread(target=lambda: other.events.add(RunStarted("b", "r2", "sync")))
        thread.start()
        wait_until(lambda: is_waiting(postgres))
        seen.append([e.connection for e in other.events.after()])
    thread.join(HANGS)
    seen.append([e.connection for e in other.events.after()])
    assert seen == [[], ["a", "b"]]


def test_one_claim_of_a_connection_wins(stores: tuple[Store, Store]) -> None:
    found: list[object] = []
    gate = threading.Barrier(8)

    def claim(store: Store, name: str) -> None:
        gate.wait()
        try:
            found.append((name, store.runs.claim(name, "sync").fence))
        except RunInProgress:
            found.append(name)

    threads = [threading.Thread(target=claim, args=(stores[n % 2], "ab"[n // 4])) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANGS)
    assert sorted(map(str, found)) == sorted([*(["a"] * 3), *(["b"] * 3), "('a', 1)", "('b', 1)"])


def test_a_lock_of_a_savepoint_that_was_undone_is_taken_again(stores: tuple[Store, Store], postgres: Database) -> None:
    one, other = stores
    with one.transaction("a"):
        with pytest.raises(Conflict), one.transaction("b"):
            raise Conflict("undone")
        with other.transaction("b"):
            pass  # the server has let go of it
        with one.transaction("b"):
            thread = threading.Thread(target=lambda: other.pauses.pause("b", "late"))
            thread.start()
            wait_until(lambda: is_waiting(postgres))
        assert thread.is_alive()
    thread.join(HANGS)
    assert one.pauses.connection("b") is not None
