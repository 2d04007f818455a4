"""Tables that keep their history, over all destinations: which versions of which rows there are after some syncs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from contract.destinations import DESTINATIONS
from contract.destinations import postgres as into_postgres
from instep.model import TableSettings
from postgres_server import Database
from sync_world import PREFIX, MakeWorld, Rows, World

KINDS = ("delta", "duckdb", "iceberg", "postgres")
HISTORY = TableSettings(history=True)
FROM, TO, CURRENT = (f"{PREFIX}{name}" for name in ("valid_from", "valid_to", "current"))


@pytest.fixture(params=[pytest.param(k, marks=pytest.mark.server if k == "postgres" else ()) for k in KINDS])
def world(request: pytest.FixtureRequest, make_world: MakeWorld) -> World:
    """From SQLite into each destination."""
    made = make_world("sqlite", settings={"t": HISTORY})
    if request.param == "postgres":
        database: Database = request.getfixturevalue("postgres")
        made.destination = into_postgres(made.folder, database)  # type: ignore[assignment]
    else:
        made.destination = DESTINATIONS[request.param](made.folder)  # type: ignore[assignment]
    return made


def versions(world: World, *columns: str, name: str = "t") -> Rows:
    """(values..., number of the sync that it is from, and to; None: current) in order, checked for what always holds:
    one current version a key at most, no overlaps, ends that are begins or deletes."""
    table = world.accepted(name)
    names = columns or tuple(c.alias for c in table.columns)
    key = tuple(table.by_name[k].alias for k in table.key)
    rows = world.rows_at(("shop", table.alias), *key, *names, FROM, TO, CURRENT, f"{PREFIX}deleted", deleted=True)
    moments = sorted({m for r in rows for m in r[len(key) + len(names) : -2] if m is not None})
    number = {None: None} | {m: i for i, m in enumerate(moments, 1)}
    by_key: dict[Any, list[tuple[Any, ...]]] = {}
    for row in rows:
        begin, end, current, deleted = row[-4:]
        assert current == (end is None), row
        assert end is None or begin <= end, row
        assert not (current and deleted), row
        by_key.setdefault(row[: len(key)], []).append((begin, end, deleted))
    for lives in by_key.values():
        lives.sort()
        for (_, end, deleted), (begin, *_) in pairwise(lives):
            assert end is not None
            assert (begin > end) if deleted else (begin == end), lives
        assert lives[-1][1] is None or lives[-1][2], lives
    return sorted(((*r[len(key) : -4], number[r[-4]], number[r[-3]]) for r in rows), key=lambda r: tuple(map(repr, r)))


@dataclass(frozen=True)
class History:
    """`syncs`: what is done at the source before each; `expected`: values, and the numbers of the moments at which a
    version begins and ends."""

    name: str
    syncs: tuple[tuple[str, ...], ...]
    expected: Rows
    settings: TableSettings = HISTORY


SETUP = ("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, u INTEGER)", "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 1)")
BY_CURSOR = TableSettings(history=True, cursor="u")
HISTORIES = (
    History("first load", (SETUP,), [(1, "a", 1, 1, None), (2, "b", 1, 1, None)]),
    History("nothing changed", (SETUP, (), ()), [(1, "a", 1, 1, None), (2, "b", 1, 1, None)]),
    History(
        "changed twice",
        (SETUP, ("UPDATE t SET a = 'A' WHERE id = 1",), ("UPDATE t SET a = NULL WHERE id = 1",)),
        [(1, "A", 1, 2, 3), (1, "a", 1, 1, 2), (1, None, 1, 3, None), (2, "b", 1, 1, None)],
    ),
    History(
        "there and back makes two versions",
        (SETUP, ("UPDATE t SET a = 'A' WHERE id = 1",), ("UPDATE t SET a = 'a' WHERE id = 1",)),
        [(1, "A", 1, 2, 3), (1, "a", 1, 1, 2), (1, "a", 1, 3, None), (2, "b", 1, 1, None)],
    ),
    History(
        "a delete ends a version, a return begins one",
        (SETUP, ("DELETE FROM t WHERE id = 1",), ("UPDATE t SET a = 'B'",), ("INSERT INTO t VALUES (1, 'a', 1)",)),
        [(1, "a", 1, 1, 2), (1, "a", 1, 4, None), (2, "B", 1, 3, None), (2, "b", 1, 1, 3)],
    ),
    History(
        "all rows go",
        (SETUP, ("DELETE FROM t",), ()),
        [(1, "a", 1, 1, 2), (2, "b", 1, 1, 2)],
    ),
    History(
        "deletes are ignored",
        (SETUP, ("DELETE FROM t WHERE id = 1",)),
        [(1, "a", 1, 1, None), (2, "b", 1, 1, None)],
        TableSettings(history=True, deletes="ignore"),
    ),
    History(
        "a cursor finds what changed, and what went",
        (SETUP, ("UPDATE t SET a = 'A', u = 2 WHERE id = 1",), ("DELETE FROM t WHERE id = 2",), ()),
        [(1, "A", 2, 2, None), (1, "a", 1, 1, 2), (2, "b", 1, 1, 3)],
        BY_CURSOR,
    ),
    History(
        "a row is back as it was, which no cursor tells",
        (SETUP, ("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (3, 'c', 5)"),
         ("INSERT INTO t VALUES (1, 'a', 1)",), (), ("DELETE FROM t WHERE id = 1",),
         ("INSERT INTO t VALUES (1, 'x', 6)",), ()),
        [(1, "a", 1, 1, 2), (1, "a", 1, 3, 4), (1, "x", 6, 5, None), (2, "b", 1, 1, None), (3, "c", 5, 2, None)],
        BY_CURSOR,
    ),
    History(
        "late data never ends a newer version",
        (SETUP, ("UPDATE t SET a = 'new', u = 9 WHERE id = 1",), ("UPDATE t SET a = 'old', u = 5 WHERE id = 1",
         "INSERT INTO t VALUES (3, 'c', 9)")),
        [(1, "a", 1, 1, 2), (1, "new", 9, 2, None), (2, "b", 1, 1, None), (3, "c", 9, 3, None)],
        TableSettings(history=True, cursor="u", lookback=5),
    ),
    History(
        "a column that is added makes no versions",
        (SETUP, ("ALTER TABLE t ADD COLUMN more INTEGER DEFAULT 7",), ("UPDATE t SET a = 'B' WHERE id = 2",), ()),
        [(1, "a", 1, 7, 1, None), (2, "B", 1, 7, 2, None), (2, "b", 1, 7, 1, 2)],
    ),
    History(
        "a column that is removed keeps its values, also in new versions",
        (SETUP, ("ALTER TABLE t DROP COLUMN a",), (), ("UPDATE t SET u = 2 WHERE id = 1",)),
        [(1, "a", 1, 1, 2), (1, "a", 2, 2, None), (2, "b", 1, 1, None)],
    ),
)  # fmt: skip


@pytest.mark.parametrize("case", HISTORIES, ids=lambda c: c.name)
def test_versions(world: World, case: History) -> None:
    world.settings["t"] = case.settings
    for statements in case.syncs:
        world.run(*statements)
        report = world.sync()
        assert world.statuses(report) == {"t": "done"}, [t.error for t in report.tables]
    assert versions(world) == sorted(case.expected, key=lambda r: tuple(map(repr, r)))
    if case.settings.deletes != "ignore" and not case.settings.lookback:
        assert world.differing() == {}
