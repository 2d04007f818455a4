"""The Python API on a real project of SQLite and Iceberg: sync, changes, plan, undo, query, progress, notebooks."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import instep
from instep.errors import Blocked, InstepError, ProjectError, SetupError

if TYPE_CHECKING:
    from conftest import Shop


def test_a_sync_tells_its_progress_and_answers_what_became_of_each_table(project: instep.Project) -> None:
    told: list[instep.Progress] = []
    done = project.connection("shop").sync(on_progress=told.append)
    assert (done.ok, done.status, done.failed, done.waiting) == (True, "done", {}, ())
    assert done.raise_for_failure() is done
    [table] = done.tables
    assert (table.table, table.inserted, table.status) == (("main", "customer"), 2, "done")
    assert any(one.step for one in told)
    assert max(one.rows for one in told if one.table == "main.customer") == 2
    assert "<b>done</b>" in done._repr_html_()
    assert "<td>main.customer</td>" in done._repr_html_()


def test_threads_on_one_project_have_a_callback_each(shop: Shop) -> None:
    """One reports nothing, one calls another connection from within its callback: nobody hears of another's tables."""
    shop.replace(
        "  shop: {",
        "  s2: {source: db, destination: lake, namespace: s2}\n  s3: {source: db, destination: lake, "
        "namespace: s3}\n  s4: {source: db, destination: lake, namespace: s4}\n  shop: {",
    )
    shop.sql("create table a (id integer primary key); create table b (id integer primary key)")
    heard: dict[str, list[tuple[str, str]]] = {"s2": [], "s3": []}
    both = threading.Barrier(2)

    def run(name: str, table: str) -> None:
        def on_progress(now: instep.Progress) -> None:
            if not heard[name]:
                both.wait(60)  # both are under way
            heard[name].append((now.table, threading.current_thread().name))

        assert project.connection(name).sync(table, on_progress=on_progress).status == "done"

    with instep.open(shop.folder) as project:
        assert project.connection("s2").plan().apply()
        assert project.connection("s3").plan().apply()
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(run, "s2", "main.a"), pool.submit(run, "s3", "main.b")]:
                done.result()
        before = {name: len(found) for name, found in heard.items()}
        assert project.connection("s4").sync().status == "done"
        assert {name: len(found) for name, found in heard.items()} == before
    tables = {name: {table for table, _ in found if table} for name, found in heard.items()}
    assert tables == {"s2": {"main.a"}, "s3": {"main.b"}}


def test_rows_are_asked_for_in_sql(project: instep.Project) -> None:
    project.connection().sync()
    found = project.query("select id, name, city from shop.customer order by id")
    assert (found.columns, found.rows) == (["id", "name", "city"], [(1, "Ann", "Oslo"), (2, "Bo <b>", None)])
    assert found.to_arrow().to_pydict() == {"id": [1, 2], "name": ["Ann", "Bo <b>"], "city": ["Oslo", None]}
    assert "<td>Bo &lt;b&gt;</td><td><i>NULL</i></td>" in found._repr_html_(), "texts of rows are no markup"
    with pytest.raises(InstepError, match="did you mean"):
        project.query("select * from shop.custome")


def test_a_change_waits_is_decided_and_is_taken_back(shop: Shop, project: instep.Project) -> None:
    connection = project.connection()
    connection.sync()
    shop.sql("alter table customer drop column city; alter table customer add column age integer")
    done = connection.sync()
    waiting = connection.changes()
    assert [one.id for one in waiting] == list(done.waiting)
    assert "customer.city" in waiting._repr_html_()
    [approved] = project.approve(*waiting)
    assert approved.status == "approved"
    plan = connection.plan()
    assert plan.pending
    assert any("city" in line for line in plan.lines)
    assert plan.apply() == connection.status()["schema_version"]
    assert project.changes() == []
    [added] = [one for one in connection.changes(all=True) if one.kind == "column.added"]
    assert connection.undo(added.id, allow=["*"]) == connection.status()["schema_version"]
    assert [one["type"] for one in connection.history(100)].count("change.undone") == 1


def test_what_cannot_be_taken_back_by_itself_is_shown_first(shop: Shop, project: instep.Project) -> None:
    connection = project.connection()
    first = connection.sync()
    [point] = connection.table("main.customer").savepoints()
    shop.sql("update customer set name = 'Cy' where id = 1")
    connection.sync(full=True)
    preview = connection.preview(instep.RestoreRequest(table="main.customer", snapshot=str(point.id)))
    assert preview.lines[0].startswith(f"main.customer goes back to snapshot {point.id}")
    with pytest.raises(Blocked, match=r"the rows of main\.customer are restored"):
        connection.run(preview)
    assert connection.run(preview, allow=["main.customer"])["run"] != first.run
    assert project.query("select name from shop.customer where id = 1").rows == [("Ann",)]


def test_a_table_that_fails_is_named(shop: Shop, project: instep.Project) -> None:
    shop.replace("policy: careful}", "policy: careful, include: {tables: [main.customer, main.custome]}}")
    with instep.open(shop.folder) as broken:
        done = broken.connection().sync()
    assert (done.ok, list(done.failed)) == (False, ["main.custome"])
    with pytest.raises(InstepError, match=r"main\.custome: "):
        done.raise_for_failure()


def test_columns_are_backfilled_and_both_sides_compared(shop: Shop, project: instep.Project) -> None:
    connection = project.connection()
    connection.sync()
    shop.sql("update customer set city = 'Bergen' where id = 2")
    assert [(one.table, one.equal) for one in connection.verify()] == [("main.customer", False)]
    assert connection.table("main.customer").backfill().ok
    assert [one.equal for one in connection.verify(["main.customer"])] == [True]


def test_a_pause_keeps_a_sync_out(project: instep.Project) -> None:
    connection = project.connection()
    assert (connection.pause("holidays"), connection.pause("holidays")) == (True, False)
    with pytest.raises(Blocked, match="holidays"):
        connection.sync()
    assert connection.resume()
    assert connection.sync().ok


def test_what_is_not_there_is_an_error_with_the_next_step(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with instep.open(shop.folder) as project, pytest.raises(ProjectError, match="nope"):
        project.connection("nope")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        instep.nothing  # noqa: B018 - it is the access that fails


def test_one_text_is_one_name_and_not_its_letters(shop: Shop, project: instep.Project) -> None:
    connection = project.connection()
    assert [one.table for one in connection.sync("main.customer").tables] == [("main", "customer")]
    assert [one.table for one in connection.verify("main.customer")] == ["main.customer"]
    assert connection.table("main.customer").estimate_backfill("city").columns == ("city",)
    assert len(connection.selection.off(matching="*.city")) == len(connection.selection.on(matching="*.city")) == 1
    shop.sql("delete from customer where id = 2")
    connection.sync()
    table = connection.table("main.customer")
    before = table.savepoints()[1].id
    with pytest.raises(Blocked):
        table.restore(before, allow="main.nothing.*")  # as letters, the `*` in it would allow everything
    assert table.restore(before, allow="main.customer").startswith("r-")


def test_a_closed_project_answers_nothing(shop: Shop) -> None:
    with instep.open(shop.folder) as project:
        connection = project.connection()
        assert str(shop.folder) in repr(project)
    project.close()
    for call in (
        connection.sync,
        connection.changes,
        connection.tables,
        project.status,
        lambda: project.query("select 1"),
    ):
        with pytest.raises(InstepError, match="was closed"):
            call()
    with pytest.raises(InstepError, match="was closed"):
        _ = project.connections


def test_results_travel_to_other_processes_and_show_their_rows(shop: Shop, project: instep.Project) -> None:
    connection = project.connection()
    shop.sql("insert into customer values (3, 'C' || char(27) || '[2J', null)")
    done = connection.sync()
    shop.sql("alter table customer drop column city")
    connection.detect()
    changes, found = connection.changes(), project.query("select id, name from shop.customer order by id")
    for one in (
        done,
        changes,
        found,
        connection.tables(),
        connection.status(),
        connection.verify(),
        connection.history(),
    ):
        assert pickle.loads(pickle.dumps(one)) == one
    assert isinstance(pickle.loads(pickle.dumps(changes)), instep.Changes)
    shown = repr(found)
    assert shown.splitlines()[:2] == ["<3 rows of id, name>", "(1, 'Ann')"]
    assert "\x1b" not in shown
    assert "... 90 more rows" in repr(project.query("select range from range(100)"))


def test_all_names_are_there_and_the_first_one_loads_the_rest() -> None:
    assert all(getattr(instep, name) for name in instep.__all__)
    said = "import instep, sys; print('instep.python' in sys.modules, 'typer' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]


def test_an_operation_at_once_is_called_by_its_name(project: instep.Project) -> None:
    made = project.perform("create_key", name="ci", role="operator", groups=["europe"])
    assert (made.key.name, made.key.groups, made.secret[:10]) == ("ci", ("europe",), "instep_sk_")
    for operation, fields, why in (
        ("create_keys", {"name": "x", "role": "viewer"}, "there is no immediate operation 'create_keys'"),
        ("sync", {}, "there is no immediate operation 'sync'"),
        ("create_key", {"name": "x", "colour": "red"}, "create_key has no field colour"),
        ("create_key", {"name": "x", "role": "root"}, "create_key: role"),
    ):
        with pytest.raises(InstepError, match=why):
            project.perform(operation, **fields)


@pytest.mark.parametrize("limit", ["main.customer", 0, -1, None])
@pytest.mark.parametrize("method", ["history", "runs", "plans", "versions", "loads"])
def test_a_limit_that_is_no_number_is_named(project: instep.Project, method: str, limit: object) -> None:
    with pytest.raises(InstepError, match=r"`limit` is (?s:.*)a number from 1 on"):
        getattr(project.connection(), method)(limit=limit)


def test_whatever_is_returned_shows_itself_in_a_terminal(project: instep.Project) -> None:
    """No object of a Python session shows where it lies in memory, and none shows the records within it."""
    shop = project.connection()
    plan = shop.plan()
    assert repr(plan).splitlines() == ["<instep plan of connection shop>", *plan.lines]
    shop.sync()
    for shown in (project, shop, shop.policy, shop.quarantine, shop.selection, shop.table("main.customer")):
        assert repr(shown).startswith("<instep "), repr(shown)


def test_documents_within_a_document_are_tables_in_a_notebook(project: instep.Project) -> None:
    shop = project.connection()
    shop.sync()
    for status in (shop.status(), project.status()):
        html = status._repr_html_()
        assert "{" not in html, "no record is shown as Python writes it"
        assert "<th>inserted</th>" in html


@pytest.mark.parametrize("key", ["k", "", "two\nlines"])
def test_a_key_that_is_none_is_not_said_to_be_of_the_environment(key: str) -> None:
    with pytest.raises(SetupError, match=r"^`key` holds no API key"):
        instep.connect("http://127.0.0.1:9", key)
