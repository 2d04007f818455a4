"""What is missed or comes late, over each kind of log: nothing is missed in silence."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from followed import Followed, failing_for_t, notes
from log_world import LogWorld

from instep import crash
from instep.crash import Crashed
from instep.project.sections.tables import TableSettings
from sync_world import counts

pytestmark = pytest.mark.server


@pytest.fixture
def loaded(either: Followed) -> Followed:
    return either.loaded()


def test_another_server(loaded: Followed) -> None:
    """After a failover positions of before say nothing."""
    held = loaded.destination.held[("shop", "t")]  # type: ignore[attr-defined]
    cursor = json.loads(held.state.cursor)
    cursor["log"]["server"] += "9"
    moved = replace(held, state=replace(held.state, cursor=json.dumps(cursor)))
    loaded.destination.held[("shop", "t")] = moved  # type: ignore[attr-defined]
    loaded.run("UPDATE t SET v = 0 WHERE id = 1")
    report = loaded.sync()
    assert loaded.statuses(report) == {"t": "failed", "u": "done"}
    assert "another server" in next(r.error for r in report.tables if r.table[1] == "t")
    loaded.sync(full=True, tables=frozenset({f"{loaded.case.schema}.t"}))
    assert loaded.differing() == {}


@pytest.mark.slow
def test_only_some_tables_are_synced(loaded: Followed) -> None:
    loaded.run("UPDATE t SET v = 0 WHERE id = 1", "UPDATE u SET v = 0 WHERE id = 1")
    loaded.sync(tables=frozenset({f"{loaded.case.schema}.t"}))
    report = loaded.sync()
    assert counts(report, "u")[0] == 1
    assert report.notes == ()
    assert loaded.differing() == {}


def test_a_transaction_that_ends_during_the_sync_comes_later(loaded: Followed) -> None:
    with loaded.transaction() as execute:
        execute("UPDATE t SET v = 100 WHERE id = 1")
        loaded.run("UPDATE t SET v = 200 WHERE id = 2")
        assert counts(loaded.sync(), "t")[0] == 1
    loaded.run("UPDATE t SET v = 300 WHERE id = 3")
    assert counts(loaded.sync(), "t")[0] == 2
    assert loaded.differing() == {}


@pytest.mark.slow
def test_more_than_one_read_of_the_log(loaded: Followed) -> None:
    loaded.log["messages"] = 10
    loaded.run(*(f"UPDATE t SET v = v + 1 WHERE id = {1 + i % 5}" for i in range(20)))  # noqa: S608
    report = loaded.sync()
    assert set(loaded.statuses(report).values()) == {"done"}
    assert loaded.differing() == {}
    assert counts(loaded.sync(), "t")[0] == 0


@pytest.mark.slow
def test_more_rows_than_are_looked_for_by_key(loaded: Followed) -> None:
    loaded.log["limit"] = 2
    loaded.run("UPDATE t SET v = 0 WHERE id < 4", "DELETE FROM t WHERE id = 4")
    report = loaded.sync()
    assert "more than 2 of its rows changed" in notes(report)
    assert counts(report, "t")[:4] == (4, 0, 3, 1)


SLOW = ("log.released", "sync.staged", "sync.noted")
POINTS = ["log.saved", *(pytest.param(point, marks=pytest.mark.slow) for point in SLOW)]


@pytest.mark.sampled
@pytest.mark.parametrize("point", POINTS)
def test_killed_in_between(loaded: Followed, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded.run("UPDATE t SET v = 0 WHERE id = 1", "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (9, 9)")
    monkeypatch.setenv(crash.VARIABLE, f"{point}=raise")
    with pytest.raises(Crashed):
        loaded.sync()
    monkeypatch.delenv(crash.VARIABLE)
    report = loaded.sync()
    assert loaded.differing() == {}, report
    assert "as a whole" not in notes(report)
    loaded.run("UPDATE t SET v = 5 WHERE id = 3")
    assert counts(loaded.sync(), "t")[0] == 1


@pytest.mark.slow
def test_a_store_that_was_put_back_costs_a_whole_read_and_no_row(loaded: Followed) -> None:
    loaded.sync()
    with loaded.store.transaction():
        for table in ("t", "u"):
            loaded.store.cursors.forget("shop", (loaded.case.schema, table))
    loaded.run("UPDATE t SET v = 0 WHERE id = 1")
    why = "the server keeps its log from" if isinstance(loaded, LogWorld) else "the log was read from"
    assert why in notes(loaded.sync())
    assert loaded.differing() == {}
    loaded.run("UPDATE t SET v = 1 WHERE id = 1")
    assert counts(loaded.sync(), "t")[0] == 1


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("follows", [True, False])
def test_from_another_mode_and_back(loaded: Followed, follows: bool) -> None:
    loaded.settings = {"t": TableSettings(), "u": TableSettings()}
    loaded.run("UPDATE t SET v = 0 WHERE id = 1")
    loaded.follows = follows
    assert bool(notes(loaded.sync())) == (isinstance(loaded, LogWorld) and not follows), "a slot that is left behind"
    loaded.settings, loaded.follows = {}, True
    loaded.run("UPDATE t SET v = 1 WHERE id = 1")
    assert counts(loaded.sync(), "t")[0] == 5
    loaded.run("UPDATE t SET v = 2 WHERE id = 1")
    assert counts(loaded.sync(), "t")[0] == 1
    assert loaded.differing() == {}


@pytest.mark.slow
def test_a_table_that_fails_does_not_hold_the_others_back(loaded: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot is moved on for them, so that the table is read as a whole; a binary log is kept anyway."""
    loaded.log["messages"] = 10
    loaded.run(*(f"UPDATE {table} SET v = v + 1 WHERE id = 1" for table in "tu" * 15))  # noqa: S608
    with monkeypatch.context() as patch:
        patch.setattr(loaded.destination.write, "merge", failing_for_t(loaded.destination.write.merge))
        report = loaded.sync()
    assert loaded.statuses(report) == {"t": "failed", "u": "done"}
    assert set(loaded.differing()) == {"t"}
    after = loaded.sync()
    if isinstance(loaded, LogWorld):
        assert "public.t is far behind" in notes(report)
        assert "read as a whole" in notes(after)
    else:
        assert counts(after, "t")[0] == 1
    assert loaded.differing() == {}
