"""A project with all that pages show: synced tables, changes that wait, quarantined values, jobs, keys."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import instep
from instep.bootstrap import App, open_project
from instep.control import queue
from instep.control.resources import api_keys
from instep.worker.worker import JobWorker, WorkerLimits

PROJECT = """\
engine: local
sources:
  shop_db: {type: sqlite, path: shop.db}
  crm_db: {type: sqlite, path: crm.db}
destinations:
  lake: {type: iceberg, warehouse: lake}
policies:
  strict: {preset: approve, rules: [{on: [column.added], match: ["*.note"], decide: apply}]}
channels:
  team: {type: webhook, url: "${env:HOOK}", secret: "${env:HOOK_SECRET}"}
notify:
  - {on: [review_needed], to: team}
connections:
  shop: {source: shop_db, destination: lake, policy: strict, tags: [europe], schedule: {sync: "0 3 * * *"}}
  crm: {source: crm_db, destination: lake, tags: [america]}
"""


@dataclass(frozen=True)
class Words:
    """Names and values of a source, which may be hostile."""

    column: str = "colour"
    table: str = "item"
    value: str = "pen"
    type: str = "text"


def _run(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for one in statements:
            connection.execute(one)
        connection.commit()


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _value(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def build(folder: Path, words: Words = Words()) -> None:
    """Make the project in a folder: two syncs of each connection, then changes that wait."""
    folder.joinpath("instep.yml").write_text(PROJECT)
    folder.joinpath(".env").write_text(
        "HOOK=http://127.0.0.1:9/hook\nHOOK_SECRET=whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0\n"
    )
    folder.joinpath(".env").chmod(0o600)
    table, value = _name(words.table), _value(words.value)
    for name in ("shop", "crm"):
        _run(
            folder / f"{name}.db",
            f"create table {table} (id integer primary key, name text, price integer, old text)",
            f"insert into {table} values (1, {value}, 10, 'a'), (2, 'ink', 20, 'b')",  # noqa: S608 - a test's own
        )
    with instep.open(folder) as project:
        for name in ("shop", "crm"):
            project.connection(name).sync()
            column = _name(words.column)
            _run(
                folder / f"{name}.db",
                f"alter table {table} add column {column} {_name(words.type)}",
                f"alter table {table} drop column old",
                f"insert into {table} values (3, {value}, {_value('not a number')}, {value})",  # noqa: S608
            )
            project.connection(name).sync()
            project.connection(name).detect()
    with open_project(folder) as app:
        _keys_and_jobs(app)


def _keys_and_jobs(app: App) -> None:
    api_keys.create(app.store, "ci", "operator", "test")
    for kind in ("plan", "detect"):
        queue.ask(app.store, "shop", kind, "ada (k-1)", {})
    drain(app)


def drain(app: App) -> None:
    """Let a worker do all jobs that wait."""
    JobWorker(partial(open_project, app.project.root), WorkerLimits(lanes=1, grace=5, poll=0.1)).run(drain=True)
