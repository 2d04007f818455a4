"""Where in a source's files rows come from: told with a batch, kept with what is held of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pyarrow as pa

_FILE, _LINES, _REFUSED = b"instep.file", b"instep.lines", b"instep.refused"
TEXT = "_text"
"""Under this name the `original` of a refused record has its text."""

Record = tuple[int, str, str]
"""(its number in the file, its text, why it is no row)."""


def with_origin(batch: pa.RecordBatch, file: str, lines: pa.Array, refused: Sequence[Record] = ()) -> pa.RecordBatch:
    """Return the batch with the file and record number (int64) of each row, and the records between them that are no
    rows."""
    numbers = lines.to_numpy()
    even = not len(numbers) or numbers[-1] - numbers[0] == len(numbers) - 1
    first = str(numbers[0]).encode() if len(numbers) else b"0"
    metadata = {_FILE: file.encode(), _LINES: first if even else b"[" + numbers.tobytes()}
    if refused:
        metadata[_REFUSED] = json.dumps(refused).encode()
    return batch.replace_schema_metadata(metadata)


def taken(batch: pa.RecordBatch, rows: pa.Array) -> pa.RecordBatch:
    """Return the rows at these ascending positions with their places; records that are no rows are left behind."""
    some = batch.take(rows)
    metadata = batch.schema.metadata or {}
    if _FILE not in metadata:
        return some
    place = origins(batch)
    lines = [int(place(at).rpartition(":")[2]) for at in rows.to_pylist()]
    return with_origin(some, metadata[_FILE].decode(), pa.array(lines, pa.int64()))


def origins(batch: pa.RecordBatch) -> Callable[[int], str]:
    """Return the place of the row at a position, as `folder/file.csv:17`; "" for rows that come from no file."""
    metadata = batch.schema.metadata or {}
    if _FILE not in metadata:
        return lambda at: ""
    file, lines = metadata[_FILE].decode(), metadata[_LINES]
    if not lines.startswith(b"["):
        first = int(lines)
        return lambda at: f"{file}:{first + at}"
    return lambda at: f"{file}:{int.from_bytes(lines[1 + 8 * at : 9 + 8 * at], 'little')}"


def refused(batch: pa.RecordBatch) -> list[tuple[str, Record]]:
    """(file, record) of those that are no rows."""
    metadata = batch.schema.metadata or {}
    file = metadata.get(_FILE, b"").decode()
    return [(file, (line, text, why)) for line, text, why in json.loads(metadata.get(_REFUSED, b"[]"))]
