"""What is read while changes are held."""

from __future__ import annotations

import pytest

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.schema.planning.projection import pair_tables, reads


def column(text: str, **more: object) -> Column:
    """`a:int32` or `a:int32#3` with an id."""
    name, _, kind = text.partition(":")
    kind, _, number = kind.partition("#")
    return Column(name, parse(kind or "int32"), id=number or None, **more)  # type: ignore[arg-type]


def table(name: str, *columns: str | Column, oid: str | None = None, **more: object) -> Table:
    made = tuple(column(c) if isinstance(c, str) else c for c in columns)
    return Table("s", name, made, id=oid, **more)  # type: ignore[arg-type]


CASES = [
    ("unchanged", table("t", "a", "b"), table("t", "a", "b"), {"a": "a", "b": "b"}),
    ("added: not read", table("t", "a"), table("t", "a", "b"), {"a": "a"}),
    ("removed: NULL", table("t", "a", "b"), table("t", "a"), {"a": "a", "b": None}),
    ("retained: never read", table("t", "a", column("b", retained=True)), table("t", "a", "b"), {"a": "a"}),
    ("retyped: read", table("t", "a:int32#1", oid="9"), table("t", "a:string#1", oid="9"), {"a": "a"}),
    ("renamed by id", table("t", "a:int32#1", oid="9"), table("t", "z:int32#1", oid="9"), {"a": "z"}),
    (
        "swapped by id",
        table("t", "a:int32#1", "b:int32#2", oid="9"),
        table("t", "b:int32#1", "a:int32#2", oid="9"),
        {"a": "b", "b": "a"},
    ),
    (
        "dropped and added again: another column",
        table("t", "a:int32#1", "b:int32#2", oid="9"),
        table("t", "a:int32#1", "b:string#7", oid="9"),
        {"a": "a", "b": None},
    ),
    (
        "a renamed to b, b dropped",
        table("t", "a:int32#1", "b:int32#2", oid="9"),
        table("t", "b:int32#1", oid="9"),
        {"a": "b", "b": None},
    ),
    ("ids on one side", table("t", "a:int32", oid="9"), table("t", "a:int32#4", oid="9"), {"a": "a"}),
]


@pytest.mark.parametrize(("accepted", "source", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_columns(accepted: Table, source: Table, expected: dict[str, str | None]) -> None:
    (read,), missing = reads(Catalog.of([accepted]), Catalog.of([source]))
    assert missing == ()
    assert {c.column.name: c.source and c.source.name for c in read.columns} == expected


def test_tables_are_paired_by_id_then_by_name() -> None:
    accepted = Catalog.of([table("a", "x", oid="1"), table("b", "x", oid="2"), table("c", "x"), table("gone", "x")])
    source = Catalog.of([table("b", "x", oid="1"), table("a", "x", oid="2"), table("c", "x", oid="5"), table("n", "x")])
    found, missing = reads(accepted, source)
    assert {r.table.name: r.source.name for r in found} == {"a": "b", "b": "a", "c": "c"}
    assert [(m.table.name, "s.gone is no longer in the source" in m.why) for m in missing] == [("gone", True)]


def test_a_name_that_an_id_has_claimed_is_not_read_twice() -> None:
    accepted = Catalog.of([table("a", "x", oid="1"), table("b", "x", oid="2")])
    found, missing = reads(accepted, Catalog.of([table("a", "x", oid="2")]))
    assert [(r.table.name, r.source.name) for r in found] == [("b", "a")]
    assert [m.table.name for m in missing] == ["a"]


def test_retained_tables_are_neither_read_nor_missing() -> None:
    assert reads(Catalog.of([table("t", "a", retained=True)]), Catalog()) == ((), ())


def test_another_table_of_the_name_is_not_read() -> None:
    accepted, source = Catalog.of([table("t", "a", oid="1")]), Catalog.of([table("t", "a", oid="2")])
    found, (missing,) = reads(accepted, source)
    assert found == ()
    assert "was replaced by another table" in missing.why
    assert pair_tables(accepted.tables, source) == {("s", "t"): source.tables[0]}


def test_a_weak_id_proves_no_replacement() -> None:
    accepted, source = Catalog.of([table("t", "a", oid="~1")]), Catalog.of([table("t", "a", oid="~2")])
    assert len(reads(accepted, source)[0]) == 1
    assert [m.table.name for m in reads(accepted, source, paused={("s", "t")})[1]] == ["t"]


def test_hashed_columns_are_marked_by_their_source_name() -> None:
    accepted = Catalog.of([table("t", "mail:string#1", "n:int32#2", oid="9")])
    source = Catalog.of([table("u", "email:string#1", "n:int32#2", oid="9")])
    (read,), _ = reads(accepted, source, hashed=lambda ref, name: (ref, name) == (("s", "u"), "email"))
    assert [c.hashed for c in read.columns] == [True, False]
