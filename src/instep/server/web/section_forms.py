"""Forms made of the sections of the project file: sources, destinations and channels, by their types.

A new type has a form without a line here. What an API may not set has no field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

from instep.operations.values import ObjectKind
from instep.project.allowed.keys import INSTEP_YML, NAMES, PARTS, SETTING, reach_of
from instep.project.documents import MASK, TYPES
from instep.project.sections.values import Section
from instep.server.problems import ApiProblem
from instep.server.web.forms import ActionField, Control

FIRST = (
    "host",
    "port",
    "database",
    "user",
    "password",
    "path",
    "warehouse",
    "catalog",
    "url",
    "secret",
    "to",
    "sender",
    "subprotocol",
    "digest",
    "quiet",
    "timezone",
    "include",
    "exclude",
    "namespace",
)
"""The keys that a form begins with, beside those that have no default."""


_TEXTS = {
    "include": "Patterns of tables that are looked at: globs, or re: and a regular expression. None: all.",
    "exclude": "Patterns of tables that are not.",
    "digest": "daily (at 08:00), or a time of day such as 17:30: one message a day. Empty: at once.",
    "quiet": "Hours without messages, such as 22:00-07:00. Pauses and failures are sent all the same.",
    "timezone": "Of the digest and the quiet hours, such as Europe/Berlin.",
    "to": "Addresses of the receivers.",
    "sender": "The address that messages come from.",
    "namespace": "The schema of the tables, for connections that name none.",
}
"""Explanations of fields whose keys lead to nothing beside the object."""


@dataclass(frozen=True)
class SectionForm:
    """The form of one type of object."""

    kind: ObjectKind
    type: str
    first: tuple[ActionField, ...]
    more: tuple[ActionField, ...]
    """Fields that are seldom needed."""

    def spec(self, form: Mapping[str, Sequence[str]], before: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the section that a form stands for: what differs from its default. A secret that is left empty stays
        as it was `before`."""
        spec: dict[str, Any] = {"type": self.type}
        for field in (*self.first, *self.more):
            value = field.parse(form[field.name]) if field.name in form else None
            if field.control == "choice" and field.choices == _YES_NO and value is not None:
                value = value == "yes"
            if value is None and field.control == "secret" and (before or {}).get(field.name):
                value = MASK
            if value is not None and value != field.default:
                spec[field.name] = value
        return spec

    def values(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a section as its form shows them; secrets are left empty."""
        shown = {field.name: spec[field.name] for field in (*self.first, *self.more) if field.name in spec}
        hidden = {one.name for one in (*self.first, *self.more) if one.control == "secret"}
        return {name: _shown(value) for name, value in shown.items() if name not in hidden}


_YES_NO = ("yes", "no")


def _shown(value: Any) -> Any:
    return ("yes" if value else "no") if isinstance(value, bool) else value


@cache
def types_of(kind: ObjectKind) -> Mapping[str, type[Section]]:
    """Return the section of each type of a kind of object."""
    union = get_args(TYPES[kind])[0] if get_origin(TYPES[kind]) is Annotated else TYPES[kind]
    return {name: argument for argument in get_args(union) for name in _literal(argument)}


def _literal(section: Any) -> tuple[str, ...]:
    hint = section.model_fields["type"].annotation
    return get_args(hint) if get_origin(hint) is Literal else ()


@cache
def form_of(kind: ObjectKind, type: str) -> SectionForm:
    """Return the form of a type; ApiProblem 404 for one that there is not."""
    if (section := types_of(kind).get(type)) is None:
        why = f"there is no type {type!r} of {kind}"
        raise ApiProblem(404, "not_found", why, f"choose one of: {', '.join(types_of(kind))}")
    schema = section.model_json_schema()
    fields = [
        _field(section, name, about, name in schema.get("required", ()))
        for name, about in schema["properties"].items()
        if name != "type" and reach_of(section, name) not in (None, INSTEP_YML)
    ]
    first = [field for field in fields if field.required or field.name in FIRST]
    order = [*FIRST, *(one.name for one in first)]
    return SectionForm(
        kind,
        type,
        tuple(sorted(first, key=lambda field: order.index(field.name))),
        tuple(one for one in fields if one not in first),
    )


def _field(section: type[Section], name: str, about: Mapping[str, Any], required: bool) -> ActionField:
    reach = reach_of(section, name)
    control, choices = _control(about)
    text = _TEXTS.get(name, "")
    if not text and reach is not None and reach.words not in (SETTING.words, NAMES.words, PARTS.words):
        text = f"{reach.words[:1].upper()}{reach.words[1:]}."
    if control == "secret":
        text = "Stored encrypted, and shown to nobody. In instep.yml it is a reference, such as ${env:NAME}."
    default = about.get("default")
    if choices == _YES_NO:
        default = _shown(default)
    return ActionField(name, control, text, required, choices, default=default)


def _control(about: Mapping[str, Any]) -> tuple[Control, tuple[str, ...]]:
    """Return the control of a property by its JSON schema."""
    if str(about.get("description", "")).startswith("A secret reference"):
        return "secret", ()
    if "enum" in about:
        return "choice", tuple(map(str, about["enum"]))
    if "anyOf" in about:
        arms = [one for one in about["anyOf"] if one.get("type") != "null"]
        lists = [arm for arm in arms if arm.get("type") == "array"]
        return _control((lists or arms)[0])
    match about.get("type"):
        case "boolean":
            return "choice", _YES_NO
        case "integer":
            return "number", ()
        case "array":
            simple = about.get("items", {}).get("type") == "string"
            return ("lines", ()) if simple else ("document", ())
        case "string" | "number":
            return "text", ()
    return "document", ()
