"""Pairing and comparing catalogs: the laws, and the cases that people name."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from strategies import catalogs, pairs_of_catalogs, tables

from instep.schema.change import apply, describe, reverse, symbol
from instep.schema.diff import bare, diff, pair, pair_columns
from instep.schema.table import Catalog, Column, Table
from instep.schema.types import parse


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
        replace(t, alias=t.name, generation=2, columns=(kept, *(replace(c, alias=c.name, native="x") for c in t.columns)))
        for t in catalog.tables
    ]
    return Catalog.of([*tables, Table("s", "left", (kept,), id="99", retained=True)])


@given(pairs_of_catalogs())
def test_bookkeeping_is_not_compared_and_survives(two: tuple[Catalog, Catalog]) -> None:
    before, after = two
    accepted = _dress(before)
    assert bare(accepted) == before
    assert diff(accepted, after) == () or diff(before, after) != ()
    assert bare(apply(diff(accepted, after), accepted)) == after
    assert apply(diff(accepted, before), accepted) == accepted


@given(tables(), tables())
def test_each_column_is_paired_once_or_not_at_all(a: Table, b: Table) -> None:
    found = pair_columns(a, b)
    assert sorted([c.name for c, _ in found.same] + [c.name for c in found.removed]) == sorted(c.name for c in a.columns)
    assert sorted([c.name for _, c in found.same] + [c.name for c in found.added]) == sorted(c.name for c in b.columns)
