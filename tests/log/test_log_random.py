"""Random changes with DDL between them, beside the syncs and across their crashes: in the end all is equal."""

from __future__ import annotations

import threading

import pytest
from log_world import LogWorld

from changes import SETUP, Changes
from instep import crash
from instep.crash import Crashed

POINTS = ("log.saved", "log.released", "sync.staged", "sync.noted", "sync.planned", "sync.accepted.after")


@pytest.mark.parametrize("seed", [1, 2])
def test_changes_beside_the_syncs(world: LogWorld, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.database is not None
    world.run(*SETUP)
    world.log = {"messages": 150} if seed == 2 else {}
    changes = Changes(world.database, seed, ddl=0.01)
    changes.run(200)
    for number in range(4):
        beside = threading.Thread(target=changes.run, args=(150,))
        beside.start()
        try:
            monkeypatch.setenv(crash.VARIABLE, f"{POINTS[(number + seed) % len(POINTS)]}=raise" if number % 2 else "")
            world.sync()
        except Crashed:
            pass
        finally:
            beside.join()
    monkeypatch.setenv(crash.VARIABLE, "")
    report = world.sync()
    assert set(world.statuses(report).values()) == {"done"}, report
    assert world.differing() == {}, report
