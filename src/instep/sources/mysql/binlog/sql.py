"""Queries for rows by key, and for the keys themselves, as the binary log names them: keys are SQL by now."""

from __future__ import annotations

from collections.abc import Iterator

from instep.schema.read import TableRead
from instep.sources.log import Changed, Key
from instep.sources.mysql.sql import probing, quoted, quoted_table
from instep.sources.mysql.types import selected
from instep.stage.spec import Chunk

KEYS = 5_000
LENGTH = 1 << 20
"""Keys, and letters of them, that one query asks for."""


def row_chunks(read: TableRead, name: str, changed: Changed) -> list[Chunk]:
    """The rows of these keys that are there, all accepted columns that have a source; all of one view."""
    what = ", ".join(selected(c.source) for c in read.columns if c.source is not None)
    key = ", ".join(map(quoted, changed.columns))
    where = f" AND {read.condition}" if read.where else ""
    select = f"SELECT {what} FROM {quoted_table(*read.source.ref)} WHERE ({key}) IN"  # noqa: S608
    probe = probing(read.source.ref)
    return [
        Chunk(name, number, f"{select} ({', '.join(map(_line, keys))}){where}", len(keys), lane=name, probe=probe)
        for number, keys in enumerate(_parts(changed.keys))
    ]


def key_chunks(read: TableRead, name: str, changed: Changed, *, mariadb: bool) -> list[Chunk]:
    """These keys, whether they are there or not, as a read of the key columns yields them."""
    key = read.table.key
    what = ", ".join(selected(c.source) for c in read.columns if c.source is not None and c.column.name in key)
    names = ", ".join(map(quoted, changed.columns))
    row = "" if mariadb else "ROW"
    return [
        Chunk(
            name, number,
            f"WITH asked ({names}) AS (VALUES {', '.join(row + _tuple(k) for k in keys)}) SELECT {what} FROM asked",  # noqa: S608
            len(keys),
            lane=name,
        )
        for number, keys in enumerate(_parts(changed.keys))
    ]  # fmt: skip


def _parts(keys: tuple[Key, ...]) -> Iterator[list[Key]]:
    part: list[Key] = []
    length = 0
    for key in keys:
        if part and (len(part) == KEYS or length > LENGTH):
            yield part
            part, length = [], 0
        part.append(key)
        length += sum(map(len, key))
    if part:
        yield part


def _tuple(key: Key) -> str:
    return f"({', '.join(key)})"


def _line(key: Key) -> str:
    """A value alone is in no brackets: its index would not be used."""
    return key[0] if len(key) == 1 else _tuple(key)
