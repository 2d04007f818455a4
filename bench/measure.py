"""Runs one command and measures its whole process tree.

    python measure.py RESULT.json LOG POSTMASTER_PID SECONDS ENGINE_PID [--pss] [--apart FOLDER] -- COMMAND...

ENGINE_PID: the process that the command hands its work to, 0 for none: it and its descendants are measured as well.
--pss: count a page that several processes share as a part of each (PSS) instead of once per process; the kernel walks
all pages for it, so that it is sampled less often.
--apart: processes whose program lies below FOLDER, and all that they start, are counted apart: `apart_cpu` are their
seconds, which `cpu` includes, and `own_peak_mb` is the highest sum of memory over all others.
RESULT.json: exit code; `wall` seconds from spawn to exit of the command; `cpu` seconds (user + system) of the command
and every descendant, orphans and unreaped ones included; `server_cpu` seconds of the PostgreSQL processes; `peak_mb`,
the highest sum of resident memory over the tree, sampled (without --pss, shared pages count once per process);
`busy_elsewhere`, the share of the machine's CPU time that went to neither: above 0.2 the wall time is not worth much.

It is a process of its own, so that what it reaps is this command's alone.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from apart import PARENT, REAPED_SYSTEM, REAPED_USER, STARTED, SYSTEM_TIME, USER_TIME, CpuShares

SAMPLE_SECONDS = 0.05
PSS_EVERY = 4
"""Samples from one sum of PSS to the next."""
ORPHAN_SECONDS = 120
PR_SET_CHILD_SUBREAPER = 36
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
RESIDENT = 21


def stat(pid: int | str) -> list[str] | None:
    """The fields of /proc/PID/stat after the command's name; None when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def processes() -> dict[int, list[str]]:
    found = {int(path.name): stat(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()}
    return {pid: fields for pid, fields in found.items() if fields}


def descendants(root: int, table: dict[int, list[str]]) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, fields in table.items():
        children.setdefault(int(fields[PARENT]), []).append(pid)
    found, todo = [], list(children.get(root, ()))
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, ())
    return found


def tree(root: int, table: dict[int, list[str]]) -> list[int]:
    return [root, *descendants(root, table)] if root in table else []


def tree_cpu(root: int) -> float:
    """CPU seconds of a process and its descendants, running or ended (each reaps its own)."""
    table = processes()
    fields = (USER_TIME, SYSTEM_TIME, REAPED_USER, REAPED_SYSTEM)
    return sum(int(table[pid][field]) for pid in tree(root, table) for field in fields) / TICK


def proportional(pid: int) -> int:
    """Bytes of the process, each page divided by how many processes share it; 0 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) * 1024


def machine_cpu() -> float:
    user, nice, system, _idle, _wait, irq, softirq, *_ = map(
        int, Path("/proc/stat").read_text().split("\n")[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / TICK


class Sampler(threading.Thread):
    """Watches the memory and CPU time of this process's descendants and of an engine's processes until stopped."""

    def __init__(self, engine: int, *, pss: bool, apart: Path | None = None) -> None:
        """Take the process of the engine, and the folder of the programs that are counted apart."""
        super().__init__(daemon=True)
        self.engine, self.pss = engine, pss
        self.shares = CpuShares(os.getpid(), apart) if apart else None
        self.peak, self.own_peak, self.looks = 0, 0, 0
        self.ticks: dict[tuple[int, str], int] = {}
        """Of a process that has ended as well: not every parent waits for what it has started."""
        self.before: dict[tuple[int, str], int] = {}
        self.look()
        self.before = dict(self.ticks)
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(SAMPLE_SECONDS):
            self.look()

    def look(self) -> None:
        table = processes()
        below = descendants(os.getpid(), table)
        found = [*below, *tree(self.engine, table)]
        apart = self.shares.add_sample(table, below) if self.shares else set[int]()
        if not self.pss or self.looks % PSS_EVERY == 0:
            sizes = {pid: proportional(pid) if self.pss else int(table[pid][RESIDENT]) * PAGE for pid in found}
            self.peak = max(self.peak, sum(sizes.values()))
            self.own_peak = max(self.own_peak, sum(size for pid, size in sizes.items() if pid not in apart))
        self.looks += 1
        for pid in found:
            fields = table[pid]
            self.ticks[pid, fields[STARTED]] = int(fields[USER_TIME]) + int(fields[SYSTEM_TIME])

    def stop(self) -> tuple[int, float]:
        """Peak bytes, and CPU seconds as far as they were seen: also those of processes that nobody waited for."""
        self.stopping.set()
        self.join()
        self.look()
        return self.peak, sum(ticks - self.before.get(process, 0) for process, ticks in self.ticks.items()) / TICK


def reap_orphans() -> tuple[float, int]:
    """CPU seconds of processes that outlived the command, and how many had to be ended."""
    cpu, deadline = 0.0, time.monotonic() + ORPHAN_SECONDS
    while True:
        try:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return cpu, 0
        if pid:
            cpu += usage.ru_utime + usage.ru_stime
        elif time.monotonic() > deadline:
            return cpu, end_descendants()
        else:
            time.sleep(0.02)


def end_descendants() -> int:
    left = descendants(os.getpid(), processes())
    for pid in left:
        os.kill(pid, 9)
    return len(left)


def wait(process: subprocess.Popen[bytes], seconds: float) -> tuple[int, float]:
    """Exit code and CPU seconds of the command and the children that it has reaped itself."""
    late = threading.Timer(seconds, process.kill)
    late.start()
    _, status, usage = os.wait4(process.pid, 0)
    late.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime


def measure(
    command: Sequence[str],
    log: Path,
    postmaster: int,
    seconds: float,
    engine: int,
    *,
    pss: bool,
    apart: Path | None = None,
) -> dict[str, float]:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    sampler = Sampler(engine, pss=pss, apart=apart)
    server_before, machine_before = tree_cpu(postmaster), machine_cpu()
    sampler.start()
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    code, cpu = wait(process, seconds)
    wall = time.monotonic() - started
    machine = machine_cpu() - machine_before
    peak, seen_cpu = sampler.stop()
    orphan_cpu, killed = reap_orphans()
    cpu = max(cpu + orphan_cpu, seen_cpu)
    server = tree_cpu(postmaster) - server_before
    elsewhere = max(0.0, (machine - cpu - server) / wall / (os.cpu_count() or 1))
    shares: dict[str, float] = {}
    if sampler.shares is not None:
        shares = {"apart_cpu": round(sampler.shares.total_apart(round(cpu * TICK)) / TICK, 3)}
        shares["own_peak_mb"] = round(sampler.own_peak / 2**20)
    return {
        "exit_code": code,
        "wall": round(wall, 3),
        "cpu": round(cpu, 3),
        "server_cpu": round(server, 3),
        "peak_mb": round(peak / 2**20),
        "busy_elsewhere": round(elsewhere, 3),
        "killed": killed,
        **shares,
    }


def main(arguments: Sequence[str]) -> None:
    at = arguments.index("--")
    result, log, postmaster, seconds, engine, *flags = arguments[:at]
    pss, flags = flags[:1] == ["--pss"], flags[flags[:1] == ["--pss"] :]
    apart = Path(flags[1]) if flags else None
    assert flags in ([], ["--apart", str(apart)])
    assert apart is None or not int(engine), "an engine is no descendant"
    command = arguments[at + 1 :]
    measured = measure(command, Path(log), int(postmaster), float(seconds), int(engine), pss=pss, apart=apart)
    Path(result).write_text(json.dumps(measured))


if __name__ == "__main__":
    main(sys.argv[1:])
