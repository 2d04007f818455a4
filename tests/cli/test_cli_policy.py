"""`policy show`, `explain`, `test` and `simulate`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_world import CHANGED, REMOVED, Shop

ADDED = "column main.order.note added (string)"
CASES = """\
- {change: column.removed, table: main.customer, column: city, expect: review, rule: rule 1}
- {change: column.added, table: main.order, column: x, expect: apply}
"""


@pytest.fixture
def changed(shop: Shop) -> Shop:
    """One change waits by a rule, one is let in by the preset."""
    shop.applied()
    shop.sql(CHANGED)
    shop.ok("detect")
    return shop


def file(shop: Shop, text: str, name: str = "it.yml") -> str:
    path = shop.folder / name
    path.write_text(text)
    return str(path)


def test_show_tells_rules_with_their_lines(shop: Shop) -> None:
    lines = shop.ok("policy", "show").out.splitlines()
    assert lines[0] == "shop: policy careful, preset allow_all"
    assert lines[1] == "  rule 1 {on: [column.removed], decide: review}  instep.yml:11"
    assert next(line for line in lines if line.startswith("column.removed")).split()[1:] == [
        "apply,",
        "removed:",
        "retain",
    ]
    found = shop.json("policy", "show", "shop")
    assert (found["preset"], found["rules"][0]["text"]) == ("allow_all", "{on: [column.removed], decide: review}")
    assert len(found["kinds"]) == 24


def test_show_tells_what_differs_for_a_table(shop: Shop) -> None:
    path = shop.folder / "instep.yml"
    own = (
        "    tables: {main.order: {preset: stop, removed: drop, rules: [{on: key, decide: review}]}}\n    tags: [eu]\n"
    )
    path.write_text(
        path.read_text().replace("{source: db, destination: lake, policy: careful}", "\n    policy: careful\n" + own)
    )
    out = shop.ok("policy", "show").out
    assert "  tags: eu\n" in out
    assert (
        "  override main.order: preset stop, removed: drop\n    rule 1 {on: [key], decide: review}  instep.yml:" in out
    )
    [override] = shop.json("policy", "show")["overrides"]
    assert (override["match"], override["rules"][0]["number"]) == ("main.order", 1)


def test_explain_names_the_rule_and_those_before(shop: Shop) -> None:
    shop.applied()
    out = shop.ok("policy", "explain", "main.order.amount", "column.widened").out
    assert out.splitlines()[:5] == [
        "column main.order.amount widened from decimal(10,2) to string",
        "  apply: applied",
        "  by preset allow_all  instep.yml:9",
        "  not by rule 1 of policy careful {on: [column.removed], decide: review}  instep.yml:11",
        "    kind: it is about column.removed",
    ]
    assert "  removed: retain  (default)\n" in out
    out = shop.ok("policy", "explain", "main.order.amount", "column.removed").out
    assert "  by rule 1 of policy careful {on: [column.removed], decide: review}  instep.yml:11\n" in out
    assert "  removed: retain  (preset allow_all)\n" in out


def test_explain_in_json(shop: Shop) -> None:
    found = shop.json("policy", "explain", "main.order", "key.removed", "-c", "shop")
    assert found["decision"] == {
        "action": "pause_table", "effect": "", "rule": "preset allow_all",
        "why": "the table is paused until it is reviewed",
    }  # fmt: skip
    [rule, preset] = found["evaluations"]
    assert (rule["decided"], rule["misses"]) == (False, [{"part": "kind", "why": "it is about column.removed"}])
    assert (preset["decided"], preset["where"], preset["level"]) == (True, "instep.yml:9", "preset")
    assert found["modifiers"]["backfill"] == {"value": "none", "by": "default"}
    assert found["recorded"] is None


def test_explain_knows_what_was_found_and_answered(changed: Shop) -> None:
    id = changed.changes()[REMOVED]
    out = changed.ok("policy", "explain", "main.customer.city", "column.removed").out
    assert out.startswith(f"{REMOVED}  (recorded as {id})\n  review: waits for a review\n")
    changed.ok("changes", "approve", id)
    found = changed.json("policy", "explain", "main.customer.city", "column.removed")
    assert (found["decision"]["action"], found["decision"]["rule"], found["recorded"]) == ("apply", "review", id)
    assert any("two detections" in note for note in found["notes"])


WRONG = [
    (("policy", "explain", "main.order", "key.chnged"), 1, "did you mean 'key.changed'?"),
    (("policy", "explain", "main.order", "column.added"), 1, "write main.order.COLUMN"),
    (("policy", "explain", "a.b.c", "column.widened", "--from", "int64", "--to", "int32"), 1, "is column.narrowed"),
    (("policy", "explain", "a.b.c"), 64, "KIND"),
    (("policy", "explain", "a.b", "key.removed", "-c", "shp"), 1, "did you mean 'shop'?"),
    (("policy", "show", "shp"), 1, "did you mean 'shop'?"),
    (("policy", "test", "nothing.yml"), 1, "nothing.yml does not exist"),
    (("policy", "simulate", "nothing.yml"), 1, "nothing.yml does not exist"),
]


@pytest.mark.parametrize(("words", "code", "said"), WRONG, ids=[" ".join(w[0][1:]) for w in WRONG])
def test_what_is_wrong_is_told(shop: Shop, words: tuple[str, ...], code: int, said: str) -> None:
    answer = shop.run(*words)
    assert (answer.code, said in answer.err) == (code, True), answer


def test_cases_as_expected(shop: Shop) -> None:
    cases = file(shop, CASES)
    assert shop.ok("policy", "test", cases).out == "2 case(s), all as expected\n"
    found = shop.json("policy", "test", cases)
    assert (found["cases"], found["failed"], [r["passed"] for r in found["results"]]) == (2, 0, [True, True])


def test_more_cases_than_one_request_may_have(shop: Shop) -> None:
    assert shop.ok("policy", "test", file(shop, CASES * 501)).out == "1002 case(s), all as expected\n"


def test_a_case_that_fails_is_told_with_what_was_decided(shop: Shop) -> None:
    cases = file(shop, CASES.replace("expect: apply", "expect: review, backfill: table"))
    said = shop.run("policy", "test", cases)
    assert said.code == 1
    assert said.out.splitlines() == [
        "it.yml:2: column.added of main.order.x",
        "  expected review, decided apply",
        "  expected backfill: table, decided backfill: none",
        "  decided by preset allow_all: applied",
        "  not by rule 1 of policy careful: it is about column.removed",
        "1 of 2 case(s) as expected",
    ]
    assert said.err == ""
    found = shop.run("policy", "test", cases, "--output", "json")
    assert (found.code, found.json["failed"]) == (1, 1)
    assert found.json["results"][1]["wrong"][0] == "expected review, decided apply"


def test_wrong_cases_are_told_with_their_lines(shop: Shop) -> None:
    said = shop.run("policy", "test", file(shop, "- {change: column.removd, tabel: t, expect: apply}\n"))
    assert said.code == 1
    for part in ("it.yml:1: 0.change: unknown kind", "did you mean 'column.removed'?", "did you mean 'table'?"):
        assert part in said.err


def test_testing_and_showing_leave_no_trace(shop: Shop) -> None:
    cases = file(shop, CASES)
    before = sorted(p.name for p in shop.folder.iterdir())
    shop.ok("policy", "test", cases)
    shop.ok("policy", "show")
    assert sorted(p.name for p in shop.folder.iterdir()) == before


STRICT = "preset: approve\nrules: [{on: column.removed, decide: apply, removed: drop}]\n"


def test_simulate_compares_all_that_was_recorded(changed: Shop) -> None:
    before = changed.json("changes", "list", "--all"), changed.json("history")
    out = changed.ok("policy", "simulate", file(changed, STRICT, "strict.yml")).out.splitlines()
    assert out[0] == "shop: 5 recorded change(s), 2 decided differently"
    assert out[1].split() == ["outcome", "then", "under", "strict"]
    id, other = changed.changes()[REMOVED], changed.changes("--all")[ADDED]
    assert set(out[-2:]) == {
        f"  {id}  {REMOVED}: review, removed: retain (rule 1 of policy careful)"
        " -> apply, removed: drop (rule 1 of policy strict)",
        f"  {other}  {ADDED}: apply (preset allow_all) -> review (preset approve)",
    }
    assert (changed.json("changes", "list", "--all"), changed.json("history")) == before


def test_simulate_in_json(changed: Shop) -> None:
    [found] = changed.json("policy", "simulate", file(changed, STRICT), "-c", "shop")["connections"]
    assert (found["connection"], found["policy"], found["recorded"], found["unread"]) == ("shop", "it", 5, [])
    assert {"outcome": "apply, removed: drop", "then": 0, "now": 1} in found["counts"]
    assert {d["summary"]: d["now"]["action"] for d in found["different"]} == {REMOVED: "apply", ADDED: "review"}


def test_simulating_the_policy_in_force_changes_nothing(changed: Shop) -> None:
    same = file(changed, "preset: allow_all\nrules: [{on: column.removed, decide: review}]\n")
    [found] = changed.json("policy", "simulate", same)["connections"]
    assert found["different"] == []


def test_simulate_since(changed: Shop) -> None:
    out = changed.ok("policy", "simulate", file(changed, STRICT), "--since", "2999-01-01").out
    assert out == "shop: 0 recorded change(s), 0 decided differently\n"
    said = changed.run("policy", "simulate", file(changed, STRICT), "--since", "monday")
    assert (said.code, "'monday' is not a date" in said.err) == (1, True)


def test_simulate_takes_every_connection(changed: Shop) -> None:
    path = changed.folder / "instep.yml"
    path.write_text(path.read_text() + "  twin: {source: db, destination: lake}\n")
    found = changed.json("policy", "simulate", file(changed, STRICT))["connections"]
    assert [(c["connection"], c["recorded"]) for c in found] == [("shop", 5), ("twin", 0)]


LOADED = """\
import sys
from instep.cli.main import main
for words in {commands!r}:
    assert main(["-p", {folder!r}, *words]) == 0, words
found = {{name.partition(".")[0] for name in sys.modules}} & {{"pyspark", "py4j", "pyarrow", "pyiceberg", "duckdb"}}
rooms = {{name.split(".")[1] for name in sys.modules if name.startswith("instep.")}}
assert not found, found
assert not rooms & {{"sources", "destinations", "sync", "spark", "stage"}}, rooms
"""


def test_asking_opens_neither_source_nor_engine(shop: Shop, tmp_path: Path) -> None:
    commands = [
        ["policy", "show"],
        ["policy", "explain", "main.order", "key.removed"],
        ["policy", "test", file(shop, CASES)],
        ["policy", "simulate", file(shop, STRICT, "strict.yml")],
    ]
    code = LOADED.format(commands=commands, folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("word", ["show", "explain", "test", "simulate"])
def test_help_has_an_example(shop: Shop, word: str) -> None:
    out = shop.ok("policy", word, "--help").out
    assert f"instep policy {word}" in out.split("Example")[-1]
