"""Functions and commands in processes of their own that start in milliseconds.

Each is forked from one process that has imported what they need and has started nothing: no JVM, no connection, no
thread but those that its libraries end and begin anew around a fork. A forked process can be killed for good, and
shares nothing with the next one but the disk.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from instep.crash import VARIABLE


@dataclass(frozen=True)
class Ended:
    """`code` as of subprocess (-9: killed), None if it stands still at its crash point; `said`: its output."""

    pid: int
    code: int | None
    said: str


class Forks:
    """Runs one function at a time; `folder` is for their output."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[str] | None = None
        self._logs: dict[int, Path] = {}
        self._count = 0

    def run(self, function: str, *arguments: str, crash: str = "", folder: Path | None = None, **env: str) -> Ended:
        """Call `module.function` with strings, and wait until it ends, or stops itself at a crash point.

        Its environment is this process's and `env`, its current directory is `folder`.
        """
        self._count += 1
        log = self.folder / f"{self._count}.log"
        environment = {**os.environ, VARIABLE: crash, **env}
        return self._ask(
            {"function": function, "arguments": arguments, "env": environment, "cwd": str(folder or Path.cwd())}, log
        )

    def instep(self, *words: str | Path, crash: str = "", folder: Path | None = None, **env: str) -> Ended:
        """Run the command `instep` with these words."""
        return self.run("forks.instep", *map(str, words), crash=crash, folder=folder, **env)

    def go_on(self, stopped: Ended) -> Ended:
        """Let it run to its end."""
        return self._ask({"go_on": stopped.pid}, self._logs[stopped.pid])

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate(timeout=300)
            self._process = None

    def _ask(self, what: dict[str, object], log: Path) -> Ended:
        process = self._process = self._process or _begin()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({**what, "log": str(log)}) + "\n")
            process.stdin.flush()
            pid, code = json.loads(process.stdout.readline())
        except BaseException:  # a test that took too long: its answer is not for the next one
            self._process = None
            process.stdin.close()
            process.kill()
            raise
        self._logs[pid] = log
        said = log.read_text(errors="replace")
        print(f"{what.get('function', 'on')} {what.get('arguments', '')}: {code}\n{said}")  # shown if the test fails
        return Ended(pid, code, said)


@pytest.fixture(scope="session")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """One process to fork from for all tests of this process."""
    made = Forks(tmp_path_factory.mktemp("forks"))
    yield made
    made.close()


def _begin() -> subprocess.Popen[str]:
    """Start the process that is forked: it can import whatever this one can."""
    paths = json.dumps([path for path in sys.path if path])
    code = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); import forks; forks.serve()"
    return subprocess.Popen(
        [sys.executable, "-c", code, paths], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def serve() -> None:
    """Answer (pid, code) to each line; whatever still runs at the end is killed."""
    import instep.cli.main  # noqa: F401

    running: set[int] = set()
    for line in sys.stdin:
        asked = json.loads(line)
        if pid := asked.get("go_on"):
            os.kill(pid, signal.SIGCONT)
        else:
            module, _, function = asked["function"].rpartition(".")
            call = getattr(importlib.import_module(module), function)
            pid = os.fork()
            if not pid:
                _run(call, asked["arguments"], asked["env"], asked["cwd"], Path(asked["log"]))
            running.add(pid)
        _, status = os.waitpid(pid, os.WUNTRACED)
        code = None if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
        if code is not None:
            running.discard(pid)
        print(json.dumps([pid, code]), flush=True)
        _learn(_modules(Path(asked["log"])))
    for pid in running:
        os.kill(pid, signal.SIGKILL)


def _learn(modules: Path) -> None:
    """Import what a process has imported that ended by itself: the next one has it from the start."""
    if modules.exists():
        for name in modules.read_text().split():
            with suppress(Exception):  # some can be imported by their own callers only
                importlib.import_module(name)
        modules.unlink()


def _modules(log: Path) -> Path:
    return log.with_suffix(".modules")


def _run(function: object, arguments: list[str], env: dict[str, str], cwd: str, log: Path) -> None:
    assert callable(function)
    os.setsid()
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    null, out = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream, to in enumerate((null, out, out)):
        os.dup2(to, stream)
    before = set(sys.modules)
    code = 1
    try:
        code = function(*arguments) or 0
        _modules(log).write_text("\n".join(name for name in sys.modules if name not in before))
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(code)


def _leave(code: int) -> None:
    from instep.cli.main import leave

    leave(code)


def instep(*words: str) -> int:
    """The command, and its exit code."""
    from instep.cli.main import main

    return main(list(words))
