"""Status of a connection: its loads, its tables, and its pending work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Any, Literal

from instep.model import Pause, Run, TableRun
from instep.store.catalogs.backfills import Backfill
from instep.store.catalogs.clones import Copy


@dataclass(frozen=True)
class LastMaintenance:
    """State of a table after its last maintenance."""

    at: datetime
    table: str
    files_before: int
    files: int
    bytes_before: int
    bytes: int
    snapshots: int


@dataclass(frozen=True)
class TableFreshness:
    """Freshness of a table against its target."""

    table: str
    """`schema.table`."""
    state: Literal["on_time", "late", "paused", "not_loaded"]
    """paused: nothing is expected of it; not_loaded: no sync has loaded it yet."""
    target: float
    """Seconds that its rows may be old."""
    as_of: datetime | None
    """Begin of the last sync that loaded it: its rows are at least as new."""
    due: datetime | None
    """Time from which on it is late, unless a sync loads it before; null while it is paused or not loaded."""


@dataclass(frozen=True)
class TableLoad(TableRun):
    """Outcome of a table's last run."""

    maintained: LastMaintenance | None = None
    """Its last maintenance; null if it had none."""
    freshness: TableFreshness | None = None
    """Its freshness against its target; null if it has none."""
    next_command: str = ""
    """Command that loads it again once the cause of its failure is mended; "" if it did not fail."""


@dataclass(frozen=True)
class OldNameStatus:
    """A name that a table or a column had before, and until when it is kept."""

    table: str
    name: str
    column: str | None
    view: str | None
    until: datetime | None
    trouble: str | None


@dataclass(frozen=True)
class WaitingBackfill(Backfill):
    """A backfill that is not done yet."""

    waits: str = ""
    """Reason why a column's backfill waits; "" if nothing stops it."""


@dataclass(frozen=True)
class LoadStatus:
    """Status of a connection's loads."""

    connection: str
    last_run: Run | None
    schema_version: int
    schema_label: str
    pauses: tuple[Pause, ...]
    copies: tuple[Copy, ...]
    """Clones that the destination retains."""
    old_names: tuple[OldNameStatus, ...]
    outcomes: Mapping[str, int]
    """Number of tables by how they fared last."""
    unmatched: int
    """Number of patterns of the project file that fit no table."""
    maintained: int
    """Number of tables that were maintained."""
    last_maintained: LastMaintenance | None
    backfills: tuple[WaitingBackfill, ...]
    quarantine: Mapping[str, int]
    """Number of entries by table, those with the most first."""
    quarantined: int
    """Number of entries that all tables hold."""
    unread: Mapping[str, str]
    """Why a part of a table at the source is not read, such as files of a format without a reader."""


@dataclass(frozen=True)
class FreshnessSummary:
    """Freshness of a connection against its targets: that of its worst table."""

    state: Literal["on_time", "late", "paused", "not_loaded"]
    """late: at least one table is late."""
    late: int
    """Number of late tables."""
    since: datetime | None
    """Time from which on the first of them is late."""


@dataclass(frozen=True)
class ConnectionStatus(LoadStatus):
    """Status of a connection."""

    freshness: tuple[TableFreshness, ...] = ()
    """Up to 200 tables that have a freshness target, the late ones first."""
    freshness_counts: Mapping[str, int] = field(default_factory=dict)
    """Number of tables that have a freshness target, by their state."""
    next_command: str = ""
    """Command that tries the last run again once the cause of its failure is mended; "" if it did not fail."""
    waiting_changes: int = 0
    """Changes that wait for a person."""
    reselected: tuple[Mapping[str, Any], ...] = ()
    """Columns that were chosen otherwise since the last load."""
    partial: tuple[Mapping[str, Any], ...] = ()
    """Columns that have no values in older rows, and the command that brings them."""
    log: Mapping[str, Any] | None = None
    """The state of the source's log; null over a server, which opens no source."""
    more: Mapping[str, int] = field(default_factory=dict)
    """Number of those that are not listed, by field: up to 200 pauses, copies, old names, backfills, tables with
    quarantined entries, reselected and partial columns are."""

    def shortened(self) -> ConnectionStatus:
        """Return the status with the first entries of each list, and the number of the others."""
        lists = {name: getattr(self, name) for name in SHORTENED}
        more = {name: len(entries) - LISTED for name, entries in lists.items() if len(entries) > LISTED}
        short: dict[str, Any] = {
            name: dict(islice(lists[name].items(), LISTED)) if name == "quarantine" else lists[name][:LISTED]
            for name in more
        }
        return replace(self, **short, more=more)


LISTED = 200
"""Entries of each list that the status of a connection has."""
SHORTENED = ("pauses", "copies", "old_names", "backfills", "quarantine", "reselected", "partial")
