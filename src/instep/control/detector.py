"""Scheduled detection of a connection: requests, detections after an error, disabling after failures, and status.

A detection is a job of the queue. At most one of a connection runs, at most one of (connection, source) waits. When
detection is switched off what runs goes on to its end, and switched on again there is still at most one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from instep.errors import Blocked, InstepError
from instep.events import DetectionEnded, DetectorDisabled, DetectorEnabled, Paused
from instep.model import Job, Review
from instep.operations.values import JobStatus
from instep.project.project import Project
from instep.project.sections.detector import SHORT, AppOptions, ColumnOptions
from instep.schema.policy.policy import OPTION
from instep.store.catalogs.discoveries import CachedDiscovery
from instep.store.store import Store
from instep.store.work.jobs import SCHEDULED, WAITED_FOR
from instep.store.work.schedules import SourceInspection
from instep.suggest import did_you_mean

ON_ERROR_EVERY = timedelta(minutes=10)
SHARED = timedelta(seconds=60)
"""The time that a detection at a source serves the scheduled detections of all its connections."""
DELETED = ("schema.removed", "table.removed", "column.removed")
DEFAULT_FREQUENCY = 3600
State = Literal["processing", "queued", "scheduled", "off", "internal_disabled"]


def partition(connection: str) -> str:
    """Return the concurrency key: at most one detection per key runs at a time."""
    return f"dsc_{connection}"


def constraint(connection: str, source: str) -> str:
    """Return the queue key: at most one detection per key is queued."""
    return f"{partition(connection)}_{source}"


@dataclass(frozen=True)
class RequestedDetection:
    """The job of a requested detection."""

    job: Job
    new: bool
    """The job was made for this; else it is the one that runs or waits already."""


@dataclass(frozen=True)
class DetectorStatus:
    """Status of a connection's scheduled detector."""

    connection: str
    state: State
    """Processing: a detection runs."""
    enabled: bool
    frequency: int
    internal_disabled: bool = False
    """True if it has switched itself off for `reason`."""
    reason: str = ""
    job: Job | None = None
    """Job that runs or waits."""
    last: Job | None = None
    """Job that ended last."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the source as a whole."""
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options of tables by pattern, as far as they are set."""


def enabled(project: Project, connection: str) -> bool:
    options = project.detector(connection)
    return options is None or options.enabled


def options_of(project: Project, connection: str) -> dict[str, Any]:
    """Return the options of a detection's job. Where a scheduled detector has options it also propagates what policy
    accepts; elsewhere the next sync does."""
    return {"apply": project.detector(connection) is not None}


def ask(store: Store, project: Project, connection: str, who: str, *, priority: int = WAITED_FOR) -> RequestedDetection:
    """Return a detection now. Where one runs or waits already that one is answered: never a second."""
    with store.transaction():
        if running := store.jobs.running(connection, "detect"):
            return RequestedDetection(running, False)
        options = {**options_of(project, connection), "asked": True}
        key = constraint(connection, project.source_of(connection))
        job, new = store.jobs.enqueue(
            connection,
            "detect",
            key=key,
            options=options,
            priority=priority,
            why="requested",
            who=who,
            source=project.source_of(connection),
        )
        return RequestedDetection(job, new)


def on_error(store: Store, project: Project, connection: str) -> RequestedDetection | None:
    """Return a detection because a sync has failed: the schema may have moved. None if that is switched off, if the
    detector is, or if an error has set one off within the last ten minutes."""
    options = project.detector(connection)
    switched_on = options is None or bool(options.app("create_detect_schema_changes_ping_on_each_error"))
    with store.transaction():
        if not (switched_on and enabled(project, connection)) or store.detectors.get(connection).disabled:
            return None
        if not store.detectors.may_trigger(connection, ON_ERROR_EVERY):
            return None
        if running := store.jobs.running(connection, "detect"):
            return RequestedDetection(running, False)
        trigger_options = {**options_of(project, connection), "triggered_by_error": True}
        source = project.source_of(connection)
        key = constraint(connection, source)
        job = store.jobs.enqueue(
            connection, "detect", key=key, options=trigger_options, why="a sync has failed", source=source
        )
        return RequestedDetection(*job)


def idle(store: Store, project: Project, job: Job) -> str:
    """Return why this detection ends without looking, "" if it looks: it was made before the detector was switched off.
    What a person asks for is always done."""
    if job.priority > SCHEDULED or job.options.get("asked"):
        return ""
    if not enabled(project, job.connection):
        return "detection is switched off"
    return store.detectors.get(job.connection).disabled


def shared(store: Store, project: Project, job: Job) -> CachedDiscovery | None:
    """Return what another connection of the same source has detected, if that serves this detection, too: it began
    after this one was requested, or, for a scheduled one, within the last minute. None if this one has to detect
    itself, as one that a person requests does."""
    if job.priority > SCHEDULED or job.options.get("asked"):
        return None
    source = project.source_of(job.connection)
    look = store.inspections.last(source, project.source_hash(source))
    if look is None or not look.fingerprint or look.connection == job.connection:
        return None
    by_error = job.options.get("triggered_by_error")
    if look.begun < (job.created if by_error else min(job.created, store.inspections.now() - SHARED)):
        return None
    known = store.discoveries.get(look.connection)
    return known if known is not None and known.fingerprint == look.fingerprint else None


def share(store: Store, project: Project, connection: str, begun: datetime) -> None:
    """Share the result of a recorded detection that began at `begun` with others."""
    source = project.source_of(connection)
    if project.model.sources[source].type == "files":
        return  # which files are new is remembered while they are listed
    seen = store.discoveries.fingerprint(connection)
    store.inspections.note(SourceInspection(source, project.source_hash(source), connection, seen, begun))


def disable_after_deletion(store: Store, job: Job, counts: Mapping[str, Mapping[str, int]]) -> None:
    """Disable the detector if its detection found a deletion that no option decides."""
    with store.transaction():
        store.events.add(_ended(job, "done", counts))
        check_deleted(store, job.connection)


def check_deleted(store: Store, connection: str) -> None:
    """Switch the detector off if something deleted that is not let go by itself has paused the connection."""
    if change := deleted(store, connection):
        switch_off(store, connection, f"{change.summary} ({change.id})", change.id)


def failed(store: Store, job: Job, error: str) -> None:
    """Record a detection that failed for good; the next one may run."""
    store.events.add(_ended(job, "failed", {}, error))


def propagation_failed(store: Store, job: Job, error: str) -> None:
    """Record a propagation that failed for good: pause the connection and disable the detector."""
    reason = f"propagating schema changes has failed: {error.splitlines()[0] if error else 'unknown error'}"
    with store.transaction():
        if store.pauses.pause(job.connection, reason):
            store.events.add(Paused(job.connection, reason))
        switch_off(store, job.connection, reason)


def _ended(job: Job, status: JobStatus, counts: Mapping[str, Mapping[str, int]], error: str = "") -> DetectionEnded:
    by_error = bool(job.options.get("triggered_by_error"))
    taken = (datetime.now(UTC) - job.started).total_seconds() if job.started else 0.0
    return DetectionEnded(job.connection, job.id, status, counts, by_error, error, round(max(0.0, taken), 3))


def deleted(store: Store, connection: str) -> Review | None:
    """Return the change of an object deleted at the source that has paused the connection by an option of the
    detector."""
    for pause in store.pauses.active(connection):
        if pause.table is None and pause.change:
            review = store.reviews.get(pause.change)
            if review.rule.startswith(OPTION) and review.kind in DELETED and review.status == "open":
                return review
    return None


def switch_off(store: Store, connection: str, reason: str, change: str = "") -> None:
    """Switch the detector off until a person switches it on again."""
    with store.transaction():
        if store.detectors.disable(connection, reason):
            store.events.add(DetectorDisabled(connection, reason, change))


def switch_on(store: Store, connection: str, who: str) -> bool:
    """Enable the detector again for a person who has resolved the problem; False if it was on. Raises Blocked while the
    connection is still paused."""
    state = store.detectors.get(connection)
    if not state.disabled:
        return False
    if pause := store.pauses.connection(connection):
        raise Blocked(
            f"connection {connection}: detection is off and the connection is paused: {pause.reason}",
            hint=f"decide it, then `instep resume {connection}`, then switch detection on again",
        )
    with store.transaction():
        store.detectors.enable(connection)
        store.events.add(DetectorEnabled(connection, who))
    return True


def detector_status(store: Store, project: Project, connection: str) -> DetectorStatus:
    """Return how the detector of a connection stands now."""
    options, state = project.detector(connection), store.detectors.get(connection)
    on = enabled(project, connection)
    running, queued = store.jobs.running(connection, "detect"), store.jobs.queued(connection, "detect")
    last = store.jobs.find(connection=connection, kind="detect", status=("done", "failed", "dead"), limit=1)
    return DetectorStatus(
        connection,
        _state(on=on, disabled=bool(state.disabled), running=running is not None, queued=queued is not None),
        on,
        options.frequency if options else DEFAULT_FREQUENCY,
        bool(state.disabled),
        state.disabled,
        running or queued,
        last[0] if last else None,
        options.source_options() if options else {},
        options.table_options() if options else {},
    )


def _state(*, on: bool, disabled: bool, running: bool, queued: bool) -> State:
    if running:
        return "processing"
    if disabled:
        return "internal_disabled"
    if queued:
        return "queued"
    return "scheduled" if on else "off"


_OF_APP, _OF_TABLE = frozenset(AppOptions.model_fields), frozenset(ColumnOptions.model_fields)


def option(name: str, *, of_table: bool) -> str:
    """Return the long name of an option; InstepError for what is none of a source, or of a table."""
    known = _OF_TABLE if of_table else _OF_APP
    whole = next((long for long, short in SHORT.items() if name in (long, short)), "")
    if whole in known:
        return whole
    if whole:
        hint = "name a table: --table schema.table" if not of_table else "leave --table out"
        raise InstepError(f"{name} is an option of {'a source' if of_table else 'tables'}", hint=hint)
    names = [n for long in known for n in (long, SHORT[long])]
    hint = did_you_mean(name, names, f"one of: {', '.join(sorted(SHORT[n] for n in known))}")
    raise InstepError(f"there is no option {name!r}", hint=hint)


def patch(spec: Mapping[str, Any], options: Mapping[str, Any], table: str = "") -> dict[str, Any]:
    """Return the merge patch (RFC 7396) of a connection's document that sets these options by their long names, of a
    table's pattern or of the source as a whole; None takes one away. An option keeps the name that the document has for
    it."""
    section = "table_options" if table else "app_options"
    there = spec.get(section) or {}
    if table:
        there = there.get(table) or {}
    changed = {SHORT[name] if SHORT[name] in there else name: value for name, value in options.items()}
    return {section: {table: changed} if table else changed}
