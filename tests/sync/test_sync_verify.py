"""What `verify` says of rows that are only in the destination: wrong, or what was asked for."""

from __future__ import annotations

import pytest

from instep.model import TableSettings
from sync_world import MakeWorld, cursor

TABLE = "CREATE TABLE t (id int PRIMARY KEY, name varchar(20), at int NOT NULL)"
ROWS = "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 2)"
KEPT = [
    ("by cursor", cursor("at", deletes="ignore")),
    ("whole-table compare", TableSettings(deletes="ignore")),
    ("versions of rows", TableSettings(deletes="ignore", history=True)),
]


@pytest.mark.parametrize("settings", [k[1] for k in KEPT], ids=[k[0] for k in KEPT])
def test_rows_that_were_asked_to_stay_are_no_difference(make_world: MakeWorld, settings: TableSettings) -> None:
    world = make_world("sqlite")
    world.settings["t"] = settings
    world.run(TABLE, ROWS)
    world.sync()
    assert (world.verify()["t"].equal, world.verify()["t"].kept) == (True, 0)
    world.run("DELETE FROM t WHERE id < 3", "INSERT INTO t VALUES (4, 'd', 3)")
    world.sync()
    found = world.verify()["t"]
    assert (found.equal, found.source_rows, found.destination_rows, found.kept) == (True, 2, 4, 2)
    world.run("UPDATE t SET name = 'x' WHERE id = 3", "INSERT INTO t VALUES (5, 'e', 4)")
    found = world.verify()["t"]
    assert (found.equal, found.kept) == (False, 2)
    assert found.differences == ("differs (1 rows): key 3", "missing (1 rows): key 5")


def test_others_differ_by_them(make_world: MakeWorld) -> None:
    world = make_world("sqlite")
    world.settings["t"] = cursor("at", deletes="ignore")
    world.run(TABLE, ROWS)
    world.sync()
    world.run("DELETE FROM t WHERE id = 1")
    world.sync()
    world.settings["t"] = cursor("at", deletes="hard")
    found = world.verify()["t"]
    assert (found.equal, found.kept) == (False, 0)
    assert "only in the destination (1 rows): key 1" in found.differences
