"""One process at a time, whatever it is that ended; pages; ids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from rollouts_world import Fleet

from instep.errors import Conflict, Fenced, InstepError

Make = Callable[[int], Fleet]


def test_a_second_claim_waits_for_the_end_or_the_lease_of_the_first(any_fleet: Make) -> None:
    shop = any_fleet(2)
    rollouts, made = shop.store.rollouts, shop.create()
    first = rollouts.claim(made.id, ("ready",))
    assert (first.status, first.fence, first.owner.startswith("process ")) == ("running", 1, True)
    shop.clock.time += timedelta(seconds=59)
    rollouts.heartbeat(first)
    shop.clock.time += timedelta(seconds=59)
    with pytest.raises(Conflict, match="is carried on by process"):
        rollouts.claim(made.id, ("ready",))
    shop.clock.time += timedelta(seconds=2)
    second = rollouts.claim(made.id, ("ready",))
    for late in (
        lambda: rollouts.heartbeat(first), lambda: rollouts.begin_wave(first, 2),
        lambda: rollouts.release(first, "done"),
        lambda: rollouts.goes_on(first), lambda: rollouts.check(first),
    ):  # fmt: skip
        with pytest.raises(Fenced, match="by another process"):
            late()
    released = rollouts.release(second, "ready")
    assert (released.status, released.owner, rollouts.claim(made.id, ("ready",)).fence) == ("ready", "", 3)


def test_a_stop_outlives_the_process_that_it_stopped(any_fleet: Make) -> None:
    shop = any_fleet(2)
    rollouts, made = shop.store.rollouts, shop.create()
    held = rollouts.claim(made.id, ("ready",))
    rollouts.stop(made.id, "by bo")
    assert not rollouts.goes_on(held)
    with pytest.raises(Conflict, match="is carried on by process"):
        rollouts.claim(made.id, ("stopped",))
    assert (rollouts.release(held, "done").status, rollouts.get(made.id).why) == ("stopped", "by bo")


def test_a_status_that_has_changed_meanwhile(any_fleet: Make) -> None:
    shop = any_fleet(2)
    made = shop.create()
    shop.store.rollouts.move(made.id, "c000", ("waiting",), "skipped")
    with pytest.raises(Conflict, match="connection c000 is skipped"):
        shop.store.rollouts.move(made.id, "c000", ("waiting",), "running")


def test_pages_and_ids(any_fleet: Make) -> None:
    shop = any_fleet(5)
    rollouts, ids = shop.store.rollouts, []
    for _ in range(5):
        shop.clock.time += timedelta(seconds=1)
        ids.append(shop.create().id)
    first = rollouts.find(limit=2)
    assert [r.id for r in first] == ids[:2:-1]
    assert [r.id for r in rollouts.find(limit=9, below=first[-1].id)] == ids[2::-1]
    assert rollouts.find(("done",)) == []
    members = rollouts.members(ids[0], limit=2)
    rest = rollouts.members(ids[0], after=(members[-1].wave, members[-1].connection))
    assert [m.connection for m in (*members, *rest)] == shop.names
    assert rollouts.get(ids[3][:-3]).id == ids[3]
    with pytest.raises(InstepError, match="fits several rollouts"):
        rollouts.get("w-")
    assert replace(rollouts.get(ids[0]), updated=shop.clock.time) == replace(first[0], id=ids[0],
        created=rollouts.get(ids[0]).created, updated=shop.clock.time)  # fmt: skip
