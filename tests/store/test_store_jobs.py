"""The queue: who comes next, leases and fences, attempts, cancelling, and jobs that wait for the same."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError
from store_world import START, Clock

from instep.errors import Conflict, Fenced, InstepError
from instep.model import Job, JobKind
from instep.store.engine.keyring import Keyring, new_key, parse
from instep.store.store import Store
from instep.store.tables.queue import jobs, workers
from instep.store.work.jobs import LONGEST, REQUESTED, SPREAD, VALUES_LIVE, WAITED_FOR, Jobs, backoff


def claimed(store: Store, connection: str = "c", kind: JobKind = "sync", attempts: int = 3) -> Job:
    store.jobs.enqueue(connection, kind, attempts=attempts)
    job = store.jobs.claim("w1")
    assert job is not None
    return job


def ids(store: Store) -> list[str]:
    """What is claimed one after the other: connection and kind."""
    found = []
    while job := store.jobs.claim("w"):
        found.append(f"{job.connection} {job.kind}")
        store.jobs.finish(job)
    return found


def test_the_urgent_come_first_then_the_oldest(any_store: Store, clock: Clock) -> None:
    for name, priority in (("a", 0), ("b", REQUESTED), ("d", WAITED_FOR), ("e", 0)):
        any_store.jobs.enqueue(name, "sync", priority=priority)
        clock.forward(1)
    assert ids(any_store) == ["d sync", "b sync", "a sync", "e sync"]


def test_one_waits_for_each_connection_kind_and_key(any_store: Store) -> None:
    first, new = any_store.jobs.enqueue("c", "sync")
    again, newer = any_store.jobs.enqueue("c", "sync", priority=REQUESTED)
    assert (new, newer, again.id, again.priority) == (True, False, first.id, REQUESTED)
    assert any_store.jobs.enqueue("c", "sync", key="other")[1]
    assert any_store.jobs.enqueue("c", "detect")[1]
    assert any_store.jobs.counts() == {"queued": 3}


# who has asked before, who asks then: whose job it is
WHOSE = [
    ("ann", "bob", "ann, bob"), ("ann", "ann", "ann"), ("ann, bob", "ann", "ann, bob"),
    ("ann, bob", "bo", "ann, bob, bo"), ("", "bob", "schedule, bob"), ("ann", "", "ann"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "who", "whose"), WHOSE)
def test_a_sync_that_waits_is_everybody_s_who_asks_for_it(store: Store, before: str, who: str, whose: str) -> None:
    first, _ = store.jobs.enqueue("c", "sync", who=before, why="" if before else "schedule")
    for _ in range(2):
        assert store.jobs.enqueue("c", "sync", who=who)[0].who == whose
    store.jobs.enqueue("c", "detect", who="ann")
    assert store.jobs.enqueue("c", "detect", who="bob")[0].who == "ann"
    assert store.jobs.get(first.id).who == whose


def test_the_database_itself_refuses_a_second(store: Store) -> None:
    job = claimed(store)
    store.jobs.enqueue("c", "detect")
    with pytest.raises(IntegrityError), store._db.write() as transaction:
        transaction.execute(update(jobs).where(jobs.c.id != job.id).values(status="running"))


def test_one_runs_for_a_connection_and_tests_run_beside_it(any_store: Store) -> None:
    running = claimed(any_store)
    any_store.jobs.enqueue("c", "maintain")
    assert any_store.jobs.claim("w2") is None
    for number in "12":
        any_store.jobs.enqueue("c", "test_connection", key=number)
        assert any_store.jobs.claim("w2")
    assert any_store.jobs.running("c") == running
    any_store.jobs.finish(running)
    assert (job := any_store.jobs.claim("w2"))
    assert job.kind == "maintain"


def test_work_about_no_connection_waits_for_nobody(store: Store) -> None:
    for key in "12":
        store.jobs.enqueue("", "test_connection", key=key)
    assert len([store.jobs.claim("w") for _ in range(2)]) == len(store.jobs.find(status=["running"])) == 2


def test_not_before_it_is_due(store: Store, clock: Clock) -> None:
    store.jobs.enqueue("c", "sync", due=START + timedelta(minutes=5))
    assert store.jobs.claim("w") is None
    store.jobs.enqueue("c", "sync", due=START + timedelta(minutes=1))
    clock.forward(60)
    assert store.jobs.claim("w") is not None


def test_a_paused_connection_moves_no_row(any_store: Store) -> None:
    any_store.pauses.pause("c", "why")
    any_store.pauses.pause("d", "why", table=("public", "order"))
    for connection in "cd":
        for kind in ("sync", "backfill", "maintain", "detect", "test_connection"):
            any_store.jobs.enqueue(connection, kind)
    assert sorted(ids(any_store)) == [
        "c detect", "c maintain", "c test_connection", "d backfill", "d detect", "d maintain", "d sync",
        "d test_connection",
    ]  # fmt: skip
    any_store.pauses.resume("c", who="me")
    assert sorted(ids(any_store)) == ["c backfill", "c sync"]


def test_a_priority_lane_runs_only_what_is_waited_for(store: Store) -> None:
    store.jobs.enqueue("a", "sync", priority=REQUESTED)
    assert store.jobs.claim("w", at_least=WAITED_FOR) is None
    store.jobs.enqueue("b", "detect", priority=WAITED_FOR)
    assert (job := store.jobs.claim("w", at_least=WAITED_FOR))
    assert job.connection == "b"
    assert store.jobs.claim("w", kinds=["detect"]) is None


class TestLeases:
    def test_a_heartbeat_keeps_the_job(self, any_store: Store, clock: Clock) -> None:
        job = claimed(any_store)
        for _ in range(8):
            clock.forward(15)
            any_store.jobs.heartbeat(job)
        assert any_store.jobs.claim("w2") is None

    def test_the_silent_lose_it_and_can_no_longer_write(self, any_store: Store, clock: Clock) -> None:
        old = claimed(any_store)
        clock.forward(61)
        assert any_store.jobs.claim("w2") is None  # it rests first
        assert "no sign of life" in any_store.jobs.get(old.id).error
        clock.forward(20)
        new = any_store.jobs.claim("w2")
        assert new is not None
        assert (new.id, new.fence, new.attempt) == (old.id, old.fence + 1, 2)
        writes = (
            lambda: any_store.jobs.heartbeat(old),
            lambda: any_store.jobs.finish(old),
            lambda: any_store.jobs.fail(old, "x", retryable=True),
            lambda: any_store.jobs.give_back(old, "x"),
            lambda: any_store.jobs.note_run(old, "r-1"),
        )
        for write in writes:
            with pytest.raises(Fenced, match="was taken over"):
                write()
        assert any_store.jobs.get(new.id) == new

    def test_what_kills_its_worker_each_time_ends_dead(self, store: Store, clock: Clock) -> None:
        claimed(store, attempts=2)
        clock.forward(61)
        store.jobs.claim("w2")
        clock.forward(61)
        assert store.jobs.claim("w2") is not None
        clock.forward(61)
        assert store.jobs.claim("w3") is None
        (job,) = store.jobs.find(status=["dead"])
        assert job.error == "worker w2 gave no sign of life during attempt 2 of 2"

    def test_jobs_of_the_dead_are_free_at_once(self, store: Store, clock: Clock) -> None:
        job = claimed(store)
        assert [j.id for j in store.jobs.abandon(["w1"])] == [job.id]
        assert store.jobs.abandon([]) == []
        assert store.jobs.claim("w2") is not None
        store.jobs.abandon(["w2"])
        assert store.jobs.claim("w3") is None, "it may be the job that kills them"
        clock.forward(60)
        assert store.jobs.claim("w3") is not None


class TestAttempts:
    def test_errors_that_pass_are_tried_again_later_and_later(self, any_store: Store, clock: Clock) -> None:
        job: Job | None = claimed(any_store)
        waits = []
        for _ in range(2):
            assert job is not None
            job = any_store.jobs.fail(job, "no route", retryable=True)
            assert (job.status, job.error) == ("queued", "no route")
            waits.append((job.due - clock.time).total_seconds())
            assert any_store.jobs.claim("w") is None
            clock.forward(waits[-1])
            job = any_store.jobs.claim("w")
        assert waits[0] < 20 < waits[1] < 40
        assert job is not None
        ended = any_store.jobs.fail(job, "no route", retryable=True)
        assert (ended.status, ended.attempt, ended.over) == ("dead", 3, True)

    def test_other_errors_end_it(self, store: Store) -> None:
        ended = store.jobs.fail(claimed(store), "wrong password", retryable=False, result={"n": 1})
        assert (ended.status, ended.error, ended.result) == ("failed", "wrong password", {"n": 1})

    def test_given_back_the_attempt_does_not_count(self, store: Store) -> None:
        given = store.jobs.give_back(claimed(store), "the worker stops")
        assert (given.status, given.attempt) == ("queued", 0)
        again = store.jobs.claim("w2")
        assert again is not None
        assert (again.attempt, again.fence) == (1, 2)

    @pytest.mark.parametrize("how", ["fail", "give back", "lease"])
    def test_two_never_wait_for_the_same(self, store: Store, clock: Clock, how: str) -> None:
        job = claimed(store)
        twin, _ = store.jobs.enqueue("c", "sync", due=START + timedelta(hours=1))
        match how:
            case "fail":
                store.jobs.fail(job, "no route", retryable=True)
            case "give back":
                store.jobs.give_back(job, "stopping")
            case _:
                clock.forward(61)
                store.jobs.claim("w")
        assert f"job {twin.id} does its work" in store.jobs.get(job.id).error
        assert [j.id for j in store.jobs.find(status=["queued"])] == [twin.id]

    def test_a_person_hastens_what_waits_for_its_next_attempt_a_schedule_does_not(self, store: Store) -> None:
        later = store.jobs.fail(claimed(store), "no route", retryable=True)
        assert store.jobs.enqueue("c", "sync")[0].due == later.due
        assert store.jobs.enqueue("c", "sync", priority=REQUESTED)[0].due == START

    @given(st.integers(1, 400), st.text(max_size=20))
    def test_backoff_doubles_within_bounds(self, attempt: int, name: str) -> None:
        wait, base = backoff(attempt, name).total_seconds(), min(15 * 2.0 ** (attempt - 1), LONGEST)
        assert base * (1 - SPREAD) - 1e-3 <= wait <= base * (1 + SPREAD) + 1e-3
        assert backoff(attempt, name).total_seconds() == wait


class TestByHand:
    def test_cancelling_what_waits(self, any_store: Store) -> None:
        job, _ = any_store.jobs.enqueue("c", "sync")
        ended = any_store.jobs.cancel(job.id, "ann")
        assert (ended.status, ended.error, any_store.jobs.claim("w")) == ("cancelled", "cancelled by ann", None)
        with pytest.raises(Conflict, match="is cancelled already"):
            any_store.jobs.cancel(job.id, "ann")

    def test_cancelling_what_runs_is_heard_with_the_next_sign_of_life(self, store: Store, clock: Clock) -> None:
        job = claimed(store)
        assert store.jobs.heartbeat(job).stop == ""
        assert store.jobs.cancel(job.id, "ann").status == "running"
        assert store.jobs.heartbeat(job).stop == "ann"
        clock.forward(61)
        store.jobs.claim("w2")
        assert store.jobs.get(job.id).status == "cancelled"

    def test_trying_again(self, any_store: Store) -> None:
        dead = any_store.jobs.fail(claimed(any_store, attempts=1), "x", retryable=True)
        again = any_store.jobs.retry(dead.id[:-2], "ann")
        assert (again.id, again.status, again.attempt, again.why) == (dead.id, "queued", 0, "tried again by ann")
        assert again.who == "ann"
        with pytest.raises(Conflict, match="is queued"):
            any_store.jobs.retry(dead.id, "ann")
        assert (job := any_store.jobs.claim("w"))
        assert job.fence > dead.fence

    def test_trying_again_what_waits_already(self, store: Store) -> None:
        failed = store.jobs.fail(claimed(store), "x", retryable=False)
        twin, _ = store.jobs.enqueue("c", "sync")
        assert store.jobs.retry(failed.id, "ann") == replace(twin, who="the schedule, ann")

    @pytest.mark.parametrize("wrong", ["", "j-", "nothing"])
    def test_unknown_jobs(self, store: Store, wrong: str) -> None:
        for key in "12":
            store.jobs.enqueue("c", "sync", key=key)
        with pytest.raises(InstepError, match="is known"):
            store.jobs.get(wrong)


def test_lists_in_pages(any_store: Store, clock: Clock) -> None:
    made = []
    for number in range(5):
        made.append(any_store.jobs.enqueue("c", "sync", key=str(number))[0].id)
        clock.forward(number % 2)
    pages: list[str] = []
    while page := any_store.jobs.find(limit=2, before=pages[-1] if pages else ""):
        pages += [job.id for job in page]
    assert sorted(pages) == sorted(made)
    assert pages[0] == made[-1]
    assert any_store.jobs.find(kind="detect") == any_store.jobs.find(connection="d") == []


def test_what_is_long_over_is_forgotten(store: Store, clock: Clock) -> None:
    store.jobs.finish(claimed(store))
    clock.forward(10)
    store.jobs.finish(claimed(store))
    store.jobs.enqueue("c", "sync")
    assert store.prune.jobs(clock.time, 10) == 1
    assert store.jobs.counts() == {"done": 1, "queued": 1}


def test_workers_live_as_long_as_they_say_so(any_store: Store, clock: Clock) -> None:
    worker = any_store.workers.register(2)
    assert any_store.workers.live() == [worker]
    clock.forward(59)
    any_store.workers.beat(worker)
    clock.forward(59)
    assert [w.id for w in any_store.workers.live()] == [worker.id]
    clock.forward(2)
    assert any_store.workers.live() == any_store.workers.ended_ids() == []
    any_store.workers.beat(worker, stopping=True)
    assert any_store.workers.live() == []
    any_store.workers.leave(worker)
    with pytest.raises(Fenced, match="taken for dead"):
        any_store.workers.beat(worker)


def test_workers_of_two_machines_do_not_share_a_file(store: Store, clock: Clock) -> None:
    worker = store.workers.register(1)
    store.workers.register(1)
    with store._db.write() as transaction:
        transaction.execute(update(workers).values(host="elsewhere/1"))
    with pytest.raises(Conflict, match="a worker on elsewhere uses the store"):
        store.workers.register(1)
    clock.forward(61)
    assert store.workers.register(1).id != worker.id


def test_one_detection_of_a_source_runs_at_a_time(any_store: Store) -> None:
    """Others wait for it; those of another source, and other looks, do not."""
    for name in "ab":
        any_store.jobs.enqueue(name, "detect", source="crm")
    any_store.jobs.enqueue("c", "detect", source="erp")
    any_store.jobs.enqueue("d", "refresh", source="crm")
    claims = [job for _ in range(4) if (job := any_store.jobs.claim("w"))]
    assert sorted(f"{job.source} {job.kind}" for job in claims) == ["crm detect", "crm refresh", "erp detect"]
    first = next(job for job in claims if (job.source, job.kind) == ("crm", "detect"))
    any_store.jobs.finish(first)
    second = any_store.jobs.claim("w")
    assert second is not None
    assert ({first.connection, second.connection}, second.kind) == ({"a", "b"}, "detect")


@pytest.mark.parametrize("kind", ["refresh", "reload"])
def test_two_look_at_a_source_at_a_time(any_store: Store, kind: JobKind) -> None:
    for name in "abcd":
        any_store.jobs.enqueue(name, kind, source="crm")
    any_store.jobs.enqueue("e", kind, source="erp")
    any_store.jobs.enqueue("f", "sync", source="crm")
    claims = [job for _ in range(6) if (job := any_store.jobs.claim("w"))]
    assert sorted(f"{job.source} {job.kind}" for job in claims) == sorted(
        [f"crm {kind}", f"crm {kind}", f"erp {kind}", "crm sync"]
    )
    any_store.jobs.finish(next(job for job in claims if job.source == "crm" and job.kind == kind))
    third = any_store.jobs.claim("w")
    assert third is not None
    assert third.kind == kind


def _with_values(store: Store, keys: Keyring | None) -> tuple[Jobs, Job]:
    """A queue with these master keys, and a job of it that has shown a value."""
    queue = Jobs(store._db, store.events, keys=lambda: keys)
    queue.enqueue("c", "sample_rename")
    job = queue.claim("w")
    assert job is not None
    return queue, queue.finish(job, result={"pairs": [{"old": "Ada Lovelace"}]})


def test_values_of_rows_in_a_result_are_sealed(any_store: Store) -> None:
    queue, job = _with_values(any_store, Keyring(parse(new_key("k"), "")))
    with any_store._db.read() as transaction:
        assert "Ada" not in str(transaction.execute(select(jobs)).all())
    assert queue.open_result(queue.get(job.id)).result == {"pairs": [{"old": "Ada Lovelace"}]}
    others = (None, Keyring(parse(new_key("other"), "")))
    for keys in others:
        assert Jobs(any_store._db, any_store.events, keys=lambda keys=keys: keys).open_result(job).result == {}


@pytest.mark.parametrize("keys", [None, Keyring(parse(new_key("k"), ""))])
def test_values_of_rows_are_deleted_after_an_hour(any_store: Store, clock: Clock, keys: Keyring | None) -> None:
    queue, job = _with_values(any_store, keys)
    other = queue.finish(claimed(any_store, "d"), result={"run": "r-1"})
    clock.forward(VALUES_LIVE.total_seconds() - 1)
    assert queue.forget_values() == 0
    clock.forward(2)
    assert (queue.forget_values(), queue.forget_values()) == (1, 0)
    assert queue.get(job.id).result == {}
    assert queue.get(other.id).result == {"run": "r-1"}
