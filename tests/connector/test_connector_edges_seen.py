"""What a connector has declared and sent so far: what stays, what leaves, and how types grow."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.schema.catalog.catalog import ROW_ID
from instep.schema.catalog.promotion import promote
from instep.schema.catalog.types import Unknown, parse
from instep.sources.connector.seen import SeenColumn, SeenTable, SeenTables
from instep.sources.connector.segment import SegmentColumn, SegmentTable


def told(
    name: str, *columns: str, key: tuple[str, ...] = ("id",), declared: bool = False, rows: int = 0, schema: str = ""
) -> SegmentTable:
    """`columns`: "name type", with a ! behind those that are declared."""
    made = []
    for text in columns:
        column, kind = text.rstrip("!").split()
        made.append(SegmentColumn(column, parse(kind), text.endswith("!"), key=column in key))
    return SegmentTable(schema, name, declared, key, tuple(made), upserts=rows)


def types(seen: SeenTables, name: str = "t") -> dict[str, str]:
    return {column: str(c.type) for column, c in seen.tables["", name].columns.items()}


def after(*steps: list[SegmentTable]) -> SeenTables:
    seen = SeenTables()
    for step in steps:
        seen = seen.after(step)
    return seen


ID = "id int64"
COLUMNS: list[tuple[str, list[SegmentTable], dict[str, str]]] = [
    ("a column that does not come again stays",
     [told("t", ID, "a string", rows=1), told("t", ID, rows=1)], {"id": "int64", "a": "string"}),
    ("a declared one that is not declared any more leaves with rows without it",
     [told("t", ID, "a string!", rows=1), told("t", ID, rows=1)], {"id": "int64"}),
    ("and not before rows come",
     [told("t", ID, "a string!", rows=1), told("t", ID)], {"id": "int64", "a": "string"}),
    ("sent all the same, it stays",
     [told("t", ID, "a string!"), told("t", ID, "a string", rows=1), told("t", ID, rows=1)],
     {"id": "int64", "a": "string"}),
    ("an inferred type grows", [told("t", ID, rows=1), told("t", "id decimal(38,0)", rows=1)], {"id": "decimal(38,0)"}),
    ("and never becomes narrower", [told("t", "id string", rows=1), told("t", ID, rows=1)], {"id": "string"}),
    ("values of two families are texts", [told("t", "id boolean", rows=1), told("t", ID, rows=1)], {"id": "string"}),
    ("integers come into floats", [told("t", "a float64", rows=1), told("t", "a int64", rows=1)], {"a": "float64"}),
    ("floats make integers texts", [told("t", "a int64", rows=1), told("t", "a float64", rows=1)], {"a": "string"}),
    ("a declared type is what it says", [told("t", "a string", rows=1), told("t", "a int16!")], {"a": "int16"}),
    ("a type that comes later", [told("t", "id unknown"), told("t", ID, rows=1)], {"id": "int64"}),
    ("nothing makes no type unknown", [told("t", ID, rows=1), told("t", "id unknown")], {"id": "int64"}),
]  # fmt: skip


@pytest.mark.parametrize(("steps", "expected"), [c[1:] for c in COLUMNS], ids=[c[0] for c in COLUMNS])
def test_columns(steps: list[SegmentTable], expected: dict[str, str]) -> None:
    assert types(after(*([step] for step in steps))) == expected


TABLES: list[tuple[str, list[list[SegmentTable]], dict[str, bool]]] = [
    ("a declared one without rows leaves with its declaration", [[told("t", ID, declared=True)], []], {}),
    ("one with rows stays", [[told("t", ID, declared=True, rows=1)], []], {"t": False}),
    ("one that was never declared stays", [[told("t", ID)], []], {"t": False}),
    ("rows that came long ago count", [[told("t", ID, declared=True, rows=1)], [told("t", ID, declared=True)], []],
     {"t": False}),
    ("others are left alone", [[told("t", ID, rows=1)], [told("u", ID, declared=True)]], {"t": False, "u": True}),
    ("declared again", [[told("t", ID, declared=True, rows=1)], [], [told("t", ID, declared=True)]], {"t": True}),
]  # fmt: skip


@pytest.mark.parametrize(("steps", "expected"), [c[1:] for c in TABLES], ids=[c[0] for c in TABLES])
def test_tables(steps: list[list[SegmentTable]], expected: dict[str, bool]) -> None:
    assert {name: t.declared for (_, name), t in after(*steps).tables.items()} == expected


USABLE: list[tuple[str, SegmentTable, list[str]]] = [
    (
        "a key comes first, in its order",
        told("t", "a string", "b int64", "id int64", key=("id", "b")),
        ["id", "b", "a"],
    ),
    ("no key: the row id is it", told("t", "a string", key=()), [ROW_ID, "a"]),
    ("a column without a type is left out", told("t", ID, "a unknown"), ["id"]),
    ("a key without a type waits", told("t", "id unknown", "a string"), []),
    ("a key that never came waits", told("t", "a string"), []),
    ("no column with a type", told("t", "a unknown", key=()), []),
]


@pytest.mark.parametrize(("table", "names"), [c[1:] for c in USABLE], ids=[c[0] for c in USABLE])
def test_tables_as_a_source_has_them(table: SegmentTable, names: list[str]) -> None:
    found = after([table]).catalog.tables
    assert [c.name for t in found for c in t.columns] == names
    for t in found:
        assert [(c.name, c.nullable) for c in t.columns if c.key] == [(n, False) for n in names[: len(table.key) or 1]]


kinds = st.sampled_from([*map(parse, ("int64", "float64", "string", "json", "decimal(38,0)", "boolean")), Unknown()])
names = st.sampled_from(["id", "a", "b", "größe"])
segment_columns = st.builds(SegmentColumn, names, kinds, st.booleans())
tables = st.builds(
    SegmentTable, st.sampled_from(["", "s"]), st.sampled_from(["t", "u"]), st.booleans(),
    st.lists(names, max_size=2, unique=True).map(tuple),
    st.lists(segment_columns, max_size=4, unique_by=lambda c: c.name).map(tuple), upserts=st.integers(0, 2),
)  # fmt: skip
steps = st.lists(st.lists(tables, max_size=3, unique_by=lambda t: (t.schema, t.name)), max_size=4)


@given(steps)
def test_it_is_the_same_after_it_was_kept_as_json(told: list[list[SegmentTable]]) -> None:
    seen = after(*told)
    again = SeenTables.from_dict(json.loads(json.dumps(seen.to_dict())))
    assert dict(again.tables) == dict(seen.tables)
    assert again.catalog == seen.catalog
    assert again.to_dict() == seen.to_dict()


@given(steps, st.lists(tables, max_size=3, unique_by=lambda t: (t.schema, t.name)))
def test_what_was_told_twice_changes_nothing(told: list[list[SegmentTable]], last: list[SegmentTable]) -> None:
    once = after(*told, last)
    assert dict(once.after(last).tables) == dict(once.tables)


@given(steps, st.lists(tables, max_size=3, unique_by=lambda t: (t.schema, t.name)))
def test_nothing_that_was_sent_is_lost_and_no_inferred_type_shrinks(
    told: list[list[SegmentTable]], last: list[SegmentTable]
) -> None:
    before, now = after(*told), after(*told, last)
    declared_now = {(t.schema, t.name, c.name) for t in last for c in t.columns if c.declared}
    for ref, table in before.tables.items():
        assert not table.sent or ref in now.tables
        for name, column in table.columns.items():
            if ref not in now.tables or (column.declared and name not in now.tables[ref].columns):
                continue
            kind = now.tables[ref].columns[name].type
            if (*ref, name) not in declared_now:
                assert promote(column.type, kind) == kind


def test_an_empty_one_is_read_from_nothing() -> None:
    assert SeenTables.from_dict({}) == SeenTables()
    table = SeenTable(("id",), {"id": SeenColumn(parse("int64"), True)}, declared=True)
    assert SeenTables.from_dict(SeenTables({("s", "t"): table}).to_dict()).tables == {("s", "t"): table}
