"""Tables that keep their history and follow a log: each sync's changes are versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from binlog_world import BinlogWorld, grant
from log_world import LogWorld

from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.project.sections.tables import TableSettings
from instep.schema.policy.policy import Rule
from mariadb import MariaDatabase
from postgres_server import Database
from sync_world import World, preset

pytestmark = [pytest.mark.server, pytest.mark.slow]

LOG = TableSettings(mode="cdc", history=True)
SYNCS = (
    ("CREATE TABLE t (id int PRIMARY KEY, a varchar(9))", "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')"),
    ("UPDATE t SET a = 'A' WHERE id = 1", "DELETE FROM t WHERE id = 2", "UPDATE t SET a = 'c' WHERE id = 3"),
    (),
    ("INSERT INTO t VALUES (2, 'b')", "UPDATE t SET id = 4 WHERE id = 3"),
)
EXPECTED = [(1, "A", 2, 0), (1, "a", 1, 2), (2, "b", 1, 2), (2, "b", 3, 0), (3, "c", 1, 3), (4, "c", 3, 0)]


def check(world: World) -> None:
    for number, statements in enumerate(SYNCS):
        world.run(*statements)
        assert [(t.status, t.error) for t in world.sync().tables] == [("done", "")]
        if not number:
            world.sync()
    rows = world.destination.write.read(("shop", "t")).read_all().to_pylist()
    names = ("_instep_valid_from", "_instep_valid_to")
    moments = {m: i for i, m in enumerate(sorted({r[n] for r in rows for n in names if r[n] is not None}), 1)}
    assert sorted((r["id"], r["a"], *(moments.get(r[n], 0) for n in names)) for r in rows) == EXPECTED
    assert world.differing() == {}


def into(folder: Path) -> Any:
    return DuckDbDestination(DuckDbConfig.resolved(name="lake", path=str(folder / "shop.duckdb")))


def test_postgres(database: Database, tmp_path: Path) -> None:
    world = LogWorld.of(database, tmp_path, into(tmp_path))
    world.settings = {"t": LOG}
    check(world)
    world.close()


def test_mariadb(mariadb: MariaDatabase, tmp_path: Path) -> None:
    grant(mariadb)
    world = BinlogWorld.of(mariadb, tmp_path, into(tmp_path))
    world.settings = {"t": LOG}
    check(world)
    world.close()


def test_another_key_waits(database: Database, tmp_path: Path) -> None:
    """By the old key a new row would be the next version of one that the source still has."""
    world = LogWorld.of(database, tmp_path, into(tmp_path))
    world.settings = {"t": LOG}
    world.run("CREATE TABLE t (id int PRIMARY KEY, b int NOT NULL)", "INSERT INTO t VALUES (1, 0), (2, 0)")
    world.sync()
    world.policy = preset("allow_all", Rule(("key.changed",), "apply"))
    world.run("ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (id, b)",
              "INSERT INTO t VALUES (1, 1)")  # fmt: skip
    [one] = world.sync().tables
    assert (one.status, "its versions have the old one" in one.error) == ("paused", True), one
    assert world.rows("t", "id", "b") == [(1, 0), (2, 0)]
    world.close()
