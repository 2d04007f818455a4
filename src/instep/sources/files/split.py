"""Where a big text file can be divided, so that tasks read its parts side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from instep.sources.files.config import Options
from instep.sources.files.listing import FileState
from instep.sources.files.shape import Part, Shape

PART_BYTES = 64 << 20
_BLOCK = 8 << 20


def divided(
    shape: Shape, opened: Callable[[], AbstractContextManager[Any]], state: FileState, options: Options, kind: str
) -> Shape:
    """The shape with parts, where each line is a record: always in JSON lines, in CSV if no text is quoted and no
    record was set aside. Files that are compressed or in an encoding with longer units are read as a whole."""
    single = options.encoding.lower().replace("-", "") in ("utf8", "ascii", "latin1", "iso88591", "cp1252")
    if state.size < 2 * PART_BYTES or state.packed or not single or (kind == "csv" and shape.refused):
        return shape
    quote = options.quote.encode() if kind == "csv" and options.quote else b""
    if kind == "csv" and options.escape:
        return shape
    with opened() as file:
        parts = list(_parts(file, state.size, quote))
    if not parts:
        return shape
    rows = shape.rows // len(parts)
    return replace(shape, parts=tuple(replace(p, rows=rows) for p in parts))


def _parts(file: Any, size: int, quote: bytes) -> Iterator[Part]:
    """Parts that end with a line; nothing if the file holds a quote or a carriage return alone, or blank lines."""
    start = lines = before = 0
    at, found = 0, []
    last = b"\n"
    while block := file.read(_BLOCK):
        if (quote and quote in block) or _odd(last + block):
            return
        if at + len(block) - start >= PART_BYTES and (cut := block.rfind(b"\n") + 1):
            found.append(Part(start, at + cut, before, bytes=at + cut - start))
            lines += block.count(b"\n", 0, cut)
            start, before = at + cut, lines
            lines += block.count(b"\n", cut)
        else:
            lines += block.count(b"\n")
        at, last = at + len(block), block[-1:]
    if last == b"\r":
        return
    if start < size:
        found.append(Part(start, size, before, bytes=size - start))
    yield from found


def _odd(text: bytes) -> bool:
    """Whether there is a blank line, or a carriage return (but for a last one) that no line feed follows."""
    alone = text.count(b"\r") - text.count(b"\r\n") > text.endswith(b"\r")
    return alone or b"\n\n" in text or b"\n\r" in text
