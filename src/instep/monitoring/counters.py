"""What events count: the totals that `/metrics` shows, and that outlive the events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from instep.model import Review
from instep.schema.changes.version import BREAKING
from instep.store.history.recorded_event import LoggedEvent
from instep.store.history.totals import Counted, Total, total
from instep.store.store import Store

SYNCS = ("sync", "backfill")
OPERATIONS = ("read", "inserted", "updated", "deleted", "invalid_values")
_More = Callable[[LoggedEvent], Mapping[Total, float]]


def fold(store: Store) -> int:
    """Count the events that came since the last time."""
    return store.totals.fold(lambda events: counted(events, _reviews(store, events)))


def counted(events: Sequence[LoggedEvent], reviews: Mapping[str, Review]) -> Counted:
    """`reviews` of the changes that the events tell of, by id."""
    more: Counter[Total] = Counter()
    latest: dict[Total, float] = {}
    for event in events:
        if event.type == "change.detected":
            more[_change(event, reviews.get(event.data["change"]))] += 1
        for of, value in _OF.get(event.type, _nothing)(event).items():
            more[of] += value  # type: ignore[assignment]
        if event.type == "run.ended" and event.data["kind"] in SYNCS and event.data["status"] == "done":
            latest[total("last_sync", connection=event.connection)] = event.at.timestamp()
    return Counted(more, latest)


def _reviews(store: Store, events: Sequence[LoggedEvent]) -> dict[str, Review]:
    ids = {event.data["change"] for event in events if event.type == "change.detected"}
    return {review.id: review for review in store.reviews.of_ids(ids)} if ids else {}


def _change(event: LoggedEvent, review: Review | None) -> Total:
    kind = str(event.data["kind"])
    breaking = "true" if kind in BREAKING else "false"
    return total("changes", kind=kind, breaking=breaking, decision=review.action if review else "unknown")


def _nothing(_event: LoggedEvent) -> Mapping[Total, float]:
    return {}


def _run(event: LoggedEvent) -> Mapping[Total, float]:
    return {total("runs", kind=event.data["kind"], status=event.data["status"]): 1}


def _rows(event: LoggedEvent) -> Mapping[Total, float]:
    name = event.connection
    return {total("rows", connection=name, op=op): event.data[op] for op in OPERATIONS if event.data.get(op)}


def _detection(event: LoggedEvent) -> Mapping[Total, float]:
    done = {total("detections", connection=event.connection, result=event.data["status"]): 1.0}
    if event.data["status"] == "done":
        done |= {total("detection_seconds_sum"): event.data.get("seconds", 0.0), total("detection_seconds_count"): 1.0}
    return done


def _table_failed(event: LoggedEvent) -> Mapping[Total, float]:
    return {total("table_failures", connection=event.connection): 1}


def _dead(event: LoggedEvent) -> Mapping[Total, float]:
    return {total("dead_jobs", kind=event.data["kind"]): 1}


_OF: Mapping[str, _More] = {
    "run.ended": _run,
    "table.loaded": _rows,
    "table.failed": _table_failed,
    "detection.finished": _detection,
    "job.dead": _dead,
}
