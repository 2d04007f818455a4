"""Opening a file and reading it as what it is: Parquet, CSV or JSON lines."""

from __future__ import annotations

import os
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

from instep.errors import InstepError, ReadError
from instep.project.sections.file_settings import FileOptions
from instep.sources.files import csv, jsonl, parquet
from instep.sources.files.config import FilesConfig
from instep.sources.files.confined import open_below
from instep.sources.files.listing import FileState
from instep.sources.files.shape import FilePart, FileShape, Piece

PART_BYTES = 64 << 20
_BLOCK = 8 << 20


def divided(
    shape: FileShape,
    opened: Callable[[], AbstractContextManager[Any]],
    state: FileState,
    options: FileOptions,
    kind: str,
) -> FileShape:
    """Return the shape with parts, where each line is a record: always in JSON lines, in CSV if no text is quoted and
    no record was set aside. Files that are compressed or in an encoding with longer units are read as a whole."""
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


def _parts(file: Any, size: int, quote: bytes) -> Iterator[FilePart]:
    """Yield parts that end with a line; none if the file holds a quote, a lone carriage return or blank lines."""
    start = lines = before = 0
    at, parts = 0, []
    last = b"\n"
    while block := file.read(_BLOCK):
        if (quote and quote in block) or _has_irregular_lines(last + block):
            return
        if at + len(block) - start >= PART_BYTES and (cut := block.rfind(b"\n") + 1):
            parts.append(FilePart(start, at + cut, before, bytes=at + cut - start))
            lines += block.count(b"\n", 0, cut)
            start, before = at + cut, lines
            lines += block.count(b"\n", cut)
        else:
            lines += block.count(b"\n")
        at, last = at + len(block), block[-1:]
    if last == b"\r":
        return
    if start < size:
        parts.append(FilePart(start, size, before, bytes=size - start))
    yield from parts


def _has_irregular_lines(text: bytes) -> bool:
    """Return whether there is a blank line, or a carriage return (but for a last one) that no line feed follows."""
    alone = text.count(b"\r") - text.count(b"\r\n") > text.endswith(b"\r")
    return alone or b"\n\n" in text or b"\n\r" in text


def inspect(config: FilesConfig, options: FileOptions, state: FileState) -> FileShape:
    """Inspect the file; raises ReadError, which names it."""
    kind = state.format(options.format)
    if not state.size and kind != "parquet":
        return FileShape()
    with _opened(config, state, None, whole=kind == "parquet") as stream:
        if kind == "parquet":
            return parquet.inspect(stream, config.metadata)
        room = csv if kind == "csv" else jsonl
        _check_mark(config, options, state)
        shape = room.inspect(stream, options_for(options, state), config.metadata, state.name)
    return divided(shape, lambda: _opened(config, state, None, whole=True), state, options, kind)


def _check_mark(config: FilesConfig, options: FileOptions, state: FileState) -> None:
    """Raise ReadError for a text that begins with the mark of another encoding."""
    if options.encoding.lower() not in ("utf-8", "utf8"):
        return
    with _opened(config, state, None, whole=False) as stream:
        if stream.read(2) in (BOM_UTF16_LE, BOM_UTF16_BE):
            raise ReadError(f"{state.name} is UTF-16, its first bytes say", hint="set `encoding: utf-16` for its table")


def pieces(
    config: FilesConfig,
    options: FileOptions,
    state: FileState,
    shape: FileShape,
    part: FilePart | None,
    columns: Sequence[str],
) -> Iterator[Piece]:
    """Yield the records of a part of the file (None: all of it), columns by name; raises ReadError, which names the
    file."""
    kind = state.format(options.format)
    if not shape.columns and not shape.refused:
        return
    with _opened(config, state, part, whole=kind == "parquet") as stream:
        if kind == "parquet":
            yield from parquet.pieces(stream, shape, part, columns)
        else:
            room = csv if kind == "csv" else jsonl
            yield from room.pieces(stream, options_for(options, state), shape, part, columns, state.name)


def options_for(options: FileOptions, state: FileState) -> FileOptions:
    """Return the options of the file; a `.tsv` file has tabs unless another delimiter is set."""
    tabs = options.delimiter == "," and "tsv" in state.suffixes
    return options.model_copy(update={"delimiter": "\t"}) if tabs else options


@contextmanager
def _opened(config: FilesConfig, state: FileState, part: FilePart | None, *, whole: bool) -> Iterator[Any]:
    """Open a file for random access (`whole`), or a stream of its contents or of a part of them."""
    try:
        with _located(config, state) as (filesystem, path):
            if whole or part is not None:
                with filesystem.open_input_file(path) as file:
                    yield file if whole or part is None else file.get_stream(part.start, part.end - part.start)
            else:
                with filesystem.open_input_stream(path, compression=state.packed or None) as stream:
                    yield stream
    except InstepError:
        raise
    except (OSError, EOFError, pa.ArrowException) as error:
        message = (str(error).splitlines() or [type(error).__name__])[0]
        raise ReadError(
            f"{state.name} cannot be read: {message}", hint="repair the file, or take it out of the folder"
        ) from None


@contextmanager
def _located(config: FilesConfig, state: FileState) -> Iterator[tuple[Any, str]]:
    """Yield the file system of a file and its path there; of a source without `links`, a path that leads to a file of
    the folder whatever lies in its place now."""
    filesystem, path = config.folder.resolve(state.name)
    if config.links or config.folder.local is None:
        yield filesystem, path
        return
    try:
        descriptor = open_below(config.path, path)
    except ValueError:
        raise ReadError(
            f"{state.name} leads out of {config.path}, or is no longer a file: a source that comes from an API reads "
            "its own folder alone",
            hint="take the link away, or describe the source in instep.yml",
        ) from None
    try:
        yield filesystem, f"/dev/fd/{descriptor}"
    finally:
        os.close(descriptor)
