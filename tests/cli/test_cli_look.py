"""`status`, `history` and `query`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cli_world import CHANGED, PROJECT, REMOVED, Shop
from starlette.testclient import TestClient

import instep
from instep.bootstrap import open_server
from instep.control.resources import api_keys
from instep.model import TableRun
from instep.server.app import create_app


def test_status_before_the_first_run(shop: Shop) -> None:
    assert shop.ok("status").out == "shop  schema version 0, 0 tables, never run\n"
    assert shop.json("status")["connections"] == [
        {
            "connection": "shop", "last_run": None, "schema_version": 0, "schema_label": "", "waiting_changes": 0,
            "pauses": [], "backfills": [], "copies": [], "old_names": [], "maintained": [], "tables": [],
            "quarantine": {}, "quarantined": 0, "unread": {}, "reselected": [], "partial": [], "freshness": [],
            "freshness_counts": {}, "log": None, "more": {}, "next_command": "",
        }
    ]  # fmt: skip


def test_status_names_what_wants_attention(shop: Shop) -> None:
    shop.applied()
    shop.sql(CHANGED)
    shop.ok("detect")
    shop.ok("pause", "--table", "main.order", "--reason", "later")
    out = shop.ok("status").out
    assert "schema version 1 (1.0), " in out
    assert "last apply done at 20" in out
    assert "1 change(s) wait for a review: run `instep changes list`" in out
    assert "paused: main.order: later" in out


def test_status_lists_the_first_of_many_and_counts_the_others(shop: Shop) -> None:
    """The same as text, JSON, in Python and over REST."""
    shop.applied()
    with shop.store() as store, store.transaction("shop"):
        store.pauses.pause("shop", "all of it")
        for number in range(205):
            store.pauses.pause("shop", "later", table=("main", f"t{number:03}"))
            store.backfills.request("shop", ("main", f"t{number:03}"), why="asked")
    out = shop.ok("status").out
    assert (out.count("  paused: "), out.count("  pending backfill of ")) == (200, 200)
    assert "paused: the connection: all of it" in out
    assert "  and 6 more pauses\n" in out
    assert "  and 5 more pending backfills\n" in out
    [found] = shop.json("status")["connections"]
    assert (len(found["pauses"]), len(found["backfills"])) == (200, 200)
    assert found["more"] == {"pauses": 6, "backfills": 5}
    with instep.open(shop.folder) as project:
        python = project.connection("shop").status()
    assert (len(python["pauses"]), python["more"]) == (200, {"pauses": 6, "backfills": 5})
    with open_server(shop.folder, insecure_dev=True) as app:
        client, secret = TestClient(create_app(app)), api_keys.create(app.store, "reader", "viewer", "test").secret
        answer = client.get("/api/v1/connections/shop/status", headers={"authorization": f"Bearer {secret}"}).json()
    assert (len(answer["pauses"]), answer["more"]) == (200, {"pauses": 6, "backfills": 5})


def test_status_names_late_tables_and_checks_them(shop: Shop) -> None:
    shop.write(text=PROJECT.replace("policy: careful}", "policy: careful, freshness: 1h}"))
    assert shop.run("status", "--check").code == 0
    shop.applied()
    out = shop.ok("status", "--check").out
    assert "not loaded yet" in out
    with shop.store() as store:
        tables = [table.ref for table in store.accepted.catalog("shop").tables]
        store.fresh_tables.loaded("shop", tables, datetime.now(UTC) - timedelta(minutes=50))
        assert f"freshness: {len(tables)} on time" in shop.ok("status", "--check").out
        store.fresh_tables.loaded("shop", [("main", "order")], datetime.now(UTC) - timedelta(hours=2))
    late = shop.run("status", "--check")
    assert late.code == 2
    assert "main.order is late since " in late.out
    assert ", target 1h" in late.out
    assert shop.run("status").code == 0
    first = shop.json("status")["connections"][0]["freshness"][0]
    assert (first["table"], first["state"], first["target"]) == ("main.order", "late", 3600)


def test_status_says_why_the_last_run_failed_and_what_is_next(shop: Shop) -> None:
    """The same as text, JSON and over REST; nothing of it stays once a run has succeeded."""
    shop.applied()
    (shop.folder / "shop.db").rename(shop.folder / "away.db")
    assert shop.run("sync").code != 0
    [found] = shop.json("status")["connections"]
    assert "shop.db does not exist" in found["last_run"]["error"]
    assert found["next_command"] == "instep sync shop"
    [_, why] = [line for line in shop.ok("status").out.splitlines() if "shop" in line][:2]
    assert "shop.db does not exist; check `path`" in why
    assert why.endswith("; once this is mended run `instep sync shop`")
    with open_server(shop.folder, insecure_dev=True) as app:
        client, secret = TestClient(create_app(app)), api_keys.create(app.store, "reader", "viewer", "test").secret
        answer = client.get("/api/v1/connections/shop/status", headers={"authorization": f"Bearer {secret}"}).json()
    assert (answer["last_run"]["error"], answer["next_command"]) == (found["last_run"]["error"], "instep sync shop")
    (shop.folder / "away.db").rename(shop.folder / "shop.db")
    shop.ok("sync")
    assert shop.json("status")["connections"][0]["next_command"] == ""
    assert "does not exist" not in shop.ok("status").out


def test_status_says_why_a_table_failed_and_what_is_next(shop: Shop) -> None:
    shop.applied()
    with shop.store() as store:
        run = store.runs.claim("shop", "sync")
        store.runs.record_tables(TableRun(run.id, ("main", "order"), "failed", "upsert", error="no\nspace"))
        store.runs.finish(run, "partial")
    [found] = shop.json("status")["connections"]
    assert [(t["error"], t["next_command"]) for t in found["tables"]] == [
        ("no\nspace", "instep sync shop --table main.order")
    ]
    again = "no; space; once this is mended run `instep sync shop --table main.order`"
    assert f"main.order: failed: {again}" in shop.ok("status").out


def test_status_of_several_connections(shop: Shop) -> None:
    file = shop.folder / "instep.yml"
    file.write_text(file.read_text() + "  twin: {source: db, destination: lake}\n")
    shop.ok("apply", "twin", "--yes")
    assert {c["connection"]: c["schema_version"] for c in shop.json("status")["connections"]} == {"shop": 0, "twin": 1}


def test_history_tells_what_happened_newest_first(shop: Shop) -> None:
    shop.applied()
    shop.ok("pause", "--reason", "pause of the night")
    events = shop.json("history")["events"]
    assert [e["type"] for e in events][:2] == ["connection.paused", "run.ended"]
    assert {"change.detected", "change.applied", "run.started"} < {e["type"] for e in events}
    assert len(shop.json("history", "-n", "2")["events"]) == 2
    assert "pause of the night" in shop.ok("history").out.splitlines()[0]
    assert shop.run("history", "-n", "0").code == 64


def test_history_of_runs(shop: Shop) -> None:
    shop.applied()
    [run] = shop.json("history", "--runs")["runs"]
    assert (run["kind"], run["status"]) == ("apply", "done")
    assert run["id"] in shop.ok("history", "--runs").out


def test_history_of_the_accepted_schema(shop: Shop) -> None:
    shop.applied()
    shop.sql(CHANGED)
    shop.ok("apply", "--yes")
    versions = shop.json("history", "--schema")["versions"]
    assert [v["version"] for v in versions] == [2, 1]
    assert versions[0]["why"] == "column main.order.note added (string)"
    assert all(v["who"] for v in versions)
    assert REMOVED not in shop.ok("history", "--schema").out


def test_query_reads_the_lake(shop: Shop) -> None:
    shop.applied()
    said = shop.json("query", "select id, name from shop.customer")
    assert said == {"format_version": 1, "columns": ["id", "name"], "rows": [], "more": False}
    sql = 'select c.name, sum(o.amount) as s from shop.customer c left join shop."order" o on o.customer_id = c.id'
    assert shop.json("query", f"{sql} group by 1")["rows"] == []
    counted = "with c as (select * from shop.customer) select count(*) as n from c"
    assert shop.json("query", counted)["rows"] == [{"n": 0}]


def test_the_namespace_may_be_left_out(shop: Shop) -> None:
    shop.applied()
    assert shop.json("query", "select count(*) as n from customer")["rows"] == [{"n": 0}]


def test_values_as_people_and_programs_read_them(shop: Shop) -> None:
    sql = (
        "select null as nothing, 1.50::decimal(10,2) as d, 'nan'::double as f, '\\x61'::blob as b, "
        "timestamptz '2024-02-29 01:02:03+00' as t, date '2024-02-29' as day, [1, null] as l, {'a': 'ü'} as s"
    )
    [row] = shop.json("query", sql)["rows"]
    assert row == {
        "nothing": None, "d": "1.50", "f": "nan", "b": "\\x61", "t": "2024-02-29T01:02:03+00:00", "day": "2024-02-29",
        "l": [1, None], "s": {"a": "ü"},
    }  # fmt: skip
    out = shop.ok("query", sql).out
    assert "NULL     1.50  nan  \\x61" in out


def test_columns_of_one_name_are_all_there(shop: Shop) -> None:
    said = shop.json("query", "select 1 as a, 2 as a, 3 as a_1")
    assert said["columns"] == ["a", "a_2", "a_1"]
    assert said["rows"] == [{"a": 1, "a_2": 2, "a_1": 3}]


def test_a_long_answer_is_cut_for_people_only(shop: Shop) -> None:
    sql = "select range as n from range(150)"
    said = shop.ok("query", sql)
    assert (len(said.out.splitlines()), "more than these 100 rows: --limit N" in said.err) == (101, True)
    assert len(shop.ok("query", sql, "--limit", "150").out.splitlines()) == 151
    assert len(shop.json("query", sql)["rows"]) == 150


REFUSED = [
    ("several statements", "select 1; select 2", "2 statements"),
    ("a statement behind a comment", "select 1 -- ;\n; drop table x", "2 statements"),
    ("nothing", " ", "0 statements"),
    ("a write", "create table x as select 1", "must be one SELECT"),
    ("a copy", "copy (select 1) to 'TMP/out'", "must be one SELECT"),
    ("an attach", "attach 'TMP/x.db'", "must be one SELECT"),
    ("a setting", "set enable_external_access = true", "must be one SELECT"),
    ("a local file by function", "select * from read_csv('TMP/secret.csv')", "disabled"),
    ("a local file by name", "select * from 'TMP/secret.csv'", "disabled"),
    ("text of a local file", "select * from read_text('TMP/secret.csv')", "disabled"),
    ("a glob", "select * from glob('TMP/*')", "disabled"),
    ("a table that is not there", "select * from shop.nothing", "does not exist"),
    ("a wrong column", "select nothing from shop.customer", "nothing"),
    ("a reserved word", "select * from order", 'need quotes: shop."order"'),
    ("a mistake", "selec 1", "syntax error"),
]


def test_a_table_that_is_not_there_is_not_explained_by_a_schema_that_is(shop: Shop) -> None:
    shop.applied()
    assert "schema" not in shop.run("query", "select * from shop.custmer").err


@pytest.mark.sampled
@pytest.mark.parametrize(("sql", "said"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_a_query_may_not_do(shop: Shop, sql: str, said: str) -> None:
    shop.applied()
    Path(shop.folder, "secret.csv").write_text("a\nhunter2\n")
    answer = shop.run("query", sql.replace("TMP", str(shop.folder)))
    assert answer.code == 1
    assert answer.out == ""
    assert said in answer.err
    assert "hunter2" not in answer.err
    assert not Path(shop.folder, "out").exists()
    assert not Path(shop.folder, "x.db").exists()
