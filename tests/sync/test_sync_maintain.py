"""Tables of a connection are kept in order, by a command and after a sync; undo and loads come first."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.errors import DestinationError, InstepError, RunInProgress
from instep.schema.maintenance import Maintenance
from instep.sync.context import SyncContext
from instep.sync.loading.engine import LocalEngine
from instep.sync.operations.maintain import MaintenanceReport, maintain
from instep.sync.progress import Silent
from instep.sync.run import sync
from instep.sync.schema_changes.undo import apply_undo, find, prepare
from sync_world import MakeWorld, World, preset

EAGER = Maintenance(min_files=3, keep_snapshots=2, max_snapshot_age=0)
TEN = "INSERT INTO t SELECT i, i, 'v' || i FROM generate_series(1, 10) i"


def eager(world: World, **more: Any) -> SyncContext:
    return replace(world.context, maintenance=replace(EAGER, **more))


def by_command(world: World, pattern: str = "", **options: Any) -> MaintenanceReport:
    return maintain(eager(world), pattern, Silent(), lambda: None, **options)


def change(world: World, number: int) -> None:
    new = 100 + number
    world.run(f"UPDATE t SET a = {new} WHERE id = {number}", f"INSERT INTO t VALUES ({new}, 0, 'n')")  # noqa: S608


@pytest.fixture
def grown(world: World) -> World:
    """A table with a key after three syncs, and one that was loaded once."""
    world.policy = preset("allow_all", removed="drop")
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int, b text)", TEN, "CREATE TABLE u (id int PRIMARY KEY)")
    world.run("INSERT INTO u VALUES (1)")
    world.sync()
    for number in range(1, 3):
        change(world, number)
        world.sync()
    return world


def test_the_command_keeps_rows_and_tells_what_it_did(grown: World) -> None:
    dry = by_command(grown, dry_run=True)
    assert [(t.table, t.done.rewritten) for t in dry.tables] == [("public.t", 3), ("public.u", 0)]
    assert grown.events("table.maintained") == []
    done = by_command(grown, "*.t")
    [kept] = done.tables
    assert (kept.done.files_before, kept.done.files, kept.error, kept.left) == (3, 1, "", "")
    assert kept.done.snapshots
    assert grown.events("table.maintained") == ["table.maintained"]
    run = grown.store.runs.get(done.run)
    assert (run.kind, run.status) == ("maintain", "done")
    told = [e for e in grown.store.events.after(0) if e.data.get("run") == run.id]
    assert [e.type for e in told] == ["run.started", "table.maintained", "run.ended"]
    assert (told[-1].data["kind"], told[-1].data["status"]) == ("maintain", "done")
    assert grown.differing() == {}
    change(grown, 7)
    grown.sync()
    assert grown.differing() == {}


def test_an_undo_after_it_brings_all_values_back(grown: World) -> None:
    """Drop a column, upsert, maintain, undo: what rows had is what they have."""
    before = {row[0]: row[1] for row in grown.rows("t", "id", "b")}
    grown.run("ALTER TABLE t DROP COLUMN b")
    grown.settled()
    grown.run("UPDATE t SET a = -1 WHERE id IN (2, 5)", "INSERT INTO t VALUES (500, 5)")
    grown.sync()
    [kept] = by_command(grown, "public.t").tables
    assert kept.done.files == 1
    [removed] = [r for r in grown.store.reviews.find("shop", ["applied"]) if r.kind == "column.removed"]
    made = prepare(grown.context, find(grown.context, removed.id))
    apply_undo(grown.context, made, ("*",))
    assert dict(grown.rows("t", "id", "b")) == {**before, 500: None}


def test_who_is_left_alone(grown: World) -> None:
    with pytest.raises(InstepError, match="no table nix"):
        by_command(grown, "nix")
    grown.store.pauses.pause("shop", "its key went", table=("public", "t"))
    assert [t.left for t in by_command(grown).tables] == ["it is paused", ""]
    grown.store.runs.claim("shop", "sync")
    with pytest.raises(RunInProgress):
        by_command(grown)


def test_a_sync_that_begins_meanwhile_wins(grown: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from instep.destinations.iceberg.maintain.compact_task import pack

    def packed(*args: Any) -> Any:
        done = pack(*args)
        monkeypatch.undo()
        change(grown, 8)
        grown.run("INSERT INTO u VALUES (2)")
        assert set(grown.statuses(grown.sync()).values()) == {"done"}
        return done

    monkeypatch.setattr("instep.destinations.iceberg.maintain.compact.pack", packed)
    first, second = by_command(grown).tables
    assert (first.left, first.error) == ("it is being loaded and will be maintained next time", "")
    assert second.left == "a later run is working on it"
    assert grown.differing() == {}
    assert by_command(grown).tables[0].done.files == 1


OFF: list[dict[str, Any]] = [{"after_sync": False}, {"min_files": 99}, {"max_minutes": -1.0}]


def test_a_sync_maintains_what_is_due(grown: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not if it is switched off, not due or out of time; a failure is a note, and the next sync does it."""
    for number, more in enumerate(OFF, 3):
        change(grown, number)
        assert sync(eager(grown, **more), engine=LocalEngine()).notes == ()
    assert grown.destination.maintenance.layout(("shop", "t")).files == 6

    def broken(*_: Any) -> Any:
        raise DestinationError("no more disk")

    with monkeypatch.context() as patched:
        patched.setattr("instep.destinations.iceberg.maintain.compact.pack", broken)
        change(grown, 6)
        report = sync(eager(grown), engine=LocalEngine())
    assert (report.status, report.notes) == ("done", ("public.t was not maintained: no more disk",))
    assert grown.differing() == {}
    change(grown, 7)
    [note] = sync(eager(grown), engine=LocalEngine()).notes
    assert note.startswith("compacted public.t: 8 files ")
    assert note.endswith(" → 1")
    assert grown.events("table.maintained") == ["table.maintained"]
    assert grown.differing() == {}
    assert grown.destination.maintenance.layout(("shop", "t")).deletes == 0


@pytest.mark.sampled
@pytest.mark.parametrize(("method", "status"), [("maintain", "partial"), ("purge_expired", "failed")])
def test_what_fails_is_the_end_of_its_run(
    grown: World, monkeypatch: pytest.MonkeyPatch, method: str, status: str
) -> None:
    def full(*_args: Any, **_options: Any) -> Any:
        raise DestinationError("no more disk")

    to = grown.destination
    facet = to.maintenance if method == "maintain" else to.lifecycle
    monkeypatch.setattr(type(facet), method, full)
    with suppress(DestinationError):
        assert [t.error for t in by_command(grown).tables] == ["no more disk"] * 2
    run = grown.store.runs.latest("shop")
    assert run is not None
    assert (run.kind, run.status, "no more disk" in run.error) == ("maintain", status, True)
    last = grown.store.events.latest(types=["run.ended"], limit=1)[0]
    assert (last.data["run"], last.data["status"], last.data["error"]) == (run.id, status, run.error)


def test_an_interrupt_cancels_it_and_there_is_nothing_to_undo(grown: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though a sync beside it has applied a change."""

    def interrupted(*_args: Any, **_options: Any) -> Any:
        monkeypatch.undo()
        grown.run("ALTER TABLE t ADD COLUMN beside int")
        assert grown.sync().status == "done"
        raise KeyboardInterrupt

    monkeypatch.setattr(type(grown.destination.maintenance), "maintain", interrupted)
    with pytest.raises(KeyboardInterrupt):
        by_command(grown)
    [run] = [r for r in grown.store.runs.history("shop", limit=10) if r.kind == "maintain"]
    assert run.status == "cancelled"
    with pytest.raises(InstepError, match="has applied no change"):
        find(grown.context, run.id)


def test_a_duckdb_file_is_vacuumed(make_world: MakeWorld) -> None:
    world = make_world("sqlite")
    file: Any = DuckDbDestination(DuckDbConfig.resolved(name="warehouse", path=str(world.folder / "shop.duckdb")))
    world.destination = file
    assert by_command(world).vacuumed == (0, 0)
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int, b text)", "INSERT INTO t VALUES (1, 1, 'x')")
    world.sync()
    before, after = by_command(world).vacuumed or (0, 0)
    assert 0 < after <= before
    assert by_command(world, dry_run=True).vacuumed == (after, after)
    assert world.rows("t") == [(1, 1, "x")]
