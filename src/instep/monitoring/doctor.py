"""Findings about this machine, this project and its store, each with the next step."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from instep.errors import InstepError
from instep.model import Check

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.project.sections.models import DestinationSection
    from instep.store.store import Store

LEAST_FREE = 1.0
"""GB that staging should have at hand."""
LATE = timedelta(minutes=30)
SKEWED = 5.0
"""Seconds by which a database's clock may differ."""
EXTRAS = {
    "spark": "pyspark",
    "lineage": "sqlglot",
    "server": "fastapi",
    "mysql": "pymysql",
    "apprise": "apprise",
    "otel": "opentelemetry-sdk",
}


@dataclass(frozen=True)
class Finding:
    """A finding of `instep doctor`."""

    name: str
    state: Literal["ok", "warn", "bad"]
    """Warn is worth a look, bad keeps something from working."""
    detail: str
    hint: str = ""

    @property
    def ok(self) -> bool:
        return self.state != "bad"


def _of(check: Check) -> Finding:
    return Finding(check.name, "ok" if check.ok else "bad" if check.needed else "warn", check.detail, check.hint)


def machine(folder: Path, engine: str) -> Iterator[Finding]:
    """Yield Python, packages, what `engine` (spark or local) needs, and room on the disk."""
    python = "ok" if sys.version_info >= (3, 11) else "bad"
    yield Finding("Python", python, sys.version.split()[0], "install Python 3.11 or newer")  # type: ignore[arg-type]
    missing = [extra for extra, package in EXTRAS.items() if not _installed(package)]
    extras = f"without the extras {', '.join(missing)}" if missing else "with all extras"
    yield Finding("packages", "ok", extras, "pip install 'instep[NAME]' installs an extra")
    if engine != "local" and not _installed("pyspark"):
        hint = "pip install 'instep[spark]', or write `engine: local` into instep.yml"
        yield Finding("Spark", "bad", "pyspark is not installed", hint)
    for name, look in (("Java", _java), ("jars", _jars)):
        unneeded = Finding(name, "ok", "not needed: `engine: local` reads rows without Spark")
        yield unneeded if engine == "local" else _tried(name, look)
    yield disk("disk", folder)


def _installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _java() -> str:
    from instep.spark.java import find_java

    java = find_java()
    return f"{java.version} ({java.path})"


def _jars() -> str:
    from instep.spark.jars import ensure

    return f"{len(ensure())} present and verified"


def _tried(name: str, probe: Callable[[], str]) -> Finding:
    try:
        return Finding(name, "ok", probe())
    except InstepError as error:
        return Finding(name, "bad", error.message, error.hint)


def disk(name: str, folder: Path) -> Finding:
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(existing).free / 2**30
    state: Literal["ok", "warn"] = "ok" if free > LEAST_FREE else "warn"
    return Finding(name, state, f"{free:.1f} GB free in {folder}", "free some space, or move staging elsewhere")


def project(app: App) -> Iterator[Finding]:
    """Yield the file, secrets that it refers to, and the store with its queue."""
    names = app.project.selected()
    yield Finding("project", "ok", f"{app.project.file}, {len(names)} connection(s)")
    for name in app.project.model.sources:
        yield _tried(f"settings of source {name}", lambda name=name: _settings_text(app.project.source(name)))  # type: ignore[misc]
    for name in app.project.model.destinations:
        look = lambda name=name: _settings_text(app.project.destination(name))  # noqa: E731
        yield _tried(f"settings of destination {name}", look)
        for place in _places(app.project.destination(name)):
            yield disk(f"staging of {name}", place)
    try:
        if app.store_is_read_only:
            file = app.project.store_url().partition(":///")[2]
            note = f"{file} may not be written: nothing can be synced or decided from here"
            yield Finding("store's folder", "warn", note, "run instep as a user who may write there")
        yield from stored(app.store)
    except InstepError as error:
        yield Finding("store", "bad", error.message, error.hint)


def _settings_text(settings: object) -> str:
    return "every reference has a value"


def _places(section: DestinationSection) -> Iterator[Path]:
    """Yield folders of this machine where files are staged."""
    for key in ("staging", "warehouse"):
        value = getattr(section, key, "")
        if value and "://" not in value:
            yield Path(value)
            return


def stored(store: Store) -> Iterator[Finding]:
    """Yield the store's version and size, its keys, its workers and what waits for them."""
    from instep.store.engine.migrate import HEAD

    number, now = store.events.last_number(), store.gauges.now()
    size = f", {store.file.stat().st_size / 2**20:.1f} MB" if store.file else ""
    yield Finding("store", "ok", f"version {HEAD}, event {number}{size}")
    if store.file:
        yield disk("store's disk", store.file.parent)
    lives = [key for key in store.api_keys.page(limit=10_000) if key.lives(now.at)]
    admins = [key for key in lives if key.role == "admin"]
    if lives and not admins:
        yield Finding("API keys", "bad", f"{len(lives)}, none of an admin", "instep keys create NAME --role admin")
    else:
        yield Finding(
            "API keys", "ok", f"{len(lives)} live" if lives else "none; `instep server` creates the first one"
        )
    due = sum(now.queued.values())
    late = now.oldest_due is not None and now.at - now.oldest_due > LATE
    if due and not now.workers:
        yield Finding("workers", "bad", f"none, but {due} jobs are due", "start `instep worker`")
    else:
        yield Finding("workers", "ok", f"{now.workers} live")
    since = f", the oldest for {_age(now.at, now.oldest_due)}" if now.oldest_due else ""
    yield Finding(
        "queue", "warn" if late else "ok", f"{due or 'no'} jobs due{since}", "add lanes: `instep worker --lanes 4`"
    )
    yield Finding(
        "leases",
        "warn" if now.stuck else "ok",
        f"{now.stuck or 'no'} jobs held by dead workers",
        "the next worker that claims a job takes them over",
    )
    dead = store.jobs.counts().get("dead", 0)
    yield Finding("dead jobs", "warn" if dead else "ok", str(dead or "none"), "instep queue list --status dead")
    pending = sum(now.notices.values()) or "none"
    yield Finding(
        "notifications",
        "warn" if store.outbox.closed() else "ok",
        f"{pending} pending"
        + "".join(f"; channel {name} is closed: {why}" for name, why in store.outbox.closed().items()),
        "repair the channel, then run `instep notify open NAME`",
    )


def _age(at: datetime, then: datetime) -> str:
    return str(timedelta(seconds=int((at - then).total_seconds())))


def reached(app: App, connection: str | None = None) -> Iterator[Finding]:
    """Yield a finding for each source and destination: whether it can be reached and may do its work."""
    names = app.project.selected([connection] if connection else [])
    for source in dict.fromkeys(app.project.source_of(name) for name in names):
        yield from _tests(f"source {source}", lambda source=source: app.source(source).test())  # type: ignore[misc]
    for destination in dict.fromkeys(app.project.destination_of(name) for name in names):
        look = lambda destination=destination: app.destination(destination).lifecycle.test()  # noqa: E731
        yield from _tests(f"destination {destination}", look)


def _tests(name: str, probe: Callable[[], list[Check]]) -> Iterator[Finding]:
    try:
        for check in probe():
            finding = _of(check)
            yield Finding(f"{name}: {finding.name}", finding.state, finding.detail, finding.hint)
    except InstepError as error:
        yield Finding(name, "bad", error.message, error.hint)


def clock(store: Store) -> Finding:
    """Return how far the clock of the store's database is from this machine's: leases are compared across machines."""
    apart = store.clock_skew()
    state: Literal["ok", "warn"] = "warn" if apart > SKEWED else "ok"
    return Finding("clock", state, f"{apart:.1f} s apart from the store's database", "let NTP set both clocks")
