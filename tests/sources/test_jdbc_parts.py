"""The parts of a table: every row belongs to exactly one, whatever it holds."""

from __future__ import annotations

import sqlite3
from datetime import date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.errors import ProjectError
from instep.project.sections.jdbc_address import dialect_of
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import DataType, Date, Decimal, Int, String, Timestamp, parse
from instep.sources.jdbc.config import JdbcConfig
from instep.sources.jdbc.read import conditions, part_column
from instep.sources.jdbc.sql import Sql

SQL = Sql(dialect_of("sqlite"))
WHOLE = st.integers(-(2**62), 2**62)
DAYS = st.dates(date(1, 1, 1), date(9999, 12, 31)).map(date.isoformat)
MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)).map(lambda m: m.isoformat(" ", "microseconds"))
VALUES = st.one_of(
    st.tuples(st.just(Int(64)), st.lists(WHOLE, min_size=1)),
    st.tuples(st.just(Decimal(20, 0)), st.lists(WHOLE, min_size=1)),
    st.tuples(st.just(Date()), st.lists(DAYS, min_size=1)),
    st.tuples(st.just(Timestamp()), st.lists(MOMENTS, min_size=1)),
)


@given(VALUES, st.integers(0, 9), st.data())
def test_every_row_is_in_one_part(values: tuple[DataType, list[int | str]], parts: int, data: st.DataObject) -> None:
    kind, found = values
    column = Column("id", kind)
    later = data.draw(st.lists(st.sampled_from(found)))
    known = sorted(found)[: max(1, len(found) - 1)]  # rows that come after the bounds were asked for
    config = JdbcConfig.resolved(subprotocol="sqlite", partitions=parts)
    made = conditions(SQL, column, str(known[0]), str(known[-1]), config)
    assert 1 <= len(made) <= max(parts, 32)
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE t (p)")
        connection.executemany("INSERT INTO t VALUES (?)", [(v,) for v in (*found, *later, None)])
        counts = [
            connection.execute(f"SELECT count(*) FROM t{f' WHERE {part}' if part else ''}").fetchone()[0]  # noqa: S608
            for part in made
        ]
    connection.close()
    assert sum(counts) == len(found) + len(later) + 1


COUNTS = [
    ("small", "int64", "1", "999", {}, 1),
    ("a part for a million values", "int64", "1", "3000000", {}, 3),
    ("not more than 32", "int64", "0", str(2**62), {}, 32),
    ("as many as are wanted", "int64", "1", "999", {"partitions": 4}, 4),
    ("not more than values", "int64", "1", "2", {"partitions": 4}, 2),
    ("not more than connections", "int64", "0", str(2**62), {"max_connections": 3}, 3),
    ("days", "date", "2024-01-01", "2024-12-31", {}, 8),
    ("one day", "date", "2024-01-01", "2024-01-01", {}, 1),
    ("a scale that a driver prints", "decimal(20,0)", "1.0", "9.0", {"partitions": 3}, 3),
]


@pytest.mark.parametrize(("kind", "low", "high", "said", "count"), [c[1:] for c in COUNTS], ids=[c[0] for c in COUNTS])
def test_how_many_parts(kind: str, low: str, high: str, said: dict[str, int], count: int) -> None:
    assert (
        len(conditions(SQL, Column("id", parse(kind)), low, high, JdbcConfig.resolved(subprotocol="sqlite", **said)))
        == count
    )  # type: ignore[arg-type]


def table(*columns: Column) -> Table:
    return Table("s", "t", columns)


NUMBER, TEXT, AT = Column("id", Int(64), key=1), Column("id", String(), key=1), Column("at", Timestamp())
CHOSEN = [
    ("the key", {}, table(NUMBER), "id"),
    ("a key of text", {}, table(TEXT, AT), None),
    ("no key", {}, table(AT), None),
    ("the key begins with text", {}, table(TEXT, Column("n", Int(64), key=2)), None),
    ("the settings", {"s.*": "at"}, table(NUMBER, AT), "at"),
    ("settings for others", {"x.*": "at"}, table(NUMBER, AT), "id"),
]


@pytest.mark.parametrize(("said", "of", "name"), [c[1:] for c in CHOSEN], ids=[c[0] for c in CHOSEN])
def test_the_column_that_divides(said: dict[str, str], of: Table, name: str | None) -> None:
    found = part_column(JdbcConfig.resolved(subprotocol="sqlite", partition_columns=said), of)
    assert (found.name if found else None) == name


@pytest.mark.parametrize(("name", "why"), [("no", "does not exist"), ("id", "is string")])
def test_a_column_that_cannot_divide(name: str, why: str) -> None:
    with pytest.raises(ProjectError, match=why):
        part_column(JdbcConfig.resolved(subprotocol="sqlite", partition_columns={"s.t": name}), table(TEXT))
