"""Rows of several connections, read by one statement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def by_connection(names: Sequence[str], found: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    """Return what was found of each connection, in its order; an empty list where there is nothing."""
    out: dict[str, list[T]] = {name: [] for name in names}
    for name, one in found:
        out[name].append(one)
    return out
