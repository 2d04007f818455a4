"""Divides the files of a table into chunks of about equal size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from instep.schema.catalog.catalog import Column, Table
from instep.sources.base import CursorRange
from instep.sources.files.config import NUMBER
from instep.sources.files.read import FileScan
from instep.sources.files.seen import File
from instep.sources.files.shape import FilePart
from instep.stage.spec import Chunk

CHUNK_ROWS, CHUNK_BYTES = 1_000_000, 256 << 20
Piece = tuple[File, FilePart | None]


def scans(
    spec: str,
    table: Table,
    files: Sequence[File],
    wanted: Sequence[str],
    bound: Column | None,
    rows: CursorRange,
    *,
    numbered: bool = True,
) -> list[Chunk]:
    """Return the chunks of a table, under `Chunk.table = spec`; those of a table with a key share a lane. `numbered`: a
    column `_file_number` is ours and not one of the files."""
    key = {k: table.by_name[k].type for k in table.key}
    scan = FileScan(table.name, {n: table.by_name[n].type for n in wanted}, (), key=key)
    if numbered and bound is not None and bound.name == NUMBER and (rows.lower or rows.upper):
        files = [f for f in files if _between(f.number, rows)]
    elif bound is not None and (rows.lower is not None or rows.upper is not None):
        scan = replace(scan, where=(bound.name, bound.type, rows.lower, rows.upper))
    pieces: list[Piece] = [(f, None) for f in reversed(files)] if key else list(_pieces(files))
    lane = f"{spec} {table.name}" if key else ""
    return [
        Chunk(
            spec,
            number,
            replace(scan, files=tuple(group)).to_text(),
            sum(map(_rows, group)),
            sum(map(_bytes, group)),
            lane,
        )
        for number, group in enumerate(_groups(pieces))
    ]


def _between(number: int, rows: CursorRange) -> bool:
    return (rows.lower is None or number >= int(rows.lower)) and (rows.upper is None or number <= int(rows.upper))


def _pieces(files: Sequence[File]) -> Iterator[Piece]:
    for file in files:
        if file.format == "parquet":
            yield from ((file, part) for part in _joined(file.shape.parts))
        elif file.shape.parts:
            yield from ((file, part) for part in file.shape.parts)
        else:
            yield file, None


def _joined(groups: Sequence[FilePart]) -> Iterator[FilePart]:
    """Row groups side by side, up to the size of a chunk."""
    whole: FilePart | None = None
    for group in groups:
        if whole is None:
            whole = group
        elif whole.rows + group.rows > CHUNK_ROWS or whole.bytes + group.bytes > CHUNK_BYTES:
            yield whole
            whole = group
        else:
            whole = FilePart(whole.start, group.end, whole.line, whole.rows + group.rows, whole.bytes + group.bytes)
    if whole is not None:
        yield whole


def _rows(piece: Piece) -> int:
    return piece[1].rows if piece[1] else piece[0].shape.rows


def _bytes(piece: Piece) -> int:
    return piece[1].bytes if piece[1] else piece[0].state.size


def _groups(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """At least one, so that a table without rows is read as well."""
    groups: list[list[Piece]] = [[]]
    rows = size = 0
    for piece in pieces:
        if groups[-1] and (rows + _rows(piece) > CHUNK_ROWS or size + _bytes(piece) > CHUNK_BYTES):
            groups.append([])
            rows = size = 0
        groups[-1].append(piece)
        rows, size = rows + _rows(piece), size + _bytes(piece)
    return groups
