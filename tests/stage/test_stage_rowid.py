"""Row ids of keyless tables: a multiset of rows has a set of ids."""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.schema.catalog.types import DataType, parse
from instep.stage.rowid import Occurrences, RowIds, row_texts

INT, TEXT = parse("int64"), parse("string")
Columns = dict[str, tuple[pa.Array, DataType]]


def columns(**values: list[object]) -> Columns:
    kinds = {"a": (pa.int64(), INT), "b": (pa.string(), TEXT), "c": (pa.string(), TEXT)}
    return {n: (pa.array(v, kinds[n][0]), kinds[n][1]) for n, v in values.items()}


def ids(rows: int, **values: list[object]) -> list[str]:
    out: list[str] = RowIds().of(row_texts(columns(**values), rows)).to_pylist()
    return out


def test_the_documented_digest() -> None:
    assert row_texts(columns(b=["é"], a=[1]), 1).to_pylist() == ["a=1:1;b=2:é;".encode()]
    first = hashlib.sha256("a=1:1;b=2:é;".encode())
    assert ids(2, a=[1, 1], b=["é", "é"]) == [first.hexdigest(), hashlib.sha256(first.digest() + b"#1").hexdigest()]


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        pytest.param({"a": [1]}, {"a": [1], "b": [None]}, True, id="absent is null"),
        pytest.param({"b": ["x"], "a": [1]}, {"a": [1], "b": ["x"]}, True, id="order of columns"),
        pytest.param({"b": ["x"]}, {"c": ["x"]}, False, id="another column"),
        pytest.param({"b": [""]}, {"b": [None]}, False, id="empty is not null"),
        pytest.param({"b": ["1:x;c=1:y"]}, {"b": ["1:x"], "c": ["y"]}, False, id="text that looks like a boundary"),
        pytest.param({"b": ["a\0b"]}, {"b": ["ab"]}, False, id="NUL"),
    ],
)
def test_equality(left: dict[str, list[object]], right: dict[str, list[object]], equal: bool) -> None:
    assert (ids(1, **left) == ids(1, **right)) == equal


def test_no_columns_and_no_rows() -> None:
    assert len(set(ids(3))) == 3
    assert ids(0, a=[]) == []


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["x", "y", None])), max_size=60), st.integers(1, 7))
def test_ids_do_not_depend_on_batches_or_order(rows: list[tuple[int, str | None]], size: int) -> None:
    """Law: equal multisets of rows have equal sets of ids, however they are cut into batches."""
    whole = ids(len(rows), a=[r[0] for r in rows], b=[r[1] for r in rows])
    counting, parts = RowIds(), []
    for at in range(0, len(rows), size):
        part = rows[::-1][at : at + size]
        texts = row_texts(columns(a=[r[0] for r in part], b=[r[1] for r in part]), len(part))
        parts += counting.of(texts).to_pylist()
    assert len(set(whole)) == len(rows)
    assert set(parts) == set(whole)


@given(st.lists(st.lists(st.integers(0, 5), max_size=20), max_size=12))
def test_occurrences_count_what_came_before(batches: list[list[int]]) -> None:
    seen: Counter[int] = Counter()
    counting = Occurrences()
    for batch in batches:
        expected = []
        for value in batch:
            expected.append(seen[value])
            seen[value] += 1
        assert counting.count(np.array(batch, dtype=np.uint64)).tolist() == expected


def test_memory_stays_modest() -> None:
    counting = Occurrences()
    generator = np.random.default_rng(1)
    for _ in range(50):
        counting.count(generator.integers(0, 2**63, 20_000, dtype=np.uint64))
    held = sum(keys.nbytes + counts.nbytes for keys, counts in counting.runs)
    assert held <= 12 * 1_000_000
    assert len(counting.runs) <= 20
