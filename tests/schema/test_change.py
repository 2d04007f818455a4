"""Changes on their own: how they are recognised again, stored, read by people, and refused where they do not fit."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import TEXT, columns, pairs_of_catalogs, tables

from instep.errors import SchemaError
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.schema.changes.describe import (
    KINDS,
    AccessLost,
    Change,
    ColumnAdded,
    ColumnDefault,
    ColumnNullability,
    ColumnRemoved,
    ColumnRenamed,
    ColumnReordered,
    ColumnWidened,
    CursorChanged,
    CursorRemoved,
    DestinationDrifted,
    KeyChanged,
    KeyRemoved,
    NameCollided,
    Ref,
    SchemaAdded,
    TableAdded,
    TableRemoved,
    TableRenamed,
    TableReplaced,
    apply,
    change_from_dict,
    change_to_dict,
    column_of,
    describe,
    family,
    key,
    reverse,
    symbol,
    table_of,
)
from instep.schema.changes.diff import diff

T: Ref = ("s", "t")
A = Column("a", parse("int32"), id="1")
B = Column("b", parse("int32"), id="2")
TABLE = Table("s", "t", (A, B), id="9")
ONE = Catalog((TABLE,))

STRATEGIES: dict[object, st.SearchStrategy[object]] = {
    "Table": tables(),
    "Column": columns(st.none()),
    "Ref": st.tuples(TEXT, TEXT),
    "str": TEXT,
    "int": st.integers(0, 9),
    "str | None": st.none() | TEXT,
    "tuple[str, ...]": st.lists(TEXT, max_size=3).map(tuple),
}


def _record(kind: str) -> st.SearchStrategy[Change]:
    record = KINDS[kind]
    hints = {n: h for n, h in record.__annotations__.items() if n != "kind"}
    return st.builds(record, **{n: STRATEGIES[h] for n, h in hints.items()})


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_stored_described_recognised_and_reversed(kind: str) -> None:
    @given(_record(kind))
    def holds(change: Change) -> None:
        stored = json.dumps(change_to_dict(change))
        assert change_from_dict(json.loads(stored)) == change
        assert key(change_from_dict(json.loads(stored))) == key(change)
        assert len(key(change)) == 32
        assert describe(change)
        assert symbol(change) in "+-~"
        assert family(change) == kind.split(".")[0]
        assert (table_of(change) is None) == (family(change) == "schema")
        assert isinstance(column_of(change), str)
        assert type(reverse(reverse(change))) in (type(change), KeyRemoved, CursorRemoved, KeyChanged, CursorChanged)

    holds()


def test_a_stored_change_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"column\.painted"):
        change_from_dict({"kind": "column.painted"})


def test_content_keys_are_pinned() -> None:
    """Reviews are found again by them, across versions of the product."""
    assert key(ColumnAdded(T, A, 0)) == "001ee7309840c03ee8d9298c7b2e5bcc"
    assert key(TableRenamed(TABLE, replace(TABLE, name="u"))) == "cbbb5d54d02565b3c3bdb6a442506ab1"


SAME = [
    ("where it stands", ColumnAdded(T, A, 0), ColumnAdded(T, A, 3)),
    ("its default", ColumnAdded(T, A, 0), ColumnAdded(T, replace(A, default="0"), 0)),
    ("the name of a known column", ColumnRemoved(T, A, 0), ColumnRemoved(T, replace(A, name="z"), 0)),
    ("columns of a removed table", TableRemoved(TABLE), TableRemoved(replace(TABLE, columns=()))),
    ("wording", NameCollided(T, ("a", "A"), "x"), NameCollided(T, ("a", "A"), "y")),
    ("the reason", AccessLost(T, None, "x"), AccessLost(T, None, "y")),
]
OTHER = [
    ("name added", ColumnAdded(T, A, 0), ColumnAdded(T, replace(A, name="z"), 0)),
    ("type added", ColumnAdded(T, A, 0), ColumnAdded(T, replace(A, type=parse("date")), 0)),
    ("table", ColumnAdded(T, A, 0), ColumnAdded(("s", "u"), A, 0)),
    ("direction", ColumnAdded(T, A, 0), ColumnRemoved(T, A, 0)),
    ("target", ColumnRenamed(T, A, replace(A, name="z")), ColumnRenamed(T, A, replace(A, name="y"))),
    ("key", KeyChanged(T, (), ("a",)), KeyChanged(T, (), ("b",))),
    ("replacement", TableReplaced(TABLE, TABLE), TableReplaced(TABLE, replace(TABLE, id="8"))),
    ("id or name", ColumnRemoved(T, A, 0), ColumnRemoved(T, replace(A, name="1", id=None), 0)),
    ("detail", DestinationDrifted(T, "x"), DestinationDrifted(T, "y")),
]


@pytest.mark.parametrize(("what", "a", "b"), SAME)
def test_what_makes_no_other_change(what: str, a: Change, b: Change) -> None:
    assert key(a) == key(b), what


@pytest.mark.parametrize(("what", "a", "b"), OTHER)
def test_what_makes_another_change(what: str, a: Change, b: Change) -> None:
    assert key(a) != key(b), what


@given(pairs_of_catalogs())
def test_the_changes_of_one_diff_have_keys_of_their_own(two: tuple[Catalog, Catalog]) -> None:
    keys = sorted(map(key, diff(*two)))
    assert all(a != b for a, b in pairwise(keys))


SAID = [
    (
        DestinationDrifted(T, "column b is gone"),
        "destination table s.t was changed outside of instep: column b is gone",
    ),
    (NameCollided(T, ("a", "A"), "case"), "names in s.t collide: a, A (case)"),
    (AccessLost(T, None, "denied"), "access to table s.t lost: denied"),
    (AccessLost(T, "a", "denied"), "access to column s.t.a lost: denied"),
    (ColumnRenamed(("", "t"), A, replace(A, name="z")), "column t.a renamed to z"),
    (TableAdded(replace(TABLE, kind="materialized_view")), "materialized view s.t added (2 columns)"),
]


@pytest.mark.parametrize(("change", "sentence"), SAID)
def test_sentences(change: Change, sentence: str) -> None:
    assert describe(change) == sentence


WIDER = replace(A, type=parse("int64"))
UNFIT = [
    ("no such table", ColumnAdded(("s", "x"), A, 0), "table s.x is not in the catalog"),
    ("no such table to remove", TableRemoved(replace(TABLE, name="x")), "table s.x is not in the catalog"),
    ("table there", TableAdded(TABLE), "table s.t is in the catalog already"),
    ("column there", ColumnAdded(T, A, 0), "table s.t has a column a already"),
    ("column missing", ColumnRemoved(T, replace(A, name="x"), 0), "table s.t has no column x"),
    ("type moved", ColumnWidened(T, WIDER, WIDER), "column s.t.a is int32, not int64 as the change found it"),
    ("default moved", ColumnDefault(T, replace(A, default="1"), A), "column s.t.a is None, not 1"),
    ("nullability moved", ColumnNullability(T, replace(A, nullable=False), A), "s.t.a is True, not False"),
    ("key moved", KeyChanged(T, ("a",), ("b",)), "the key of s.t is (), not (a)"),
    ("key of a missing column", KeyChanged(T, (), ("a", "x")), "table s.t has no column x"),
    ("cursor moved", CursorRemoved(T, "a"), "the cursor of s.t is None, not a"),
    ("cursor of a missing column", CursorChanged(T, None, "x"), "table s.t has no column x"),
    ("two of a name", ColumnRenamed(T, A, replace(A, name="b")), "two columns named alike"),
    ("missing column reordered", ColumnReordered(T, ("a", "x"), ("x", "a")), "table s.t has no column x"),
]


@pytest.mark.parametrize(("name", "change", "why"), UNFIT)
def test_a_change_that_does_not_fit_is_refused(name: str, change: Change, why: str) -> None:
    with pytest.raises(SchemaError) as refused:
        apply([change], ONE)
    assert why in str(refused.value), name


def test_the_same_change_twice_does_not_fit() -> None:
    with pytest.raises(SchemaError, match="has a column c already"):
        apply([ColumnAdded(T, replace(A, name="c"), 0)] * 2, ONE)


@pytest.mark.parametrize("use", ["key", "cursor"])
def test_a_column_in_use_is_not_removed_before_that_is_decided(use: str) -> None:
    table = replace(TABLE, columns=(replace(A, key=1), B)) if use == "key" else replace(TABLE, cursor="a")
    with pytest.raises(SchemaError, match=f"in the {use}"):
        apply([ColumnRemoved(T, A, 0)], Catalog((table,)))


def test_a_retained_column_is_in_the_way_of_its_name() -> None:
    table = replace(TABLE, columns=(A, replace(B, retained=True)))
    with pytest.raises(SchemaError, match="keeps a retained column b already"):
        apply([ColumnAdded(T, B, 1)], Catalog((table,)))


def test_part_of_a_diff_fits_too() -> None:
    """Some of the added columns are held back: the others stand as far forward as they can."""
    wide = replace(TABLE, columns=(A, B, *(Column(n, parse("date")) for n in "cde")))
    added = diff(ONE, Catalog((wide,)))
    after = apply([added[2], SchemaAdded("x"), AccessLost(T, None, "denied")], ONE)
    assert [c.name for c in after.tables[0].columns] == ["a", "b", "e"]


def test_a_rename_takes_a_new_alias_and_the_rest_keeps_its_own() -> None:
    named = replace(TABLE, alias="t", columns=(replace(A, alias="a"), replace(B, alias="b")))
    after = apply([ColumnRenamed(T, A, replace(A, name="z"))], Catalog((named,))).tables[0]
    assert [(c.name, c.alias) for c in after.columns] == [("z", ""), ("b", "b")]
    assert after.alias == "t"
    moved = apply([TableRenamed(named, replace(named, name="u"))], Catalog((named,)))
    assert moved.tables[0].alias == ""
