"""From the SDK's way out into the files of a table: rotation, columns that come late or change, what is torn."""

from __future__ import annotations

import json
import os
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.errors import ReadError
from instep.schema.catalog.types import parse
from instep.sources.connector import table_spool
from instep.sources.connector.frames import Frame, Frames
from instep.sources.connector.sdk.fivetran_connector_sdk import outlet, rows
from instep.sources.connector.sdk.fivetran_connector_sdk.declared import TableSpec, tables_of
from instep.sources.connector.segment import SegmentTable
from instep.sources.connector.table_spool import Declaration, TableSpool

Operations = Callable[[outlet.Outlet], None]
END = {"frame": "end"}


def frames_of(operations: Operations, spec: TableSpec) -> Iterator[Frame]:
    """What comes out of a pipe while another thread does the operations."""
    read, write = os.pipe()
    answers, answer = os.pipe()
    os.write(answer, b'{"lenient": []}\n')

    def work() -> None:
        wire = outlet.Pipes(write, answers)
        out = outlet.Outlet(wire)
        out.declare({(spec.schema, spec.name): spec})
        operations(out)
        out.end(END)

    worker = threading.Thread(target=work)
    worker.start()
    frames = Frames(read)
    while (frame := frames.read(60)) is not None and frame.kind != "end":
        yield frame
    worker.join()
    for descriptor in (read, write, answer):
        os.close(descriptor)


def spooled(folder: Path, operations: Operations, said: Mapping[str, Any] | None = None) -> SegmentTable:
    (spec,) = tables_of([{"table": "t", **(said or {})}]).values()
    types = {name: parse(d.kind) for name, d in spec.types.items()}
    spool = TableSpool(folder, 1, Declaration("", "t", spec.key, types, True))
    for frame in frames_of(operations, spec):
        if frame.kind == "rows":
            spool.add(frame)
        elif frame.kind == "truncate":
            spool.truncates.append(frame.head["number"])
    return spool.close()


def upserts(records: Sequence[Mapping[str, Any]]) -> Operations:
    def do(out: outlet.Outlet) -> None:
        for record in records:
            out.row(rows.UPSERT, "", "t", record)

    return do


def read(folder: Path, table: SegmentTable) -> pa.Table:
    files = [pq.read_table(folder / f.path) for f in table.files]
    assert len({f.schema for f in files}) <= 1, "every file has the same columns"
    assert [f.rows for f in table.files] == [f.num_rows for f in files]
    assert [f.bytes for f in table.files] == [(folder / f.path).stat().st_size for f in table.files]
    return pa.concat_tables(files)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of a few rows, so that what needs many happens soon."""
    monkeypatch.setattr(table_spool, "_GROUP_ROWS", 10)
    monkeypatch.setattr(rows, "MOST_ROWS", 7)


@pytest.mark.parametrize(
    ("first", "later", "kind", "expected"),
    [
        ([1], ["x"], "string", ["1", "x"]),
        ([1], [2.5], "float64", [1.0, 2.5]),
        ([2**60], [2.5], "string", [str(2**60), "2.5"]),
        ([True], [7], "string", ["true", "7"]),
        ([{"a": 1}], ["x"], "string", ['{"a":1}', "x"]),
        ([2.5], [1], "float64", [2.5, 1.0]),
        ([7], [2**70], "decimal(38,0)", [7, 2**70]),
        ([b"\x01"], ["x"], "string", ["\\x01", "x"]),
        ([None], [1], "int64", [None, 1]),
    ],
)
def test_a_column_that_becomes_another_is_written_again(
    tmp_path: Path, small: None, first: list[Any], later: list[Any], kind: str, expected: list[Any]
) -> None:
    table = spooled(tmp_path, upserts([{"c": v, "n": n} for n, v in enumerate(first * 30 + later * 30)]))
    assert {c.name: str(c.type) for c in table.columns}["c"] == kind
    found = read(tmp_path, table)
    assert found.column("c").to_pylist() == [expected[0]] * 30 + [expected[1]] * 30
    assert found.column("n").to_pylist() == list(range(60))
    assert found.column("__seq").to_pylist() == list(range(1, 61))
    assert not list(tmp_path.glob("*.part"))


def test_columns_that_come_late_begin_a_file(tmp_path: Path, small: None) -> None:
    records = [{f"c{n // 20}": n, "n": n} for n in range(100)]
    table = spooled(tmp_path, upserts(records))
    assert len(table.files) > 1
    assert [f.path for f in table.files] == [f"t-t1-{n}.parquet" for n in range(1, len(table.files) + 1)]
    own = ("__op", "__seq", "__given")
    found = [{k: v for k, v in r.items() if v is not None and k not in own} for r in read(tmp_path, table).to_pylist()]
    assert found == records


def test_files_are_cut_at_their_size(tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_spool, "_FILE_BYTES", 4000)
    table = spooled(tmp_path, upserts([{"n": n, "text": os.urandom(100).hex()} for n in range(200)]))
    assert len(table.files) > 3
    assert read(tmp_path, table).column("n").to_pylist() == list(range(200))


def test_deletes_and_updates_have_their_columns(tmp_path: Path, small: None) -> None:
    def do(out: outlet.Outlet) -> None:
        for n in range(30):
            out.row(rows.UPSERT, "", "t", {"id": n, "a": n})
            out.row(rows.UPDATE, "", "t", {"id": n, "b": "ü"} if n % 2 else {"b": None, "a": 1, "id": n})
            out.row(rows.DELETE, "", "t", {"id": n})
        out.truncate("", "t")

    table = spooled(tmp_path, do, {"primary_key": ["id"]})
    assert (table.upserts, table.updates, table.deletes, table.truncates) == (30, 30, 30, (91,))
    found = read(tmp_path, table).to_pylist()
    assert [r["__op"] for r in found] == [0, 1, 2] * 30
    given_lists = {r["__given"] for r in found if r["__op"] == 1}
    assert {tuple(json.loads(g)) for g in given_lists} == {("id", "b"), ("b", "a", "id")}
    assert all(r["__given"] is None for r in found if r["__op"] != 1)
    assert [r["b"] for r in found if r["__op"] == 1] == [None, "ü"] * 15


def test_rows_without_a_column(tmp_path: Path) -> None:
    table = spooled(tmp_path, upserts([{}, {"a": None}, {}]))
    assert (table.upserts, table.columns) == (3, ())
    assert read(tmp_path, table).num_rows == 3


def test_names_of_tables_are_no_paths(tmp_path: Path) -> None:
    for number, name in enumerate(("../../etc/passwd", "ä/ö", "a" * 500, ".", "a b"), 1):
        spool = TableSpool(tmp_path, number, Declaration("s/../x", name))
        (spec,) = tables_of([{"table": "t"}]).values()
        for frame in frames_of(upserts([{"a": 1}]), spec):
            if frame.kind == "rows":
                spool.add(frame)
        (file,) = spool.close().files
        assert (tmp_path / file.path).parent == tmp_path
        assert len(file.path) < 120
        assert (tmp_path / file.path).is_file()


def test_a_row_and_a_state_that_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "LARGEST_ROW", 1000)
    monkeypatch.setattr(outlet, "LARGEST_STATE", 1000)

    def do(out: outlet.Outlet) -> None:
        with pytest.raises(ValueError, match=r"table t: a row of 1,001 bytes"):
            out.row(rows.UPSERT, "", "t", {"a": "x" * 1001})
        with pytest.raises(ValueError, match=r"the state has 1,\d+ bytes"):
            out.checkpoint({"a": "x" * 1000})
        out.row(rows.UPSERT, "", "t", {"a": "x" * 1000})

    assert spooled(tmp_path, do).upserts == 1


def test_operations_after_the_end_are_refused(tmp_path: Path) -> None:
    kept: list[outlet.Outlet] = []
    spooled(tmp_path, kept.append)
    for call in (
        lambda: kept[0].row(rows.UPSERT, "", "t", {"a": 1}),
        lambda: kept[0].truncate("", "t"),
        lambda: kept[0].checkpoint({}),
    ):
        with pytest.raises(RuntimeError, match="has returned"):
            call()
    kept[0].tell({"frame": "log", "level": "info", "message": "late"})  # what is no operation is just not heard


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack("<IQ", 5, 0) + b"{torn",
        struct.pack("<IQ", 2, 0) + b"[]",
        struct.pack("<IQ", 2, 0) + b"{}",
        struct.pack("<IQ", 2**31, 0),
        struct.pack("<IQ", 2, 2**40),
    ],
    ids=["no JSON", "no object", "no frame", "a head that is too long", "a body that is too long"],
)
def test_frames_that_are_none(sent: bytes) -> None:
    read_end, write = os.pipe()
    os.write(write, sent)
    os.close(write)
    try:
        with pytest.raises(ReadError, match="not an operation"):
            Frames(read_end).read(5)
    finally:
        os.close(read_end)


@pytest.mark.parametrize("cut", range(0, 40, 7))
def test_a_frame_that_ends_in_its_middle_is_the_end(cut: int) -> None:
    said = json.dumps(END).encode()
    whole = struct.pack("<IQ", len(said), 16) + said + bytes(16)
    read_end, write = os.pipe()
    os.write(write, whole[:cut])
    os.close(write)
    assert Frames(read_end).read(5) is None
    os.close(read_end)


def test_silence_is_a_timeout() -> None:
    read_end, write = os.pipe()
    with pytest.raises(TimeoutError):
        Frames(read_end).read(0.05)
    for descriptor in (read_end, write):
        os.close(descriptor)


@pytest.mark.parametrize("parts", [[8, 4, 1], [16, 8], [-8, 24], [8]])
def test_parts_that_are_not_the_body(parts: list[int]) -> None:
    frame = Frame({"frame": "rows", "parts": parts}, memoryview(bytes(16)))
    with pytest.raises(ReadError, match="not an operation"):
        frame.parts()


values = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8), st.lists(st.integers(0, 9), max_size=2),
)  # fmt: skip
records = st.lists(st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), values, max_size=4), max_size=60)


@given(records)
def test_every_row_is_there_once_and_in_order(said: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = spooled(Path(folder), upserts([{**r, "n": n} for n, r in enumerate(said)]))
        found = read(Path(folder), table).to_pylist() if table.files else []
    assert [r["n"] for r in found] == list(range(len(said)))
    seen = {c.name for c in table.columns}
    assert seen - {"n"} == {k for r in said for k, v in r.items() if v is not None}
    for row, record in zip(found, said, strict=True):
        for name in seen - {"n"}:
            assert (row[name] is None) == (record.get(name) is None)
            if isinstance(record.get(name), str):
                assert row[name] == record[name]


def test_a_table_that_was_not_declared_has_neither_key_nor_types(tmp_path: Path) -> None:
    spool = TableSpool(tmp_path, 1, replace(Declaration("", "t"), schema="s"))
    assert spool.operations == 0
    assert spool.close() == SegmentTable("s", "t", False)
