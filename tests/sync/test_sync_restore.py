"""A table put back to what it was, and what the next sync makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from instep.destinations.base import Savepoint
from instep.errors import Blocked, Conflict, DestinationError, InstepError
from instep.project.sections.tables import TableSettings
from instep.schema.policy.policy import Rule
from instep.schema.selection.selection import Selection, patterns
from instep.sync.operations.repair import repair
from instep.sync.operations.restore import RestorePreview, prepare, restore, savepoints
from instep.sync.quarantine.replay import replay
from quarantined import pending_of
from repair_world import put
from sync_world import MakeWorld, World, cursor, preset

SETUP = ("CREATE TABLE t (id int PRIMARY KEY, n int, v text)", "INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b')")
LOG = ("CREATE TABLE t (id int, n int, v text)", "INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b')")


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """Over PostgreSQL, in this process."""
    return make_world()


def points(world: World) -> list[Savepoint]:
    return list(savepoints(world.context, world.accepted("t").path)[1])


def looked_at(world: World, back: int = 1) -> RestorePreview:
    """At the savepoint that is `back` commits before the current one."""
    return prepare(world.context, world.accepted("t").path, points(world)[back].id)


def put_back(world: World, back: int = 1) -> RestorePreview:
    made = looked_at(world, back)
    restore(world.context, made, ["*.t"])
    return made


@dataclass(frozen=True)
class How:
    setup: tuple[str, ...]
    settings: TableSettings
    reads: str


CASES = [
    ("keyed, whole compare", How(SETUP, TableSettings(), "reads the whole table again")),
    ("keyed, with a cursor", How(SETUP, cursor("n"), "reads again from n 2 on, which had reached 4")),
    ("append with a cursor", How(LOG, cursor("n"), "reads again from n 2 on, which had reached 4")),
]


@pytest.mark.sampled
@pytest.mark.parametrize("how", [c[1] for c in CASES], ids=[c[0] for c in CASES])
def test_the_next_sync_reads_again_from_there(make_world: MakeWorld, how: How) -> None:
    world = make_world()
    world.settings["t"] = how.settings
    world.run(*how.setup)
    world.sync()
    before = world.rows("t")
    world.run("INSERT INTO t VALUES (3, 3, 'c')", "UPDATE t SET n = 4, v = 'z' WHERE id = 1")
    world.sync()
    made = put_back(world)
    assert (made.now.rows, made.rows, made.since) == (len(before) + 1 + ("PRIMARY" not in how.setup[0]), 2, 1)
    assert any(how.reads in line for line in made.lines), made.lines
    assert world.rows("t") == before
    if how.settings.cursor:
        [known] = world.store.cursors.of("shop").values()
        assert '"upper": "2"' in known.cursor
    world.sync()
    if how.setup is SETUP:
        assert world.differing() == {}
    else:
        assert {(1, 4, "z"), (2, 2, "b"), (3, 3, "c")} <= set(world.rows("t"))
    assert world.events("table.restored") == ["table.restored"]
    [run] = [r for r in world.store.runs.history("shop") if r.kind == "restore"]
    assert run.status == "done"


def test_the_schema_stays_and_values_are_found_by_field(world: World) -> None:
    world.settings["t"] = cursor("n")
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t RENAME COLUMN v TO w", "ALTER TABLE t ADD COLUMN x int", "UPDATE t SET n = n + 2, x = id")
    world.sync()
    made = put_back(world, len(points(world)) - 1 - [p.rows for p in reversed(points(world))].index(2))
    assert made.again == ("x",)
    assert world.rows("t", "id", "w", "x") == [(1, "a", None), (2, "b", None)]
    assert [b.column for b in world.store.backfills.waiting("shop")] == ["x"]
    world.sync()
    assert world.rows("t", "id", "n", "w", "x") == [(1, 3, "a", 1), (2, 4, "b", 2)]
    assert world.differing() == {}


@pytest.mark.sampled
@pytest.mark.parametrize("column", ["x", ""])
def test_what_was_filled_since_is_filled_again(world: World, column: str) -> None:
    """The column was there, and its values came after the snapshot."""
    world.settings["t"] = cursor("n")
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t ADD COLUMN x int DEFAULT 5", "INSERT INTO t VALUES (3, 3, 'c', 7)")
    world.sync()
    before = points(world)[0]
    table = world.accepted("t")
    world.store.backfills.request("shop", table.ref, column=column)
    world.sync()
    assert world.differing() == {}
    made = prepare(world.context, table.path, before.id)
    assert (made.again, made.whole) == ((column,) if column else (), not column)
    restore(world.context, made, ["*"])
    assert (1, None) in world.rows("t", "id", "x")
    world.sync()
    assert world.rows("t", "id", "x") == [(1, 5), (2, 5), (3, 7)]


def _replayed(world: World) -> None:
    world.answer("approved")
    world.evolve()
    [done] = replay(world.context)
    assert done.updated == 1


def _repaired(world: World) -> None:
    put(world, lambda row: {**row, "x": None}, lambda row: row["id"] == 1)
    world.folder.joinpath("point").write_text(str(points(world)[0].id))
    assert repair(world.context, world.accepted("t").path).updated == 1


@pytest.mark.sampled
@pytest.mark.parametrize("mends", [_replayed, _repaired])
def test_values_that_no_cursor_tells_of_come_again(world: World, mends: Callable[[World], None]) -> None:
    """Rows that were mended after the snapshot have not changed at the source."""
    world.settings["t"] = cursor("n")
    world.run("CREATE TABLE t (id int PRIMARY KEY, n int, x int)", "INSERT INTO t VALUES (1, 1, 1), (2, 2, 2)")
    world.sync()
    if mends is _replayed:
        world.policy = preset("allow_all", Rule(("column.widened",), "review"))
        world.run("ALTER TABLE t ALTER x TYPE bigint", "UPDATE t SET n = 3, x = 3000000000 WHERE id = 1")
        world.sync()
        assert len(pending_of(world.context)) == 1
        world.run("INSERT INTO t VALUES (3, 4, 3)")
        world.sync()
    point = points(world)[0]
    mends(world)
    if mends is _repaired:
        point = next(p for p in points(world) if str(p.id) == world.folder.joinpath("point").read_text())
    assert world.differing() == {}
    made = prepare(world.context, world.accepted("t").path, point.id)
    assert "repaired or replayed" in " ".join(made.lines)
    restore(world.context, made, ["*"])
    assert (1, None) in world.rows("t", "id", "x")
    world.sync()
    assert world.differing() == {}
    assert pending_of(world.context) == []


def test_what_was_hashed_since_is_told(world: World) -> None:
    world.run(*SETUP)
    world.sync()
    world.selection = Selection(hashed=patterns(["*.t.v"]))
    world.sync()
    text = " ".join(looked_at(world).lines)
    assert "column v is hashed: if it was not then, its values are in clear until the table has been read" in text


RENAMES = {
    "the column": ("ALTER TABLE t RENAME COLUMN x TO y",),
    "the table": ("ALTER TABLE t RENAME TO u",),
    "both": ("ALTER TABLE t RENAME COLUMN x TO y", "ALTER TABLE t RENAME TO u"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("whole", [False, True], ids=["a column", "a table"])
@pytest.mark.parametrize("renames", list(RENAMES.values()), ids=list(RENAMES))
def test_what_was_filled_before_it_was_renamed(world: World, renames: tuple[str, ...], whole: bool) -> None:
    world.settings = {"t": cursor("n"), "u": cursor("n")}
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t ADD COLUMN x int DEFAULT 5", "INSERT INTO t VALUES (3, 3, 'c', 7)")
    world.sync()
    before = points(world)[0]
    world.store.backfills.request("shop", world.accepted("t").ref, column="" if whole else "x")
    world.sync()
    world.run(*renames)
    world.sync()
    table = "u" if renames[-1].endswith("u") else "t"
    column = "y" if renames[0].endswith("y") else "x"
    made = prepare(world.context, world.accepted(table).path, before.id)
    assert (made.again, made.whole) == (() if whole else (column,), whole)
    restore(world.context, made, ["*"])
    assert (1, None) in world.rows(table, "id", column)
    assert world.sync().status == "done"
    assert world.rows(table, "id", column) == [(1, 5), (2, 5), (3, 7)]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["sync", "backfill"])
def test_what_a_person_has_read_as_a_whole_since(world: World, kind: str) -> None:
    """`instep sync --full` and `instep backfill` are no backfills that waited; they bring the same rows."""
    world.policy, world.settings["t"] = preset("allow_all", backfill="none"), cursor("n")
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t ADD COLUMN x int DEFAULT 5", "INSERT INTO t VALUES (3, 3, 'c', 7)")
    world.sync()
    before, path = points(world)[0], world.accepted("t").path
    assert world.rows("t", "id", "x") == [(1, None), (2, 5), (3, 7)]
    world.sync(kind=kind, full=True, tables=frozenset({path}))
    world.sync(kind=kind, full=True, tables=frozenset({path}))
    assert world.rows("t", "id", "x") == [(1, 5), (2, 5), (3, 7)]
    assert len(world.store.backfills.find("shop", ("done",))) == 1
    made = prepare(world.context, path, before.id)
    assert made.whole
    restore(world.context, made, ["*"])
    world.sync()
    assert world.rows("t", "id", "x") == [(1, 5), (2, 5), (3, 7)]


def test_what_was_dropped_stays_dropped(world: World) -> None:
    world.policy = preset("allow_all", removed="drop")
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t DROP COLUMN v", "INSERT INTO t VALUES (3, 3)")
    world.sync()
    put_back(world)
    assert world.schema("t") == "id int32!, n int32"
    assert world.rows("t") == [(1, 1), (2, 2)]


def test_it_can_be_taken_back(world: World) -> None:
    world.run(*SETUP)
    world.sync()
    world.run("DELETE FROM t WHERE id = 1")
    world.sync()
    last = points(world)[0]
    put_back(world)
    again = prepare(world.context, world.accepted("t").path, last.id)
    restore(world.context, again, ["*"])
    assert world.rows("t", "id") == [(2,)]
    assert [p.current for p in points(world)].count(True) == 1


def test_at_a_time(world: World) -> None:
    world.run(*SETUP)
    world.sync()
    world.run("INSERT INTO t VALUES (3, 3, 'c')")
    world.sync()
    new, old = points(world)[:2]
    path = world.accepted("t").path
    assert prepare(world.context, path, at=new.at - timedelta(milliseconds=1)).point == old
    with pytest.raises(InstepError, match="has no snapshot of"):
        prepare(world.context, path, at=old.at - timedelta(days=1))


def test_only_by_name(world: World) -> None:
    world.run(*SETUP)
    world.sync()
    world.run("DELETE FROM t")
    world.sync()
    with pytest.raises(Blocked, match="are restored") as error:
        restore(world.context, looked_at(world), ["*.other"])
    assert "--allow-destructive 'public.t'" in error.value.hint
    assert world.rows("t") == []


def test_a_table_that_moved_meanwhile(world: World) -> None:
    world.run(*SETUP)
    world.sync()
    world.run("DELETE FROM t WHERE id = 1")
    world.sync()
    made = looked_at(world)
    world.run("DELETE FROM t WHERE id = 2")
    world.sync()
    with pytest.raises(Conflict, match="has changed since"):
        restore(world.context, made, ["*"])
    assert world.rows("t") == []


def _replaced(world: World) -> None:
    world.run("DROP TABLE t", *SETUP)
    world.sync()


def _without_files(world: World) -> None:
    world.run("DELETE FROM t WHERE id = 1")
    world.sync()
    for file in Path(world.folder, "lake").rglob("data/**/*.parquet"):
        file.unlink()


REFUSED: list[tuple[str, Callable[[World], None], type[InstepError], str]] = [
    ("another generation", _replaced, Blocked, "earlier generation"),
    ("files are missing", _without_files, DestinationError, "lacks 1 of its files"),
]


@pytest.mark.parametrize(("do", "error", "why"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_is_refused(world: World, do: Callable[[World], None], error: type[InstepError], why: str) -> None:
    world.run(*SETUP)
    world.sync()
    do(world)
    with pytest.raises(error, match=why) as found:
        looked_at(world)
    assert found.value.hint


@pytest.mark.parametrize(("snapshot", "why"), [(1, "has expired, or is not one of")])
def test_unknown_snapshots(world: World, snapshot: int, why: str) -> None:
    world.run(*SETUP)
    world.sync()
    path = world.accepted("t").path
    with pytest.raises(InstepError, match=why):
        prepare(world.context, path, snapshot)
    with pytest.raises(Blocked, match="already"):
        prepare(world.context, path, points(world)[0].id)
    with pytest.raises(InstepError, match="no table") as error:
        prepare(world.context, f"{path}x", 1)
    assert path in error.value.hint


class Killed(BaseException):
    """As if the process ended here."""


@pytest.mark.parametrize("point", ["restore.before", "restore.after"])
def test_interrupted_it_is_done_again(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    world = make_world("sqlite")
    world.run(*SETUP)
    world.sync()
    world.run("DELETE FROM t WHERE id = 1")
    world.sync()
    made = looked_at(world)

    def crash(name: str) -> Any:
        if name == point:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("instep.sync.operations.restore.crashpoint", crash)
        with pytest.raises(Killed):
            restore(world.context, made, ["*"])
    restore(world.context, made, ["*"])
    assert world.rows("t", "id") == [(1,), (2,)]
    world.sync()
    assert world.differing() == {}


def test_a_record_that_is_missing_is_completed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after its commit: the same command again says what was done."""
    world.run(*SETUP)
    world.sync()
    world.run("DELETE FROM t WHERE id = 1")
    world.sync()
    made, path = looked_at(world), world.accepted("t").path

    def crash(name: str) -> None:
        if name == "restore.after":
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("instep.sync.operations.restore.crashpoint", crash)
        with pytest.raises(Killed):
            restore(world.context, made, ["*"])
    [dead] = [r for r in world.store.runs.history("shop") if r.kind == "restore"]
    assert world.events("table.restored") == []
    again = prepare(world.context, path, made.point.id)
    assert again.interrupted == dead.id
    assert again.lines[0].endswith("which was interrupted: its record is completed")
    with pytest.raises(Blocked, match="are restored"):
        restore(world.context, again, [])
    restore(world.context, again, ["*"])
    [event] = [e for e in world.store.events.after(0, connection="shop") if e.type == "table.restored"]
    told = event.data
    assert (told["run"], told["snapshot"], told["rows_before"], told["rows"]) == (dead.id, str(made.point.id), 2, 2)
    assert told["at"] == made.point.at.isoformat()
    assert [t.mode for t in world.store.runs.tables(dead.id)] == ["restore"]
    with pytest.raises(Blocked, match="already"):
        prepare(world.context, path, made.point.id)
    with pytest.raises(Conflict, match="has changed since"):
        restore(world.context, again, ["*"])
    world.sync()
    assert world.differing() == {}
