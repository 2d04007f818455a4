"""Packing: all chunks once, lanes whole and in order, loads even, heaviest first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.stage.spec import Chunk, pack, weight

CHUNKS = st.lists(
    st.builds(
        Chunk,
        table=st.sampled_from("abc"),
        number=st.integers(0, 99),
        query=st.just("q"),
        rows=st.integers(0, 10**6),
        bytes=st.integers(0, 10**9),
        lane=st.sampled_from(["", "", "x", "y"]),
    ),
    max_size=40,
)


def load(part: list[Chunk]) -> int:
    return sum(map(weight, part))


@given(CHUNKS, st.integers(1, 9))
def test_laws(chunks: list[Chunk], tasks: int) -> None:
    packed = pack(chunks, tasks)
    assert len(packed) <= tasks
    assert all(packed)
    assert sorted(map(id, chunks)) == sorted(id(c) for part in packed for c in part)
    for lane in {c.lane for c in chunks if c.lane}:
        homes = [[c for c in part if c.lane == lane] for part in packed if any(c.lane == lane for c in part)]
        assert homes == [[c for c in chunks if c.lane == lane]]
    loads = [load(part) for part in packed]
    assert loads == sorted(loads, reverse=True)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=40), st.integers(1, 9))
def test_loads_differ_by_one_chunk_at_most(sizes: list[int], tasks: int) -> None:
    packed = pack([Chunk("t", at, "q", bytes=size) for at, size in enumerate(sizes)], tasks)
    loads = [load(part) for part in packed]
    assert max(loads) - min(loads) <= max(sizes) + 50_000


@pytest.mark.parametrize(
    ("sizes", "tasks", "expected"),
    [
        ([], 4, []),
        ([5], 4, [[0]]),
        ([10**8, 3 * 10**8, 2 * 10**8], 2, [[2, 0], [1]]),
        ([0, 0, 0, 0], 2, [[0, 2], [1, 3]]),
    ],
)
def test_cases(sizes: list[int], tasks: int, expected: list[list[int]]) -> None:
    packed = pack([Chunk("t", at, "q", bytes=size) for at, size in enumerate(sizes)], tasks)
    assert [[c.number for c in part] for part in packed] == expected


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        (Chunk("t", 0, "q"), 50_000),
        (Chunk("t", 0, "q", rows=1000), 150_000),
        (Chunk("t", 0, "q", rows=1000, bytes=10**6), 1_050_000),
    ],
)
def test_weight(chunk: Chunk, expected: int) -> None:
    assert weight(chunk) == expected
