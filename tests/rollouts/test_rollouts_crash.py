"""A process that carries a rollout on is killed at any place; the next one goes on, and nothing is done twice."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable

import pytest
from rollouts_world import Fleet, Syncs

from instep.control.rollouts.create import patch_of
from instep.control.rollouts.flow import Rolling
from instep.model import Rollout
from instep.store.store import Store

FORWARD = ("rollout.begun", "rollout.begun@3", "rollout.ran", "rollout.ran@4", "rollout.ended", "rollout.ended@4",
           "rollout.released")  # fmt: skip
BACK = ("rollout.back", "rollout.back@3", "rollout.released")


def killed(fleet: Fleet, crash: str, do: Callable[[Rolling], Rollout], rollout: Rollout) -> None:
    """In a process of its own, which ends at its crash point."""
    child = os.fork()
    if not child:
        try:
            os.environ["INSTEP_CRASH"] = f"{crash}=kill"
            store = Store(f"sqlite:///{fleet.folder / 'state.db'}", now=fleet.clock)
            patch = patch_of(rollout.what, fleet.project, store)
            do(Rolling(store, patch, Syncs(fleet.project, store), "ann"))
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def events(fleet: Fleet, type: str) -> Counter[str]:
    return Counter(e.connection for e in fleet.store.events.latest(limit=1000) if e.type == type)


@pytest.mark.sampled
@pytest.mark.parametrize("point", FORWARD)
def test_forward(fleet: Callable[[int], Fleet], point: str) -> None:
    shop = fleet(4)
    rollout = shop.create(("1", "rest"))
    killed(shop, point, lambda rolling: rolling.advance(rollout.id, every=True), rollout)
    assert shop.store.rollouts.get(rollout.id).status == "running"
    assert shop.advance(rollout, every=True).status == "done"
    assert [m.attempt for m in shop.store.rollouts.members(rollout.id)] == [1] * 4
    assert events(shop, "rollout.applied") == dict.fromkeys(shop.names, 1)
    assert events(shop, "selection.changed") == dict.fromkeys(shop.names, 1)


@pytest.mark.sampled
@pytest.mark.parametrize("point", BACK)
def test_back(fleet: Callable[[int], Fleet], point: str) -> None:
    shop = fleet(4)
    rollout = shop.create(("1", "rest"))
    shop.advance(rollout, every=True)
    killed(shop, point, lambda rolling: rolling.roll_back(rollout.id), rollout)
    left = shop.counted(rollout)["done"] > 1
    again = shop.rolling(rollout)
    if left:
        assert again.roll_back(rollout.id).status == "stopped"
    assert shop.counted(rollout) == {"done": 1, "rolled_back": 3}
    assert events(shop, "rollout.taken_back") == dict.fromkeys(shop.names[1:], 1)
    assert [shop.has_refunds(name) for name in shop.names] == [True, False, False, False]
