"""Plans on record as people and scripts see them: ids, `history --plans`, `undo p-...`."""

from __future__ import annotations

import json
import re

import pytest
from cli_world import Shop

from instep.plans.costs import _final, cost_lines
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import parse
from instep.schema.changes.describe import ColumnRemoved, ColumnWidened, TableReplaced
from instep.schema.planning.step import RewriteColumn, StepChange, step

NOTE = 'alter table "order" add column note text'
ADDED = "column main.order.note added (string)"


@pytest.fixture
def grown(shop: Shop) -> Shop:
    """A column waits to be applied."""
    shop.applied()
    shop.sql(NOTE)
    return shop


def test_a_plan_file_keeps_its_id(grown: Shop) -> None:
    file = grown.folder / "plan.json"
    grown.ok("plan", "-o", str(file))
    id = json.loads(file.read_text())["id"]
    assert re.fullmatch("p-[0-9a-f]{8}", id)
    assert grown.json("plan")["id"] == id
    said = grown.ok("apply", str(file), "--yes")
    assert f"instep undo {id}" in said.err
    assert grown.json("history", "--plans")["plans"][0]["id"] == id


def test_apply_says_which_plan_it_was(grown: Shop) -> None:
    id = grown.json("apply", "--yes")["id"]
    assert [p["id"] for p in grown.json("history", "--plans", "-n", "1")["plans"]] == [id]


def test_history_shows_plans_and_their_steps(grown: Shop) -> None:
    assert grown.ok("apply", "--yes")
    out = grown.ok("history", "--plans").out
    assert re.search(r"p-[0-9a-f]{8}  done  version 2  by \S+, run r-", out)
    assert "    done     shop.order: column shop.order.note added (string)" in out
    row = grown.json("history", "--plans")["plans"][0]
    assert [(s["status"], s["kind"]) for s in row["steps"]] == [("done", "column.added")]
    assert row["version"] == 2


def test_history_without_plans(shop: Shop) -> None:
    shop.ok("plan")
    assert shop.ok("history", "--plans").out == "no plan has been applied yet\n"
    assert shop.json("history", "--plans")["plans"] == []


def test_a_plan_is_undone(grown: Shop) -> None:
    id = grown.json("apply", "--yes")["id"]
    change = grown.changes("--all")[ADDED]
    assert grown.json("undo", id, "--dry-run")["changes"] == [change]
    assert grown.ok("undo", id, "--yes").out == "undone: schema version 3\n"
    assert "no change" in grown.run("undo", grown.json("history", "--plans")["plans"][0]["id"], "--yes").err


@pytest.mark.parametrize("id", ["p-1", "x", "../p-12345678"])
def test_a_damaged_id_is_refused(grown: Shop, id: str) -> None:
    file = grown.folder / "plan.json"
    grown.ok("plan", "-o", str(file))
    file.write_text(json.dumps({**json.loads(file.read_text()), "id": id}))
    said = grown.run("apply", str(file), "--yes")
    assert (said.code, "is not a plan file" in said.err) == (1, True)


def test_a_plan_says_what_it_costs(grown: Shop) -> None:
    found = grown.json("plan", "--sample", "0")["costs"]
    assert found["lossy"] == []
    assert [(s["table"], s["touches"]["rows"], s["reversible"]) for s in found["steps"]] == [("shop.order", 0, True)]
    assert found["steps"][0]["estimate"] is None
    assert "What it costs" not in grown.ok("plan").out


def test_what_is_worth_telling() -> None:
    told = {
        "table": "shop.t",
        "text": "rewrite column a",
        "reversible": False,
        "final": "it is final",
        "estimate": {"text": "unknown"},
    }
    filled = {"text": "t.b is filled: reads 3", "estimate": {"text": "about 3 s"}}
    held = {"text": "t.c: 2 of 3", "invalid_values": 2, "why_not": ""}
    odd = {"text": "t.a: 1 of 3", "invalid_values": 1, "changed": 0}
    lines = [line for line, _ in cost_lines({"steps": [told], "backfills": [filled], "lossy": [odd], "held": [held]})]
    assert lines == [
        "What it costs", "  shop.t: rewrite column a: unknown", "  t.b is filled: reads 3: about 3 s",
        "  shop.t: rewrite column a: it is final", "  t.a: 1 of 3", "  t.c: 2 of 3",
    ]  # fmt: skip
    assert list(cost_lines({"steps": [], "backfills": [], "lossy": [], "held": []})) == []


def test_a_plan_in_sql(grown: Shop) -> None:
    sql = "ALTER TABLE `shop`.`order` ADD COLUMN `note` STRING;"
    assert grown.json("plan")["ddl"] == [sql]
    assert (
        f"Equivalent SQL (for reference; instep executes the steps above)\n  {sql}\n" in grown.ok("plan", "--ddl").out
    )
    assert "ALTER TABLE" not in grown.ok("plan").out


A, WIDE, TEXT = (Column("a", parse(t)) for t in ("int32", "int64", "string"))
REF = ("shop", "t")
FINAL: list[tuple[StepChange, str]] = [
    (ColumnWidened(REF, A, WIDE), "undo is refused once a value needs the new type"),
    (RewriteColumn(REF, A, TEXT), "undo is refused once a value needs the new type"),
    (RewriteColumn(REF, TEXT, A), "it cannot be undone: its values were cast to the new type"),
    (TableReplaced(Table(*REF, (A,)), Table(*REF, (TEXT,))), "it cannot be undone: the rows of the new generation"),
    (ColumnRemoved(REF, A, 0), ""),
]


@pytest.mark.parametrize(("change", "why"), FINAL, ids=[f"{c.kind}-{i}" for i, (c, _) in enumerate(FINAL)])
def test_what_cannot_be_taken_back_says_why(change: StepChange, why: str) -> None:
    found = _final(step(REF, change))
    assert found.startswith(why)
    assert bool(found) == bool(why)
