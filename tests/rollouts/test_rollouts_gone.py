"""A connection that is deleted while a rollout is under way: that is its own outcome, and no other connection's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from rollouts_world import ACCEPTED, SEEN, Syncs, see

from instep.bootstrap import App, open_server
from instep.control.rollouts.changes import change_patch
from instep.control.rollouts.create import RolloutOrder, create, draft, patch_of
from instep.control.rollouts.flow import Rolling
from instep.control.rollouts.gates import Gates
from instep.control.rollouts.patch import Patch
from instep.control.rollouts.policies import ServedPolicies, policy_patch
from instep.control.rollouts.selections import SelectionPatch
from instep.control.rollouts.waves import ConnectionGroup
from instep.errors import Fenced
from instep.model import Rollout, RunOutcome
from instep.store.catalogs.reviews import DetectedChange

NAMES = ("c0", "c1", "c2")
CURRENCY = "column.added:main.orders.currency"


@dataclass
class Runs(Syncs):
    """Syncs that carry approvals out, and in whose middle a connection may be deleted."""

    gone_in: list[str] = field(default_factory=list)
    end: Any = None

    def sync(self, connection: str, key: str, *, measured: bool) -> RunOutcome | None:
        if connection in self.gone_in:
            self.end(connection)
            return RunOutcome(f"r-{connection}", "done")
        self.accept(connection)
        self.store.reviews.applied(r.id for r in self.store.reviews.find(connection, ("approved",)))
        return RunOutcome(f"r-{connection}", "done")


@dataclass
class World:
    app: App
    sort: str
    runs: Runs

    def patch(self) -> Patch:
        store, project = self.app.store, self.app.project
        match self.sort:
            case "selection on":
                return SelectionPatch(project, store, (("on", "main.refunds"),))
            case "selection off":
                return SelectionPatch(project, store, (("off", "main.orders.note"),))
            case "policy":
                return policy_patch(project, "approve", ServedPolicies(self.app.objects))
        verdict: Any = self.sort.partition(" ")[2]
        return change_patch(store, verdict, CURRENCY, NAMES)

    def create(self) -> Rollout:
        order = RolloutOrder(self.patch(), ConnectionGroup(tags=("eu",)), ("rest",), Gates(failed=0.9))
        return create(self.app.store, draft(order, NAMES, "ann"))

    def rolling(self, made: Rollout) -> Rolling:
        patch = patch_of(made.what, self.app.project, self.app.store, ServedPolicies(self.app.objects))
        return Rolling(self.app.store, patch, self.runs, "ann")

    def delete(self, name: str) -> None:
        """As a deletion's job does."""
        self.app.objects.delete("connection", name)
        self.app.store.connections.forget(name)
        assert self.app.refresh() == ""
        assert name not in self.app.project.connections

    def members(self, made: Rollout) -> dict[str, str]:
        return {m.connection: m.status for m in self.app.store.rollouts.members(made.id)}


SORTS = ("selection on", "selection off", "policy", "change approved", "change rejected")


@pytest.fixture(params=SORTS)
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    (tmp_path / "instep.yml").write_text("engine: local\nshelves: [.]\n")
    with open_server(tmp_path, insecure_dev=True) as app:
        app.objects.put("source", "db", {"type": "sqlite", "path": "shop.db"}, who="test")
        app.objects.put("destination", "lake", {"type": "duckdb", "path": "lake.duckdb"}, who="test")
        found = DetectedChange(CURRENCY, "column.added", ("main", "orders"), "currency", "new", {}, "review", "r", "w")
        for name in NAMES:
            app.objects.put("connection", name, {"source": "db", "destination": "lake", "tags": ["eu"]}, who="test")
            see(app.store, name, SEEN)
            app.store.accepted.add(name, ACCEPTED, who="test", why="first")
            app.store.reviews.record(name, [found], "f")
        runs = Runs(app.project, app.store)
        made = World(app, request.param, runs)
        runs.end = made.delete
        yield made


def test_all_is_taken_back_but_of_the_one_that_is_gone(world: World) -> None:
    made = world.create()
    assert world.rolling(made).advance(made.id).status == "done"
    world.delete("c1")
    now = world.rolling(made).roll_back(made.id)
    assert (now.status, now.owner) == ("stopped", "")
    assert world.members(made) == {"c0": "rolled_back", "c1": "done", "c2": "rolled_back"}
    assert "not rolled back: " in world.app.store.rollouts.member(made.id, "c1").error


def test_one_that_is_gone_before_its_turn_does_not_fit(world: World) -> None:
    made = world.create()
    world.delete("c1")
    assert world.rolling(made).advance(made.id).status == "partial"
    assert world.members(made) == {"c0": "done", "c1": "blocked", "c2": "done"}
    assert world.app.store.rollouts.member(made.id, "c1").why


def test_one_that_goes_during_its_run_has_failed(world: World) -> None:
    made = world.create()
    world.runs.gone_in = ["c1"]
    now = world.rolling(made).advance(made.id)
    assert now.status == "partial"
    assert world.members(made) == {"c0": "done", "c1": "failed", "c2": "done"}
    assert world.app.store.rollouts.member(made.id, "c1").error
    world.rolling(made).roll_back(made.id)
    assert world.members(made) == {"c0": "rolled_back", "c1": "failed", "c2": "rolled_back"}


def test_what_is_carried_on_by_another_process_goes_no_further(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = world.create()
    world.rolling(made).advance(made.id)

    def fenced(*_: Any) -> None:
        raise Fenced("another process")

    rolling = world.rolling(made)
    monkeypatch.setattr(type(rolling.patch), "undone_by", fenced)
    with pytest.raises(Fenced):
        rolling.roll_back(made.id)
    assert set(world.members(made).values()) == {"done"}
