"""`major.minor`, and what lies between two versions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from strategies import catalogs, pairs_of_catalogs
from world import catalog, column, table

from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.changes.describe import reverse
from instep.schema.changes.diff import bare, diff
from instep.schema.changes.version import BREAKING, RetainedDrop, VersionDiff, between, next_label, without_ids

T = table("t", "id:int32#1!", "a:int32#2", "b:string#3", oid="9")
KEPT = replace(T, columns=(T.columns[0], T.columns[1], column("b:string#3", retained=True)))


def with_columns(*columns: str, of: Table = T) -> Table:
    made: Table = table(of.name, *columns, oid=of.id)
    return made


CASES = [
    ("nothing", T, T, False, ()),
    ("column added", T, with_columns("id:int32#1!", "a:int32#2", "b:string#3", "c:int32#4"), False,
     ("column s.t.c added (int32)",)),
    ("column widened", T, with_columns("id:int32#1!", "a:int64#2", "b:string#3"), False,
     ("column s.t.a widened from int32 to int64",)),
    ("column narrowed", T, with_columns("id:int32#1!", "a:int16#2", "b:string#3"), True,
     ("column s.t.a narrowed from int32 to int16",)),
    ("column retyped", T, with_columns("id:int32#1!", "a:date#2", "b:string#3"), True,
     ("column s.t.a retyped from int32 to date",)),
    ("column renamed", T, with_columns("id:int32#1!", "z:int32#2", "b:string#3"), True,
     ("column s.t.a renamed to z",)),
    ("column removed", T, with_columns("id:int32#1!", "a:int32#2"), True, ("column s.t.b removed (string)",)),
    ("column kept", T, KEPT, True, ("column s.t.b removed (string)",)),
    ("column let go", KEPT, with_columns("id:int32#1!", "a:int32#2"), True,
     ("column s.t.b, retained after its removal, dropped",)),
    ("column kept under another name", KEPT, replace(KEPT, columns=(*KEPT.columns[:2], column("b:int32#4"),
     column("b__v2:string#3", retained=True))), False, ("column s.t.b added (int32)",)),
    ("column undropped", KEPT, T, False, ("column s.t.b added (string)",)),
    ("key removed", T, with_columns("id:int32#1", "a:int32#2", "b:string#3"), True,
     ("primary key of s.t removed (was (id))",)),
    ("key given", with_columns("id:int32#1"), with_columns("id:int32#1!"), True, ("primary key of s.t set to (id)",)),
    ("columns reordered", T, with_columns("id:int32#1!", "b:string#3", "a:int32#2"), False,
     ("columns of s.t reordered: id, b, a",)),
    ("comment", T, replace(T, comment="hers"), False, ("comment of table s.t set to hers",)),
    ("table renamed", T, replace(T, name="u"), True, ("table s.t renamed to s.u",)),
    ("table replaced", T, replace(T, id="10", generation=1), True,
     ("table s.t replaced by another table of that name",)),
    ("another server", T, replace(T, id="10", columns=tuple(replace(c, id=f"1{c.id}") for c in T.columns)), False, ()),
    ("ids given", without_ids(catalog(T)).tables[0], T, False, ()),
    ("another weak id", replace(T, id="~9"), replace(T, id="~10"), False, ()),
]  # fmt: skip


@pytest.mark.parametrize(("name", "before", "after", "breaking", "lines"), CASES, ids=[c[0] for c in CASES])
def test_between(name: str, before: Table, after: Table, breaking: bool, lines: tuple[str, ...]) -> None:
    found = between(catalog(before), catalog(after))
    assert (found.lines, found.breaking) == (lines, breaking)
    assert next_label((3, 4), catalog(before), catalog(after)) == ((4, 0) if breaking else (3, 5))


def test_tables_that_come_and_go() -> None:
    other = table("u", "id:int32!")
    assert not between(catalog(T), catalog(T, other)).breaking
    gone = between(catalog(T, other), catalog(T))
    assert (gone.breaking, gone.lines) == (True, ("table s.u removed (1 column)",))
    kept = catalog(T, replace(other, retained=True))
    assert between(catalog(T, other), kept).breaking
    assert between(kept, catalog(T)) == VersionDiff((), (RetainedDrop(("s", "u"), ""),))
    assert between(kept, catalog(T)).lines == ("table s.u, retained after its removal, dropped",)


def test_the_first_version_is_one() -> None:
    assert next_label(None, Catalog(), catalog(T)) == (1, 0)


@given(catalogs())
def test_nothing_lies_between_equals(one: Catalog) -> None:
    assert between(one, one) == VersionDiff(())


@given(pairs_of_catalogs())
def test_only_what_breaks_in_one_direction_or_the_other_is_breaking(pair: tuple[Catalog, Catalog]) -> None:
    """With the ids of one server, it is the diff; a change breaks readers or its reverse may."""
    before, after = (without_ids(bare(c)) for c in pair)
    found = between(before, after)
    assert found.changes == diff(before, after)
    assert found.breaking == any(c.kind in BREAKING for c in found.changes)
    for change in found.changes:
        if change.kind.endswith((".added", ".removed")):
            assert (change.kind in BREAKING) | (reverse(change).kind in BREAKING) or change.kind.startswith("cursor")
