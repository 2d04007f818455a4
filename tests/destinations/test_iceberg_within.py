"""Files that cannot hold a wanted key are not opened; whatever the metrics say, each row that has one is met."""

from __future__ import annotations

import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import AlwaysTrue, BooleanExpression

from instep.destinations.base import Commit, Ref, RowUpdate
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.iceberg.write import row_edits as iceberg_within
from lake import ORDERS, REF, column, create, rows_of, stage, table

ARROW = {"int64": pa.int64(), "int32": pa.int32(), "string": pa.string(), "date": pa.date32(), "float64": pa.float64()}
Files = list[list[dict[str, Any]]]


def filled(folder: Path, wanted: Any, files: Files) -> IcebergDestination:
    lake = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(folder / "lake")))
    create(lake, wanted)
    lake.write.claim(wanted.ref, 1)
    for rows in files:
        lake.write.append(wanted.ref, [stage(lake, wanted.ref, rows)], Commit("r-1", 1, "c1", "a1"))
    return lake


def expression(lake: IcebergDestination, ref: Ref, keys: pa.Table) -> BooleanExpression:
    found = lake.lake.load(ref)
    assert found is not None
    return iceberg_within.keys_expression(found.schema(), keys)


def opened(lake: IcebergDestination, ref: Ref, keys: pa.Table) -> int:
    found = lake.lake.load(ref)
    assert found is not None
    return len(list(found.scan(row_filter=expression(lake, ref, keys)).plan_files()))


CASES: list[tuple[str, str, list[list[Any]], list[Any], int]] = [
    ("one of many", "int64", [[1, 9], [11, 19], [21, 29]], [15], 1),
    ("both ends", "int32", [[1, 9], [11, 19], [21, 29]], [1, 29], 2),
    ("between the files", "int64", [[1, 9], [11, 19]], [10], 0),
    ("NULL meets nothing", "int64", [[1, 9], [11, 19]], [None], 0),
    ("NULL beside a key", "int64", [[1, 9], [11, 19]], [None, 11], 1),
    ("text by its bytes", "string", [["a", "b"], ["ä", "ö"], ["\U0001f600", "\U0001f601"]], ["ä"], 1),
    ("long text, whose bounds are cut", "string", [["a" * 40, "b" * 40], ["c" * 40]], ["b" * 40], 1),
    ("days", "date", [[date(2026, 1, 1)], [date(2026, 2, 1)]], [date(2026, 2, 1)], 1),
    ("floats are looked at everywhere", "float64", [[1.0], [2.0]], [2.0], 2),
    ("more than can be listed", "int64", [[1, 5000], [6000, 9000], [10000]], list(range(5500, 6500)), 1),
]


@pytest.mark.parametrize(("kind", "files", "wanted", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_files_are_left_out(tmp_path: Path, kind: str, files: Any, wanted: list[Any], expected: int) -> None:
    orders = table(column("id", kind, key=1))
    lake = filled(tmp_path, orders, [[{"id": v} for v in values] for values in files])
    keys = pa.table({"id": pa.array(wanted, ARROW[kind])})
    assert opened(lake, orders.ref, keys) == expected
    met = lake.write.lookup_rows(orders.ref, keys)
    there = {v for values in files for v in values}
    assert sorted(met.rows.column("id").to_pylist()) == sorted(v for v in wanted if v in there)


def test_the_second_column_of_a_key_counts_too(tmp_path: Path) -> None:
    pairs = table(column("part", "string", key=1), column("id", "int64", key=2))
    lake = filled(tmp_path, pairs, [[{"part": "a", "id": i}, {"part": "z", "id": i}] for i in range(4)])
    keys = pa.table({"id": pa.array([2, 2]), "part": ["a", "q"]})
    assert opened(lake, pairs.ref, keys) == 1
    assert lake.write.lookup_rows(pairs.ref, keys).rows.column("part").to_pylist() == ["a"]


def test_no_other_file_is_read(tmp_path: Path) -> None:
    lake = filled(tmp_path, ORDERS, [[{"id": i, "name": "x"}] for i in range(5)])
    files = sorted((tmp_path / "lake").rglob("part-*.parquet"), key=lambda p: int(p.stem.split("-")[1]))
    for path in (*files[:2], *files[3:]):
        path.rename(path.with_suffix(".away"))
    met = lake.write.lookup_rows(REF, pa.table({"id": pa.array([2])}))
    at = met.rows.schema.get_field_index("name")
    new = met.rows.set_column(at, met.rows.schema.field(at), pa.array(["y"], met.rows.schema.field(at).type))
    lake.write.update_rows(REF, met, RowUpdate([0], new, new.slice(0, 0)), Commit("r-1", 1, "c1", "a1"))
    for path in (*files[:2], *files[3:]):
        path.with_suffix(".away").rename(path)
    assert [row[:2] for row in rows_of(lake)] == [(0, "x"), (1, "x"), (2, "y"), (3, "x"), (4, "x")]


def test_no_key_at_all_is_every_file(tmp_path: Path) -> None:
    lake = filled(tmp_path, ORDERS, [[{"id": 1}]])
    assert isinstance(expression(lake, REF, pa.table({})), AlwaysTrue)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(st.text(max_size=20), min_size=1, max_size=4), min_size=1, max_size=3), st.data())
def test_no_row_is_missed(files: list[list[str]], data: st.DataObject) -> None:
    """Whatever the texts are, cut bounds included."""
    known = [v for values in files for v in values]
    wanted = data.draw(st.lists(st.sampled_from(known) | st.text(max_size=3), unique=True, max_size=4))
    orders = table(column("id", "string", key=1))
    with tempfile.TemporaryDirectory() as folder:
        lake = filled(Path(folder), orders, [[{"id": v} for v in values] for values in files])
        met = lake.write.lookup_rows(orders.ref, pa.table({"id": pa.array(wanted, pa.string())}))
    assert sorted(met.rows.column("id").to_pylist()) == sorted(v for v in known if v in wanted)
