"""The process in which a connector runs: what it gets, and what it may use."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instep.errors import ProjectError, ReadError, SetupError
from instep.project.sections.values import as_text
from instep.sources.connector.config import MIB, ConnectorConfig, Hidden
from instep.sources.connector.environment import INSTALLATION, PASSED, installs_drivers, interpreter
from instep.sources.connector.frames import Frame, Frames
from instep.sources.connector.segment import LogLine
from instep.temporary import Temporary

_PIPE_BYTES = 1 << 20
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ
_END_TIMEOUT = 30.0  # seconds that a process without a pipe to us may take to end, and to give back what it holds
_LINE = 10_000  # characters of a log line
_LONGEST = 1 << 20  # characters of a line of an output that are read
_LEVELS = {"DEBUG": "debug", "INFO": "info", "WARNING": "warning", "ERROR": "error", "CRITICAL": "error"}
_LEVEL = re.compile(rf"(?:.{{0,80}}?[-|\s\[])?({'|'.join(_LEVELS)})(?=:|\]|\s+-\s|\s*\|)")
_NO_MODULE = "name its package in requirements.txt of the connector: an environment has what is there, and `requests`"
_SHOWN = (
    "/usr",
    "/bin",
    "/lib",
    "/lib64",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/localtime",
)

_TRACEBACK = "its traceback is in the log of the run"
_UNINSTALLED = f"nobody runs its {INSTALLATION}: has this machine got what that installs?"


@dataclass(frozen=True)
class Host:
    """Environment of a child process. `program` is the folder of the guard and of `sdk/`, which have to be files;
    folders of its own are made in `scratch`, "" for where the system has such."""

    program: Path = Path(__file__).parent
    scratch: str = ""


LOCAL_HOST = Host()


@dataclass(frozen=True)
class ChildEnd:
    """`code` is the exit code, negative for a signal; `cause` is why the guard ended it, "" if it did not. `peak` is
    in bytes, `cpu` in seconds."""

    code: int | None
    cause: str
    peak: int
    cpu: float


class Child:
    """A process from its start to its end. Nothing of it is left after close()."""

    def __init__(self, config: ConnectorConfig, log: Callable[[LogLine], None], host: Host = LOCAL_HOST) -> None:
        check(config)
        self.hidden = Hidden(config)
        self._config, self._log, self._host = config, log, host
        self._own: list[int] = []
        self._spent, self._since = 0.0, 0.0
        self.ended: ChildEnd | None = None

    def start(self, command: str, state: Mapping[str, Any] | None = None) -> None:
        """`command` is update, schema, form or test. Configuration and state go down a pipe."""
        self.hidden.note_state(state or {})
        python = interpreter(self._config)
        self._folder = Temporary("connector", self._host.scratch)
        self._scratch = self._folder.path
        pipes = [os.pipe() for _ in range(4)]
        (frames, frames_end), (back_end, back), (output, output_end), (errors, errors_end) = pipes
        self._own = [frames, back]
        theirs = [frames_end, back_end, output_end, errors_end]
        with suppress(OSError):
            fcntl.fcntl(frames_end, _SET_PIPE_SIZE, _PIPE_BYTES)
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(self._host.program / "guard.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=theirs,
            start_new_session=True,
            env={"PATH": os.defpath},
        )
        for descriptor in theirs:
            os.close(descriptor)
        self.frames = Frames(frames)
        self._readers = [self._capture(output, "stdout", "info"), self._capture(errors, "stderr", "warning")]
        self._tell_guard(self._plan(python, frames_end, back_end, [output_end, errors_end]))
        self.send(
            {"command": command, "configuration": as_text(self._config.configuration), "state": dict(state or {})}
        )

    def _plan(self, python: Path, frames: int, back: int, outputs: list[int]) -> dict[str, Any]:
        config, folder = self._config, os.path.realpath(self._config.path)
        run = [str(python), "-B", "-u", str(self._sdk / "perform.py"), str(frames), str(back), folder]
        limits = {"RLIMIT_DATA": config.limits.memory_bytes, "RLIMIT_FSIZE": config.limits.file_bytes}
        return {
            "command": [*self._sandbox(folder, python), *run] if config.sandbox else run,
            "folder": folder,
            "environment": self._environment(),
            "descriptors": [frames, back],
            "outputs": outputs,
            "limits": {"RLIMIT_CORE": 0, **{name: most for name, most in limits.items() if most}},
            "memory": config.limits.memory_bytes,
        }

    def _environment(self) -> dict[str, str]:
        """Nothing of ours, which holds secrets, but where to find programs, certificates and proxies."""
        passed = {name: os.environ[name] for name in PASSED if name in os.environ}
        environment = {
            "HOME": self._scratch,
            "TMPDIR": self._scratch,
            "PYTHONPATH": str(self._sdk),
            "PYTHONUTF8": "1",
            "MALLOC_ARENA_MAX": "2",  # address space of threads counts as memory
            "FIVETRAN_CONNECTION_ID": self._config.name,
            "FIVETRAN_DEPLOYMENT_MODEL": "hybrid_cloud",
        }
        return {**passed, **environment, **self._config.environment}

    def _sandbox(self, folder: str, python: Path) -> list[str]:
        """A bubblewrap that shows the system, the environment and the connector, and lets it write to its scratch
        folder only. The network is there, since that is what connectors are for."""
        program = shutil.which("bwrap")
        if program is None:
            raise SetupError(
                f"connector {self._config.name}: `sandbox` is on, and there is no bwrap here",
                hint="install bubblewrap, or switch `sandbox` off",
            )
        base = str(Path(os.path.realpath(python)).parent.parent)
        shown = [*_SHOWN, base, str(python.parent.parent), str(self._sdk), folder]
        binds = [word for path in shown if Path(path).exists() for word in ("--ro-bind", path, path)]
        writes = ["--bind", self._scratch, self._scratch]
        apart = ["--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL"]
        return [program, *apart, "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", *binds, *writes, "--"]

    @property
    def _sdk(self) -> Path:
        return self._host.program / "sdk"

    def _tell_guard(self, plan: Mapping[str, Any]) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.write(json.dumps(plan).encode() + b"\n")
        self._guard.stdin.flush()

    def send(self, message: Mapping[str, Any]) -> None:
        """A line up the pipe; nothing if the process is gone, which the next read tells."""
        data = memoryview(json.dumps(message).encode() + b"\n")
        with suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._own[1], data) :]

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """Its time runs inside: somebody wants to have something of it."""
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._spent += time.monotonic() - self._since

    def read(self) -> Frame:
        """Return the next frame, while it is `awaited`. Raises ReadError if none comes: the process ended, hangs or
        takes too long."""
        limits = self._config.limits
        left = limits.time - self._taken() if limits.time else None
        if left is not None and left <= 0:
            raise self._too_long()
        waits = [w for w in (left, limits.silence or None) if w is not None]
        try:
            frame = self.frames.read(min(waits) if waits else None)
        except TimeoutError:
            raise self._too_long() from None
        if frame is None:
            raise self._gone()
        return frame

    def _taken(self) -> float:
        """Seconds, those that run now included."""
        return self._spent + time.monotonic() - self._since

    def _too_long(self) -> ReadError:
        limits, name, taken = self._config.limits, self._config.name, self._taken()
        self.close()
        if limits.time and taken >= limits.time:
            return ReadError(
                f"connector {name} ran for more than {limits.time:g} s and was stopped",
                hint="raise `limits.time`, or let it checkpoint and end earlier",
            )
        return ReadError(
            f"connector {name} sent nothing for {limits.silence:g} s and was stopped",
            hint="look what it waits for (its last log lines tell), or raise `limits.silence`",
        )

    def _gone(self) -> ReadError:
        ended = self.wait(_END_TIMEOUT)
        name, limits = self._config.name, self._config.limits
        if ended.cause == "memory":
            return ReadError(
                f"connector {name} used more than {limits.memory_bytes // MIB:,} MiB of memory and was stopped",
                hint="send rows as they come instead of collecting them, or raise `limits.memory`",
            )
        if ended.cause:
            how = "closed its way to us"
        elif ended.code is not None and ended.code < 0:
            how = f"was killed by {signal.Signals(-ended.code).name}"
        else:
            how = f"ended by itself with exit code {ended.code}"
        return ReadError(
            f"connector {name} {how} before update() returned", hint="its log lines are in the run; run it again"
        )

    def wait(self, timeout: float | None = None) -> ChildEnd:
        """Waits for the end, and brings it about after `timeout` seconds."""
        if self.ended is None:
            assert self._guard.stdin is not None
            assert self._guard.stdout is not None
            if timeout is not None and not select.select([self._guard.stdout], [], [], timeout)[0]:
                self._guard.stdin.close()
            reply = self._guard.stdout.readline()
            self._guard.wait()
            self.ended = ChildEnd(**json.loads(reply)) if reply else ChildEnd(None, "guard", 0, 0.0)
            for reader in self._readers:
                reader.join()
        return self.ended

    def stop(self) -> None:
        """Stop the process soon and tell the reader; may be called from another thread."""
        assert self._guard.stdin is not None
        with suppress(OSError):
            self._guard.stdin.close()

    def close(self) -> None:
        """End the process and all that came of it, if it has not ended by itself."""
        if not self._own:
            return
        self.stop()
        self.wait()
        assert self._guard.stdout is not None
        self._guard.stdout.close()
        for descriptor in self._own:
            os.close(descriptor)
        self._own = []
        self._folder.close()

    def _capture(self, descriptor: int, origin: str, level: str) -> threading.Thread:
        """Every line of an output becomes a log line, a long one several. It is cleaned as a whole: what is cut first
        may have half a secret at its end."""

        def read() -> None:
            with os.fdopen(descriptor, encoding="utf-8", errors="replace") as lines:
                while line := lines.readline(_LONGEST):
                    if not line.strip():
                        continue
                    text = self.hidden.clean(line.rstrip("\n"))
                    if not line.endswith("\n") and len(line) == _LONGEST:
                        text = text[: -2 * _LINE]
                        while (more := lines.readline(_LONGEST)) and not more.endswith("\n"):
                            pass
                    for at in range(0, len(text), _LINE):
                        self._log(LogLine(level_of(line, level), text[at : at + _LINE], origin))

        reader = threading.Thread(target=read, name=f"connector-{origin}", daemon=True)
        reader.start()
        return reader


def check(config: ConnectorConfig) -> None:
    """Raise ProjectError if the folder has no connector.py."""
    if not (Path(config.path) / "connector.py").is_file():
        raise ProjectError(f"connector {config.name}: {config.path} has no connector.py", hint="correct its `path`")


def answer(config: ConnectorConfig, command: str, log: Callable[[LogLine], None]) -> Any:
    """Return what the connector says to `schema`, `form` or `test`; raises ReadError with its own error."""
    child = Child(config, log)
    try:
        child.start(command)
        with child.awaited():
            while (frame := child.read()).kind != "answer":
                if frame.kind == "error":
                    raise failed(config, frame.head, child.hidden)
                if frame.kind == "log":
                    log(line_of(frame, child.hidden))
        return frame.head["said"]
    finally:
        child.close()


def level_of(line: str, otherwise: str) -> str:
    """Return the level that a line of an output begins with, or has between its time and its text, as Python's
    `logging` writes it."""
    found = _LEVEL.match(line)
    return _LEVELS[found[1]] if found else otherwise


def line_of(frame: Frame, hidden: Hidden) -> LogLine:
    """Return the log line of a frame, cleaned before it is cut."""
    return LogLine(str(frame.head["level"]), hidden.clean(str(frame.head["message"]))[:_LINE])


def failed(config: ConnectorConfig, head: Mapping[str, Any], hidden: Hidden) -> ReadError:
    """Return the connector's own error."""
    message = hidden.clean(str(head["message"]))
    match head["kind"]:
        case "told":
            return ReadError(f"connector {config.name}: {message}", hint="the connector ended the sync with this error")
        case "exit":
            return ReadError(
                f"connector {config.name} called exit({message}) before update() returned",
                hint="let it return, or raise an exception that says what is wrong",
            )
        case "memory":
            return ReadError(
                f"connector {config.name} ran out of the memory that it may use "
                f"({config.limits.memory_bytes // MIB:,} MiB): {message}",
                hint="send rows as they come instead of collecting them, or raise `limits.memory`",
            )
        case _:
            hint = _NO_MODULE if message.startswith("ModuleNotFoundError") else _TRACEBACK
            hint = f"{hint}; {_UNINSTALLED}" if installs_drivers(config) else hint
            return ReadError(f"connector {config.name}: {message}", hint=hint)


def not_done(config: ConnectorConfig) -> Iterator[LogLine]:
    """Yield what it asks for in vain, for the beginning of a run."""
    if installs_drivers(config):
        text = f"{INSTALLATION} is not run: what it installs has to be on each machine that runs the connector"
        yield LogLine("warning", text, "instep")
