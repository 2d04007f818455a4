"""What one sync may ask of its source: rows a second and connections, over all tasks together."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage_world import MemoryReader, batch, column, spec_of

from instep.stage.local import extract_locally
from instep.stage.spec import Chunk, ReadSession, SourceLimits, limits_of
from instep.stage.task import RateLimit, task_count

COUNTS = [
    ("no limit", SourceLimits(), 8, 4, 8),
    ("one connection is the driver's", SourceLimits(connections=4), 8, 4, 3),
    ("the least", SourceLimits(connections=2), 8, 4, 1),
    ("more than wanted", SourceLimits(connections=40), 8, 4, 8),
    ("a rate: none waits for a core with its share", SourceLimits(rows_per_second=5), 8, 4, 4),
    ("both", SourceLimits(3, 5), 8, 4, 2),
]


@pytest.mark.parametrize(
    ("limits", "wanted", "at_once", "expected"), [c[1:] for c in COUNTS], ids=[c[0] for c in COUNTS]
)
def test_task_count(limits: SourceLimits, wanted: int, at_once: int, expected: int) -> None:
    assert task_count(limits, wanted, at_once) == expected


@given(st.lists(st.integers(1, 10_000), max_size=30), st.floats(1, 10_000), st.lists(st.floats(0, 5), max_size=30))
def test_no_more_rows_than_the_rate_allows(batches: list[int], rate: float, pauses: list[float]) -> None:
    now = 100.0
    rate_limit, total = RateLimit(rate, lambda: now), 0
    for at, rows in enumerate(batches):
        now += pauses[at] if at < len(pauses) else 0
        total += rows
        for wait in rate_limit.waits(rows):
            assert 0 < wait <= 0.5
            now += wait + 1e-9
        assert total <= rate * (now - 100.0) + 1.001
    assert list(RateLimit(0).waits(10**9)) == []


def test_threads_share_one_pace() -> None:
    """Each waits until its own rows are due, and one that is left alone has all of them."""
    now = 100.0
    rate_limit = RateLimit(10, lambda: now)
    first, second = rate_limit.waits(20), rate_limit.waits(5)
    assert next(first) == 0.5
    assert next(second) == 0.5
    now = 102.0
    assert list(first) == []
    assert next(second) == pytest.approx(0.5)
    now = 102.5
    assert list(second) == []


def test_a_reader_without_limits_has_none() -> None:
    assert limits_of(MemoryReader({})) == SourceLimits()


@dataclass
class Counting:
    """Counts how many of its sessions are open at a time."""

    inner: MemoryReader
    limits: SourceLimits
    now: int = 0
    most: int = 0

    @contextmanager
    def open(self) -> Iterator[ReadSession]:
        with self.inner.open() as session:
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                yield session
            finally:
                self.now -= 1


@pytest.mark.parametrize(("limits", "most", "least"), [(SourceLimits(3), 2, 0.0), (SourceLimits(0, 200), 8, 0.25)])
def test_a_sync_keeps_within_the_limits(tmp_path: Path, limits: SourceLimits, most: int, least: float) -> None:
    spec = spec_of([column("id", "int64", key=1)], tmp_path, table="a")
    chunks = [Chunk("a", number, f"a{number}") for number in range(8)]
    reader = Counting(
        MemoryReader({c.query: [batch(id=list(range(c.number * 10, c.number * 10 + 10)))] for c in chunks}), limits
    )
    began = time.monotonic()
    results = extract_locally(reader, [spec], chunks, threads=8)
    assert sum(r.read for r in results) == 80
    assert [r.error for r in results if r.error] == []
    assert reader.most <= most
    assert time.monotonic() - began >= least
