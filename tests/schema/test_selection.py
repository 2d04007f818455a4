"""Patterns, and what is on, off and hashed."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from strategies import TEXT, catalogs

from instep.errors import SchemaError
from instep.project.sections.channels import Notify
from instep.schema.catalog.catalog import Catalog, Column, Table, row_id
from instep.schema.catalog.globs import fits_glob
from instep.schema.catalog.regex import Expression
from instep.schema.catalog.types import parse
from instep.schema.changes.kinds import ColumnAdded
from instep.schema.policy.policy import Rule, names
from instep.schema.selection.pii import Protect
from instep.schema.selection.selection import (
    Pattern,
    Selection,
    column_is_on,
    hashed,
    is_on,
    patterns,
    select,
    select_columns,
    unmatched,
)

_ONE = r"a b A . \. \w \d [ab] [^a] []a] \b \B ^ $ \A \Z { } é ß - \- | (a|b) (?:ab) (a) () (a?b) \n {}"
_NUMBERED = r"\x61 \u00e9 \U00000041 \N{SOLIDUS} \061 \0"
_REPEAT = r"* + ? *+ {,} {2} {1,3} {,2} {1,} *? +? {0} ?? {2}? ( ) )? ){1}"
PARTS = re.split(" ", f"{_ONE} {_NUMBERED} {_REPEAT}")


def table(path: str, *columns: str, key: str = "", **more: object) -> Table:
    schema, _, name = path.rpartition(".")
    made = tuple(Column(c, parse("int32"), key=int(c == key)) for c in columns)
    return Table(schema, name, made, **more)  # type: ignore[arg-type]


MATCHES = [
    ("public.orders", "public.orders", True),
    ("public.orders", "public.Orders", False),
    ("public.orders", "public.orders_2", False),
    ("public.*", "public.orders", True),
    ("public.*", "publicXorders", False),
    ("*", "public.a.b", True),
    ("public.o?ders", "public.orders", True),
    ("public.[a-m]*", "public.orders", False),
    ("public.[!a-m]*", "public.orders", True),
    ("public.[", "public.[", True),
    ("public.a*b", "public.a*b", True),
    ("re:public\\.(orders|items)", "public.items", True),
    ("re:public\\.(orders|items)", "public.items_2", False),
    ("re:(?i)PUBLIC\\..*", "public.items", True),
    ("*.*.ssn", "public.people.ssn", True),
    ("public.line\nbreak", "public.line\nbreak", True),
    ("public.*", "public.line\nbreak", True),
]


@pytest.mark.parametrize(("text", "path", "matches"), MATCHES)
def test_patterns(text: str, path: str, matches: bool) -> None:
    assert Pattern(text).matches(path) is matches


@given(TEXT)
def test_every_name_matches_itself(name: str) -> None:
    if not name.startswith("re:"):
        assert Pattern(name).matches(name)


REFUSED = [
    ("re:(a+)+", "repeats a group"),
    ("re:(a*)*b", "repeats a group"),
    ("re:((a)+)*", "repeats a group"),
    ("re:(?:a|a)*", "repeats a group"),
    ("re:(a?){20}", "repeats a group"),
    ("re:(x(a{9}))+", "repeats a group"),
    ("re:.*.*.*.*.*x", "more than 4 repeats"),
    ("re:a?a?a?a?a?aaaaa", "more than 4 repeats"),
    ("re:a{1000}", "repeats more than 100 times"),
    ("re:a{1,101}", "repeats more than 100 times"),
    ("re:(a)\\1", "which may be slow"),
    ("re:a*+b", "which may be slow"),
    ("re:a{2}+b", "which may be slow"),
    ("re:(?=a)a", "which may be slow"),
    ("re:(?<!a)a", "which may be slow"),
    ("re:(?P<n>a)(?P=n)", "which may be slow"),
    ("re:" + "a" * 201, "longer than 200"),
    ("re:(", "not valid"),
    ("re:[", "not valid"),
    ("re:*", "not valid"),
    ("", "matches nothing"),
]


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_a_pattern_that_is_wrong_or_may_be_slow_is_refused(text: str, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        Pattern(text)


ALLOWED = ["re:(ab)*", "re:((ab)+)?x", "re:[(+*]+", "re:\\(a+\\)+", "re:a{50}b+", "re:.*?_log_.*", "re:(?:a|b)c"]


@pytest.mark.parametrize("text", ALLOWED)
def test_a_pattern_that_is_surely_quick_is_allowed(text: str) -> None:
    assert Pattern(text).is_regex


@given(
    st.lists(st.sampled_from(PARTS), max_size=8), st.sampled_from(["", "(?i)"]), st.text("abA.1é- \n{}ßs", max_size=7)
)
def test_a_long_text_is_matched_as_python_matches_it(parts: list[str], flags: str, text: str) -> None:
    """By the states that a text leads to, instead of by every way through it."""
    found = flags + "".join(parts)
    try:
        Pattern(f"re:{found}")
    except (SchemaError, FutureWarning):
        return
    states = Expression(found)._states
    assert states is not None, "whatever is allowed is read in a time that grows with the text"
    assert states.matches(text, whole=True) is (re.fullmatch(found, text) is not None)
    assert states.matches(text, whole=False) is (re.search(found, text) is not None)


LONG = "a" * 20_000
"""A name or a value that a source may have."""


@pytest.mark.parametrize(
    "text",
    [
        *(".*.*.*.*b", "a*a*a*a*b", "[a-z]*a[a-z]*a[a-z]*b", "(?i).*.*.*.*B", "(a+)?.*b"),
        *(r"a*a*a*a*\x62", r"\x61*\x61*\x61*\x61*b", r"a*a*a*a*\u0062", r"a*a*a*a*\N{LATIN SMALL LETTER B}"),
        *(r"a*a*a*(?:a{})?b", r"a*a*a*\0*b", r"[\x61]*a{,}a*a{1,}\U00000062"),
    ],
)
def test_a_long_name_or_value_ends_an_expression_soon(text: str) -> None:
    """Python's engine would try a power of its length: whoever writes a pattern, or a source that is given one, must
    keep nobody else waiting."""
    assert not Pattern(f"re:{text}").matches(LONG)
    assert Pattern(f"re:{text}").matches(f"{LONG}b")
    assert not names(f"re:{text}$", ColumnAdded(("main", "t"), Column(LONG, parse("int32")), 1))
    assert not Protect("review", values={"own": text}).looks([LONG])


@given(st.text("[]!-ab*?^\\.", max_size=9), st.text("[]!-ab^\\.", max_size=5))
def test_a_glob_means_what_python_makes_of_it(glob: str, name: str) -> None:
    assert fits_glob(name, glob) == fnmatchcase(name, glob)


@pytest.mark.parametrize("part", ["[", "[!", "truncate[", "[a-"])
def test_a_long_glob_is_read_soon(part: str) -> None:
    """Wherever somebody may write one over the API: the time grew with the square of what nothing ends."""
    glob = "*" + part * (60_000 // len(part))
    change = ColumnAdded(("s", "t"), Column("c", parse("int32")), 0)
    assert not Pattern(glob).matches("s.t")
    assert not names(glob, change)
    with pytest.raises(ValidationError):
        Notify.model_validate({"on": ["detected"], "to": "x", "kinds": [glob]})
    with pytest.raises(SchemaError):
        Rule(on=(glob,), decide="apply")


@pytest.mark.timeout(300)
@given(st.text("ab|*+?(){1,}[].\\", max_size=14), st.sampled_from(["a", "ab", "b"]))
def test_no_allowed_expression_hangs(text: str, part: str) -> None:
    try:
        pattern = Pattern("re:" + text)
    except (SchemaError, FutureWarning):
        return
    pattern.matches(part * 60 + "!")


ORDERS = table("public.orders", "id", "email", "note", key="id")
VIEW = table("public.totals", "n", kind="materialized_view")
BARE = Selection()
ON = [
    ("nothing chosen", BARE, ORDERS, True, "every table is included"),
    ("a view", BARE, VIEW, False, "a materialized view: include it by its exact name to read it"),
    (
        "a view, all included",
        Selection(patterns(["*"])),
        VIEW,
        False,
        "a materialized view: include it by its exact name to read it",
    ),
    ("a view by name", Selection(patterns(["public.totals"])), VIEW, True, "included by public.totals"),
    ("a view switched on", Selection(on=frozenset(["public.totals"])), VIEW, True, "switched on"),
    ("included", Selection(patterns(["x.y", "public.*"])), ORDERS, True, "included by public.*"),
    ("not included", Selection(patterns(["x.y"])), ORDERS, False, "no include pattern matches it"),
    ("excluded", Selection(exclude_tables=patterns(["*.ord*"])), ORDERS, False, "excluded by *.ord*"),
    (
        "excluded though included",
        Selection(patterns(["public.orders"]), patterns(["public.*"])),
        ORDERS,
        False,
        "excluded by public.*",
    ),
    (
        "on outranks exclusion",
        Selection(exclude_tables=patterns(["*"]), on=frozenset(["public.orders"])),
        ORDERS,
        True,
        "switched on",
    ),
    (
        "off outranks inclusion",
        Selection(patterns(["public.orders"]), off=frozenset(["public.orders"])),
        ORDERS,
        False,
        "switched off",
    ),
]


@pytest.mark.parametrize(("name", "selection", "asked", "on", "why"), ON)
def test_which_tables_are_on_and_why(name: str, selection: Selection, asked: Table, on: bool, why: str) -> None:
    assert is_on(selection, asked) == (on, why), name
    assert bool(select(selection, Catalog((asked,))).tables) == on


COLUMNS = [
    ("nothing chosen", BARE, "email", True, False, "every column of a table that is on"),
    ("excluded", Selection(exclude_columns=patterns(["*.email"])), "email", False, True, "excluded by *.email"),
    ("switched off", Selection(off=frozenset(["public.orders.email"])), "email", False, True, "switched off"),
    (
        "switched on",
        Selection(exclude_columns=patterns(["*.email"]), on=frozenset(["public.orders.email"])),
        "email",
        True,
        False,
        "switched on",
    ),
    ("hashed", Selection(hashed=patterns(["*.email"])), "email", True, True, "every column of a table that is on"),
    (
        "hashed and switched on",
        Selection(hashed=patterns(["*.email"]), on=frozenset(["public.orders.email"])),
        "email",
        True,
        True,
        "switched on",
    ),
    (
        "key excluded",
        Selection(exclude_columns=patterns(["*.id"])),
        "id",
        True,
        True,
        "excluded by *.id, but it identifies rows: kept, hashed",
    ),
    (
        "key switched off",
        Selection(off=frozenset(["public.orders.id"])),
        "id",
        True,
        True,
        "switched off, but it identifies rows: kept, hashed",
    ),
]


@pytest.mark.parametrize(("name", "selection", "column", "on", "is_hashed", "why"), COLUMNS)
def test_which_columns_are_on_or_hashed_and_why(
    name: str, selection: Selection, column: str, on: bool, is_hashed: bool, why: str
) -> None:
    assert column_is_on(selection, ORDERS, ORDERS.by_name[column]) == (on, why), name
    assert (column in select_columns(selection, ORDERS).by_name) == on
    assert hashed(selection, ORDERS.ref, column) == is_hashed


@pytest.mark.parametrize(
    ("text", "matches"), [("*", False), ("s.log.*_id", False), ("re:s\\..*_id", False), ("s.log._instep_id", True)]
)
def test_the_number_of_a_row_without_a_key_is_hashed_only_by_its_name(text: str, matches: bool) -> None:
    """Else a pattern for columns of people would fail a loaded table: its key would be another one."""
    log = Table("s", "log", (row_id(), Column("user_id", parse("int32"))))
    for selection in (Selection(hashed=patterns([text])), Selection(exclude_columns=patterns([text]))):
        assert hashed(selection, log.ref, "_instep_id") is matches
        assert ("hashed" in column_is_on(selection, log, row_id())[1]) is (matches and not selection.hashed)
        assert hashed(selection, log.ref, "user_id") is not matches


def test_a_cursor_that_is_off_is_no_cursor() -> None:
    orders = table("s.orders", "id", "at", cursor="at")
    assert select_columns(Selection(exclude_columns=patterns(["s.orders.at"])), orders).cursor is None
    assert select_columns(Selection(exclude_columns=patterns(["s.orders.id"])), orders).cursor == "at"


@given(catalogs())
def test_selecting_all_selects_all_tables(catalog: Catalog) -> None:
    assert select(BARE, catalog) == Catalog.of(t for t in catalog.tables if t.kind == "table")


@given(catalogs(), st.sampled_from(["s.*", "*.a", "re:[st]\\.[ab]"]))
def test_selecting_twice_selects_the_same(catalog: Catalog, text: str) -> None:
    selection = Selection(patterns([text]), exclude_columns=patterns(["*.*.b"]))
    once = select(selection, catalog)
    assert select(selection, once) == once


def test_patterns_that_match_nothing_are_named() -> None:
    selection = Selection(
        patterns(["public.orders", "public.oders"]),
        exclude_columns=patterns(["*.email", "*.emial"]),
        hashed=patterns(["*.ssn"]),
        on=frozenset(["public.x", "public.orders.id"]),
        off=frozenset(["public.y"]),
    )
    assert unmatched(selection, Catalog((ORDERS,))) == ("*.emial", "*.ssn", "public.y")
