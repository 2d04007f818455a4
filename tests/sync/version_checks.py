"""What the versions of a table are, and what always holds for them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from sync_world import PREFIX, Rows, World

FROM, TO, CURRENT = (f"{PREFIX}{name}" for name in ("valid_from", "valid_to", "current"))


def versions(world: World, *columns: str, name: str = "t") -> Rows:
    """(values..., number of the moment from which, number of that up to which; None: current) in order. Checked: one
    current version a key at most, none that overlap, no gaps but deletes."""
    table = world.accepted(name)
    names = columns or tuple(c.alias for c in table.columns)
    key = tuple(table.by_name[k].alias for k in table.key)
    rows = world.rows_at(("shop", table.alias), *key, *names, FROM, TO, CURRENT, f"{PREFIX}deleted", deleted=True)
    moments = sorted({m for r in rows for m in r[-4:-2] if m is not None})
    number = {None: None} | {m: i for i, m in enumerate(moments, 1)}
    by_key: dict[Any, list[tuple[Any, ...]]] = {}
    for row in rows:
        begin, end, current, deleted = row[-4:]
        assert current == (end is None), row
        assert end is None or begin <= end, row
        assert not (current and deleted), row
        by_key.setdefault(row[: len(key)], []).append((begin, end, deleted))
    for lives in by_key.values():
        _check(sorted(lives, key=lambda one: one[0]))
    return in_order((*r[len(key) : -4], number[r[-4]], number[r[-3]]) for r in rows)


def _check(lives: list[tuple[Any, ...]]) -> None:
    for (_, end, deleted), (begin, *_) in pairwise(lives):
        assert end is not None
        assert (begin > end) if deleted else (begin == end), lives
    assert lives[-1][1] is None or lives[-1][2], lives


def in_order(rows: Iterable[tuple[Any, ...]]) -> Rows:
    return sorted(rows, key=lambda r: tuple(map(repr, r)))
