"""Routes from events to channels by the project file, evaluated in the transaction of the event."""

from __future__ import annotations

from collections.abc import Iterator, Set
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from instep.errors import InstepError, ProjectError
from instep.events import Event, RolloutMoved
from instep.notify.lines import ALWAYS, DETECTED, SCHEMA, SEVERITIES, Meaning, meaning
from instep.project.project import Project
from instep.project.sections.channels import Notify, Occasion, Route
from instep.project.sections.models import ConnectionSection
from instep.project.sections.schedule import minutes
from instep.schema.catalog.globs import fits_glob
from instep.schema.selection.selection import Pattern
from instep.store.history.outbox import Notice
from instep.store.store import Store

DAILY = "08:00"


def due(at: datetime, *, digest: str = "", quiet: str = "", timezone: str = "UTC", urgent: bool = False) -> datetime:
    """Return the moment from which on a notice of `at` may be told, in UTC: the next digest, or the end of the quiet
    hours. What is urgent is told at once."""
    if urgent:
        return at
    zone = ZoneInfo(timezone)
    local = at.astimezone(zone)
    if digest:
        local = _next(local, time.fromisoformat(DAILY if digest == "daily" else digest), zone)
    return _after_quiet(local, quiet, zone).astimezone(UTC)


def _next(local: datetime, clock: time, zone: ZoneInfo) -> datetime:
    """Return the first moment after `local` at which a clock on the wall shows that time."""
    for days in (0, 1, 2):
        moment = datetime.combine(local.date() + timedelta(days=days), clock, zone)
        if moment.astimezone(UTC) > local.astimezone(UTC):
            return moment
    raise AssertionError("a day has 23 to 25 hours")


def _after_quiet(local: datetime, quiet: str, zone: ZoneInfo) -> datetime:
    window = minutes(quiet)
    if window is None:
        return local
    begin, end = window
    now = local.hour * 60 + local.minute
    within = begin <= now < end if begin < end else now >= begin or now < end
    return _next(local, time(end // 60, end % 60), zone) if within else local


class Routes:
    """The routing of a project: to be set as that of its store's outbox."""

    def __init__(self, project: Project, store: Store) -> None:
        self._project, self._store = project, store

    def __call__(self, event: Event, at: datetime) -> list[Notice]:
        """Return the notices of an event that happens at a time, one a channel; none of a connection that is
        unknown."""
        means = meaning(event)
        if means is None or not self._project.model.channels:
            return []
        if isinstance(event, RolloutMoved):
            return [
                self._notice(name, "rollout", event, means, at) for name in self._general_channels("rollout", means)
            ]
        try:
            connection = self._project.connection(event.connection)
        except ProjectError:
            return []
        words: dict[str, Occasion] = {}  # by channel: what it has asked for, the gravest word of several
        for route in list(self._routes(event.connection, connection)) or self._default(event.connection):
            occasions = means.occasions & _occasions(route, connection)
            if occasions and self._fits(route, event, means):
                words.setdefault(route.to, "breaking" if "breaking" in occasions else min(occasions))
        return [self._notice(name, word, event, means, at) for name, word in words.items()]

    def _general_channels(self, word: Occasion, means: Meaning) -> Iterator[str]:
        """Yield the channels of routes for all connections that ask for what is about none of them."""
        routes = (r for r in self._project.model.notify if not (r.tags or r.groups or r.connections) and word in r.on)
        grave = SEVERITIES.index(means.severity)
        yield from dict.fromkeys(r.to for r in routes if SEVERITIES.index(r.severity) <= grave)

    def _notice(self, name: str, word: Occasion, event: Event, means: Meaning, at: datetime) -> Notice:
        settings = self._project.model.channels[name]
        when = due(at, digest=settings.digest, quiet=settings.quiet, timezone=settings.timezone, urgent=means.urgent)
        batch = "" if settings.digest and not means.urgent else event.connection
        return Notice(name, batch, word, means.severity, means.urgent, when)

    def _default(self, connection: str) -> list[Notify]:
        """Return the routes of a connection for which the project has none: to every channel."""
        on = tuple(DETECTED if self._project.detector(connection) else ALWAYS)
        return [Notify(on=on, to=name) for name in self._project.model.channels]

    def _routes(self, name: str, connection: ConnectionSection) -> Iterator[Notify]:
        yield from connection.notify
        group = self._project.destination_of(name)
        for route in self._project.model.notify:
            if _covers(route, name, connection, group):
                yield route

    def _fits(self, route: Notify, event: Event, means: Meaning) -> bool:
        if SEVERITIES.index(means.severity) < SEVERITIES.index(route.severity):
            return False
        if not route.kinds or not means.occasions & SCHEMA:
            return True
        kind = self._kind(event)
        return any(fits_glob(kind, glob) for glob in route.kinds)

    def _kind(self, event: Event) -> str:
        """Return the kind of change that an event is about."""
        if kind := getattr(event, "kind", ""):
            return str(kind)
        try:
            return self._store.reviews.get(getattr(event, "change", "")).kind
        except InstepError:
            return "column.renamed"  # a person named it: nothing was detected


def _occasions(route: Notify, connection: ConnectionSection) -> Set[Occasion]:
    """Return the occasions of a route; a connection's switch adds all occasions of schema changes, or removes them."""
    if connection.notify_schema_changes is None:
        return frozenset(route.on)
    return frozenset(route.on) | SCHEMA if connection.notify_schema_changes else frozenset(route.on) - SCHEMA


def _covers(route: Route, name: str, connection: ConnectionSection, group: str) -> bool:
    if route.tags and not set(route.tags) & set(connection.tags):
        return False
    if route.groups and group not in route.groups:
        return False
    return not route.connections or any(Pattern(text).matches(name) for text in route.connections)
