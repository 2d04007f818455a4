# ruff: noqa: S608 - names are ours
"""Tables that keep their history are compared side by side: none waits for the memory of another one."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from instep.project.sections.tables import TableSettings
from instep.sync.loading.row_matching import database
from sync_world import MakeWorld

TABLES = [f"t{n}" for n in range(6)]


def test_comparisons_run_at_the_same_time() -> None:
    together = threading.Barrier(2, timeout=60)

    def compare(number: int) -> int:
        with database() as db:
            db.execute(f"CREATE TEMP TABLE staged AS SELECT {int(number)} AS n")
            together.wait()
            [(found,)] = db.execute("SELECT n FROM staged").fetchall()
            return int(found)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(compare, (1, 2))) == [1, 2]


def test_each_table_gets_its_own_versions(make_world: MakeWorld) -> None:
    world = make_world("sqlite")
    world.settings = dict.fromkeys(TABLES, TableSettings(history=True))
    for number, name in enumerate(TABLES):
        world.run(
            f"CREATE TABLE {name} (id int PRIMARY KEY, v int)",
            *(f"INSERT INTO {name} VALUES ({n}, {100 * number + n})" for n in range(20)),
        )
    world.sync()
    for name in TABLES:
        world.run(f"UPDATE {name} SET v = -v WHERE id % 2 = 1", f"DELETE FROM {name} WHERE id = 0")
    world.sync()
    assert world.differing() == {}
    for number, name in enumerate(TABLES):
        values = [value for _, value in world.rows(name, "id", "v", deleted=True)]
        assert sorted(map(abs, values)) == sorted(100 * number + n for n in [*range(20), *range(1, 20, 2)])
