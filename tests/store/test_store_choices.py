"""Keys and cursors that people chose: the last one counts, and they follow their table."""

from __future__ import annotations

from instep.store.catalogs.choices import KeyChoice
from instep.store.store import Store

A, B = ("public", "a"), ("public", "b")


def chosen(store: Store, connection: str = "shop") -> dict[tuple[str, str], tuple[tuple[str, ...], str, str]]:
    return {(c.table[1], c.what): (c.value, c.start, c.who) for c in store.choices.of(connection).values()}


def test_the_last_choice_counts(any_store: Store) -> None:
    any_store.choices.set("shop", A, "key", ("id",), who="ana")
    any_store.choices.set("shop", A, "key", ("x", "né"), who="bo")
    any_store.choices.set("shop", A, "cursor", ("at",), start="2026-01-01", who="ana")
    assert chosen(any_store) == {("a", "key"): (("x", "né"), "", "bo"), ("a", "cursor"): (("at",), "2026-01-01", "ana")}
    assert isinstance(any_store.choices.of("shop")[A, "key"], KeyChoice)
    assert chosen(any_store, "twin") == {}


def test_no_cursor_is_a_choice_and_dropping_it_is_none(store: Store) -> None:
    store.choices.set("shop", A, "cursor", (), who="ana")
    assert chosen(store) == {("a", "cursor"): ((), "", "ana")}
    store.choices.drop("shop", A, "cursor")
    store.choices.drop("shop", A, "key")
    assert chosen(store) == {}


def test_choices_follow_tables_that_swap_their_names(store: Store) -> None:
    store.choices.set("shop", A, "key", ("id",), who="ana")
    store.choices.set("shop", B, "key", ("x",), start="", who="bo")
    store.choices.set("shop", B, "cursor", ("at",), start="5", who="bo")
    store.choices.move("shop", {A: B, B: A})
    assert chosen(store) == {
        ("b", "key"): (("id",), "", "ana"), ("a", "key"): (("x",), "", "bo"), ("a", "cursor"): (("at",), "5", "bo"),
    }  # fmt: skip
