"""Pairs with the best total score: the Hungarian method, for small matrices."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf


def assign(scores: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """(row, column) pairs, each row and column in at most one, with the greatest sum of `scores`; min(rows, columns)
    of them. The same for the same scores."""
    if not scores or not scores[0]:
        return []
    if len(scores) > len(scores[0]):
        return sorted((i, j) for j, i in assign([list(column) for column in zip(*scores, strict=True)]))
    width = len(scores[0])
    rows, columns, owner = [0.0] * (len(scores) + 1), [0.0] * (width + 1), [0] * (width + 1)
    for row in range(1, len(scores) + 1):
        _add(row, scores, rows, columns, owner)
    return sorted((owner[j] - 1, j - 1) for j in range(1, width + 1) if owner[j])


def _add(
    row: int, scores: Sequence[Sequence[float]], rows: list[float], columns: list[float], owner: list[int]
) -> None:
    """Gives one more row a column, along the cheapest chain of moves. `rows` and `columns` are the potentials; all are
    counted from 1, column 0 stands for the new row."""
    width = len(columns) - 1
    owner[0], at = row, 0
    least, way, done = [inf] * (width + 1), [0] * (width + 1), [False] * (width + 1)
    while owner[at]:
        done[at], here, delta, following = True, owner[at], inf, 0
        for j in range(1, width + 1):
            if done[j]:
                continue
            cost = -scores[here - 1][j - 1] - rows[here] - columns[j]
            if cost < least[j]:
                least[j], way[j] = cost, at
            if least[j] < delta:
                delta, following = least[j], j
        for j in range(width + 1):
            if done[j]:
                rows[owner[j]] += delta
                columns[j] -= delta
            else:
                least[j] -= delta
        at = following
    while at:
        owner[at] = owner[way[at]]
        at = way[at]
