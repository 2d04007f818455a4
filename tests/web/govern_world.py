"""A server over a project of SQLite and a lake, whose jobs are done in this process."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from web_world import WAIT, Site, served, site, tab

from instep.bootstrap import open_server
from instep.control.resources import sign_in
from instep.model import Job
from instep.worker.perform import perform

PROJECT = """\
engine: local
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg}}
policies: {strict: {preset: approve, rules: [{on: [column.added], match: "*.note", decide: apply}]}}
connections:
  eu: {source: db, destination: lake, tags: [europe], policy: strict}
  us: {source: db, destination: lake, namespace: america, tags: [america]}
shelves: [.]
"""


@contextmanager
def server_site(folder: Path, text: str = PROJECT) -> Iterator[Site]:
    """Open a server over a shop with two tables."""
    folder.joinpath("instep.yml").write_text(text)
    run_sql(
        folder,
        "create table item (id integer primary key, colour text)",
        "create table person (id integer primary key, email text)",
        "insert into item values (1, 'red'), (2, 'blue')",
    )
    with open_server(folder, insecure_dev=True) as app:
        yield site(app)


def send(page: Site, address: str, fields: Mapping[str, Any], role: str = "admin") -> Any:
    """Send a form as the page's own, whatever its fields are called."""
    data = {"form_token": sign_in.form_token(page.token(role)), **fields}
    return page.client(role).post(address, data=data)


def run_sql(folder: Path, *statements: str) -> None:
    """Change the shop."""
    with closing(sqlite3.connect(folder / "shop.db")) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def do_job(page: Site, *, refreshed: bool = True) -> Job:
    """Do the job that waits next, as a worker does."""
    if refreshed:
        page.app.refresh()
    job = page.store.jobs.claim("test")
    assert job is not None, "no job waits"
    ended = perform(page.app, job)
    return page.store.jobs.finish(job, "failed" if ended.error else "done", error=ended.error, result=ended.result)


def job_of(page: Site, connection: str, kind: str) -> Job:
    """Queue a job of a connection, and do it."""
    page.store.jobs.enqueue(connection, kind, why="a test")
    done = do_job(page)
    assert done.status == "done", done.error
    return done


def check_pages(page: Site, browser: Any, *paths: str, role: str = "admin") -> None:
    """Open pages in a browser in both themes; nothing may be wrong with them."""
    with served(page.app) as base:
        for theme in ("light", "dark"):
            with tab(browser, base, page.token(role), theme=theme) as opened:
                for path in paths:
                    shown = opened.open(path)
                    shown.wait_for_selector("h1", timeout=WAIT)
                    assert not opened.violations(), path
                    width = shown.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
                    assert width[0] <= width[1], f"{path} is cut off"
