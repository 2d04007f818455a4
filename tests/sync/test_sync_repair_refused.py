"""What `repair` refuses, with the reason and the next command, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from instep.control.pauses import pause
from instep.errors import Blocked, InstepError
from instep.project.sections.tables import TableSettings
from instep.sources.stream import Streams
from instep.sync.operations.repair import prepare, repair
from repair_world import content, put, remove
from sync_world import MakeWorld, World, by_key, cursor, preset

TABLE = "CREATE TABLE t (id int PRIMARY KEY, name varchar(20), at int NOT NULL)"
ROWS = "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 2)"


@dataclass(frozen=True)
class Refused:
    """A table that is loaded, what happens then, and what is said of it."""

    why: str
    hint: str
    settings: TableSettings = field(default_factory=TableSettings)
    table: str = TABLE
    then: tuple[str, ...] = ()
    act: Callable[[World], object] = lambda world: None
    policy: str = ""


def _pause_table(world: World) -> None:
    pause(world.store, "shop", "looked at", world.accepted("t").ref)


def _want_whole(world: World) -> None:
    world.store.backfills.request("shop", world.accepted("t").ref)


CASES = {
    "no key": Refused("it has no key", "instep backfill", table=TABLE.replace("PRIMARY KEY", "NOT NULL")),
    "history": Refused("it keeps its history", "instep backfill", TableSettings(history=True)),
    "append": Refused("it is only appended to", "instep backfill", TableSettings(mode="append", cursor="at")),
    "paused": Refused("it is paused: looked at", "instep resume shop", act=_pause_table),
    "a schema change that the next sync applies": Refused(
        "its schema has changed", "instep sync", then=("ALTER TABLE t ADD COLUMN more int",)
    ),
    "another key": Refused(
        "pending change", "instep changes list", policy="approve",
        then=("ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (name)"),
    ),
    "gone": Refused("is no longer in the source", "instep changes list", policy="approve", then=("DROP TABLE t",)),
    "the source is behind": Refused(
        "its at has reached 1, not 2", "instep sync", cursor("at"), then=("DELETE FROM t WHERE id = 3",)
    ),
    "the whole table is read by the next sync": Refused("the next sync reads", "instep sync", act=_want_whole),
}  # fmt: skip


def told(world: World, path: str = "public.t") -> list[InstepError]:
    """What is said when the table is to be repaired, first by the preview."""
    found = []
    for call in (
        lambda: prepare(world.context, path),
        lambda: repair(world.context, path, ["*"], engine=world.rows_by),
    ):
        with pytest.raises(InstepError) as caught:
            call()
        found.append(caught.value)
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_is_refused(world: World, case: Refused) -> None:
    world.settings["t"] = case.settings
    world.run(case.table, ROWS)
    world.sync()
    if case.policy:
        world.policy = preset(case.policy)
    world.run(*case.then)
    case.act(world)
    before = world.rows("t", deleted=True)
    for error in told(world):
        assert isinstance(error, Blocked)
        assert error.message.startswith("public.t cannot be repaired: ")
        assert case.why in error.message
        assert case.hint in error.hint
    assert world.rows("t", deleted=True) == before


def test_a_table_that_there_is_not_names_the_one_that_was_meant(world: World) -> None:
    world.run(TABLE, ROWS)
    world.sync()
    for error in told(world, "public.tt"):
        assert (error.message, error.hint) == ("connection shop has no table public.tt", "did you mean public.t?")


def test_a_connection_that_is_paused_is_not_repaired(world: World) -> None:
    world.run(TABLE, ROWS)
    world.sync()
    pause(world.store, "shop", "for now", None)
    for error in told(world):
        assert "connection shop is paused: for now" in error.message
        assert "instep resume shop" in error.hint


class Streamed:
    """What a connector is taken for."""

    def granularity(self) -> None: ...

    def stream(self) -> None: ...

    def waits(self) -> None: ...

    def forget(self) -> None: ...


def test_a_connector_is_not_read_by_key(world: World) -> None:
    world.run(TABLE, ROWS)
    world.sync()
    source: Any = Streamed()
    assert isinstance(source, Streams)
    with pytest.raises(Blocked, match="a connector sends what has changed") as caught:
        prepare(replace(world.context, source=source), "public.t")
    assert "instep sync --full" in caught.value.hint


def test_rows_go_only_where_the_table_is_named(world: World) -> None:
    world.run(TABLE, ROWS)
    world.sync()
    put(world, lambda row: {**row, "id": 9}, lambda row: row["id"] == 1)
    put(world, lambda row: {**row, "name": "z"}, lambda row: row["id"] == 2)
    before = content(world)
    with pytest.raises(Blocked, match=r"1 row of public\.t is not in the source, and would be deleted") as caught:
        repair(world.context, "public.t", ["public.other"], engine=world.rows_by)
    assert caught.value.hint == "name it: --allow-destructive 'public.t'"
    assert content(world) == before
    assert [run.status for run in world.store.runs.history("shop", kind="repair")] == ["blocked"]
    done = repair(world.context, "public.t", ["public.*"], engine=world.rows_by)
    assert (done.inserted, done.updated, done.deleted) == (0, 1, 1)
    assert world.rows("t") == [(1, "a", 1), (2, "b", 1), (3, "c", 2)]


def test_rows_that_are_kept_stay(world: World) -> None:
    world.settings["t"] = cursor("at", deletes="ignore")
    world.run(TABLE, ROWS)
    world.sync()
    world.run("DELETE FROM t WHERE id = 1")
    remove(world, lambda row: row["id"] == 2)
    assert prepare(world.context, "public.t").document()["extra"] == 0
    done = repair(world.context, "public.t", engine=world.rows_by)
    assert (done.inserted, done.updated, done.deleted, done.verdict.equal, done.verdict.retained) == (1, 0, 0, True, 1)
    assert world.rows("t") == [(1, "a", 1), (2, "b", 1), (3, "c", 2)]


def test_values_in_quarantine_are_no_difference_and_stay_there(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY, name int)", "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    world.sync()
    world.run("ALTER TABLE t ALTER name TYPE varchar(9) USING CASE id WHEN 3 THEN '3' ELSE 'x' || id END")
    world.sync()
    made = prepare(world.context, "public.t")
    assert (dict(made.counts), made.verdict.equal, made.verdict.held) == ({}, True, 2)
    remove(world, lambda row: row["id"] == 1)
    put(world, lambda row: {**row, "name": 4}, lambda row: row["id"] == 3)
    done = repair(world.context, "public.t", engine=world.rows_by)
    assert (done.inserted, done.updated, done.verdict.equal, done.verdict.held) == (1, 1, True, 2)
    assert world.rows("t") == [(1, None), (2, None), (3, 3)]
    assert world.verify()["t"].equal


def test_nothing_is_written_where_nothing_differs(world: World) -> None:
    world.run(TABLE, ROWS)
    world.sync()
    before = content(world)
    done = repair(world.context, "public.t", engine=world.rows_by)
    assert (done.inserted, done.updated, done.deleted, done.verdict.equal) == (0, 0, 0, True)
    assert content(world) == before


def test_it_is_on_record_and_restore_takes_it_back(world: World) -> None:
    from instep.sync.operations.restore import prepare as look
    from instep.sync.operations.restore import restore

    world.run(TABLE, ROWS)
    world.sync()
    remove(world, lambda row: row["id"] == 2)
    before = world.rows("t")
    done = repair(world.context, "public.t", engine=world.rows_by)
    assert world.rows("t") != before
    event = world.store.events.latest(connection="shop", types=("table.loaded",), limit=1)[0]
    said = {name: event.data[name] for name in ("run", "mode", "inserted", "updated", "deleted")}
    assert said == {"run": done.run, "mode": "repair", "inserted": 1, "updated": 0, "deleted": 0}
    assert [t.status for t in world.store.runs.tables(done.run)] == ["done"]
    restore(world.context, look(world.context, "public.t", int(done.savepoint)), ["*"])
    assert world.rows("t") == before


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["sqlite", "mysql", "memory", "postgres", "files-csv", "files-parquet"])
def test_every_source_that_has_tables_is_read_by_key(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    world.settings["t"] = by_key("id")
    world.run("CREATE TABLE t (id int NOT NULL PRIMARY KEY, name varchar(20))")
    rows = ", ".join(f"({at}, 'n{at}')" for at in range(200))
    world.run(f"INSERT INTO t VALUES {rows}")  # noqa: S608 - ours
    world.sync()
    before = content(world)
    remove(world, lambda row: row["id"] in (0, 150))
    put(world, lambda row: {**row, "name": "z"}, lambda row: row["id"] == 75)
    path = world.accepted("t").path
    done = repair(world.context, path, engine=world.rows_by)
    assert (done.inserted, done.updated, done.deleted, done.verdict.equal) == (2, 1, 0, True)
    after = content(world)
    assert after.rows == before.rows
    assert {k for k in after.rows if after.written[k] != before.written[k]} == {(0,), (75,), (150,)}
