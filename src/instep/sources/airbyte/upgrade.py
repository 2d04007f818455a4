"""The differences between two versions of a connector: its specification, its streams, their keys, their states.

Both versions have been asked for the same source. Pure; what policy and models make of it is found elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from instep.sources.airbyte.json_schema import column_type, properties, required
from instep.sources.airbyte.requests import DiscoveredStreams, canonical_schema
from instep.sources.airbyte.specification import Specification, branches_of, properties_of

UpgradeKind = Literal["spec", "schema", "removal", "format", "state"]
UPGRADE_KINDS: tuple[UpgradeKind, ...] = ("spec", "schema", "removal", "format", "state")
KIND_TITLES: Mapping[UpgradeKind, str] = {
    "spec": "Configuration",
    "schema": "Types and columns",
    "removal": "Streams and columns that go",
    "format": "How rows are written",
    "state": "State of incremental reads",
}
Stream = Mapping[str, Any]


@dataclass(frozen=True)
class UpgradeDifference:
    """One thing that the other version does otherwise."""

    kind: UpgradeKind
    text: str
    stream: str = ""
    """The stream as `namespace.name`, or its name; "" for the connector as a whole."""
    breaking: bool = False
    """True if somebody has to do something, or data is read again or missing."""


def stream_path(stream: Stream) -> str:
    """Return the name of a stream, with its namespace if it has one."""
    return ".".join(filter(None, (str(stream.get("namespace") or ""), str(stream["name"]))))


def specification_differences(
    before: Specification | None, after: Specification, configuration: Mapping[str, Any]
) -> tuple[UpgradeDifference, ...]:
    """Return how the other version's specification differs, and what is wrong with the configuration. Without the
    specification of the one `before`, only the latter is known."""
    differences = [UpgradeDifference("spec", text, breaking=True) for text in after.problems(configuration)]
    if before is None:
        return tuple(differences)
    named = {text.partition(":")[0] for text in (one.text for one in differences)}
    old, new = dict(_fields(before.schema)), dict(_fields(after.schema))
    for name in sorted(old.keys() | new.keys()):
        if name in named:
            continue
        if name not in new:
            used = _is_set(configuration, name)
            text = f"{name}: is no longer known{', and is set' if used else ''}"
            differences.append(UpgradeDifference("spec", text))
        elif name not in old:
            differences.append(UpgradeDifference("spec", f"{name}: is new ({new[name]})"))
        elif old[name] != new[name]:
            differences.append(UpgradeDifference("spec", f"{name}: was {old[name]}, is {new[name]}"))
    return tuple(differences)


def stream_differences(before: DiscoveredStreams, after: DiscoveredStreams) -> tuple[UpgradeDifference, ...]:
    """Return the differences of the other version, stream by stream."""
    old = {stream_path(one): one for one in before.streams}
    new = {stream_path(one): one for one in after.streams}
    moved = _renamed_streams(old, new)
    differences: list[UpgradeDifference] = []
    for path in sorted(old):
        if path in moved:
            text = f"its namespace changes: it becomes {moved[path]}, another table of the destination"
            differences += [UpgradeDifference("format", text, path, True)]
            differences += _of_stream(path, old[path], new[moved[path]])
        elif path in new:
            differences += _of_stream(path, old[path], new[path])
        else:
            differences.append(UpgradeDifference("removal", "the stream is no longer offered", path, True))
    for path in sorted(new.keys() - old.keys() - set(moved.values())):
        differences.append(
            UpgradeDifference("schema", f"new stream with {len(properties(_schema(new[path])))} columns", path)
        )
    return tuple(sorted(differences, key=lambda d: (UPGRADE_KINDS.index(d.kind), not d.breaking, d.stream)))


def _renamed_streams(old: Mapping[str, Stream], new: Mapping[str, Stream]) -> dict[str, str]:
    """Return the streams that have another namespace, by their old paths: one of its name went, and one came."""
    gone, come = ([s for p, s in one.items() if p not in other] for one, other in ((old, new), (new, old)))
    names = [str(s["name"]) for s in gone]
    pairs = {}
    for stream in gone:
        name = str(stream["name"])
        candidates = [s for s in come if s["name"] == name]
        if names.count(name) == 1 and len(candidates) == 1:
            pairs[stream_path(stream)] = stream_path(candidates[0])
    return pairs


def _of_stream(path: str, before: Stream, after: Stream) -> Iterator[UpgradeDifference]:
    old, new = properties(_schema(before)), properties(_schema(after))
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield UpgradeDifference("removal", f"column {name} is no longer sent", path, True)
        elif name not in old:
            yield UpgradeDifference("schema", f"new column {name} ({_type(new[name], after)})", path)
        else:
            yield from _of_column(path, name, (old[name], before), (new[name], after))
    yield from _keys(path, before, after)
    yield from _states(path, before, after)


def _of_column(
    path: str, name: str, before: tuple[Mapping[str, Any], Stream], after: tuple[Mapping[str, Any], Stream]
) -> Iterator[UpgradeDifference]:
    old, new = _type(*before), _type(*after)
    if old != new:
        yield UpgradeDifference("schema", f"column {name}: {old} becomes {new}", path, True)
    elif old == "json" and canonical_schema(before[0]) != canonical_schema(after[0]):
        yield UpgradeDifference("format", f"column {name}: its JSON has another form", path)
    always = [name in required(_schema(stream)) for _, stream in (before, after)]
    if always[0] and not always[1]:
        yield UpgradeDifference("schema", f"column {name} may be missing now", path)


def _keys(path: str, before: Stream, after: Stream) -> Iterator[UpgradeDifference]:
    old, new = ({".".join(map(str, k)) for k in s.get("source_defined_primary_key") or ()} for s in (before, after))
    if old != new:
        text = (
            f"key ({_listed(old)}) becomes ({_listed(new)}): rows are found by other columns, a full refresh is needed"
        )
        yield UpgradeDifference("format", text, path, True)


def _states(path: str, before: Stream, after: Stream) -> Iterator[UpgradeDifference]:
    was, now = ("incremental" in (s.get("supported_sync_modes") or ()) for s in (before, after))
    if was and not now:
        yield UpgradeDifference("state", "can no longer be read incrementally: each sync reads all rows", path, True)
    elif now and not was:
        yield UpgradeDifference("state", "can be read incrementally now", path)
    old, new = (".".join(map(str, s.get("default_cursor_field") or ())) for s in (before, after))
    if was and now and old != new:
        text = f"cursor {old or 'none'} becomes {new or 'none'}: its state may not be understood, and all be read again"
        yield UpgradeDifference("state", text, path, True)
    if was and now and bool(before.get("source_defined_cursor")) != bool(after.get("source_defined_cursor")):
        whose = "the connector" if after.get("source_defined_cursor") else "the connection"
        yield UpgradeDifference("state", f"its cursor is chosen by {whose} now", path, True)


def _schema(stream: Stream) -> Mapping[str, Any]:
    schema = stream.get("json_schema")
    return schema if isinstance(schema, Mapping) else {}


def _type(schema: Mapping[str, Any], stream: Stream) -> str:
    kind = column_type(schema, _schema(stream))
    return str(kind) if kind is not None else "no type yet"


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _fields(schema: Any, place: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the fields of a configuration by their dotted names, each with its type; those of branches count."""
    if not isinstance(schema, Mapping) or depth > 10:
        return
    needed = schema.get("required")
    for name, one in properties_of(schema).items():
        if not isinstance(one, Mapping):
            continue
        path = f"{place}{name}"
        kind = one.get("type") or ("one of several" if "oneOf" in one or "anyOf" in one else "any")
        text = " or ".join(sorted(map(str, kind))) if isinstance(kind, list) else str(kind)
        if "const" in one:
            text = f"{text} {json.dumps(one['const'])}"
        yield path, f"{text}, required" if isinstance(needed, list) and name in needed else text
        yield from _fields(one, f"{path}.", depth + 1)
    for one in branches_of(schema):
        yield from _fields(one, place, depth + 1)


def _is_set(configuration: Any, path: str) -> bool:
    for name in path.split("."):
        if not isinstance(configuration, Mapping) or name not in configuration:
            return False
        configuration = configuration[name]
    return True
