"""A command in the engine is what it is in a process of its own: output, exit code, input, signals, environment."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_world import FOR_EVER, Place, finish, lives, memory_of, surroundings_of, until, works

from instep.engine import address, serve

pytestmark = pytest.mark.xdist_group("engine")
CASES = {
    "a sync": ("sync",),
    "tables as JSON": ("tables", "--output", "json"),
    "no such table": ("query", "select * from nothing"),
    "a wrong option": ("sync", "--nonsense"),
    "a wrong connection": ("plan", "nobody"),
    "changes": ("plan", "--exit-code"),
}


def test_the_first_command_starts_it_and_later_ones_find_it(place: Place) -> None:
    assert place.status() == {"format_version": 1, "running": False}
    assert place.run("sync").returncode == 0
    first = place.status()
    assert place.run("status").returncode == 0
    then = place.status()
    assert (then["pid"], first["commands_run"], then["commands_run"]) == (first["pid"], 1, 2)
    assert place.rows() == 1000


@pytest.mark.sampled
@pytest.mark.parametrize("words", CASES.values(), ids=CASES)
def test_output_and_exit_code_are_those_of_a_process_of_its_own(place: Place, words: tuple[str, ...]) -> None:
    place.run("sync")
    there, here = place.run(*words), place.run(*words, "--no-engine")
    assert there.returncode == here.returncode
    if words != ("sync",):  # it has a time and an id of its own
        assert (there.stdout, there.stderr) == (here.stdout, here.stderr)
    assert place.status()["commands_run"] == 2


def test_it_reads_its_input(place: Place) -> None:
    place.run("sync")
    sql = "alter table t add column w text;"
    there = place.run("migration", "check", "-", given=sql)
    here = place.run("migration", "check", "-", "--no-engine", given=sql)
    assert (there.returncode, there.stdout, there.stderr) == (here.returncode, here.stdout, here.stderr)
    assert "w" in there.stdout
    assert place.status()["commands_run"] == 2


def test_each_command_runs_once(place: Place) -> None:
    for _ in range(3):
        assert place.run("sync").returncode == 0
    events = json.loads(place.run("history", "shop", "--output", "json").stdout)["events"]
    assert [event["type"] for event in events].count("run.ended") == 3


def test_environment_folder_and_umask_are_the_command_s(place: Place) -> None:
    below = place.folder / "a" / "b"
    below.mkdir(parents=True)
    place.env["APP_DB"] = str(place.folder / "app.db")
    file = place.folder / "instep.yml"
    file.write_text(file.read_text().replace("path: app.db", "path: '${env:APP_DB}'"))
    place.run("engine", "start")
    before = os.umask(0o077)
    try:
        made = Place(below, place.sockets, place.env).run("sync")
    finally:
        os.umask(before)
    assert (made.returncode, place.rows()) == (0, 1000)
    assert (place.folder / "there.db").stat().st_mode & 0o077 == 0


def test_it_keeps_no_environment_of_a_command(place: Place) -> None:
    place.env["APP_SECRET"] = "hunter2-hunter2"
    place.run("sync")
    pid = place.status()["pid"]
    assert b"hunter2" not in Path(f"/proc/{pid}/environ").read_bytes()
    assert b"hunter2" not in memory_of(pid)


def test_an_interrupt_reaches_the_command(place: Place) -> None:
    command = place.begin("query", FOR_EVER)
    pid = place.running()
    until(lambda: works(pid))
    command.send_signal(signal.SIGINT)
    out, err = finish(command)
    assert (command.returncode, out, "interrupted" in err) == (130, "", True)


def test_a_command_that_is_terminated_ends_as_it_would_alone(place: Place) -> None:
    command = place.begin("query", FOR_EVER)
    place.running()
    command.terminate()
    finish(command)
    assert command.returncode == -signal.SIGTERM


def test_two_commands_run_at_once(place: Place) -> None:
    first, second = place.begin("query", FOR_EVER), place.begin("query", FOR_EVER)
    until(lambda: len(place.status().get("commands", ())) == 2)
    assert place.run("status").returncode == 0
    until(lambda: all(works(one["pid"]) for one in place.status()["commands"]))
    for one in (first, second):
        one.send_signal(signal.SIGINT)
        finish(one)
    until(lambda: not place.status()["commands"])


@pytest.mark.sampled
@pytest.mark.parametrize("how", ["the variable", "the project", "an option", "Python's own variables"])
def test_it_can_be_done_without(place: Place, make_place: Callable[..., Place], how: str) -> None:
    words = ["sync"]
    match how:
        case "the variable":
            place.env["INSTEP_RESIDENT"] = "off"
        case "the project":
            file = place.folder / "instep.yml"
            file.write_text(file.read_text().replace("5m", "0"))
        case "an option":
            words.append("--no-engine")
        case _:
            place.env["PYTHONOPTIMIZE"] = "1"
    assert place.run(*words).returncode == 0
    assert not place.status()["running"]


def test_a_folder_that_others_can_enter_is_not_used(place: Place) -> None:
    (place.sockets / "instep").mkdir(mode=0o755)
    (place.sockets / "instep").chmod(0o755)
    assert place.run("sync").returncode == 0
    assert [*(place.sockets / "instep").iterdir()] == []
    assert place.rows() == 1000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_reaches_nothing(place: Place) -> None:
    place.run("sync")
    place.sockets.chmod(0o711)
    [socket] = (place.sockets / "instep").glob("*.sock")
    code = (
        f"import os, socket; peer = socket.socket(socket.AF_UNIX); os.setgroups([]); os.setuid(65534); "
        f"peer.connect({str(socket)!r})"
    )
    tried = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "PermissionError" in tried.stderr
    place.sockets.chmod(0o700)


def test_the_address_is_of_user_project_version_and_python(
    tmp_path: Path, sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(sockets))
    found = {address.socket_of(tmp_path / one) for one in ("a", "b", "a")}
    monkeypatch.setattr(sys, "prefix", "/another")
    assert len({*found, address.socket_of(tmp_path / "a")}) == 3


@pytest.mark.parametrize("name", [f"{prefix}ANY" for prefix in address.LIBRARY_PREFIXES])
def test_a_library_has_the_variables_of_its_caller(
    tmp_path: Path, sockets: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(sockets))
    monkeypatch.delenv(name, raising=False)
    found = [address.socket_of(tmp_path)]
    for value in ("1", "2", "1"):
        monkeypatch.setenv(name, value)
        found.append(address.socket_of(tmp_path))
    assert (len({*found}), found[1]) == (3, found[3])


def test_an_engine_is_started_with_the_variables_of_its_libraries(place: Place) -> None:
    place.env |= {"OMP_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "Haswell"}
    place.run("sync")
    given = surroundings_of(place.status()["pid"])
    assert {b"OMP_NUM_THREADS=1", b"OPENBLAS_CORETYPE=Haswell"} <= {*given}
    place.env["OMP_NUM_THREADS"] = "2"
    assert not place.status()["running"]


def test_idle_time_is_read_as_the_project_has_it(tmp_path: Path) -> None:
    cases = {
        "engine_idle: 90s": 90.0,
        "engine_idle: 2h": 7200.0,
        "version: 1": serve.IDLE,
        "engine_idle: [": serve.IDLE,
    }
    for text, seconds in cases.items():
        (tmp_path / "instep.yml").write_text(text)
        assert serve.idle_seconds(tmp_path) == seconds, text


def test_other_code_makes_another_engine(place: Place) -> None:
    product, copy = Path(serve.__file__).parents[1], place.sockets / "src"
    shutil.copytree(product, copy / product.name)  # nobody else's engine sees that it changes
    place.env["PYTHONPATH"] = str(copy)
    place.run("sync")
    old = place.status()["pid"]
    os.utime(copy / Path(serve.__file__).relative_to(product.parent))
    assert place.run("status").returncode == 0
    until(lambda: not lives(old))
    assert place.status()["pid"] != old


def test_it_ends_when_it_is_idle(make_place: Callable[..., Place]) -> None:
    place = make_place(idle="1s")
    assert place.run("sync").returncode == 0
    until(lambda: not place.status()["running"])
    assert (place.run("sync").returncode, place.rows()) == (0, 1000)


def test_it_ends_when_it_is_stopped(place: Place) -> None:
    place.run("sync")
    pid = place.status()["pid"]
    assert place.run("engine", "stop").stdout == "the engine stops\n"
    until(lambda: not lives(pid))
    assert not place.status()["running"]


def test_one_that_does_not_answer_is_ended(place: Place) -> None:
    place.run("sync")
    pid = place.status()["pid"]
    os.kill(pid, signal.SIGSTOP)
    said = place.run("engine", "stop")
    assert said.stdout == "the engine was killed; run its commands again to continue what they started\n"
    assert f"the engine (process {pid}) has not answered within 5 s: it is ended" in said.stderr.replace("\n", " ")
    until(lambda: not lives(pid))
    assert not place.status()["running"]
    assert place.run("sync").returncode == 0


def test_without_the_variable_commands_go_to_one_that_was_started(place: Place) -> None:
    place.env["INSTEP_RESIDENT"] = ""
    assert place.run("sync").returncode == 0
    assert not place.status()["running"]
    assert place.run("engine", "start").returncode == 0
    assert place.run("sync").returncode == 0
    assert place.status()["commands_run"] == 1


def fewer_files() -> None:
    """Lower a limit of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))


def test_another_limit_makes_another_engine(place: Place) -> None:
    place.run("sync")
    command = place.begin("sync", first=fewer_files)
    finish(command)
    assert (command.returncode, place.status()["commands_run"]) == (0, 1)
    folder = place.sockets / "instep"
    assert len([*folder.glob("*.sock")]) == 2
    lower = place.begin("engine", "stop", first=fewer_files)
    finish(lower)


def test_a_signal_as_soon_as_it_has_begun_ends_the_command_alone(place: Place) -> None:
    place.run("sync")
    engine = place.status()["pid"]
    for _ in range(10):
        command = place.begin("query", FOR_EVER)
        pid = place.running()
        os.kill(pid, signal.SIGTERM)
        finish(command)
        assert command.returncode == -signal.SIGTERM
        until(lambda: not place.status()["commands"])
    assert place.status()["pid"] == engine


def test_a_socket_that_has_gone_makes_another_engine(place: Place) -> None:
    place.run("sync")
    old = place.status()["pid"]
    [socket] = (place.sockets / "instep").glob("*.sock")
    socket.unlink()
    until(lambda: not lives(old))
    assert place.run("sync").returncode == 0
    assert place.status()["pid"] != old


def test_a_stopped_engine_finishes_what_it_runs(place: Place) -> None:
    command = place.begin("query", FOR_EVER)
    pid = place.running()
    assert "1 run" in place.run("engine", "stop").stdout
    assert place.run("sync").returncode == 0  # in the next engine
    assert place.status()["commands_run"] == 1
    assert lives(pid)
    command.send_signal(signal.SIGINT)
    finish(command)
    assert command.returncode == 130


@pytest.mark.sampled
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_closed_stream_leads_nowhere(place: Place, number: int) -> None:
    place.run("sync")
    command = place.begin("sync", first=lambda: os.close(number))
    finish(command)
    assert (command.returncode, place.status()["commands_run"]) == (0, 2)


@pytest.mark.parametrize("resident", ["on", ""])
def test_a_folder_that_is_gone_is_told_of(place: Place, tmp_path: Path, resident: str) -> None:
    place.env["INSTEP_RESIDENT"] = resident
    gone = tmp_path / "gone"
    gone.mkdir()

    def leave() -> None:
        os.chdir(gone)
        gone.rmdir()

    command = place.begin("status", first=leave)
    _, err = finish(command)
    assert command.returncode != 0
    assert "error: " in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "words",
    [
        ("-yp", ".", "sync"),
        ("policy", "simulate", "/dev/fd/63"),
        ("policy", "import", "a.json", "--out=/dev/fd/63"),
        ("policy", "import", "a.json", "-o/dev/fd/63"),
    ],
)
def test_what_a_fork_would_take_otherwise_runs_alone(place: Place, words: tuple[str, ...]) -> None:
    place.run("sync")
    place.run(*words)
    assert place.status()["commands_run"] == 1
