"""Waves, gates, stop, resume, skip and rollback, over a real store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from rollouts_world import SEEN, Fleet, Killed, see, table

from instep.control.rollouts.flow import skip, stop
from instep.control.rollouts.gates import Gates
from instep.errors import Blocked, Conflict, Fenced, InstepError
from instep.model import Measure, Member, TableHealth
from instep.schema.catalog.catalog import Catalog

Make = Callable[[int], Fleet]


def test_waves_one_by_one(fleet: Make) -> None:
    shop = fleet(20)
    rollout = shop.create()
    assert (rollout.status, rollout.of, shop.runs.ended) == ("ready", 3, [])
    for wave, ended in ((1, 1), (2, 3)):
        rollout = shop.advance(rollout)
        assert (rollout.status, rollout.wave, len(shop.runs.ended)) == ("ready", wave, ended)
    rollout = shop.advance(rollout)
    assert (rollout.status, rollout.wave, shop.counted(rollout)) == ("done", 3, {"done": 20})
    assert all(shop.has_refunds(name) for name in shop.names)
    with pytest.raises(Conflict, match="is done"):
        shop.advance(rollout)


def test_475_are_done_25_are_listed_and_resume_touches_only_those(fleet: Make) -> None:
    shop = fleet(500)
    broken = shop.names[19::20]
    shop.runs.fails = dict.fromkeys(broken, "source db: the password was refused")
    rollout = shop.advance(shop.create(gates=Gates(failed=0.1)), every=True)
    assert (rollout.status, rollout.why) == ("partial", "25 failed")
    assert shop.counted(rollout) == {"done": 475, "failed": 25}
    failed = shop.store.rollouts.members(rollout.id, statuses=("failed",))
    assert [m.connection for m in failed] == sorted(broken, key=lambda n: (n not in shop.names[:51], n))
    assert {m.error for m in failed} == {"source db: the password was refused"}
    shop.runs.fails, shop.runs.ended = {broken[0]: "again"}, []
    rollout = shop.resume(rollout)
    assert sorted(name for name, _ in shop.runs.ended) == broken
    assert shop.counted(rollout) == {"done": 499, "failed": 1}
    skip(shop.store, rollout.id, broken[:1], "it is being moved", "ann")
    assert shop.resume(rollout).status == "done"


def test_any_failed_run_halts_the_wave_and_nothing_more_begins(fleet: Make) -> None:
    shop = fleet(20)
    shop.runs.fails = {"c002": "no route to host"}
    rollout = shop.advance(shop.create(), every=True)
    assert (rollout.status, rollout.wave) == ("halted", 2)
    assert rollout.why == "the run of c002 failed: no route to host"
    assert shop.counted(rollout) == {"done": 2, "failed": 1, "waiting": 17}
    with pytest.raises(Conflict, match="is halted"):
        shop.advance(rollout)
    assert shop.resume(rollout).status == "halted"
    shop.runs.fails = {}
    assert shop.resume(rollout, every=True).status == "done"
    assert [name for name, _ in shop.runs.ended].count("c002") == 3


BAD = {
    "held": TableHealth(read=1000, held=2),
    "rows": TableHealth(before=Measure(100), after=Measure(79)),
    "nulls": TableHealth(before=Measure(100, {"note": 0}), after=Measure(100, {"note": 6})),
}


@pytest.mark.parametrize("what", BAD)
def test_a_gate_halts_until_somebody_accepts_what_it_found(fleet: Make, what: str) -> None:
    shop = fleet(4)
    shop.runs.tables = {"c001": {"main.orders": BAD[what]}}
    rollout = shop.advance(shop.create(("1", "1")), every=True)
    assert (rollout.status, shop.counted(rollout)) == ("halted", {"done": 2, "waiting": 2})
    assert rollout.why.startswith("c001: main.orders")
    with pytest.raises(Blocked, match=r"c001: main\.orders"):
        shop.resume(rollout)
    assert shop.store.rollouts.get(rollout.id).status == "halted"
    assert shop.resume(rollout, every=True, accept="a clean-up of ours").status == "done"
    assert shop.store.rollouts.member(rollout.id, "c001").accepted == "a clean-up of ours"
    assert len(shop.runs.ended) == 4


def test_a_stop_lets_the_run_end_and_begins_nothing(fleet: Make) -> None:
    shop = fleet(10)
    rollout = shop.create(("rest",))

    def told(member: Member) -> None:
        if member.connection == "c003":
            stop(shop.store, rollout.id, "bo", "lunch")

    ended = replace(shop.rolling(rollout), on_member=told).advance(rollout.id, every=True)
    assert (ended.status, ended.why) == ("stopped", "by bo: lunch")
    assert shop.counted(rollout) == {"done": 4, "waiting": 6}
    with pytest.raises(Conflict, match="is stopped"):
        shop.advance(rollout)
    assert shop.resume(rollout).status == "done"
    assert max(shop.runs.begun.values()) == 1
    with pytest.raises(Conflict, match="no part of it would start"):
        stop(shop.store, rollout.id, "bo")


def test_runs_of_a_queue_are_under_way_together_and_end_before_a_halt(fleet: Make) -> None:
    shop = fleet(12)
    shop.runs.lanes, shop.runs.slow, shop.runs.fails = 4, 2, {"c001": "broken"}
    rollout = shop.advance(shop.create(("rest",)))
    assert (rollout.status, shop.runs.most) == ("halted", 4)
    assert shop.counted(rollout) == {"done": 3, "failed": 1, "waiting": 8}
    assert not shop.runs.under_way


def test_a_process_that_is_killed_is_followed_by_one_that_goes_on(fleet: Make) -> None:
    shop = fleet(6)
    rollout = shop.create(("rest",))
    shop.runs.dies = lambda name: name == "c003"
    with pytest.raises(Killed):
        shop.advance(rollout)
    left = shop.store.rollouts.get(rollout.id)
    assert (left.status, shop.statuses(rollout)["c003"], shop.has_refunds("c003")) == ("running", "running", True)
    with pytest.raises(Conflict, match="is carried on by process"):
        shop.advance(rollout)
    shop.runs.dies = lambda name: False
    shop.later()
    assert shop.advance(rollout).status == "done"
    assert shop.runs.begun["c003", f"{rollout.id}/1"] == 2
    assert [name for name, _ in shop.runs.ended] == shop.names
    with pytest.raises(Fenced):
        shop.store.rollouts.heartbeat(left)


def test_a_wave_goes_back_to_what_was_chosen_before(fleet: Make) -> None:
    shop = fleet(10)
    rollout = shop.advance(shop.create(("2", "3")))
    rollout = shop.advance(rollout)
    back = shop.rolling(rollout).roll_back(rollout.id)
    assert (back.status, back.why) == ("stopped", "wave 2 rolled back by ann")
    assert shop.counted(rollout) == {"done": 2, "rolled_back": 3, "waiting": 5}
    assert [name for name in shop.names if shop.has_refunds(name)] == ["c000", "c001"]
    with pytest.raises(InstepError, match="nothing to roll back of wave 2"):
        shop.rolling(rollout).roll_back(rollout.id)
    shop.rolling(rollout).roll_back(rollout.id, connections=["c001"])
    assert not shop.has_refunds("c001")
    assert shop.resume(rollout, every=True).status == "done"
    assert shop.counted(rollout) == {"done": 6, "rolled_back": 4}


def test_what_does_not_fit_waits_until_it_does(fleet: Make) -> None:
    shop = fleet(4)
    see(shop.store, "c001", Catalog.of([table("orders")]))
    shop.store.pauses.pause("c002", "a key changed")
    shop.store.accepted.add("c003", SEEN, who="test", why="all are in")
    rollout = shop.create(("1",))
    found = {m.connection: (m.status, m.fit, m.wave) for m in shop.store.rollouts.members(rollout.id)}
    assert found == {
        "c000": ("waiting", "applies", 1), "c001": ("blocked", "conflict", 1), "c002": ("blocked", "undecided", 1),
        "c003": ("already", "already", 0),
    }  # fmt: skip
    rollout = shop.advance(rollout, every=True)
    assert (rollout.status, rollout.why) == ("partial", "2 does not fit")
    rollout = shop.resume(rollout)
    assert shop.statuses(rollout)["c001"] == "done", "its source was looked at again"
    assert shop.runs.looked == ["c001", "c002"]
    assert (rollout.status, shop.statuses(rollout)["c002"]) == ("partial", "blocked")


def test_a_skip_needs_a_reason_and_a_connection_that_is_not_done(fleet: Make) -> None:
    shop = fleet(3)
    rollout = shop.advance(shop.create())
    with pytest.raises(InstepError, match="why are they skipped"):
        skip(shop.store, rollout.id, ["c001"], " ", "ann")
    with pytest.raises(Conflict, match="c000 is done"):
        skip(shop.store, rollout.id, ["c001", "c000"], "no", "ann")
    assert shop.statuses(rollout)["c001"] == "waiting", "all or none"
    with pytest.raises(InstepError, match="has no connection zz"):
        skip(shop.store, rollout.id, ["zz"], "no", "ann")
    skip(shop.store, rollout.id, ["c001"], "it is being moved", "ann")
    assert shop.advance(rollout, every=True).status == "done"
    assert not shop.has_refunds("c001")


def test_all_of_it_is_in_the_history(fleet: Make) -> None:
    shop = fleet(2)
    rollout = shop.advance(shop.create(), every=True)
    shop.rolling(rollout).roll_back(rollout.id)
    told = [(e.connection, e.type) for e in shop.store.events.after(0) if e.type.startswith("rollout.")]
    assert told == [
        ("", "rollout.moved"), ("c000", "rollout.applied"), ("c001", "rollout.applied"), ("", "rollout.moved"),
        ("c001", "rollout.taken_back"), ("", "rollout.moved"),
    ]  # fmt: skip
