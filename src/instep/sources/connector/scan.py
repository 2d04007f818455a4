"""What one chunk of a connector's table reads: columns of the raw files of some segments, in order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from instep.errors import ReadError
from instep.schema.catalog.types import Unknown
from instep.schema.planning.naming import ROW_ID
from instep.sources.connector.segment import GIVEN, OP, SEQ, SegmentTable
from instep.stage.casts.text import plain, to_text
from instep.stage.rowid import row_texts

What = Literal["rows", "gone", "changed"]
STEP = 1 << 40
"""Numbers of operations that one segment has at most."""
OWN = (OP, SEQ, GIVEN)
BATCH = 65_536


@dataclass(frozen=True)
class SegmentScan:
    """A table's files of one segment; `cut` is the place of its last truncate, -1 without."""

    files: tuple[str, ...]
    cut: int = -1
    updates: int = 0

    @classmethod
    def of(cls, folder: str, table: SegmentTable) -> SegmentScan:
        files = tuple(str(Path(folder) / f.path) for f in table.files)
        return cls(files, max(table.truncates, default=-1), table.updates)


@dataclass(frozen=True)
class ConnectorScan:
    """`columns` of the rows that are `what`, in this order. The row id is the key of a table that has no other."""

    table: str
    what: What
    key: tuple[str, ...]
    columns: tuple[str, ...]
    parts: tuple[SegmentScan, ...]

    def to_text(self) -> str:
        """Return the text form for a chunk's query."""
        parts = [[list(p.files), p.cut, p.updates] for p in self.parts]
        return json.dumps([self.table, self.what, self.key, self.columns, parts])

    @classmethod
    def from_text(cls, text: str) -> ConnectorScan:
        table, what, key, columns, parts = json.loads(text)
        return cls(table, what, tuple(key), tuple(columns), tuple(SegmentScan(tuple(f), c, u) for f, c, u in parts))

    @property
    def cut(self) -> int:
        """The operations below it, by number, are from before the last truncate; -1 without one."""
        return max((number(at, p.cut) for at, p in enumerate(self.parts) if p.cut >= 0), default=-1)

    @property
    def updates(self) -> int:
        return sum(p.updates for p in self.parts)

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[pa.Array, Mapping[str, pa.Array]]]:
        """(numbers, the columns that the file has, the row id included) batch by batch, in the order in which they were
        sent, without what a later truncate has removed."""
        cut = self.cut
        for at, part in enumerate(self.parts):
            if number(at + 1, 0) <= cut:
                continue
            for file in part.files:
                for batch in self._file(file, columns):
                    numbers = pc.add(batch[SEQ], number(at, 0))
                    if cut >= 0:
                        after = pc.greater(numbers, cut)
                        batch = {name: values.filter(after) for name, values in batch.items()}
                        numbers = numbers.filter(after)
                    yield numbers, batch

    def _file(self, file: str, columns: Sequence[str]) -> Iterator[dict[str, pa.Array]]:
        try:
            with pq.ParquetFile(file) as source:
                names = source.schema_arrow.names
                wanted = set(names) if ROW_ID in columns else {*columns, SEQ} & set(names)
                for batch in source.iter_batches(BATCH, columns=[n for n in names if n in wanted]):
                    found = dict(zip(batch.schema.names, batch.columns, strict=True))
                    if ROW_ID in columns:
                        found[ROW_ID] = row_ids({n: v for n, v in found.items() if n not in OWN}, len(batch))
                    yield found
        except (OSError, pa.ArrowInvalid) as error:
            raise ReadError(f"{self.table}: a file of its operations cannot be read: {error}") from error


def number(part: int, place: int) -> int:
    """Return the place of an operation among those of all parts."""
    return part * STEP + place


def row_ids(columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """SHA-256 of each record in hex: of its values that are not NULL by name, whatever their order. Numbers count by
    their value, whatever their type: 1, 1.0 and 1.00 are one."""
    texts = {name: (canonical(values), Unknown()) for name, values in columns.items()}
    digests = (sha256(text).hexdigest() for text in row_texts(texts, rows).to_pylist())
    return pa.array(digests, pa.string())


def canonical(values: pa.Array) -> pa.Array:
    """Return the text that tells a value from others, without the zeros that only a type adds."""
    values = plain(values)
    kind, texts = values.type, to_text(values)
    if not (pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return texts
    bare = pc.replace_substring_regex(texts, r"(\.\d*?)0+$", r"\1")
    return pc.replace_substring_regex(bare, r"\.$", "")
