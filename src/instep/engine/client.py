"""A command's side of the engine: hand it over, pass signals on, and end as it has ended.

What a command is given (arguments, environment, folder) goes through a pipe that only the forked process reads, so that
the engine never holds a secret of it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from instep.allocators import LASTING
from instep.engine.address import library_variables, socket_of
from instep.engine.wire import TELLS_AFTER, log_of, process_of, receive, send, user_of

PASSED_ON = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "PYTHONPATH",
    "XDG_RUNTIME_DIR",
)
"""The variables that the engine itself is started with: where to find programs, and nothing that could be a secret."""
STARTS_WITHIN = 60.0
"""Seconds that an engine may take until it listens."""
_OTHER_LISTENS_WITHIN = 10.0
"""Seconds that one may take which somebody else has started."""
_ANSWERS_WITHIN = 60.0
"""Seconds that an engine may take to answer: it forks and looks, and works at nothing itself."""
STOPS_WITHIN = 5.0
"""Seconds that an engine may take to answer that it stops."""
ENDS_WITHIN = 3.0
"""Seconds that one may take to end at a SIGTERM."""
_HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
LOST = (
    "error: the engine that ran this command has ended\n"
    "  run the command again: it resumes what was begun; `--no-engine` runs it in its own process\n"
)


class NoEngine(Exception):
    """No engine is running, and the command has not begun."""


def connect(project: Path) -> socket.socket:
    """Return a connection to the project's engine; NoEngine if none of this user listens."""
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        peer.connect(str(socket_of(project)))
        if user_of(peer) != os.geteuid():
            raise NoEngine("another user listens")
    except OSError as error:
        peer.close()
        raise NoEngine(str(error)) from error
    except NoEngine:
        peer.close()
        raise
    return peer


def ask(project: Path, what: str) -> dict[str, Any] | None:
    """Return the running engine's answer, None if there is none."""
    try:
        peer = connect(project)
    except NoEngine:
        return None
    with peer, suppress(OSError):
        peer.settimeout(_ANSWERS_WITHIN)
        send(peer, {"ask": what})
        return receive(peer)[0]
    return None


def stop(project: Path, tell: Callable[[str], None]) -> tuple[dict[str, Any] | None, bool]:
    """Ask the running engine to stop; return what it answers (None if there is none), and whether it had to be killed.

    One that does not answer in time is told so by `tell`, and its own process is ended: commands that it runs are lost.
    """
    try:
        peer = connect(project)
    except NoEngine:
        return None, False
    with peer:
        try:
            process = os.pidfd_open(process_of(peer))
        except ProcessLookupError:
            return None, False
        try:
            peer.settimeout(STOPS_WITHIN)
            with suppress(OSError):
                send(peer, {"ask": "stop"})
                if (answer := receive(peer)[0]) is not None:
                    return answer, False
            if not _has_ended(process, 0):
                tell(
                    f"the engine (process {process_of(peer)}) has not answered within {STOPS_WITHIN:.0f} s: it is ended"
                )
            return None, _end(process)
        finally:
            os.close(process)


def _end(process: int) -> bool:
    """End a process: kill it where it does not heed the request. Return whether it still lived."""
    if _has_ended(process, 0):
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, number)
        if _has_ended(process, ENDS_WITHIN):
            break
    return True


def _has_ended(process: int, seconds: float) -> bool:
    return bool(select.select([process], [], [], seconds)[0])


def start(project: Path) -> None:
    """Start an engine and return once it listens; NoEngine with what it said if it does not."""
    import subprocess

    try:
        place = socket_of(project)
        log = log_of(place)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise NoEngine(str(error)) from error
    passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    env = LASTING | passed_on | library_variables()
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "instep.engine.serve", str(project), str(place)],
            cwd="/",
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    finally:
        os.close(output)
    end, waits = time.monotonic() + STARTS_WITHIN, False
    tells = time.monotonic() + TELLS_AFTER
    while (now := time.monotonic()) < end:
        if now >= tells:
            sys.stderr.write(f"waiting for the engine of {project} to start, which writes to {log}\n")
            tells = end
        with suppress(NoEngine):
            connect(project).close()
            return
        if process.poll():
            raise NoEngine(log.read_text(errors="replace")[-2000:])
        if process.returncode == 0:  # another one has just been started, or ends
            end = min(end, time.monotonic() + _OTHER_LISTENS_WITHIN) if not waits else end
            waits = True
        time.sleep(0.01)
    raise NoEngine(f"it does not listen after {STARTS_WITHIN:.0f} s: {log}")


def run(arguments: list[str], project: Path, *, starts: bool, says: str = "") -> int:
    """Run a command in the project's engine and return its exit code; NoEngine if that is not possible.

    `starts`: start an engine if there is none, or one of another code. `says`: what is said once it listens.
    """
    for number in range(3):
        _open(number)  # no socket may take the number of a stream that is closed
    for attempt in range(2):
        try:
            peer = connect(project)
        except NoEngine:
            if not starts:
                raise
            start(project)
            peer = connect(project)
            sys.stderr.write(says)
            says = ""
        with peer:
            if _hand_over(peer, arguments):
                return _wait(peer)
        if attempt == 0:
            time.sleep(0.05)  # it ends, because the code has changed
    raise NoEngine("the engine takes no commands")


def _hand_over(peer: socket.socket, arguments: list[str]) -> bool:
    """Return whether the engine has begun the command."""
    reads, writes = os.pipe()
    streams = [_open(number) for number in range(3)]
    try:
        peer.settimeout(_ANSWERS_WITHIN)
        send(peer, {"ask": "run"}, [*streams, reads])
        os.close(reads)
        reads = -1
        answer = receive(peer)[0]
        if answer is None or "begun" not in answer:
            return False
        peer.settimeout(None)
        with os.fdopen(writes, "wb") as pipe:
            writes = -1
            pipe.write(_command(arguments))
        return True
    except OSError:
        return False
    finally:
        for descriptor in (reads, writes, *(stream for stream in streams if stream > 2)):
            if descriptor >= 0:
                os.close(descriptor)


def _open(number: int) -> int:
    """Return the stream of this number, or one that leads nowhere if it is closed."""
    try:
        os.fstat(number)
    except OSError:
        return os.open(os.devnull, os.O_RDWR)
    return number


def _command(arguments: list[str]) -> bytes:
    import json

    ignored = [int(number) for number in _HANDED_ON if signal.getsignal(number) is signal.SIG_IGN]
    umask = os.umask(0)
    os.umask(umask)
    environment: Mapping[str, str] = dict(os.environ)
    message = {
        "arguments": arguments,
        "environment": environment,
        "folder": str(Path.cwd()),
        "umask": umask,
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "ignored": ignored,
    }
    return json.dumps(message).encode()


def _wait(peer: socket.socket) -> int:
    """Pass signals on until the command has ended; return its exit code."""

    def hand_on(number: int, _: object) -> None:
        with suppress(OSError):
            send(peer, {"signal": number})

    def stop(_: int, __: object) -> None:
        hand_on(signal.SIGSTOP, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        hand_on(signal.SIGCONT, None)

    for signal_number in _HANDED_ON:
        if signal.getsignal(signal_number) is not signal.SIG_IGN:
            signal.signal(signal_number, hand_on)
    if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
        signal.signal(signal.SIGTSTP, stop)
    try:
        ended = receive(peer)[0]
    except OSError:
        ended = None
    if ended is None:
        sys.stderr.write(LOST)
        return 1
    if number := ended.get("killed"):
        signal.signal(number, signal.SIG_DFL) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), number)
        return 128 + int(number)
    return int(ended["exit"])
