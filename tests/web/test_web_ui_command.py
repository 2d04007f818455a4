"""`instep ui` as a person uses it: a process that prints a link, does what the page asks for, and ends at Ctrl-C."""

from __future__ import annotations

import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from instep.bootstrap import open_project

pytestmark = pytest.mark.server
WAIT = 300.0
PROJECT = """\
engine: local
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg, warehouse: lake}}
connections: {shop: {source: db, destination: lake}}
"""


def test_it_opens_the_page_without_an_account_and_works(tmp_path: Path) -> None:
    tmp_path.joinpath("instep.yml").write_text(PROJECT)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("create table item (id integer primary key, name text)")
    command = [sys.executable, "-m", "instep.cli.main", "--project", str(tmp_path), "ui", "--no-browser"]
    log = tmp_path / "ui.log"
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            deadline = time.monotonic() + WAIT
            while (found := re.search(r"(http://127\.0\.0\.1:\d+)(/sign-in/once/\S+)", log.read_text())) is None:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            base, link = found.groups()
            with httpx2.Client(base_url=base, timeout=WAIT, follow_redirects=True) as client:
                assert "Changes" in client.post(link).text
                assert client.post(link).status_code == 401
                text = client.get("/do/detect?connection=shop").text
                token = re.search(r'name="form_token" value="(\w+)"', text)
                assert token is not None
                form = {"form_token": token[1], "connection": "shop", "button": "do"}
                job = client.post("/do/detect", data=form)
                assert job.url.path.startswith("/jobs/")
                while "done" not in client.get(job.url.path).text:
                    assert time.monotonic() < deadline, client.get(job.url.path).text
                    time.sleep(0.2)
                assert client.get("/changes").status_code == 200
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(WAIT)
    assert process.returncode == 0, log.read_text()
    with open_project(tmp_path) as app:
        assert any("@local" in entry.actor for entry in app.store.audit.page(limit=20))
