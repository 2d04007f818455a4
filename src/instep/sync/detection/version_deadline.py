"""The deadline of a connector's version: from that day on its connections are paused, until the source is upgraded."""

from __future__ import annotations

from instep.errors import Blocked
from instep.events import Paused, Resumed
from instep.sources.versions import BreakingChange, VersionedSource, breaking_changes_between, due
from instep.sync.context import SyncContext

REASON = "connector version"
"""Beginning of the reason of such a pause."""


def check_version(context: SyncContext) -> tuple[str, ...]:
    """Raise Blocked if the version of the source's connector has outlived its deadline; the connection is paused.

    A pause for that reason ends once the reason is gone. Return what people should know: breaking changes that are
    announced, and those whose maker would upgrade by himself.
    """
    if not isinstance(context.source, VersionedSource) or not (version := context.source.connector_version()):
        return ()
    changes, streams = context.source.breaking_changes(), _streams(context)
    passed = due(changes, version, streams, context.store.inspections.now().date())
    stopping = [change for change in passed if change.action == "disable"]
    command = f"`instep source upgrade {context.scope.source}`"
    if stopping:
        reason = _reason(version, stopping[0])
        with context.transaction():
            if context.store.pauses.pause(context.name, reason):
                context.store.events.add(Paused(context.name, reason, ""))
        raise Blocked(
            f"connection {context.name} is paused: {reason}",
            hint=f"{command} shows what an upgrade changes{_guide(stopping[0])}; it also resumes the connection",
        )
    resume_upgraded(context)
    ahead = [
        breaking_change
        for breaking_change in breaking_changes_between(changes, version, "")
        if breaking_change.is_about(streams)
    ]
    return tuple(_note(change, change in passed, version, command) for change in ahead)


def pause_if_due(context: SyncContext) -> None:
    """Pause the connection if the version of its source's connector has outlived its deadline."""
    try:
        check_version(context)
    except Blocked:
        return


def resume_upgraded(context: SyncContext) -> bool:
    """End the pause that a deadline has caused; False if there is none."""
    paused = context.store.pauses.connection(context.name)
    if paused is None or paused.change or not paused.reason.startswith(REASON):
        return False
    with context.transaction():
        context.store.pauses.resume(context.name, who=context.who, change="")
        context.store.events.add(Resumed(context.name, context.who, ""))
    return True


def _streams(context: SyncContext) -> list[str]:
    """Return the names of the streams that are synced; none before the first sync."""
    live = [table for table in context.store.accepted.catalog(context.name).tables if not table.retained]
    return [table.name for table in live]


def _reason(version: str, change: BreakingChange) -> str:
    assert change.deadline is not None, "only those with one are due"
    message = f": {change.message}" if change.message else ""
    return (
        f"{REASON} {version} could be used until {change.deadline.isoformat()}, "
        f"when version {change.version} became necessary{message}"
    )


def _note(change: BreakingChange, passed: bool, version: str, command: str) -> str:
    message = f": {change.message}" if change.message else ""
    what = f"version {change.version} of the connector breaks something{message}"
    see = f"{command} shows what changes{_guide(change)}"
    if passed:
        return f"{what}; upgraded automatically by its maker since {change.deadline}; {version} stays pinned: {see}"
    if change.deadline is None:
        return f"{what}; {see}"
    return f"{what}; {version} can be used until {change.deadline}, then the connection is paused: {see}"


def _guide(change: BreakingChange) -> str:
    return f", {change.guide} tells how" if change.guide else ""
