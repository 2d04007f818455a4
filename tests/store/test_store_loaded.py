"""What the last loads had of each table comes out as it went in, and follows renames."""

from __future__ import annotations

from instep.schema.reselect import LoadedColumn
from instep.store.store import Store

A, B, C = ("s", "a"), ("s", "b"), ("s", "c")
ONE = (LoadedColumn("id", "1"), LoadedColumn("name", None, read=False, hashed=True))
TWO = (LoadedColumn("id"),)


def test_loaded_columns(any_store: Store) -> None:
    loaded = any_store.loaded
    assert loaded.of("c") == {}
    loaded.save("c", {A: ONE, B: TWO})
    loaded.save("c", {B: ONE})
    loaded.save("d", {A: TWO})
    assert (loaded.of("c"), loaded.of("d")) == ({A: ONE, B: ONE}, {A: TWO})


def test_renamed_tables(any_store: Store) -> None:
    loaded = any_store.loaded
    loaded.save("c", {A: ONE, B: TWO})
    loaded.move("c", {A: B, B: A})
    assert loaded.of("c") == {A: TWO, B: ONE}
    loaded.move("c", {A: C})
    assert loaded.of("c") == {B: ONE, C: TWO}
    loaded.move("c", {})
    assert loaded.of("c") == {B: ONE, C: TWO}
