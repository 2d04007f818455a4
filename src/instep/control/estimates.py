"""How long work will take, from what recorded runs took: with its range and what it rests on, never a guess."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import median

from instep.store.catalogs.plans import StepRecord
from instep.store.store import Store

RUNS = 100
SHORTEST = 0.01
"""Seconds: what is over sooner says nothing about a rate."""
COLUMN = "column"
"""The mode of runs that filled columns; the others are those of `model.Mode`."""


@dataclass(frozen=True)
class TimeEstimate:
    """Seconds: the median, the least and the most. `runs` is how many recorded ones it rests on; 0: unknown. `own`:
    they are of the same table. `mode`: the one that all of them had."""

    seconds: float = 0.0
    low: float = 0.0
    high: float = 0.0
    runs: int = 0
    own: bool = False
    mode: str = ""

    def __str__(self) -> str:
        if not self.runs:
            return "no runs yet: unknown"
        between = f" ({_span(self.low)} to {_span(self.high)})" if self.runs > 1 else ""
        what = f"{self.mode} run{'s' * (self.runs != 1)} of {'this table' if self.own else 'other tables'}".strip()
        return f"about {_span(self.seconds)}{between}, from {self.runs} {what}"


def _span(seconds: float) -> str:
    if seconds < 1:
        return "less than 1 s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def from_rates(rows: int, rates: Iterable[float], *, own: bool) -> TimeEstimate:
    """`rates` are rows per second of runs."""
    times = sorted(rows / rate for rate in rates if rate > 0)
    if not times:
        return TimeEstimate()
    return TimeEstimate(median(times), times[0], times[-1], len(times), own)


@dataclass(frozen=True)
class Rate:
    """Speed of one run for one table. `speed`: rows per second, from the first one read to the commit."""

    table: tuple[str, str]
    mode: str
    speed: float


def rates(store: Store, connection: str) -> tuple[Rate, ...]:
    """Return the rates of the latest runs, newest first."""
    return tuple(_rates(store, connection))


def _rates(store: Store, connection: str) -> Iterator[Rate]:
    for run in store.runs.history(connection, limit=RUNS):
        if run.kind not in ("sync", "backfill"):
            continue
        for done in store.runs.tables(run.id):
            if done.status == "done" and done.read and done.seconds >= SHORTEST:
                yield Rate(done.table, done.mode, done.read / done.seconds)


def reading(known: Iterable[Rate], table: tuple[str, str], mode: str, rows: int) -> TimeEstimate:
    """Reading `rows` of an accepted table in this mode and committing them: by runs of the table itself, else of
    others. A run of another mode says nothing: to append is not to merge."""
    same = [rate for rate in known if rate.mode == mode]
    mine = [rate.speed for rate in same if rate.table == table]
    return replace(from_rates(rows, mine or [rate.speed for rate in same], own=bool(mine)), mode=mode)


def rewriting(store: Store, connection: str, path: str, rows: int) -> TimeEstimate:
    """Writing `rows` of a destination table again, by the steps on record that did."""
    steps = store.steps.timed(connection, "column.rewritten", RUNS)
    took = [(s.at_table == path, s.rows / seconds) for s in steps if (seconds := _took(s)) >= SHORTEST]
    mine = [rate for own, rate in took if own]
    return from_rates(rows, mine or [rate for _, rate in took], own=bool(mine))


def _took(step: StepRecord) -> float:
    return (step.ended - step.started).total_seconds() if step.ended and step.started else 0.0
