"""Shape of one file: its columns, how many records it has, and where it can be divided."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from instep.schema.catalog.types import DataType, parse

FILE_BITS, SEGMENT_BITS = 40, 20
"""Bits of a line in its file, and in its segment: what is told of the lines of one takes at most 128 KiB."""
Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class FileColumn:
    """A column as the file has it; `note` tells what is special about its name or type, `stored_name` is what the file
    calls it if that cannot be its name. The type of a column of texts is one of `infer`, which more texts can join."""

    name: str
    type: DataType
    native: str = ""
    note: str = ""
    stored_name: str = ""


@dataclass(frozen=True)
class FilePart:
    """A part that can be read by itself: row groups `start` to `end` of a Parquet file, or bytes of a text file."""

    start: int
    end: int
    line: int = 0
    """Records come before it."""
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class FileShape:
    """`rows` can be read, `refused` records cannot. Without `parts` the file is read as a whole."""

    columns: tuple[FileColumn, ...] = ()
    rows: int = 0
    refused: int = 0
    parts: tuple[FilePart, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return {
            "columns": [[c.name, str(c.type), c.native, c.note, c.stored_name] for c in self.columns],
            "rows": self.rows,
            "refused": self.refused,
            "parts": [[p.start, p.end, p.line, p.rows, p.bytes] for p in self.parts],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FileShape:
        columns = tuple(FileColumn(name, parse(kind), *more) for name, kind, *more in data["columns"])
        return cls(columns, data["rows"], data["refused"], tuple(FilePart(*p) for p in data["parts"]))


@dataclass(frozen=True)
class RefusedRecord:
    """A record that is no row: its place, its text and why."""

    line: int
    text: str
    reason: str


@dataclass(frozen=True)
class Piece:
    """Some records of a file."""

    arrays: Mapping[str, pa.Array]
    """By column name."""
    lines: pa.Array
    """Their numbers in it, the first being 1."""
    refused: Sequence[RefusedRecord] = ()

    def filter(self, mask: pa.Array) -> Piece:
        """Return the records for which the mask is true."""
        return replace(self, arrays={n: a.filter(mask) for n, a in self.arrays.items()}, lines=self.lines.filter(mask))


@dataclass(frozen=True)
class SupersededLines:
    """The lines of files, each file by its place among them, that do not count."""

    segments: Mapping[int, bytes] = field(default_factory=dict, repr=False)
    """Bits by the number of their segment; those of a file follow one another."""
    lines: int = 0

    def of(self, file: int, first: int, last: int | None) -> dict[int, bytes]:
        """Return the segments of a file that have its lines from the `first` to the `last` (None: to its end), by their
        number in it."""
        start, end = file << (FILE_BITS - SEGMENT_BITS), (file + 1) << (FILE_BITS - SEGMENT_BITS)
        if last is None:
            own = [n for n in self.segments if start + (first >> SEGMENT_BITS) <= n < end]
        else:
            own = [start + n for n in range(first >> SEGMENT_BITS, (last >> SEGMENT_BITS) + 1)]
        return {n - start: self.segments[n] for n in own if n in self.segments}


def among(lines: Numbers, segments: Mapping[int, bytes]) -> Mask:
    """Return which lines of a file are in its segments."""
    mask, segment_numbers = np.zeros(len(lines), dtype=np.bool_), lines >> SEGMENT_BITS
    for number in np.unique(segment_numbers).tolist():
        if (bits := segments.get(number)) is not None:
            own = segment_numbers == number
            mask[own] = np.unpackbits(np.frombuffer(zlib.decompress(bits), np.uint8))[
                lines[own] - (number << SEGMENT_BITS)
            ]
    return mask


def pack_lines(places: Numbers) -> bytes:
    """Return the bits of lines of one segment."""
    bits = np.zeros(1 << SEGMENT_BITS, dtype=np.bool_)
    bits[places & ((1 << SEGMENT_BITS) - 1)] = True
    return zlib.compress(np.packbits(bits).tobytes(), 1)


def distinct(names: Sequence[str | None], reserved: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return (a distinct name, a note) for each header: a second `a` is `a_2`, one without a name is `column_3`."""
    file_names = {n for n in names if n}
    renamed: list[tuple[str, str]] = []
    used: set[str] = set()
    for at, stored_name in enumerate(names, 1):
        name, note = (stored_name, "") if stored_name else (f"column_{at}", f"column {at} has no name in the file")
        if name in reserved:
            name, note = f"src_{name}", f"{name} in the file"
        number = 2
        while name in used:
            if (next_name := f"{stored_name or name}_{number}") not in file_names | used:
                name, note = next_name, f"the {number}. column {stored_name} of the file"
            number += 1
        used.add(name)
        renamed.append((name, note))
    return renamed
