"""The text of the MERGE: names and literals quoted, clauses only where they belong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from instep.spark.merge import MergePlan, audit_sql, known_sql, merge_sql, name, statements, text

PLAN = MergePlan(
    table=("lake", "shop", "or`ders"),
    branch="f7",
    rows=("lake", "staging", "rows"),
    key=("id", "k"),
    values=("a",),
    stamps=("_s", "_d"),
    inserted=("id", "k", "a", "old", "_s", "_d"),
    at=123,
    synced="_s",
    deleted="_d",
)
WITH_KEYS = replace(PLAN, keys=("lake", "staging", "keys"))


@pytest.mark.parametrize(("given", "quoted"), [("a", "`a`"), ("a`b", "`a``b`"), ("a.b", "`a.b`"), ("🦀", "`🦀`")])
def test_names_are_quoted(given: str, quoted: str) -> None:
    assert name(given) == quoted


@pytest.mark.parametrize(
    ("given", "quoted"), [("a", "'a'"), ("it's", "'it\\'s'"), ("\\", "'\\\\'"), ("\\'", "'\\\\\\''")]
)
def test_literals_are_quoted(given: str, quoted: str) -> None:
    assert text(given) == quoted


def test_a_merge_names_its_branch_and_compares_keys_null_safely() -> None:
    sql = merge_sql(PLAN)
    assert sql.startswith("MERGE INTO `lake`.`shop`.`or``ders`.`branch_f7` t USING")
    assert "ON t.`id` <=> s.`id` AND t.`k` <=> s.`k`" in sql
    assert "UPDATE SET t.`a` = s.`a`, t.`_s` = s.`_s`, t.`_d` = s.`_d`" in sql
    assert "INSERT (`id`, `k`, `a`, `old`, `_s`, `_d`)" in sql


@pytest.mark.parametrize(
    ("plan", "present", "absent"),
    [
        (PLAN, [], ["BY SOURCE", "coalesce(s."]),
        (replace(PLAN, complete=True), ["BY SOURCE AND NOT coalesce(t.`_d`, false) THEN UPDATE"], ["DELETE"]),
        (replace(PLAN, complete=True, deletes="hard"), ["BY SOURCE THEN DELETE"], ["true, t.`_s`"]),
        (replace(PLAN, complete=True, deletes="ignore"), [], ["BY SOURCE"]),
        (replace(PLAN, complete=True, deleted=""), [], ["BY SOURCE", "`_d`, false"]),
        (WITH_KEYS, ["FULL OUTER JOIN", "BY SOURCE"], ["NOT s.`__staged`"]),
        (replace(PLAN, cursor="a"), ["coalesce(s.`a` >= t.`a`, true)", "r.`a` DESC NULLS LAST"], []),
        (replace(PLAN, order=("f1", "f2")), ["VALUES ('f1', 0), ('f2', 1)"], []),
        (replace(PLAN, order=("f1",)), [], ["VALUES ('"]),
        (replace(PLAN, values=()), ["NOT (true)"], []),
    ],
)
def test_clauses(plan: MergePlan, present: list[str], absent: list[str]) -> None:
    sql = merge_sql(plan)
    assert [p for p in present if p not in sql] == []
    assert [a for a in absent if a in sql] == []


def test_from_a_value_on_is_a_delete_and_an_insert() -> None:
    delete, insert = statements(replace(PLAN, key=(), since=("a", "o'clock", "TIMESTAMP")))
    assert delete.endswith("WHERE `a` >= CAST('o\\'clock' AS TIMESTAMP)")
    assert insert.startswith("INSERT INTO `lake`.`shop`.`or``ders`.`branch_f7`")


def test_keys_without_a_live_row_are_counted_on_the_branch() -> None:
    sql = known_sql(WITH_KEYS)
    assert "count_if(coalesce(t.`_d`, false)) AS returned" in sql
    assert "`branch_f7` t ON t.`id` <=> k.`id`" in sql
    assert "0L AS returned" in known_sql(replace(WITH_KEYS, deleted=""))


def test_the_audit_looks_at_the_branch() -> None:
    assert "`branch_f7` t LEFT JOIN" in audit_sql(PLAN)
    assert "JOIN" not in audit_sql(replace(PLAN, key=()))
