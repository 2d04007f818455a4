"""What the log has lost, or never had, is read again or said: nothing is missed in silence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from followed import TABLES, failing_for_t, notes
from log_world import LogWorld

from instep import crash
from instep.crash import Crashed
from instep.project.sections.tables import TableSettings
from instep.schema.selection.selection import Pattern, Selection
from instep.sync.loading import cdc
from sync_world import counts

pytestmark = [pytest.mark.server, pytest.mark.drawn(1)]

DROP = "SELECT pg_drop_replication_slot('instep_shop')"


@pytest.fixture
def loaded(world: LogWorld) -> LogWorld:
    return world.loaded()


def test_a_slot_that_is_gone_fails_its_tables_until_somebody_says_so(loaded: LogWorld) -> None:
    loaded.run("UPDATE t SET v = 0 WHERE id = 1", DROP, "UPDATE t SET v = 0 WHERE id = 2")
    report = loaded.sync()
    assert loaded.statuses(report) == {"t": "failed", "u": "failed"}
    assert "slot instep_shop is gone" in report.tables[0].error
    assert "instep sync --full" in report.tables[0].error
    assert loaded.rows("t", "v")[0] == (1,)
    loaded.sync(full=True)
    assert loaded.differing() == {}
    loaded.run("UPDATE t SET v = 7 WHERE id = 3")
    assert counts(loaded.sync(), "t")[0] == 1


def test_a_publication_that_is_gone_fails_its_tables_until_somebody_says_so(loaded: LogWorld) -> None:
    loaded.run("DROP PUBLICATION instep_shop", "UPDATE t SET v = 0 WHERE id = 1")
    report = loaded.sync()
    assert "publication instep_shop is gone" in report.tables[0].error
    assert "instep sync --full" in report.tables[0].error
    loaded.sync(full=True)
    assert loaded.differing() == {}
    loaded.run("UPDATE t SET v = 7 WHERE id = 3")
    assert counts(loaded.sync(), "t")[0] == 1


def test_a_publication_that_somebody_made_again(loaded: LogWorld) -> None:
    again = "CREATE PUBLICATION instep_shop FOR TABLE t, u WITH (publish_via_partition_root = true)"
    loaded.run("DROP PUBLICATION instep_shop", "UPDATE t SET v = 0 WHERE id = 1", again)
    """Servers before 18 do not read changes from before it was made."""
    report = loaded.sync()
    if int(loaded.sql("SHOW server_version_num")) < 180000:
        assert "instep_shop was dropped and created again" in report.tables[0].error
        assert "instep sync --full" in report.tables[0].error
        assert loaded.statuses(loaded.sync(full=True)) == {"t": "done", "u": "done"}
    assert loaded.differing() == {}
    loaded.run("UPDATE t SET v = 7 WHERE id = 3")
    assert counts(loaded.sync(), "t")[0] == 1


def test_a_slot_of_another_database_is_left_alone(world: LogWorld) -> None:
    other = replace(world.database, config=world.database.config.model_copy(update={"database": "postgres"}))
    other.execute("SELECT pg_create_logical_replication_slot('instep_shop', 'pgoutput')")
    try:
        world.run("CREATE TABLE t (id int PRIMARY KEY)")
        for full in (False, True):
            assert "name another slot" in world.sync(full=full).tables[0].error
    finally:
        assert other.execute(DROP), "it is still there"


@pytest.mark.slow
def test_one_table_read_again_leaves_the_others_no_gap(loaded: LogWorld) -> None:
    loaded.run("UPDATE u SET v = 0 WHERE id = 1", DROP)
    loaded.sync(full=True, tables=frozenset({"public.t"}))
    report = loaded.sync()
    assert "public.u: read as a whole: the server keeps its log from" in notes(report)
    assert loaded.differing() == {}


@pytest.mark.slow
def test_a_slot_that_somebody_made_again(loaded: LogWorld) -> None:
    again = "SELECT pg_create_logical_replication_slot('instep_shop', 'pgoutput')"
    loaded.run(DROP, "UPDATE t SET v = 0 WHERE id = 1", again)
    assert "the server keeps its log from" in notes(loaded.sync())
    assert loaded.differing() == {}


def test_a_paused_table_is_read_as_a_whole_when_it_goes_on(loaded: LogWorld) -> None:
    loaded.store.pauses.pause("shop", "a break", table=("public", "t"))
    loaded.run("UPDATE t SET v = 0 WHERE id = 1", "UPDATE u SET v = 0 WHERE id = 1")
    before = loaded.slot
    assert "public.t is not syncing" in notes(loaded.sync())
    assert loaded.slot > before
    loaded.store.pauses.resume("shop", table=("public", "t"), who="test")
    report = loaded.sync()
    assert counts(report, "t")[:3] == (5, 0, 1)
    assert counts(report, "u")[0] == 0
    assert loaded.differing() == {}


@pytest.mark.slow
def test_a_table_that_is_switched_off_and_on(loaded: LogWorld) -> None:
    loaded.selection = Selection(exclude_tables=(Pattern("public.t"),))
    loaded.run("UPDATE t SET v = 0 WHERE id = 1")
    loaded.sync()
    loaded.selection = Selection()
    loaded.sync()
    assert loaded.differing() == {}


@pytest.mark.slow
def test_a_table_that_fails_keeps_its_log(loaded: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded.run("UPDATE t SET v = 0 WHERE id = 1", "UPDATE u SET v = 0 WHERE id = 1")
    before = loaded.slot
    loaded.settings["t"] = TableSettings(mode="cdc", key=("id",), on_invalid_value="fail")
    loaded.store.pauses.resume("shop", who="test")
    held = loaded.destination.held[("shop", "t")]  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.setattr(loaded.destination.write, "merge", failing_for_t(loaded.destination.write.merge))
        assert loaded.statuses(loaded.sync()) == {"t": "failed", "u": "done"}
        assert loaded.slot == before
        loaded.sync()
        assert loaded.slot == before
        patch.setattr(cdc, "HOLD", 0)
        assert "public.t is far behind" in notes(loaded.sync())
        assert loaded.slot > before
    assert held.state is not None
    assert "read as a whole" in notes(loaded.sync())
    assert loaded.differing() == {}


@pytest.mark.slow
def test_a_transaction_older_than_the_place_in_the_log(loaded: LogWorld) -> None:
    """What it did before its table was taken in is not in the log: the table is read as a whole until it is over."""
    loaded.log["wait"] = 0.1
    loaded.run("CREATE TABLE late (id int PRIMARY KEY, v int)", "INSERT INTO late VALUES (1, 1), (2, 2)")
    with loaded.transaction() as execute:
        execute("UPDATE late SET v = 100 WHERE id = 1")
        assert "began before its log was followed" in notes(loaded.sync())
    assert counts(loaded.sync(), "late")[:3] == (2, 0, 1)
    assert loaded.differing() == {}
    assert counts(loaded.sync(), "late")[0] == 0


@pytest.mark.slow
def test_a_table_taken_out_of_the_publication_and_back(loaded: LogWorld) -> None:
    loaded.run("ALTER PUBLICATION instep_shop DROP TABLE t", "UPDATE t SET v = 0 WHERE id = 1",
               "ALTER PUBLICATION instep_shop ADD TABLE t")  # fmt: skip
    assert "its place in the publication" in notes(loaded.sync())
    assert loaded.differing() == {}


WHILES = [
    ("ALTER PUBLICATION instep_shop DROP TABLE t", "ALTER PUBLICATION instep_shop ADD TABLE t"),
    ("ALTER PUBLICATION instep_shop DROP TABLE t", "SELECT 1"),
    ("ALTER PUBLICATION instep_shop SET (publish = 'insert')",
     "ALTER PUBLICATION instep_shop SET (publish = 'insert, update, delete, truncate')"),
]  # fmt: skip


@pytest.mark.parametrize(("out", "back"), WHILES)
def test_a_transaction_older_than_the_way_back_into_the_publication(loaded: LogWorld, out: str, back: str) -> None:
    """What it did while the log left its table out comes with no later read of the log."""
    loaded.log["wait"] = 0.1
    loaded.sync()
    loaded.run(out)
    with loaded.transaction() as execute:
        execute("UPDATE t SET v = 100 WHERE id = 1")
        loaded.run(back)
        assert "began before its log was followed" in notes(loaded.sync())
    loaded.sync()
    assert loaded.differing() == {}
    assert counts(loaded.sync(), "t")[0] == 0


@pytest.mark.slow
def test_killed_once_the_slot_is_made(world: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run(*TABLES)
    monkeypatch.setenv(crash.VARIABLE, "log.created=raise")
    with pytest.raises(Crashed):
        world.sync()
    monkeypatch.delenv(crash.VARIABLE)
    report = world.sync()
    assert world.differing() == {}, report
    assert "as a whole" not in notes(report)
    world.run("UPDATE t SET v = 5 WHERE id = 3")
    assert counts(world.sync(), "t")[0] == 1


def test_a_slot_that_nobody_reads_any_more_is_named(loaded: LogWorld) -> None:
    loaded.follows = False
    loaded.settings = {"t": TableSettings(), "u": TableSettings()}
    assert "instep source log drop shop --slot instep_shop" in notes(loaded.sync())
    assert loaded.differing() == {}
