"""The entries of quarantines, all at once, for tests."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from instep.stage.quarantine import QuarantineEntry
from instep.stage.quarantine_store import stored_quarantine
from instep.sync.context import SyncContext
from instep.sync.quarantine.quarantine import quarantine_places


def entries_in(uri: str, io: Mapping[str, str], ignored: Collection[str] = ()) -> tuple[QuarantineEntry, ...]:
    """Return what a folder holds, oldest first."""
    with stored_quarantine(uri, io, ignored, lambda entry: entry) as found:
        return tuple(entry for entries in found.batches() for entry in entries)


def entries_by_table(context: SyncContext, *, idle: bool = False) -> dict[str, list[QuarantineEntry]]:
    """Return what the tables of a connection hold, by path, settled entries too."""
    found = dict[str, list[QuarantineEntry]]()
    for place in quarantine_places(context, idle=idle):
        with place.stored(context) as stored:
            if entries := [entry for entries in stored.batches() for entry in entries]:
                found[place.table.path] = entries
    return found


def entries_of(context: SyncContext, *, idle: bool = False) -> list[QuarantineEntry]:
    """Return what all tables of a connection hold, settled entries too."""
    return [entry for entries in entries_by_table(context, idle=idle).values() for entry in entries]


def pending_of(context: SyncContext, *, idle: bool = False) -> list[QuarantineEntry]:
    """Return what waits in all tables of a connection."""
    return [entry for entry in entries_of(context, idle=idle) if entry.status == "held"]
