"""Functions run in processes of their own that start in milliseconds: forked from one that has imported everything and
done nothing."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from instep.crash import VARIABLE

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Ended:
    """`code` as of subprocess (-9: killed), None if it stands still at its crash point; `said`: its stderr."""

    pid: int
    code: int | None
    said: str


class Forks:
    """Calls functions of one module with strings, one at a time; `folder` is for what they say."""

    def __init__(self, module: str, folder: Path) -> None:
        self.module, self.log = module, folder / "forks.log"
        paths = os.pathsep.join([str(HERE), str(HERE.parent)])
        self._process = subprocess.Popen(
            [sys.executable, "-c", "import forks; forks.serve()", module],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip

    def run(self, function: str, *arguments: str, crash: str = "") -> Ended:
        """Waits until it ends, or stops itself."""
        return self._ask({"function": function, "arguments": arguments, "crash": crash, "log": str(self.log)})

    def go_on(self, stopped: Ended) -> Ended:
        """Lets it run to its end."""
        return self._ask({"go_on": stopped.pid})

    def close(self) -> None:
        self._process.communicate(timeout=300)

    def _ask(self, what: dict[str, object]) -> Ended:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        pid, code = json.loads(self._process.stdout.readline())
        return Ended(pid, code, self.log.read_text())


@contextmanager
def forks(module: str, folder: Path) -> Iterator[Forks]:
    made = Forks(module, folder)
    try:
        yield made
    finally:
        made.close()


def serve() -> None:
    """The process that is forked: answers (pid, code) by line; what still runs at the end is killed."""
    module = importlib.import_module(sys.argv[1])
    running: set[int] = set()
    for line in sys.stdin:
        asked = json.loads(line)
        if pid := asked.get("go_on"):
            os.kill(pid, signal.SIGCONT)
        else:
            pid = os.fork()
            if not pid:
                _run(getattr(module, asked["function"]), asked["arguments"], asked["crash"], asked["log"])
            running.add(pid)
        _, status = os.waitpid(pid, os.WUNTRACED)
        code = None if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
        if code is not None:
            running.discard(pid)
        print(json.dumps([pid, code]), flush=True)
    for pid in running:
        os.kill(pid, signal.SIGKILL)


def _run(function: object, arguments: list[str], crash: str, log: str) -> None:
    assert callable(function)
    os.environ[VARIABLE] = crash
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(out, stream)
    code = 1
    try:
        function(*arguments)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
