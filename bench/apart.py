"""Tells the CPU time of some processes of a tree from that of all others, by samples of /proc.

A process that ends between two samples is not lost: whoever waits for it has its CPU time among that of its children,
and what no sample has shown of that belongs to those that have ended since the sample before. An orphan whose parent no
sample has shown above it is none of those apart.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PARENT, USER_TIME, SYSTEM_TIME, REAPED_USER, REAPED_SYSTEM, STARTED = 1, 11, 12, 13, 14, 19
_WORDS = 2
"""The words of a command line that may be its program: an interpreter and what it runs."""


@dataclass
class SampledProcess:
    """A process as the last sample has shown it; CPU time is in ticks."""

    parent: int
    is_apart: bool
    own: int = 0
    reaped: int = 0
    """CPU time of the children that it has waited for, and of theirs."""


class CpuShares:
    """CPU ticks of the processes whose program lies below `folder`, and of all that they start."""

    def __init__(self, root: int, folder: Path) -> None:
        """Take the process whose descendants are sampled; it is part of neither share."""
        self._root, self._prefix = root, f"{folder}{os.sep}".encode()
        self._running: dict[tuple[int, str], SampledProcess] = {}
        self._apart = 0
        self._reaped_by_root = 0

    def add_sample(self, table: Mapping[int, Sequence[str]], pids: Iterable[int]) -> set[int]:
        """Take the fields of /proc/PID/stat of these processes, parents before their children; return those apart."""
        before, self._running = self._running, {}
        found: set[int] = set()
        for pid in pids:
            fields = table[pid]
            key, parent = (pid, fields[STARTED]), int(fields[PARENT])
            known = before.get(key)
            is_apart = (known is not None and known.is_apart) or parent in found or self._is_program_apart(pid)
            own, reaped = (
                int(fields[a]) + int(fields[b]) for a, b in ((USER_TIME, SYSTEM_TIME), (REAPED_USER, REAPED_SYSTEM))
            )
            self._running[key] = SampledProcess(parent, is_apart, own, reaped)
            if is_apart:
                found.add(pid)
        root = table[self._root]
        self._attribute(before, int(root[REAPED_USER]) + int(root[REAPED_SYSTEM]))
        return found

    def total_apart(self, total: int) -> int:
        """Return the ticks apart, once all processes have ended with so many ticks in all."""
        before, self._running = self._running, {}
        self._attribute(before, total)
        return self._apart

    def _is_program_apart(self, pid: int) -> bool:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return any(word.startswith(self._prefix) for word in words[:_WORDS])

    def _attribute(self, before: Mapping[tuple[int, str], SampledProcess], reaped_by_root: int) -> None:
        """Count what the processes that have ended since `before` have used, as far as they were seen, and what was not
        seen of them by the growth of the process above them that runs on."""
        ended = {key[0]: one for key, one in before.items() if key not in self._running}
        below: dict[int, list[SampledProcess]] = {}
        for one in ended.values():
            parent = one.parent
            while parent in ended:
                parent = ended[parent].parent
            below.setdefault(parent, []).append(one)
            self._apart += one.own if one.is_apart else 0
        waiting = {key[0]: (one, before[key].reaped if key in before else 0) for key, one in self._running.items()}
        grown = [(pid, one.reaped - had, one.is_apart) for pid, (one, had) in waiting.items()]
        grown.append((self._root, reaped_by_root - self._reaped_by_root, False))
        self._reaped_by_root = reaped_by_root
        for pid, ticks, is_apart in grown:
            gone = below.get(pid, [])
            unseen = max(ticks - sum(one.own + one.reaped for one in gone), 0)
            apart = sum(one.is_apart for one in gone) / len(gone) if gone else 0.0
            self._apart += round(unseen * (1.0 if is_apart else apart))
