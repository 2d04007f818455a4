"""The metrics of `/metrics` in Prometheus' text format, version 0.0.4, and the totals of events, which outlive them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from instep import __version__
from instep.model import Review
from instep.schema.changes.version import BREAKING
from instep.store.engine.migrate import HEAD
from instep.store.history.recorded_event import LoggedEvent
from instep.store.history.totals import Counted, Total, total
from instep.store.server.gauges import Gauges
from instep.store.store import Store

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Family:
    """A metric: `samples` are (what follows the name, labels, value)."""

    name: str
    kind: Literal["counter", "gauge", "summary"]
    help: str
    samples: Sequence[tuple[str, Labels, float]] = ()


def exposed(families: Iterable[Family]) -> str:
    return "".join(line + "\n" for family in families for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {family.name} {text}"
    yield f"# TYPE {family.name} {family.kind}"
    for suffix, labels, value in family.samples:
        yield f"{family.name}{suffix}{_labels(labels)} {_number(value)}"


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


COUNTERS = (
    ("instep_detections_total", "detections", "Detections by workers, by how they ended."),
    ("instep_changes_total", "changes", "Schema changes, by the decision when they were first seen."),
    ("instep_rows_total", "rows", "Rows of loads; invalid_values: values that were quarantined."),
    ("instep_runs_total", "runs", "Runs that have ended."),
    ("instep_table_failures_total", "table_failures", "Tables that a run could not load."),
    ("instep_dead_jobs_total", "dead_jobs", "Jobs that have used up their attempts."),
    ("instep_notifications_total", "notifications", "Deliveries that have ended."),
)
"""(metric, total, help)."""


def metrics(store: Store) -> str:
    """Return all of them in the text format; events that came since the last time are counted first."""
    fold(store)
    return exposed(families(store.totals.all(), store.gauges.now()))


def families(totals: Mapping[Total, float], now: Gauges) -> Iterator[Family]:
    yield Family(
        "instep_info",
        "gauge",
        "The version of the server and of its store.",
        [("", (("store", HEAD), ("version", __version__)), 1)],
    )
    of: dict[str, list[tuple[str, Labels, float]]] = {}
    for (name, labels), value in sorted(totals.items()):
        of.setdefault(name, []).append(("", labels, value))
    for metric, name, help in COUNTERS:
        yield Family(metric, "counter", help, _summed(of.get(name, []), now.notifications, name))
    durations = [(f"_{part}", (), totals.get((f"detection_seconds_{part}", ()), 0.0)) for part in ("sum", "count")]
    yield Family("instep_detection_duration_seconds", "summary", "Seconds that detections by workers took.", durations)
    lag = [("", labels, max(0.0, now.at.timestamp() - value)) for _, labels, value in of.get("last_sync", [])]
    yield Family("instep_sync_lag_seconds", "gauge", "Seconds since the last successful sync.", lag)
    yield from _gauges(now)


def _summed(
    counted: list[tuple[str, Labels, float]], live: Mapping[Labels, int], name: str
) -> list[tuple[str, Labels, float]]:
    """Add notifications still on record to the total: deliveries are counted when they are purged."""
    if name != "notifications":
        return counted
    values = {labels: value for _, labels, value in counted}
    return [("", labels, values.get(labels, 0) + live.get(labels, 0)) for labels in sorted({*values, *live})]


def _gauges(now: Gauges) -> Iterator[Family]:
    def by(label: str, counts: Mapping[str, int]) -> list[tuple[str, Labels, float]]:
        return [("", ((label, value),), count) for value, count in sorted(counts.items())]

    def single(value: float) -> list[tuple[str, Labels, float]]:
        return [("", (), value)]

    def since(then: datetime | None) -> float:
        return max(0.0, (now.at - then).total_seconds()) if then else 0.0

    yield Family("instep_changes_waiting", "gauge", "Changes that wait for a person.", single(now.waiting))
    yield Family(
        "instep_oldest_waiting_seconds",
        "gauge",
        "Seconds that the oldest of them has waited.",
        single(since(now.oldest_waiting)),
    )
    yield Family("instep_paused_connections", "gauge", "Connections that are paused.", single(now.paused))
    yield Family(
        "instep_late_tables", "gauge", "Tables that are older than their freshness target.", by("connection", now.late)
    )
    yield Family("instep_queue_depth", "gauge", "Queued jobs that are due.", by("kind", now.queued))
    yield Family(
        "instep_queue_oldest_seconds",
        "gauge",
        "Seconds since the oldest of them became due.",
        single(since(now.oldest_due)),
    )
    yield Family("instep_jobs_running", "gauge", "Jobs that workers are running.", by("kind", now.running))
    yield Family(
        "instep_jobs_stuck", "gauge", "Jobs whose lease has ended and which no worker took over.", single(now.stuck)
    )
    yield Family("instep_workers", "gauge", "Live workers that claim jobs.", single(now.workers))
    yield Family(
        "instep_notices_waiting", "gauge", "Notifications that are not delivered yet.", by("channel", now.notices)
    )


NAMES = frozenset(
    f"{family.name}{suffix}"
    for family in families({}, Gauges())
    for suffix in (("_sum", "_count") if family.kind == "summary" else ("",))
)
"""Every metric that there is."""


SYNCS = ("sync", "backfill")
OPERATIONS = ("read", "inserted", "updated", "deleted", "invalid_values")
_More = Callable[[LoggedEvent], Mapping[Total, float]]


def fold(store: Store) -> int:
    """Count the events that came since the last time."""
    return store.totals.fold(lambda events: counted(events, _reviews(store, events)))


def counted(events: Sequence[LoggedEvent], reviews: Mapping[str, Review]) -> Counted:
    """Return the totals with these events; `reviews` has the changes that the events name, by id."""
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
