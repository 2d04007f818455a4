from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.shows import shows
from instep.errors import ReadError
from instep.project.sections.sources import SqliteSourceSection
from instep.schema.catalog.types import Binary, Float, Int, String, parse
from instep.sources.base import CursorRange
from instep.sources.sqlite import read
from instep.sources.sqlite import source as module
from instep.sources.sqlite.read import _array
from instep.sources.sqlite.source import SqliteSource
from source_reads import EVERYTHING, accept, batches, find, staged, values

Make = Callable[..., SqliteSource]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Runs a script, then statements with values, on a new file; gives a source over it."""

    def build(script: str, *statements: tuple[str, list[Any]]) -> SqliteSource:
        path = tmp_path / "shop.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(script)
            for sql, rows in statements:
                connection.executemany(sql, rows)
            connection.commit()
        return SqliteSource(SqliteSourceSection.resolved(type="sqlite", path=str(path)))

    return build


FITTING = [
    ("INTEGER", -(2**63), -(2**63)),
    ("REAL", 0.1, 0.1),
    ("REAL", 3, 3.0),
    ("REAL", 1e300, 1e300),
    ("decimal(12,2)", 12.5, Decimal("12.50")),
    ("decimal(12,2)", 7, Decimal("7.00")),
    ("decimal(12,2)", "0.10", Decimal("0.10")),
    ("boolean", 1, True),
    ("boolean", "false", False),
    ("date", "2024-02-29", date(2024, 2, 29)),
    ("datetime", "2024-02-29 10:11:12.5", datetime(2024, 2, 29, 10, 11, 12, 500_000)),
    ("datetime", "2024-02-29T10:11", datetime(2024, 2, 29, 10, 11)),
    ("text", "Æ\n🫖\0end", "Æ\n🫖\0end"),
    ("text", b"caf\xc3\xa9", "café"),
    ("varchar(2)", "longer", "longer"),
    ("blob", b"\x00\xff", b"\x00\xff"),
    ("blob", "text", b"text"),
    ("", 5, "5"),
    ("json", '{"a": [1]}', '{"a": [1]}'),
    ("uuid", "123E4567-e89b-12d3-a456-426614174000", "123E4567-e89b-12d3-a456-426614174000"),
    ("uuid", bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
]


@pytest.mark.parametrize(("declared", "stored", "expected"), FITTING)
def test_values_that_fit(make: Make, declared: str, stored: object, expected: object) -> None:
    source = make(
        f"CREATE TABLE t (id INTEGER PRIMARY KEY, v {declared})", ("INSERT INTO t VALUES (1, ?)", [(stored,)])
    )
    assert staged(source, "t") == ([{"id": 1, "v": expected}], {})


INVALID_VALUES = [
    ("INTEGER", "abc", "abc"),
    ("INTEGER", 1.5, "1.5"),
    ("INTEGER", b"12", "\\x3132"),
    ("INTEGER", "", ""),
    ("REAL", "much", "much"),
    ("decimal(4,2)", 12.345, "12.345"),
    ("decimal(4,2)", 123456, "123456"),
    ("boolean", 2, "2"),
    ("boolean", "maybe", "maybe"),
    ("date", "2024-02-30", "2024-02-30"),
    ("datetime", 1_700_000_000, "1700000000"),
    ("text", b"\xff\xfe", "\\xfffe"),
    ("json", "{", "{"),
    ("json", b"\xff", "\\xff"),
]


@pytest.mark.parametrize(("declared", "stored", "original"), INVALID_VALUES)
def test_values_that_do_not_fit_are_held_with_their_original(
    make: Make, declared: str, stored: object, original: str
) -> None:
    source = make(
        f"CREATE TABLE t (id INTEGER PRIMARY KEY, v {declared})",
        ("INSERT INTO t VALUES (?, ?)", [(1, stored), (2, None), (3, stored)]),
    )
    rows, held = staged(source, "t")
    assert rows == [{"id": n, "v": None} for n in (1, 2, 3)]
    assert held == {('{"id":"1"}', "v"): original, ('{"id":"3"}', "v"): original}


def test_text_that_is_not_utf8_is_found_behind_many_rows(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.sources.sqlite.read.BATCH_ROWS", 1000)
    source = make(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, v text);"
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)"
        " INSERT INTO t SELECT i, i FROM n;"
        "UPDATE t SET v = CAST(x'61FF' AS TEXT) WHERE id IN (2500, 4999)"
    )
    rows, held = staged(source, "t")
    assert [row["id"] for row in rows] == list(range(1, 5001))
    assert held == {(f'{{"id":"{n}"}}', "v"): "\\x61ff" for n in (2500, 4999)}


CLASSES = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(), st.binary())


@given(
    st.lists(CLASSES, min_size=1),
    st.sampled_from(["int64", "float64", "string", "date", "decimal(9,2)", "uuid", "binary"]),
)
def test_no_value_becomes_null_or_is_lost(stored: list[Any], kind: str) -> None:
    found = _array(parse(kind), [v.encode("utf8", "replace").decode() if isinstance(v, str) else v for v in stored])
    assert len(found) == len(stored)
    assert found.is_null().to_pylist() == [v is None for v in stored]


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))))
def test_the_text_of_a_number_reads_back_as_the_number(stored: list[Any]) -> None:
    for shown, value in zip(_array(parse("decimal(9,2)"), stored).to_pylist(), stored, strict=True):
        assert (
            shown if shown is None else type(value)(float(shown)) if isinstance(value, float) else int(shown)
        ) == value


def test_batches_have_the_types_that_are_announced(make: Make) -> None:
    source = make(
        "CREATE TABLE t (a int, b real, c blob, d date)", ("INSERT INTO t VALUES (?,?,?,?)", [(1, 2.0, b"", "x")])
    )
    with source.snapshot() as snapshot:
        read = accept(find(source, "t"))
        assert list(snapshot.query_types(read).values()) == [Int(64), Float(64), Binary(), String()]
        (batch,) = batches(snapshot, snapshot.chunks(read, "t", EVERYTHING))
    assert [str(c.type) for c in batch.columns] == ["int64", "double", "binary", "string"]


SHAPES = [
    ("dense", "id INTEGER PRIMARY KEY", "", range(1, 100)),
    ("sparse", "id INTEGER PRIMARY KEY", "", [-(2**62), *range(-40, 40), 2**62]),
    ("hidden row id", "id text PRIMARY KEY, rowid text", "", range(100, 150)),
    ("all row id names taken", "id int, rowid text, _rowid_ text, oid text", "", range(100, 150)),
    ("without row id", "id text PRIMARY KEY", "WITHOUT ROWID", range(100, 150)),
    ("strict", "id INTEGER PRIMARY KEY", "STRICT", range(1, 100)),
    ("one row", "id INTEGER PRIMARY KEY", "", [7]),
]


@pytest.mark.parametrize(("columns", "options", "ids"), [s[1:] for s in SHAPES], ids=[s[0] for s in SHAPES])
def test_chunks_yield_each_row_once(
    make: Make, monkeypatch: pytest.MonkeyPatch, columns: str, options: str, ids: list[int]
) -> None:
    monkeypatch.setattr(module, "CHUNK_ROWS", 10)
    source = make(f"CREATE TABLE t ({columns}) {options}", ("INSERT INTO t (id) VALUES (?)", [(i,) for i in ids]))
    assert sorted(map(int, values(source, "t")["id"])) == sorted(ids)
    with source.snapshot() as snapshot:
        chunks = snapshot.chunks(accept(find(source, "t")), "t", EVERYTHING)
    even = columns.startswith(("id INTEGER", "id text PRIMARY KEY, rowid"))
    assert len(chunks) == (-(-len(ids) // 10) if even else 1)


@shows(event=(55, 58))
def test_views_and_generated_columns_are_read(make: Make) -> None:
    source = make(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, a int, b int AS (a * 2), c int AS (a * 3) STORED);"
        "INSERT INTO t (id, a) VALUES (1, 5); CREATE VIEW v AS SELECT id, b + c AS total FROM t"
    )
    assert values(source, "t") == {"id": [1], "a": [5], "b": [10], "c": [15]}
    assert values(source, "v") == {"id": [1], "total": ["25"]}


CURSORS: list[tuple[str, list[Any], str, str, list[Any]]] = [
    ("int", [1, 20, 3, None], "20", "4", [20]),
    ("datetime", ["2024-01-01 10:00:00", "2024-01-02 00:00:00"], "2024-01-02 00:00:00", "2024-01-01 11:00:00",
     ["2024-01-02 00:00:00"]),
    ("real", [0.1, 0.30000000000000004], "0.30000000000000004", "0.30000000000000004", [0.30000000000000004]),
    ("datetime", [1_700_000_000, 900], "1700000000", "901", ["1700000000"]),
    ("text", ["b'b", "a"], "b'b", "b", ["b'b"]),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "stored", "upper", "lower", "expected"), CURSORS)
def test_cursors_compare_as_the_column_does(
    make: Make, declared: str, stored: list[Any], upper: str, lower: str, expected: list[Any]
) -> None:
    source = make(f"CREATE TABLE t (v {declared})", ("INSERT INTO t VALUES (?)", [(v,) for v in stored]))
    read = accept(find(source, "t"))
    with source.snapshot() as snapshot:
        _, bounds = snapshot.cursor_bounds(read, "v", None, 0)
        (chunk,) = snapshot.chunks(read, "t", CursorRange("v", lower, upper))
        (batch,) = batches(snapshot, [chunk])
    assert (bounds.upper, bounds.nulls) == (upper, stored.count(None))
    assert batch.column(0).to_pylist() == expected


def test_columns_without_an_order_are_no_cursors(make: Make) -> None:
    source = make("CREATE TABLE t (a, b blob, c text); INSERT INTO t VALUES (1, x'00', x'00')")
    read = accept(find(source, "t"))
    with source.snapshot() as snapshot:
        for name in ("a", "b", "c", "absent"):
            with pytest.raises(ReadError, match=r"cursor|bytes"):
                snapshot.cursor_bounds(read, name, None, 0)
        with pytest.raises(ReadError, match="no column is left"):
            snapshot.chunks(read, "t", EVERYTHING, columns=("nothing",))


def test_batches_are_bounded_by_bytes(tmp_path: Path) -> None:
    """Rows of megabytes come a few at a time, however many follow rows that are short."""
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body TEXT)")
        database.executemany("INSERT INTO t VALUES (?, ?)", ((i, "x" * (3 << 20 if i % 2 else 1)) for i in range(40)))
        database.commit()
        cursor, step, rows = database.execute("SELECT id, body FROM t"), 1, 0
        while True:
            columns, step = read._fetch(cursor, 2, read.BATCH_ROWS, step)
            if not columns:
                break
            rows += len(columns[0])
            assert sum(map(len, columns[1])) <= 2 * read.BATCH_BYTES
    assert rows == 40
