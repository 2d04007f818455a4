"""Scheduled work of each connection: brought in step with its settings, and put into the queue when it is due."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from instep.control.detector import DEFAULT_FREQUENCY, constraint, enabled, options_of
from instep.control.freshness import FreshnessWatch
from instep.errors import InstepError, ProjectError
from instep.model import JobKind, Scheduled
from instep.operations.values import ObjectKind
from instep.project.project import Project
from instep.project.sections.models import ConnectionSection
from instep.project.sections.schedule import interval
from instep.store.store import Store

SHORTEST, LONGEST = 60, 86_400
CRON_SPREAD = 20.0
"""Seconds over which cron lines that name the same minute are spread."""
_EVERY = re.compile(r"every (\d{1,6})")


def every(seconds: int) -> str:
    """Return the spec of an interval; ProjectError if it is shorter than a minute or longer than a day."""
    if not SHORTEST <= seconds <= LONGEST:
        raise ProjectError(
            f"a schedule of every {seconds} s is not possible", hint="use 1 minute to 1 day, or a cron line"
        )
    return f"every {seconds}"


def next_fire(spec: str, after: datetime, name: str, timezone: str = "UTC") -> datetime | None:
    """Return the first fire of `every <seconds>` or of a cron line later than `after`; None if it never comes.

    `name` decides when within an interval, and by how many seconds after the minute of a cron line: thousands of
    one schedule do not come at once. Raises ProjectError for what is neither.
    """
    if match := _EVERY.fullmatch(spec):
        return _interval(int(match[1]), after, name)
    return _cron(spec, after - timedelta(seconds=spread(name, CRON_SPREAD)), name, timezone)


def spread(name: str, seconds: float) -> float:
    """Return a delay between 0 and `seconds`, always the same for a name."""
    return seconds * int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64


def _interval(seconds: int, after: datetime, name: str) -> datetime:
    """Return the next time on a grid from the epoch, shifted by the name: a restart shifts none."""
    offset = int(spread(name, seconds))
    passed = (int(after.timestamp()) - offset) // seconds
    return datetime.fromtimestamp((passed + 1) * seconds + offset, UTC)


def _cron(line: str, after: datetime, name: str, timezone: str) -> datetime | None:
    from cronsim import CronSim, CronSimError

    try:
        fires = CronSim(line, after.astimezone(ZoneInfo(timezone)))
    except (CronSimError, KeyError, OSError, ValueError) as error:
        raise ProjectError(
            f"no schedule: {line!r} in time zone {timezone!r} ({error})",
            hint="write five fields (minute hour day month weekday) and a time zone such as Europe/Berlin",
        ) from None
    delay = timedelta(seconds=spread(name, CRON_SPREAD))
    # Within the hour that comes twice it answers times of the first one, which may be over.
    due = next((fire for fire in fires if fire.astimezone(UTC) > after), None)
    return due.astimezone(UTC) + delay if due else None


class Timetable:
    """Follows the settings of all connections, of the project file and of what a server keeps: each writing of one is
    heard of, and only what it touches is looked at again."""

    def __init__(self) -> None:
        self._project: Project | None = None
        self._mark: tuple[object, ...] = ()
        self._seen: Mapping[tuple[ObjectKind, str], tuple[str, int]] = {}
        self.freshness = FreshnessWatch()

    def follow(self, store: Store, project: Project, now: datetime) -> list[str]:
        """Reconcile the schedules if settings have changed; return the problems of the connections."""
        mark = store.objects.mark()
        if project is self._project and mark == self._mark:
            return []
        seen = store.objects.versions("connection", "source")
        names = _touched(store, self._seen, seen) if project is self._project else None
        wrong = reconcile(store, project, now, names, self.freshness.follow)
        self._project, self._mark, self._seen = project, mark, seen
        return wrong


def _touched(store: Store, before: Mapping[tuple[ObjectKind, str], object], now: Mapping[Any, object]) -> set[str]:
    """Return the connections that were written or deleted, and those of sources that were."""
    touched = {one for one in before.keys() | now.keys() if before.get(one) != now.get(one)}
    names = {name for kind, name in touched if kind == "connection"}
    for kind, name in touched:
        if kind == "source":
            names |= {user for of, user in store.objects.users("source", name) if of == "connection"}
    return names


def schedules_of(project: Project, connection: str) -> tuple[Scheduled, ...]:
    """Return the schedules that a connection's settings ask for, without times."""
    schedule = project.connection(connection).schedule
    sync = (Scheduled(connection, "sync", _spec(schedule.sync), schedule.timezone),) if schedule.sync else ()
    if not enabled(project, connection):
        return sync
    options = project.detector(connection)
    spec = _spec(schedule.detect) or every(options.frequency if options else DEFAULT_FREQUENCY)
    source = project.source_of(connection)
    given, key = options_of(project, connection), constraint(connection, source)
    return (*sync, Scheduled(connection, "detect", spec, schedule.timezone, key, given, source=source))


def _spec(text: str) -> str:
    seconds = interval(text)
    return every(seconds) if seconds else text


def reconcile(
    store: Store,
    project: Project,
    now: datetime,
    names: Iterable[str] | None = None,
    follow: Callable[[str, ConnectionSection | None], None] = lambda name, section: None,
) -> list[str]:
    """Bring the schedules of some connections (None: of all, and of those that are gone) in step with their
    settings; answers what is wrong with any. One that asks for the same as before keeps its next time.

    `follow` is given the settings of each; None for one that is gone or cannot be read.
    """
    known = {(s.connection, s.kind): s for s in store.schedules.all()}
    requested = list(project.connections if names is None else names)
    here, wrong = set(project.connections), []
    schedules: dict[tuple[str, JobKind], Scheduled] = {}
    for name in requested:
        section = None
        try:
            if name in here:
                own_project = project.of(name)
                section = own_project.connection(name)
                schedules |= {(s.connection, s.kind): _timed(s, now) for s in schedules_of(own_project, name)}
        except InstepError as error:
            own = f"connection {name}: "
            wrong.append(own + error.message.removeprefix(own))
        follow(name, section)
    mine = known.keys() if names is None else {key for key in known if key[0] in requested}
    with store.transaction():
        store.schedules.put(*(one for key, one in schedules.items() if not _same(one, known.get(key))))
        store.schedules.drop(mine - schedules.keys())
    return wrong


def upcoming(store: Store, project: Project, connection: str, now: datetime) -> tuple[Scheduled, ...]:
    """Return the schedules that a connection's settings ask for with their next times; a worker that has not taken
    the settings over yet will fire at the same ones. For settings that cannot be read: those on record."""
    known = {one.kind: one for one in store.schedules.all(connection)}
    try:
        scheduled = [_timed(schedule, now) for schedule in schedules_of(project.of(connection), connection)]
    except InstepError:
        return tuple(known.values())
    return tuple(known[one.kind] if _same(one, known.get(one.kind)) else one for one in scheduled)


def _timed(schedule: Scheduled, now: datetime) -> Scheduled:
    """Return the schedule with its next time; detections of one source come at the same time, so that one look
    serves them all."""
    name = schedule.source if schedule.kind == "detect" else schedule.connection
    return replace(schedule, next_due=next_fire(schedule.spec, now, f"{name}/{schedule.kind}", schedule.timezone))


def _same(schedule: Scheduled, known: Scheduled | None) -> bool:
    return known is not None and replace(schedule, next_due=None) == replace(known, next_due=None, last_due=None)


def fire(store: Store, now: datetime, limit: int = 100) -> int:
    """Queue what is due, up to `limit` (others want to write, too), once per schedule however often it was due
    meanwhile. Return how many were queued."""
    due = store.schedules.due(now, limit)
    if not due:
        return 0
    with store.transaction():
        return sum(_fire(store, one, now) for one in due)


def _fire(store: Store, schedule: Scheduled, now: datetime) -> bool:
    if not store.schedules.advance(schedule, _timed(schedule, now).next_due):
        return False
    if schedule.kind == "detect" and store.detectors.get(schedule.connection).disabled:
        return False
    _, new = store.jobs.enqueue(
        schedule.connection,
        schedule.kind,
        key=schedule.key,
        options=schedule.options,
        why="schedule",
        source=schedule.source,
    )
    return new
