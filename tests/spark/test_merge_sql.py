"""The SQL of a merge: names and literals quoted, cases only where they belong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from instep.spark.merge import MergePlan, absent_sql, edits_sql, name, text

PLAN = MergePlan(
    table=("lake", "shop", "or`ders"),
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


@pytest.mark.parametrize(
    ("plan", "present", "absent"),
    [
        (
            PLAN,
            ["t.c0 = s.c0 AND t.c1 = s.c1", "'inserted'", "'updated'"],
            ["'marked'", "'removed'", "FROM k", "cursor"],
        ),
        (replace(PLAN, complete=True), ["WHEN NOT coalesce(t.deleted, false) THEN 'marked'"], ["'removed'"]),
        (replace(PLAN, complete=True, deletes="hard"), ["WHEN true THEN 'removed'"], ["'marked'"]),
        (replace(PLAN, complete=True, deletes="ignore"), [], ["'removed'", "'marked'"]),
        (replace(PLAN, complete=True, deleted=""), [], ["'marked'", "deleted"]),
        (WITH_KEYS, ["FROM k", "'returned'", "'marked'"], ["t.here IS NULL"]),
        (replace(PLAN, requested=("l", "s", "k")), ["FROM k", "t.here IS NULL THEN NULL"], ["'returned'"]),
        (replace(PLAN, cursor="a"), ["coalesce(s.cursor >= t.cursor, true)", "cursor DESC NULLS LAST"], []),
    ],
)
def test_cases(plan: MergePlan, present: list[str], absent: list[str]) -> None:
    sql = edits_sql(plan)
    assert [p for p in present if p not in sql] == []
    assert [a for a in absent if a in sql] == []


def test_from_a_value_on_is_a_delete_and_an_insert() -> None:
    sql = edits_sql(replace(PLAN, key=(), since=("a", "o'clock", "TIMESTAMP")))
    assert "WHERE c0 >= CAST('o\\'clock' AS TIMESTAMP)" in sql
    assert "JOIN" not in sql


def test_keys_without_a_row_are_counted() -> None:
    assert absent_sql(WITH_KEYS) == "SELECT count(*) FROM k LEFT ANTI JOIN t ON t.c0 = k.c0 AND t.c1 = k.c1"
