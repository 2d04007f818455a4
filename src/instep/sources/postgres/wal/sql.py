"""Queries for rows by key, and for the keys themselves, as the log names them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from instep.schema.read import TableRead
from instep.schema.table import Column
from instep.sources.log import Changed, Key
from instep.sources.postgres.sql import literal, quote, quote_table, select
from instep.sources.postgres.types import expression
from instep.stage.spec import Chunk

KEYS = 10_000
"""Keys that one query asks for."""


def row_chunks(read: TableRead, name: str, changed: Changed) -> list[Chunk]:
    """The rows of these keys that are there, all accepted columns that have a source."""
    what = ", ".join(_expression(c.source) for c in read.columns if c.source is not None)
    key = ", ".join(map(quote, changed.columns))
    table = quote_table(*read.source.ref)
    return [
        Chunk(name, number, select(what, table, f"({key}) IN ({values})", read.condition), count)
        for number, (values, count) in enumerate(_values(read, changed))
    ]


def key_chunks(read: TableRead, name: str, changed: Changed) -> list[Chunk]:
    """These keys, whether they are there or not, as a read of the key columns yields them."""
    key = read.table.key
    what = ", ".join(_expression(c.source) for c in read.columns if c.source is not None and c.column.name in key)
    names = ", ".join(map(quote, changed.columns))
    return [
        Chunk(name, number, select(what, f"({values}) AS asked({names})"), count)
        for number, (values, count) in enumerate(_values(read, changed))
    ]


def _values(read: TableRead, changed: Changed) -> Iterator[tuple[str, int]]:
    """The keys as VALUES lists; the first line says what types they have."""
    kinds = [read.source.by_name[name].native for name in changed.columns]
    for start in range(0, len(changed.keys), KEYS):
        first, *rest = changed.keys[start : start + KEYS]
        lines = [_line([f"{literal(text)}::{kind}" for text, kind in zip(first, kinds, strict=True)])]
        lines += [_line([literal(text) for text in key]) for key in rest]
        yield f"VALUES {', '.join(lines)}", len(lines)


def _line(values: Sequence[str]) -> str:
    return f"({', '.join(values)})"


def _expression(column: Column) -> str:
    name = quote(column.name)
    return f"{expression(name, column.native, column.type, column.name)} AS {name}"


def sorted_keys(keys: Sequence[Key]) -> tuple[Key, ...]:
    """In the order of their texts, so that a run that is repeated asks the same."""
    return tuple(sorted(keys))
