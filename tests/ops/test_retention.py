"""What a store forgets, and what it never does."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from ops_world import Moved
from sqlalchemy import URL

from instep.events import ChangeApplied, RunEnded, RunStarted, TableLoaded
from instep.model import Member, TableRun
from instep.monitoring.metrics import fold, metrics
from instep.monitoring.retention import forget, forget_some
from instep.project.sections.channels import RetentionSection
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.store.admin import prune
from instep.store.store import Store
from instep.store.work.rollouts import RolloutDraft
from postgres_server import Database

KEEP = RetentionSection()


@pytest.fixture
def clock() -> Moved:
    return Moved()


@pytest.fixture
def store(tmp_path: Path, clock: Moved, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(prune, "NEWEST", 3)
    return Store(f"sqlite:///{tmp_path}/s.db", now=clock)


def run(store: Store, clock: Moved, *, kind: str = "sync", status: str = "done", table: str = "t",
        invalid_values: int = 0, accept: bool = False) -> str:  # fmt: skip
    found = store.runs.claim("shop", kind)  # type: ignore[arg-type]
    store.events.add(RunStarted("shop", found.id, kind))
    clock.forward(seconds=1)
    if accept:
        columns = (Column("id", parse("int64"), key=1), Column(f"c{found.fence}", parse("int64")))
        store.accepted.add("shop", Catalog.of([Table("public", "t", columns)]), who="ann", why="a test")
        store.events.add(ChangeApplied("shop", f"c-{found.fence}", "new", found.fence))
    store.events.add(TableLoaded("shop", found.id, table, "upsert", 5, 5, 0, 0, invalid_values))
    store.runs.record_tables(TableRun(found.id, ("public", table), "done", read=5, invalid_values=invalid_values))
    clock.forward(seconds=1)
    store.runs.finish(found, status)  # type: ignore[arg-type]
    store.events.add(RunEnded("shop", found.id, kind, status))
    clock.forward(seconds=1)
    return found.id


def known(store: Store) -> set[str]:
    return {found.id for found in store.runs.history("shop", limit=1000)}


def test_old_runs_go_with_their_events_and_what_they_counted_stays(store: Store, clock: Moved) -> None:
    old = [run(store, clock) for _ in range(5)]
    clock.forward(days=91)
    new = [run(store, clock) for _ in range(2)]
    before = metrics(store)
    assert forget(store, KEEP, clock()) == {"runs": 4, "events": 13}
    assert known(store) == {old[-1], *new}, "one of the newest three"
    left = [event.data.get("run") for event in store.events.after(0)]
    assert left == [old[-1], old[-1], *(r for r in new for _ in range(3))], "begin and end of a run that is on record"
    assert metrics(store) == before
    assert forget(store, KEEP, clock()) == {}


KEPT = (
    ("accepted", {"accept": True}),
    ("quarantine", {"invalid_values": 1}),
    ("undo", {"kind": "undo"}),
    ("restore", {"kind": "restore"}),
    ("the last of its kind", {"kind": "maintain"}),
    ("the last that failed", {"status": "failed"}),
    ("the last of a table", {"table": "seldom"}),
)


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "how"), KEPT, ids=[name for name, _ in KEPT])
def test_what_something_needs_is_never_forgotten(store: Store, clock: Moved, name: str, how: dict[str, object]) -> None:
    needed = run(store, clock, **how)  # type: ignore[arg-type]
    others = [run(store, clock) for _ in range(4)]
    clock.forward(days=1000)
    [run(store, clock) for _ in range(3)]
    assert forget(store, KEEP, clock())["runs"] == 4
    assert needed in known(store)
    assert not set(others) & known(store)
    assert "change.applied" not in prune.LOGGED
    if "accept" in how:
        types = [event.type for event in store.events.after(0) if event.data.get("run", needed) == needed]
        assert types[:3] == ["run.started", "change.applied", "run.ended"], "what an undo by run looks at"
        assert store.accepted.latest("shop") is not None


def test_a_rehearsal_says_the_same_and_forgets_nothing(store: Store, clock: Moved) -> None:
    for _ in range(6):
        run(store, clock)
    store.jobs.finish(_claimed(store))
    clock.forward(days=91)
    before = known(store)
    told = forget(store, KEEP, clock(), dry_run=True)
    assert told == {"runs": 3, "events": 12, "jobs": 1}
    assert known(store) == before
    assert forget(store, KEEP, clock()) == told


def _claimed(store: Store):  # type: ignore[no-untyped-def]
    store.jobs.enqueue("shop", "sync")
    job = store.jobs.claim("w-1")
    assert job is not None
    return job


def test_slices_lead_to_the_same(store: Store, clock: Moved) -> None:
    for _ in range(6):
        run(store, clock)
    clock.forward(days=91)
    turns = 0
    while forget_some(store, KEEP, clock(), limit=2):
        turns += 1
    assert turns == 6
    assert len(known(store)) == 3


def test_events_that_were_not_counted_stay(store: Store, clock: Moved) -> None:
    run(store, clock)
    clock.forward(days=91)
    assert store.prune.events(clock(), 100) == 0
    fold(store)
    assert store.prune.events(clock(), 100) == 1, "the table's; those of a run on record stay"


def test_postgres_forgets_and_counts_the_same(
    postgres: Database, clock: Moved, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune, "NEWEST", 3)
    at = postgres.config
    url = URL.create("postgresql+psycopg", at.user, at.password, at.host, at.port, at.database)
    with Store(url.render_as_string(hide_password=False), now=clock) as store:
        for _ in range(5):
            run(store, clock)
        store.jobs.finish(_claimed(store))
        clock.forward(days=91)
        before = metrics(store)
        assert forget(store, KEEP, clock()) == {"runs": 2, "events": 9, "jobs": 1}
        assert metrics(store) == before


def test_what_waits_or_runs_is_no_age(store: Store, clock: Moved) -> None:
    job = _claimed(store)
    store.jobs.enqueue("shop", "detect")
    running = store.runs.claim("shop", "sync")
    clock.forward(days=1000)
    assert "runs" not in forget(store, KEEP, clock())
    assert store.jobs.get(job.id)
    assert known(store) == {running.id}
    assert store.jobs.queued("shop", "detect")


def test_the_settings_have_a_least(store: Store) -> None:
    assert RetentionSection.model_validate({"runs": "400d"}).period("runs") == timedelta(days=400)
    with pytest.raises(ValueError):
        RetentionSection.model_validate({"events": "1h"})


# what becomes of it, its status then, what `db prune` answers 91 days later
ROLLED: list[tuple[str, str, int]] = [
    ("never begun", "ready", 0), ("under way", "running", 0), ("stopped", "stopped", 1), ("halted", "halted", 1),
    ("partial", "partial", 1), ("done", "done", 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "status", "gone"), ROLLED, ids=[name for name, *_ in ROLLED])
def test_rollouts_that_rest_go_with_the_runs_that_they_named(
    store: Store, clock: Moved, name: str, status: str, gone: int
) -> None:
    measured = run(store, clock)
    for _ in range(4):
        run(store, clock)
    draft = RolloutDraft({"kind": "policy"}, {}, ("1",), {}, (Member("", "shop", 1, "waiting", "applies"),), "ann")
    made = store.rollouts.add(draft)
    if status != "ready":
        held = store.rollouts.claim(made.id, ("ready",))
        store.rollouts.move(made.id, "shop", ("waiting",), "running", run=measured)
        if status != "running":
            store.rollouts.release(held, status)  # type: ignore[arg-type]
    clock.forward(days=89)
    assert forget(store, KEEP, clock()) == {}
    clock.forward(days=2)
    keep = RetentionSection.model_validate({"rollouts": "200d"})
    assert "rollouts" not in forget(store, keep, clock(), dry_run=True)
    told = forget(store, KEEP, clock(), dry_run=True)
    assert forget(store, KEEP, clock()) == told
    assert told.get("rollouts", 0) == gone
    named = status != "ready" and not gone
    assert (measured in known(store)) == named, "a run stays as long as a rollout names it"
    assert len(store.rollouts.find()) == 1 - gone
