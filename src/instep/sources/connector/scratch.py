"""The folder of a task, with raw rows in it: gone when the task ends, however it ends.

A process of its own waits for that, since a task that is killed removes nothing. Where it was killed as well (a machine
that stops), the next task there removes the folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NAME = "instep-connector-task-"
_SWEEP = """
import os, shutil, sys, time
folder = sys.stdin.buffer.read()
for _ in range(600):
    shutil.rmtree(folder, ignore_errors=True)
    if not os.path.lexists(folder):
        break
    time.sleep(0.1)
"""
"""Its input ends with the task; the connector may write for a moment longer."""


@contextmanager
def task_scratch() -> Iterator[Path]:
    """A folder that is gone afterwards, below the system's one for such. It holds a lock while its task lives."""
    for left in Path(tempfile.gettempdir()).glob(f"{_NAME}*"):
        with suppress(OSError), _locked(left / "lock"):
            shutil.rmtree(left, ignore_errors=True)
    with _sweeper() as told, tempfile.TemporaryDirectory(prefix=_NAME) as folder:
        told(folder)
        draft = Path(folder, "lock.new")
        draft.touch()
        with _locked(draft):
            draft.rename(Path(folder, "lock"))
            yield Path(folder)


@contextmanager
def _sweeper() -> Iterator[Callable[[str], None]]:
    """Takes the folder that it removes once this process has ended. In a session of its own: what ends this process by
    its group does not end that one."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _SWEEP], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, cwd="/", start_new_session=True, env={"PATH": os.defpath}, bufsize=0,
    ) as process:  # fmt: skip
        pipe = process.stdin
        assert pipe is not None

        def told(folder: str) -> None:
            pipe.write(os.fsencode(folder))

        yield told


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """OSError if it is not there, or somebody else's."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
