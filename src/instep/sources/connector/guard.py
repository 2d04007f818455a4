"""Supervisor of a connector's process: a separate program, run by path, standard library only.

It starts the process with limits, watches its memory, and when the process ends, or whoever started this ends, it kills
every process that came of it, those that left its group included. Standard input is one line of JSON, then nothing: its
end means that nobody is there any more. Standard output gets one line of JSON at the end.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any

_DEATH_SIGNAL, _SUBREAPER = 1, 36  # of prctl
_PAGE = os.sysconf("SC_PAGE_SIZE")
_EVERY = 0.2  # seconds between looks at the memory


def main() -> None:
    plan = _plan()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    child = _start(plan, libc)
    for descriptor in (*plan["descriptors"], *plan["outputs"]):
        os.close(descriptor)
    status, cause, peak = _watched(child, plan["memory"])
    _kill_all(child)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = os.waitstatus_to_exitcode(status) if status is not None else None
    end = {"code": code, "cause": cause, "peak": max(peak, used.ru_maxrss * 1024), "cpu": used.ru_utime + used.ru_stime}
    print(json.dumps(end), flush=True)


def _plan() -> dict[str, Any]:
    """Read the plan byte by byte, so that nothing behind it is consumed."""
    line = b""
    while not line.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            sys.exit(1)
        line += byte
    plan: dict[str, Any] = json.loads(line)
    return plan


def _start(plan: dict[str, Any], libc: Any) -> int:
    """Return the process, leader of its own session. This process has one thread, so fork() is safe."""
    guard = os.getpid()
    if child := os.fork():
        return child
    try:
        os.setsid()
        libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guard:
            os._exit(1)
        for name, most in plan["limits"].items():
            number = getattr(resource, name)
            hard = resource.getrlimit(number)[1]
            resource.setrlimit(number, (most, most) if hard == resource.RLIM_INFINITY else (min(most, hard),) * 2)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, source in enumerate((nothing, *plan["outputs"])):
            os.dup2(source, target)
            os.set_inheritable(source, False)
        for descriptor in plan["descriptors"]:
            os.set_inheritable(descriptor, True)
        os.chdir(plan["folder"])
        os.execve(plan["command"][0], plan["command"], plan["environment"])
    except OSError as error:
        os.write(2, f"{plan['command'][0]}: {error}\n".encode())
    os._exit(127)


def _watched(child: int, memory: int) -> tuple[int | None, str, int]:
    """Return (status of the process, why it was ended if it was, peak bytes of all processes together)."""
    peak = 0
    while True:
        if (status := _reaped(child)) is not None:
            return status, "", peak
        if select.select([0], [], [], _EVERY)[0] and not os.read(0, 4096):
            return None, "stopped", peak
        used = sum(map(_private, _descendants()))
        if memory and used > memory:
            # pages that processes share after a fork are counted once, which takes longer to find out
            used = sum(map(_proportional, _descendants()))
        peak = max(peak, used)
        if memory and used > memory:
            return None, "memory", peak


def _reaped(child: int) -> int | None:
    """Return the status of the process if it has ended; other processes that have ended are reaped."""
    while True:
        try:
            number, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 0
        if number == child:
            return status
        if number == 0:
            return None


def _descendants() -> list[int]:
    """Return all processes below this one; orphans become its children."""
    descendants, unvisited = [], [os.getpid()]
    while unvisited:
        children = _children(unvisited.pop())
        descendants += children
        unvisited += children
    return descendants


def _children(number: int) -> list[int]:
    """Return the children of all threads of a process; by looking at every process where the kernel keeps no such
    list."""
    try:
        threads = os.listdir(f"/proc/{number}/task")
    except OSError:
        return []
    children: list[int] = []
    for thread in threads:
        try:
            with open(f"/proc/{number}/task/{thread}/children", "rb") as file:
                children += map(int, file.read().split())
        except FileNotFoundError:
            if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
                return _children_of_all(number)
        except OSError:
            continue
    return children


def _children_of_all(number: int) -> list[int]:
    children = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                if int(file.read().rpartition(b")")[2].split()[1]) == number:
                    children.append(int(name))
        except (OSError, IndexError):
            continue
    return children


def _private(number: int) -> int:
    """Return the bytes of memory that the process shares with no file."""
    try:
        with open(f"/proc/{number}/statm", "rb") as file:
            fields = file.read().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * _PAGE if len(fields) > 2 else 0


def _proportional(number: int) -> int:
    try:
        with open(f"/proc/{number}/smaps_rollup", "rb") as file:
            lines = dict(line.split(b":", 1) for line in file if b":" in line)
    except OSError:
        return _private(number)
    return int(lines[b"Pss_Anon"].split()[0]) * 1024 if b"Pss_Anon" in lines else _private(number)


def _kill_all(child: int) -> None:
    for _ in range(200):
        for kill, number in [(os.killpg, child), *((os.kill, n) for n in _descendants())]:
            try:
                kill(number, signal.SIGKILL)
            except OSError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.02)


if __name__ == "__main__":
    main()
