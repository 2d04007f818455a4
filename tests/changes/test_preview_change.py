# ruff: noqa: S608 - names are the test's
"""A preview of a change: it tells what then really happens, and leaves everything as it was."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.bootstrap import open_project
from instep.control.reviews import answer
from instep.errors import Blocked, Conflict, InstepError, StalePlan
from instep.events import OperationRequested
from instep.operations.decide.preview_change import PreviewChangeRequest
from instep.operations.decide.publish_change import PublishChangeRequest
from instep.plans.preview_change import PreviewChange
from instep.plans.publish_change import PublishChange
from instep.store.store import Store
from instep.sync.schema_changes.evolve import preview
from lake import SPARK
from work_count import Work, counted

PROJECT = """\
engine: local
sources: {db: {type: sqlite, path: shop.db}}
destinations:
  lake: DESTINATION
policies: {strict: {preset: approve}}
connections: {shop: {source: db, destination: lake, policy: strict, downstream: {sql: [views]}}}
"""
ICEBERG = "{type: iceberg, warehouse: lake}"
VIEWS = {
    "names": "create view lake.names as select name from shop.item",
    "olds": "create view lake.olds as select old from shop.item",
    "prices": "create view lake.prices as select sum(price) as s from shop.item",
}
CHANGES = {
    "column.added": ["alter table item add column colour text default 'red'"],
    "column.removed": ["alter table item drop column old"],
    "type": [
        "alter table item rename to item_old",
        "create table item (id integer primary key, name text, price text, old text)",
        "insert into item select id, name, price, old from item_old",
        "drop table item_old",
    ],
}


def run(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        for one in statements:
            connection.execute(one)
        connection.commit()


def world(folder: Path, destination: str = ICEBERG, engine: str = "local") -> Any:
    """Return an open project with one synced table and three models."""
    text = PROJECT.replace("DESTINATION", destination).replace("engine: local", f"engine: {engine}")
    folder.joinpath("instep.yml").write_text(text)
    folder.joinpath("views").mkdir()
    for name, text in VIEWS.items():
        folder.joinpath("views", f"{name}.sql").write_text(text)
    run(
        folder,
        "create table item (id integer primary key, name text, price integer, old text)",
        "insert into item values (1, 'pen', 10, 'a'), (2, 'ink', 20, null), (3, 'nib', 30, 'c')",
    )
    opened = instep.open(folder)
    opened.connection("shop").sync()
    return opened


def files(folder: Path) -> dict[str, str]:
    """Return the digest of every file of the lake, and the rows of its catalog."""
    found = (one for one in (folder / "lake").rglob("*") if one.is_file() and not one.name.startswith("catalog.db"))
    with closing(sqlite3.connect(folder / "lake" / "catalog.db")) as catalog:
        rows = catalog.execute("select table_name, metadata_location from iceberg_tables").fetchall()
    return dict(rows) | {str(one): hashlib.sha256(one.read_bytes()).hexdigest() for one in found}


def waiting(project: Any) -> Any:
    """Detect, and return the change that a person has to answer."""
    project.connection("shop").detect()
    return project.connection("shop").changes()[0]


def assert_tables_are_as_shown(project: Any, shown: Any) -> None:
    """The rows, columns and filled values of the destination are those of the preview."""
    for table in shown.tables:
        answer = project.query(f"select * from {table.table}")
        assert table.rows_after == len(answer), table
        for column in table.columns:
            assert (column.name in answer.columns) is bool(column.after), column
            if column.filled is not None:
                counted = project.query(f"select count({column.name}) from {table.table}").rows[0][0]
                assert column.filled == counted, column


@pytest.mark.parametrize(
    ("kind", "engine"), [*((kind, "local") for kind in CHANGES), pytest.param("type", "spark", marks=SPARK)]
)
def test_it_tells_what_then_happens_and_leaves_all_as_it_was(tmp_path: Path, kind: str, engine: str) -> None:
    with world(tmp_path, engine=engine) as project:
        run(tmp_path, *CHANGES[kind])
        change, before = waiting(project), files(tmp_path)
        shown = project.connection("shop").preview_change(change)
        assert files(tmp_path) == before
        assert change.id in [one.id for one in project.connection("shop").changes()]
        assert shown.notes == ()

        project.approve(change)
        project.connection("shop").sync()
        assert_tables_are_as_shown(project, shown)


def test_it_says_which_models_stop_running_and_what_the_others_answer(tmp_path: Path) -> None:
    with world(tmp_path) as project:
        run(tmp_path, "create table later (id integer primary key, x text)", "insert into later values (1, 'a')")
        folder = tmp_path / "views"
        folder.joinpath("later.sql").write_text("create view lake.later_xs as select x from shop.later")
        folder.joinpath("odd.sql").write_text("create view lake.odd as select nothing from shop.item")
        run(tmp_path, *CHANGES["column.added"])
        folder.joinpath("colours.sql").write_text("create view lake.colours as select distinct colour from shop.item")
        project.connection("shop").detect()
        change = next(one for one in project.connection("shop").changes() if one.column == "colour")
        models = {one.name.rpartition(".")[2]: one for one in project.connection("shop").preview_change(change).models}
        assert models["names"].rows_after == models["names"].rows_before == 3
        assert models["prices"].columns_after == ("s",)
        assert (models["colours"].error_before != "", models["colours"].rows_after) == (True, 1)
        assert models["odd"].error_before == models["odd"].error_after != ""
        assert not any(one.breaks for one in models.values())


def test_a_renamed_column_breaks_the_model_that_reads_it(tmp_path: Path) -> None:
    with world(tmp_path) as project:
        run(tmp_path, "alter table item rename column old to was")
        waiting(project)
        rename = next(one for one in project.connection("shop").changes() if one.kind == "column.renamed")
        shown = project.connection("shop").preview_change(rename)
        (column,) = shown.tables[0].columns
        assert (column.name, column.was, column.filled, column.differs) == ("was", "old", 2, 0)
        assert shown.breaks == ("lake.olds",)


def test_a_change_that_is_done_or_is_not_there_is_refused(tmp_path: Path) -> None:
    with world(tmp_path) as project:
        applied = next(one for one in project.connection("shop").changes(all=True) if one.kind == "table.added")
        with pytest.raises(Blocked, match="applied"):
            project.connection("shop").preview_change(applied)
        with pytest.raises(InstepError, match="no change"):
            project.connection("shop").preview_change("c-ffffff")


@pytest.mark.parametrize("destination", ["{type: duckdb, path: lake.duckdb}", "{type: delta, warehouse: lake}"])
def test_a_destination_without_previews_says_so(tmp_path: Path, destination: str) -> None:
    with world(tmp_path, destination) as project:
        run(tmp_path, *CHANGES["column.added"])
        with pytest.raises(Blocked, match="destination lake has no previews"):
            project.connection("shop").preview_change(waiting(project))


def test_what_a_killed_preview_left_is_removed_by_a_later_one(tmp_path: Path) -> None:
    with world(tmp_path) as project:
        run(tmp_path, *CHANGES["column.added"])
        old = tmp_path / "lake" / "_instep_preview-1000-abc"
        fresh = tmp_path / "lake" / "_instep_preview-99999999999-abc"
        for one in (old, fresh):
            one.mkdir()
            one.joinpath("file").write_text("x")
        project.connection("shop").preview_change(waiting(project))
        assert not old.exists()
        assert fresh.exists()


def test_what_fails_midway_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from instep.plans import preview_change

    with world(tmp_path) as project:
        run(tmp_path, *CHANGES["column.added"])
        change, before = waiting(project), files(tmp_path)

        def fail(*_: object, **__: object) -> None:
            raise InstepError("the disk is full")

        monkeypatch.setattr(preview_change, "evolve", fail)
        with pytest.raises(InstepError, match="the disk is full"):
            project.connection("shop").preview_change(change)
        assert files(tmp_path) == before
        assert not [one for one in (tmp_path / "lake").iterdir() if one.name.startswith("_instep_preview")]


def shown_and_published(project: Any, change: Any) -> tuple[Any, Any]:
    shown = project.connection("shop").preview_change(change)
    return shown, project.connection("shop").publish_change(shown)


@pytest.mark.parametrize("kind", CHANGES)
def test_publishing_does_to_the_tables_what_was_previewed(tmp_path: Path, kind: str) -> None:
    with world(tmp_path) as project:
        run(tmp_path, *CHANGES[kind])
        shown, done = shown_and_published(project, waiting(project))
        assert (done.change, done.steps, done.notes) == (shown.change, shown.steps, ())
        assert project.connection("shop").changes() == []
        assert_tables_are_as_shown(project, shown)


def live_columns(folder: Path) -> list[str]:
    with Store(f"sqlite:///{folder / '.instep' / 'state.db'}") as store:
        return [column.name for table in store.accepted.catalog("shop").tables for column in table.live]


def test_what_was_published_is_undone(tmp_path: Path) -> None:
    with world(tmp_path) as project:
        run(tmp_path, *CHANGES["column.added"])
        _, done = shown_and_published(project, waiting(project))
        assert "colour" in live_columns(tmp_path)
        assert done.plan.startswith("p-")
        assert project.connection("shop").undo(done.change) == done.version + 1
        assert "colour" not in live_columns(tmp_path)


def test_a_suspected_rename_and_a_new_table_are_published(tmp_path: Path) -> None:
    with world(tmp_path) as project:
        run(tmp_path, "alter table item rename column old to was", "create table later (id integer primary key)")
        run(tmp_path, "insert into later values (1), (2)")
        waiting(project)
        changes = {one.kind: one for one in project.connection("shop").changes()}
        shown_and_published(project, changes["table.added"])
        assert len(project.query("select * from shop.later")) == 2
        shown_and_published(project, changes["column.renamed"])
        assert "was" in project.query("select * from shop.item").columns
        assert not [one for one in project.connection("shop").changes() if one.column in ("old", "was")]


def test_only_the_published_change_is_done(tmp_path: Path) -> None:
    with world(tmp_path) as project:
        run(tmp_path, *CHANGES["column.added"], "alter table item add column size text")
        waiting(project)
        changes = {one.column: one for one in project.connection("shop").changes()}
        project.approve(changes["size"])
        shown_and_published(project, changes["colour"])
        columns = project.query("select * from shop.item").columns
        assert ("colour" in columns, "size" in columns) == (True, False)
        standing = {one.column: one.status for one in project.connection("shop").changes(all=True) if one.column}
        assert standing == {"colour": "applied", "size": "approved"}


def test_a_table_that_has_moved_since_the_preview_is_refused_and_nothing_is_approved(tmp_path: Path) -> None:
    with world(tmp_path) as project:
        run(tmp_path, *CHANGES["column.added"])
        change = waiting(project)
        shown = project.connection("shop").preview_change(change)
        run(tmp_path, "insert into item (id, name) values (9, 'late')")
        project.connection("shop").sync()
        with pytest.raises(StalePlan, match=r"shop\.item or the steps have changed since the preview"):
            project.connection("shop").publish_change(shown)
        assert [one.status for one in project.connection("shop").changes()] == ["open"]
        shown_and_published(project, change)
        assert project.connection("shop").changes() == []


def test_another_fingerprint_or_a_change_that_is_taken_back_is_refused(tmp_path: Path) -> None:
    with world(tmp_path) as project:
        run(tmp_path, *CHANGES["column.added"])
        change = waiting(project)
        shown = project.connection("shop").preview_change(change)
        with pytest.raises(StalePlan):
            project.connection("shop").publish_change(replace(shown, fingerprint="f" * 64))
        run(tmp_path, "alter table item drop column colour")
        with pytest.raises(Conflict, match="no longer at the source"):
            project.connection("shop").publish_change(shown)


def published_by_two(folder: Path, columns: int) -> Work:
    """Return the work of publishing one removal, that alice has approved, by bob, among as many others that wait."""
    folder.mkdir()
    text = PROJECT.replace("DESTINATION", ICEBERG).replace(", downstream: {sql: [views]}", "")
    text = text.replace("{preset: approve}", "{preset: approve, removed: drop}") + "four_eyes: true\n"
    folder.joinpath("instep.yml").write_text(text)
    names = [f"c{number}" for number in range(columns)]
    run(folder, f"create table item (id integer primary key, {', '.join(f'{name} text' for name in names)})")
    with instep.open(folder) as project:
        project.connection("shop").sync()
    run(folder, *(f"alter table item drop column {name}" for name in names))
    with open_project(folder) as app:
        bob = replace(app.sync_context("shop"), who="bob")
        preview(bob)
        changes = app.store.reviews.find("shop", ("open",), kinds=("column.removed",))
        assert len(changes) == columns
        with app.store.transaction():
            for number in range(columns * 5):
                app.store.events.add(OperationRequested("shop", "restore", f"main.t{number}", "ann"))
        answer(app.store, changes, "approved", "alice")
        change = app.store.reviews.get(changes[0].id)
        previewing, publishing = PreviewChange(), PublishChange()
        previewing.engine = publishing.engine = app.engine("shop")
        shown = previewing.run(bob, PreviewChangeRequest(change.id))
        assert len(shown.steps) == 1
        request = PublishChangeRequest(change.id, shown.fingerprint, (f"main.item.{change.column}",))
        with pytest.raises(Blocked, match="approved by alice: with four_eyes another person has to apply it"):
            publishing.run(replace(bob, who="alice"), request)
        with counted(app.store._db.engine) as work:
            done = publishing.run(bob, request)
        assert done.steps == shown.steps
        left = app.store.reviews.find("shop", ("approved",))
        assert (app.store.reviews.get(change.id).status, len(left)) == ("applied", columns - 1)
    return work


def test_publishing_for_two_people_takes_no_more_statements_however_many_changes_wait(tmp_path: Path) -> None:
    few, many = published_by_two(tmp_path / "few", 15), published_by_two(tmp_path / "many", 120)
    assert many.statements < 1.5 * few.statements
    assert many.calls < 12 * few.calls, "eight times as many changes: as much work for each of them"
