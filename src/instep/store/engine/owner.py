"""The owner of a run: the identity of a process on its host, and whether it still lives."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Owner:
    """`host` also names the process-id space, so that containers with one host name are told apart.

    `started` is the kernel's start time of the process ("" where it cannot be read): process ids are reused.
    """

    host: str
    pid: int
    started: str = ""

    @property
    def is_ended(self) -> bool:
        """True if the process has certainly ended; False when it runs on another host."""
        if self.host != _host():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # it exists and belongs to somebody else
        state, started = _stat(self.pid)
        return state == "Z" or bool(self.started and started and started != self.started)


def this_process() -> Owner:
    return Owner(_host(), os.getpid(), _stat(os.getpid())[1])


def _host() -> str:
    try:
        space = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return socket.gethostname()
    return f"{socket.gethostname()}/{space}"


def _stat(pid: int) -> tuple[str, str]:
    """Return (state, start time in clock ticks since boot); empty where there is no /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "", ""
    # The program's name is in parentheses and may hold spaces.
    fields = text.rpartition(")")[2].split()
    return fields[0], fields[19]
