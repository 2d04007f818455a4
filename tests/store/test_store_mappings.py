"""Mappings wait until they are carried out."""

from __future__ import annotations

from instep.store.store import Store

TABLE = ("public", "orders")


def test_a_mapping_waits_once_and_ends_once(any_store: Store) -> None:
    first = any_store.mappings.request("shop", TABLE, "a", "b", "ana")
    assert any_store.mappings.request("shop", TABLE, "a", "b", "bo") == first
    second = any_store.mappings.request("shop", TABLE, "a", "c", "ana")
    assert any_store.mappings.waiting("shop") == [first, second]
    any_store.mappings.end(first.number)
    any_store.mappings.end(first.number)
    assert any_store.mappings.waiting("shop") == [second]
    assert any_store.mappings.waiting("twin") == []
    assert any_store.mappings.request("shop", TABLE, "a", "b", "bo").number > second.number
