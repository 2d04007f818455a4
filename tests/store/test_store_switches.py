"""Switches in the store: the last word about an object, and those that follow a rename."""

from __future__ import annotations

from dataclasses import replace

from instep.schema.selection.overrides import Switch
from instep.store.store import Store

A = Switch("main", "t", "a", enabled=False, table_id="1", column_id="1.1")
B = Switch("main", "t", "b", hashed=True, table_id="1", column_id="1.2")


def test_the_last_word_counts(store: Store) -> None:
    store.switches.set("shop", [A, B], "ann")
    store.switches.set("shop", [replace(A, enabled=True)], "bo")
    found = store.switches.of("shop")
    assert found == [replace(A, enabled=True), B]
    assert [s.who for s in found] == ["bo", "ann"]
    assert found[0].at is not None
    assert (found[0].table_id, found[0].column_id) == ("1", "1.1")
    assert store.switches.of("other") == []


def test_names_that_were_swapped_are_followed_at_once(store: Store) -> None:
    store.switches.set("shop", [A, B], "ann")
    a, b = store.switches.of("shop")
    store.switches.follow("shop", [(a, replace(a, column="b")), (b, replace(b, column="a"))])
    assert store.switches.of("shop") == [replace(B, column="a"), replace(A, column="b")]
    assert {s.who for s in store.switches.of("shop")} == {"ann"}


def test_what_was_chosen_about_the_new_name_stands(store: Store) -> None:
    store.switches.set("shop", [A, B], "ann")
    a, b = store.switches.of("shop")
    store.switches.follow("shop", [(a, replace(a, column="b"))])
    assert store.switches.of("shop") == [b]


def test_schemas_and_tables_have_switches_of_their_own(store: Store) -> None:
    every = [Switch("main", enabled=False), Switch("main", "t", enabled=True), Switch("", "t", enabled=False)]
    store.switches.set("shop", every, "ann")
    assert store.switches.of("shop") == [every[2], every[0], every[1]]
    assert [s.path for s in store.switches.of("shop")] == ["t", "main", "main.t"]
