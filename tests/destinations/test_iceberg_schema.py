"""Iceberg schemas: what is stored as what, what may become what, and what a reader could not tell apart."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.shows import shows
from instep.destinations.iceberg.destination import CAPABILITIES
from instep.destinations.iceberg.metadata.schema import (
    IcebergField,
    data_type,
    fields_of,
    highest_id,
    iceberg_type,
    is_stored_as,
    promote_stored,
    schema_of,
)
from instep.destinations.types import STORED, from_iceberg_primitive
from instep.errors import IllegalChange, SchemaError
from instep.schema.catalog.types import Array, DataType, Decimal, Field, Struct, parse

PLAIN = [parse(row.type) for row in STORED if "(" not in row.type]
SIZED = [parse(t) for t in ("decimal(10,2)", "decimal(12,2)", "decimal(12,4)", "string(5)", "string(9)", "binary(4)")]
decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: Decimal(p, s)))
kinds: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(PLAIN) | decimals,
    lambda inner: (
        inner.map(Array)
        | st.lists(inner, min_size=1, max_size=3).map(
            lambda ts: Struct(tuple(Field(f"f{i}", t) for i, t in enumerate(ts)))
        )
    ),
    max_leaves=6,
)


@given(kinds)
def test_a_type_is_stored_as_itself_with_ids_of_its_own(kind: DataType) -> None:
    stored = iceberg_type(kind, count(10))
    assert is_stored_as(stored, kind)
    assert promote_stored(stored, kind, count(99), "c") is stored
    assert is_stored_as(iceberg_type(data_type(stored), count(1)), kind)
    ids = _ids(stored)
    assert sorted(ids) == list(range(10, 10 + len(ids)))
    assert highest_id([IcebergField(1, "c", stored)]) == max([1, *ids])


def _ids(stored: Any) -> list[int]:
    if isinstance(stored, str):
        return []
    if stored["type"] == "list":
        return [stored["element-id"], *_ids(stored["element"])]
    return [i for f in stored["fields"] for i in (f["id"], *_ids(f["type"]))]


@pytest.mark.parametrize("before", [*PLAIN, *SIZED], ids=str)
@pytest.mark.parametrize("after", [*PLAIN, *SIZED], ids=str)
def test_a_promotion_that_is_announced_is_carried_out_and_no_stored_form_changes_otherwise(
    before: DataType, after: DataType
) -> None:
    stored = iceberg_type(before, count(1))
    announced = CAPABILITIES.promotes_in_place(before, after)
    legal = {("int", "long"), ("float", "double"), ("decimal(10, 2)", "decimal(12, 2)")}
    wanted = iceberg_type(after, count(1))
    if announced:
        assert promote_stored(stored, after, count(1), "c") == wanted
    if stored != wanted and (stored, wanted) not in legal:
        assert not announced
        with pytest.raises(IllegalChange, match="'c'"):
            promote_stored(stored, after, count(1), "c")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("decimal(10,2)", "decimal(12,4)"),
        ("decimal(10,2)", "decimal(9,2)"),
        ("string", "binary"),
        ("binary", "string"),
        ("int64", "int32"),
        ("int32", "string"),
        ("int32", "float64"),
        ("date", "timestamp"),
        ("timestamp", "timestamptz"),
        ("uuid", "string"),
        ("int32", "array(int32)"),
        ("array(int32)", "int32"),
        ("array(string)", "array(binary)"),
        ('struct("a" int32, "b" int32)', 'struct("a" int32)'),
        ('struct("a" int64)', 'struct("a" int32)'),
    ],
)
def test_what_iceberg_forbids_is_refused(before: str, after: str) -> None:
    with pytest.raises(IllegalChange):
        promote_stored(iceberg_type(parse(before), count(1)), parse(after), count(9), "c")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("array(int32)", "array(int64)"),
        ('struct("a" int32)', 'struct("a" int64, "b" array(string))'),
        ('array(struct("a" float32))', 'array(struct("b" int8, "a" float64))'),
    ],
)
@shows(trap=18)
def test_nested_types_grow_and_keep_their_ids(before: str, after: str) -> None:
    stored = iceberg_type(parse(before), count(1))
    grown = promote_stored(stored, parse(after), count(50), "c")
    assert data_type(grown) == data_type(iceberg_type(parse(after), count(1)))
    assert set(_ids(stored)) < set(_ids(grown)) or set(_ids(stored)) == set(_ids(grown))
    assert all(i in _ids(stored) or i >= 50 for i in _ids(grown))


@pytest.mark.parametrize("names", [["a", "A"], ["", "b"], ["a.b"], ["été", "ÉTÉ"]])
def test_names_that_a_reader_could_not_tell_apart_are_refused(names: list[str]) -> None:
    with pytest.raises(SchemaError):
        schema_of([IcebergField(i, n, "int") for i, n in enumerate(names, 1)], 0)
    with pytest.raises(SchemaError):
        iceberg_type(Struct(tuple(Field(n, parse("int32")) for n in names)), count(1))


def test_a_schema_survives_its_metadata_form() -> None:
    fields = (
        IcebergField(3, "a", "int", True, "doc"),
        IcebergField(1, "b", iceberg_type(parse("array(date)"), count(4))),
    )
    assert fields_of(schema_of(fields, 7)) == fields


def test_foreign_types_are_read_as_something() -> None:
    read = {"fixed[16]": "binary(16)", "time": "time", "decimal(5, 0)": "decimal(5,0)", "timestamp_ns": None}
    assert {name: from_iceberg_primitive(name) for name in read} == read
    assert str(data_type({"type": "map", "key": "string", "value": "int"})) == "json"
