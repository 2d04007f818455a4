"""`instep server` as a process of its own; keys and the audit log from the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from cli_world import Shop
from sqlalchemy import create_engine, text

from instep.cli.commands.serve.server import check_reach, listening
from instep.control.resources.api_keys import authenticate
from instep.errors import Blocked, InstepError
from instep.loopback import is_loopback
from instep.server import protocol

WAIT = 300.0


@dataclass
class Served:
    """A server that runs; `said` is what it printed before it listened."""

    process: subprocess.Popen[str]
    base: str
    said: str

    def get(self, path: str, secret: str) -> tuple[int, Any]:
        request = urllib.request.Request(self.base + path, headers={"Authorization": f"Bearer {secret}"})
        try:
            with urllib.request.urlopen(request, timeout=WAIT) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    """`instep server` on a free port of this machine; ended as by Ctrl-C, which is no failure."""
    command = [
        sys.executable,
        "-m",
        "instep.cli.main",
        "--project",
        str(folder),
        "server",
        "--port",
        "0",
        "--insecure-dev",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        assert process.stderr is not None
        said: list[str] = []
        end = time.monotonic() + WAIT
        while (found := re.search(r"http://[\d.:]+", "".join(said))) is None:
            assert time.monotonic() < end
            line = process.stderr.readline()
            assert line, "".join(said)
            said.append(line)
        yield Served(process, found[0], "".join(said))
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(WAIT) in (0, 130), rest
        assert "Traceback" not in rest
    finally:
        process.kill()
        process.wait(WAIT)
        assert process.stderr is not None
        process.stderr.close()


def test_the_first_start_hands_out_a_key_and_the_second_does_not(shop: Shop) -> None:
    """By a file, as there is no terminal: what a service writes to its streams is kept as a log."""
    file = shop.folder / ".instep" / "admin.key"
    with served(shop.folder) as first:
        assert str(file) in first.said
        assert "instep_sk_" not in first.said
        assert file.stat().st_mode & 0o777 == 0o600
        secret = file.read_text().strip()
        file.unlink()
        assert first.get("/api/v1/me", secret)[1]["role"] == "admin"
        assert first.get("/api/v1/me", secret + "x")[0] == 401
        assert [c["name"] for c in first.get("/api/v1/connections", secret)[1]["items"]] == ["shop"]
        shop.ok("pause", "shop", "--reason", "from beside")
        assert first.get("/api/v1/connections/shop", secret)[1]["status"] == "paused"
    with served(shop.folder) as second:
        assert "admin API key" not in second.said
        assert not file.exists()
        assert second.get("/api/v1/me", secret)[0] == 200
    files = [file for file in shop.folder.rglob("*") if file.is_file()]
    assert [file.name for file in files if secret[14:].encode() in file.read_bytes()] == []


def test_a_terminal_shows_the_first_key(shop: Shop) -> None:
    terminal, end = os.openpty()
    command = [sys.executable, "-m", "instep.cli.main", "--project", str(shop.folder), "server", "--port", "0"]
    process = subprocess.Popen([*command, "--insecure-dev"], stderr=end, stdout=subprocess.DEVNULL)
    os.close(end)
    try:
        said = b""
        while b"listening on" not in said:
            said += os.read(terminal, 4096)
        assert re.search(rb"instep_sk_[\w-]{43}", said)
        assert not (shop.folder / ".instep" / "admin.key").exists()
    finally:
        process.kill()
        process.wait(WAIT)
        os.close(terminal)


def test_connections_that_send_nothing_or_slowly_are_closed(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the protocol that the server runs with, whose limit is shortened here."""
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.5)
    config = uvicorn.Config(_plain, http=protocol.TimedProtocol, log_config=None)
    with listening("127.0.0.1", 0) as taken:
        server, port = uvicorn.Server(config), taken.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]}, daemon=True)
        thread.start()
        try:
            dribbling = socket.create_connection(("127.0.0.1", port), WAIT)
            for text in (b"", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET"):
                with socket.create_connection(("127.0.0.1", port), WAIT) as client:
                    client.sendall(text)
                    while client.recv(4096):
                        pass  # until it is closed from there, within WAIT
            with dribbling, pytest.raises(OSError, match=r"."):  # noqa: PT012
                while True:
                    dribbling.sendall(b"G")
                    time.sleep(0.05)
        finally:
            server.should_exit = True
            thread.join(WAIT)


async def _plain(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})


def test_the_server_runs_with_the_protocol_that_times_out(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[uvicorn.Config] = []

    class Noted(uvicorn.Server):
        def run(self, sockets: list[socket.socket] | None = None) -> None:
            seen.append(self.config)

    monkeypatch.setattr(uvicorn, "Server", Noted)
    shop.ok("server", "--port", "0", "--insecure-dev")
    assert seen[0].http is protocol.TimedProtocol
    assert seen[0].timeout_keep_alive <= protocol.HEAD_SECONDS


def test_a_port_that_is_taken(shop: Shop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = shop.run("server", "--port", str(port), "--insecure-dev")
    assert said.code == 1
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use\n" in said.err
    assert f"--port {port + 1}" in said.err
    assert "instep_sk_" not in said.err


def test_without_a_master_key_nothing_is_served(shop: Shop) -> None:
    said = shop.run("server", "--port", "0")
    assert said.code != 0
    assert "instep secrets new-key" in said.err
    assert "listening" not in said.err


def test_it_listens_on_this_machine_only_unless_it_is_told() -> None:
    for host in ("127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"):
        check_reach(host, "", insecure_dev=False)
    for host in ("0.0.0.0", "::", "10.0.0.7", "example.org"):
        assert not is_loopback(host)
        with pytest.raises(Blocked, match="unencrypted"):
            check_reach(host, "", insecure_dev=False)
        check_reach(host, "10.0.0.1", insecure_dev=False)
        check_reach(host, "", insecure_dev=True)
    for proxies in ("10.0.0.1, 10.1.0.0/16", "fd00::7"):
        check_reach("0.0.0.0", proxies, insecure_dev=False)
    for proxy in ("*", "0.0.0.0/0", "::/0", "proxy.example.org", "10.0.0.1/8", "10.0.0.1 10.0.0.2"):
        with pytest.raises(Blocked, match="is not the address or the network of a proxy"):
            check_reach("0.0.0.0", f"10.0.0.1,{proxy}", insecure_dev=False)
    with pytest.raises(InstepError, match="cannot listen"):
        listening("203.0.113.7", 0)
    with listening("127.0.0.1", 0) as found:
        assert found.getsockname()[1] > 0


class TestKeys:
    def test_the_life_of_a_key(self, shop: Shop) -> None:
        made = shop.json("keys", "create", "ci", "--role", "viewer", "--group", "eu", "--days", "30")
        key, old = made["key"]["id"], made["secret"]
        assert made["key"]["groups"] == ["eu"]
        new = shop.json("keys", "rotate", key, "--overlap-hours", "1")["secret"]
        with shop.store() as store:
            assert all(authenticate(store, secret) for secret in (old, new))
        assert "two secrets already" in shop.run("keys", "rotate", key).err
        shop.ok("keys", "revoke", key, "--yes")
        with shop.store() as store:
            assert not any(authenticate(store, secret) for secret in (old, new))
        [listed] = shop.json("keys", "list")["keys"]
        assert listed["ended_by"]
        assert "digest" not in str(listed)
        out = shop.ok("keys", "list").out
        assert "revoked" in out
        assert old not in out
        assert [e["action"] for e in shop.json("audit", "list")["entries"]] == [
            "key.revoke",
            "key.rotate",
            "key.create",
        ]

    def test_a_key_goes_by_its_name(self, shop: Shop) -> None:
        first = shop.json("keys", "create", "ci", "--role", "viewer")["key"]["id"]
        assert shop.json("keys", "rotate", "ci")["key"]["id"] == first
        assert shop.json("keys", "link", "ci")["key"] == first
        assert shop.json("keys", "revoke", "ci", "--yes")["id"] == first
        second = shop.json("keys", "create", "ci", "--role", "viewer")["key"]["id"]
        assert shop.json("keys", "rotate", "ci")["key"]["id"] == second  # not the revoked one of that name

    def test_a_secret_is_alone_on_its_line(self, shop: Shop) -> None:
        said = shop.ok("keys", "create", "ci", "--role", "admin")
        assert re.fullmatch(r"instep_sk_[\w-]{43}", said.out.splitlines()[-1])

    @pytest.mark.parametrize(
        ("words", "why"),
        [
            (("create", "ci", "--role", "root"), "role is 'root', not one of viewer, operator"),
            (("create", "-", "--role", "viewer"), "cannot be the name"),
            (("rotate", "k-1"), "no API key is called 'k-1'"),
            (("revoke", "k-1", "--yes"), "no API key is called 'k-1'"),
            (("rotate", "k-0123456789ab"), "no API key 'k-0123456789ab'"),
            (("password", "nobody"), "no API key is called 'nobody'"),
            (("link", "nobody"), "no API key is called 'nobody'"),
        ],
    )
    def test_what_is_refused(self, shop: Shop, words: tuple[str, ...], why: str) -> None:
        said = shop.run("keys", *words)
        assert said.code == 1
        assert why in said.err

    def test_revoking_is_asked(self, shop: Shop) -> None:
        key = shop.json("keys", "create", "ci", "--role", "viewer")["key"]["id"]
        assert shop.run("keys", "revoke", key).code == 3
        assert shop.json("keys", "list")["keys"][0]["ended"] is None


def test_a_log_that_was_changed_is_told(shop: Shop) -> None:
    assert shop.json("audit", "check")["entries"] == 0
    for name in "abc":
        shop.ok("keys", "create", name, "--role", "viewer")
    head = shop.json("audit", "check")["head"]
    assert "3 entries are intact" in shop.ok("audit", "check", "--head", head).out
    engine = create_engine(f"sqlite:///{shop.folder / '.instep' / 'state.db'}")
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM audit WHERE number = 3"))
    assert shop.ok("audit", "check").code == 0
    assert "were removed" in shop.run("audit", "check", "--head", head).out
    with engine.begin() as connection:
        connection.execute(text("UPDATE audit SET actor = 'eve' WHERE number = 1"))
    engine.dispose()
    said = shop.run("audit", "check")
    assert said.code == 1
    assert "entry 1 was changed after it was written" in said.out


def test_an_answer_does_not_wait_for_an_acknowledgement() -> None:
    with listening("127.0.0.1", 0) as taken, socket.create_connection(taken.getsockname()):
        connection, _ = taken.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
