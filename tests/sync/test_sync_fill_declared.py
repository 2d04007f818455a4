"""A fill by a key that only the settings declare: rows that share it would get each other's values."""

from __future__ import annotations

from sync_world import MakeWorld, cursor, preset

TABLE = "CREATE TABLE t (id int, name varchar(20), at int NOT NULL)"


def test_a_key_that_is_not_unique_fills_nothing(make_world: MakeWorld) -> None:
    world = make_world()
    world.settings["t"] = cursor("at", key=("id",))
    world.policy = preset("allow_all", backfill="column")
    world.run(TABLE, "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
    assert world.sync().status == "done"
    world.run("INSERT INTO t VALUES (1, 'late', 0)", "ALTER TABLE t ADD COLUMN size int DEFAULT 7")
    report = world.sync()
    assert report.status == "failed"
    assert "the key id, which the source does not guarantee, is not unique: 1 rows share it" in report.tables[0].error
    assert world.rows("t", "id", "size")[0] == (1, None)
    assert [b.status for b in world.store.backfills.waiting("shop")] == ["requested"]
    world.run("DELETE FROM t WHERE name = 'late'")
    assert world.sync().status == "done"
    assert world.rows("t", "id", "size") == [(1, 7), (2, 7)]
