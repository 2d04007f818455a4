"""The keys and cursors that people chose, laid over what the source has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from instep.project.sections.tables import TableSettings
from instep.schema.catalog.catalog import Table
from instep.schema.changes.diff import pair_columns
from instep.store.catalogs.choices import KeyChoice, What
from instep.sync.context import Ref, SyncContext

Chosen = Mapping[tuple[Ref, What], KeyChoice]


def with_choices(source: Table, accepted: Table | None, chosen: Chosen, settings: TableSettings) -> Table:
    """Return the source table with the key and cursor that a person chose for the accepted one.

    They follow renames of their columns, as accepted keys and cursors do. Where a column of theirs is gone, the
    source's own key stands, or no cursor: the change that this is pauses the table. What the project file names wins.
    """
    if accepted is None or not chosen:
        return source
    names = {before.name: now.name for before, now in pair_columns(accepted, source).same}
    key, cursor = chosen.get((accepted.ref, "key")), chosen.get((accepted.ref, "cursor"))
    if key is not None and not settings.key:
        source = with_key(source, [names.get(name) for name in _today(key, accepted.key)])
    if cursor is not None and not settings.cursor:
        now = _today(cursor, (accepted.cursor,) if accepted.cursor else ())
        source = replace(source, cursor=names.get(now[0]) if now else None)
    return source


def _today(choice: KeyChoice, accepted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the chosen columns by their accepted names."""
    return accepted if len(accepted) == len(choice.value) else choice.value


def with_key(table: Table, names: list[str | None]) -> Table:
    """Return the table with this key; as it is if a column is not there."""
    places = {name: place for place, name in enumerate(names, 1) if name in table.by_name}
    if len(places) != len(names):
        return table
    return replace(table, columns=tuple(replace(c, key=places.get(c.name, 0)) for c in table.columns))


def starts(context: SyncContext) -> Callable[[Table], str]:
    """Return a function of where the first read by an accepted table's chosen cursor begins, "" for the whole table."""
    chosen = context.store.choices.of(context.name)

    def start(table: Table) -> str:
        choice = chosen.get((table.ref, "cursor"))
        return choice.start if choice is not None and not context.settings(table).cursor else ""

    return start
