"""What `connector check` finds in tables that were declared and sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.schema.catalog.types import Boolean, Decimal, Int, Json, String
from instep.sources.connector.lint import SentColumn, SentTable, lint

C = SentColumn
TEXT = (String(),)


def table(*columns: C, path: str = "users", rows: int = 100, declared: bool = True, key: str = "id") -> SentTable:
    id = C("id", (Int(64),), declared=declared, values=rows, key=True)
    return SentTable(path, declared, (key,) if key else (), rows, rows, (id, *columns))


CASES = [
    ("nothing wrong", [table(C("email", TEXT, values=100))], []),
    (
        "a table's name misspelt",
        [table(rows=0), table(path="usres", declared=False, key="")],
        ["warn table.typo usres", "note table.keyless usres"],
    ),
    (
        "declared tables without rows, nothing like them",
        [table(rows=0), table(path="parts")],
        ["note table.empty users"],
    ),
    (
        "names of tables that differ in case alone",
        [table(path="userData"), table(path="user_data", declared=False)],
        ["warn table.spelling user_data"],
    ),
    ("no key", [table(key="", declared=False)], ["note table.keyless users"]),
    (
        "a declared column that update() spells otherwise",
        [table(C("created_at", declared=True), C("create_at", TEXT, values=100))],
        ["warn column.typo users.create_at"],
    ),
    (
        "one of many rows spells a column otherwise",
        [table(C("email", TEXT, values=97), C("emial", TEXT, values=3))],
        ["warn column.typo users.emial"],
    ),
    ("names that are alike, both in each row", [table(C("city", TEXT, values=100), C("cities", TEXT, values=100))], []),
    ("numbered columns", [table(C("line1", TEXT, values=95), C("line2", TEXT, values=5))], []),
    (
        "names of columns that differ in case alone",
        [table(C("userName", TEXT, values=50), C("user_name", TEXT, values=50))],
        ["warn column.spelling users.user_name"],
    ),
    ("declared and empty", [table(C("fax", declared=True))], ["note column.empty users.fax"]),
    ("mostly empty", [table(C("fax", TEXT, values=4))], ["note column.sparse users.fax"]),
    ("mostly empty, too few rows to tell", [table(C("fax", TEXT, values=1), rows=19)], []),
    (
        "numbers and text",
        [table(C("age", (Int(64), String()), values=100))],
        ["warn column.unstable users.age"],
    ),
    ("numbers and flags", [table(C("age", (Int(64), Boolean()), values=100))], ["warn column.unstable users.age"]),
    ("numbers that grow", [table(C("age", (Int(64), Decimal(20, 0)), values=100))], ["note column.unstable users.age"]),
    ("declared, so it is settled", [table(C("age", (Int(64), Int(16)), declared=True, values=100))], []),
    ("objects and lists are both JSON", [table(C("tags", (Json(), Json()), values=100))], []),
]


@pytest.mark.parametrize(("tables", "found"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_findings(tables: list[SentTable], found: list[str]) -> None:
    assert [f"{f.severity} {f.kind} {f.where}" for f in lint(tables)] == found


def test_a_finding_names_both_sides_and_the_next_step() -> None:
    (found,) = lint([table(C("email", TEXT, values=97), C("emial", TEXT, values=3))])
    assert found.text == "has a value in 3 of 100 rows, and email in 97 others"
    assert found.hint == "if they are one column, use one name: email or emial"
    (found,) = lint([table(C("age", (Int(64), String()), values=100))])
    assert found.text == "has values of types int64, string: it becomes string"


columns = st.builds(
    C, st.sampled_from(["a", "email", "emial", "userName", "user_name", "x1", "x2"]),
    st.lists(st.sampled_from([Int(64), String(), Json()])).map(tuple), st.booleans(), st.integers(0, 30),
)  # fmt: skip


@given(st.lists(columns, unique_by=lambda c: c.name), st.integers(0, 30))
def test_the_order_of_columns_counts_nothing_and_each_finding_has_a_place(found: list[C], rows: int) -> None:
    said = lint([table(*found, rows=rows)])
    assert said == lint([table(*reversed(found), rows=rows)])
    assert {f.where.rpartition(".")[0] for f in said if f.kind.startswith("column")} <= {"users"}
    assert all(f.text and f.hint for f in said)
