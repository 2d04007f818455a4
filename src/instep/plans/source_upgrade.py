"""Upgrade a source's connector: what another version changes, for which connections, and how to roll it back.

The new version is asked beside the one in use; what its schema would do to each connection is planned as a sync would
plan it, and all of that is thrown away.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instep.errors import Blocked, InstepError, ProjectError, StalePlan
from instep.events import SourceUpgraded
from instep.operations.set_up.upgrade_source import UpgradeSourceRequest
from instep.operations.spec import Preview, Work
from instep.plans.downstream import configured, counts, read_models
from instep.schema.planning.explain import explain
from instep.sources.airbyte.program import Pin, metadata_text, newest
from instep.sources.airbyte.requests import DiscoveredStreams, discover, spec
from instep.sources.airbyte.source import AirbyteSource
from instep.sources.airbyte.upgrade import (
    KIND_TITLES,
    UPGRADE_KINDS,
    UpgradeDifference,
    specification_differences,
    stream_differences,
)
from instep.sources.connector.segment import LogLine
from instep.sources.versions import (
    BreakingChange,
    breaking_changes_between,
    parse_breaking_changes,
    read_breaking_changes,
)
from instep.store.catalogs.airbyte_states import rolled_back
from instep.sync.claim import claimed
from instep.sync.context import SyncContext
from instep.sync.detection.version_deadline import resume_upgraded
from instep.sync.operations.impact import report
from instep.sync.schema_changes.evolve import preview
from instep.sync.two_people import two_people

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.store.catalogs.connector_versions import ConnectorUpgrade

LOG = logging.getLogger("instep.connector")
ACT = "source upgrade"
_ABOUT_STATES = "the states stay: the next sync reads on from where the last one ended"


@dataclass(frozen=True)
class ConnectionOutlook:
    """Effect of an upgrade on one connection."""

    connection: str
    plan: tuple[str, ...] = ()
    """Changes of its next sync, as `plan` says them."""
    models: Mapping[str, tuple[str, ...]] | None = None
    """Names of the models behind it by what becomes of them; None where none are known."""
    trouble: str = ""
    """Why that could not be found out."""

    @property
    def lines(self) -> Iterator[str]:
        """Return the text for people."""
        yield f"connection {self.connection}"
        if self.trouble:
            yield f"  cannot be planned: {self.trouble}"
        yield from (f"  {line}" for line in self.plan)
        if self.models is not None:
            yield f"  models: {counts(self.models)}"

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        models = {name: list(broken) for name, broken in (self.models or {}).items()}
        return {"connection": self.connection, "plan": list(self.plan), "models": models, "trouble": self.trouble}


@dataclass(frozen=True)
class SourceUpgrade:
    """An upgrade, or the way back, that can be carried out."""

    source: str
    before: Pin
    after: Pin
    rollback: bool
    announced: tuple[BreakingChange, ...]
    differences: tuple[UpgradeDifference, ...]
    connections: tuple[ConnectionOutlook, ...]
    notes: tuple[str, ...] = ()

    @property
    def blocker(self) -> str:
        """Why it cannot be carried out as the project is; "" if it can."""
        wrong = [d.text for d in self.differences if d.kind == "spec" and d.breaking]
        return "; ".join(wrong) if not self.rollback else ""

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the text for people."""
        return tuple(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"source {self.source}: {self.before} becomes {self.after}"
        yield from self.notes
        if self.blocker:
            yield f"cannot be done yet: the configuration does not fit {self.after}"
        if self.announced:
            yield "Announced by its maker" if not self.rollback else "Announced by its maker, and taken back"
        for announced in self.announced:
            yield f"  {announced.summary}{f' ({announced.guide})' if announced.guide else ''}"
        for kind in UPGRADE_KINDS:
            differences = [d for d in self.differences if d.kind == kind]
            if differences:
                yield KIND_TITLES[kind]
            for d in differences:
                yield f"  {'!' if d.breaking else '~'} {f'{d.stream}: ' if d.stream else ''}{d.text}"
        if not self.differences:
            yield "both versions offer the same streams and take the same configuration"
        for outlook in self.connections:
            yield from outlook.lines

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "source": self.source,
            "before": str(self.before),
            "after": str(self.after),
            "rollback": self.rollback,
            "announced": [
                {
                    "version": change.version,
                    "message": change.message,
                    "deadline": change.deadline.isoformat() if change.deadline else None,
                    "action": change.action,
                    "streams": list(change.streams),
                    "guide": change.guide,
                }
                for change in self.announced
            ],
            "differences": [
                {"kind": d.kind, "stream": d.stream, "text": d.text, "breaking": d.breaking} for d in self.differences
            ],
            "connections": [connection.document() for connection in self.connections],
            "blocked": self.blocker,
        }


class UpgradeSource(Work):
    """The work of the operation `upgrade_source`."""

    def prepare(self, context: SyncContext, request: UpgradeSourceRequest) -> Preview:
        """Compare both versions, and plan what the other one does to each connection; nothing is kept of that."""
        upgrade = _Upgrading(self.app, context, request).upgrade()
        bound = replace(request, to="" if request.rollback else upgrade.after.version)
        detail = {"title": f"{upgrade.before} becomes {upgrade.after}"}
        return Preview(context.name, bound, upgrade.document(), upgrade.lines, detail, upgrade)

    def execute(self, context: SyncContext, preview: Preview, allow: Sequence[str]) -> Mapping[str, Any]:
        """Write the version into instep.yml; each connection's state is remembered, or the remembered one put back."""
        from instep.project.load import changed_text, replace_text

        source_upgrade: SourceUpgrade = preview.prepared
        if source_upgrade.blocker:
            raise Blocked(
                f"source {source_upgrade.source}: its configuration does not fit {source_upgrade.after}: "
                f"{source_upgrade.blocker}",
                hint=f"correct sources.{source_upgrade.source}.configuration in instep.yml, then run the command again",
            )
        path = ("sources", source_upgrade.source, "package")
        what = f"{source_upgrade.source}: {source_upgrade.before} becomes {source_upgrade.after}"
        with two_people(context, ACT, what), ExitStack() as stack:
            contexts = []
            for name in _readers(self.app, source_upgrade.source):
                context_of_reader = replace(self.app.sync_context(name), who=context.who)
                run = stack.enter_context(claimed(context_of_reader, "apply", paused_too=True))
                contexts.append(replace(context_of_reader, run=run))
            self.app.refresh()
            if Pin.parse(self.app.project.source(source_upgrade.source).package) != source_upgrade.before:
                raise StalePlan(f"source {source_upgrade.source} now has another version", hint="run the command again")
            text = changed_text(
                self.app.project, path, str(source_upgrade.after)
            )  # before anything is written: it may be refused
            change = _put_back if source_upgrade.rollback else _remember
            for context_of_reader in contexts:
                change(context_of_reader, source_upgrade)
            replace_text(self.app.project, text)
            self.app.refresh()  # so that whoever goes on with this project runs that version
            resumed = [own.name for own in contexts if _finish(own, source_upgrade)]
        return {"applied": True, "resumed": resumed}


def _readers(app: App, source: str) -> list[str]:
    """Return the connections that read a source."""
    return [name for name in app.project.connections if app.project.source_of(name) == source]


def _remember(context: SyncContext, source_upgrade: SourceUpgrade) -> None:
    state = context.store.connectors.get(context.name).state
    versions = str(source_upgrade.before), str(source_upgrade.after)
    context.store.connector_versions.add(context.name, source_upgrade.source, versions, state, who=context.who)


def _put_back(context: SyncContext, source_upgrade: SourceUpgrade) -> None:
    """Save the state of before the upgrade."""
    store = context.store
    earlier = store.connector_versions.latest(context.name, source_upgrade.source)
    if earlier is None or earlier.after != str(source_upgrade.before):
        return
    now = store.connectors.get(context.name).state
    state = rolled_back(now, earlier.state)
    with context.transaction():
        store.connectors.save(context.name, state)
        store.connector_versions.drop_latest(context.name, source_upgrade.source)


def _finish(context: SyncContext, source_upgrade: SourceUpgrade) -> bool:
    event = SourceUpgraded(
        context.name, source_upgrade.source, str(source_upgrade.before), str(source_upgrade.after), context.who
    )
    with context.transaction():
        context.store.events.add(event)
    return resume_upgraded(context)


def _log(line: LogLine) -> None:
    LOG.info("%s: %s", line.origin, line.message)


class _Discarded(Exception):
    """Ends a transaction of which nothing is kept."""


@dataclass(frozen=True)
class _Upgrading:
    app: App
    context: SyncContext
    request: UpgradeSourceRequest

    @cached_property
    def name(self) -> str:
        return self.app.project.source_of(self.context.name)

    @cached_property
    def before(self) -> Pin:
        section = self.app.project.source(self.name)
        if section.type != "airbyte" or not section.package:
            what = "a command or a manifest" if section.type == "airbyte" else f"type {section.type}"
            raise ProjectError(
                f"source {self.name} is of {what}: only the `package` of an Airbyte connector has versions",
                hint="change what it runs yourself; `instep detect` shows what that does",
            )
        return Pin.parse(section.package)

    def upgrade(self) -> SourceUpgrade:
        after, notes = self.target(), []
        if after == self.before:
            raise InstepError(
                f"source {self.name} uses {self.before} already", hint="name another version: --to VERSION"
            )
        old, new = self.source(self.before), self.source(after)
        offered, current, streams = spec(new.config, _log), None, None
        try:
            current = spec(old.config, _log)
            streams = discover(old.config, _log, old.save_configuration)
        except InstepError as error:
            notes.append(f"{self.before} no longer answers ({error.message}): {after} is shown alone")
        configuration = offered.fitted(new.config.configuration)
        differences = list(specification_differences(current, offered, configuration))
        outlooks: tuple[ConnectionOutlook, ...] = ()
        if not any(d.breaking for d in differences):
            discovery = discover(new.config, _log, new.save_configuration)
            differences += stream_differences(streams or discovery, discovery)
            outlooks = tuple(self.outlook(name, after, discovery) for name in _readers(self.app, self.name))
        notes += self.about_states()
        announced = self.announced(after)
        return SourceUpgrade(
            self.name, self.before, after, self.request.rollback, announced, tuple(differences), outlooks, tuple(notes)
        )

    def target(self) -> Pin:
        """Return the version that is asked for."""
        if self.request.rollback:
            earlier = [upgrade for upgrade in self.remembered() if upgrade.after == str(self.before)]
            if not earlier:
                raise InstepError(
                    f"source {self.name}: no upgrade to {self.before} is on record",
                    hint=f"`instep source upgrade {self.name} --to VERSION` goes to any version",
                )
            return Pin.parse(earlier[0].before)
        if self.request.to:
            return self.before.at(self.request.to)
        return newest(self.source(self.before).config, self.before)

    def remembered(self) -> list[ConnectorUpgrade]:
        """Return the last upgrade of each connection."""
        versions = self.app.store.connector_versions
        latest = (versions.latest(name, self.name) for name in _readers(self.app, self.name))
        return [upgrade for upgrade in latest if upgrade is not None]

    def about_states(self) -> Iterator[str]:
        """Yield the effects on the states."""
        if not self.request.rollback:
            yield _ABOUT_STATES
            return
        for state in self.remembered():
            if state.after == str(self.before):
                yield (
                    f"connection {state.connection} goes back to its state of {state.at:%Y-%m-%d %H:%M} UTC: rows "
                    "since then come again, as additional rows if a table has no key"
                )

    def source(self, pin: Pin) -> AirbyteSource:
        """Return the source as it is with a version."""
        return _source(self.app, self.context.name, self.name, pin)

    def announced(self, after: Pin) -> tuple[BreakingChange, ...]:
        """Return the breaking changes between the versions: of the package, the source's file and the request."""
        section = self.app.project.source(self.name)
        high = self.before if self.request.rollback else after
        breaking_changes: dict[str, BreakingChange] = {}
        texts = [metadata_text(self.source(high).config, high, _log), self.request.metadata]
        for changes in (
            parse_breaking_changes(texts[0], f"metadata.yaml of {high}") if texts[0] else (),
            read_breaking_changes(Path(section.metadata)) if section.type == "airbyte" and section.metadata else (),
            parse_breaking_changes(texts[1]) if texts[1] else (),
        ):
            breaking_changes |= {change.version: change for change in changes}
        low, up = (after, self.before) if self.request.rollback else (self.before, after)
        return breaking_changes_between(list(breaking_changes.values()), low.version, up.version)

    def outlook(self, connection: str, after: Pin, streams: DiscoveredStreams) -> ConnectionOutlook:
        """Return what the next sync of a connection would do with the other version; nothing of it is recorded."""
        context = self.app.sync_context(connection)
        new = _source(self.app, connection, self.name, after)
        new.know(streams)
        context = replace(context, source=new)
        try:
            models = read_models(where) if (where := configured(self.app, connection)) else None
            plan: list[str] = []
            impact: Mapping[str, tuple[str, ...]] | None = None
            with suppress(_Discarded), self.app.store.transaction():
                previewed = preview(context)
                plan = explain(previewed.plan, previewed.impact)
                if models is not None:
                    verdicts = report(context, previewed, models).verdicts
                    impact = {
                        level: tuple(v.model.name for v in verdicts if v.level == level)
                        for level in ("breaks", "silent", "unknown")
                    }
                raise _Discarded
        except InstepError as error:
            return ConnectionOutlook(connection, trouble=error.message)
        return ConnectionOutlook(connection, tuple(plan), impact)


def _source(app: App, connection: str, name: str, pin: Pin) -> AirbyteSource:
    """Return a connection's source as it is with a version of its package."""
    source = app.source_in(app.project.with_package(name, str(pin)), connection)
    assert isinstance(source, AirbyteSource), "its section says so"
    return source
