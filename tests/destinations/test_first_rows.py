"""The first rows of batches: no more is asked for than they take."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from instep.destinations.rows import first_rows

SCHEMA = pa.schema([pa.field("n", pa.int64()), pa.field("text", pa.string())])
LONG = pa.schema([pa.field("n", pa.int64()), pa.field("text", pa.large_string())])


def batches(asked: list[int]) -> Iterator[pa.RecordBatch]:
    for number in range(4):
        asked.append(number)
        rows = [{"n": 3 * number + place, "text": "a"} for place in range(3)] if number != 1 else []
        yield pa.RecordBatch.from_pylist(rows, schema=LONG if number % 2 else SCHEMA)


@pytest.mark.parametrize(
    ("limit", "rows", "read"),
    [(0, 0, []), (1, 1, [0]), (3, 3, [0]), (4, 4, [0, 1, 2]), (9, 9, [0, 1, 2, 3]), (50, 9, [0, 1, 2, 3])],
)
def test_batches_are_read_until_the_rows_are_there(limit: int, rows: int, read: list[int]) -> None:
    asked: list[int] = []
    found = first_rows(batches(asked), limit, SCHEMA)
    assert (found.num_rows, asked) == (rows, read)
    assert found.schema == SCHEMA
