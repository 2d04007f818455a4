"""Titles of events on the timeline, and the sentence that each makes of its data."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import Any

EVENT_TEXTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "change.detected": ("Change detected", ("{summary}",)),
    "change.review_needed": ("Review needed", ("{summary}", "{why}")),
    "change.rename_suspected": ("Rename suspected", ("{summary}", "similarity {score}", "{evidence}")),
    "change.ignored": ("Change ignored", ("{summary}", "{why}")),
    "change.waiting": ("Change waits to be seen again", ("{summary}", "{why}", "seen {seen} of {of} times")),
    "change.approved": ("Change approved", ("{summary}",)),
    "change.rejected": ("Change rejected", ("{summary}",)),
    "change.snoozed": ("Change snoozed", ("{summary}", "until {until}")),
    "change.reopened": ("Change reopened", ("{summary}", "{why}")),
    "change.mapped": ("Rename declared", ("{table}: {old} is now {new}", "schema version {version}")),
    "change.applied": ("Change applied", ("{summary}", "schema version {version}")),
    "change.undone": ("Change undone", ("{summary}", "schema version {version}")),
    "table.restored": ("Table restored", ("{table} is as of {at}, snapshot {snapshot}", "{rows_before} → {rows} rows")),
    "connection.paused": ("Paused", ("the table {table}", "{reason}")),
    "connection.resumed": ("Resumed", ("the table {table}",)),
    "selection.changed": ("Selection changed", ("{object} is {choice}",)),
    "table.key_set": ("Key chosen", ("{table} is keyed by {key} ({how})", "schema version {version}")),
    "source.upgraded": ("Connector upgraded", ("{source} went from {before} to {after}",)),
    "table.cursor_set": (
        "Cursor chosen",
        ("{table} is read by {cursor}", "first from {start}", "schema version {version}"),
    ),
    "table.copy_purged": ("Copy deleted", ("{copy}, a copy of {table}",)),
    "operation.requested": ("Second person needed", ("{operation} of {what}: another person has to request the same",)),
    "operation.confirmed": ("Confirmed by a second person", ("{operation} of {what}",)),
    "old_name.retained": ("Old name retained", ("{name} of {table} in the view {view} until {until}",)),
    "old_name.ended": ("Old name ended", ("{name} of {table} left the view {view}", "{why}")),
    "run.started": ("Run started", ("{kind}",)),
    "run.ended": ("Run ended", ("{kind}", "{error}")),
    "table.loaded": (
        "Table loaded",
        (
            "{table} by {mode}", "{read} rows read", "{inserted} inserted", "{updated} updated", "{deleted} deleted",
            "{invalid_values} invalid values in quarantine",
        ),
    ),
    "table.failed": ("Table failed", ("{table}", "{error}")),
    "backfill.cancelled": ("Backfill cancelled", ("of {table}", "only {column}")),
    "table.maintained": (
        "Table maintained",
        (
            "{table}: {files_before} → {files} files, {bytes_before} → {bytes} bytes", "{rewritten} files rewritten",
            "{snapshots} snapshots expired", "{removed} files removed", "{orphans} orphans removed",
            "took {seconds} s",
        ),
    ),
    "connection.created": ("Connection created", ()),
    "connection.edited": ("Settings changed", ()),
    "connection.tested": ("Connection tested", ("{error}",)),
    "sync.requested": ("Sync requested", ()),
    "resync.requested": ("Reload requested", ("of {tables}",)),
    "connection.deleted": (
        "Connection deleted",
        (
            "{tables} tables {table_action}", "of {destination} {namespace}", "log {log} dropped",
            "left behind: {left}",
            "source type {service}",
        ),
    ),
    "detection.finished": (
        "Detection ended",
        ("{counts}", "set off by an error", "{error}", "took {seconds} s"),
    ),
    "detector.disabled": ("Detector switched itself off", ("{reason}",)),
    "detector.enabled": ("Detector switched on", ()),
    "job.dead": ("Job given up", ("{kind} after {attempt} attempts", "{error}")),
    "rollout.moved": ("Rollout moved on", ("wave {wave}", "{why}")),
    "rollout.applied": ("Rollout applied", ("{what}", "wave {wave}")),
    "rollout.taken_back": ("Rollout taken back", ("{what}", "wave {wave}")),
}  # fmt: skip
"""By type: the title, and parts of the sentence. A part of which a field is empty is left out."""
_ONLY_IF = {"set off by an error": "triggered_by_error"}
"""Parts without a field, and the field that they need."""
_CODES = ("kind", "mode", "table_action", "choice", "how", "operation")
"""Fields with words of the code, which have underscores."""


def title_of(type: str) -> str:
    """Return what an event is called; one of a newer version by the words of its type."""
    known = EVENT_TEXTS.get(type)
    return known[0] if known else type.replace(".", " ").replace("_", " ").capitalize()


def sentence_of(type: str, data: Mapping[str, Any]) -> str:
    """Return what an event says of its data."""
    parts = EVENT_TEXTS[type][1] if type in EVENT_TEXTS else tuple(f"{{{name}}}" for name in data)
    texts = {name: _words(value) for name, value in data.items()}
    texts |= {name: texts[name].replace("_", " ") for name in _CODES if name in texts}
    return "; ".join(part.format(**texts) for part in parts if _is_complete(part, data))


def _is_complete(part: str, data: Mapping[str, Any]) -> bool:
    names = [name for _, name, _, _ in Formatter().parse(part) if name] or [_ONLY_IF[part]]
    return all(data.get(name) not in (None, "", 0, False, [], (), {}) for name in names)


def _words(value: Any) -> str:
    """Return a value of an event in words: counts by level without those that are 0, numbers with separators."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value))
    if not isinstance(value, dict):
        return str(value)
    if all(isinstance(one, dict) for one in value.values()):
        return "; ".join(f"{name}: {_words(one) or 'none'}" for name, one in value.items())
    return ", ".join(f"{_words(one)} {name.replace('_', ' ')}" for name, one in value.items() if one)
