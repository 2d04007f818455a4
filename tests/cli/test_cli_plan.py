"""`detect`, `plan` and `apply`: schema changes without rows, and so without a JVM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_world import CHANGED, PROJECT, REMOVED, Shop

from command_runs import Said
from postgres_server import Database

ADDED = "column main.order.note added (string)"


def test_the_first_plan_creates_the_tables(shop: Shop) -> None:
    out = shop.ok("plan").out
    assert out.startswith("2 steps at the destination\n  shop.customer\n    + table shop.customer added")
    assert "How tables are synced" in out
    assert "main.customer: upsert, deletes soft (key id; whole-table compare)" in out


def test_a_plan_alone_changes_nothing(shop: Shop) -> None:
    first, second = shop.ok("plan").out, shop.ok("plan").out
    assert first == second
    assert shop.json("status")["connections"][0]["schema_version"] == 0
    assert shop.json("query", "select 1 as one")["rows"] == [{"one": 1}]


def test_apply_asks_and_without_a_terminal_applies_nothing(shop: Shop) -> None:
    said = shop.run("apply")
    assert (said.code, "pass --yes" in said.err) == (3, True)
    assert "+ table shop.customer added" in said.err
    assert said.out == ""
    assert shop.json("status")["connections"][0]["schema_version"] == 0
    assert shop.run("apply", "--no-input").code == 3


def test_apply_with_yes(shop: Shop) -> None:
    assert shop.ok("apply", "--yes").out == "applied: schema version 1\n"
    assert shop.json("query", "select id, name, city from shop.customer")["columns"] == ["id", "name", "city"]
    assert shop.ok("apply", "--yes").out == "nothing to apply\n"
    assert shop.json("apply", "--yes") == {"format_version": 1, "connection": "shop", "version": 1, "steps": []}
    assert shop.ok("plan").out == "nothing to do: the destination is up to date\n"


def test_apply_asks_on_a_terminal(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def confirm(question: str, **_: object) -> bool:
        asked.append(question)
        return len(asked) > 1

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", confirm)
    assert shop.run("apply").code == 3
    assert shop.run("apply", "--no-input").code == 3
    assert shop.run("apply").code == 0
    assert asked == ["Apply these changes?"] * 2


def test_apply_as_json_says_what_it_did(shop: Shop) -> None:
    assert shop.json("apply", "--yes")["steps"] == [
        "table shop.customer added (6 columns)", "table shop.order added (6 columns)",
    ]  # fmt: skip


def test_exit_code_tells_ci_of_changes(shop: Shop) -> None:
    assert shop.run("plan", "--exit-code").code == 2
    assert shop.run("detect", "--exit-code").code == 2
    shop.applied()
    assert shop.run("plan", "--exit-code").code == 0
    assert shop.run("detect", "--exit-code").code == 0
    shop.sql("alter table customer drop column city")
    assert shop.run("plan", "--exit-code").code == 2
    shop.ok("changes", "reject", shop.changes()[REMOVED])
    assert shop.run("plan", "--exit-code").code == 0
    assert shop.run("detect", "--exit-code").code == 0


def test_a_removal_that_is_not_believed_yet_is_a_change(shop: Shop) -> None:
    shop.write(text=PROJECT.replace("{on: [column.removed], decide: review}", "{on: [schema.removed], decide: review}"))
    shop.applied()
    shop.sql("alter table customer drop column city")
    assert shop.run("plan", "--exit-code").code == 2
    assert "seen as removed 1 of 2 times" in shop.ok("plan").out
    shop.ok("detect")
    shop.ok("detect")
    out = shop.ok("plan").out
    assert (f"  - {REMOVED}" in out, "Not applied" in out) == (True, False)


def test_what_is_held_stays_and_what_is_let_in_is_applied(shop: Shop) -> None:
    shop.applied()
    shop.sql(CHANGED)
    out = shop.ok("plan").out
    assert f"Not applied\n  - {REMOVED}\n        waits for a review (rule 1 of policy careful)" in out
    assert "+ column shop.order.note added (string)" in out
    assert f"Waiting for you: {shop.changes()[REMOVED]}" in out
    assert "How tables are synced" not in out
    assert "main.order: upsert" in shop.ok("plan", "--all").out
    shop.ok("apply", "--yes")
    assert "note" in shop.json("query", 'select * from shop."order"')["columns"]
    assert "city" in shop.json("query", "select * from shop.customer")["columns"]
    assert list(shop.changes()) == [REMOVED]


def test_detect_records_and_counts(shop: Shop) -> None:
    shop.applied()
    shop.sql(CHANGED)
    assert {c["summary"]: (c["action"], c["seen"]) for c in shop.json("detect")["changes"]} == {
        REMOVED: ("review", 1), ADDED: ("apply", 1),
    }  # fmt: skip
    assert [c["seen"] for c in shop.json("detect")["changes"]] == [2, 2]
    assert ADDED in shop.ok("detect").out


def test_a_plan_file_is_applied_as_it_stands(shop: Shop) -> None:
    file = shop.folder / "plan.json"
    said = shop.ok("plan", "-o", str(file))
    assert f"instep apply {file}" in said.err
    assert json.loads(file.read_text())["connection"] == "shop"
    assert shop.run("apply", str(file)).code == 3
    assert shop.ok("apply", str(file), "--yes").out == "applied: schema version 1\n"


def test_a_plan_as_json_is_a_plan_file(shop: Shop) -> None:
    file = shop.folder / "from stdout.json"
    file.write_text(shop.ok("plan", "--output", "json").out)
    assert shop.ok("apply", "-y", str(file)).out == "applied: schema version 1\n"


MOVES = [
    ("the accepted schema moved", lambda shop: shop.ok("apply", "--yes")),
    ("it was applied already", lambda shop: shop.ok("apply", str(shop.folder / "plan.json"), "--yes")),
]


@pytest.mark.parametrize("move", [case[1] for case in MOVES], ids=[case[0] for case in MOVES])
def test_a_stale_plan_is_refused(shop: Shop, move: object) -> None:
    file = shop.folder / "plan.json"
    shop.ok("plan", "-o", str(file))
    move(shop)  # type: ignore[operator]
    said = shop.run("apply", str(file), "--yes")
    assert (said.code, "plan again" in said.err or "instep plan" in said.err) == (5, True), said
    problem = shop.run("apply", str(file), "--yes", "--output", "json").json
    assert (problem["type"], problem["exit_code"]) == ("urn:instep:StalePlan", 5)


NOT_PLANS = [
    ("not JSON", "nonsense {", "is not a plan file"),
    ("JSON of another kind", '["a"]', "is not a plan file"),
    ("a plan of nothing", '{"connection": "shop", "plan": {}}', "the plan has format version None, not 1"),
    ("of another project", '{"connection": "other", "plan": {}}', "unknown connection 'other'"),
]


@pytest.mark.parametrize(("text", "said"), [case[1:] for case in NOT_PLANS], ids=[case[0] for case in NOT_PLANS])
def test_what_is_no_plan_file_is_refused(shop: Shop, text: str, said: str) -> None:
    file = shop.folder / "plan.json"
    file.write_text(text)
    answer = shop.run("apply", str(file), "--yes")
    assert (answer.code, said in answer.err) == (1, True), answer


def test_a_plan_file_that_is_not_there(shop: Shop) -> None:
    for name in ("plan.json", "plans/today"):
        said = shop.run("apply", name, "--yes")
        assert (said.code, f"there is no plan file {name}" in said.err) == (1, True)
    assert "unknown connection 'plan'" in shop.run("apply", "plan", "--yes").err
    nowhere = shop.folder / "no" / "plan.json"
    said = shop.run("plan", "-o", str(nowhere))
    assert (said.code, f"{nowhere}: No such file or directory" in said.err) == (1, True)


def test_a_drop_needs_to_be_named(shop: Shop) -> None:
    shop.applied()
    shop.sql("alter table customer drop column city")
    text = shop.folder.joinpath("instep.yml").read_text()
    shop.folder.joinpath("instep.yml").write_text(
        text.replace("decide: review", "decide: apply, removed: drop").replace("allow_all", "approve")
    )
    confirmed = [shop.run("detect") for _ in range(2)]
    assert [said.code for said in confirmed] == [0, 0]
    assert "drops shop.customer.city (allowed by" in shop.ok("plan").out
    assert shop.ok("apply", "--yes").out == "applied: schema version 2\n"
    assert shop.json("query", "select * from shop.customer")["columns"][:2] == ["id", "name"]
    assert "city" not in shop.json("query", "select * from shop.customer")["columns"]


def test_a_rename_is_followed_by_the_column_s_id(shop: Shop, postgres: Database) -> None:
    postgres.execute("create table item (id int primary key, phone text)")
    config = postgres.reader
    shop.write(
        f"{{type: postgres, host: 127.0.0.1, port: {config.port}, database: {config.database}, "
        f"user: {config.user}, password: '${{env:PG_PASSWORD}}'}}"
    )
    Path(shop.folder, ".env").write_text(f"PG_PASSWORD={config.password}\n")
    shop.applied()
    postgres.execute("alter table item rename phone to mobile")
    assert "~ column shop.item.phone renamed to mobile" in shop.ok("plan").out
    shop.ok("apply", "--yes")
    assert shop.json("query", "select * from shop.item")["columns"][:2] == ["id", "mobile"]


def test_a_run_under_way_is_5(shop: Shop) -> None:
    shop.ok("plan")
    with shop.store() as store:
        run = store.runs.claim("shop", "sync", "another")
        said = shop.run("apply", "--yes")
        assert said.code == 5, said
        assert run.id in said.err
        store.runs.finish(run, "done", "")
    assert shop.run("apply", "--yes").code == 0


def test_which_connection_has_to_be_said_if_there_are_two(shop: Shop) -> None:
    text = shop.folder.joinpath("instep.yml").read_text()
    shop.folder.joinpath("instep.yml").write_text(text + "  twin: {source: db, destination: lake}\n")

    def refused(said: Said) -> bool:
        return said.code == 1 and "CONNECTION or by -c (see --help): shop, twin" in said.err

    assert refused(shop.run("plan"))
    assert refused(shop.run("apply", "--yes"))
    assert refused(shop.run("detect"))
    assert shop.ok("plan", "twin").out.count("table twin.") == 2
