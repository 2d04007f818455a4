"""Events, one frozen class each; the store keeps them in order, notifications are made from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Event:
    """An event of the log."""

    type: ClassVar[str] = "event"
    connection: str
    """Connection that the event is about."""

    def data(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class ChangeDetected(Event):
    type: ClassVar[str] = "change.detected"
    change: str
    kind: str
    summary: str


@dataclass(frozen=True)
class ReviewNeeded(Event):
    type: ClassVar[str] = "change.review_needed"
    change: str
    summary: str
    why: str


@dataclass(frozen=True)
class RenameSuspected(Event):
    """A removal and an addition look like one rename: a proposal for `changes map` is open. No values in `evidence`."""

    type: ClassVar[str] = "change.rename_suspected"
    change: str
    summary: str
    score: float
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class ChangeIgnored(Event):
    type: ClassVar[str] = "change.ignored"
    change: str
    summary: str
    why: str


@dataclass(frozen=True)
class ChangeWaiting(Event):
    """Policy accepts it, and it is not applied yet: `seen` by so many detections `of` those that it takes (0: `why`
    says what it waits for)."""

    type: ClassVar[str] = "change.waiting"
    change: str
    summary: str
    why: str
    seen: int = 0
    of: int = 0


@dataclass(frozen=True)
class ChangeApproved(Event):
    type: ClassVar[str] = "change.approved"
    change: str
    who: str
    summary: str = ""


@dataclass(frozen=True)
class ChangeRejected(Event):
    type: ClassVar[str] = "change.rejected"
    change: str
    who: str
    summary: str = ""


@dataclass(frozen=True)
class ChangeSnoozed(Event):
    """A change was snoozed."""

    type: ClassVar[str] = "change.snoozed"
    change: str
    who: str
    until: str
    summary: str = ""


@dataclass(frozen=True)
class ChangeReopened(Event):
    """An answer that does not count any more: the table is not what it was, or a person has taken it back."""

    type: ClassVar[str] = "change.reopened"
    change: str
    summary: str
    why: str
    who: str = ""


@dataclass(frozen=True)
class ChangeMapped(Event):
    """A person said that a removal and an addition are one rename."""

    type: ClassVar[str] = "change.mapped"
    table: str
    old: str
    new: str
    who: str
    version: int
    change: str = ""


@dataclass(frozen=True)
class ChangeApplied(Event):
    type: ClassVar[str] = "change.applied"
    change: str
    summary: str
    version: int


@dataclass(frozen=True)
class ChangeUndone(Event):
    type: ClassVar[str] = "change.undone"
    change: str
    summary: str
    version: int
    who: str


@dataclass(frozen=True)
class TableRestored(Event):
    """A table's rows were put back to a snapshot of `at` (ISO time in UTC)."""

    type: ClassVar[str] = "table.restored"
    run: str
    table: str
    snapshot: str
    at: str
    rows_before: int
    rows: int
    who: str


@dataclass(frozen=True)
class Paused(Event):
    """The connection, or one table of it, stopped."""

    type: ClassVar[str] = "connection.paused"
    reason: str
    table: str = ""
    change: str = ""


@dataclass(frozen=True)
class Resumed(Event):
    type: ClassVar[str] = "connection.resumed"
    who: str
    table: str = ""


@dataclass(frozen=True)
class SelectionChanged(Event):
    """A person switched a schema, table or column: `choice` is on, off, hashed or clear, or `as before` where a rollout
    was taken back."""

    type: ClassVar[str] = "selection.changed"
    object: str
    choice: str
    who: str


@dataclass(frozen=True)
class KeyChosen(Event):
    """A person chose the key of a table: `how` says what becomes of its rows (rekey, rebuild or clear)."""

    type: ClassVar[str] = "table.key_set"
    table: str
    key: tuple[str, ...]
    how: str
    who: str
    version: int


@dataclass(frozen=True)
class SourceUpgraded(Event):
    """The connector of the source has another version from now on; a rollback leads to an older one."""

    type: ClassVar[str] = "source.upgraded"
    source: str
    before: str
    after: str
    who: str


@dataclass(frozen=True)
class CursorChosen(Event):
    """A person chose the cursor of a table ("": none); `start` is where its first read begins."""

    type: ClassVar[str] = "table.cursor_set"
    table: str
    cursor: str
    start: str
    who: str
    version: int


@dataclass(frozen=True)
class CopyPurged(Event):
    """A table that was kept beside the one that took its place is deleted."""

    type: ClassVar[str] = "table.copy_purged"
    table: str
    copy: str
    who: str


@dataclass(frozen=True)
class OperationRequested(Event):
    """A person has requested an operation that four_eyes gives to two: another person has to request the same.

    `operation` is the command, `what` all that matters of it.
    """

    type: ClassVar[str] = "operation.requested"
    operation: str
    what: str
    who: str


@dataclass(frozen=True)
class OperationConfirmed(Event):
    """A second person has requested an operation that needs two people, and it was carried out."""

    type: ClassVar[str] = "operation.confirmed"
    operation: str
    what: str
    who: str


@dataclass(frozen=True)
class OldNameRetained(Event):
    """The old name of a table or column is kept in a view until `until` (ISO time in UTC)."""

    type: ClassVar[str] = "old_name.retained"
    table: str
    name: str
    view: str
    until: str


@dataclass(frozen=True)
class OldNameEnded(Event):
    """An old name has left its view; `why` says for which reason."""

    type: ClassVar[str] = "old_name.ended"
    table: str
    name: str
    view: str
    why: str


@dataclass(frozen=True)
class RunStarted(Event):
    type: ClassVar[str] = "run.started"
    run: str
    kind: str


@dataclass(frozen=True)
class RunEnded(Event):
    type: ClassVar[str] = "run.ended"
    run: str
    kind: str
    status: str
    error: str = ""


@dataclass(frozen=True)
class TableLoaded(Event):
    type: ClassVar[str] = "table.loaded"
    run: str
    table: str
    mode: str
    read: int
    inserted: int
    updated: int
    deleted: int
    invalid_values: int


@dataclass(frozen=True)
class TableFailed(Event):
    type: ClassVar[str] = "table.failed"
    run: str
    table: str
    error: str


@dataclass(frozen=True)
class FreshnessLate(Event):
    """Tables are older than their target allows: the first of them by name, and how many there are. `since` and `as_of`
    (ISO times in UTC) are those of the table that is late for the longest."""

    type: ClassVar[str] = "freshness.late"
    tables: tuple[str, ...]
    count: int
    since: str
    as_of: str


@dataclass(frozen=True)
class FreshnessRecovered(Event):
    """Tables that were late are within their target again: the first of them by name, and how many there are."""

    type: ClassVar[str] = "freshness.recovered"
    tables: tuple[str, ...]
    count: int


@dataclass(frozen=True)
class BackfillCancelled(Event):
    """Nobody wants it any more; `column` is empty for a whole table."""

    type: ClassVar[str] = "backfill.cancelled"
    table: str
    column: str
    who: str


@dataclass(frozen=True)
class TableMaintained(Event):
    """A table's files were put in order: data files and bytes (delete files included) before and after. `rewritten`
    files were put together, `snapshots` expired, `removed` files went with them, `orphans` beside them."""

    type: ClassVar[str] = "table.maintained"
    run: str
    table: str
    files_before: int
    files: int
    bytes_before: int
    bytes: int
    rewritten: int
    snapshots: int
    removed: int
    orphans: int
    seconds: float


@dataclass(frozen=True)
class ConnectionCreated(Event):
    """A connection was created through the API; one of the project file appears with its first run."""

    type: ClassVar[str] = "connection.created"
    who: str


@dataclass(frozen=True)
class ConnectionEdited(Event):
    """A connection's settings, or those of its source, were changed through the API."""

    type: ClassVar[str] = "connection.edited"
    who: str


@dataclass(frozen=True)
class ConnectionTested(Event):
    """Both its ends were reached and take what it needs, or not: `error`. Told after each test of its set-up, and when
    a run changes what is known of it."""

    type: ClassVar[str] = "connection.tested"
    error: str = ""


@dataclass(frozen=True)
class SyncRequested(Event):
    """A person or program asked for a sync."""

    type: ClassVar[str] = "sync.requested"
    who: str


@dataclass(frozen=True)
class ResyncRequested(Event):
    """A person or program asked for tables to be read again; () means all of them."""

    type: ClassVar[str] = "resync.requested"
    tables: tuple[str, ...]
    who: str


@dataclass(frozen=True)
class ConnectionDeleted(Event):
    """`tables` of the destination were kept, dropped, or left alone because the destination could not be reached;
    `log` is the slot that was dropped at the source, "" if there was none. `left` says what stayed behind. The last
    three say what it was, as nothing else does any more."""

    type: ClassVar[str] = "connection.deleted"
    who: str
    tables: int
    table_action: str
    log: str = ""
    left: tuple[str, ...] = ()
    service: str = ""
    destination: str = ""
    namespace: str = ""


@dataclass(frozen=True)
class DetectionEnded(Event):
    """A detection by the queue is over."""

    type: ClassVar[str] = "detection.finished"
    job: str
    status: str
    counts: Mapping[str, Mapping[str, int]]
    """New, deleted, updated and unchanged by level."""
    triggered_by_error: bool = False
    error: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class DetectorDisabled(Event):
    """The scheduled detector switched itself off; a person resolves what `reason` says and switches it on again."""

    type: ClassVar[str] = "detector.disabled"
    reason: str
    change: str = ""


@dataclass(frozen=True)
class DetectorEnabled(Event):
    type: ClassVar[str] = "detector.enabled"
    who: str


@dataclass(frozen=True)
class JobDead(Event):
    """A job has used up its attempts."""

    type: ClassVar[str] = "job.dead"
    job: str
    kind: str
    attempt: int
    error: str


@dataclass(frozen=True)
class RolloutMoved(Event):
    """A rollout is ready, running, stopped, halted, partial or done; of no connection ("")."""

    type: ClassVar[str] = "rollout.moved"
    rollout: str
    status: str
    wave: int
    why: str
    """Reason of the move."""
    who: str


@dataclass(frozen=True)
class RolloutApplied(Event):
    """A rollout's patch reached the connection, in that wave."""

    type: ClassVar[str] = "rollout.applied"
    rollout: str
    what: str
    wave: int
    who: str


@dataclass(frozen=True)
class RolloutTakenBack(Event):
    """A rollout's patch was taken back from the connection."""

    type: ClassVar[str] = "rollout.taken_back"
    rollout: str
    what: str
    wave: int
    who: str
