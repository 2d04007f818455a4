"""Settings that decide how rows land, changed behind a log that does not tell of the rows again."""

from __future__ import annotations

import pytest
from followed import LOG, Followed, notes

from contract.destinations import DESTINATIONS
from instep.errors import InstepError
from instep.schema.selection.selection import Pattern, Selection
from instep.sync.schema_changes.backfill_plan import check_columns

pytestmark = pytest.mark.server


@pytest.fixture
def world(either: Followed) -> Followed:
    either.settings["t"] = LOG
    return either


@pytest.mark.sampled
@pytest.mark.parametrize("history", [False, True])
def test_rows_that_went_while_deletes_were_ignored_go(world: Followed, history: bool) -> None:
    world.destination = DESTINATIONS["duckdb"](world.folder)
    world.settings["t"] = LOG.model_copy(update={"deletes": "ignore", "history": history})
    world.loaded().sync()
    world.run("DELETE FROM t WHERE id = 1")
    world.sync()
    world.settings["t"] = LOG.model_copy(update={"history": history})
    report = world.sync()
    why = "t: rows that the source has deleted are no longer ignored, so the whole table is read again"
    assert why in notes(report) or report.status == "done"
    assert world.differing() == {}
    assert world.store.backfills.waiting("shop") == []


def test_rows_of_a_quiet_table_become_versions(world: Followed) -> None:
    world.destination = DESTINATIONS["duckdb"](world.folder)
    world.loaded().sync()
    world.settings["t"] = LOG.model_copy(update={"history": True})
    assert world.sync().status == "done"
    assert world.differing() == {}
    rows = world.rows("t", "id", "_instep_current")
    assert rows == [(i, True) for i in range(1, 6)]
    (read,) = [t.read for t in world.sync().tables if t.table[1] == "t"]
    assert read == 0, "it is quiet again"


def test_a_column_of_a_quiet_table_is_told_until_it_is_filled(world: Followed) -> None:
    """The log has no row of it, so that the table is not loaded, and lacks the column's values all the same."""
    world.loaded().sync()
    world.run("ALTER TABLE t ADD COLUMN extra int DEFAULT 7")
    told = "t.extra: rows that do not change keep NULL in it until"
    for _ in range(3):
        report = world.sync()
        assert told in notes(report)
        assert [t.read for t in report.tables if t.table[1] == "t"] == [0]
    world.run("UPDATE t SET v = 9 WHERE id = 1")
    assert told in notes(world.sync())
    world.store.backfills.request("shop", (world.case.schema, "t"), column="extra")
    assert told not in notes(world.sync())
    assert world.differing() == {}


@pytest.mark.sampled
@pytest.mark.parametrize("column", ["v", "id"])
def test_hashes_of_another_salt_are_made_anew(world: Followed, column: str) -> None:
    """Of a key, too: rows of the old hashes are deleted ones."""
    world.destination = DESTINATIONS["duckdb"](world.folder)
    world.selection = Selection(hashed=(Pattern(f"{world.case.schema}.t.{column}"),))
    world.loaded().sync()
    world.salt = b"pepper"
    world.run("UPDATE t SET v = 9 WHERE id = 1")
    assert world.sync().status == "done"
    assert world.differing() == {}
    world.run("DELETE FROM t WHERE id = 2")
    world.sync()
    assert (world.differing(), len(world.rows("t"))) == ({}, 4)


@pytest.mark.parametrize("meanwhile", ["", "UPDATE t SET id = 9 WHERE id = 2"])
def test_a_column_that_was_left_out_for_a_while_is_not_filled_by_itself(world: Followed, meanwhile: str) -> None:
    """Its old values cannot be told from those of today, and a fill replaces none."""
    path = f"{world.case.schema}.t"
    world.loaded().sync()
    world.selection = Selection(off=frozenset({f"{path}.v"}))
    world.run("UPDATE t SET v = 100 WHERE id = 1")
    world.sync()
    world.selection = Selection()
    world.run(*filter(None, [meanwhile]))
    assert "values" in notes(world.sync())
    with pytest.raises(InstepError, match="from before it was left out"):
        check_columns(world.context, path, ("v",))
    world.sync(kind="backfill", full=True, tables=frozenset({path}))
    assert world.differing() == {}
    assert check_columns(world.context, path, ("v",))[1] == ("v",)
