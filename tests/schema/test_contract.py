"""Contracts: what the document says of a type, and what is within it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from strategies import types

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import Array, DataType, Struct, parse
from instep.schema.contracts.compliance import ContractColumn, ContractTable, check, find, fits, type_mismatch
from instep.schema.contracts.contract import ContractTerms, contract_document, logical

LOGICAL = [
    ("boolean", {"logicalType": "boolean"}),
    ("int16", {"logicalType": "integer", "logicalTypeOptions": {"format": "i16"}}),
    ("float32", {"logicalType": "number", "logicalTypeOptions": {"format": "f32"}}),
    ("decimal(12,2)", {"logicalType": "number"}),
    ("string(30)", {"logicalType": "string", "logicalTypeOptions": {"maxLength": 30}}),
    ("timestamptz", {"logicalType": "timestamp", "logicalTypeOptions": {"timezone": True}}),
    ("uuid", {"logicalType": "string", "logicalTypeOptions": {"format": "uuid"}}),
    ("json", {"logicalType": "object"}),
    ("array(date)", {"logicalType": "array", "items": {"name": "item", "logicalType": "date"}}),
    ('struct("a" time)', {"logicalType": "object", "properties": [{"name": "a", "logicalType": "time"}]}),
]


@pytest.mark.parametrize(("kind", "said"), LOGICAL, ids=[case[0] for case in LOGICAL])
def test_logical_types(kind: str, said: dict[str, Any]) -> None:
    assert logical(parse(kind)) == said


def column(**said: Any) -> ContractColumn:
    kind = said.pop("type", None)
    return ContractColumn("c", type=parse(kind) if kind else None, **said)


FITS = [
    ("the same", column(type="int32"), "int32", ""),
    ("narrower", column(type="int64"), "int16", ""),
    ("wider", column(type="int16"), "int64", "is int64, the contract says int16"),
    ("shorter text", column(type="string(30)"), "string(10)", ""),
    ("longer text", column(type="string(30)"), "string", "is string, the contract says string(30)"),
    ("another kind that text would hold", column(type="string"), "int32", "is int32, the contract says string"),
    ("logical: the same", column(logical="integer"), "int64", ""),
    ("logical: an integer is a number", column(logical="number"), "int64", ""),
    ("logical: a decimal without a scale", column(logical="integer"), "decimal(20,0)", ""),
    ("logical: a fraction is no integer", column(logical="integer"), "decimal(20,1)", "(number)"),
    ("logical: another", column(logical="date"), "timestamp", "is timestamp (timestamp), the contract says date"),
    ("logical: bits", column(logical="integer", options={"format": "i32"}), "int64", "format: i32"),
    ("logical: bits that are enough", column(logical="integer", options={"format": "i64"}), "int32", ""),
    ("logical: length", column(logical="string", options={"maxLength": 5}), "string(6)", "maxLength: 5"),
    ("logical: zone", column(logical="timestamp", options={"timezone": True}), "timestamp", "timezone: True"),
    ("logical: pattern says nothing of types", column(logical="string", options={"pattern": "a"}), "string", ""),
    ("nothing said", column(), "json", ""),
    ("a struct with another field", column(type='struct("a" int32)'), 'struct("b" date, "a" int16)', ""),
    ("a struct without a field", column(type='array(struct("a" int32))'), "array(struct())", "the contract says"),
]


@pytest.mark.parametrize(("wanted", "kind", "why"), [case[1:] for case in FITS], ids=[case[0] for case in FITS])
def test_types_within(wanted: ContractColumn, kind: str, why: str) -> None:
    found = type_mismatch(wanted, parse(kind))
    assert why in found
    assert bool(found) == bool(why)


@given(types(), types())
def test_a_type_is_within_itself_and_what_is_within_is_read_alike(found: DataType, said: DataType) -> None:
    assert fits(said, said)
    if fits(found, said):
        assert logical(found)["logicalType"] == logical(said)["logicalType"]
        assert not fits(said, found) or isinstance(said, Struct | Array) or said == found


TABLE = Table(
    "public", "order",
    (
        Column("id", parse("int64"), nullable=False, key=1),
        Column("note", parse("string(20)"), nullable=False),
        Column("old", parse("date"), retained=True),
    ),
)  # fmt: skip
SAID = ContractTable(
    ("public.order", "order"),
    (
        ContractColumn("id", type=parse("int64"), required=True, key=1),
        ContractColumn("note", type=parse("string(20)"), required=True),
        ContractColumn("old", type=parse("date"), retained=True),
    ),
)  # fmt: skip


def changed(name: str, **new: Any) -> Table:
    return replace(TABLE, columns=tuple(replace(c, **new) if c.name == name else c for c in TABLE.columns))


def without(name: str) -> Table:
    return replace(TABLE, columns=tuple(c for c in TABLE.columns if c.name != name))


CASES = [
    ("nothing", TABLE, []),
    ("a kept column is no part of it", without("old"), []),
    ("a table is gone", None, ["table public.order is missing"]),
    ("it is called otherwise", replace(TABLE, name="orders"), ["table public.order is missing"]),
    ("a column is gone", without("note"), ["column public.order.note is missing"]),
    ("another type", changed("note", type=parse("int8")),
     ["column public.order.note is int8, the contract says string(20)"]),
    ("a value is not required", changed("note", nullable=True),
     ["column public.order.note may be NULL, the contract requires a value"]),
    ("no key", changed("id", key=0), ["the key of public.order is none, the contract says (id)"]),
    ("another key", changed("note", key=2), ["the key of public.order is (id, note), the contract says (id)"]),
    ("one more", replace(TABLE, columns=(*TABLE.columns, Column("extra", parse("date")))),
     ["column public.order.extra is not in the contract"]),
]  # fmt: skip


@pytest.mark.parametrize(("table", "said"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_breaches(table: Table | None, said: list[str]) -> None:
    found = check([SAID], Catalog.of([table] if table else []))
    assert [f.text for f in found] == said
    assert all(f.breach for f in found) or "not in the contract" in found[0].text


def test_a_name_that_two_tables_have_means_none() -> None:
    twins = Catalog.of([TABLE, replace(TABLE, schema="old")])
    assert find(ContractTable(("order",), ()), twins) is None
    assert find(ContractTable(("old.order",), ()), twins) == twins.get(("old", "order"))
    assert find(ContractTable(("order",), ()), Catalog.of([TABLE])) == TABLE


def test_two_tables_of_one_name_are_told_apart() -> None:
    terms = ContractTerms("p-c", "c", "1.0", lambda t, c: False, lambda t: "auto", lambda t: t.name)
    catalog = Catalog.of([TABLE, replace(TABLE, schema="old")])
    document = contract_document(catalog, terms)
    assert [o["name"] for o in document["schema"]] == ["old.order", "public.order"]
    assert contract_document(Catalog(catalog.tables[::-1]), terms) == document
