"""Forms made of the specifications of operations: a new operation has a form without a line here.

A field's control follows from its type, its text from the record, its bounds are checked by the API.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from datetime import datetime
from functools import cache
from importlib import import_module
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints
from urllib.parse import quote

from instep.operations.registry import immediate_specs, specs
from instep.operations.spec import ImmediateSpec, OperationSpec, Options, Role, served_fields
from instep.operations.values import LeadsTo
from instep.server.problems import ApiProblem
from instep.server.requests import texts_of
from instep.server.web.yaml_fields import MOST_HIDDEN_VALUES, MOST_VALUES, read_yaml

Control = Literal["text", "secret", "number", "flag", "choice", "lines", "document", "moment", "long"]
HIDDEN_OPERATIONS = frozenset(
    {"refresh", "reload", "rollout", "test_connection", "delete_connection", "discover", "make_demo"}
)
"""Operations without a route of their own, or with one whose request is not a record."""


@dataclass(frozen=True)
class ActionField:
    """One field of a form. `consent`: it says what may be lost. `hidden`: a document with secrets, which no page shows
    again."""

    name: str
    control: Control
    text: str
    required: bool
    choices: tuple[str, ...] = ()
    consent: bool = False
    hidden: bool = False
    default: Any = None
    listed: bool = False
    """A document is a list, not a mapping."""

    @property
    def label(self) -> str:
        """Return the name as people read it."""
        return self.name.replace("_", " ").capitalize()

    def parse(self, values: Sequence[str]) -> Any:
        """Return the value that these texts of a form stand for; None for one that is not given."""
        if self.control == "flag":
            return values[-1:] == ["true"]
        if self.control == "secret":
            return values[0] or None
        text = "\n".join(values).strip()
        if self.control == "lines":
            return [line.strip() for line in text.splitlines() if line.strip()] or None
        if not text:
            return None
        if self.control == "number":
            return int(text) if re.fullmatch(r"-?\d{1,18}", text) else text
        return self._document(text) if self.control == "document" else text

    def _document(self, text: str) -> Any:
        complaint, most = f"{self.name} is neither YAML nor JSON", MOST_HIDDEN_VALUES if self.hidden else MOST_VALUES
        value, shape = read_yaml(text, complaint, most), list if self.listed else dict
        if not isinstance(value, shape):
            expected = "a list, each entry after `- `" if self.listed else "a mapping: lines of `key: value`"
            raise ApiProblem(422, "invalid", f"{self.name} is not {expected}", "correct it, then press again")
        return value


@dataclass(frozen=True)
class Action:
    """One operation as the page offers it."""

    name: str
    about: str
    role: Role
    method: str
    path: str
    fields: tuple[ActionField, ...]
    in_path: tuple[str, ...]
    immediate: bool
    match: bool = False
    secret_field: str = ""
    """The field of the answer that is shown once."""

    @property
    def title(self) -> str:
        """Return the name as people read it."""
        return self.name.replace("_", " ").capitalize()

    @property
    def previews(self) -> bool:
        """Return whether a worker makes the preview: it reads what the page's process does not open."""
        return any(field.name == "preview" and field.control == "flag" for field in self.fields)

    def name_to_type(self, values: Mapping[str, Any]) -> str:
        """Return the name that has to be typed before something is deleted or taken back; "" for other operations. What
        an operation asks consent for is typed into fields of its own."""
        destructive = self.method == "DELETE" or self.name == "roll_back_rollout"
        return str(values.get(self.in_path[-1]) or "") if destructive else ""

    def address(self, values: Mapping[str, Any]) -> str:
        """Return the path of a request below /api/v1. Raises ApiProblem for a name that is missing."""
        address = self.path
        for name in self.in_path:
            if not values.get(name):
                raise ApiProblem(422, "invalid", f"{name} is missing", "open the form from the object's page")
            address = address.replace(f"{{{name}}}", quote(str(values[name]), safe=""))
        return address

    def body(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of a request: what is not in its path and not as by default."""
        given = {field.name: values.get(field.name) for field in self.fields if field.name not in self.in_path}
        return {name: value for name, value in given.items() if value is not None and value is not False}

    def read(self, form: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """Return the values of a form, by field."""
        return {field.name: field.parse(form[field.name]) for field in self.fields if field.name in form}


@cache
def actions() -> Mapping[str, Action]:
    """Return all operations that have a form, by name."""
    work = {name: _of_operation(spec) for name, spec in specs().items() if name not in HIDDEN_OPERATIONS}
    return work | {name: _of_immediate(spec) for name, spec in immediate_specs().items()}


def action_of(name: str) -> Action:
    """Return one operation; ApiProblem 404 for a name that none has."""
    if (action := actions().get(name)) is None:
        raise ApiProblem(404, "not_found", f"there is no operation {name!r}", "go back")
    return action


def _of_operation(spec: OperationSpec) -> Action:
    method, _, path = spec.route.partition(" ")
    own = _fields(spec.request, served_fields(spec.request))
    connection = ActionField("connection", "text", "The connection.", required=True)
    about = (import_module(spec.request.__module__).__doc__ or "").strip()
    return Action(spec.name, about, spec.role, method, path, (connection, *own), ("connection",), immediate=False)


def _of_immediate(spec: ImmediateSpec) -> Action:
    method, _, path = spec.route.partition(" ")
    own = _fields(spec.request, get_type_hints(spec.request, include_extras=True))
    in_path = tuple(re.findall(r"{(\w+)}", path))
    about = (spec.request.__doc__ or "").strip()
    return Action(
        spec.name,
        about,
        spec.role,
        method,
        path,
        own,
        in_path,
        immediate=True,
        match=bool(spec.match),
        secret_field=spec.secret_field,
    )


def _fields(record: type[Options], hints: Mapping[str, Any]) -> tuple[ActionField, ...]:
    texts = texts_of(record)
    return tuple(
        ActionField(
            field.name,
            _control(field, hints[field.name]),
            texts.get(field.name, ""),
            choices=_kind(hints[field.name])[1],
            required=field.default is MISSING and field.default_factory is MISSING,
            consent=_consents(hints[field.name]),
            hidden=not field.repr and _kind(hints[field.name])[0] == "document",
            default=None if field.default is MISSING else field.default,
            listed=_is_list(hints[field.name]),
        )
        for field in sorted(fields(record), key=lambda one: bool(one.kw_only))
        if field.name in hints
    )


def _control(field: Field[Any], hint: Any) -> Control:
    """Return the control of a field; a text that a record does not show is a secret."""
    kind = _kind(hint)[0]
    return "secret" if kind == "text" and not field.repr else kind


def _kind(hint: Any) -> tuple[Control, tuple[str, ...]]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _kind(arguments[0])
    if origin in (Union, UnionType):
        return _kind(next(one for one in arguments if one is not NoneType))
    if origin is Literal:
        return "choice", tuple(str(one) for one in arguments)
    if origin is tuple:
        simple = _kind(arguments[0])[0] in ("text", "choice")
        return ("lines", ()) if simple else ("document", ())
    plain: dict[Any, Control] = {bool: "flag", int: "number", datetime: "moment", str: "text"}
    return plain.get(hint, "document"), ()


def _is_list(hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Annotated, Union, UnionType):
        return _is_list(next(argument for argument in arguments if argument is not NoneType))
    return origin is tuple


def _consents(hint: Any) -> bool:
    if any(isinstance(one, LeadsTo) and one.what == "consent" for one in getattr(hint, "__metadata__", ())):
        return True
    return any(_consents(one) for one in get_args(hint) if not isinstance(one, str))
