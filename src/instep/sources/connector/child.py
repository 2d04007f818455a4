"""The process in which a connector runs: what it gets, and what it may use."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instep.errors import ReadError, SetupError, SourceLost
from instep.sources.connector.config import MIB, Hidden
from instep.sources.connector.dialect import LOCAL_HOST, ChildEnvironment, ConnectorDialect, Launch
from instep.sources.connector.frames import Frame, Frames
from instep.sources.connector.output import line_of, output_lines
from instep.sources.connector.segment import LogLine
from instep.sources.stream import EVERYTHING, StreamScope
from instep.temporary import TemporaryFolder

_PIPE_BYTES = 1 << 20
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ
_END_TIMEOUT = 30.0  # seconds that a process without a pipe to us may take to end, and to give back what it holds
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


@dataclass(frozen=True)
class ChildEnd:
    """The end of the child process."""

    code: int | None
    """The exit code, negative for a signal."""
    cause: str
    """Why the guard ended it, "" if it did not."""
    peak: int
    """In bytes."""
    cpu: float
    """In seconds."""


class Child:
    """A process from its start to its end. Nothing of it is left after close()."""

    def __init__(
        self, dialect: ConnectorDialect, log: Callable[[LogLine], None], host: ChildEnvironment = LOCAL_HOST
    ) -> None:
        dialect.check()
        self.hidden = Hidden(dialect.secrets())
        self._dialect, self._log, self._host = dialect, log, host
        self._own: list[int] = []
        self._spent, self._since = 0.0, 0.0
        self.ended: ChildEnd | None = None

    def start(self, command: str, state: Mapping[str, Any] | None = None, scope: StreamScope = EVERYTHING) -> None:
        """Start the child; `command` is update, schema, form or test. Configuration and state go through a pipe."""
        self.hidden.note_state(state or {})
        self._folder = TemporaryFolder("connector", self._host.scratch)
        self._scratch = self._folder.path
        try:
            launch = self._dialect.launch(self._scratch, self._host, self._log)
            request = self._dialect.request(command, state or {}, scope)
        except BaseException:
            self._folder.close()
            raise
        pipes = [os.pipe() for _ in range(4)]
        (frames, frames_end), (back_end, back), (output, output_end), (errors, errors_end) = pipes
        self._own = [frames, back]
        child_ends = [frames_end, back_end, output_end, errors_end]
        with suppress(OSError):
            fcntl.fcntl(frames_end, _SET_PIPE_SIZE, _PIPE_BYTES)
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(self._host.program / "guard.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=child_ends,
            start_new_session=True,
            env={"PATH": os.defpath},
        )
        for descriptor in child_ends:
            os.close(descriptor)
        self.frames = Frames(frames)
        self._readers = [self._capture(output, "stdout", "info"), self._capture(errors, "stderr", "warning")]
        self._tell_guard(self._plan(launch, frames_end, back_end, [output_end, errors_end]))
        self.send(request)

    def _plan(self, launch: Launch, frames: int, back: int, outputs: list[int]) -> dict[str, Any]:
        most = self._dialect.limits
        run = [*launch.command, str(frames), str(back), *launch.arguments]
        limits = {"RLIMIT_DATA": most.memory_bytes, "RLIMIT_FSIZE": most.file_bytes}
        return {
            "command": [*sandboxed(self._dialect.name, self._scratch, launch.shown), *run]
            if self._dialect.sandbox
            else run,
            "folder": launch.folder,
            "environment": launch.environment,
            "descriptors": [frames, back],
            "outputs": outputs,
            "limits": {"RLIMIT_CORE": 0, **{name: most for name, most in limits.items() if most}},
            "memory": most.memory_bytes,
        }

    def _tell_guard(self, plan: Mapping[str, Any]) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.write(json.dumps(plan).encode() + b"\n")
        self._guard.stdin.flush()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a line through the pipe; do nothing if the process is gone, which the next read reports."""
        data = memoryview(json.dumps(message).encode() + b"\n")
        with suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._own[1], data) :]

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """Count the time in the block as the child's: somebody waits for it."""
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._spent += time.monotonic() - self._since

    def read(self) -> Frame:
        """Return the next frame, while it is `awaited`. Raises ReadError if none comes: the process ended, hangs or
        takes too long."""
        limits = self._dialect.limits
        left = limits.time - self._elapsed() if limits.time else None
        if left is not None and left <= 0:
            raise self._too_long()
        waits = [w for w in (left, limits.silence or None) if w is not None]
        try:
            frame = self.frames.read(min(waits) if waits else None)
        except TimeoutError:
            raise self._too_long() from None
        if frame is None:
            raise self._ended_error()
        return frame

    def _elapsed(self) -> float:
        """Return the child's run time so far, in seconds."""
        return self._spent + time.monotonic() - self._since

    def _too_long(self) -> ReadError:
        limits, name, elapsed = self._dialect.limits, self._dialect.name, self._elapsed()
        self.close()
        if limits.time and elapsed >= limits.time:
            return ReadError(
                f"connector {name} ran for more than {limits.time:g} s and was stopped",
                hint="raise `limits.time`, or let it checkpoint and end earlier",
            )
        return SourceLost(
            f"connector {name} sent nothing for {limits.silence:g} s and was stopped",
            hint="see what it waits for (in its last log lines), or raise `limits.silence`",
        )

    def _ended_error(self) -> ReadError:
        ended = self.wait(_END_TIMEOUT)
        name, limits = self._dialect.name, self._dialect.limits
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
        return SourceLost(
            f"connector {name} {how} before {self._dialect.end}",
            hint="its log lines are in the run; run `instep sync` again",
        )

    def wait(self, timeout: float | None = None) -> ChildEnd:
        """Wait until the process ends; end it after `timeout` seconds."""
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
        """Log every line of an output."""

        def read() -> None:
            for line in output_lines(descriptor, self.hidden, origin, level):
                self._log(line)

        reader = threading.Thread(target=read, name=f"connector-{origin}", daemon=True)
        reader.start()
        return reader


def sandboxed(name: str, scratch: str, shown: Sequence[str]) -> list[str]:
    """Return the beginning of a command line: a bubblewrap that shows the system and what is `shown`, and lets the
    connector write to its scratch folder only. The network is there, since that is what connectors are for."""
    program = shutil.which("bwrap")
    if program is None:
        raise SetupError(
            f"connector {name}: `sandbox` is on, but bwrap is not installed",
            hint="install bubblewrap, or switch `sandbox` off",
        )
    paths = [path for path in dict.fromkeys((*_SHOWN, *shown)) if Path(path).exists()]
    outer = [path for path in paths if not any(Path(one) in Path(path).parents for one in paths)]
    binds = [word for path in outer for word in ("--ro-bind", path, path)]
    writes = ["--bind", scratch, scratch]
    apart = ["--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL"]
    return [program, *apart, "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", *binds, *writes, "--"]


def answer(dialect: ConnectorDialect, command: str, log: Callable[[LogLine], None]) -> Any:
    """Return the connector's answer to `schema`, `form` or `test`; raises ReadError with its own error."""
    child = Child(dialect, log)
    try:
        child.start(command)
        with child.awaited():
            while (frame := child.read()).kind != "answer":
                if frame.kind == "error":
                    raise dialect.failed(frame.head, child.hidden)
                if frame.kind == "log":
                    log(line_of(frame, child.hidden))
                elif (reply := dialect.reply(frame.head, child.hidden)) is not None:
                    child.send(reply)
        return frame.head["said"]
    finally:
        child.close()
