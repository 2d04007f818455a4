"""Servers that tests start from Debian's packages (see scripts/setup_test.sh), as a user without rights."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parents[1] / ".cache" / "programs"


def program(name: str) -> str:
    """Its path; skips the test where it is missing, but not in CI."""
    folders = [
        PROGRAMS / "usr" / "sbin",
        PROGRAMS / "usr" / "bin",
        PROGRAMS / "hadolint" / "bin",
        "/usr/sbin",
        "/usr/bin",
    ]
    found = shutil.which(name, path=":".join([os.environ.get("PATH", ""), *map(str, folders)]))
    if found:
        return found
    reason = f"{name} is not there: run scripts/setup_test.sh"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def environment() -> dict[str, str]:
    libraries = [PROGRAMS / part / "lib" / "x86_64-linux-gnu" for part in ("usr", ".")]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, libraries))}


def unprivileged() -> Mapping[str, Any]:
    """Keyword arguments of subprocess that give up root's rights; none for any other user."""
    if os.geteuid():
        return {}
    return {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []}


def user() -> str:
    """Under whose name `serving` runs programs."""
    return pwd.getpwuid(os.geteuid()).pw_name if os.geteuid() else "nobody"


def hand_over(folder: Path) -> None:
    """Makes the folder and all in it that user's."""
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            shutil.chown(path, "nobody", pwd.getpwnam("nobody").pw_gid)


@contextmanager
def serving(command: list[str], port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program while it listens on `port`; ended afterwards."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment(),
            cwd="/",
            **unprivileged(),
        )
    try:
        _wait(child, port, log)
        yield child
    finally:
        child.kill()
        child.wait()


def _wait(child: subprocess.Popen[bytes], port: int, log: Path) -> None:
    ends = time.monotonic() + 300
    while time.monotonic() < ends:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=30).close()
        except OSError:
            if child.poll() is not None:
                break
            time.sleep(0.05)
    raise RuntimeError(log.read_text()[-2000:])
