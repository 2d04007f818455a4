"""A connector that hangs, ends, is killed, forks or takes too much harms only its own run, and leaves no process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from sdk_world import World, written

from instep.errors import ProjectError, ReadError, SetupError
from instep.sources.connector import child
from instep.sources.connector.config import MIB
from instep.sources.connector.dialect import SdkDialect
from instep.sources.connector.spool import Segments
from programs import program

ROW = """
def update(configuration, state):
    op.upsert('t', {'n': 1})
    op.checkpoint({'n': 1})
    op.upsert('t', {'n': 2})
"""
SMALL = {"memory": "200MB"}
PROGRAMS = """import subprocess, sys, time
    words = [sys.executable, "-c", "x = bytearray(120 << 20); input()"]
    programs = [subprocess.Popen(words, stdin=subprocess.PIPE) for _ in range(3)]
    time.sleep(600)"""
DISK = """import tempfile
    with tempfile.TemporaryFile() as file:
        while True:
            file.write(bytes(1 << 20))
            file.flush()"""
PIPE = """import os
    for number in range(3, 64):
        try:
            os.write(number, b"x" * 100)
        except OSError:
            pass
    os._exit(0)"""
FORK = """import os
    if os.fork() == 0:
        try:
            op.upsert("t", {"n": 3})
        except RuntimeError as error:
            print(error, flush=True)
        os._exit(0)
    os.wait()
    raise KeyError("parent")"""
ENDS = [
    ("exits", "import sys; sys.exit(0)", {}, r"called exit\(0\) before update"),
    ("exits by the builtin", "exit('enough')", {}, r"called exit\(enough\)"),
    ("exits at once", "import os; os._exit(3)", {}, "ended by itself with exit code 3"),
    ("kills itself", "import os; os.kill(os.getpid(), 9)", {}, "was killed by SIGKILL"),
    ("breaks down", "import ctypes; ctypes.string_at(0)", {}, "was killed by SIGSEGV"),
    ("same state", "while True: op.checkpoint({'n': 1})", {"checkpoints": 5}, "no progress: its last 5"),
    (
        "a state without a bottom",
        "s = {}\n    for i in range(300): s = {'a': s}\n    op.checkpoint(s)",
        {},
        "its state is JSON of more than 200 levels",
    ),
    ("memory bit by bit", "x = []\n    while True: x.append(bytearray(1 << 20))", SMALL, "memory that it may"),
    ("memory at once", "x = bytearray(1 << 30)", SMALL, r"memory that it may use \(200 MiB\)"),
    ("memory in programs", PROGRAMS, SMALL, "used more than 200 MiB"),
    ("fills the disk", DISK, {"file": "5MB"}, "OSError.*File too large"),
    ("writes into our pipe", PIPE, {}, "sent something that is not an operation"),
    ("operates from a fork", FORK, {}, "KeyError: 'parent'"),
]


LONG = [
    ("hangs", "import time; time.sleep(600)", {"silence": 5.0}, "sent nothing for 5 s and was stopped"),
    ("never ends", "import time\n    while True: log.info('x'); time.sleep(0.05)", {"time": 8.0}, "more than 8 s"),
    ("sends for ever", "while True: op.upsert('t', {'n': 3})", {"time": 8.0}, "more than 8 s"),
    ("closes everything", "import os, time; os.closerange(0, 100); time.sleep(600)", {}, "closed its way to us"),
]
ALL = [
    *(pytest.param(*case[1:], id=case[0]) for case in ENDS),
    *(pytest.param(*case[1:], id=case[0], marks=pytest.mark.slow) for case in LONG),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("more", "limits", "words"), ALL)
def test_ends(world: World, more: str, limits: dict[str, float], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "closed" in words:
        monkeypatch.setattr(child, "_END_TIMEOUT", 2.0)
    sync = world.sync(ROW + "    " + more, **limits)
    assert isinstance(sync.error, ReadError)
    assert sync.error.hint
    with pytest.raises(ReadError, match=words):
        raise sync.error
    assert sync.rows("t")[0]["n"] == 1
    assert all(s.state == {"n": 1} for s in sync.segments)
    assert not list((world.folder / "spool").glob(f"segment-{len(sync.segments) + 1:05}"))
    assert not left(world)


def left(world: World) -> list[list[str]]:
    """The processes that run in the connector's folder or were told of it, and go on doing so: a killed one needs a
    moment to give back what it held."""
    until = time.monotonic() + 600
    while (found := running(world)) and time.monotonic() < until:
        time.sleep(0.1)
    return found


def running(world: World) -> list[list[str]]:
    mine, found = str(world.folder), []
    for process in psutil.process_iter(["pid"]):
        try:
            words, folder = process.cmdline(), process.cwd()
        except psutil.Error:
            continue
        if process.pid != os.getpid() and (folder.startswith(mine) or any(mine in w for w in words)):
            found.append(words)
    return found


@pytest.mark.slow
def test_time_does_not_run_while_the_connector_waits_for_us(world: World) -> None:
    code = "def update(configuration, state):\n    op.checkpoint({'n': 1})\n    op.upsert('t', {'n': 2})"
    segments = Segments(
        SdkDialect(world.config(code, time=15.0, silence=15.0)), str(world.folder / "spool"), {}, print, print
    )
    with closing(segments):
        first = segments.next()
        assert first is not None
        time.sleep(16)
        segments.acknowledge(first)
        last = segments.next()
        assert last is not None
        assert last.counts.upserts == 1
        assert segments.next() is None


def test_a_fork_may_not_operate(world: World) -> None:
    sync = world.sync(ROW + "    " + FORK)
    assert "not into one that it started" in sync.said
    assert [r["n"] for r in sync.rows("t")] == [1]


def test_memory_that_forks_share_counts_once(world: World) -> None:
    sync = world.sync("""
        import os, time
        def update(configuration, state):
            mine = bytearray(os.urandom(1 << 20)) * 100
            forks = [os.fork() or (time.sleep(3), os._exit(0)) for _ in range(4)]
            time.sleep(1)
            op.upsert("t", {"n": len(forks)})
    """, memory="200MB")  # fmt: skip
    assert sync.error is None
    assert sync.records("t") == [{"n": 4}]


@pytest.mark.parametrize("way", ["os.setsid()", "os.setsid(); os.fork() and os._exit(0)"], ids=["left", "orphaned"])
def test_programs_that_left_the_group_end_with_it(world: World, way: str) -> None:
    sync = world.sync(f"""
        import os, time
        def update(configuration, state):
            if os.fork() == 0:
                {way}
                time.sleep(600)
            op.upsert("t", {{"n": 1}})
    """)
    assert sync.error is None
    assert not left(world)


def test_whoever_started_it_is_killed(world: World) -> None:
    config = world.config("import time\ndef update(configuration, state):\n    op.checkpoint({})\n    time.sleep(600)")
    code = f"""
import os, signal
from instep.sources.connector.config import ConnectorConfig
from instep.sources.connector.dialect import SdkDialect
from instep.sources.connector.spool import Segments
config = ConnectorConfig.resolved(path={config.path!r}, environments={config.environments!r})
segments = Segments(SdkDialect(config), {str(world.folder / "spool")!r}, {{}}, print, print)
segments.acknowledge(segments.next())
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    assert not left(world)


def test_nothing_secret_is_on_a_command_line_or_in_an_environment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INSTEP_TOKEN", "canary-child-environment")
    monkeypatch.setenv("CURL_CA_BUNDLE", "/etc/ca.pem")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    sync = world.sync(
        """
        import os, subprocess
        def update(configuration, state):
            print(subprocess.run(["cat", "/proc/self/environ"], capture_output=True).stdout)
            for folder in os.listdir("/proc"):
                if folder.isdigit():
                    try:
                        print(open(f"/proc/{folder}/cmdline").read().replace(chr(0), " "))
                    except OSError:
                        pass
            op.upsert("t", {"given": configuration["note"], "state": state["at"]})
        """,
        {"at": "canary-child-state"},
        configuration={"note": "canary-child-value"},
        environment={"SAID": "so"},
    )
    assert sync.error is None
    assert sync.records("t") == [{"given": "canary-child-value", "state": "canary-child-state"}]
    assert "canary-child" not in sync.said
    assert "SAID=so" in sync.said
    assert "CURL_CA_BUNDLE=/etc/ca.pem" in sync.said
    assert "ALL_PROXY=http://127.0.0.1:9" in sync.said
    assert "FIVETRAN_CONNECTION_ID=connector" in sync.said
    assert "FIVETRAN_DEPLOYMENT_MODEL=hybrid_cloud" in sync.said


def test_nothing_is_left_in_the_scratch_folder(world: World) -> None:
    sync = world.sync("""
        import os, tempfile
        def update(configuration, state):
            path = tempfile.mkstemp()[1]
            op.upsert("t", {"file": path, "home": os.path.expanduser("~"), "here": os.getcwd()})
    """)
    (row,) = sync.records("t")
    assert not Path(row["file"]).exists()
    assert row["file"].startswith(row["home"])
    assert row["here"] == str(world.folder / "source")


def test_siblings_and_packages_of_the_project_are_found(world: World) -> None:
    folder = written(
        world.folder / "source",
        "from settings import NAME\nfrom deep.inside import VALUE\nimport json\n"
        "def update(configuration, state):\n    op.upsert('t', {'name': NAME, 'value': VALUE})\n",
        settings__py="NAME = 'sibling'\n",
    )
    folder.joinpath("deep").mkdir()
    folder.joinpath("deep", "inside.py").write_text("VALUE = 7\n")
    assert world.sync(folder).records("t") == [{"name": "sibling", "value": 7}]
    assert not list(folder.rglob("__pycache__"))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise RuntimeError('at import')\nconnector = 1", "RuntimeError: at import"),
        ("connector = 1", "no object `connector`"),
        ("def update(:", "SyntaxError"),
        ("import no_such_package\nconnector = 1", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("connector = Connector(update=None)", "update has to be a function"),
        (
            "def update(config, state):\n    pass",
            "update(config, state) is called with the arguments `configuration` and `state`, by these names",
        ),
    ],
)
def test_a_connector_that_cannot_be_loaded(world: World, code: str, words: str) -> None:
    sync = world.sync(code)
    assert words in str(sync.error)
    assert isinstance(sync.error, ReadError)
    assert ("requirements.txt" in sync.error.hint) is ("ModuleNotFoundError" in words)


@pytest.mark.parametrize("wrapper", ["*args, **named", "configuration, state"])
def test_an_update_behind_a_wrapper_is_known_by_the_wrapper(world: World, wrapper: str) -> None:
    sync = world.sync(
        f"""
        import functools
        def inner(config, before):
            op.upsert("t", {{"id": 1}})
        @functools.wraps(inner)
        def update({wrapper}):
            inner({{}}, {{}})
        """
    )
    assert sync.error is None
    assert sync.records("t") == [{"id": 1}]


def test_a_folder_without_a_connector(world: World) -> None:
    assert isinstance(world.sync(world.folder).error, ProjectError)


def test_a_sandbox_without_bubblewrap_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    sync = world.sync(ROW, sandbox=True)
    assert isinstance(sync.error, SetupError)
    assert "bwrap" in str(sync.error)


def test_a_sandbox_shows_little_and_keeps_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the connector writes is gone with it; what is not its own it does not see."""
    place = Path(program("bwrap")).parent
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    beside, ours = world.folder.parent / "beside.txt", f"/var/tmp/instep-sandbox-{os.getpid()}"
    beside.write_text("nobody's business")
    sync = world.sync(f"""
        import os, tempfile
        def update(configuration, state):
            for path, mode in (({str(beside)!r}, "r"), ("written.txt", "w"), ({ours!r}, "w")):
                try:
                    open(path, mode)
                except OSError as error:
                    log.info(type(error).__name__)
            with tempfile.TemporaryFile() as file:
                op.upsert("t", {{"n": file.write(b"ok"), "processes": sum(p.isdecimal() for p in os.listdir("/proc"))}})
    """, sandbox=True)  # fmt: skip
    if sync.error is not None and "namespace" in sync.said:
        pytest.skip("bubblewrap may make no namespaces here")
    assert sync.error is None, sync.said
    (row,) = sync.records("t")
    assert row["n"] == 2
    assert row["processes"] < 5
    assert [line.message for line in sync.logs][:2] == ["FileNotFoundError", "OSError"]
    assert not Path(world.folder, "written.txt").exists()
    assert not Path(ours).exists()


def test_usage_is_told(world: World) -> None:
    sync = world.sync(
        "def update(configuration, state):\n    x = bytearray(50 << 20)\n    op.upsert('t', {'n': len(x)})"
    )
    assert sync.ended is not None
    assert (sync.ended.code, sync.ended.cause) == (0, "")
    assert sync.ended.peak > 50 * MIB
    assert sync.ended.cpu > 0
