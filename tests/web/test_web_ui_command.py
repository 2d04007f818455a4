"""`instep ui` as a person uses it: a process that prints a link, does what the page asks for, and ends at Ctrl-C."""

from __future__ import annotations

import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest

from instep.bootstrap import open_project
from instep.control.resources import sign_in
from instep.server.web.visit import COOKIE
from instep.store.engine.keyring import FILE

pytestmark = pytest.mark.server
WAIT = 300.0
PROJECT = """\
engine: local
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg, warehouse: lake}}
connections: {shop: {source: db, destination: lake}}
"""


@contextmanager
def opened(folder: Path, *options: str, log: Path | None = None) -> Iterator[tuple[httpx2.Client, str]]:
    """Run `instep ui` in a folder until the end of the block: a client of its page, and the path of the link."""
    command = [sys.executable, "-m", "instep.cli.main", "--project", str(folder), "ui", *(options or ["--no-browser"])]
    log = log or folder / "ui.log"
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            deadline = time.monotonic() + WAIT
            while (found := re.search(r"(http://127\.0\.0\.1:\d+)(/sign-in/once/\S+)", log.read_text())) is None:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            with httpx2.Client(base_url=found[1], timeout=WAIT, follow_redirects=True) as client:
                yield client, found[2]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(WAIT)
    assert process.returncode == 0, log.read_text()


def test_it_opens_the_page_without_an_account_and_works(tmp_path: Path) -> None:
    tmp_path.joinpath("instep.yml").write_text(PROJECT)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("create table item (id integer primary key, name text)")
    with opened(tmp_path) as (client, link):
        assert "Changes" in client.post(link).text
        assert client.post(link).status_code == 401
        text = client.get("/do/detect?connection=shop").text
        token = re.search(r'name="form_token" value="(\w+)"', text)
        assert token is not None
        form = {"form_token": token[1], "connection": "shop", "button": "do"}
        job = client.post("/do/detect", data=form)
        assert job.url.path.startswith("/jobs/")
        deadline = time.monotonic() + WAIT
        while "done" not in client.get(job.url.path).text:
            assert time.monotonic() < deadline, client.get(job.url.path).text
            time.sleep(0.2)
        assert client.get("/changes").status_code == 200
        keys = client.get("/settings/keys").text
        assert "session key of <code>instep ui</code>, valid until the command ends" in keys
        assert "expired" not in keys
        cookie = client.cookies[f"{COOKIE}_{client.get('/changes').url.port}"]
    with open_project(tmp_path) as app:
        assert sign_in.session_of(app.store, cookie) is None
        assert any("@local" in entry.actor for entry in app.store.audit.page(limit=20))


def test_two_at_once_do_not_sign_each_other_out(tmp_path: Path) -> None:
    """Both have the key of the person at this machine; the one that ends takes its own sessions and its link along."""
    first, second = tmp_path / "first.log", tmp_path / "second.log"
    tmp_path.joinpath("instep.yml").write_text(PROJECT)
    with opened(tmp_path, log=first) as (client, link):
        client.post(link)
        with opened(tmp_path, log=second) as (other, unused):
            assert other.base_url.port != client.base_url.port
        assert client.get("/changes").url.path == "/changes", "still signed in"
        assert client.post(unused).status_code == 401
        with opened(tmp_path, log=second) as (other, link):
            other.post(link)
            cookie = other.cookies[f"{COOKIE}_{other.base_url.port}"]
        assert client.get("/changes").url.path == "/changes", "still signed in"
    with open_project(tmp_path) as app:
        assert sign_in.session_of(app.store, cookie) is None


def test_an_empty_folder_gets_a_key_of_its_own(tmp_path: Path) -> None:
    with opened(tmp_path) as (client, link):
        assert "Changes" in client.post(link).text
        assert client.get("/setup").status_code == 200
    keys = tmp_path / FILE
    assert keys.stat().st_mode & 0o777 == 0o600
    assert keys.read_text().startswith("k1:")


def test_a_browser_is_not_started_with_the_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody on the machine sees the arguments of programs, and the link makes whoever opens it an admin."""
    seen, program = tmp_path / "seen", tmp_path / "browser"
    program.write_text(f'#!/bin/sh\nprintf %s "$*" > {seen}.new && mv {seen}.new {seen}\n')
    program.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(program))
    monkeypatch.setenv("DISPLAY", ":0")
    with opened(tmp_path, "--browser") as (_, link):
        deadline = time.monotonic() + WAIT
        while not seen.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        file = Path(seen.read_text().removeprefix("file://"))
        assert link.rpartition("/")[2] not in seen.read_text()
        assert link in file.read_text()
        assert file.stat().st_mode & 0o777 == 0o600
    assert not file.exists()
