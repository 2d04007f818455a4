"""One table, the quarantine, the selection, policies and answers in Python: what commands do, by methods."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import instep
from instep.errors import Blocked, InstepError, ProjectError

if TYPE_CHECKING:
    from conftest import Shop


@pytest.fixture
def connection(project: instep.Project) -> instep.Connection:
    found = project.connection()
    found.sync().raise_for_failure()
    return found


def test_a_table_that_there_is_not_names_the_one_that_was_meant(connection: instep.Connection) -> None:
    assert [one.table for one in connection.tables()] == ["main.customer"]
    with pytest.raises(InstepError, match=r"no accepted table main\.custome\b") as caught:
        connection.table("main.custome")
    assert caught.value.hint == "did you mean main.customer?"


def test_key_and_cursor_of_a_table(shop: Shop, connection: instep.Connection) -> None:
    table = connection.table("main.customer")
    assert table.set_cursor("id") == 2
    assert table.set_key(["name"]) == 3
    [accepted] = connection.schema().tables
    assert accepted.key == ("name",)
    shop.sql("insert into customer values (3, 'Ann', null)")
    with pytest.raises(InstepError, match=r"key \(city\) of main\.customer has NULL in 2 rows"):
        table.set_key(["city"])
    assert table.set_cursor(None) == 4
    assert [entry.kind for entry in table.history()][-3:] == ["cursor.changed", "key.changed", "cursor.removed"]


def test_rows_go_back_to_a_savepoint(shop: Shop, project: instep.Project, connection: instep.Connection) -> None:
    table = connection.table("main.customer")
    [first] = table.savepoints()
    shop.sql("update customer set name = 'Cy' where id = 1")
    connection.sync()
    with pytest.raises(Blocked):
        table.restore(first.id)
    assert table.restore(first.id, allow=["main.customer"]).startswith("r-")
    assert project.query("select name from shop.customer where id = 1").rows == [("Ann",)]
    [changed] = [point for point in table.savepoints() if point.id != first.id and not point.current]
    table.restore(at=changed.at, allow=["main.customer"])
    assert project.query("select name from shop.customer where id = 1").rows == [("Cy",)]


def test_a_backfill_is_estimated_filled_and_cancelled(shop: Shop, project: instep.Project) -> None:
    shop.replace("source: db,", "source: db, tables: {main.customer: {cursor: id}},")
    with instep.open(shop.folder) as project:
        connection = project.connection()
        connection.sync()
        shop.sql("alter table customer add column tier text; update customer set tier = 'gold'")
        connection.sync()
        table = connection.table("main.customer")
        rows = "select count(*) from shop.customer where tier = 'gold'"
        assert project.query(rows).rows == [(1,)], "only the row with the newest cursor is read again"
        found = table.estimate_backfill(["tier"])
        assert (found.table, found.columns, found.rows, found.files) == ("main.customer", ("tier",), 2, 1)
        assert not table.cancel_backfill(["tier"]), "nothing waits"
        assert table.backfill(["tier"]).ok
        assert project.query(rows).rows == [(2,)]
        with pytest.raises(InstepError, match="tir"):
            table.backfill(["tir"])


def test_a_table_is_paused_alone(shop: Shop, connection: instep.Connection) -> None:
    shop.sql("create table item (id integer primary key); insert into item values (1)")
    table = connection.table("main.customer")
    assert (table.pause("holidays"), table.pause("holidays")) == (True, False)
    assert {one.table[1]: one.status for one in connection.sync().tables} == {"customer": "paused", "item": "done"}
    assert (table.resume(), table.resume()) == (True, False)


def test_a_rename_that_a_person_declares(shop: Shop, project: instep.Project, connection: instep.Connection) -> None:
    shop.sql("alter table customer rename column city to town")
    assert connection.declare_rename("main.customer.city", "main.customer.town") == 2
    connection.sync()
    assert project.query("select town from shop.customer order by id").rows == [("Oslo",), (None,)]


def test_changes_are_snoozed_and_ignored(shop: Shop, project: instep.Project, connection: instep.Connection) -> None:
    shop.sql("alter table customer drop column city")
    found = connection.detect()
    assert found.pending
    assert found.counts["columns"]["deleted"] == 1
    [waiting] = project.changes()
    [asleep] = project.snooze(waiting, until=datetime.now(UTC).replace(tzinfo=None) + timedelta(days=1))
    assert asleep.snoozed_until is not None
    assert project.changes() == []
    [ignored] = project.ignore(waiting.id)
    assert ignored.status == "rejected"


def test_values_in_quarantine(shop: Shop, project: instep.Project) -> None:
    shop.replace("source: db,", "source: db, tables: {main.item: {types: {size: int32}}},")
    shop.sql(
        "create table item (id integer primary key, size text); insert into item values (1, '7'), (2, 'x'), (3, 'y')"
    )
    with instep.open(shop.folder) as project:
        connection = project.connection()
        assert sum(table.invalid_values for table in connection.sync().tables) == 2
        held = connection.quarantine.entries("main.item")
        assert sorted(entry["original"] for entry in held) == ["x", "y"]
        assert "<td>main.item</td>" in held._repr_html_()
        counts = connection.quarantine.counts("main.item")
        assert (counts["total"], counts["newest"], len(counts["groups"])) == (2, held[-1]["at"], 1)
        assert connection.quarantine.entries("main.item", limit=1) == sorted(held, key=lambda entry: entry["id"])[:1]
        [done] = connection.quarantine.replay("main.item", preview=True)
        assert (done["replayed"], done["held"]) == (0, 2)
        first, second = held
        assert connection.quarantine.discard(first) == [first["id"]]
        assert connection.quarantine.erase("main.item", second["key"]) == 1
        assert connection.quarantine.entries() == []
        assert [entry["status"] for entry in connection.quarantine.entries(all=True)] == ["discarded"]
        assert connection.quarantine.discard() == []


def test_what_is_read_is_switched(project: instep.Project, connection: instep.Connection) -> None:
    [turned] = connection.selection.off("main.customer.city")
    assert (turned.object, turned.changed) == ("main.customer.city", True)
    city = [one for one in connection.selection.objects() if one.column == "city"]
    assert [one.enabled for one in city] == [False]
    assert [one.changed for one in connection.selection.on(matching=["*.city"])] == [True]
    assert len(connection.selection.objects(all_columns=True)) > len(connection.selection.objects())
    with pytest.raises(Blocked, match="salt"):
        connection.selection.hash("main.customer.city")


def test_upkeep_and_impact(shop: Shop, connection: instep.Connection, tmp_path: Path) -> None:
    assert connection.maintain("main.*", preview=True).tables[0].table == "main.customer"
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "cities.sql").write_text("create view cities as select city from shop.customer")
    shop.sql("alter table customer drop column city; alter table customer add column age integer")
    connection.detect()
    found = connection.impact(sql=[tmp_path / "views"])
    assert [(model["name"], model["verdict"]) for model in found["models"]] == [("cities", "silent")]
    assert "cities" in found._repr_html_()


def test_a_policy_is_explained_tested_and_simulated(shop: Shop, connection: instep.Connection, tmp_path: Path) -> None:
    assert connection.policy.show()["preset"] == "allow_all"
    decision = connection.policy.explain("main.customer.city", "column.removed")["decision"]
    assert (decision["action"], decision["rule"]) == ("review", "rule 1 of policy careful")
    case = {"change": "column.removed", "table": "main.customer", "column": "city"}
    (tmp_path / "cases.yml").write_text(json.dumps([{**case, "expect": "review"}, {**case, "expect": "apply"}]))
    for tested in (
        connection.policy.test(tmp_path / "cases.yml"),
        connection.policy.test([{**case, "expect": "review"}, {**case, "expect": "apply"}]),
    ):
        assert [one.passed for one in tested.cases] == [True, False]
        assert not tested.ok
        assert "<td>failed</td>" in tested._repr_html_()
        with pytest.raises(InstepError, match=r"1 of 2 case\(s\) of connection shop are decided differently"):
            tested.raise_for_failure()
    with pytest.raises(ProjectError, match="case 1 is wrong: expect"):
        connection.policy.test([case])
    widened = {**case, "change": "column.retyped", "from": "int64", "to": "string"}
    with pytest.raises(ProjectError, match=r"case 1: int64 to string is column\.widened"):
        connection.policy.test([{**widened, "expect": "review"}])
    with pytest.raises(ProjectError, match="there are no cases"):
        connection.policy.test([])
    shop.sql("alter table customer drop column city")
    connection.detect()
    (tmp_path / "loose.yml").write_text("preset: allow_all")
    [different] = connection.policy.simulate(tmp_path / "loose.yml")["different"]
    assert different["summary"] == "column main.customer.city removed (string)"


def test_what_happened(connection: instep.Connection) -> None:
    assert [run["kind"] for run in connection.runs()] == ["sync"]
    assert [version["version"] for version in connection.versions()] == [1]
    assert [plan["id"][:2] for plan in connection.plans()] == ["p-"], "a sync applies a plan, too"
    assert connection.history(1)[0]["type"] == "run.ended"
    assert "<td>sync</td>" in connection.runs()._repr_html_()
    assert "<th>value</th>" in connection.status()._repr_html_()
    preview = connection.preview(instep.SetCursorRequest(table="main.customer", column="id"))
    assert preview._repr_html_().startswith("<pre>the newest id")


def test_rows_that_differ_are_repaired(shop: Shop, project: instep.Project, connection: instep.Connection) -> None:
    table = connection.table("main.customer")
    shop.sql("update customer set name = 'Cy' where id = 1; delete from customer where id = 2")
    with pytest.raises(Blocked, match="would be deleted"):
        table.repair()
    seen: list[str] = []
    done = table.repair(allow=["main.customer"], on_progress=lambda now: seen.append(now.step))
    assert (done["inserted"], done["updated"], done["deleted"], done["verdict"]["equal"]) == (0, 1, 1, True)
    assert "comparing" in seen
    assert all(verdict.equal for verdict in connection.verify())
    shop.sql("update customer set name = 'Di' where id = 1")
    preview = connection.preview(instep.RepairRequest(table="main.customer"))
    assert preview.document["differing"] == 1
    assert connection.run(preview)["verdict"]["equal"] is True
    assert project.query("select name from shop.customer where id = 1").rows == [("Di",)]


def test_what_stands_at_the_destination(shop: Shop, connection: instep.Connection) -> None:
    [found] = connection.tables()
    assert (found.table, found.destination, found.mode, found.key) == (
        "main.customer",
        "shop.customer",
        "upsert",
        ("id",),
    )
    assert (found.rows, found.columns, found.quarantined, found.paused) == (2, 3, 0, None)
    assert found.last_run is not None
    assert found.last_run.status == "done"
    html = connection.tables()._repr_html_()
    assert "<th>rows</th>" in html
    assert "<td>sync done</td>" in html
    table = connection.table("main.customer")
    assert [(one.column, one.source_type, one.status) for one in table.columns()] == [
        ("id", "INTEGER", "read"), ("name", "varchar(30)", "read"), ("city", "TEXT", "read"),
    ]  # fmt: skip
    assert "<td>varchar(30)</td>" in table.columns()._repr_html_()


def test_the_first_rows_of_a_table(connection: instep.Connection) -> None:
    table = connection.table("main.customer")
    found = table.preview(1)
    assert found.columns[:3] == ["id", "name", "city"]
    assert len(found) == 1
    assert {row[:2] for row in table.preview().rows} == {(1, "Ann"), (2, "Bo <b>")}
    assert len(table.preview().to_pandas()) == 2
    assert "Bo &lt;b&gt;" in table.preview()._repr_html_()
    with pytest.raises(InstepError, match="preview is 101, not 0 to 100"):
        table.preview(101)


def test_loads_and_versions_are_compared(shop: Shop, project: instep.Project) -> None:
    connection = project.connection()
    connection.sync()
    shop.sql("alter table customer add column extra text")
    connection.sync()
    assert [one["kind"] for one in connection.loads("main.customer")] == ["sync", "sync"]
    assert connection.loads("main.nothing") == []
    [added] = connection.compare(1, 2)
    assert (added["kind"], added["column"], added["breaking"]) == ("column.added", "extra", False)
    assert connection.compare(1, 1) == []
