"""The logs that the sources of a project keep for its connections in change data capture."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from instep.errors import InstepError, ProjectError

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.sources.log import ChangeLog


def log_status(app: App, connection: str) -> dict[str, Any]:
    """Return the state of a connection's log as JSON; `trouble` says why it cannot be read, if so."""
    from instep.sync.loading.cdc import places

    names = app.log_names(connection)
    assert names is not None, "asked for by the caller"
    found = {"connection": connection, "slot": names.slot, "publication": names.publication}
    try:
        log = log_of(app, connection)[0]
        log.resume(places(_going_on(app, connection)))
        return found | asdict(log.state())
    except InstepError as error:
        return found | {"exists": False, "ours": True, "trouble": error.message, "hint": error.hint or ""}


def _going_on(app: App, connection: str) -> dict[tuple[str, str], Any]:
    """Return the positions of the tables that syncs read; one that is paused or gone needs nothing of the log."""
    accepted, paused = app.store.accepted.catalog(connection), app.store.pauses.tables(connection)
    records = app.store.cursors.of(connection)
    gone = {ref for ref in records if (table := accepted.get(ref)) is None or table.retained}
    return {ref: record for ref, record in records.items() if ref not in gone and ref not in paused}


def log_of(app: App, connection: str, slot: str = "") -> tuple[ChangeLog, str]:
    """Return the log of a connection and the name of its slot (or of `slot`, if given).

    Raises ProjectError if no table of the connection follows a log, or the source has none.
    """
    from instep.model import LogNames
    from instep.sources.log import Logs

    names = LogNames(slot, slot) if slot else app.log_names(connection)
    if names is None:
        raise ProjectError(f"no table of connection {connection} follows a log", hint="name the slot: --slot NAME")
    source = app.source(app.project.source_of(connection))
    if not isinstance(source, Logs):
        raise ProjectError(f"the source of connection {connection} has no log that can be followed ({source.kind})")
    return source.log(names), names.slot
