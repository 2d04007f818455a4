"""JSON lines as columns of texts. Numbers keep the text that they have in the file; what is nested is JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from json.encoder import encode_basestring
from typing import Any

import pyarrow as pa

from instep.errors import ReadError
from instep.project.sections.file_settings import FileOptions
from instep.schema.catalog.types import Boolean, DataType, Json, String
from instep.sources.files.infer import NOTHING, infer, join
from instep.sources.files.shape import FileColumn, FilePart, FileShape, Piece, RefusedRecord, distinct

BATCH_ROWS = 16_384
BATCH_CHARACTERS = 16 << 20


class Number(str):
    """A number as it is written."""


def inspect(stream: Any, options: FileOptions, reserved: Sequence[str], name: str) -> FileShape:
    """Read the whole file once; columns stand in the order in which they appear."""
    kinds: dict[str, DataType] = {}
    rows = refused = 0
    for _, objects, bad in _records(stream, options, name, 0):
        rows, refused = rows + len(objects), refused + len(bad)
        names = dict.fromkeys(n for o in objects for n in o)
        for column in names:
            kinds[column] = _kind([o.get(column) for o in objects], kinds.get(column, NOTHING))
    column_names = distinct(list(kinds), reserved)
    columns = tuple(
        FileColumn(n, kinds[stored_name], "json", note, stored_name if note else "")
        for stored_name, (n, note) in zip(kinds, column_names, strict=True)
    )
    return FileShape(columns, rows, refused)


def pieces(
    stream: Any, options: FileOptions, shape: FileShape, part: FilePart | None, columns: Sequence[str], name: str
) -> Iterator[Piece]:
    """Yield the records of a part of the file (None: all of it); columns that the file lacks are left out."""
    names = {c.name: c.stored_name if c.note else c.name for c in shape.columns if c.name in columns}
    for lines, objects, bad in _records(stream, options, name, part.line if part else 0):
        arrays = {n: _texts([o.get(key) for o in objects]) for n, key in names.items()}
        yield Piece(arrays, pa.array(lines, pa.int64()), bad)


def _records(
    stream: Any, options: FileOptions, name: str, line: int
) -> Iterator[tuple[list[int], list[dict[str, Any]], list[RefusedRecord]]]:
    """Yield (line numbers, objects, lines that are none) of some thousand lines at a time; blank lines are skipped."""
    texts = io.TextIOWrapper(stream, encoding=_encoding(options), errors="surrogateescape", newline="\n")
    try:
        for lines in _some(texts):
            numbers: list[int] = []
            objects: list[dict[str, Any]] = []
            bad: list[RefusedRecord] = []
            for text in lines:
                line += 1
                if not (text := text.strip()):
                    continue
                parsed = _parsed(text)
                if isinstance(parsed, dict):
                    numbers.append(line)
                    objects.append(parsed)
                else:
                    bad.append(RefusedRecord(line, text.encode("utf-8", "replace").decode(), parsed))
            yield numbers, objects, bad
    except (UnicodeError, LookupError, EOFError, OSError) as error:
        raise ReadError(
            f"{name} cannot be read as JSON lines: {error}", hint="correct the file, or its `encoding`"
        ) from None


def _some(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield the lines, as many at a time as a batch has rows or characters."""
    lines, size = list[str](), 0
    for text in texts:
        lines.append(text)
        size += len(text)
        if len(lines) >= BATCH_ROWS or size >= BATCH_CHARACTERS:
            yield lines
            lines, size = [], 0
    if lines:
        yield lines


def _encoding(options: FileOptions) -> str:
    return "utf-8-sig" if options.encoding.lower() in ("utf-8", "utf8") else options.encoding


_decode = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=Number).decode


def _parsed(text: str) -> dict[str, Any] | str:
    """Return the object of a line, or why it is not an object."""
    try:
        if not text.isascii():
            text.encode()
        value = _decode(text)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "bytes or characters that are no text"
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"
    return value if isinstance(value, dict) else f"a JSON {type(value).__name__} and no object"


def _kind(values: Sequence[Any], kind: DataType) -> DataType:
    classes = set(map(type, values)) - {type(None)}
    if bool in classes:
        kind = join(kind, Boolean())
    if classes & {dict, list}:
        kind = join(kind, Json())
    if Number in classes and not isinstance(kind, String):
        kind = infer(pa.array([v for v in values if type(v) is Number], pa.string()), kind)
    if str in classes and not isinstance(kind, String):
        kind = infer(pa.array([v for v in values if type(v) is str], pa.string()), kind, numbers=False)
    return kind


def _texts(values: Sequence[Any]) -> pa.Array:
    plain = set(map(type, values)) <= {str, Number, type(None)}
    return pa.array(values if plain else list(map(_text, values)), pa.string())


def _text(value: Any) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case str():
            return value
    return _json(value)


def _json(value: Any) -> str:
    """Compact JSON in which numbers are as they are written."""
    match value:
        case Number():
            return value
        case str():
            return encode_basestring(value)
        case dict():
            return "{" + ",".join(f"{encode_basestring(k)}:{_json(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
