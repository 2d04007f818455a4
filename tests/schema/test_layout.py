"""Layouts of tables: terms to sort by, what is said of a change, and the way to JSON and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import TEXT

from instep.errors import SchemaError
from instep.schema.catalog.layout import TableLayout, describe_layout, layout_from_dict, layout_to_dict, sort_term

TERMS = [
    ("a", ("a", "asc")), ("a asc", ("a", "asc")), ("a DESC", ("a", "desc")), ("  a   desc ", ("a", "desc")),
    ("a b", ("a b", "asc")), ("a b desc", ("a b", "desc")), ("desc desc", ("desc", "desc")), ("é", ("é", "asc")),
    ("asc asc", ("asc", "asc")), ("ascending", ("ascending", "asc")), ("asc", None), ("desc", None), ("", None),
    ("  ", None), (" DESC ", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), TERMS)
def test_terms(text: str, expected: tuple[str, str] | None) -> None:
    if expected:
        assert sort_term(text) == expected
        return
    with pytest.raises(SchemaError, match="not a column to sort by") as said:
        sort_term(text)
    assert said.value.hint


NAMES = TEXT.map(str.strip).filter(bool)
LAYOUTS = st.builds(
    TableLayout.of,
    st.dictionaries(st.sampled_from("abc"), st.sampled_from("12")),
    st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from(["asc", "desc"])), max_size=2),
)


@given(NAMES, st.sampled_from(["asc", "desc", "ASC", "Desc"]))
def test_a_direction_is_taken_off_whatever_the_name_is(name: str, direction: str) -> None:
    assert sort_term(f"{name} {direction}") == (name, direction.lower())


CHANGES = [
    ("nothing", ({}, []), ({}, []), ""),
    ("set", ({}, []), ({"b": "2", "a": "1"}, []), "set a = 1; set b = 2"),
    ("another value", ({"a": "1"}, []), ({"a": "2"}, []), "set a = 2"),
    ("reset", ({"a": "1", "b": "2"}, []), ({"b": "2"}, []), "reset a"),
    ("sorted", ({}, []), ({}, [("x", "asc"), ("y", "desc")]), "sort rows by x asc, y desc"),
    ("another order", ({}, [("x", "asc")]), ({}, [("x", "desc")]), "sort rows by x desc"),
    ("sorted no more", ({"a": "1"}, [("x", "asc")]), ({}, []), "reset a; stop sorting rows"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "said"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_what_is_said(
    before: tuple[dict[str, str], list[tuple[str, str]]], after: tuple[dict[str, str], list[tuple[str, str]]], said: str
) -> None:
    assert describe_layout(TableLayout.of(*before), TableLayout.of(*after)) == said


@given(LAYOUTS, LAYOUTS)
def test_every_difference_is_said_and_nothing_is_lost_on_the_way(one: TableLayout, two: TableLayout) -> None:
    assert bool(describe_layout(one, two)) == (one != two)
    assert layout_from_dict(json.loads(json.dumps(layout_to_dict(one)))) == one


@given(LAYOUTS, LAYOUTS)
def test_what_is_said_leads_there(one: TableLayout, two: TableLayout) -> None:
    now, sort = dict(one.properties), one.sort
    for part in filter(None, describe_layout(one, two).split("; ")):
        what, _, rest = part.partition(" ")
        if what == "set":
            name, _, value = rest.partition(" = ")
            now[name] = value
        elif what == "reset":
            del now[rest]
        else:
            terms = rest.removeprefix("rows by ").split(", ")
            sort = () if part == "stop sorting rows" else tuple(sort_term(t) for t in terms)
    assert TableLayout.of(now, sort) == two
