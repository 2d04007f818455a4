"""`instep server` as a process of its own on a free port of loopback, and a client with its first key."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

WAIT = 300.0
CANARY = "canary-9d41"


@dataclass
class Running:
    """`base` is the address without a path; `log` the file of what it says."""

    process: subprocess.Popen[bytes]
    base: str
    secret: str
    log: Path
    client: httpx2.Client = field(init=False)

    def __post_init__(self) -> None:
        headers = {"Authorization": f"Bearer {self.secret}", "Accept": "application/json;version=2"}
        self.client = httpx2.Client(base_url=self.base, headers=headers, timeout=WAIT)

    def ask(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        """The whole body of the answer of the compatible API, whose status is checked."""
        answer = self.client.request(method, f"/v1{path}", **({"json": body} if body is not None else {}))
        assert answer.status_code == status, (method, path, answer.status_code, answer.text, self.log.read_text())
        return answer.json()

    def data(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        return self.ask(method, path, body, status)["data"]

    def sync(self, *names: str) -> None:
        """Syncs connections, all at a time, until each has ended well."""
        for name in names:
            self.ask("POST", f"/connections/{name}/sync", {})
        for name in names:
            self.idle(name)
            found = self.data("GET", f"/connections/{name}")
            assert found["succeeded_at"] > (found["failed_at"] or ""), self.log.read_text()

    def idle(self, name: str) -> None:
        """Waits for the end of a connection's sync."""
        end = time.monotonic() + WAIT
        while self.data("GET", f"/connections/{name}")["status"]["sync_state"] in ("syncing", "rescheduled"):
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.1)

    def children(self) -> list[Path]:
        """Its processes, as folders of /proc."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == self.process.pid:
                    found.append(entry)
        return found

    def stop(self) -> int:
        """Ends it as a service is ended."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT)


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Running]:
    command = [sys.executable, "-m", "instep.cli.main", "--project", str(folder), "server", "--port", "0"]
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen([*command, "--insecure-dev", *options], stdout=out, stderr=out, env=environment())
    try:
        end = time.monotonic() + WAIT
        while (found := re.search(r"listening on (http://[\d.:]+)", said := log.read_text())) is None:
            assert time.monotonic() < end, said
            assert process.poll() is None, said
            time.sleep(0.05)
        key = folder / ".instep" / "admin.key"
        made = Running(process, found[1], key.read_text().strip(), log)
        key.unlink()
        with made.client:
            yield made
    finally:
        process.kill()
        process.wait(WAIT)


def environment() -> dict[str, str]:
    return {**os.environ, "NO_COLOR": "1"}
