"""Operations in order against a dictionary of rows: whatever comes, what is left is what the dictionary has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.schema.catalog.catalog import ROW_ID
from instep.sources.connector.reduce import ConnectorScan, SegmentScan, What, canonical, row_ids
from instep.sources.connector.snapshot import ConnectorReader
from instep.stage.rowid import RowIds
from instep.stage.spec import Chunk

Op = tuple[str, dict[str, Any]]
CODES = {"upsert": 0, "update": 1, "delete": 2}
TYPES = {"id": pa.int64(), "a": pa.string(), "b": pa.float64()}
COLUMNS = tuple(TYPES)


def written(folder: Path, number: int, operations: Sequence[Op]) -> SegmentScan:
    """The operations as the files of one segment, two rows a file, with the columns that have a value in it."""
    rows, cut = [], -1
    came = [c for c in COLUMNS if c == "id" or any(row.get(c) is not None for _, row in operations)]
    for seq, (what, row) in enumerate(operations):
        if what == "truncate":
            cut = seq
            continue
        rows.append({"__op": CODES[what], "__seq": seq, "__given": json.dumps(list(row)) if what == "update" else None,
                     **{c: row.get(c) for c in came}})  # fmt: skip
    fields = [("__op", pa.int8()), ("__seq", pa.int64()), ("__given", pa.dictionary(pa.int32(), pa.string())),
              *((c, TYPES[c]) for c in came)]  # fmt: skip
    files = []
    for at in range(0, len(rows), 2):
        file = folder / f"{number}-{at}.parquet"
        pq.write_table(pa.Table.from_pylist(rows[at : at + 2], pa.schema(fields)), file)
        files.append(str(file))
    return SegmentScan(tuple(files), cut, sum(what == "update" for what, _ in operations))


def read(parts: Sequence[SegmentScan], what: What, key: Sequence[str] = ("id",)) -> list[dict[str, Any]]:
    columns = tuple(key) if what == "gone" else COLUMNS
    scan = ConnectorScan("t", what, tuple(key), columns, tuple(parts))
    with ConnectorReader().open() as session:
        return [row for batch in session.read(Chunk("0", 0, scan.to_text())) for row in batch.to_pylist()]


def meets(parts: Sequence[SegmentScan], before: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """What a destination with these rows has afterwards: as a sync merges them."""
    rows = {} if any(p.cut >= 0 for p in parts) else dict(before)
    for gone in read(parts, "gone"):
        rows.pop(gone["id"], None)
    for row in read(parts, "changed"):
        names = json.loads(row["__given"])
        if row["id"] in rows:
            rows[row["id"]] = rows[row["id"]] | {n: row[n] for n in names}
    return rows | {row["id"]: row for row in read(parts, "rows")}


def model(groups: Sequence[Sequence[Op]], before: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    rows = dict(before)
    for what, row in (op for group in groups for op in group):
        if what == "truncate":
            rows = {}
        elif what == "delete":
            rows.pop(row["id"], None)
        elif what == "upsert":
            rows[row["id"]] = {c: row.get(c) for c in COLUMNS}
        elif row["id"] in rows:
            rows[row["id"]] = rows[row["id"]] | row
    return rows


keys = st.integers(0, 3)
values = {"a": st.none() | st.sampled_from(["", "x", "y"]), "b": st.none() | st.sampled_from([0.0, 1.5])}
records = st.builds(lambda id, row: {"id": id, **row}, keys, st.fixed_dictionaries({}, optional=values))
operations = st.one_of(
    st.tuples(st.just("upsert"), records),
    st.tuples(st.just("update"), records),
    st.tuples(st.just("delete"), st.builds(lambda id: {"id": id}, keys)),
    st.tuples(st.just("truncate"), st.just({})),
)
BEFORE = {0: {"id": 0, "a": "old", "b": 9.0}, 1: {"id": 1, "a": None, "b": None}}


@given(groups=st.lists(st.lists(operations, max_size=8), min_size=1, max_size=3))
def test_what_is_left_is_what_a_dictionary_has(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[Op]]
) -> None:
    folder = tmp_path_factory.mktemp("segments")
    parts = [written(folder, at, group) for at, group in enumerate(groups)]
    assert meets(parts, BEFORE) == model(groups, BEFORE)


def test_a_row_id_tells_values_and_not_their_types_or_order() -> None:
    one = {"a": pa.array([1, None]), "b": pa.array(["x", "y"])}
    other = {"b": pa.array(["x", "y"]), "c": pa.nulls(2), "a": pa.array([1.0, None])}
    third = {"b": pa.array(["x", "y"]), "a": pa.array(["1", None])}
    assert row_ids(one, 2, RowIds()) == row_ids(other, 2, RowIds()) == row_ids(third, 2, RowIds())
    assert row_ids(one, 2, RowIds())[0] != row_ids(one, 2, RowIds())[1]
    assert row_ids({"a": pa.array(["y"])}, 1, RowIds()) != row_ids({"b": pa.array(["y"])}, 1, RowIds())


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pa.array([1.0, 1.5, 100.0, 1e300]), ["1", "1.5", "100", "1e+300"]),
        (pa.array(["1.50", "2"]), ["1.50", "2"]),
        (pa.array([10, -3]), ["10", "-3"]),
        (pa.array([True, None]), ["true", None]),
    ],
)
def test_a_number_is_told_by_its_value(values: pa.Array, texts: list[str | None]) -> None:
    assert canonical(values).to_pylist() == texts


def test_records_without_a_key_are_one_row_each(tmp_path: Path) -> None:
    twice = [("upsert", {"id": 1, "a": "x"}), ("upsert", {"a": "x", "id": 1}), ("upsert", {"id": 1, "a": "y"})]
    part = written(tmp_path, 0, twice)
    assert [r["a"] for r in read([part], "rows", (ROW_ID,))] == ["x", "y"]
    gone = written(tmp_path, 1, [("delete", {"id": 1, "a": "x"})])
    assert [r["a"] for r in read([part, gone], "rows", (ROW_ID,))] == ["y"]
