"""Opening a file and reading it as what it is: Parquet, CSV or JSON lines."""

from __future__ import annotations

from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from instep.errors import InstepError, ReadError
from instep.sources.files import csv, jsonl, parquet, split
from instep.sources.files.config import FilesConfig, Options
from instep.sources.files.listing import FileState
from instep.sources.files.shape import Part, Piece, Shape
from instep.stage.place import Place


def inspect(config: FilesConfig, options: Options, state: FileState) -> Shape:
    """What is in the file; raises ReadError, which names it."""
    kind = state.format(options.format)
    if not state.size and kind != "parquet":
        return Shape()
    with _opened(config, state, None, whole=kind == "parquet") as stream:
        if kind == "parquet":
            return parquet.inspect(stream, config.metadata)
        room = csv if kind == "csv" else jsonl
        _check_mark(config, options, state)
        shape = room.inspect(stream, options_for(options, state), config.metadata, state.name)
    return split.divided(shape, lambda: _opened(config, state, None, whole=True), state, options, kind)


def _check_mark(config: FilesConfig, options: Options, state: FileState) -> None:
    """Raises ReadError for a text that begins with the mark of another encoding."""
    if options.encoding.lower() not in ("utf-8", "utf8"):
        return
    with _opened(config, state, None, whole=False) as stream:
        if stream.read(2) in (BOM_UTF16_LE, BOM_UTF16_BE):
            raise ReadError(f"{state.name} is UTF-16, its first bytes say", hint="set `encoding: utf-16` for its table")


def pieces(
    config: FilesConfig, options: Options, state: FileState, shape: Shape, part: Part | None, wanted: Sequence[str]
) -> Iterator[Piece]:
    """The records of a part of the file (None: all of it), columns by name; raises ReadError, which names the file."""
    kind = state.format(options.format)
    if not shape.columns and not shape.refused:
        return
    with _opened(config, state, part, whole=kind == "parquet") as stream:
        if kind == "parquet":
            yield from parquet.pieces(stream, shape, part, wanted)
        else:
            room = csv if kind == "csv" else jsonl
            yield from room.pieces(stream, options_for(options, state), shape, part, wanted, state.name)


def options_for(options: Options, state: FileState) -> Options:
    """Those of the table; a `.tsv` file is one with tabs unless another delimiter is said."""
    from dataclasses import replace

    return replace(options, delimiter="\t") if options.delimiter == "," and "tsv" in state.suffixes else options


@contextmanager
def _opened(config: FilesConfig, state: FileState, part: Part | None, *, whole: bool) -> Iterator[Any]:
    """A file that can be read at any place (`whole`), or a stream of its contents or of a part of them."""
    filesystem, path = Place(config.path, config.properties).resolve(state.name)
    try:
        if whole or part is not None:
            with filesystem.open_input_file(path) as file:
                yield file if whole or part is None else file.get_stream(part.start, part.end - part.start)
        else:
            with filesystem.open_input_stream(path, compression=state.packed or None) as stream:
                yield stream
    except InstepError:
        raise
    except (OSError, EOFError, pa.ArrowException) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise ReadError(
            f"{state.name} cannot be read: {said}", hint="repair the file, or take it out of the folder"
        ) from None
