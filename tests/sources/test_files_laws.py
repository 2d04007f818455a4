"""What is written into a CSV or JSON file is what is read from it, wherever its blocks and parts end."""

from __future__ import annotations

import csv as plain_csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from instep.errors import ReadError
from instep.project.sections.file_settings import FileOptions
from instep.schema.catalog.types import parse
from instep.sources.files import csv, formats, jsonl
from instep.sources.files.config import METADATA
from instep.sources.files.infer import NOTHING, final_type, infer
from instep.sources.files.listing import FileState
from instep.sources.files.read import File, FileScan
from instep.sources.files.shape import (
    FILE_BITS,
    SEGMENT_BITS,
    FileColumn,
    FilePart,
    FileShape,
    Piece,
    SupersededLines,
    among,
    distinct,
    pack_lines,
)

Rows = list[list[str | None]]
NAMES, PLAIN = ["a", "b", "c"], FileOptions()


@contextmanager
def sizes(block: int, part: int = 1 << 40) -> Iterator[None]:
    """Of blocks and parts, in bytes; put back afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv, "BLOCK", block)
        patch.setattr(formats, "_BLOCK", block)
        patch.setattr(formats, "PART_BYTES", part)
        yield


def written(rows: Rows, newline: str = "\n") -> bytes:
    """Texts in quotes where they need them or are empty, NULL as nothing."""

    def cell(value: str | None) -> str:
        if value is None:
            return ""
        quoted = not value or any(c in value for c in ',"\r\n')
        return '"' + value.replace('"', '""') + '"' if quoted else value

    header: list[str | None] = [*(NAMES[: len(rows[0])] if rows else NAMES)]
    return "".join(",".join(map(cell, row)) + newline for row in [header, *rows]).encode()


def read(data: bytes, options: FileOptions = PLAIN, parts: Sequence[FilePart] = ()) -> tuple[FileShape, list[Piece]]:
    shape = csv.inspect(io.BytesIO(data), options, (), "t.csv")
    found: list[Piece] = []
    for part in parts or (None,):
        stream = io.BytesIO(data if part is None else data[part.start : part.end])
        found += csv.pieces(stream, options, shape, part, NAMES, "t.csv")
    return shape, found


def texts(pieces: Sequence[Piece]) -> Rows:
    return [list(row) for p in pieces for row in zip(*(a.to_pylist() for a in p.arrays.values()), strict=True)]


def lines(pieces: Sequence[Piece]) -> list[int]:
    return [n for p in pieces for n in p.lines.to_pylist()]


VALUES = st.one_of(
    st.none(),
    st.sampled_from(
        ["", " ", ",", '"', '""', "\n", "\r", "\r\n", "a,b", "NULL", "007", "1.50", "é\u2028", "🙂", "x\ty"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
)
TABLES: st.SearchStrategy[Rows] = st.integers(2, 3).flatmap(
    lambda width: st.lists(st.lists(VALUES, min_size=width, max_size=width), max_size=8)
)


@settings(max_examples=40)
@given(TABLES, st.sampled_from(["\n", "\r\n"]))
def test_any_table_of_texts_is_read_as_it_was_written(rows: Rows, newline: str) -> None:
    shape, found = read(written(rows, newline))
    assert (shape.rows, shape.refused) == (len(rows), 0)
    assert texts(found) == rows
    assert lines(found) == list(range(2, len(rows) + 2))
    for at, column in enumerate(shape.columns):
        assert final_type(column.type) == _kind([row[at] for row in rows])


def _kind(column: list[str | None]) -> Any:
    import pyarrow as pa

    return final_type(infer(pa.array(column, pa.string()), NOTHING))


@settings(max_examples=40)
@given(TABLES, st.sampled_from(["\n", "\r\n"]), st.integers(8, 60))
@example([["1", "2"], ["\r\n", "3"]], "\r\n", 8)
@example([["\r\n", None, None]], "\n", 8)
def test_blocks_may_end_at_any_byte(rows: Rows, newline: str, block: int) -> None:
    """A record that is longer than a block is said; nothing is ever read in pieces."""
    data = written(rows, newline)
    with sizes(block):
        try:
            shape, found = read(data)
        except ReadError:
            longest = max(len(written([r])) for r in rows) if rows else 6
            assert longest * 2 > block
            return
    assert (shape.rows, texts(found), lines(found)) == (len(rows), rows, list(range(2, len(rows) + 2)))


@pytest.mark.sampled
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16"])
def test_a_line_end_in_a_value_stays_wherever_blocks_end(encoding: str) -> None:
    rows: Rows = [["é" * n + "\r\n" + "ü", "x"] for n in range(6)]
    data = written(rows).decode().encode(encoding)
    for block in range(40, 64):
        with sizes(block):
            assert texts(read(data, FileOptions(encoding=encoding))[1]) == rows


BYTES = st.lists(
    st.sampled_from(
        [b"\xff", b"\xe9", b"\xf4\x8f", "é".encode(), "🙂".encode(), "\U0010fee9".encode(), b"x", b"\r\n", b","]
    ),
    min_size=1, max_size=5,
).map(b"".join)  # fmt: skip


@settings(max_examples=60)
@given(st.lists(st.lists(BYTES, min_size=2, max_size=2), min_size=1, max_size=6), st.integers(110, 130))
def test_bytes_that_are_no_text_are_what_they_were(rows: list[list[bytes]], block: int) -> None:
    """Also where records among them are none, and those that look like the characters that carry them."""
    data = b"a,b\n" + b"".join(b'"%b","%b"\n\xe9\n' % tuple(row) for row in rows)
    with sizes(block):
        _, found = read(data)
    assert [
        [v.as_buffer().to_pybytes() for v in row] for p in found for row in zip(*p.arrays.values(), strict=True)
    ] == rows
    assert [r.text for p in found for r in p.refused] == ["\\xe9"] * len(rows)
    assert lines(found) == list(range(2, 2 * len(rows) + 2, 2))


SIMPLE = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters=',"'), min_size=1, max_size=9)


@settings(max_examples=40)
@given(st.lists(st.lists(SIMPLE, min_size=2, max_size=2), min_size=1, max_size=30), st.sampled_from(["\n", "\r\n"]),
       st.integers(90, 200), st.integers(10, 80))  # fmt: skip
def test_parts_are_the_file(rows: Rows, newline: str, block: int, part: int) -> None:
    data = written(rows, newline)
    whole, _ = read(data)
    with sizes(block, part):
        shape = formats.divided(
            whole, lambda: io.BytesIO(data), FileState("t.csv", len(data), "1"), FileOptions(), "csv"
        )
        ends = [p.end for p in shape.parts]
        assert not ends or [p.start for p in shape.parts] == [0, *ends[:-1]]
        assert not ends or ends[-1] == len(data)
        found = read(data, parts=shape.parts)[1]
    assert (texts(found), lines(found)) == (rows, list(range(2, len(rows) + 2)))


WHOLE = [
    ("a text in quotes", b'a,b\n1,"2"\n', {}),
    ("a blank line", b"a,b\n1,2\n\n3,4\n", {}),
    ("a blank line of Windows", b"a,b\r\n1,2\r\n\r\n3,4\r\n", {}),
    ("a blank line at the start", b"\na,b\n1,2\n", {}),
    ("a carriage return alone ends a line", b"a,b\n1,2\r3,4\n5,6\n", {}),
    ("carriage returns alone", b"a,b\r1,2\r3,4\r", {}),
    ("escapes", b"a,b\n1,2\n", {"escape": "\\"}),
    ("longer units", "a,b\n1,2\n".encode("utf-16"), {"encoding": "utf-16"}),
]  # fmt: skip


@pytest.mark.parametrize(("data", "options"), [w[1:] for w in WHOLE], ids=[w[0] for w in WHOLE])
@pytest.mark.parametrize("block", [5, 7, 1000])
def test_what_cannot_be_divided_is_read_as_a_whole(data: bytes, options: dict[str, Any], block: int) -> None:
    with sizes(block, 4):
        shape = formats.divided(FileShape(), lambda: io.BytesIO(data), FileState("t.csv", len(data), "1"),
                              FileOptions(**options), "csv")  # fmt: skip
    assert shape.parts == ()


REFUSED = [
    ("too many", b"a,b\n1,2\n3,4,5\n6,7\n", [2, 4], [(3, "3,4,5")]),
    ("too few", b"a,b\n1\n2,3\n", [3], [(2, "1")]),
    ("the last", b"a,b\n1,2\n3\n", [2], [(3, "3")]),
    ("all", b"a,b\n1\n2\n", [], [(2, "1"), (3, "2")]),
    ("a blank line counts for nothing", b"a,b\n1,2\n\n3\n4,5\n", [2, 4], [(3, "3")]),
]  # fmt: skip


@pytest.mark.parametrize(("data", "there", "gone"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
@pytest.mark.parametrize("block", [9, 12, 1000])
def test_records_that_are_none_are_held_with_their_place(
    data: bytes, there: list[int], gone: list[tuple[int, str]], block: int
) -> None:
    with sizes(block):
        shape, found = read(data)
    assert (lines(found), [(r.line, r.text) for p in found for r in p.refused]) == (there, gone)
    assert (shape.rows, shape.refused) == (len(there), len(gone))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyé"), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip
OBJECTS = st.lists(st.dictionaries(st.sampled_from(["a", "b", "", "_line", "src__line"]), JSON), max_size=6)


def said(value: Any) -> Any:
    """A value as its text would be."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


@settings(max_examples=40)
@given(OBJECTS, st.booleans(), st.sampled_from(["\n", "\r\n", "\n\n"]), st.integers(1, 4))
def test_any_objects_are_read_as_they_were_written(
    objects: list[dict[str, Any]], is_ascii: bool, newline: str, batch: int
) -> None:
    data = "".join(json.dumps(o, ensure_ascii=is_ascii) + newline for o in objects).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "BATCH_ROWS", batch)
        shape = jsonl.inspect(io.BytesIO(data), FileOptions(), list(METADATA), "t.jsonl")
        names = [c.name for c in shape.columns]
        found = list(jsonl.pieces(io.BytesIO(data), FileOptions(), shape, None, names, "t.jsonl"))
    assert (shape.rows, shape.refused) == (len(objects), 0)
    assert not METADATA.keys() & set(names)
    for column in shape.columns:
        key = column.stored_name if column.note else column.name
        values = [v for p in found for v in p.arrays[column.name].to_pylist()]
        for value, before in zip(values, [o.get(key) for o in objects], strict=True):
            same = value == before if isinstance(before, str) or before is None else json.loads(value) == before
            assert same, (value, before)


@given(st.lists(st.none() | st.sampled_from(["a", "a_2", "a_3", "", "column_2", "_line", "src__line"]), max_size=8))
def test_every_header_gets_a_name_of_its_own(names: list[str | None]) -> None:
    found = distinct(names, list(METADATA))
    assert len({n for n, _ in found}) == len(names)
    assert not METADATA.keys() & {n for n, _ in found}
    for name, (now, note) in zip(names, found, strict=True):
        assert bool(note) == (now != name)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3 << SEGMENT_BITS)), unique=True, max_size=9))
@example([(1, (1 << SEGMENT_BITS) - 1), (1, 1 << SEGMENT_BITS), (2, 0)])
def test_lines_that_are_superseded_are_those_of_their_file(places: list[tuple[int, int]]) -> None:
    numbers = np.array(sorted((file << FILE_BITS) + line for file, line in places), dtype=np.int64)
    segments = {n: pack_lines(numbers[numbers >> SEGMENT_BITS == n]) for n in np.unique(numbers >> SEGMENT_BITS)}
    found = SupersededLines(segments, len(numbers))
    asked = np.unique(np.array([x for _, line in places for x in (line - 1, line, line + 1) if x >= 0], dtype=np.int64))
    for file in range(4):
        for first, last in ((0, None), (0, 4 << SEGMENT_BITS)):
            own = asked[among(asked, found.of(file, first, last))].tolist()
            assert own == sorted(line for of, line in places if of == file)


KINDS = st.sampled_from(["int64", "decimal(38,2)", 'struct("a b" date)']).map(parse)
COLUMNS = st.lists(st.builds(FileColumn, SIMPLE, KINDS, SIMPLE, SIMPLE, SIMPLE), max_size=3)


@given(COLUMNS, st.lists(st.builds(FilePart, *[st.integers(0, 99)] * 5), max_size=3))
def test_what_a_chunk_reads_is_the_same_in_a_task(columns: list[FileColumn], parts: list[FilePart]) -> None:
    shape = FileShape(tuple(columns), 3, 1, tuple(parts))
    file = File(FileState("t/a b.csv", 5, "17"), 3, "csv", shape)
    kinds = {c.name: c.type for c in columns}
    files = tuple((file, p) for p in (None, *parts))
    for where in (None, ("a", parse("int64"), "1", None)):
        scan = FileScan("t", kinds, files, where, tuple({n: bytes([n, 255])} for n in range(len(files))))
        assert FileScan.from_text(scan.to_text()) == scan


DATES = ["0000-01-01", "0001-01-01", "9999-12-31", "0000-12-31T23:59:59", "9999-12-31T23:59:59.999999",
         "9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00", "2024-01-01T00:00:00+24:00",
         "2024-01-01T00:00:00+00:60", "2024-01-01T00:00:00-23:59"]  # fmt: skip


@pytest.mark.parametrize("text", DATES)
def test_moments_at_the_ends_of_the_calendar_can_be_read(text: str) -> None:
    """Or they are texts."""
    import pyarrow as pa

    from instep.schema.catalog.types import String
    from instep.sources.files.infer import comparable

    kind = final_type(infer(pa.array([text]), NOTHING))
    if not isinstance(kind, String):
        [value] = comparable(pa.array([text]), kind).to_pylist()
        assert value is not None


def test_other_writers_are_read_alike() -> None:
    rows: Rows = [["1", 'say "hi"'], ["2", "two\nlines"], ["3", "a,b"]]
    for quoting in (plain_csv.QUOTE_MINIMAL, plain_csv.QUOTE_ALL, plain_csv.QUOTE_NONNUMERIC):
        for delimiter in (",", ";", "\t", "|"):
            out = io.StringIO(newline="")
            plain_csv.writer(out, quoting=quoting, delimiter=delimiter).writerows([NAMES[:2], *rows])
            assert texts(read(out.getvalue().encode(), FileOptions(delimiter=delimiter))[1]) == rows
