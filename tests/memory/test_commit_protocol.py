"""The commit protocol as a model small enough to look at every state of it: two workers that claim, read and commit,
die anywhere, stop for any time and go on, or never hear that their commit has landed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import pytest

Phase = Literal["idle", "fenced", "claimed", "read", "landed"]
RUNS, ROWS, STATES = 5, 3, 1_000_000


@dataclass(frozen=True)
class Worker:
    """`since` and `upto` bound the rows that it has read."""

    phase: Phase = "idle"
    fence: int = 0
    since: int = 0
    upto: int = 0


@dataclass(frozen=True)
class State:
    """`given` is the store's last fence, `held` the destination's; `rows` are those committed, `cursor` is recorded."""

    workers: tuple[Worker, ...] = (Worker(), Worker())
    source: int = 1
    given: int = 0
    held: int = 0
    cursor: int = 0
    rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Protocol:
    """As it is, or with a part left out: commits that are `fenced`, data and cursor in one `atomic` commit."""

    fenced: bool = True
    atomic: bool = True

    def steps(self, state: State) -> Iterator[State]:
        if state.source < ROWS:
            yield replace(state, source=state.source + 1)
        for number, worker in enumerate(state.workers):
            for after, now in self.moves(state, worker):
                workers = (*after.workers[:number], now, *after.workers[number + 1 :])
                yield replace(after, workers=workers)

    def moves(self, state: State, worker: Worker) -> Iterator[tuple[State, Worker]]:
        if worker.phase != "idle":
            yield state, Worker()  # it dies; what it was about to do is forgotten
        match worker.phase:
            case "idle" if state.given < RUNS:
                yield replace(state, given=state.given + 1), Worker("fenced", state.given + 1)
            case "fenced" if worker.fence > state.held:
                yield replace(state, held=worker.fence), replace(worker, phase="claimed")
            case "claimed":
                yield state, replace(worker, phase="read", since=state.cursor, upto=state.source)
            case "read" if not self.fenced or worker.fence == state.held:
                rows = tuple(sorted((*state.rows, *range(worker.since, worker.upto))))
                if self.atomic:
                    yield replace(state, rows=rows, cursor=worker.upto), Worker()
                else:
                    yield replace(state, rows=rows), replace(worker, phase="landed")
            case "landed":
                yield replace(state, cursor=worker.upto), Worker()

    def explore(self) -> set[State]:
        found, todo = {State()}, [State()]
        while todo:
            for after in self.steps(todo.pop()):
                if after not in found:
                    found.add(after)
                    todo.append(after)
            assert len(found) < STATES
        return found


def broken(state: State) -> bool:
    """A row stands twice, or one below the cursor is missing, or the cursor lags behind what is there."""
    return state.rows != tuple(range(state.cursor))


def after_one_run(state: State) -> State:
    """The next worker, alone and undisturbed, with a fence of its own."""
    rows = (*state.rows, *range(state.cursor, state.source))
    return replace(state, rows=rows, cursor=state.source)


def test_no_state_loses_or_doubles_a_row_and_the_next_run_converges() -> None:
    found = Protocol().explore()
    assert len(found) > 1000
    assert [s for s in found if broken(s)] == []
    assert {after_one_run(s).rows == tuple(range(s.source)) for s in found} == {True}
    assert max(Counter(s.held for s in found)) == RUNS


@pytest.mark.sampled
@pytest.mark.parametrize("part", [Protocol(fenced=False), Protocol(atomic=False)], ids=["no fence", "cursor apart"])
def test_each_part_is_needed(part: Protocol) -> None:
    assert any(broken(s) and all(w.phase == "idle" for w in s.workers) for s in part.explore())
