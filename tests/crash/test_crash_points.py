"""kill -9 at every crash point, then a sync: the promise of docs/explanation/architecture.md holds."""

from __future__ import annotations

import pytest
from crash_cases import APPLY, BACKFILL, FIRST, REPLAY, REWRITE, SPARK_MERGE, SYNC, TWICE, UNDO
from crash_checks import check_converged, check_interrupted
from crash_world import BEFORE, CHANGE, UNDOABLE, World, first_load

from instep.cli.main import main
from instep.sync.run import RunScope

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets of pyspark's collect()
]


@pytest.mark.sampled
@pytest.mark.parametrize("point", SYNC)
def test_sync(world: World, point: str) -> None:
    first_load(world)
    world.execute(CHANGE)
    world.killed_at(point, "sync")
    check_interrupted(world)
    assert world.sync().status == "done"
    check_converged(world)


@pytest.mark.sampled
@pytest.mark.parametrize("point", SPARK_MERGE)
def test_sync_with_merges_of_spark(world: World, point: str) -> None:
    world.merges_by_spark()
    first_load(world)
    world.execute(CHANGE)
    world.killed_at(point, "sync", fresh=True)
    check_interrupted(world)
    assert world.sync().status == "done"
    check_converged(world)


@pytest.mark.sampled
@pytest.mark.parametrize("point", FIRST)
def test_first_sync(world: World, point: str) -> None:
    world.execute(BEFORE)
    world.killed_at(point, "sync")
    check_interrupted(world)
    assert world.sync().status == "done"
    check_converged(world)


@pytest.mark.drawn(1)
def test_values_held_by_a_dead_run(world: World) -> None:
    """A row with NULL in its key is held once: by the run that committed the others."""
    world.execute("CREATE TABLE odd (a int, b text); INSERT INTO odd VALUES (1, 'one'), (NULL, 'none')")
    world.edit("tables:", "tables:\n      public.odd: {key: [a], mode: upsert}")
    world.killed_at("sync.staged", "sync")
    assert list(world.folder.glob("lake/crash/odd-*/quarantine/*"))
    report = world.sync()
    assert report.status == "done"
    held = list(world.folder.glob("lake/crash/odd-*/quarantine/*"))
    assert [f.name.startswith(report.run) for f in held] == [True]


@pytest.mark.sampled
@pytest.mark.parametrize("point", TWICE)
def test_killed_again_in_the_next_run(world: World, point: str) -> None:
    first_load(world)
    world.execute(CHANGE)
    for _ in range(2):
        world.killed_at(point, "sync")
        check_interrupted(world)
    assert world.command("sync") == 0, world.said
    check_converged(world)


@pytest.mark.sampled
@pytest.mark.parametrize("point", APPLY)
def test_apply(world: World, point: str) -> None:
    """The schema is as applied without moving a row; the sync after it brings the rows."""
    first_load(world)
    world.execute(CHANGE)
    world.killed_at(point, "apply", "--yes")
    check_interrupted(world)
    assert main(["--project", str(world.folder), "apply", "--yes"]) == 0
    check_interrupted(world)
    assert all(found.columns == world.source(t).columns for t in world.tables if (found := world.read(t)))
    assert world.sync().status == "done"
    check_converged(world)


@pytest.mark.sampled
@pytest.mark.parametrize("point", BACKFILL)
def test_backfill(world: World, point: str) -> None:
    """A column with a default on a table with a cursor: old rows lack it until the backfill, which swaps it in."""
    first_load(world)
    world.execute("ALTER TABLE orders ADD COLUMN region text DEFAULT 'north'; CREATE TABLE tag (id int PRIMARY KEY)")
    assert world.sync().status == "done"
    assert not world.verified("orders")
    world.remember()
    world.killed_at(point, "backfill", "public.orders")
    check_interrupted(world)
    assert world.sync(RunScope(frozenset({"public.orders"}), full=True, kind="backfill")).status == "done"
    check_converged(world)


@pytest.mark.sampled
@pytest.mark.parametrize("point", UNDO)
def test_undo(world: World, point: str) -> None:
    """All changes of a sync are taken back, after a crash by the same command: the lake has its old columns, each row
    that was there still stands, and no later sync brings the changes back."""
    world.edit("connections:", "policies: {drops: {preset: allow_all, removed: drop}}\nconnections:")
    world.edit("  crash:\n", "  crash:\n    policy: drops\n")
    first_load(world)
    world.execute(UNDOABLE)
    run = world.sync().run
    drops = ("--allow-destructive", "*")
    world.killed_at(point, "undo", run, "--yes", *drops)
    assert all(world.read(t) is not None for t in ("item", "orders"))
    code = world.command("undo", run, "--yes", *drops)
    assert code == (5 if point == "undo.accepted" else 0), world.said
    for _ in range(2):
        assert world.sync().status == "done"
        check_undone(world)


@pytest.mark.sampled
@pytest.mark.parametrize("point", REPLAY)
def test_replay(world: World, point: str) -> None:
    """The change that held a value is let in; the value is put back once, whenever the replay was killed."""
    world.execute("CREATE TABLE odd (id int PRIMARY KEY, a int); INSERT INTO odd VALUES (1, 5), (2, 6)")
    assert world.sync().status == "done"
    world.execute("ALTER TABLE odd ALTER a TYPE varchar(9); UPDATE odd SET a = 'six' WHERE id = 2")
    assert world.sync().status == "done"
    assert world.command("changes", "approve", "--match", "column.retyped") == 0, world.said
    assert world.command("apply", "--yes") == 0, world.said
    assert not world.verified("odd")
    world.killed_at(point, "quarantine", "replay")
    assert world.command("quarantine", "replay") == 0, world.said
    assert world.verified("odd")
    assert world.command("quarantine", "list") == 0
    assert "the quarantine is empty" in world.said


@pytest.mark.sampled
@pytest.mark.parametrize("point", REWRITE)
def test_a_rewrite_in_parts(world: World, point: str) -> None:
    """The next run continues with the parts that are left."""
    world.edit("warehouse: lake}", "warehouse: lake, upsert_rows: 1}")
    world.execute("CREATE TABLE odd (id int PRIMARY KEY, a int)")
    for number in range(3):
        world.execute(f"INSERT INTO odd VALUES ({2 * number}, 5), ({2 * number + 1}, {number})")  # noqa: S608
        assert world.sync().status == "done"
    world.execute("ALTER TABLE odd ALTER a TYPE varchar(9)")
    assert world.sync().status == "done"
    assert world.command("changes", "approve", "--match", "column.retyped") == 0, world.said
    world.killed_at(point, "apply", "--yes")
    done = int(point.partition("@")[2] or 1)
    found = list(world.folder.glob("lake/crash/odd-*/data/rewrite-*/*"))
    assert len([p for p in found if p.suffix == ".json"]) == done
    assert world.command("apply", "--yes") == 0, world.said
    left = set(world.folder.glob("lake/crash/odd-*/data/rewrite-*/*"))
    assert left >= {p for p in found if p.suffix == ".parquet"}, "what was finished is not written again"
    assert {p.suffix for p in left} == {".parquet"}
    assert world.sync().status == "done"
    assert world.verified("odd")


def check_undone(world: World) -> None:
    for name in ("item", "orders", "log"):
        found, before = world.read(name), world.before[name]
        assert found is not None
        assert found.columns == before.columns, name
        assert sum(found.rows.values()) == sum(before.rows.values()), name
    item, orders = world.read("item"), world.before["item"]
    assert item is not None
    assert item.rows == orders.rows
