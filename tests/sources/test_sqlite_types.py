from __future__ import annotations

import pytest

from instep.errors import ReadError
from instep.schema.catalog.types import parse
from instep.sources.query import moved_back
from instep.sources.sqlite.types import column_type, query_type

DECLARED = [
    ("INTEGER", "int64", "int64", False),
    ("tinyint", "int64", "int64", False),
    ("UNSIGNED BIG INT", "int64", "int64", False),
    ("boolean", "boolean", "string", False),
    ("VARCHAR(40)", "string(40)", "string", False),
    ("native character (70)", "string(70)", "string", False),
    ("text", "string", "string", False),
    ("CLOB", "string", "string", False),
    ("STRING", "string", "string", False),
    ("blob", "binary", "binary", False),
    ("REAL", "float64", "float64", False),
    ("double precision", "float64", "float64", False),
    ("FLOATING POINT", "float64", "float64", False),
    ("decimal(12,2)", "decimal(12,2)", "string", False),
    ("DECIMAL ( 12 , 2 )", "decimal(12,2)", "string", False),
    ("numeric(9)", "decimal(9,0)", "string", False),
    ("NUMERIC", "string", "string", True),
    ("decimal(60,2)", "string", "string", True),
    ("decimal(2,5)", "string", "string", True),
    ("date", "date", "string", False),
    ("datetime", "timestamp", "string", False),
    ("TIMESTAMP(6)", "timestamp", "string", False),
    ("timestamp with time zone", "timestamptz", "string", False),
    ("time", "time", "string", False),
    ("json", "json", "string", False),
    ("UUID", "uuid", "string", False),
    ("", "string", "string", True),
    ("ANY", "string", "string", True),
    ("MONEY", "string", "string", True),
    ("odd ((", "string", "string", True),
]


@pytest.mark.parametrize(("declared", "kind", "read", "noted"), DECLARED)
def test_declared_types(declared: str, kind: str, read: str, noted: bool) -> None:
    found, note = column_type(declared)
    assert found == parse(kind)
    assert query_type(found) == (found if read == kind and "(" not in kind else parse(read))
    assert bool(note) == noted


MOVED = [
    (None, 5, None),
    ("20", 0, "20"),
    ("20", 5, "15"),
    ("9223372036854775807", 1, "9223372036854775806"),
    ("1.5", 0.25, "1.25"),
    ("2024-03-01", 86_400, "2024-02-29"),
    ("2024-03-01", 3600, "2024-02-29"),
    ("2024-03-01 00:00:00", 1, "2024-02-29 23:59:59"),
    ("2024-03-01T00:00:00Z", 1, "2024-02-29T23:59:59Z"),
    ("2024-03-01T00:00", 60, "2024-02-29T23:59"),
    ("2024-03-01 00:00:00.500", 1, "2024-02-29 23:59:59.500"),
    ("2024-03-01 00:00:00.000001+02:00", 1, "2024-02-29 23:59:59.000001+02:00"),
    ("2024-03-01T10:00:00-05:00", 3600, "2024-03-01T09:00:00-05:00"),
]


@pytest.mark.parametrize(("after", "lookback", "expected"), MOVED)
def test_a_cursor_moves_back_in_its_own_form(after: str | None, lookback: float, expected: str | None) -> None:
    assert moved_back(after, lookback, "orders.at") == expected


def test_text_cannot_be_moved_back() -> None:
    with pytest.raises(ReadError, match=r"orders\.at.*'abc'") as failed:
        moved_back("abc", 1, "orders.at")
    assert "lookback" in failed.value.hint
