"""An undo waits until it is done."""

from __future__ import annotations

from instep.store.store import Store


def test_an_undo_waits_once_and_ends_once(any_store: Store) -> None:
    first = any_store.undos.request("shop", ["c-1", "c-2"], ["shop.t"], "ana")
    assert any_store.undos.request("shop", ["c-1", "c-2"], [], "bo") == first
    second = any_store.undos.request("shop", ["c-1"], [], "ana")
    assert any_store.undos.waiting("shop") == [first, second]
    any_store.undos.end(first.number)
    any_store.undos.end(first.number)
    assert any_store.undos.waiting("shop") == [second]
    assert any_store.undos.waiting("twin") == []
    assert any_store.undos.request("shop", ["c-1", "c-2"], [], "bo").number > second.number
