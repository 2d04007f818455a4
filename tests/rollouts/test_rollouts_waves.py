"""Which connections, in which wave, behind which gates. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollouts_world import Fleet

from instep.control.rollouts.gates import DEFAULT, Gates, findings, gates, gates_of, halt_reasons
from instep.control.rollouts.machine import (
    MOVES,
    Await,
    BeginConnection,
    Halt,
    WaveFinished,
    before,
    next_step,
    status_of,
)
from instep.control.rollouts.waves import ConnectionGroup, chosen, cut, group_of, sizes
from instep.errors import InstepError, ProjectError
from instep.model import Measure, Member, RunOutcome, TableHealth
from instep.operations.immediate.rollouts import SIZES
from instep.operations.values import MemberStatus

CUTS: list[tuple[int, tuple[str, ...], list[int]]] = [
    (500, SIZES, [1, 50, 449]), (10, SIZES, [1, 1, 8]), (2, SIZES, [1, 1]), (1, SIZES, [1]), (0, SIZES, []),
    (7, ("rest",), [7]), (7, ("3", "3", "3"), [3, 3, 1]), (7, ("100%", "rest"), [7]), (7, ("1",), [1, 6]),
]  # fmt: skip


@pytest.mark.parametrize(("count", "how", "counts"), CUTS)
def test_waves(count: int, how: Sequence[str], counts: list[int]) -> None:
    waves = list(cut([f"c{n:03}" for n in range(count)], how).values())
    assert [waves.count(n + 1) for n in range(max(waves, default=0))] == counts


@given(st.integers(0, 300), st.lists(st.one_of(st.integers(1, 99), st.integers(1, 100).map("{}%".format)).map(str)))
def test_everybody_is_in_one_wave_in_order_and_none_is_empty(count: int, said: list[str]) -> None:
    names = [f"c{n:03}" for n in range(count)]
    waves = cut(names, sizes(",".join(said)))
    assert list(waves) == names
    assert list(waves.values()) == sorted(waves.values())
    assert set(waves.values()) == set(range(1, max(waves.values(), default=0) + 1))


@pytest.mark.parametrize(("text", "said"), [("1,10%,rest", SIZES), (" 1 , 10% ", SIZES), ("", ("rest",))])
def test_sizes_are_read(text: str, said: tuple[str, ...]) -> None:
    assert sizes(text) == said


@pytest.mark.parametrize("text", ["0", "-1", "101%", "0%", "1.5", "rest,1", "all", "5 %x"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(InstepError, match="is not a size of a wave"):
        sizes(text)


GROUPS = [
    (ConnectionGroup(matching=("*",)), 6),
     (ConnectionGroup(matching=("re:c00[1-3]",)), 3), (ConnectionGroup(tags=("even",)), 3),
    (ConnectionGroup(tags=("even", "odd")), 6), (ConnectionGroup(tags=("even",), matching=("c00[0-1]",)), 1),
    (ConnectionGroup(names=("c001", "c002")), 2), (ConnectionGroup(destinations=("lake",)), 6),
]  # fmt: skip


@pytest.mark.parametrize(("group", "count"), GROUPS, ids=lambda value: getattr(value, "text", value))
def test_groups(fleet: Callable[[int], Fleet], group: ConnectionGroup, count: int) -> None:
    assert len(chosen(fleet(6).project, group)) == count
    assert group_of(group.to_dict()) == group


def test_groups_that_are_none(fleet: Callable[[int], Fleet]) -> None:
    project = fleet(2).project
    with pytest.raises(InstepError, match="which connections"):
        chosen(project, ConnectionGroup())
    with pytest.raises(InstepError, match="no connection fits: with tag x"):
        chosen(project, ConnectionGroup(tags=("x",)))
    with pytest.raises(ProjectError, match="unknown connection 'c0001'"):
        chosen(project, ConnectionGroup(names=("c0001",)))


def test_gates_are_read_over_the_defaults_that_are_written_down() -> None:
    assert Gates(failed=0.0, quarantined=0.001, nulls=5.0, rows=0.2) == DEFAULT
    assert gates([]) == DEFAULT
    assert gates(["failed=10%", "rows=off", "nulls = 3", "quarantined=1%"]) == Gates(0.1, 0.01, 3.0, None)
    assert gates(["failed=3"]).failed == 3
    assert gates_of(gates(["nulls=off"]).to_dict()).nulls is None
    assert DEFAULT.lines[0] == "any run fails"
    assert Gates(0.1, None, None, None).lines == ("more than 10 % of a wave's runs fail",)
    assert gates(["failed=3"]).lines[0] == "more than 3 of a wave's runs fail"


@pytest.mark.parametrize("text", ["failed", "failed=", "x=1", "rows=-1%", "rows=many", "nulls=nan", "rows=1e9"])
def test_gates_that_are_none(text: str) -> None:
    with pytest.raises(InstepError, match="is not a gate"):
        gates([text])


HEALTH = [
    (TableHealth(read=1000, held=1), ""),
    (TableHealth(read=1000, held=2), "t: 2 values quarantined of 1,000 rows, 0.2 % of them"),
    (TableHealth(read=0, held=0), ""),
    (TableHealth(before=Measure(100), after=Measure(80)), ""),
    (TableHealth(before=Measure(100), after=Measure(121)), "t: 100 rows before, 121 after (+21.0%)"),
    (TableHealth(before=Measure(0), after=Measure(100)), ""),
    (TableHealth(before=None, after=Measure(100)), ""),
    (TableHealth(before=Measure(200, {"a": 20}), after=Measure(200, {"a": 30})), ""),
    (TableHealth(before=Measure(200, {"a": 20}), after=Measure(200, {"a": 31, "b": 200})),
     "t.a: NULL in 15.5 % of the rows, 10.0 % before"),
    (TableHealth(before=Measure(200, {"a": 200}), after=Measure(200, {"a": 0})), ""),
]  # fmt: skip


@pytest.mark.parametrize(("health", "found"), HEALTH)
def test_what_is_found(health: TableHealth, found: str) -> None:
    outcome = RunOutcome("r", "done", tables={"t": health})
    assert findings(outcome, DEFAULT) == ((found,) if found else ())
    assert findings(outcome, Gates(None, None, None, None)) == ()


def wave(*statuses: MemberStatus, **more: object) -> list[Member]:
    return [Member("w", f"c{n}", 1, s, "applies", error="no", **more) for n, s in enumerate(statuses)]  # type: ignore[arg-type]


FAILED: list[tuple[int, int, float | None, bool]] = [
    (0, 10, 0.0, False), (1, 10, 0.0, True), (1, 10, 0.1, False), (2, 10, 0.1, True), (2, 10, 2, False),
    (3, 10, 2, True), (10, 10, None, False), (1, 1, 0.1, True),
]  # fmt: skip


@pytest.mark.parametrize(("failed", "of", "limit", "halted"), FAILED)
def test_failures_are_counted_by_number_or_share(failed: int, of: int, limit: float | None, halted: bool) -> None:
    members = wave(*["failed"] * failed, *["done"] * (of - failed))
    assert bool(halt_reasons(members, Gates(failed=limit))) == halted


def test_what_was_accepted_halts_nothing() -> None:
    assert halt_reasons(wave("done", findings=("t: x",)), DEFAULT) == ("c0: t: x",)
    assert halt_reasons(wave("done", findings=("t: x",), accepted="known"), DEFAULT) == ()


STATUS: st.SearchStrategy[MemberStatus] = st.sampled_from(list(MOVES))


@given(st.lists(STATUS, max_size=8), st.integers(1, 4), st.sampled_from([0.0, 0.5, None]))
def test_the_next_step(statuses: list[MemberStatus], lanes: int, failed: float | None) -> None:
    members, limits = wave(*statuses), Gates(failed=failed)
    halted, running = bool(halt_reasons(members, limits)), statuses.count("running")
    match next_step(members, limits, lanes):
        case BeginConnection(member):
            assert member.status == "waiting"
            assert not halted
            assert running < lanes
        case Await(under_way):
            assert [m.status for m in under_way] == ["running"] * running
            assert running
        case Halt():
            assert halted
            assert not running
        case WaveFinished():
            assert not {"waiting", "running"} & set(statuses)
            assert not halted


def test_what_is_done_is_never_begun_again() -> None:
    reach = {"done"}
    while more := {now for was in reach for now in MOVES[was]} - reach:  # type: ignore[index]
        reach |= more
    assert reach == {"done", "rolled_back"}
    assert set(before("running")) == {"waiting"}
    assert set(before("rolled_back")) == {"done", "failed"}


@given(st.dictionaries(STATUS, st.integers(1, 5)))
def test_where_a_rollout_stands_once_a_wave_is_over(counts: dict[MemberStatus, int]) -> None:
    status = status_of(counts)
    assert (status == "done") == (not set(counts) & {"waiting", "running", "failed", "blocked"})
    assert (status == "ready") == bool(set(counts) & {"waiting", "running"})
