"""Hypothesis strategies for types, columns, tables and catalogs."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import (
    Array,
    Binary,
    Boolean,
    DataType,
    Date,
    Decimal,
    Field,
    Float,
    Int,
    Json,
    String,
    Struct,
    Time,
    Timestamp,
    TimestampTz,
    Unknown,
    Uuid,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=12)
WORDS = st.sampled_from(["a", "b", "c", "d", "e", "A", "B", "é", "x_y"])
"""Few names, so that two catalogs share many."""


def decimals() -> st.SearchStrategy[DataType]:
    return st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: Decimal(p, s)))


def scalars() -> st.SearchStrategy[DataType]:
    plain: list[DataType] = [Boolean(), Date(), Time(), Timestamp(), TimestampTz(), Uuid(), Json(), Unknown()]
    return st.one_of(
        st.sampled_from(plain),
        st.sampled_from([8, 16, 32, 64]).map(Int),
        st.sampled_from([32, 64]).map(Float),
        decimals(),
        st.none().map(String) | st.integers(1, 300).map(String),
        st.none().map(Binary) | st.integers(1, 300).map(Binary),
    )


def structs(inner: st.SearchStrategy[DataType], names: st.SearchStrategy[str] = WORDS) -> st.SearchStrategy[Struct]:
    fields = st.lists(st.builds(Field, names, inner), max_size=4, unique_by=lambda f: f.name)
    return fields.map(lambda found: Struct(tuple(found)))


def types() -> st.SearchStrategy[DataType]:
    return st.recursive(scalars(), lambda inner: inner.map(Array) | structs(inner), max_leaves=6)


def columns(ids: st.SearchStrategy[str | None]) -> st.SearchStrategy[Column]:
    some = st.sampled_from([None, "0", "now()"])
    return st.builds(Column, WORDS, scalars(), nullable=st.booleans(), id=ids, default=some, comment=some)


@st.composite
def tables(draw: st.DrawFn, *, identified: bool = True) -> Table:
    """A table with a key of any of its columns, in any order, and perhaps a cursor."""
    ids = st.integers(1, 9).map(str) if identified else st.none()
    unique = (lambda c: c.name, lambda c: c.id) if identified else (lambda c: c.name,)
    found = draw(st.lists(columns(ids), min_size=1, max_size=6, unique_by=unique))
    names = [c.name for c in found]
    key = draw(st.lists(st.sampled_from(names), unique=True, max_size=3))
    placed = [replace(c, key=key.index(c.name) + 1) if c.name in key else c for c in found]
    return Table(
        schema=draw(st.sampled_from(["s", "t"])),
        name=draw(WORDS),
        columns=tuple(placed),
        id=draw(st.integers(1, 6).map(str)) if identified else None,
        kind=draw(st.sampled_from(["table", "table", "table", "view"])),
        cursor=draw(st.none() | st.sampled_from(names)),
        comment=draw(st.sampled_from([None, "of shops"])),
    )


def catalogs(*, identified: bool = True) -> st.SearchStrategy[Catalog]:
    unique = (lambda t: t.ref, lambda t: t.id) if identified else (lambda t: t.ref,)
    return st.lists(tables(identified=identified), max_size=5, unique_by=unique).map(Catalog.of)


def pairs_of_catalogs() -> st.SearchStrategy[tuple[Catalog, Catalog]]:
    """Two states of one source: with ids throughout or without any."""
    return st.booleans().flatmap(lambda i: st.tuples(catalogs(identified=i), catalogs(identified=i)))
