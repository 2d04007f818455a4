"""What the project file says of single tables and the source has no place for: most often a name that was mistyped.

Only tables named exactly are looked at: of the tables that a pattern matches, some may well lack a column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches

from instep.model import TableSettings
from instep.schema.kinds import Ref
from instep.schema.table import Catalog, Table
from instep.schema.type_choice import unknown_names
from instep.sync.pipe import Pipe


def unheeded(pipe: Pipe, source: Catalog, settled: Catalog, closed: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """A sentence each. `settled`: the selected tables of the source with the keys and cursors of the settings;
    `closed`: what may not be read."""
    tables, hidden = {t.path: t for t in source.tables}, {".".join(filter(None, path)) for path in closed}
    found = dict[str, None]()
    for path, columns in sorted(pipe.tables_named.items()):
        if (table := tables.get(path)) is not None:
            found |= dict.fromkeys(_of_table(table, settled, pipe.settings(table), columns))
        elif path not in hidden:
            found[f"the project file sets up a table {path}, which the source does not have{_meant(path, tables)}"] = (
                None
            )
    return tuple(found)


def _of_table(table: Table, settled: Catalog, settings: TableSettings, columns: Sequence[str]) -> Iterator[str]:
    own = table.by_name
    for name in columns:
        if name not in own:
            yield f"{table.path}: `columns` names {name}, which the table does not have{_meant(name, own)}"
    for name in unknown_names(table, settings.types):
        yield f"{table.path}: `types` names {name}, which is no column and no type of it{_meant(name, own)}"
    now: Mapping[Ref, Table] = settled.by_ref
    if (read := now.get(table.ref)) is None:
        return
    if settings.cursor and settings.cursor not in own and read.cursor is None:
        yield f"{table.path}: `cursor: {settings.cursor}` is no column of it{_meant(settings.cursor, own)}"
    if settings.key and table.key and sorted(settings.key) != sorted(table.key):
        yield f"{table.path}: `key` is not used, the source has a primary key: {', '.join(table.key)}"
    elif settings.key and not read.key:
        lost = next((k for k in settings.key if k not in own), settings.key[0])
        yield f"{table.path}: `key` names {lost}, which is no column of it{_meant(lost, own)}"


def _meant(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), 1)
    return f" (did you mean {near[0]}?)" if near else ""
