"""Catalogs as values: canonical, comparable, stored and read back."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from strategies import catalogs, tables

from instep.errors import SchemaError
from instep.schema.catalog.catalog import (
    Catalog,
    Column,
    Table,
    catalog_from_dict,
    catalog_to_dict,
    column_from_dict,
    column_to_dict,
    fingerprint,
    table_fingerprint,
    table_from_dict,
    table_to_dict,
)
from instep.schema.catalog.types import parse

FULL = Column("a", parse("int64"), False, "3", 1, "0", "of", "bigint", "why", True, "a_1")
ORDERS = Table("s", "orders", (FULL,), "16384", "view", "a", "all orders", 2, True, "orders_2")


@given(catalogs())
def test_a_catalog_survives_json(catalog: Catalog) -> None:
    assert catalog_from_dict(json.loads(json.dumps(catalog_to_dict(catalog)))) == catalog


def test_every_field_is_stored() -> None:
    assert column_from_dict(column_to_dict(FULL)) == FULL
    assert table_from_dict(table_to_dict(ORDERS)) == ORDERS
    assert column_to_dict(Column("a", parse("date"))) == {"name": "a", "type": "date"}


@given(catalogs())
def test_the_order_of_tables_carries_no_meaning(catalog: Catalog) -> None:
    shuffled = Random(1).sample(catalog.tables, len(catalog.tables))
    assert Catalog.of(shuffled) == catalog
    assert fingerprint(Catalog(tuple(shuffled))) == fingerprint(catalog)


CHANGED = [
    replace(ORDERS, **{field: value})
    for field, value in {
        "schema": "t", "name": "order", "id": None, "kind": "table", "cursor": None, "comment": None,
        "generation": 3, "retained": False, "alias": "", "columns": (),
    }.items()
] + [
    replace(ORDERS, columns=(replace(FULL, **{field: value}),))
    for field, value in {
        "name": "b", "type": parse("int32"), "nullable": True, "id": "4", "key": 2, "default": None,
        "comment": "", "native": "", "note": "", "retained": False, "alias": "",
    }.items()
]  # fmt: skip


def test_the_fingerprint_depends_on_every_field() -> None:
    prints = {table_fingerprint(t) for t in [ORDERS, *CHANGED]}
    assert len(prints) == len(CHANGED) + 1
    assert table_fingerprint(replace(ORDERS)) == table_fingerprint(ORDERS)


@given(catalogs(), tables())
def test_put_and_drop(catalog: Catalog, table: Table) -> None:
    assert catalog.put(table).get(table.ref) == table
    assert catalog.put(table).drop(table.ref) == catalog.drop(table.ref)
    assert catalog.drop(("no", "where")) == catalog


def test_two_tables_of_one_name_are_refused() -> None:
    with pytest.raises(SchemaError, match="two tables"):
        Catalog((ORDERS, replace(ORDERS, id="5")))


def test_the_key_is_in_key_order_and_live_columns_are_those_still_read() -> None:
    columns = [Column(n, parse("int32"), key=k) for n, k in (("a", 2), ("b", 0), ("c", 1))]
    gone = Column("d", parse("int32"), retained=True)
    table = Table("", "t", (*columns, gone))
    assert table.key == ("c", "a")
    assert table.live == tuple(columns)
    assert (table.path, Table("s", "t", ()).path) == ("t", "s.t")
