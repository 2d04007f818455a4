"""Crash points: named places of the write order where a test may stop the process.

`INSTEP_CRASH="<name>=<action>"` arms one point; several are separated by commas. `<name>@<n>` acts when the point is
reached for the nth time only. Actions: `kill` (SIGKILL to this process), `stop` (SIGSTOP: it goes on at SIGCONT),
`raise`, `sleep:<seconds>`. Without the variable a point costs one look-up.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections import Counter
from pathlib import Path

VARIABLE = "INSTEP_CRASH"
_passed: Counter[str] = Counter()
_lock = threading.Lock()
_CALL = re.compile(r"""\bcrashpoint\(\s*["']([^"']+)["']""")


class Crashed(Exception):
    """An armed crash point was reached."""


def crashpoint(name: str) -> None:
    """Do what INSTEP_CRASH demands at `name`; raises ValueError on an unknown action."""
    armed = os.environ.get(VARIABLE)
    if not armed:
        return
    with _lock:
        _passed[name] += 1
        times = _passed[name]
    for entry in armed.split(","):
        point, _, action = entry.strip().partition("=")
        if point in (name, f"{name}@{times}"):
            _act(name, action)


def _act(name: str, action: str) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif action == "raise":
        raise Crashed(f"crash point {name}")
    elif action.startswith("sleep:"):
        time.sleep(float(action.removeprefix("sleep:")))
    else:
        raise ValueError(f"{VARIABLE}: {action!r} is no action for {name}; use kill, stop, raise or sleep:<seconds>")


def points(root: Path | None = None) -> tuple[str, ...]:
    """Return the names of all crash points called in the source files below `root` (default: this package), sorted."""
    folder = root or Path(__file__).parent
    files = (path for path in folder.rglob("*.py") if path != Path(__file__))
    return tuple(sorted({name for path in files for name in _CALL.findall(path.read_text(encoding="utf-8"))}))
