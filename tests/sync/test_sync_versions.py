"""Tables that keep their history, over all destinations: which versions of which rows there are after some syncs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest
from version_checks import in_order, versions

from contract.destinations import DESTINATIONS
from contract.destinations import postgres as into_postgres
from instep.project.sections.tables import TableSettings
from postgres_server import Database
from sync_world import MakeWorld, Rows, World

KINDS = ("delta", "duckdb", "iceberg", "postgres", "delta, as if it were large", "iceberg, as if it were large")
HISTORY = TableSettings(history=True)


@pytest.fixture(params=[pytest.param(k, marks=() if k == "duckdb" else pytest.mark.slow) for k in KINDS])
def world(request: pytest.FixtureRequest, make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> World:
    """From SQLite into each destination."""
    made = make_world("sqlite")
    destination: Any
    kind, _, large = request.param.partition(", ")
    if kind == "postgres":
        database: Database = request.getfixturevalue("postgres")
        destination = into_postgres(made.folder, database)
    else:
        destination = DESTINATIONS[kind](made.folder)
    made.destination = destination
    if large:
        monkeypatch.setattr(type(destination.write), "is_large", lambda self, ref, files=(): True)
    return made


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
         ("INSERT INTO t VALUES (1, 'a', 1)",), ("DELETE FROM t WHERE id = 1",),
         ("INSERT INTO t VALUES (1, 'x', 6)",)),
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


def tables() -> dict[str, History]:
    return {f"t{number}": case for number, case in enumerate(HISTORIES)}


def test_versions(world: World) -> None:
    """Each history in a table of its own, with as many syncs as the longest takes: those that find nothing make no
    version."""
    cases = tables()
    world.settings = {name: case.settings for name, case in cases.items()}
    for number in range(max(len(case.syncs) for case in cases.values())):
        for name, case in cases.items():
            world.run(*(re.sub(r"\bt\b", name, s) for s in (case.syncs[number : number + 1] or ((),))[0]))
        report = world.sync()
        assert not [t for t in report.tables if t.status != "done"]
    found = {case.name: versions(world, name=name) for name, case in cases.items()}
    assert found == {case.name: in_order(case.expected) for case in HISTORIES}
    differing = {cases[name].name for name in world.differing()}
    assert differing == {"late data never ends a newer version"}
