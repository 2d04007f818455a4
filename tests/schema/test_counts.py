"""Counts of what is new, deleted, updated and unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from strategies import pairs_of_catalogs
from world import catalog, table

from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.changes.diff import diff
from instep.schema.changes.version import Count, counts

T = table("t", "id:int32", "a:string")
U = table("u", "id:int32")
# name | before | after | schemas, tables, columns as (new, deleted, updated, unchanged)
CASES: list[tuple[str, list[Table], list[Table], list[tuple[int, int, int, int]]]] = [
    ("nothing", [], [], [(0, 0, 0, 0), (0, 0, 0, 0), (0, 0, 0, 0)]),
    ("the same", [T, U], [T, U], [(0, 0, 0, 1), (0, 0, 0, 2), (0, 0, 0, 3)]),
    ("first", [], [T, U], [(1, 0, 0, 0), (2, 0, 0, 0), (3, 0, 0, 0)]),
    ("all gone", [T, U], [], [(0, 1, 0, 0), (0, 2, 0, 0), (0, 3, 0, 0)]),
    ("a table comes", [T], [T, U], [(0, 0, 1, 0), (1, 0, 0, 1), (1, 0, 0, 2)]),
    ("a column comes, one goes", [T], [table("t", "id:int32", "b:date")],
     [(0, 0, 1, 0), (0, 0, 1, 0), (1, 1, 0, 1)]),
    ("a type changes", [T, U], [table("t", "id:int64", "a:string"), U],
     [(0, 0, 1, 0), (0, 0, 1, 1), (0, 0, 1, 2)]),
    ("a table is renamed by its id", [table("t", "id:int32", oid="7")], [table("v", "id:int32", oid="7")],
     [(0, 0, 1, 0), (0, 0, 1, 0), (0, 0, 0, 1)]),
    ("a table is replaced", [table("t", "id:int32", oid="7")], [table("t", "id:int32", "b:date", oid="8")],
     [(0, 0, 1, 0), (0, 0, 1, 0), (2, 1, 0, 0)]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "before", "after", "expected"), CASES, ids=[c[0] for c in CASES])
def test_counts(name: str, before: list[Table], after: list[Table], expected: list[tuple[int, int, int, int]]) -> None:
    old, new = catalog(*before), catalog(*after)
    found = counts(old, new, diff(old, new))
    assert [found.schemas, found.tables, found.columns] == [Count(*numbers) for numbers in expected]


def test_lines() -> None:
    old, new = catalog(T), catalog(T, U)
    assert counts(old, new, diff(old, new)).lines() == (
        "schemas: 0 new, 0 deleted, 1 updated, 0 unchanged",
        "tables: 1 new, 0 deleted, 0 updated, 1 unchanged",
        "columns: 1 new, 0 deleted, 0 updated, 2 unchanged",
    )


@given(pairs_of_catalogs())
def test_nothing_is_counted_twice_or_left_out(both: tuple[Catalog, Catalog]) -> None:
    before, after = both
    changes = diff(before, after)
    found = counts(before, after, changes)
    live = [[t for t in c.tables if not t.retained] for c in both]
    there = [[len({t.schema for t in c}), len(c), sum(len(t.live) for t in c)] for c in live]
    levels = (found.schemas, found.tables, found.columns)
    assert [c.deleted + c.updated + c.unchanged for c in levels] == there[0]
    assert [c.new + c.updated + c.unchanged for c in levels] == there[1]
    assert (found.tables.new + found.tables.deleted + found.tables.updated == 0) == (not changes)
