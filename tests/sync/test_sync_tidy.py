"""What is kept for undoing goes when its time is over, also where nothing changes any more."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from instep.destinations.iceberg.evolve import undo as iceberg_undo
from instep.destinations.iceberg.evolve.undo import DAY_MS, now_ms
from instep.model import Run
from instep.sync.housekeeping import forget_dropped, is_first_today
from instep.temporary import TemporaryFolder, remove_abandoned
from sync_world import World, preset


def refs(world: World) -> list[str]:
    table = world.destination.lake.load(("shop", "t"))
    assert table is not None
    return [name for name in table.metadata.refs if name.startswith(iceberg_undo.UNDO)]


def last(world: World) -> Run:
    found = world.store.runs.latest("shop")
    assert found is not None
    return found


@pytest.fixture
def dropped(world: World) -> World:
    """A column and a table are dropped and kept for undoing."""
    world.policy = preset("allow_all", removed="drop")
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 1)", "CREATE TABLE u (id int)")
    world.sync()
    world.run("ALTER TABLE t DROP COLUMN a", "DROP TABLE u")
    world.sync()
    return world


def test_it_goes_when_its_time_is_over(dropped: World, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = dropped.destination.lake
    [tag] = refs(dropped)
    [parked] = lake.names(lake.dropped)
    tomorrow = replace(last(dropped), started=last(dropped).started + timedelta(days=1))
    assert forget_dropped(dropped.context, tomorrow) == []
    later = now_ms() + 8 * DAY_MS
    monkeypatch.setattr(iceberg_undo, "now_ms", lambda: later)
    assert forget_dropped(dropped.context, last(dropped)) == [], "the first sync of the day has looked already"
    assert forget_dropped(dropped.context, tomorrow) == [tag, f"{lake.dropped}.{parked}"]
    assert (refs(dropped), list(lake.names(lake.dropped))) == ([], [])
    assert forget_dropped(dropped.context, tomorrow) == []
    assert dropped.rows("t") == [(1,)]


def test_a_late_run_lets_nothing_go(dropped: World, monkeypatch: pytest.MonkeyPatch) -> None:
    later = now_ms() + 8 * DAY_MS
    monkeypatch.setattr(iceberg_undo, "now_ms", lambda: later)
    dropped.destination.write.claim(("shop", "t"), last(dropped).fence + 1)
    forget_dropped(dropped.context, replace(last(dropped), started=last(dropped).started + timedelta(days=1)))
    assert len(refs(dropped)) == 1


def test_the_first_sync_of_a_day(world: World) -> None:
    world.engine = "local"
    world.run("CREATE TABLE t (id int PRIMARY KEY)")
    now = world.store.runs.claim("shop", "detect")
    assert is_first_today(world.context, now)
    world.store.runs.finish(now, "done")
    world.sync()
    assert not is_first_today(world.context, last(world))
    assert is_first_today(world.context, replace(last(world), started=last(world).started + timedelta(days=1)))


LEAVES = """
import pathlib, time
from instep.temporary import TemporaryFolder
made = TemporaryFolder("rows")
pathlib.Path(made.path, "spill").write_bytes(b"rows" * 1000)
print(pathlib.Path(made.path).parent, flush=True)
time.sleep(600)
"""


def test_what_killed_runs_left_in_temporary_folders(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next sync removes it; a folder whose process lives, and folders of others, stay."""
    place = tmp_path / "temporary"
    place.mkdir()
    (place / "instep-of-others").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    environment = {**os.environ, "TMPDIR": str(place)}
    with contextlib.ExitStack() as ends:
        command = [sys.executable, "-c", LEAVES]
        folders = []
        for _ in range(2):
            made = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
            process = ends.enter_context(made)
            ends.callback(process.kill)
            assert process.stdout
            folders.append(Path(process.stdout.readline().strip()))
            if len(folders) == 1:
                process.kill()
                process.wait()
        left, lives = folders
        assert left.exists()
        world.sync()
        assert not left.exists()
        assert (lives / "files/spill").exists()
        assert (place / "instep-of-others").exists()


def test_folders_that_only_look_like_abandoned_ones_stay(tmp_path: Path) -> None:
    """Anybody may put something beside them, and a sync may run as a user who may remove all of it."""
    victim, place = tmp_path / "victim", tmp_path / "temporary"
    made = TemporaryFolder("rows", str(tmp_path))
    mark = Path(made.path).with_name("lock").read_text()
    for folder in (victim, place / "instep-notes", place / "instep-marked"):
        (folder / "files").mkdir(parents=True)
        (folder / "files" / "thesis.txt").write_text("years of work")
    (victim / "lock").write_text(mark)
    (place / "instep-notes" / "lock").touch()
    (place / "instep-marked" / "lock").symlink_to(victim / "lock")
    (place / "instep-link").symlink_to(victim)
    (place / "instep-file").touch()
    os.mkfifo(place / "instep-notes" / "pipe")
    remove_abandoned(str(place))
    assert len([*tmp_path.rglob("thesis.txt")]) == 3
    if os.geteuid() == 0:
        foreign = place / "instep-foreign"
        shutil.copytree(victim, foreign)
        os.chown(foreign, 65534, 65534)
        remove_abandoned(str(place))
        assert (foreign / "files" / "thesis.txt").exists()
    made.close()


def test_a_folder_whose_process_was_killed_before_it_had_a_lock(tmp_path: Path) -> None:
    (place := tmp_path / "place").mkdir()
    old, new, used = (place / f"instep-rows-{name}" for name in ("old", "new", "used"))
    mark = Path((made := TemporaryFolder("rows", str(tmp_path))).path).with_name("lock").read_text()
    made.close()
    for folder in (old, new, used):
        (folder / "files").mkdir(parents=True)
        (folder / "lock.new").write_text(mark)
    (used / "files" / "spill").touch()
    for folder in (old, used):
        os.utime(folder, (0, 0))
    remove_abandoned(str(place))
    assert sorted(one.name for one in place.iterdir()) == ["instep-rows-new", "instep-rows-used"]
