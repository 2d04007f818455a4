"""Slots at PostgreSQL whose connection was removed, or no longer follows a log: the server keeps its log for them until
somebody drops them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from instep.bootstrap.app import log_of
from instep.errors import InstepError, argument

if TYPE_CHECKING:
    from instep.bootstrap.app import App
    from instep.sources.log import LogState


def abandoned_slots(app: App) -> list[dict[str, Any]]:
    """Return the slots at the project's PostgreSQL sources that no connection reads any more, as JSON: those of which
    the store knows that a connection has read them, which was removed or no longer follows a log. `command` drops one.

    A source that cannot be reached is left out, and so is a connection of the server's store.
    """
    from instep.sync.loading.cdc import slots

    project, store = app.project, app.store
    managed = set(store.objects.names("connection")) - set(project.connections)
    followed = {names.slot for c in project.connections if (names := app.log_names(c)) is not None}
    left = {
        slot: reader
        for reader in sorted(store.cursors.reading_slots() - managed)
        for slot in sorted(slots(store.cursors.of(reader)) - followed)
    }
    readers: dict[str, str] = {}  # a connection of each source
    for connection in project.connections:
        readers.setdefault(project.source_of(connection), connection)
    found = []
    for slot, reader in left.items():
        for source, state in _slot_at(app, slot, readers):
            command = f"instep source log drop {argument(readers[source])} --slot {argument(slot)}"
            place = {"connection": reader, "slot": slot, "source": source}
            found.append({**place, "retained": state.retained, "command": command})
    return found


def _slot_at(app: App, slot: str, readers: Mapping[str, str]) -> Iterator[tuple[str, LogState]]:
    """Yield the source that has this slot, with its state; nothing if none of them has it."""
    for source, connection in readers.items():
        if app.project.model.sources[source].type != "postgres":
            continue
        try:
            state = log_of(app, connection, slot)[0].state()
        except InstepError:
            continue
        if state.exists and not state.foreign:
            yield source, state
            return
