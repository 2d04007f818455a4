"""Divides chunks among tasks."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from instep.stage.spec import Chunk

_CHUNK_COST = 50_000  # bytes: a chunk costs a query and a file even when it is empty
_ROW_BYTES = 100


def weight(chunk: Chunk) -> int:
    """About how long a chunk takes, in bytes."""
    return max(chunk.bytes, chunk.rows * _ROW_BYTES) + _CHUNK_COST


def pack(chunks: Iterable[Chunk], tasks: int) -> list[list[Chunk]]:
    """Return at most `tasks` lists of about equal weight, the heaviest first.

    Chunks of one lane stay together and in order; within a list the largest come first.
    """
    units = sorted(_units(chunks), key=lambda unit: -sum(map(weight, unit)))
    loads = [(0, at) for at in range(min(tasks, len(units)))]
    packed: list[list[Chunk]] = [[] for _ in loads]
    for unit in units:
        load, at = heapq.heappop(loads)
        packed[at].extend(unit)
        heapq.heappush(loads, (load + sum(map(weight, unit)), at))
    return sorted(packed, key=lambda part: -sum(map(weight, part)))


def _units(chunks: Iterable[Chunk]) -> list[Sequence[Chunk]]:
    lanes: dict[str, list[Chunk]] = {}
    units: list[Sequence[Chunk]] = []
    for chunk in chunks:
        if not chunk.lane:
            units.append([chunk])
            continue
        if chunk.lane not in lanes:
            units.append(lanes.setdefault(chunk.lane, []))
        lanes[chunk.lane].append(chunk)
    return units
