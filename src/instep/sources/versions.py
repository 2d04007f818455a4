"""Versions of a connector that break what those before did: what its maker has announced, and when it takes effect.

The form is that of Airbyte's metadata: `releases.breakingChanges` by version, each with a message, a deadline, what is
to happen then, and the streams that it is about.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import yaml

from instep.errors import ProjectError
from instep.project.text.foreign import read_foreign

DeadlineAction = Literal["disable", "auto_upgrade"]
MAX_BYTES = 1 << 20
"""Of a file of metadata."""
_MESSAGE = 1000
_NUMBERS = re.compile(r"v?(\d+(?:\.\d+)*)(.*)", re.DOTALL)
_HINT = "write releases: {breakingChanges: {2.0.0: {message: ..., upgradeDeadline: 2026-12-31}}}"


@dataclass(frozen=True)
class BreakingChange:
    """One version that breaks something."""

    version: str
    message: str = ""
    deadline: date | None = None
    """The day from which on older versions are not to be run; None: never."""
    action: DeadlineAction = "disable"
    """Action that the maker wants on that day."""
    streams: tuple[str, ...] = ()
    """The streams that it is about; none: all."""
    guide: str = ""
    """The address of a guide to the upgrade."""

    def is_about(self, streams: Collection[str]) -> bool:
        """Return whether it is about any of these streams, or about all that there are."""
        names = {stream.casefold() for stream in streams}
        return not self.streams or not names or any(one.casefold() in names for one in self.streams)

    @property
    def summary(self) -> str:
        """Return it in one line."""
        about = f" (streams {', '.join(self.streams)})" if self.streams else ""
        until = f", by {self.deadline.isoformat()}" if self.deadline else ""
        return f"version {self.version}{about}{until}: {self.message or 'a breaking change'}"


@runtime_checkable
class VersionedSource(Protocol):
    """A source whose code has versions."""

    def connector_version(self) -> str:
        """Return the version in use, "" if it has no number."""
        ...

    def breaking_changes(self) -> Sequence[BreakingChange]:
        """Return what the maker has announced, as far as it is known here."""
        ...


def version_order(version: str) -> tuple[tuple[int, ...], int, str]:
    """Return the sort key of a version: by its numbers; one with letters behind them comes before the final one."""
    match = _NUMBERS.match(version.strip())
    if match is None:
        return (), 0, version
    numbers = tuple(int(part[:18]) for part in match[1].split("."))
    while numbers and numbers[-1] == 0:
        numbers = numbers[:-1]
    suffix = match[2].partition("+")[0]
    final = not suffix or suffix.startswith((".post", "-post"))
    return numbers, 1 if final else 0, suffix


def breaking_changes_between(changes: Sequence[BreakingChange], before: str, after: str) -> tuple[BreakingChange, ...]:
    """Return the breaking changes between two versions, in their order; `after` "": all behind `before`."""
    low, high = version_order(before), version_order(after) if after else None
    between = (c for c in changes if version_order(c.version) > low and (not high or version_order(c.version) <= high))
    return tuple(sorted(between, key=lambda c: version_order(c.version)))


def due(
    changes: Sequence[BreakingChange], version: str, streams: Collection[str], today: date
) -> tuple[BreakingChange, ...]:
    """Return those that a version lacks, that are about these streams and whose deadline has come."""
    behind = breaking_changes_between(changes, version, "")
    return tuple(c for c in behind if c.deadline is not None and c.deadline <= today and c.is_about(streams))


def read_breaking_changes(file: Path) -> tuple[BreakingChange, ...]:
    """Return the breaking changes of a metadata file; ProjectError if it is none."""
    try:
        text = file.read_bytes()[: MAX_BYTES + 1]
    except OSError as error:
        raise ProjectError(
            f"{file} cannot be read: {error.strerror}", hint="correct `metadata` of the source"
        ) from None
    if len(text) > MAX_BYTES:
        raise ProjectError(
            f"{file} is larger than {MAX_BYTES >> 20} MB", hint="this is not the metadata of a connector"
        )
    return parse_breaking_changes(text.decode("utf-8", "replace"), file.name)


def parse_breaking_changes(text: str, name: str = "the metadata") -> tuple[BreakingChange, ...]:
    """Return the breaking changes of metadata in YAML or JSON; ProjectError for what is no such document."""
    try:
        parsed = read_foreign(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ProjectError(f"{name} is not YAML", hint=_HINT) from None
    document = parsed.get("data", parsed) if isinstance(parsed, dict) else parsed
    releases = document.get("releases", document) if isinstance(document, dict) else None
    changes = releases.get("breakingChanges", {}) if isinstance(releases, dict) else None
    if not isinstance(changes, dict):
        raise ProjectError(f"{name} has no breaking changes by version", hint=_HINT)
    breaking: list[BreakingChange] = [_change(str(version), entry, name) for version, entry in changes.items()]
    return tuple(sorted(breaking, key=lambda c: version_order(c.version)))


def _change(version: str, entry: Any, name: str) -> BreakingChange:
    if not isinstance(entry, dict) or not _NUMBERS.match(version):
        raise ProjectError(f"{name}: {version!r} is not a version with a breaking change", hint=_HINT)
    action: DeadlineAction = entry.get("deadlineAction") or "disable"
    if action not in ("disable", "auto_upgrade"):
        raise ProjectError(f"{name}: version {version}: deadlineAction is disable or auto_upgrade", hint=_HINT)
    return BreakingChange(
        version,
        " ".join(str(entry.get("message") or "").split())[:_MESSAGE],
        _deadline(version, entry.get("upgradeDeadline"), name),
        action,
        tuple(_streams(version, entry.get("scopedImpact") or (), name)),
        str(entry.get("migrationDocumentationUrl") or ""),
    )


def _deadline(version: str, value: Any, name: str) -> date | None:
    if value in (None, ""):
        return None
    if isinstance(value, date):
        return date(value.year, value.month, value.day)
    try:
        return date.fromisoformat(str(value)[:10])
    except ValueError:
        raise ProjectError(
            f"{name}: version {version}: upgradeDeadline is not a date", hint="write 2026-12-31"
        ) from None


def _streams(version: str, scopes: Any, name: str) -> list[str]:
    streams: list[str] = []
    for scope in scopes if isinstance(scopes, list | tuple) else [None]:
        mapping = scope if isinstance(scope, Mapping) else {}
        impacted = mapping.get("impactedScopes")
        if not isinstance(impacted, list) or mapping.get("scopeType") != "stream":
            raise ProjectError(
                f"{name}: version {version}: scopedImpact is not a list of streams",
                hint="write scopedImpact: [{scopeType: stream, impactedScopes: [users]}]",
            )
        streams += map(str, impacted)
    return streams
