"""The fields of the protocol's messages that are read, and their JSON types.

A field of another type is an error that names it, whatever would become of its value: a key that is a text instead of
a list would be a key of single characters, a count that is a text would be no count. Texts for people (messages, stack
traces) are shown whatever they are, and what nobody reads is not judged. Null is a field that is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from instep.sources.airbyte.wire import BODIES, Broken


@dataclass(frozen=True)
class FieldShape:
    """A JSON type. `types` are the classes of its values; none: any value will do."""

    name: str
    types: tuple[type, ...] = ()
    fields: Mapping[str, FieldShape] = field(default_factory=dict)
    """The fields of an object that are read."""
    items: FieldShape | None = None
    """The shape of each item of a list."""
    is_required: bool = False
    is_whole: bool = False
    """The number has no fraction."""

    def problem(self, value: Any, path: str) -> str:
        """Return what is wrong with a value at this place, "" if nothing is."""
        if value is None:
            return f"`{path}` is missing" if self.is_required else ""
        if self.types and type(value) not in self.types:
            return f"`{path}` is {_NAMES.get(type(value), 'something')}, not {self.name}"
        if float in self.types and not (math.isfinite(value) and (not self.is_whole or value == int(value))):
            return f"`{path}` is not {self.name}"
        if isinstance(value, dict):
            problems = (shape.problem(value.get(name), f"{path}.{name}") for name, shape in self.fields.items())
            return next(filter(None, problems), "")
        if isinstance(value, list) and self.items is not None:
            needed = required(self.items)
            return next(filter(None, (needed.problem(one, f"{path}[{at}]") for at, one in enumerate(value))), "")
        return ""


def required(shape: FieldShape) -> FieldShape:
    """Return the shape of a field that has to be there."""
    return replace(shape, is_required=True)


def an_object(**fields: FieldShape) -> FieldShape:
    return FieldShape("an object", (dict,), fields)


def a_list(items: FieldShape) -> FieldShape:
    return FieldShape("a list", (list,), items=items)


_NAMES: Mapping[type, str] = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
}
TEXT, TRUTH = FieldShape("a text", (str,)), FieldShape("true or false", (bool,))
NUMBER, WHOLE = FieldShape("a finite number", (int, float)), FieldShape("a whole number", (int, float), is_whole=True)
ANYTHING = FieldShape("anything")

DESCRIPTOR = an_object(name=required(TEXT), namespace=TEXT)
_STREAM_STATE = an_object(stream_descriptor=required(DESCRIPTOR), stream_state=ANYTHING)
_ERROR = an_object(failure_type=TEXT, stream_descriptor=DESCRIPTOR)
_STREAM_STATUS = an_object(
    stream_descriptor=required(DESCRIPTOR), status=required(TEXT), reasons=a_list(an_object(type=TEXT))
)
_ESTIMATE = an_object(name=TEXT, namespace=TEXT, type=TEXT, row_estimate=NUMBER)
META = an_object(changes=a_list(an_object(field=TEXT, change=TEXT, reason=TEXT)))
STREAM = an_object(
    name=required(TEXT),
    namespace=TEXT,
    json_schema=an_object(),
    supported_sync_modes=a_list(TEXT),
    source_defined_cursor=TRUTH,
    default_cursor_field=a_list(TEXT),
    source_defined_primary_key=a_list(a_list(TEXT)),
)
MESSAGES: Mapping[str, FieldShape] = {
    "RECORD": an_object(stream=TEXT, namespace=TEXT, data=required(an_object()), meta=META),
    "STATE": an_object(
        type=TEXT,
        stream=_STREAM_STATE,
        **{"global": an_object(shared_state=ANYTHING, stream_states=a_list(_STREAM_STATE))},
        sourceStats=an_object(recordCount=WHOLE),
    ),
    "TRACE": an_object(type=required(TEXT), error=_ERROR, stream_status=_STREAM_STATUS, estimate=_ESTIMATE),
    "LOG": an_object(),
    "CONTROL": an_object(type=required(TEXT), connectorConfig=an_object(config=required(an_object()))),
    "SPEC": an_object(connectionSpecification=an_object(), documentationUrl=TEXT),
    "CONNECTION_STATUS": an_object(status=required(TEXT)),
    "CATALOG": an_object(streams=required(a_list(STREAM))),
}
"""The bodies of messages."""
_PARTS: Mapping[str, Mapping[str, str]] = {
    "STATE": {"STREAM": "stream", "GLOBAL": "global", "LEGACY": "data"},
    "TRACE": {"ERROR": "error", "STREAM_STATUS": "stream_status", "ESTIMATE": "estimate"},
    "CONTROL": {"CONNECTOR_CONFIG": "connectorConfig"},
}
"""The part that a message of a type of its own has to have; a legacy state may be null."""


def check_message(kind: str, message: Mapping[str, Any]) -> None:
    """Raise Broken for a message of this kind in which a field that is read has another type, or is missing."""
    if (shape := MESSAGES.get(kind)) is None:
        return
    key = BODIES[kind]
    body = message.get(key)
    problem = required(shape).problem(body, key) or _missing_part(kind, key, body or {})
    if problem:
        raise Broken(f"it sent a {kind} message that cannot be read: {problem}")


def _missing_part(kind: str, key: str, body: Mapping[str, Any]) -> str:
    own = state_type(body) if kind == "STATE" else body.get("type")
    part = _PARTS.get(kind, {}).get(str(own), "")
    if kind == "STATE" and not part:
        return f"`{key}.type` is none of {', '.join(_PARTS[kind])}"
    return f"`{key}.{part}` is missing" if part not in ("", "data") and body.get(part) is None else ""


def state_type(state: Mapping[str, Any]) -> str:
    """Return the type of a state, which older connectors leave out."""
    return str(state.get("type") or ("STREAM" if "stream" in state else "GLOBAL" if "global" in state else "LEGACY"))
