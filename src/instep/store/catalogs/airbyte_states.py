"""The document that says how far an Airbyte connector got: what it may have, and what another one keeps of it. Pure.

`sources/airbyte/state.py` tells what its parts mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Ref = tuple[str, str]
BESIDE_ROWS = ("configuration", "configuration_of", "catalog")
"""The parts of an Airbyte connector's state that are not about rows: a run from the start leaves them. `catalog` is the
configured one that was accepted at another product, until the connection's source is compared with it."""
STATE_TYPES = ("", "STREAM", "GLOBAL", "LEGACY")
_NUMBERED = {"generations": 3, "records": 4, "ends": 3, "reserved": 3}
"""Lists of numbers by stream, with the length of their entries: they count on whatever state is set."""
_ONWARD = ("configuration", "configuration_of", "generations", "ends", "reserved")
"""The parts that no rollback takes back: rotated tokens, and numbers that count what is at the destination."""
_OF_TYPE = {"shared": "GLOBAL", "legacy": "LEGACY"}
_KNOWN = ("airbyte", "type", "streams", *_OF_TYPE, *_NUMBERED, *BESIDE_ROWS)


def state_problem(document: Mapping[str, Any]) -> str:
    """Return what is wrong with a state, "" if it can be read."""
    return next(_problems(document), "")


def _problems(document: Mapping[str, Any]) -> Iterator[str]:
    if strange := [name for name in document if name not in _KNOWN]:
        allowed = [name for name in _KNOWN if name not in BESIDE_ROWS]
        yield f"`{str(strange[0])[:100]}` is not one of its keys: {', '.join(allowed)}"
    if document.get("airbyte", 1) != 1:
        yield "`airbyte`, the version of its form, is not 1"
    kind = document.get("type", "")
    if not isinstance(kind, str) or kind not in STATE_TYPES:
        yield f"`type` is not one of {', '.join(STATE_TYPES[1:])}"
    for name, own in _OF_TYPE.items():
        if document.get(name) is not None and kind != own:
            yield f"`{name}` counts for the type {own} alone"
    streams = document.get("streams", [])
    for at, entry in enumerate(streams if isinstance(streams, list) else [streams]):
        yield from _stream_problems(entry, f"streams[{at}]" if isinstance(streams, list) else "streams")
    for name, length in _NUMBERED.items():
        entries = document.get(name, [])
        if not isinstance(entries, list) or not all(_is_numbered(entry, length) for entry in entries):
            form = "[namespace, name, number, replaces]" if length == 4 else "[namespace, name, number]"
            yield f"`{name}` is not a list of {form}"


def _stream_problems(stream: Any, path: str) -> Iterator[str]:
    if not isinstance(stream, dict):
        yield f"`{path}` is not an object with `name` and `state`"
        return
    if not isinstance(stream.get("name"), str) or not stream["name"]:
        yield f"`{path}.name` is not a text"
    if not isinstance(stream.get("namespace", ""), str | None):
        yield f"`{path}.namespace` is not a text"
    if stream.get("state") is None:
        yield f"`{path}.state` is missing: leave the stream out to begin with its first record"
    if strange := stream.keys() - {"name", "namespace", "state"}:
        yield f"`{path}.{min(map(str, strange))[:100]}` is not one of its keys"


def _is_numbered(entry: Any, length: int) -> bool:
    if not isinstance(entry, list) or len(entry) != length:
        return False
    replaces = entry[3] if length == 4 else False
    return list(map(type, entry[:3])) == [str, str, int] and isinstance(replaces, bool)


def restarted(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a state that survives a restart of all streams: generations go on counting, and the rows that
    come replace those that are there. Parts that cannot be read do not."""
    sound = {name: state[name] for name in _NUMBERED if name in state and not state_problem({name: state[name]})}
    left: dict[str, Any] = {name: state[name] for name in BESIDE_ROWS if name in state}
    left |= {"generations": sound["generations"]} if "generations" in sound else {}
    numbers = {(s, n): 0 for s, n, _ in sound.get("generations", ())}
    numbers |= {(s, n): number for s, n, number, _ in sound.get("records", ())}
    if numbers:
        left["records"] = [[*ref, number, True] for ref, number in sorted(numbers.items())]
    return {"airbyte": 1, **left} if left else {}


def changed_state(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state that a person sets, as it is saved: the configuration beside it and the numbers that it leaves
    out stay, and the rows of a stream that begins again by it replace those that are there."""
    numbers = {name: old[name] for name in _NUMBERED if name in old and not state_problem({name: old[name]})}
    changed = {**numbers, **{name: value for name, value in new.items() if name not in BESIDE_ROWS}}
    if again := _with_state(old) - _with_state(changed):
        records = {(s, n): (number, replaces) for s, n, number, replaces in changed.get("records", ())}
        records |= {ref: (records.get(ref, (0, True))[0], True) for ref in again}
        changed["records"] = [[*ref, *entry] for ref, entry in sorted(records.items())]
    return changed | {name: old[name] for name in BESIDE_ROWS if name in old}


def rolled_back(now: Mapping[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `earlier` state as it is saved in place of the one of `now`. Streams that were read from their first
    record on in between begin again: the rows that the earlier state counts on are not there any more, and those that
    are there have other numbers. Where no stream has a state of its own, all of them do."""
    state = {name: value for name, value in earlier.items() if name not in _ONWARD}
    state |= {name: now[name] for name in _ONWARD if name in now}
    before, after = _generations(earlier), _generations(now)
    again = {ref for ref in _with_state(earlier) if after.get(ref) != before.get(ref)}
    if not again:
        return state
    streams = [one for one in earlier.get("streams", ()) if (one.get("namespace") or "", one["name"]) not in again]
    return changed_state(state, {**state, "streams": streams}) if streams else restarted(now)


def _generations(document: Mapping[str, Any]) -> dict[Ref, int]:
    if state_problem(document):
        return {}
    return {(s, n): number for s, n, number in document.get("generations", ())}


def repeating_streams(known: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Return the streams whose records may come again as new rows by the state `found` in place of `known`: those that
    have rows and no key, and go on from elsewhere. No state tells by itself that it is earlier than another one."""
    if state_problem(known):
        return []
    keyless = {(s, n) for s, n, number, _ in known.get("records", ()) if number}
    replaced = {(s, n) for s, n, _, replaces in found.get("records", ()) if replaces}
    going_on = (keyless & _with_state(found)) - replaced
    return sorted(".".join(filter(None, ref)) for ref in going_on if _state_of(known, ref) != _state_of(found, ref))


def _state_of(document: Mapping[str, Any], ref: Ref) -> tuple[Any, ...]:
    """Return all that tells where a stream goes on."""
    streams = document.get("streams", ())
    own = [one["state"] for one in streams if (one.get("namespace") or "", one["name"]) == ref]
    return document.get("shared"), document.get("legacy"), own


def _with_state(document: Mapping[str, Any]) -> set[Ref]:
    """Return the streams that do not begin with their first record."""
    if state_problem(document):
        return set()
    streams = {(stream.get("namespace") or "", stream["name"]) for stream in document.get("streams", ())}
    if document.get("legacy") is not None or (document.get("shared") is not None and not streams):
        return {(s, n) for s, n, _ in document.get("generations", ())}
    return streams
