"""A contract that was exported, written and read again: its catalog is within it, and what is less than it is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import TEXT, catalogs, scalars, structs, tables, types

from instep.errors import ProjectError
from instep.project.files.contract import contract_text, read_contract
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.promotion import widens
from instep.schema.catalog.types import Array, DataType, Struct, parse
from instep.schema.contracts.compliance import ContractColumn, ContractTable, check, fits, type_mismatch
from instep.schema.contracts.contract import ContractTerms, contract_document

INT = parse("int64")


def exported(catalog: Catalog, hashed: frozenset[str] = frozenset()) -> tuple[ContractTable, ...]:
    """By way of the file's text."""
    terms = ContractTerms("p-c", "c", "1.0", lambda t, c: c.name in hashed, lambda t: "auto", lambda t: t.path)
    with TemporaryDirectory() as folder:
        file = Path(folder, "contract.yml")
        file.write_text(contract_text(contract_document(catalog, terms)), encoding="utf-8")
        return read_contract(file)


def some(catalog: st.SearchStrategy[Catalog]) -> st.SearchStrategy[Catalog]:
    return catalog.filter(lambda c: bool(c.tables))


@settings(max_examples=25)
@given(some(catalogs()), st.frozensets(st.sampled_from("abcd")))
def test_a_catalog_is_within_its_own_contract(catalog: Catalog, hashed: frozenset[str]) -> None:
    found = exported(catalog, hashed)
    assert check(found, catalog) == ()
    for said in found:
        table = next(t for t in catalog.tables if t.path == said.names[0])
        assert (said.key, said.cursor) == (table.key, table.cursor or "")
        assert {c.name for c in said.columns if c.hashed} == hashed & set(table.by_name)
        assert [c.type for c in said.columns] == [c.type for c in table.columns]


ODD = [
    "a: b", "- a", "#", "yes", "~", "1", "1e3", "2024-01-01", "'", '"', "a\nb", "a\tb", "\u2028", "\x85", "\x7f", "🙂",
    "\ufeff", " a", "a ", "{a}", "&a", "*a", "!a", "%", "@", "`", "\u00a0", "null", "0x1", "=", "<<", "12:30:45",
    "1.", ".5", "+1",
    "\x00", "\x1b",
]  # fmt: skip


@pytest.mark.parametrize("name", ODD, ids=ascii)
def test_names_and_texts_that_yaml_could_take_for_something_else(name: str) -> None:
    columns = (Column(name, parse("string"), id=name, comment=name, native=name, key=1, nullable=False),)
    catalog = Catalog.of([Table(name, name, columns, id=name, comment=name, cursor=name)])
    [found] = exported(catalog)
    assert check([found], catalog) == ()
    assert (found.columns[0].name, found.cursor, found.key) == (name, name, (name,))


@settings(max_examples=20)
@given(st.lists(TEXT, min_size=1, max_size=4, unique=True), structs(scalars(), TEXT))
def test_any_names_at_all(names: list[str], kind: DataType) -> None:
    catalog = Catalog.of([Table("s", names[0], tuple(Column(n, kind, comment=n) for n in names))])
    assert check(exported(catalog), catalog) == ()


LESS = [
    ("its table gone", lambda t: None, {"table.missing"}),
    ("a column gone", lambda t: replace(t, columns=t.columns[1:]), {"column.missing", "key.differs"}),
    ("all may be NULL", lambda t: replace(t, columns=tuple(replace(c, nullable=True) for c in t.columns)),
     {"column.nullable"}),
    ("kept, not live", lambda t: replace(t, retained=True), {"table.missing"}),
    ("one more", lambda t: replace(t, columns=(*t.columns, Column("extra", INT))), {"column.extra"}),
]  # fmt: skip


@settings(max_examples=15)
@given(tables())
def test_less_than_the_contract_is_said_and_nothing_else(table: Table) -> None:
    said = exported(Catalog.of([table]))
    for name, change, codes in LESS:
        after = change(table)  # type: ignore[no-untyped-call]
        found = check(said, Catalog.of([after] if after else []))
        assert {f.code for f in found} <= codes, name
        required = any(not c.nullable for c in table.columns)
        assert bool(found) == (name != "all may be NULL" or required), name
        assert all(table.path in f.path for f in found)


@given(types(), types(), types())
def test_within_is_an_order(a: DataType, b: DataType, c: DataType) -> None:
    if fits(a, b) and fits(b, c):
        assert fits(a, c)
    if type(a) is type(b) and not isinstance(a, Array | Struct) and widens(a, b):
        assert fits(a, b)


@given(types(), types())
@example(parse("decimal(10,2)"), parse("decimal(12,2)"))
def test_a_reason_is_given_exactly_where_it_does_not_fit(found: DataType, said: DataType) -> None:
    why = type_mismatch(ContractColumn("c", type=said), found)
    assert bool(why) != fits(found, said)
    assert not why or (str(found) in why and str(said) in why)


FOREIGN = [
    ("no position: the order of the columns", "{name: b, primaryKey: true}, {name: a, primaryKey: true}", ("b", "a")),
    ("positions count", "{name: b, primaryKey: true, primaryKeyPosition: 2}, {name: a, primaryKey: true,"
     " primaryKeyPosition: 1}", ("a", "b")),
    ("-1 is none", "{name: b, primaryKey: true, primaryKeyPosition: -1}", ("b",)),
    ("no key", "{name: b, primaryKeyPosition: 1}", ()),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "key"), [f[1:] for f in FOREIGN], ids=[f[0] for f in FOREIGN])
def test_keys_of_contracts_of_others(columns: str, key: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "c.yml"
    file.write_text(f"apiVersion: v3.0.1\nid: x\nversion: '1'\nschema: [{{name: t, properties: [{columns}]}}]\n")
    [table] = read_contract(file)
    assert (table.names, table.key) == (("t",), key)


BROKEN = [
    ("no schema", "apiVersion: v3.1.0\nid: x\nversion: '1'\n", "schema"),
    ("an older standard", "apiVersion: v2.2.2\nid: x\nversion: '1'\nschema: [{name: t}]\n", "apiVersion"),
    ("a list", "- a\n", "is not a data contract"),
    ("a type of nobody's", "apiVersion: v3.1.0\nid: x\nversion: '1'\nschema: [{name: t, properties: [{name: a, "
     "customProperties: [{property: instepType, value: int7}]}]}]\n", "int7"),
    ("no YAML", "a: [", "c.yml"),
    ("empty", "", "c.yml"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "why"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_what_is_no_contract_is_named(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "c.yml"
    file.write_text(text)
    with pytest.raises(ProjectError) as said:
        read_contract(file)
    assert why in str(said.value)
    assert said.value.hint
