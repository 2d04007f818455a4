"""What an event is to those who may be told of it."""

from __future__ import annotations

from dataclasses import dataclass

from instep import events
from instep.events import Event
from instep.project.sections.channels import Occasion, Severity

__all__ = ["ALWAYS", "DETECTED", "SCHEMA", "SEVERITIES", "Meaning", "Severity", "meaning"]

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")
SCHEMA: frozenset[Occasion] = frozenset({"detected", "review_needed", "breaking", "ignored", "applied"})
"""Those that are about schema changes."""
ALWAYS: frozenset[Occasion] = frozenset({"paused", "review_needed"})
"""What every channel is told of connections for which nothing is said."""
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
    events.ActRequested: ("review_needed", "warning"),
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
    """`urgent`: neither merged with what comes later nor kept for a digest or the morning."""

    occasions: frozenset[Occasion]
    severity: Severity
    urgent: bool = False


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
        case events.RolloutMoved() if event.status in _ROLLOUTS:
            return Meaning(frozenset({"rollout"}), _ROLLOUTS[event.status], True)
        case events.ChangeDetected() if event.kind.startswith(_BREAKING):
            return Meaning(frozenset({"detected", "breaking"}), "error")
        case events.ChangeDetected():
            return Meaning(frozenset({"detected"}), "warning" if event.kind.endswith(_GRAVE) else "info")
    if (found := _CHANGES.get(type(event))) is None:
        return None
    return Meaning(frozenset({found[0]}), found[1])
