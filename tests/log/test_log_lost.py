"""What the log has lost, or never had, is read again or said: nothing is missed in silence."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from log_world import LogWorld

from instep import crash
from instep.crash import Crashed
from instep.model import TableSettings
from instep.schema.selection import Pattern, Selection
from instep.sources.postgres.connect import conninfo
from instep.store.store import Store
from instep.sync.rows import follow
from sync_world import counts

pytestmark = pytest.mark.server

SETUP = (
    "CREATE TABLE t (id int PRIMARY KEY, v int)",
    "INSERT INTO t SELECT i, i FROM generate_series(1, 5) i",
    "CREATE TABLE u (id int PRIMARY KEY, v int)",
    "INSERT INTO u SELECT i, i FROM generate_series(1, 5) i",
)
DROP = "SELECT pg_drop_replication_slot('instep_shop')"


@pytest.fixture
def loaded(world: LogWorld) -> LogWorld:
    world.run(*SETUP)
    world.sync()
    return world


def notes(report: Any) -> str:
    return " ".join(report.notes)


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


def test_another_server(loaded: LogWorld) -> None:
    """A failover changes the timeline: positions of before say nothing."""
    ref = ("public", "t")
    held = loaded.destination.held[("shop", "t")]  # type: ignore[attr-defined]
    cursor = json.loads(held.state.cursor)
    cursor["log"]["server"] = "1/2/00000009"
    from dataclasses import replace

    moved = replace(held, state=replace(held.state, cursor=json.dumps(cursor)))
    loaded.destination.held[("shop", "t")] = moved  # type: ignore[attr-defined]
    loaded.run("UPDATE t SET v = 0 WHERE id = 1")
    report = loaded.sync()
    assert loaded.statuses(report) == {"t": "failed", "u": "done"}
    assert "another server" in next(r.error for r in report.tables if r.table == ref)
    loaded.sync(full=True, tables=frozenset({"public.t"}))
    assert loaded.differing() == {}


def test_a_paused_table_is_read_as_a_whole_when_it_goes_on(loaded: LogWorld) -> None:
    loaded.store.pauses.pause("shop", "a break", table=("public", "t"))
    loaded.run("UPDATE t SET v = 0 WHERE id = 1", "UPDATE u SET v = 0 WHERE id = 1")
    before = loaded.slot
    assert "public.t does not run" in notes(loaded.sync())
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
    loaded.settings["t"] = TableSettings(mode="log", key=("id",), misfit="fail")
    loaded.store.pauses.resume("shop", who="test")
    held = loaded.destination.held[("shop", "t")]  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        merge = loaded.destination.merge

        def failing(spark: Any, ref: Any, *rest: Any) -> Any:
            if ref == ("shop", "t"):
                raise RuntimeError("the disk is full")
            return merge(spark, ref, *rest)

        patch.setattr(loaded.destination, "merge", failing)
        assert loaded.statuses(loaded.sync()) == {"t": "failed", "u": "done"}
        assert loaded.slot == before
        loaded.sync()
        assert loaded.slot == before
        patch.setattr(follow, "HOLD", 0)
        assert "public.t is far behind the log" in notes(loaded.sync())
        assert loaded.slot > before
    assert held.state is not None
    assert "read as a whole" in notes(loaded.sync())
    assert loaded.differing() == {}


@pytest.mark.slow
def test_only_some_tables_are_synced(loaded: LogWorld) -> None:
    loaded.run("UPDATE t SET v = 0 WHERE id = 1", "UPDATE u SET v = 0 WHERE id = 1")
    loaded.sync(tables=frozenset({"public.t"}))
    report = loaded.sync()
    assert counts(report, "u")[0] == 1
    assert report.notes == ()
    assert loaded.differing() == {}


def test_a_transaction_that_ends_during_the_sync_comes_later(loaded: LogWorld) -> None:
    assert loaded.database is not None
    with psycopg.connect(conninfo(loaded.database.config)) as late:
        late.execute("UPDATE t SET v = 100 WHERE id = 1")
        loaded.run("UPDATE t SET v = 200 WHERE id = 2")
        assert counts(loaded.sync(), "t")[0] == 1
        late.commit()
    loaded.run("UPDATE t SET v = 300 WHERE id = 3")
    assert counts(loaded.sync(), "t")[0] == 2
    assert loaded.differing() == {}


@pytest.mark.slow
def test_a_transaction_older_than_the_place_in_the_log(loaded: LogWorld) -> None:
    """What it did before its table was taken in is not in the log: the table is read as a whole until it is over."""
    loaded.log["wait"] = 0.1
    loaded.run("CREATE TABLE late (id int PRIMARY KEY, v int)", "INSERT INTO late VALUES (1, 1), (2, 2)")
    assert loaded.database is not None
    with psycopg.connect(conninfo(loaded.database.config)) as late:
        late.execute("UPDATE late SET v = 100 WHERE id = 1")
        assert "began before its log was followed" in notes(loaded.sync())
        late.commit()
    assert counts(loaded.sync(), "late")[:3] == (2, 0, 1)
    assert loaded.differing() == {}
    assert counts(loaded.sync(), "late")[0] == 0


@pytest.mark.slow
def test_more_than_one_read_of_the_log(loaded: LogWorld) -> None:
    loaded.log["messages"] = 10
    loaded.run(*(f"UPDATE t SET v = v + 1 WHERE id = {1 + i % 5}" for i in range(20)))  # noqa: S608
    report = loaded.sync()
    assert set(loaded.statuses(report).values()) == {"done"}
    assert loaded.differing() == {}
    assert counts(loaded.sync(), "t")[0] == 0


@pytest.mark.slow
def test_more_rows_than_are_looked_for_by_key(loaded: LogWorld) -> None:
    loaded.log["limit"] = 2
    loaded.run("UPDATE t SET v = 0 WHERE id < 4", "DELETE FROM t WHERE id = 4")
    report = loaded.sync()
    assert "more than 2 of its rows changed" in notes(report)
    assert counts(report, "t")[:4] == (4, 0, 3, 1)


@pytest.mark.slow
def test_a_table_taken_out_of_the_publication_and_back(loaded: LogWorld) -> None:
    loaded.run("ALTER PUBLICATION instep_shop DROP TABLE t", "UPDATE t SET v = 0 WHERE id = 1",
               "ALTER PUBLICATION instep_shop ADD TABLE t")  # fmt: skip
    assert "its place in the publication" in notes(loaded.sync())
    assert loaded.differing() == {}


SLOW = ("log.created", "log.released", "sync.staged", "sync.noted")
POINTS = ["log.saved", *(pytest.param(point, marks=pytest.mark.slow) for point in SLOW)]


@pytest.mark.parametrize("point", POINTS)
def test_killed_in_between(world: LogWorld, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run(*SETUP)
    first = point == "log.created"
    if not first:
        world.sync()
        world.run("UPDATE t SET v = 0 WHERE id = 1", "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (9, 9)")
    monkeypatch.setenv(crash.VARIABLE, f"{point}=raise")
    with pytest.raises(Crashed):
        world.sync()
    monkeypatch.delenv(crash.VARIABLE)
    report = world.sync()
    assert world.differing() == {}, report
    assert "as a whole" not in notes(report)
    world.run("UPDATE t SET v = 5 WHERE id = 3")
    assert counts(world.sync(), "t")[0] == 1


@pytest.mark.slow
def test_a_store_that_was_put_back_costs_a_whole_read_and_no_row(loaded: LogWorld) -> None:
    loaded.sync()
    with loaded.store.transaction():
        for table in ("t", "u"):
            loaded.store.cursors.forget("shop", ("public", table))
    loaded.run("UPDATE t SET v = 0 WHERE id = 1")
    loaded.sync()
    assert loaded.differing() == {}
    assert isinstance(loaded.store, Store)


@pytest.mark.slow
def test_from_another_mode_and_back(loaded: LogWorld) -> None:
    loaded.settings = {"t": TableSettings(), "u": TableSettings()}
    loaded.run("UPDATE t SET v = 0 WHERE id = 1")
    loaded.sync()
    loaded.settings = {}
    loaded.run("UPDATE t SET v = 1 WHERE id = 1")
    assert counts(loaded.sync(), "t")[0] == 5
    loaded.run("UPDATE t SET v = 2 WHERE id = 1")
    assert counts(loaded.sync(), "t")[0] == 1
    assert loaded.differing() == {}


@pytest.mark.slow
def test_a_table_that_fails_does_not_hold_the_others_back(loaded: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded.log["messages"] = 10
    merge = loaded.destination.merge

    def failing(spark: Any, ref: Any, *rest: Any) -> Any:
        if ref == ("shop", "t"):
            raise RuntimeError("the disk is full")
        return merge(spark, ref, *rest)

    loaded.run(*(f"UPDATE {table} SET v = v + 1 WHERE id = 1" for table in "tu" * 15))  # noqa: S608
    with monkeypatch.context() as patch:
        patch.setattr(loaded.destination, "merge", failing)
        report = loaded.sync()
    assert loaded.statuses(report) == {"t": "failed", "u": "done"}
    assert "public.t is far behind the log" in notes(report)
    assert set(loaded.differing()) == {"t"}
    assert "read as a whole" in notes(loaded.sync())
    assert loaded.differing() == {}


def test_a_slot_that_nobody_reads_any_more_is_named(loaded: LogWorld) -> None:
    loaded.follows = False
    loaded.settings = {"t": TableSettings(), "u": TableSettings()}
    assert "instep source log drop shop --slot instep_shop" in notes(loaded.sync())
    assert loaded.differing() == {}
