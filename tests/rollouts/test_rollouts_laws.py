"""Whatever happens in whatever order: no connection twice, none outside its wave, nothing begins once it is stopped."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from rollouts_world import Fleet, Killed

from instep.control.rollouts.flow import skip, stop
from instep.control.rollouts.gates import Gates
from instep.control.rollouts.machine import MOVES
from instep.errors import InstepError
from instep.model import Measure, TableHealth
from instep.operations.values import MemberStatus

pytestmark = pytest.mark.slow

COUNT = 7
HALF = {"main.orders": TableHealth(before=Measure(100), after=Measure(50))}
NAMES = st.sampled_from([f"c{n:03}" for n in range(COUNT)])
EVENT = st.sampled_from(["", "", "fail", "die", "stop", "unhealthy"])


class Rollouts(RuleBasedStateMachine):
    """Each run may fail, kill the process, be unhealthy, or see the rollout stopped by somebody else meanwhile."""

    names: Bundle[str] = Bundle("names")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="rollouts-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.shop = Fleet(self.folder, COUNT)
        self.was: dict[str, MemberStatus] = {}
        self.begun: Counter[str] = Counter()
        self.will: dict[str, str] = {}
        self.stopped = False

    def teardown(self) -> None:
        self.shop.store.close()
        shutil.rmtree(self.folder)

    @initialize(
        sizes=st.sampled_from([("1", "2"), ("1", "30%", "30%"), ("rest",)]), failed=st.sampled_from([0.0, 0.5, None]),
        lanes=st.integers(1, 3), slow=st.integers(0, 1),
    )  # fmt: skip
    def create(self, sizes: tuple[str, ...], failed: float | None, lanes: int, slow: int) -> None:
        self.rollout = self.shop.create(sizes, Gates(failed=failed))
        self.shop.runs.lanes, self.shop.runs.slow, self.shop.runs.dies = lanes, slow, self.run
        self.waves = {m.connection: m.wave for m in self.shop.store.rollouts.members(self.rollout.id)}
        self.was = self.shop.statuses(self.rollout)

    def run(self, connection: str) -> bool:
        """What a run does to the rollout while it is under way; whether the process dies."""
        self.in_its_wave(connection)
        will = self.will.pop(connection, "")
        self.shop.runs.fails = {connection: "broken"} if will == "fail" else {}
        self.shop.runs.tables = {connection: HALF} if will == "unhealthy" else {}
        if will == "stop":
            stop(self.shop.store, self.rollout.id, "bo")
            self.stopped = True
            self.begun_before = set(self.under_way())
        return will == "die"

    def under_way(self) -> list[str]:
        return [m.connection for m in self.shop.store.rollouts.members(self.rollout.id, statuses=("running",))]

    def in_its_wave(self, connection: str) -> None:
        member = self.shop.store.rollouts.member(self.rollout.id, connection)
        now = self.shop.store.rollouts.get(self.rollout.id)
        assert member.status == "running"
        assert member.wave == self.waves[connection] <= now.wave
        assert not self.stopped or connection in self.begun_before, "something began after the stop"

    def done(self) -> set[str]:
        return {name for name, status in self.shop.statuses(self.rollout).items() if status == "done"}

    def act(self, what: str, every: bool, accept: str = "") -> None:
        before = Counter(name for name, _ in self.shop.runs.ended)
        fixed = self.done()
        with suppress(InstepError, Killed):
            if what == "advance":
                self.shop.advance(self.rollout, every=every)
            else:
                self.shop.resume(self.rollout, every=every, accept=accept)
        self.stopped = False
        ran = Counter(name for name, _ in self.shop.runs.ended) - before
        assert not fixed & set(ran), "a connection that is done has had its turn"
        self.shop.runs.under_way.clear()

    @rule(every=st.booleans(), will=st.dictionaries(NAMES, EVENT))
    def advance(self, every: bool, will: dict[str, str]) -> None:
        self.will = will
        self.act("advance", every)

    @rule(every=st.booleans(), accept=st.sampled_from(["", "known"]), will=st.dictionaries(NAMES, EVENT))
    def resume(self, every: bool, accept: str, will: dict[str, str]) -> None:
        self.will = will
        self.act("resume", every, accept)

    @rule()
    def stop_it(self) -> None:
        with suppress(InstepError):
            stop(self.shop.store, self.rollout.id, "bo")

    @rule(connection=NAMES)
    def skip_one(self, connection: str) -> None:
        with suppress(InstepError):
            skip(self.shop.store, self.rollout.id, [connection], "no", "ann")

    @rule(wave=st.integers(0, 3))
    def roll_back(self, wave: int) -> None:
        with suppress(InstepError, Killed):
            self.shop.rolling(self.rollout).roll_back(self.rollout.id, wave=wave)
        self.shop.runs.under_way.clear()

    @rule()
    def time_passes(self) -> None:
        self.shop.later()

    @invariant()
    def only_moves_that_there_are(self) -> None:
        now = self.shop.statuses(self.rollout)
        for name, status in now.items():
            assert status in _reach(self.was[name]), f"{name} went from {self.was[name]} to {status}"
        self.was = now

    @invariant()
    def what_was_never_begun_is_untouched(self) -> None:
        for member in self.shop.store.rollouts.members(self.rollout.id):
            touched = self.shop.has_refunds(member.connection)
            if member.status in ("waiting", "already", "blocked", "skipped") and not member.attempt:
                assert not touched, f"{member.connection} was touched"
            if member.status in ("running", "done"):
                assert touched
            if member.status == "rolled_back":
                assert not touched, f"{member.connection} was not taken back"

    @invariant()
    def no_wave_begins_before_the_one_before_it_is_through(self) -> None:
        now = self.shop.store.rollouts.get(self.rollout.id)
        for member in self.shop.store.rollouts.members(self.rollout.id):
            if member.wave > now.wave:
                assert member.status in ("waiting", "skipped")
            if member.wave < now.wave:
                assert member.status not in ("waiting",) or member.attempt, "left behind"

    @invariant()
    def one_run_for_each_attempt_ends_once(self) -> None:
        ended = Counter(self.shop.runs.ended)
        assert all(number == 1 for number in ended.values())


def _reach(status: MemberStatus) -> set[MemberStatus]:
    reach = {status}
    while more := {now for was in reach for now in MOVES[was]} - reach:
        reach |= more
    return reach


Rollouts.TestCase.settings = settings(max_examples=40, stateful_step_count=12, deadline=None)
TestRollouts = pytest.mark.timeout(600)(Rollouts.TestCase)
