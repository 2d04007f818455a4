"""The verdicts against a database that runs the queries before and after: what fails afterwards has to break, what
answers otherwise must not be called safe."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lineage_world import edit, field, model

from instep.lineage.assess import assess
from instep.lineage.shape import Kind, Level, ModelField, ModelRelation, RelationShape

BEFORE = """
    create schema shop;
    create table shop.a (id int, x int, y int, z int);
    create table shop.b (id int, u int, y int, w int);
    insert into shop.a values (1, 10, 20, 30), (2, 11, 21, 31), (2, 11, 21, 32);
    insert into shop.b values (1, 40, 20, 60), (3, 41, 21, 61);
"""
CHANGES = {
    "drop": ("alter table shop.a drop column z", "a", "z", ()),
    "rename": ("alter table shop.a rename column x to q", "a", "x", ("q",)),
    "add": ("alter table shop.a add column w int default 7", "a", "", ("w",)),
    "collide": ("alter table shop.b add column x int default 11", "b", "", ("x",)),
}
COLUMNS = {"a": ("id", "x", "y", "z"), "b": ("id", "u", "y", "w")}


def lake(name: str) -> tuple[ModelRelation, ...]:
    """The two tables with one change on them."""
    _, table, old, new = CHANGES[name]
    kinds: dict[str, Kind] = {"drop": "gone", "rename": "renamed"}
    kind = kinds.get(name, "added")
    mark = edit(kind, f"{table} changes", name)
    return tuple(
        ModelRelation(
            ("shop", t),
            RelationShape(
                tuple(field(c, *([mark] if (t, c) == (table, old) else [])) for c in columns)
                + tuple(ModelField(c, (mark,), coming=True) for c in new if t == table)
            ),
        )
        for t, columns in COLUMNS.items()
    )


names = st.sampled_from(["id", "x", "y", "z", "u", "w", "q"])
items = st.one_of(
    names, names.map("s.{}".format), st.just("*"), st.just("s.*"), names.map("max({}) over () as m".format)
)
tables = st.sampled_from(
    [
        "shop.a s", "shop.b s", "shop.a s join shop.b t using (id)", "shop.a s join shop.b t on s.id = t.id",
        "shop.a s natural join shop.b t", "(select * from shop.a) s", "(select id, z as u, x from shop.a) s",
        "(select * exclude (y) from shop.a) s", "(select id, y from shop.a union select id, y from shop.b) s",
        "(select * from shop.a union all select * from shop.b) s", "(select distinct * from shop.a) s",
    ]
)  # fmt: skip
conditions = st.sampled_from(
    [
        "", " where id = 1", " where z > 30", " where s.x = 11", " where exists (select * from shop.b where w > 0)",
        " where s.id in (select id from shop.b where x = 11)", " where s.id in (select * from shop.b)",
        " order by 1", " qualify row_number() over (partition by s.id order by y) = 1",
    ]
)  # fmt: skip


@st.composite
def queries(draw: st.DrawFn) -> str:
    picked = ", ".join(draw(st.lists(items, min_size=1, max_size=3)))
    body = " ".join(("select", picked, "from", draw(tables), draw(conditions)))
    shape = draw(st.sampled_from(["{}", "with s as ({}) select * from s", "with s as ({}) select id from s", "{}"]))
    return shape.format(body)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    connection.execute(BEFORE)
    yield connection
    connection.close()


def answer(database: duckdb.DuckDBPyConnection, sql: str) -> object:
    """Columns and rows in any order; None if it fails."""
    try:
        found = database.execute(sql)
        return [d[0] for d in found.description or []], sorted(found.fetchall(), key=repr)
    except duckdb.Error:
        return None


def judge(database: duckdb.DuckDBPyConnection, sql: str, change: str) -> tuple[object, object, Level]:
    """(what it answers before, after, the verdict)."""
    before = answer(database, sql)
    database.execute("begin")
    database.execute(CHANGES[change][0])
    after = answer(database, sql)
    database.execute("rollback")
    return before, after, assess([model("m", sql, "duckdb")], lake(change))[0].level


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sql=queries(), change=st.sampled_from(sorted(CHANGES)))
def test_nothing_that_breaks_is_called_safe(database: duckdb.DuckDBPyConnection, sql: str, change: str) -> None:
    before, after, level = judge(database, sql, change)
    if before is None:
        return
    if after is None:
        assert level == "breaks", (sql, change)
    elif after != before:
        assert level == "silent", (sql, change, before, after)
    else:
        assert level in ("silent", "safe"), (sql, change)
