"""CSV files as columns of texts, read block by block; records that are no rows are set aside with their number."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from instep.errors import ReadError
from instep.project.sections.file_settings import FileOptions
from instep.schema.catalog.types import DataType, String
from instep.sources.files.infer import NOTHING, infer
from instep.sources.files.shape import FileColumn, FilePart, FileShape, Piece, RefusedRecord, distinct

_FIRST, _ESCAPED = 0x10FE80, 0xDC80
"""The character for 0x80, and Python's own (`surrogateescape`), which is no UTF-8."""
_LEADS = (b"\xf4\x8f\xba", b"\xf4\x8f\xbb")
"""First bytes of our characters."""
_OURS = re.compile("[\U0010fe80-\U0010feff]")
_OUT = {_ESCAPED + n: _FIRST + n for n in range(128)}
_BACK = {ours: escaped for escaped, ours in _OUT.items()}


class CarriedBytes:
    """A stream of UTF-8 made of one of bytes; `some`: bytes were carried in what was read so far."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._left = self._ready = b""
        self.some = self._ended = False

    def read(self, size: int) -> bytes:
        """Return `size` bytes, fewer at the end: the parser rejects a block in which no record ends."""
        while len(self._ready) < size and not self._ended:
            block = self._stream.read(max(size - len(self._ready) - len(self._left), 1))
            self._ended = not block
            self._ready += self._utf8(self._left + block)
        out, self._ready = self._ready[:size], self._ready[size:]
        return out

    def _utf8(self, data: bytes) -> bytes:
        """Return the data as UTF-8; an incomplete character waits for the next block."""
        self._left = b""
        if data.isascii():
            return data
        try:
            read = codecs.utf_8_decode(data, "strict", self._ended)[1]
            odd = any(lead in data for lead in _LEADS)
        except UnicodeDecodeError:
            odd = True
        if odd:
            text, read = codecs.utf_8_decode(data, "surrogateescape", self._ended)
        self._left = data[read:]
        return self._carried(text) if odd else data[:read]

    def _carried(self, text: str) -> bytes:
        self.some = True
        escaped = _OURS.sub(lambda own: own[0].encode().decode("ascii", "surrogateescape"), text)
        return escaped.translate(_OUT).encode()


def given_back(texts: pa.Array) -> pa.Array:
    """Return texts as they are in the file, bytes that are not text included."""
    if not pc.any(pc.match_substring_regex(texts, r"[\x{10FE80}-\x{10FEFF}]")).as_py():
        return texts
    raw = [None if text is None else _bytes(text) for text in texts.to_pylist()]
    return pa.array(raw, pa.binary()).view(pa.string())


def shown(text: str) -> str:
    """Return the text for people: `\\x` and hex in place of bytes that are no text."""
    return _bytes(text).decode("utf-8", "backslashreplace") if _OURS.search(text) else text


def _bytes(text: str) -> bytes:
    return text.translate(_BACK).encode("utf-8", "surrogateescape")


BLOCK = 8 << 20
"""Bytes that are in memory at once; a record is no longer."""
WIDEST = 20_000
"""Columns that a file may have."""


def inspect(stream: Any, options: FileOptions, reserved: Sequence[str], name: str) -> FileShape:
    """Read the whole file once. A file without a record has no columns."""
    try:
        reader = _open(stream, options, None, name)
    except _NoRecord:
        return FileShape()
    header: list[str | None] | None = None
    kinds: list[DataType] = [NOTHING] * len(reader.names)
    rows = 0
    for batch in reader:
        if header is None and len(batch):
            header = [c[0].as_py() for c in map(_valid, batch.columns)] if options.header else [None] * len(kinds)
            batch = batch.slice(1 if options.header else 0)
        rows += len(batch)
        kinds = [
            kind if isinstance(kind, String) else infer(_valid(c), kind)
            for kind, c in zip(kinds, batch.columns, strict=True)
        ]
    names = distinct(header or [], reserved)
    if not options.header:
        names = [(n, "") for n, _ in names]
    columns = tuple(FileColumn(n, kind, "text", note) for (n, note), kind in zip(names, kinds, strict=False))
    return FileShape(columns, rows, len(reader.bad))


def pieces(
    stream: Any, options: FileOptions, shape: FileShape, part: FilePart | None, columns: Sequence[str], name: str
) -> Iterator[Piece]:
    """Yield the records of a part of the file (None: all of it); columns that the file lacks are left out."""
    if not shape.columns:
        return
    reader = _open(stream, options, len(shape.columns), name)
    places = {c.name: at for at, c in enumerate(shape.columns) if c.name in columns}
    header = options.header and (part is None or part.start == 0)
    lines = _Lines(reader.bad)
    offset = part.line if part else 0
    for batch in reader:
        numbers, refused = lines.next_numbers(len(batch))
        if header and len(batch):
            header, batch, numbers = False, batch.slice(1), numbers.slice(1)
        arrays = {column: batch.column(at) for column, at in places.items()}
        yield Piece(arrays, pc.add(numbers, offset) if offset else numbers, [_shifted(r, offset) for r in refused])
    if left := lines.rest():
        empty = {column: pa.array([], pa.string()) for column in places}
        yield Piece(empty, pa.array([], pa.int64()), [_shifted(r, offset) for r in left])


def _shifted(refused: RefusedRecord, offset: int) -> RefusedRecord:
    return RefusedRecord(refused.line + offset, refused.text, refused.reason)


class _NoRecord(Exception):
    """The line has no record."""


class _RefusedRecords:
    """Takes the records that are no rows. `whole`: the record that we put behind the last one was met, so that no
    quoted text is open at the end."""

    def __init__(self) -> None:
        self.bad: list[RefusedRecord] = []
        self.whole = False

    def __call__(self, row: csv.InvalidRow) -> str:
        if row.actual_columns > WIDEST:
            self.whole = True
            return "skip"
        why = f"{row.actual_columns} values where {row.expected_columns} columns are"
        self.bad.append(RefusedRecord(row.number, shown(row.text), why))
        return "skip"


class _CsvReader:
    """Batches of text columns f0, f1, ...; `bad` grows while they are read."""

    def __init__(self, reader: csv.CSVStreamingReader, text: CarriedBytes, aside: _RefusedRecords, name: str) -> None:
        self.reader, self.text, self.aside, self.bad, self.name = reader, text, aside, aside.bad, name
        self.names = reader.schema.names

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                batch = self.reader.read_next_batch()
            except StopIteration:
                if not self.aside.whole:
                    raise ReadError(
                        f"{self.name} ends in the middle of a quoted or escaped text",
                        hint="is it still being written, or cut off? sync again when it is whole",
                    ) from None
                return
            except (pa.ArrowInvalid, UnicodeError) as error:
                raise broken(self.name, error) from None
            if len(batch) and self.text.some:
                batch = pa.RecordBatch.from_arrays([given_back(c) for c in batch.columns], schema=batch.schema)
            if len(batch):
                yield batch


def broken(name: str, error: Exception) -> ReadError:
    """Return the parser's error about the file as a whole."""
    message = str(error).splitlines()[0]
    hint = "correct the file, or its `delimiter`, `quote`, `escape` and `encoding`"
    if "straddling" in message:
        hint = f"a record is longer than {BLOCK >> 20} MB: is a closing quote missing?"
    return ReadError(f"{name} cannot be read as CSV: {message}", hint=hint)


class _Unsplit:
    """A stream of UTF-8 of which no read ends between a carriage return and what follows: the parser takes a line feed
    with which a block begins for the end of the line before it, in the middle of a value as well. Behind the last
    record stands one that is wider than any: whoever does not meet it is still in a quoted text."""

    closed = False

    def __init__(self, stream: CarriedBytes, options: FileOptions) -> None:
        self._stream = stream
        self._carried = b""
        self._last = options.delimiter.encode() * (WIDEST + 1) + b"\n"
        self._newline, self._any = True, False

    def read(self, size: int) -> bytes:
        data: bytes = self._carried + self._stream.read(max(size - len(self._carried), 1))
        if data == b"\r":
            data += self._stream.read(1)
        self._carried = b"\r" if len(data) > 1 and data.endswith(b"\r") else b""
        if self._carried:
            data = data[:-1]
        if not data:
            last, self._last = self._last if self._any else b"", b""
            return last if self._newline or not last else b"\n" + last
        self._newline = data[-1:] in (b"\n", b"\r")
        self._any = self._any or bool(data.strip(b"\r\n\xef\xbb\xbf"))
        return data

    def close(self) -> None:
        """No-op: the stream is its owner's."""


def _open(stream: Any, options: FileOptions, width: int | None, name: str) -> _CsvReader:
    aside = _RefusedRecords()
    names = None if width is None else [f"f{at}" for at in range(width)]
    read = csv.ReadOptions(
        use_threads=False,
        block_size=BLOCK,
        column_names=names,
        autogenerate_column_names=names is None,
    )
    parse = csv.ParseOptions(
        delimiter=options.delimiter,
        quote_char=options.quote or False,
        escape_char=options.escape or False,
        newlines_in_values=True,
        invalid_row_handler=aside,
    )
    native = stream if isinstance(stream, pa.NativeFile) else pa.PythonFile(stream, "r")
    try:
        text = CarriedBytes(pa.transcoding_input_stream(native, options.encoding, "utf8"))
        return _CsvReader(csv.open_csv(_Unsplit(text, options), read, parse, _texts(options, width)), text, aside, name)
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):
            raise _NoRecord from None
        raise broken(name, error) from None
    except (UnicodeError, LookupError) as error:
        raise broken(name, error) from None


def _texts(options: FileOptions, width: int | None) -> csv.ConvertOptions:
    """Return options that keep bytes that are not text: each value is checked when it is cast."""
    known = WIDEST if width is None else width
    return csv.ConvertOptions(
        check_utf8=False,
        null_values=list(options.nulls),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        column_types={f"f{at}": pa.string() for at in range(known)},
    )


class _Lines:
    """Numbers the records of batches in a row: those that were set aside are counted as well."""

    def __init__(self, bad: list[RefusedRecord]) -> None:
        self.bad, self.at, self.reported = bad, 1, 0

    def next_numbers(self, rows: int) -> tuple[pa.Array, list[RefusedRecord]]:
        """Return the numbers of the next `rows` records, and the refused ones between them."""
        end, last = self.at + rows, self.reported
        while last < len(self.bad) and self.bad[last].line < end:
            last, end = last + 1, end + 1
        between, self.reported = self.bad[self.reported : last], last
        gone = {r.line for r in between}
        numbers = [n for n in range(self.at, end) if n not in gone] if gone else range(self.at, end)
        self.at = end
        return pa.array(numbers, pa.int64()), between

    def rest(self) -> list[RefusedRecord]:
        """Return the refused records after the last row."""
        left, self.reported = self.bad[self.reported :], len(self.bad)
        return left


def _valid(texts: pa.Array) -> pa.Array:
    """Return texts with replacement characters for bytes that are not text; only to infer types."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        raw = texts.view(pa.binary()).to_pylist()
        return pa.array([None if b is None else b.decode("utf-8", "replace") for b in raw], pa.string())
    return texts
