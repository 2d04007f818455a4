"""A server's memory does not grow with the requests that it has answered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from server_process import WAIT, Running, running
from test_api_speed import kept

from instep.bootstrap import open_server

NAMES = [f"shop{n:03}" for n in range(400)]
WARM, REQUESTS, CLIENTS = 4_000, 20_000, 4
GROWTH = 16
"""MiB: 0.8 KiB a request. A leak of one small object for each request would be more."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    tmp_path.joinpath("instep.yml").write_text("destinations: {lake: {type: iceberg}}\n")
    with open_server(tmp_path, insecure_dev=True) as app:
        kept(app.store, NAMES)
    with running(tmp_path, "--rate", "1000000") as found:
        yield found


def requests(first: int, count: int, *, long: bool = False) -> Iterator[tuple[str, str, Any]]:
    """Reads and writes of both routers, each with another connection, path or key than the one before; one in eight
    takes `long`, or all do."""
    for number in range(first, first + count):
        name = NAMES[number % len(NAMES)]
        few = (
            ("GET", "/api/v1/connections?limit=3", None), ("GET", "/v1/connections?limit=3", None),
            ("GET", f"/v1/connections/{name}", None), ("GET", "/api/v1/status?limit=5", None),
            ("GET", "/metrics", None), ("GET", "/api/v1/openapi.json", None),
            ("GET", f"/api/v1/connections/{name}/policy", None),
            ("POST", f"/api/v1/connections/{name}/pause", {"reason": f"soak {number}"}),
            ("POST", f"/api/v1/connections/{name}/resume", {}),
            ("PATCH", f"/v1/connections/{name}", {f"unknown{number}": 1, "paused": False}),
        )  # fmt: skip
        many = (
            ("GET", f"/api/v1/connections/{name}", None), ("GET", f"/nothing/{number}", None), ("GET", "/readyz", None),
            ("GET", "/api/v1/events?limit=3", None), ("GET", "/v1/groups", None), ("GET", "/healthz", None),
            ("POST", f"/api/v1/connections/none{number}/pause", {"reason": "x"}),
        )  # fmt: skip
        often = not long and number % 8 < len(many)
        yield many[number % 8] if often else few[(number if long else number // 8) % len(few)]


def load(server: Running, first: int, count: int, *, long: bool = False) -> None:
    def part(at: int) -> None:
        with httpx2.Client(base_url=server.base, headers=dict(server.client.headers), timeout=WAIT) as client:
            for method, path, body in requests(first + at * (count // CLIENTS), count // CLIENTS, long=long):
                answer = client.request(method, path, **({} if body is None else {"json": body}))
                assert answer.status_code < 500, (method, path, answer.text)

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(part, range(CLIENTS)))


def resident(server: Running) -> int:
    """MiB of the server's process."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) // 1024


@pytest.mark.drawn(5)
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_memory_does_not_grow_with_requests(server: Running) -> None:
    load(server, 0, WARM, long=True)
    before = resident(server)
    load(server, WARM, REQUESTS)
    assert resident(server) - before < GROWTH, (before, resident(server))
