"""The files of a table as one table: every column that one of them has, with the type that holds the values of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from instep.errors import ReadError
from instep.schema.table import Column, Table
from instep.schema.types import DataType, parse
from instep.schema.widen import promote
from instep.sources.files.config import METADATA, SCHEMA, FilesConfig, Options
from instep.sources.files.infer import join, settled
from instep.sources.files.seen import File
from instep.sources.files.shape import FileColumn

_TEXTS = ("text", "json")


def table_of_files(config: FilesConfig, name: str, files: Sequence[File]) -> Table:
    """Columns stand in the order in which they were first seen; raises ReadError if the declared key is not there."""
    options = config.options_of(name)
    found: dict[str, list[tuple[File, FileColumn]]] = {}
    for file in files:
        for column in file.shape.columns:
            found.setdefault(column.name, []).append((file, column))
    columns = [_column(column, seen, options) for column, seen in found.items()]
    own = [Column(n, METADATA[n], native="file") for n in config.metadata]
    return Table(SCHEMA, name, tuple(_keyed([*columns, *own], name, options)))


def _column(name: str, seen: Sequence[tuple[File, FileColumn]], options: Options) -> Column:
    natives = list(dict.fromkeys(c.native for _, c in seen))
    notes = dict.fromkeys(c.note for _, c in seen if c.note)
    if declared := options.types.get(name):
        return Column(name, parse(declared), native=natives[0], note="; ".join(notes))
    kind, why = _joined(seen)
    notes |= {why: None} if why else {}
    return Column(name, kind, native=natives[0] if len(natives) == 1 else str(kind), note="; ".join(notes))


def _joined(seen: Sequence[tuple[File, FileColumn]]) -> tuple[DataType, str]:
    """(the type, which file made it another one than the files before it had)."""
    kind, why = seen[0][1].type, ""
    texts = all(c.native in _TEXTS for _, c in seen)
    for file, column in seen[1:]:
        before = settled(kind)
        now = column.type if texts or column.native not in _TEXTS else settled(column.type)
        kind = join(kind, now) if texts else promote(before, now)
        if type(settled(kind)) is not type(before) and str(before) != "unknown":
            why = f"{before} before {file.state.name}"
    return settled(kind) if seen[0][1].native in _TEXTS or texts else kind, why


def _keyed(columns: Sequence[Column], table: str, options: Options) -> list[Column]:
    missing = [k for k in options.key if k not in {c.name for c in columns}]
    if missing:
        raise ReadError(
            f"table {SCHEMA}.{table}: its key {', '.join(missing)} is no column of its files",
            hint="correct `key` of the source's options",
        )
    places = {name: place for place, name in enumerate(options.key, 1)}
    return [replace(c, key=places[c.name], nullable=False) if c.name in places else c for c in columns]
