"""Tables that follow a log are free for whoever wants them, and columns of those with no change are filled."""

from __future__ import annotations

import pytest
from followed import Followed, notes
from log_world import LogWorld

from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.sources.postgres.connect import conninfo
from instep.sources.postgres.read import PostgresReadSession
from instep.sources.postgres.snapshot import PostgresSnapshot
from instep.sources.postgres.wal.log import PostgresLog
from lock_phases import Phases
from sync_world import preset

pytestmark = pytest.mark.server
STEPS = ("state", "create", "begin", "follow", "read", "rows", "keys", "release")


def test_a_table_is_free_in_every_phase_of_a_sync_that_follows_the_log(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    def act() -> None:
        with psycopg.connect(conninfo(world.database.config)) as connection:
            connection.execute("SET lock_timeout = '20s'")
            connection.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")

    world.run("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    with monkeypatch.context() as patch:
        phases = Phases(patch, act)
        phases.behind(PostgresLog, *STEPS)
        phases.behind(PostgresSnapshot, "discover", "chunks", "transactions", "changed_tables")
        phases.amid(PostgresReadSession, "read")
        assert world.sync().status == "done"
        world.run("UPDATE t SET v = 9 WHERE id = 1", "DELETE FROM t WHERE id = 2")
        assert world.sync().status == "done"
    assert phases.met.keys() >= {*STEPS, "amid read", "transactions"} - {"state"}, phases.met
    assert world.differing() == {}


def test_a_column_is_filled_in_a_table_in_which_no_row_changes(either: Followed) -> None:
    lake = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(either.folder / "lake")))
    either.destination = lake
    either.policy = preset("allow_all", backfill="column")
    either.loaded()
    either.run("ALTER TABLE t ADD COLUMN more int DEFAULT 7")
    report = either.sync()
    assert "t: more filled in 5 rows loaded before" in notes(report)
    assert either.store.backfills.waiting("shop") == []
    assert either.differing() == {}
