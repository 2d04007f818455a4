"""Pairing and comparing catalogs: the laws, and the cases that people name."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from strategies import catalogs, pairs_of_catalogs, tables

from events.shows import shows
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.schema.changes.describe import apply, describe, reverse, symbol
from instep.schema.changes.diff import bare, diff, pair, pair_columns
from instep.schema.planning.naming import LONGEST
from work_count import counted


@given(pairs_of_catalogs())
def test_applying_the_diff_of_two_catalogs_to_the_first_gives_the_second(two: tuple[Catalog, Catalog]) -> None:
    before, after = two
    assert apply(diff(before, after), before) == after


@given(pairs_of_catalogs())
def test_the_reverses_of_a_diff_last_first_restore_the_first_catalog(two: tuple[Catalog, Catalog]) -> None:
    before, after = two
    assert apply([reverse(c) for c in reversed(diff(before, after))], after) == before


@given(pairs_of_catalogs())
def test_a_diff_is_stable_and_its_reverses_are_involutions(two: tuple[Catalog, Catalog]) -> None:
    changes = diff(*two)
    assert diff(*two) == changes
    assert tuple(reverse(reverse(c)) for c in changes) == changes


@given(catalogs())
def test_a_catalog_does_not_differ_from_itself(catalog: Catalog) -> None:
    assert diff(catalog, catalog) == ()


def _dress(catalog: Catalog) -> Catalog:
    """The catalog as it is once accepted: with aliases, and things that only the destination still has."""
    kept = Column("gone", parse("int64"), id="77", retained=True, alias="gone")
    tables = [
        replace(
            t, alias=t.name, generation=2, columns=(kept, *(replace(c, alias=c.name, native="x") for c in t.columns))
        )
        for t in catalog.tables
    ]
    return Catalog.of([*tables, Table("s", "left", (kept,), id="99", retained=True)])


@given(pairs_of_catalogs())
def test_bookkeeping_is_not_compared_and_survives(two: tuple[Catalog, Catalog]) -> None:
    before, after = two
    accepted = _dress(before)
    assert bare(accepted) == before
    assert diff(accepted, before) == ()
    assert bare(apply(diff(accepted, after), accepted)) == after


@given(tables(), tables())
def test_each_column_is_paired_once_or_not_at_all(a: Table, b: Table) -> None:
    found = pair_columns(a, b)
    assert sorted([c.name for c, _ in found.same] + [c.name for c in found.removed]) == sorted(
        c.name for c in a.columns
    )
    assert sorted([c.name for _, c in found.same] + [c.name for c in found.added]) == sorted(c.name for c in b.columns)


_COLUMN = re.compile(
    r"(?P<retained>-)?(?P<name>\w+)(?: (?P<type>(?!not|default|comment|native).+?))??(?P<required> not null)?"
    r"(?: default (?P<default>\w+))?(?: comment (?P<comment>\w+))?(?: native (?P<native>\w+))?(?: #(?P<id>\S+))?"
)


def column(text: str) -> Column:
    """`-a int64 not null default 0 #3`: `-` for retained, an int32 without a type, `#` before an id."""
    found = _COLUMN.fullmatch(text)
    assert found, text
    kept = {k: v for k, v in found.groupdict("").items() if v and k in ("default", "comment", "native", "id")}
    kind = parse(found["type"] or "int32")
    return Column(found["name"], kind, not found["required"], retained=bool(found["retained"]), **kept)  # type: ignore[arg-type]


def table(text: str) -> Table:
    """`-s.t #1: a | b / key b a / cursor a / kind view / comment x`; in schema s without one."""
    head, _, rest = text.partition(": ")
    listed, *more = rest.split(" / ")
    options = dict(m.split(" ", 1) for m in more)
    path, _, number = head.removeprefix("-").partition(" #")
    schema, _, name = path.rpartition(".")
    places = {n: i for i, n in enumerate(options.pop("key", "").split(), 1)}
    columns = [column(c) for c in listed.split(" | ")]
    placed = tuple(replace(c, key=places.get(c.name, 0)) for c in columns)
    return Table(schema or "s", name, placed, number or None, retained=head.startswith("-"), **options)  # type: ignore[arg-type]


def catalog(text: str) -> Catalog:
    return Catalog.of(table(t) for t in text.split("; "))


COLUMNS = [
    ("added", "t: a", "t: a | b string", "+ column s.t.b added (string)"),
    ("added not null", "t: a", "t: a | b not null", "+ column s.t.b added (int32, not null)"),
    ("added in the middle", "t: a | c", "t: a | b | c", "+ column s.t.b added (int32)"),
    ("removed", "t: a | b", "t: a", "- column s.t.b removed (int32)"),
    ("renamed by id", "t: a #1", "t: z #1", "~ column s.t.a renamed to z"),
    ("renamed without id", "t: x | a", "t: x | z", "- column s.t.a removed (int32); + column s.t.z added (int32)"),
    ("swapped", "t: a #1 | b #2", "t: b #1 | a #2", "~ column s.t.a renamed to b; ~ column s.t.b renamed to a"),
    ("chain", "t: a #1 | b #2", "t: b #1 | c #2", "~ column s.t.a renamed to b; ~ column s.t.b renamed to c"),
    (
        "cycle",
        "t: a #1 | b #2 | c #3",
        "t: b #1 | c #2 | a #3",
        "~ column s.t.a renamed to b; ~ column s.t.b renamed to c; ~ column s.t.c renamed to a",
    ),
    (
        "renamed onto a dropped name",
        "t: a #1 | b #2",
        "t: b #1",
        "- column s.t.b removed (int32); ~ column s.t.a renamed to b",
    ),
    (
        "renamed, the name taken anew",
        "t: a #1",
        "t: b #1 | a #2",
        "~ column s.t.a renamed to b; + column s.t.a added (int32)",
    ),
    (
        "renamed and retyped",
        "t: a #1",
        "t: b int64 #1",
        "~ column s.t.a renamed to b; ~ column s.t.b widened from int32 to int64",
    ),
    (
        "dropped and added again",
        "t: a #1 | b #2",
        "t: a #1 | b date #3",
        "- column s.t.b removed (int32); + column s.t.b added (date)",
    ),
    ("widened", "t: a", "t: a string", "~ column s.t.a widened from int32 to string"),
    ("narrowed", "t: a", "t: a int8", "~ column s.t.a narrowed from int32 to int8"),
    ("retyped", "t: a", "t: a date", "~ column s.t.a retyped from int32 to date"),
    ("nullable", "t: a not null", "t: a", "~ column s.t.a may now be NULL"),
    ("not nullable", "t: a", "t: a not null", "~ column s.t.a may no longer be NULL"),
    ("default", "t: a", "t: a default 0", "~ default of column s.t.a set to 0"),
    ("comment", "t: a comment x", "t: a", "~ comment of column s.t.a removed (was x)"),
    ("reordered", "t: a | b", "t: b | a", "~ columns of s.t reordered: b, a"),
    ("ids appear", "t: a | b", "t #9: a #1 | b #2", ""),
    ("another text of the same type", "t: a native int", "t: a native integer", ""),
    (
        "nested field",
        't: a struct("x" int8)',
        't: a struct("x" int8, "b" date)',
        '~ column s.t.a widened from struct("x" int8) to struct("x" int8, "b" date)',
    ),
]
KEYS = [
    ("key column renamed: follows", "t: a #1 / key a", "t: b #1 / key b", "~ column s.t.a renamed to b"),
    (
        "key column removed",
        "t: a | b / key a",
        "t: b",
        "- primary key of s.t removed (was (a)); - column s.t.a removed (int32)",
    ),
    (
        "one of two removed",
        "t: a | b / key a b",
        "t: a / key a",
        "- primary key of s.t removed (was (a, b)); - column s.t.b removed (int32); ~ primary key of s.t set to (a)",
    ),
    (
        "key column made anew",
        "t: a #1 | b #2 / key a",
        "t: b #2 | a #3 / key a",
        "- primary key of s.t removed (was (a)); - column s.t.a removed (int32); "
        "+ column s.t.a added (int32); ~ primary key of s.t set to (a)",
    ),
    ("key dropped", "t: a / key a", "t: a", "- primary key of s.t removed (was (a))"),
    ("key made", "t: a", "t: a / key a", "~ primary key of s.t set to (a)"),
    ("another key", "t: a | b / key a b", "t: a | b / key b a", "~ primary key of s.t changed from (a, b) to (b, a)"),
    (
        "widened by a new column",
        "t: a / key a",
        "t: a | b / key a b",
        "+ column s.t.b added (int32); ~ primary key of s.t changed from (a) to (a, b)",
    ),
    ("cursor column renamed: follows", "t: a #1 / cursor a", "t: b #1 / cursor b", "~ column s.t.a renamed to b"),
    (
        "cursor column removed",
        "t: a | b / cursor a",
        "t: b",
        "- cursor of s.t removed (was a); - column s.t.a removed (int32)",
    ),
    ("another cursor", "t: a | b / cursor a", "t: a | b / cursor b", "~ cursor of s.t changed from a to b"),
    ("cursor set", "t: a | b", "t: a | b / cursor b", "~ cursor of s.t set to b"),
]
TABLES = [
    ("added", "t: a | b", "t: a | b; u: a", "+ table s.u added (1 column)"),
    ("removed", "t: a | b; u: a", "t: a | b", "- table s.u removed (1 column)"),
    ("schema added", "t: a | b", "t: a | b; x.u: a", "+ schema x added; + table x.u added (1 column)"),
    ("schema removed", "t: a | b; x.u: a", "t: a | b", "- table x.u removed (1 column); - schema x removed"),
    ("renamed by id", "t #1: a", "u #1: a", "~ table s.t renamed to s.u"),
    (
        "moved to another schema",
        "t #1: a",
        "x.t #1: a",
        "+ schema x added; ~ table s.t renamed to x.t; - schema s removed",
    ),
    (
        "renamed and altered",
        "t #1: a",
        "u #1: a int64",
        "~ table s.t renamed to s.u; ~ column s.u.a widened from int32 to int64",
    ),
    ("swapped", "t #1: a; u #2: b", "u #1: a; t #2: b", "~ table s.u renamed to s.t; ~ table s.t renamed to s.u"),
    (
        "swapped in",
        "t #1: a; t_new #2: a",
        "t_old #1: a; t #2: a",
        "~ table s.t_new renamed to s.t; ~ table s.t renamed to s.t_old",
    ),
    (
        "renamed onto a dropped name",
        "t #1: a; u #2: a",
        "t #2: a",
        "- table s.t removed (1 column); ~ table s.u renamed to s.t",
    ),
    ("dropped and made again", "t #1: a #1", "t #2: a #1 | b #2", "~ table s.t replaced by another table of that name"),
    ("a view in its place", "t: a", "t: a / kind view", "~ table s.t replaced by another view of that name"),
    ("a weak id proves no replacement", "t #~1: a", "t #~2: a | b", "+ column s.t.b added (int32)"),
    ("a weak id proves a rename", "t #~1: a", "u #~1: a", "~ table s.t renamed to s.u"),
    ("comment", "t: a", "t: a / comment x", "~ comment of table s.t set to x"),
    ("one id twice: by name", "t #1: a; u #1: a", "t #1: a; u #1: a", ""),
]
RETAINED = [
    ("column stays away", "t: a | -b", "t: a", ""),
    ("column returns", "t: a | -b", "t: a | b", "+ column s.t.b added (int32)"),
    ("column returns by id", "t: a #1 | -b #2", "t: a #1 | b #2", "+ column s.t.b added (int32)"),
    ("table stays away", "t: a | b; -u: a", "t: a | b", ""),
    ("table returns", "t: a | b; -u: a", "t: a | b; u: a", "+ table s.u added (1 column)"),
]


def said(before: str, after: str) -> str:
    return "; ".join(f"{symbol(c)} {describe(c)}" for c in diff(catalog(before), catalog(after)))


@pytest.mark.parametrize(("name", "before", "after", "expected"), COLUMNS + KEYS + TABLES)
def test_what_is_said_about_two_catalogs(name: str, before: str, after: str, expected: str) -> None:
    assert said(before, after) == expected
    old, new = bare(catalog(before)), bare(catalog(after))
    if name not in ("ids appear", "a weak id proves no replacement"):
        assert apply(diff(old, new), old) == new


def test_a_rename_to_the_longest_name_is_found_at_once() -> None:
    """A name of a tool that replaces tables is looked for in it, which took minutes."""
    longest = "_" * LONGEST
    assert said("t #1: a", f"{longest} #1: a") == f"~ table s.t renamed to s.{longest}"


@pytest.mark.parametrize(("name", "before", "after", "expected"), RETAINED)
def test_what_is_retained_is_no_change_until_its_name_returns(
    name: str, before: str, after: str, expected: str
) -> None:
    assert said(before, after) == expected, name


def test_a_replaced_table_pairs_no_columns() -> None:
    before, after = catalog("t #1: a #1"), catalog("t #2: z #1")
    assert pair(before, after).replaced == ((before.tables[0], after.tables[0]),)


def test_a_retained_key_column_keeps_the_key_removed_until_that_is_decided() -> None:
    assert said("t: -a | b / key a", "t: b") == "- primary key of s.t removed (was (a))"


class Name(str):
    """One whose comparisons count as calls."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return str.__hash__(self)


def calls_to_compare(many: int) -> int:
    """Compare a catalog of so many tables with what was accepted of it: nothing of it has changed."""
    listed = " | ".join(f"c{i} decimal(12,2) #{i}" for i in range(20))
    one = table(f"t: {listed} / key c1")
    source = Catalog.of(replace(one, name=Name(f"t{i}"), id=Name(i)) for i in range(many))
    accepted = Catalog.of(
        replace(t, alias=t.name, columns=tuple(replace(c, alias=c.name) for c in t.columns)) for t in source.tables
    )
    with counted() as work:
        assert diff(accepted, source) == ()
    return work.calls


@shows(event=61)
def test_ten_thousand_tables_that_did_not_change_take_a_hundred_times_what_a_hundred_take() -> None:
    few, many = calls_to_compare(100), calls_to_compare(10_000)
    assert few < 20_000
    assert many < 110 * few
