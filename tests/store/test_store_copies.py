"""Copies stand until they are purged, and follow their table."""

from __future__ import annotations

from instep.store.store import Store

A, B = ("public", "a"), ("public", "b")
PLACE = ("shop", "a__before_20260301")


def test_a_copy_is_recorded_once_follows_its_table_and_ends(any_store: Store) -> None:
    for _ in range(2):
        any_store.copies.add("shop", A, PLACE, why="key", rows=3)
    any_store.copies.add("shop", B, ("shop", "b__before_20260301"), why="key", rows=1)
    any_store.copies.move("shop", {A: B, B: A})
    first, second = any_store.copies.existing("shop")
    assert (first.table, first.place, first.why, first.rows, second.table) == (B, PLACE, "key", 3, A)
    any_store.copies.end(first.number)
    any_store.copies.end(first.number)
    assert any_store.copies.existing("shop") == [second]
    assert any_store.copies.existing("twin") == []
    any_store.copies.add("shop", A, PLACE, why="again", rows=4)
    assert [c.why for c in any_store.copies.existing("shop")] == ["key", "again"]
