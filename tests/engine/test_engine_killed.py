"""Kill -9 of the engine, of a command, and of whoever waits for it: nothing is lost, and nothing goes on unseen."""

from __future__ import annotations

import os
import signal

import pytest
from engine_world import FOR_EVER, Place, finish, lives, state_of, until

pytestmark = pytest.mark.xdist_group("engine")
POINTS = ("sync.staged", "sync.commit.before", "sync.commit.after", "sync.noted")


def test_a_command_ends_with_whoever_waits_for_it(place: Place) -> None:
    command = place.begin("query", FOR_EVER)
    pid = place.running()
    command.kill()
    finish(command)
    until(lambda: not lives(pid))
    until(lambda: place.status()["commands"] == [])


@pytest.mark.sampled
@pytest.mark.parametrize("point", POINTS)
def test_the_next_command_finishes_what_was_killed_with_the_engine(place: Place, point: str) -> None:
    place.env["INSTEP_CRASH"] = f"{point}=stop"
    command = place.begin("sync")
    pid = place.running()
    until(lambda: state_of(pid) == "T")
    engine = place.status()["pid"]
    os.kill(engine, signal.SIGKILL)
    _, err = finish(command)
    assert (command.returncode, "the engine that ran this command has ended" in err) == (1, True)
    until(lambda: not lives(pid))
    del place.env["INSTEP_CRASH"]
    assert place.run("sync").returncode == 0
    assert place.status()["pid"] != engine
    assert place.rows() == 1000


@pytest.mark.sampled
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_command_tells_so(place: Place, point: str) -> None:
    place.env["INSTEP_CRASH"] = f"{point}=kill"
    assert place.run("sync").returncode == -signal.SIGKILL
    del place.env["INSTEP_CRASH"]
    assert (place.run("sync").returncode, place.rows()) == (0, 1000)
    assert place.status()["commands_run"] == 2
