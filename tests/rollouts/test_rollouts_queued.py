"""Rollouts that workers carry on: turn by turn, with a job for each connection's run."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from real_fleet import RealFleet

from instep.bootstrap import App, open_server
from instep.control.rollouts import queued
from instep.control.rollouts.changes import change_patch
from instep.control.rollouts.create import RolloutOrder, create, draft
from instep.control.rollouts.flow import stop
from instep.control.rollouts.gates import DEFAULT, Gates
from instep.control.rollouts.policies import ServedPolicies, policy_patch
from instep.control.rollouts.queued import QueuedRuns, outcome_of
from instep.control.rollouts.selections import SelectionPatch
from instep.control.rollouts.waves import ConnectionGroup
from instep.errors import Blocked, Conflict, InstepError
from instep.model import Job, JobKind, Rollout
from instep.operations.values import JobStatus
from instep.store.engine.keyring import FILE, add_key
from instep.sync.runs import InProcess
from instep.worker.perform import perform

Make = Callable[[int], "Crew"]
_RUNS: tuple[JobKind, ...] = ("sync", "refresh", "undo")
"""What a turn of a rollout waits for: it is not due before some of it has ended."""


class Crew:
    """A fleet whose sources have changed, and a worker of one lane in this process."""

    def __init__(self, fleet: RealFleet, app: App) -> None:
        self.fleet, self.app, self.store = fleet, app, app.store
        self.turns = 0

    def create(self, *sizes: str, gates: Gates = DEFAULT) -> Rollout:
        patch = SelectionPatch(self.app.project, self.store, (("on", "main.refunds"),))
        return create(
            self.store,
            draft(RolloutOrder(patch, ConnectionGroup(tags=("shard",)), sizes, gates), self.fleet.names, "ann"),
        )

    def work(self, jobs: int = 1000) -> None:
        """As a worker's process does, until so many jobs are done or nothing waits."""
        for _ in range(jobs):
            job = self.store.jobs.claim("crew", kinds=_RUNS) or self.store.jobs.claim("crew")
            if job is None:
                return
            ended = perform(self.app, job)
            if ended.again is not None:
                self.turns += 1
                self.store.jobs.give_back(job, "")
            elif ended.error:
                self.store.jobs.fail(job, ended.error, retryable=ended.transient, result=ended.result)
            else:
                self.store.jobs.finish(job, result=ended.result)

    def counts(self, rollout: Rollout) -> Counter[str]:
        return Counter(m.status for m in self.store.rollouts.members(rollout.id))

    def status(self, rollout: Rollout) -> str:
        return self.store.rollouts.get(rollout.id).status

    def kinds(self) -> Counter[tuple[str, str]]:
        return Counter((j.kind, j.status) for j in self.store.jobs.find(limit=1000))


@pytest.fixture
def crew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Make]:
    opened: list[App] = []

    def make(count: int) -> Crew:
        fleet = RealFleet(tmp_path, count, capsys)
        opened.append(fleet.open())
        runs = InProcess(opened[0].sync_context, opened[0].engine)
        assert all(runs.sync(name, "first", measured=False).ok for name in fleet.names)
        fleet.change()
        assert all(runs.detect(name, "seen").ok for name in fleet.names)
        return Crew(fleet, opened[0])

    yield make
    for app in opened:
        app.store.close()


def test_a_wave_a_job_and_a_run_a_connection(crew: Make) -> None:
    shop = crew(4)
    made = shop.create("1", "rest")
    job, new = queued.advance(shop.store, made.id, "ann")
    assert (new, job.connection, job.key, job.who) == (True, "", made.id, "ann")
    assert queued.advance(shop.store, made.id, "bob") == (job, False), "it is on its way"
    shop.work()
    assert (shop.status(made), shop.counts(made)) == ("ready", {"done": 1, "waiting": 3})
    assert shop.store.jobs.get(job.id).result == {"rollout": made.id, "status": "ready", "wave": 1, "why": ""}
    queued.advance(shop.store, made.id, "ann", every=True)
    shop.work()
    assert (shop.status(made), shop.counts(made)) == ("done", {"done": 4})
    assert shop.kinds() == {("rollout", "done"): 2, ("sync", "done"): 4}
    assert shop.turns > 0, "no lane was held while runs took their time"
    runs = shop.store.jobs.find(connection="c001", kind="sync")
    assert [(j.why, j.who, j.result["tables"]["main.refunds"]["read"]) for j in runs] == [
        (f"rollout {made.id}", "ann", 1)
    ]
    assert shop.store.rollouts.member(made.id, "c001").run == runs[0].result["run"] != ""
    assert all(shop.fleet.rows(name, "refunds") for name in shop.fleet.names)


def test_a_failed_run_is_no_second_attempt_and_resume_touches_only_that(crew: Make) -> None:
    shop = crew(3)
    made = shop.create("rest")
    shop.fleet.break_("c001")
    queued.advance(shop.store, made.id, "ann")
    shop.work()
    assert (shop.status(made), shop.counts(made)) == ("halted", {"done": 1, "failed": 1, "waiting": 1})
    failed = shop.store.rollouts.member(made.id, "c001")
    assert "c001.db does not exist" in failed.error
    assert [j.attempt for j in shop.store.jobs.find(connection="c001", kind="sync")] == [1]
    with pytest.raises(Conflict, match="halted"):
        queued.advance(shop.store, made.id, "ann")
    shop.fleet.mend("c001")
    queued.resume(shop.store, made.id, "ann", every=True)
    shop.work()
    assert (shop.status(made), shop.counts(made)) == ("done", {"done": 3})
    assert {n: len(shop.store.jobs.find(connection=n, kind="sync")) for n in shop.fleet.names} == {
        "c000": 1, "c001": 2, "c002": 1,
    }  # fmt: skip


def test_a_gate_is_measured_by_the_worker(crew: Make) -> None:
    shop = crew(2)
    made = shop.create("rest", gates=Gates(rows=0.2))
    shop.fleet.sql("c000", "insert into orders select id + 10, note, currency from orders")
    queued.advance(shop.store, made.id, "ann")
    shop.work()
    [found] = shop.store.rollouts.member(made.id, "c000").findings
    assert (shop.status(made), "main.orders" in found) == ("halted", True)
    with pytest.raises(Blocked, match="rows"):
        queued.resume(shop.store, made.id, "ann")
    assert not queued.under_way(shop.store, made.id), "what is refused leaves no job"
    queued.resume(shop.store, made.id, "ann", accept="an import of ours")
    shop.work()
    assert shop.status(made) == "done"


def test_stopped_between_two_turns(crew: Make) -> None:
    shop = crew(3)
    made = shop.create("rest")
    queued.advance(shop.store, made.id, "ann")
    shop.work(1)
    assert shop.counts(made) == {"running": 1, "waiting": 2}
    with pytest.raises(Conflict, match="carried on by workers"):
        queued.resume(shop.store, made.id, "ann")
    stop(shop.store, made.id, "bob", "lunch")
    shop.work()
    assert (shop.status(made), shop.counts(made)) == ("stopped", {"done": 1, "waiting": 2})
    assert shop.store.rollouts.get(made.id).why == "by bob: lunch"
    queued.resume(shop.store, made.id, "ann")
    shop.work()
    assert shop.status(made) == "done"


def test_what_does_not_fit_is_looked_at_again(crew: Make) -> None:
    shop = crew(2)
    shop.fleet.sql("c001", "drop table refunds")
    assert InProcess(shop.app.sync_context, shop.app.engine).detect("c001", "again").ok
    made = shop.create("rest")
    queued.advance(shop.store, made.id, "ann")
    shop.work()
    assert (shop.status(made), shop.counts(made)) == ("partial", {"done": 1, "blocked": 1})
    shop.fleet.sql("c001", "create table refunds (id integer primary key, total integer)")
    queued.resume(shop.store, made.id, "ann")
    shop.work()
    assert (shop.status(made), shop.counts(made)) == ("done", {"done": 2})
    assert shop.kinds()["refresh", "done"] == 1


def test_a_pause_fails_a_run_that_waits(crew: Make) -> None:
    shop = crew(2)
    made = shop.create("rest")
    queued.advance(shop.store, made.id, "ann")
    shop.work(1)
    shop.store.pauses.pause("c000", "manually")
    shop.work()
    assert "paused: manually" in shop.store.rollouts.member(made.id, "c000").error
    assert shop.status(made) == "halted"


def test_a_change_is_undone_by_a_job(crew: Make) -> None:
    shop = crew(2)
    patch = change_patch(shop.store, "approved", "column.added:main.orders.currency", shop.fleet.names)
    made = create(
        shop.store,
        draft(RolloutOrder(patch, ConnectionGroup(tags=("shard",)), ("rest",), DEFAULT), shop.fleet.names, "ann"),
    )
    queued.advance(shop.store, made.id, "ann")
    shop.work()
    assert shop.counts(made) == {"done": 2}
    with pytest.raises(InstepError, match="nothing to roll back of wave 7"):
        queued.roll_back(shop.store, made.id, "ann", wave=7)
    queued.roll_back(shop.store, made.id, "ann")
    shop.work()
    assert (shop.status(made), shop.counts(made)) == ("stopped", {"rolled_back": 2})
    assert shop.kinds()["undo", "done"] == 2
    assert "rejected" in {r.status for r in shop.store.reviews.find("c000", ()) if r.column == "currency"}


def test_policies_that_a_server_keeps(tmp_path: Path) -> None:
    (tmp_path / "instep.yml").write_text("engine: local\nconnections: {}\n")
    (tmp_path / "data").mkdir()
    sqlite3.connect(tmp_path / "data/shop.db").executescript("create table item (id integer primary key)")
    add_key(tmp_path / FILE, "k1")
    with open_server(tmp_path) as app:
        app.objects.put("source", "shop", {"type": "sqlite", "path": "data/shop.db"}, who="eve")
        app.objects.put("destination", "duck", {"type": "duckdb", "path": "lakes/lake.duckdb"}, who="eve")
        for name, said in (
            ("plain", {}),
            ("words", {"schema_change_handling": "BLOCK_ALL"}),
            ("there", {"policy": "approve"}),
        ):
            spec = {"source": "shop", "destination": "duck", "salt": "s3cret", "tags": ["eu"], **said}
            app.objects.put("connection", name, spec, who="eve")
        patch = policy_patch(app.project, "approve", ServedPolicies(app.objects))
        names = ["plain", "there", "words"]
        made = create(
            app.store, draft(RolloutOrder(patch, ConnectionGroup(tags=("eu",)), ("rest",), DEFAULT), names, "ann")
        )
        assert {m.connection: m.fit for m in app.store.rollouts.members(made.id)} == {
            "plain": "applies", "there": "already", "words": "applies",
        }  # fmt: skip
        crew = Crew.__new__(Crew)
        crew.app, crew.store, crew.turns = app, app.store, 0
        before = {name: app.objects.get("connection", name).spec for name in names}
        queued.advance(app.store, made.id, "ann")
        crew.work()
        assert crew.counts(made) == {"done": 2, "already": 1}
        assert {name: app.project.policy(name).preset for name in names} == dict.fromkeys(names, "approve")
        assert app.project.salt("plain") == b"s3cret", "what was sealed is what it was"
        assert app.objects.get("connection", "plain").updated_by == "ann"
        queued.roll_back(app.store, made.id, "ann")
        crew.work()
        assert crew.counts(made) == {"rolled_back": 2, "already": 1}
        assert {name: app.objects.get("connection", name).spec for name in names} == before


def test_this_process_takes_over_where_no_worker_is_left(crew: Make) -> None:
    shop = crew(2)
    made = shop.create("rest")
    queued.advance(shop.store, made.id, "ann")
    shop.work(1)
    done = shop.fleet.json("rollout", "advance")
    assert (done["rollout"]["status"], done["counts"]) == ("done", {"done": 2})
    assert shop.kinds() == {("rollout", "cancelled"): 1, ("sync", "cancelled"): 1}


@pytest.mark.parametrize(
    ("status", "result", "outcome"),
    [
        ("queued", {}, None),
        ("running", {}, None),
        ("done", {"run": "r-1", "status": "done", "error": "", "tables": {}}, ("r-1", "done", "")),
        ("done", {"run": "r-1", "status": "partial", "error": "x", "tables": {}}, ("r-1", "partial", "x")),
        ("done", {"skipped": "off"}, ("r-0", "done", "broken")),
        ("failed", {}, ("r-0", "failed", "broken")),
        ("failed", {"run": "r-1", "status": "failed", "error": "y", "tables": {}}, ("r-1", "failed", "y")),
        ("dead", {}, ("r-0", "failed", "broken")),
        ("dead", {"run": "r-1", "status": "failed", "error": "z", "tables": {}}, ("r-1", "failed", "z")),
        ("cancelled", {}, ("r-0", "failed", "broken")),
    ],
)
def test_what_becomes_of_a_job(status: JobStatus, result: dict[str, object], outcome: object) -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    found = outcome_of(Job("j-1", "c", "sync", status, at, at, run="r-0", error="broken", result=result))
    assert (found and (found.run, found.status, found.error)) == outcome


def test_the_same_run_is_asked_for_once(crew: Make) -> None:
    shop = crew(1)
    runs = QueuedRuns(shop.store, "w-1", shop.app.project.source_of, "ann")
    assert [runs.sync("c000", "w-1/1", measured=True) for _ in range(3)] == [None] * 3
    shop.work()
    first = runs.sync("c000", "w-1/1", measured=True)
    assert first is not None
    assert (first.ok, first.tables["main.orders"].after) == (True, first.tables["main.orders"].before)
    assert shop.kinds() == {("sync", "done"): 1}
    gone = QueuedRuns(shop.store, "w-1", shop.app.project.source_of, "ann").sync("nobody", "w-1/1", measured=True)
    assert gone is not None
    assert "nobody" in gone.error
