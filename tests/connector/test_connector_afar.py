"""A connector whose child runs in the task of another process: segments, errors and ends are those of one beside us."""

from __future__ import annotations

import fcntl
import os
import pickle
import tempfile
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from afar_world import Afar, Machines
from sdk_world import Sync, World, written

from instep.errors import ReadError
from instep.sources.connector.cluster.exchange import BUNDLE, DRIVER, SegmentExchange, begin, pack
from instep.sources.connector.cluster.runner import cluster_of
from instep.sources.connector.cluster.task import Assignment, task_scratch
from instep.stage.files.place import StorageFolder
from s3_server import Bucket

TWO = """
    import io
    from fivetran_connector_sdk import FileUpload

    def schema(configuration):
        return [{"table": "orders", "primary_key": ["id"], "columns": {"id": "LONG"}}]

    def update(configuration, state):
        log.info("begins with " + configuration["word"])
        print("printed")
        for n in range(3):
            op.upsert("orders", {"id": n, "word": "canary-row"})
        op.checkpoint({"at": "canary-state"})
        log.warning("half")
        op.truncate("orders")
        op.update("orders", {"id": 1, "more": 1.5})
        op.upsert("late", {"n": 7})
        op.upsert("doc", {"id": 1}, file=FileUpload("a/1.txt", io.BytesIO(b"canary-file"), 11))
        op.checkpoint({"at": "end"})
"""
FAILS = """
    def update(configuration, state):
        op.upsert("t", {"id": 1})
        op.checkpoint({"at": 1})
        op.upsert("t", {"id": 2})
        raise ValueError("no more pages")
"""
WAITS = """
    import os, time

    def update(configuration, state):
        at = state.get("at", 0)
        with open(configuration["pids"], "a") as file:
            file.write(f"{os.getpid()}\\n")
        for n in range(at, 4):
            op.upsert("t", {"id": n, "from": at, "v": [n, str(n)][n % 2]})
            op.checkpoint({"at": n + 1})
            while n == 1 and not os.path.exists(configuration["go"]):
                time.sleep(0.05)
"""


@pytest.fixture
def afar(world: World, tmp_path: Path) -> Afar:
    return Afar(world, Machines(StorageFolder((tmp_path / "shared").as_uri()), tmp_path))


def seen(sync: Sync) -> object:
    """Everything but where it is."""
    tables = [(s.number, s.state, s.ends, [(t.name, sync.rows(t.name)) for t in s.tables]) for s in sync.segments]
    files = [(u.name, Path(s.folder, u.path).read_bytes()) for s in sync.segments for t in s.tables for u in t.uploads]
    said = sorted((line.level, line.origin, line.message.splitlines()[-1]) for line in sync.logs)
    return tables, files, said, sync.told[-1], str(sync.error)


@pytest.mark.sampled
@pytest.mark.parametrize("code", [TWO, FAILS], ids=["whole", "failed"])
def test_it_is_what_one_beside_us_sends(world: World, afar: Afar, code: str) -> None:
    told = afar.sync(code, configuration={"word": "this"})
    assert seen(told) == seen(world.sync(code, configuration={"word": "this"}))
    assert told.segments
    assert afar.left() == []


def test_nothing_is_in_clear_where_they_meet(afar: Afar) -> None:
    found: list[bytes] = []

    def look(_: Sync) -> None:
        assert afar.machines.place.local is not None
        found.extend(p.read_bytes() for p in afar.machines.place.local.rglob("*") if p.is_file())

    secret = "canary-secret"
    assert afar.sync(TWO, {"was": "canary-before"}, look, configuration={"word": secret, "password": secret}).segments
    assert len(found) > 2
    assert not [content for content in found if b"canary" in content or b"orders" in content]


def test_a_large_folder_is_not_in_the_tasks_description(afar: Afar, tmp_path: Path) -> None:
    """pyspark writes one of more than 1 MB to disk as it is, with the configuration and the key that are in it."""
    code = """
        import hashlib, os
        def update(configuration, state):
            file = os.path.join(os.path.dirname(__file__), "rates.bin")
            with open(file, "rb") as rates:
                op.upsert("t", {"id": configuration["word"], "is": hashlib.sha256(rates.read()).hexdigest()})
    """
    folder, rates = written(tmp_path / "large", code), b"canary-folder" + os.urandom(1_200_000)
    (folder / "rates.bin").write_bytes(rates)
    met: list[bytes] = []

    def look(_: Sync) -> None:
        met.extend(p.read_bytes() for p in (tmp_path / "shared").rglob("*") if p.is_file())

    told = afar.sync(folder, each=look, configuration={"word": "canary-secret"})
    assert told.records("t") == [{"id": "canary-secret", "is": sha256(rates).hexdigest()}]
    (description,) = afar.machines.descriptions
    assert len(description) < 5_000
    assert b"canary-folder" not in description
    key = pickle.loads(description)[0].key
    assert any(len(content) > 1_200_000 for content in met)
    assert not [content for content in met if b"canary" in content or key in content]


@pytest.mark.sampled
@pytest.mark.parametrize(("size", "why"), [(890_000, "None"), (900_000, "its configuration has more than 900 kB")])
def test_a_configuration_that_spark_would_write_to_disk_is_refused(afar: Afar, size: int, why: str) -> None:
    told = afar.sync("def update(configuration, state): pass", configuration={"word": "x" * size})
    assert why in str(told.error)
    assert "xx" not in str(told.error)
    assert len(afar.machines.descriptions) == (told.error is None)
    assert afar.left() == []


@pytest.mark.server
@pytest.mark.slow
def test_they_meet_in_a_bucket(world: World, tmp_path: Path, bucket: Bucket) -> None:
    place = StorageFolder(f"{bucket.uri}/lake/_instep_runs/shop", bucket.io)
    bucket.put("lake/_instep_runs/shop/run-0123/0/0", b"of a run that died")
    told = Afar(world, Machines(place, tmp_path)).sync(TWO, configuration={"word": "this"})
    assert seen(told) == seen(world.sync(TWO, configuration={"word": "this"}))
    assert bucket.names() == []


def configuration(tmp_path: Path) -> dict[str, str]:
    return {"pids": str(tmp_path / "pids"), "go": str(tmp_path / "go")}


@pytest.mark.slow
def test_a_task_that_is_lost_goes_on_from_the_last_segment(afar: Afar, tmp_path: Path) -> None:
    def lose(sync: Sync) -> None:
        if len(sync.segments) == 2:
            afar.machines.tasks[-1].kill()
            (tmp_path / "go").touch()

    told = afar.sync(WAITS, each=lose, configuration=configuration(tmp_path))
    assert told.error is None
    assert [(r["id"], r["from"]) for r in told.records("t")] == [(0, 0), (1, 0), (2, 2), (3, 2)]
    assert [s.number for s in told.segments] == [1, 2, 3, 4]
    assert [s.state for s in told.segments] == [{"at": n} for n in (1, 2, 3, 4)]
    assert told.told[-1].upserts == 4
    assert "begins again with the last checkpoint" in told.said
    assert len(afar.machines.tasks) == 2
    assert until(lambda: not alive(tmp_path)), "the first child ended with its task"


def test_an_attempt_that_is_not_heard_ends(afar: Afar, tmp_path: Path) -> None:
    """The driver has died, and the one after it has tidied up."""
    config = afar.world.config(WAITS, configuration=configuration(tmp_path))
    place, key = StorageFolder((tmp_path / "shared/run-1").as_uri()), bytes(32)
    driver = SegmentExchange(place, key)
    driver.send(begin(0), {"at": 1})
    driver.send(DRIVER, {"beat": 1, "attempt": 0, "taken": 0, "ends": False})
    driver.bring(BUNDLE, pack(config))
    task = afar.machines.start(Assignment(config, place, key), 0)
    try:
        assert until(lambda: driver.receive("0/1") is not None)
        assert alive(tmp_path)
        driver.forget()
        assert task.wait(300) == 0, "nobody is there who would hear of an error"
        assert until(lambda: not alive(tmp_path))
    finally:
        task.kill()


def test_a_sync_that_is_cancelled_ends_task_and_child(afar: Afar, tmp_path: Path) -> None:
    sync = Sync()
    segments = afar.begin(WAITS, sync, configuration=configuration(tmp_path))
    assert segments.next() is not None
    segments.close()
    assert [task.poll() is None for task in afar.machines.tasks] == [False]
    assert until(lambda: not alive(tmp_path))
    assert segments.next() is None
    assert afar.left() == []


def test_the_rows_of_a_killed_task_go_with_it(afar: Afar, tmp_path: Path) -> None:
    def rows() -> list[Path]:
        return list((tmp_path / "machine-0").glob("instep-connector-task-*"))

    sync = Sync()
    segments = afar.begin(WAITS, sync, configuration=configuration(tmp_path))
    assert segments.next() is not None
    assert rows()
    afar.machines.tasks[0].kill()
    assert until(lambda: not rows())
    segments.close()


def test_the_rows_that_a_machine_has_left_go_with_the_next_task(afar: Afar, tmp_path: Path) -> None:
    left, used = (tmp_path / "machine-0" / f"instep-connector-task-{name}" for name in ("left", "used"))
    for folder in (left, used):
        folder.mkdir(parents=True)
        (folder / "lock").touch()
    with (used / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert afar.sync(TWO, configuration={"word": "w"}).error is None
    assert list((tmp_path / "machine-0").glob("instep-connector-*")) == [used]


def test_the_task_waits_until_its_segments_are_taken(afar: Afar, tmp_path: Path) -> None:
    code = """
        def update(configuration, state):
            for n in range(8):
                op.upsert("t", {"id": n, "v": [n, str(n)][n % 2]})
                op.checkpoint({"at": n})
                with open(configuration["file"], "a") as file:
                    file.write("x")
    """
    file, sync = tmp_path / "file", Sync()
    segments = afar.begin(code, sync, configuration={"file": str(file)}, ahead=3)
    try:
        for number in range(1, 9):
            assert until(lambda: file.exists()) or number == 1
            assert len(file.read_text() if file.exists() else "") <= number + 3
            assert segments.next() is not None
        assert segments.next() is None
    finally:
        segments.close()


def test_what_is_wrong_with_its_environment_is_told(afar: Afar) -> None:
    told = afar.sync("def update(configuration, state): pass", python="/nowhere/python")
    assert "its virtual environment cannot be made" in str(told.error)
    assert "index" not in str(told.error)


@pytest.mark.sampled
@pytest.mark.parametrize(("limits", "why"), [({"silence": 1.0}, "sent nothing for 1 s"), ({"time": 1.0}, "more than")])
def test_limits_hold_in_the_task(afar: Afar, tmp_path: Path, limits: dict[str, float], why: str) -> None:
    told = afar.sync(WAITS, configuration=configuration(tmp_path), **limits)
    assert isinstance(told.error, ReadError)
    assert why in str(told.error)
    assert told.error.hint
    assert until(lambda: not alive(tmp_path))


def test_without_a_place_it_runs_beside_us() -> None:
    def start() -> object:
        raise AssertionError("Spark was started")

    assert cluster_of(start, None, "shop") is None  # type: ignore[arg-type]


def alive(folder: Path) -> list[int]:
    """The children that have not ended."""
    file = folder / "pids"
    return [n for n in map(int, file.read_text().split() if file.exists() else ()) if Path(f"/proc/{n}").exists()]


def until(done: Callable[[], bool], seconds: float = 300) -> bool:
    ends = time.monotonic() + seconds
    while not done():
        if time.monotonic() > ends:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_others_leave_among_temporary_folders_stops_no_task(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of temporary files is open to everybody: nothing there is opened that waits or leads elsewhere."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, elsewhere = tmp_path / "instep-connector-task-other", tmp_path / "elsewhere"
    left.mkdir()
    elsewhere.touch()
    os.mkfifo(left / "lock") if kind == "pipe" else (left / "lock").symlink_to(elsewhere)
    done = threading.Event()

    def begin_task() -> None:
        with task_scratch():
            done.set()

    threading.Thread(target=begin_task, daemon=True).start()
    assert done.wait(20), "it waits for somebody who writes into the pipe"
    assert elsewhere.exists()
    assert left.exists() == (kind == "link"), "what is this user's and has no holder goes"
