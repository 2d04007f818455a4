"""A project whose source has changed, with models that read its tables, and a worker for what pages queue."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import instep
from instep.bootstrap import App, open_project
from instep.model import Review
from instep.worker.worker import JobWorker, WorkerLimits

PROJECT = """\
engine: local
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg, warehouse: lake}}
policies: {strict: {preset: approve, removed: drop}}
connections:
  shop: {source: db, destination: lake, policy: strict, tags: [europe], salt: "${env:SALT}", downstream: {sql: [views]}}
"""
VIEWS = """\
create view call_list as select name, phone from shop.customer;
create view contacts as select upper(phone) as phone from call_list;
create view cities as select city from shop.customer;
"""


def sql(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        for one in statements:
            connection.execute(one)
        connection.commit()


def build(folder: Path) -> None:
    """Sync a table, then remove, add and rename columns of it, and detect that."""
    folder.joinpath("instep.yml").write_text(PROJECT)
    folder.joinpath(".env").write_text(f"SALT={'s' * 40}\n")
    folder.joinpath(".env").chmod(0o600)
    folder.joinpath("views").mkdir()
    folder.joinpath("views", "models.sql").write_text(VIEWS)
    sql(
        folder,
        "create table customer (id integer primary key, name text, phone text, city text, note text)",
        "insert into customer select 1, 'ann', '+49 1', 'Bonn', 'a' union select 2, 'bob', '+49 2', 'Rome', 'b'",
        "create table audit (id integer primary key, what text)",
    )
    with instep.open(folder) as project:
        project.connection("shop").sync()
        sql(
            folder,
            "alter table customer drop column phone",
            "alter table customer add column score real",
            "alter table customer rename column note to remark",
        )
        project.connection("shop").detect()


def change(app: App, column: str, kind: str) -> Review:
    """Return the change of a column."""
    [found] = [one for one in app.store.reviews.find("shop") if (one.column, one.kind) == (column, kind)]
    return found


def work(app: App) -> None:
    """Do what waits in the queue, as a worker does."""
    JobWorker(partial(open_project, app.project.root), WorkerLimits(lanes=1, grace=5, poll=0.1)).run(drain=True)
