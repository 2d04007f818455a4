"""Names that were probably meant: the closest come first, and without one the message says something else."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.errors import InstepError, NotFound
from instep.suggest import closest, closest_tables, did_you_mean, unknown_table

TABLES = ("public.order", "public.orders", "public.customer", "sales.refund")
names = st.text(string.ascii_lowercase + "._", min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("name", "most", "found"),
    [
        ("public.ordres", 1, ["public.orders"]),
        ("public.ordres", 3, ["public.orders", "public.order"]),
        ("sales.refunds", 3, ["sales.refund"]),
        ("xyz", 3, []),
        ("", 3, []),
    ],
)
def test_the_closest_names_come_first(name: str, most: int, found: list[str]) -> None:
    assert closest(name, TABLES, most) == found
    assert closest(name, reversed(TABLES), most) == found
    assert closest(name, set(TABLES), most) == found


def test_how_alike_names_must_be() -> None:
    assert closest("ab", ["abcdef"]) == []
    assert closest("ab", ["abcdef"], like=0.5) == ["abcdef"]
    assert did_you_mean("ab", ["abcdef"], like=0.5) == "did you mean abcdef?"


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("did you mean {}?", "did you mean sales.refund?"),
        (", did you mean {!r}?", ", did you mean 'sales.refund'?"),
        (" (did you mean {}?)", " (did you mean sales.refund?)"),
    ],
)
def test_the_question(form: str, text: str) -> None:
    assert did_you_mean("sales.refnd", TABLES, "see `instep status`", form=form) == text
    assert did_you_mean("sales.refnd", TABLES) == "did you mean sales.refund?"


def test_several_names_are_joined() -> None:
    assert did_you_mean("public.ordrs", TABLES, most=2) == "did you mean public.orders or public.order?"


def test_without_a_close_name_the_message_says_something_else() -> None:
    assert did_you_mean("xyz", TABLES, "see `instep status`") == "see `instep status`"
    assert did_you_mean("xyz", [], form="; did you mean {}?") == ""


def test_braces_in_names_are_no_placeholders() -> None:
    assert did_you_mean("a{0}b", ["a{1}b"]) == "did you mean a{1}b?"


@given(names, st.lists(names, max_size=8))
def test_only_known_names_are_suggested_and_a_known_name_is_its_own_closest(name: str, known: list[str]) -> None:
    near = closest(name, known, 3)
    assert len(near) <= 3
    assert set(near) <= set(known)
    assert closest(name, [*known, name]) == [name]


MANY = ("public.orders", "archive.orders", "public.customer", "public.Refund", "users")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("orders", ["public.orders", "archive.orders"]),
        ("sales.orders", ["public.orders", "archive.orders"]),
        ("PUBLIC.ORDERS", ["public.orders"]),
        ("public.ordres", ["public.orders"]),
        ("customr", ["public.customer"]),
        ("refund", ["public.Refund"]),
        ("sales.user", ["users"]),
        ("xyz", []),
        ("", []),
        (".", []),
    ],
)
def test_a_table_is_found_by_its_name_alone_in_another_schema_and_case(name: str, found: list[str]) -> None:
    assert closest_tables(name, MANY) == found


def test_an_unknown_table_is_an_error_that_names_the_one_that_was_meant() -> None:
    near = unknown_table("connection shop has no table customr", "customr", MANY)
    assert (type(near), near.hint) == (InstepError, "did you mean public.customer?")
    both = unknown_table("no table 'orders' is known", "orders", MANY, kind=NotFound)
    assert (type(both), both.hint) == (NotFound, "did you mean public.orders or archive.orders?")
    assert unknown_table("no {}", "xyz", []).hint == "see `instep status` for the tables that are synced"
