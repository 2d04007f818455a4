"""The lines of a message: events with the names, the old and the new of what they are about; and the occasions and
severity that an event has for those who may be told of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from instep import events
from instep.errors import InstepError
from instep.events import Event
from instep.model import Review
from instep.project.sections.channels import Occasion, Severity
from instep.schema.catalog.catalog import Column
from instep.schema.changes import kinds
from instep.schema.changes.describe import Change, change_from_dict, column_of, table_of
from instep.store.history.outbox import NotifiedEvent
from instep.store.store import Store

Tone = Literal["added", "removed", "renamed", "changed", "stopped", "plain"]
Link = Callable[[str, str], str]
"""(connection, change or run id, "" for none) -> an address, "" if there is none."""


@dataclass(frozen=True)
class MessageLine:
    """`old` and `new` are names or types, never values. `numbers` are the events that the line was made from;
    `columns` are those of a table that is new or gone."""

    at: datetime
    numbers: tuple[int, ...]
    type: str
    severity: Severity
    tone: Tone
    what: str
    status: str
    connection: str
    source: str = ""
    table: str = ""
    column: str = ""
    old: str = ""
    new: str = ""
    kind: str = ""
    change: str = ""
    run: str = ""
    rule: str = ""
    why: str = ""
    link: str = ""
    command: str = ""
    columns: int = 0

    @property
    def place(self) -> str:
        """`source.table.column`-like path of the object, "" for the connection itself."""
        return ".".join(filter(None, (self.table, self.column)))


def lines_of(
    store: Store, notified: Iterable[NotifiedEvent], source_of: Callable[[str], str], link: Link
) -> list[MessageLine]:
    """Return one line a change, saying what has become of it, and one for everything else; in the order of the first
    event. `source_of`: the name of a connection's source."""
    message_lines: dict[tuple[str, str], MessageLine] = {}
    for event in notified:
        line = _line(store, event)
        line = replace(line, source=source_of(line.connection), link=_link(link, line))
        key = (line.connection, line.change or f"#{event.event.number}")
        if (before := message_lines.get(key)) is not None and line.type != events.Paused.type:
            line = replace(line, numbers=before.numbers + line.numbers, tone=before.tone, what=before.what)
        elif before is not None:
            key = (line.connection, f"#{event.event.number}")
        message_lines[key] = line
    return list(message_lines.values())


def _link(link: Link, line: MessageLine) -> str:
    return link(line.connection, line.change or line.run) if line.connection else ""


def _line(store: Store, notified: NotifiedEvent) -> MessageLine:
    logged = notified.event
    line = MessageLine(
        logged.at, (logged.number,), logged.type, _severity(notified), "plain", logged.type, "", logged.connection
    )
    try:
        event = logged.event
    except InstepError:
        return line  # of a newer version: its type is all that is known
    match event:
        case events.RunEnded():
            return _run(store, line, event)
        case events.RolloutMoved():
            tone: Tone = "plain" if event.status == "done" else "stopped"
            line = replace(line, tone=tone, what=f"rollout {event.rollout} {event.status}", status=f"by {event.who}")
            return replace(line, why=event.why, command=f"instep rollout status {event.rollout}")
        case events.FreshnessLate() | events.FreshnessRecovered():
            return _freshness(line, event)
        case events.Resumed():
            return replace(line, what="resumed", status=f"by {event.who}", table=event.table)
        case events.DetectorEnabled():
            return replace(line, what="detection enabled", status=f"by {event.who}")
        case events.OperationRequested():
            why = f"{event.what}; another person has to request the same"
            return replace(line, what=event.operation, status=f"requested by {event.who}", why=why)
        case events.JobDead():
            status = f"after {event.attempt} attempts"
            return _failed_job(line, event, f"{event.kind} given up", status)
        case events.DetectionEnded():
            status = "set off by an error" if event.triggered_by_error else ""
            return _failed_job(line, event, "detection failed", status)
        case events.DetectorDisabled():
            line = replace(line, tone="stopped", what="detection disabled itself", why=event.reason)
            return replace(line, command=f"instep detector enable {line.connection}")
        case events.ChangeMapped():
            line = replace(line, old=event.old, new=event.new, why=f"mapped by {event.who}", table=event.table)
            return replace(line, tone="renamed", what="column renamed", status="applied", change=event.change)
    return _change(store, line, event)


def _failed_job(
    line: MessageLine, event: events.JobDead | events.DetectionEnded, what: str, status: str
) -> MessageLine:
    command = f"instep queue show {event.job}"
    return replace(line, tone="stopped", what=what, status=status, why=event.error, command=command)


def _freshness(line: MessageLine, event: events.FreshnessLate | events.FreshnessRecovered) -> MessageLine:
    more = event.count - len(event.tables)
    names = ", ".join(event.tables) + (f" and {more} more" if more else "")
    line = replace(line, table=event.tables[0] if event.count == 1 else "", command="instep status")
    many = f"{event.count} tables" if event.count != 1 else "table"
    if isinstance(event, events.FreshnessRecovered):
        return replace(line, what=f"{many} on time again", why=names)
    since = datetime.fromisoformat(event.since)
    as_of = datetime.fromisoformat(event.as_of)
    why = f"{names}: fresh as of {as_of:%Y-%m-%d %H:%M} UTC"
    return replace(line, tone="stopped", what=f"{many} late", status=f"since {since:%Y-%m-%d %H:%M} UTC", why=why)


def _severity(notified: NotifiedEvent) -> Severity:
    return next((severity for severity in SEVERITIES if severity == notified.severity), "info")


def _run(store: Store, line: MessageLine, event: events.RunEnded) -> MessageLine:
    results = store.runs.tables(event.run)
    failed = [t for t in results if t.status == "failed"]
    why = event.error or "; ".join(f"{'.'.join(filter(None, t.table))}: {t.error}" for t in failed[:5])
    why += f"; and {len(failed) - 5} more" if len(failed) > 5 and not event.error else ""
    if event.status == "done":
        rows = sum(t.inserted + t.updated + t.deleted for t in results)
        why = f"{len(results)} tables, {rows:,} rows changed"
    table = ".".join(filter(None, failed[0].table)) if len(failed) == 1 else ""
    tone: Tone = "plain" if event.status == "done" else "stopped"
    what = f"{event.kind} {'failed' if event.status == 'failed' else event.status}"
    command = f"instep history --connection {line.connection}"
    return replace(line, tone=tone, what=what, why=why, run=event.run, table=table, command=command)


def _change(store: Store, line: MessageLine, event: Event) -> MessageLine:
    """Return a line about a change, or about a pause that a change may have caused."""
    review = _review(store, getattr(event, "change", ""))
    line = replace(line, **_facts(review)) if review else line
    status, why = _status_and_reason(event)
    line = replace(line, status=status, why=why or line.why)
    if isinstance(event, events.Paused):
        about = f" because of {line.what}" if review else ""
        line = replace(line, tone="stopped", what=f"paused{about}", table=event.table or line.table, why=event.reason)
    return replace(line, command=_command(line, event))


def _command(line: MessageLine, event: Event) -> str:
    if line.change:
        return f"instep changes show {line.change}"
    return f"instep resume {line.connection}" if isinstance(event, events.Paused) else ""


def _review(store: Store, change: str) -> Review | None:
    try:
        return store.reviews.get(change) if change else None
    except InstepError:
        return None


def _status_and_reason(event: Event) -> tuple[str, str]:
    """Return (status, reason) of a change's event."""
    match event:
        case events.ReviewNeeded() | events.ChangeReopened():
            return "needs a review", event.why
        case events.RenameSuspected():
            return "needs a review", f"looks like a rename ({event.score:.0%})"
        case events.ChangeIgnored():
            return "ignored", event.why
        case events.ChangeWaiting():
            return (f"seen {event.seen} of {event.of} times" if event.of else "waits"), event.why
        case events.ChangeApplied():
            return f"applied, schema version {event.version}", ""
        case events.ChangeUndone():
            return f"taken back by {event.who}, schema version {event.version}", ""
    return "detected" if isinstance(event, events.ChangeDetected) else "", ""


def _facts(review: Review) -> dict[str, Any]:
    change = change_from_dict(review.change)
    ref = table_of(change)
    table = ".".join(filter(None, ref)) if ref else getattr(change, "name", "")
    tone, old, new = _old_and_new(change)
    return {
        "tone": tone,
        "what": review.kind.replace(".", " ").replace("nullability", "nullability changed"),
        "table": table,
        "column": column_of(change),
        "old": old,
        "new": new,
        "kind": review.kind,
        "change": review.id,
        "rule": review.rule,
        "why": review.why,
        "columns": _columns(change),
    }


def _old_and_new(change: Change) -> tuple[Tone, str, str]:
    """Return (tone, old, new). Defaults and comments are left out: they may hold private data."""
    match change:
        case kinds.ColumnAdded():
            return "added", "", str(change.after.type)
        case kinds.ColumnRemoved():
            return "removed", str(change.before.type), ""
        case kinds.ColumnRenamed():
            return "renamed", change.before.name, change.after.name
        case kinds.ColumnWidened() | kinds.ColumnNarrowed() | kinds.ColumnRetyped():
            return "changed", str(change.before.type), str(change.after.type)
        case kinds.ColumnNullability():
            return "changed", _null(change.before), _null(change.after)
        case kinds.TableRenamed():
            return "renamed", change.before.path, change.after.path
        case kinds.KeyChanged() | kinds.KeyRemoved() | kinds.CursorChanged() | kinds.CursorRemoved():
            return "changed", _names(change.before), _names(getattr(change, "after", ""))
    verb = change.kind.partition(".")[2]
    return ("added" if verb == "added" else "removed" if verb == "removed" else "changed"), "", ""


def _columns(change: Change) -> int:
    match change:
        case kinds.TableAdded():
            return len(change.after.live)
        case kinds.TableRemoved():
            return len(change.before.live)
    return 0


def _null(column: Column) -> str:
    return "null" if column.nullable else "not null"


def _names(value: str | tuple[str, ...] | None) -> str:
    return ", ".join(value) if isinstance(value, tuple) else value or ""


SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")
SCHEMA: frozenset[Occasion] = frozenset({"detected", "review_needed", "breaking", "ignored", "applied"})
"""The occasions that are about schema changes."""
ALWAYS: frozenset[Occasion] = frozenset({"paused", "review_needed", "late"})
"""The occasions of every channel for connections without a route."""
DETECTED: frozenset[Occasion] = ALWAYS | {"applied"}
"""The same where a scheduled detector has options: people are told what it has propagated."""
_GRAVE = (".removed", ".retyped", ".narrowed", ".replaced", "access.lost")
_BREAKING = ("key.", "cursor.")
_ROLLOUTS: dict[str, Severity] = {"done": "info", "stopped": "warning", "partial": "warning", "halted": "error"}
"""The statuses of a rollout that is over, or waits for somebody."""
_CHANGES: dict[type[Event], tuple[Occasion, Severity]] = {
    events.ReviewNeeded: ("review_needed", "warning"),
    events.RenameSuspected: ("review_needed", "warning"),
    events.ChangeReopened: ("review_needed", "warning"),
    events.OperationRequested: ("review_needed", "warning"),
    events.ChangeWaiting: ("detected", "info"),
    events.ChangeIgnored: ("ignored", "info"),
    events.ChangeApplied: ("applied", "info"),
    events.ChangeUndone: ("applied", "info"),
    events.ChangeMapped: ("applied", "info"),
    events.Resumed: ("resumed", "info"),
    events.DetectorEnabled: ("resumed", "info"),
}


@dataclass(frozen=True)
class Meaning:
    """Presentation of an event in a message."""

    occasions: frozenset[Occasion]
    severity: Severity
    urgent: bool = False
    """Neither merged with what comes later nor kept for a digest or the morning."""


def meaning(event: Event) -> Meaning | None:
    """Return the occasion of an event; None if nobody is notified. A failed table is told with its run, a connection
    that stayed paused was told of when it stopped."""
    match event:
        case events.Paused() | events.DetectorDisabled():
            return Meaning(frozenset({"paused"}), "error", True)
        case events.DetectionEnded(status="failed") | events.JobDead():
            return Meaning(frozenset({"failed"}), "error", True)
        case events.RunEnded(status="failed" | "partial"):
            return Meaning(frozenset({"failed"}), "error", True)
        case events.RunEnded(status="done", kind="sync"):
            return Meaning(frozenset({"done"}), "info", True)
        case events.FreshnessLate() | events.FreshnessRecovered():
            late = isinstance(event, events.FreshnessLate)
            return Meaning(frozenset({"late"}), "warning" if late else "info", True)
        case events.RolloutMoved() if event.status in _ROLLOUTS:
            return Meaning(frozenset({"rollout"}), _ROLLOUTS[event.status], True)
        case events.ChangeDetected() if event.kind.startswith(_BREAKING):
            return Meaning(frozenset({"detected", "breaking"}), "error")
        case events.ChangeDetected():
            return Meaning(frozenset({"detected"}), "warning" if event.kind.endswith(_GRAVE) else "info")
    if (occasion := _CHANGES.get(type(event))) is None:
        return None
    return Meaning(frozenset({occasion[0]}), occasion[1])


__all__ = ["ALWAYS", "DETECTED", "SCHEMA", "SEVERITIES", "Meaning", "Severity", "meaning"]
