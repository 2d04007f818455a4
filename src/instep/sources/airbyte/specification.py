"""The specification of an Airbyte connector: the JSON Schema of its configuration, its secrets, and errors in a
configuration.

The schemas are those of connectors: drafts up to 7, `oneOf` with a constant that tells the branch, and keys of
Airbyte's own such as `airbyte_secret`.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from instep.errors import ProjectError, SetupError
from instep.redaction import is_harmless, names_secret

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

LOG = logging.getLogger("instep.airbyte")
MOST_PROBLEMS = 20
"""The most problems of a configuration that one error names."""
_TEXT = 300
"""The most characters of a connector's own words about a field."""
_SECRET_KEYS = ("airbyte_secret", "airbyte_hidden_secret")
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_NUMBER = re.compile(r"[+-]?\d{1,18}(\.\d{1,18})?")
Place = tuple[str | int, ...]
Field = tuple[str, ...]
"""Names on the way to a value of a configuration; items of a list have the list's."""
_DEEPEST = 50


@dataclass(frozen=True)
class Specification:
    """The answer of a connector to `spec`."""

    schema: Mapping[str, Any] = field(default_factory=dict)
    """The JSON Schema of its configuration."""
    documentation: str = ""
    """The address of its documentation."""

    @classmethod
    def of_message(cls, spec: Mapping[str, Any]) -> Specification:
        """Return the specification of a SPEC message's `spec`."""
        schema = spec.get("connectionSpecification")
        address = str(spec.get("documentationUrl") or "")
        return cls(schema if isinstance(schema, Mapping) else {}, address)

    def secrets(self, configuration: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the values of a configuration that are secret: by `airbyte_secret`, or by their name."""
        leaves = (one for one in _leaves(self.schema, configuration, self.schema) if one.secret)
        texts = (one.value if isinstance(one.value, str) else json.dumps(one.value) for one in leaves)
        return tuple(value for value in dict.fromkeys(texts) if not is_harmless(value))

    def open_fields(self, configuration: Mapping[str, Any]) -> tuple[Field, ...]:
        """Return the fields of a configuration that may be shown: the schema has them, and neither it nor a name on the
        way to them calls them secret, whichever of its branches is meant."""
        leaves = list(_leaves(self.schema, configuration, self.schema))
        closed = {one.path for one in leaves if one.secret}
        return tuple(sorted({one.path for one in leaves if one.declared} - closed))

    def problems(self, configuration: Mapping[str, Any]) -> list[str]:
        """Return the problems of a configuration: place and reason, never the value itself. An invalid schema yields
        none: the connector's own `check` decides. Nothing is fetched for it. Raises SetupError if no schema can be
        checked here."""
        try:
            from jsonschema import Draft7Validator
            from jsonschema.validators import validator_for
            from referencing import Registry
        except ImportError:
            raise SetupError(
                "the package jsonschema is missing, which checks configurations of Airbyte connectors",
                hint="pip install 'instep[airbyte]'",
            ) from None
        kind = validator_for(self.schema, default=Draft7Validator)
        nothing_else: Registry[Any] = Registry()  # without one, references to addresses would be fetched
        try:
            errors = list(kind(dict(self.schema), registry=nothing_else).iter_errors(configuration))
            errors.sort(key=lambda one: [str(part) for part in one.absolute_path])
            return list(dict.fromkeys(line for error in errors for line in _lines(error)))
        except Exception as error:
            LOG.warning("the connector's schema of its configuration cannot be applied: %s", type(error).__name__)
            return []

    def fitted(self, configuration: Mapping[str, Any]) -> dict[str, Any]:
        """Return the configuration with numbers and truth values where the schema has such and a text says one.

        References such as `${env:PORT}` are texts, whatever they lead to.
        """
        converted: dict[str, Any] = _fitted(self.schema, configuration, self.schema)
        return converted


def check_configuration(name: str, spec: Specification, configuration: Mapping[str, Any]) -> None:
    """Raise ProjectError with every field that does not fit the connector's schema."""
    if not (problems := spec.problems(configuration)):
        return
    more = [f"and {len(problems) - MOST_PROBLEMS} more"] if len(problems) > MOST_PROBLEMS else []
    lines = "\n".join(f"  {line}" for line in [*problems[:MOST_PROBLEMS], *more])
    see = f"; the connector's documentation: {spec.documentation}" if spec.documentation else ""
    raise ProjectError(
        f"connector {name}: its configuration does not fit:\n{lines}",
        hint=f"correct `configuration` of its source in instep.yml{see}",
    )


def _lines(error: ValidationError) -> Iterator[str]:
    if error.validator in ("oneOf", "anyOf") and error.context:
        yield from _of_branches(error)
        return
    place = tuple(error.absolute_path)
    schema = error.schema if isinstance(error.schema, Mapping) else {}
    match error.validator:
        case "required":
            (missing,) = [n for n in error.validator_value if error.message.startswith(repr(n))] or [""]
            of = schema.get("properties", {}).get(missing, {})
            yield _line((*place, missing), "is required", of)
        case "additionalProperties":
            known = schema.get("properties", {})
            unknown = [n for n in error.instance if n not in known] if isinstance(error.instance, Mapping) else []
            for one in unknown:
                yield _line((*place, one), f"is not known to the connector ({_names(known)} are)", {})
        case _:
            yield _line(place, _reason(error), schema)


def _of_branches(error: ValidationError) -> Iterator[str]:
    """Yield the problems of the branch that the value means to be: the one whose constants it has, if there is one."""
    branches: dict[int, list[ValidationError]] = {}
    for one in error.context:
        branches.setdefault(int(one.schema_path[0]), []).append(one)
    chosen = [errors for errors in branches.values() if not any(e.validator in ("const", "enum") for e in errors)]
    if len(chosen) == 1:
        for one in chosen[0]:
            yield from _lines(one)
        return
    options = error.validator_value
    constants = [_constants(one) for one in options if isinstance(one, Mapping)]
    names = dict.fromkeys(name for values in constants for name in values)
    if names and isinstance(error.instance, Mapping):
        for name in names:
            choices = dict.fromkeys(str(values[name]) for values in constants if name in values)
            yield _line((*error.absolute_path, name), f"must be one of {', '.join(choices)}", {})
        return
    kinds = [str(one.get("title") or one.get("type") or "") for one in options if isinstance(one, Mapping)]
    yield _line(tuple(error.absolute_path), f"fits none of its forms ({_names(filter(None, kinds))})", error.schema)


def _constants(branch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a branch that have one value."""
    constants = {}
    for name, schema in properties_of(branch).items():
        if not isinstance(schema, Mapping):
            continue
        if "const" in schema:
            constants[name] = schema["const"]
        elif isinstance(schema.get("enum"), list) and len(schema["enum"]) == 1:
            constants[name] = schema["enum"][0]
    return constants


def _reason(error: ValidationError) -> str:
    """Return the schema's demand; the value is in no text, because it may be a secret."""
    limit = error.validator_value
    match error.validator:
        case "type":
            kinds = [limit] if isinstance(limit, str) else list(limit)
            return f"must be of type {' or '.join(map(str, kinds))}"
        case "enum":
            return f"must be one of {_names(map(str, limit))}"
        case "const":
            return f"must be {limit}"
        case "pattern":
            return f"must match {limit}"
        case "format":
            return f"must be a {limit}"
        case "minLength" | "minItems" | "minProperties":
            return f"must have at least {limit} {_unit(error)}"
        case "maxLength" | "maxItems" | "maxProperties":
            return f"must have at most {limit} {_unit(error)}"
        case "minimum":
            return f"must be at least {limit}"
        case "maximum":
            return f"must be at most {limit}"
        case "exclusiveMinimum":
            return f"must be more than {limit}"
        case "exclusiveMaximum":
            return f"must be less than {limit}"
        case other:
            return f"breaks the rule `{other}` of the connector's schema"


def _unit(error: ValidationError) -> str:
    units = {"Length": "characters", "Items": "entries", "Properties": "keys"}
    return next(word for end, word in units.items() if str(error.validator).endswith(end))


def _line(place: Place, reason: str, schema: Mapping[str, Any]) -> str:
    """Return one problem, with the connector's own words about the field."""
    words = str(schema.get("description") or schema.get("title") or "") if isinstance(schema, Mapping) else ""
    text = " ".join(words.split())[:_TEXT]
    where = ".".join(map(str, place)) or "the configuration"
    return f"{where}: {reason}{f' ({text})' if text else ''}"


def _names(names: Iterator[str] | Sequence[str] | Mapping[str, Any]) -> str:
    listed = list(names)
    return ", ".join(listed[:MOST_PROBLEMS]) + (" ..." if len(listed) > MOST_PROBLEMS else "")


@dataclass(frozen=True)
class _Leaf:
    """A single value of a configuration, as one branch of the schema has it."""

    path: Field
    value: Any
    secret: bool
    """True if the schema, or a name on the way to it, calls it secret."""
    declared: bool
    """True if the schema has it."""


@dataclass(frozen=True)
class _Walk:
    """A place of a configuration, and what led there."""

    path: Field = ()
    secret: bool = False
    depth: int = 0
    seen: set[tuple[int, bool]] = field(default_factory=set)
    """The schemas that were applied to the value here: one that refers to itself twice would never end."""

    def below(self, name: str = "") -> _Walk:
        """Return the place of a named value in this one, or of an item of this list."""
        return _Walk((*self.path, name) if name else self.path, self.secret or names_secret(name), self.depth)


def _leaves(schema: Any, value: Any, root: Mapping[str, Any], at: _Walk | None = None) -> Iterator[_Leaf]:
    """Yield the single values of a configuration, each as often as a branch of the schema has it."""
    at = at or _Walk()
    hops = list(_hops(schema if isinstance(schema, Mapping) and at.depth <= _DEEPEST else {}, root))
    schema = hops[-1]
    at = replace(at, secret=at.secret or any(one.get(key) for one in hops for key in _SECRET_KEYS), depth=at.depth + 1)
    if (id(schema), at.secret) in at.seen:
        return
    at.seen.add((id(schema), at.secret))
    for one in (*branches_of(schema), *_conditional(schema)):
        yield from _leaves(one, value, root, at)
    if isinstance(value, Mapping):
        known, others = properties_of(schema), _schemas(schema.get("patternProperties"))
        for name, one in value.items():
            for below in (known.get(name, schema.get("additionalProperties")), *others):
                yield from _leaves(below, one, root, at.below(str(name)))
    elif isinstance(value, list | tuple):
        of_all = schema.get("items")
        of_some = [*_schemas(of_all), *_schemas(schema.get("prefixItems"))]
        items = [of_all] if isinstance(of_all, Mapping) else of_some
        for one in value:
            for below in items or [{}]:
                yield from _leaves(below, one, root, at.below())
    elif value is not None and not isinstance(value, bool):
        yield _Leaf(at.path, value, at.secret, bool(schema) and "$ref" not in schema)


def _conditional(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the schemas that apply to a value only if it is as another one says."""
    conditions = [schema.get(key) for key in ("if", "then", "else")]
    return [*_schemas(conditions), *_schemas(schema.get("dependencies")), *_schemas(schema.get("dependentSchemas"))]


def _schemas(some: Any) -> list[Mapping[str, Any]]:
    """Return the schemas in a list or a mapping."""
    some = list(some.values()) if isinstance(some, Mapping) else some
    return [one for one in some if isinstance(one, Mapping)] if isinstance(some, list) else []


def _fitted(schema: Any, value: Any, root: Mapping[str, Any], depth: int = 0, seen: set[int] | None = None) -> Any:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return value
    schema, seen = _resolved(schema, root), set() if seen is None else seen
    seen.add(id(schema))
    for one in branches_of(schema):
        if isinstance(value, Mapping) and id(_resolved(one, root)) not in seen and _has_constants(one, value):
            value = _fitted(one, value, root, depth + 1, seen)
    if isinstance(value, Mapping):
        known = properties_of(schema)
        return {name: _fitted(known.get(name), one, root, depth + 1) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_fitted(schema.get("items"), one, root, depth + 1) for one in value]
    return _number_or_truth(value, schema.get("type")) if isinstance(value, str) else value


def branches_of(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the alternatives and parts of a schema; what is none is left out."""
    branches = (schema.get(key) for key in ("oneOf", "anyOf", "allOf"))
    return [one for some in branches if isinstance(some, list) for one in some if isinstance(one, Mapping)]


def properties_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the properties of a schema; none where they are no object."""
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _has_constants(branch: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    return all(value.get(name) == constant for name, constant in _constants(branch).items())


def _number_or_truth(text: str, kind: Any) -> Any:
    kinds = {kind} if isinstance(kind, str) else set(kind) if isinstance(kind, list) else set()
    if "string" in kinds:
        return text
    if "boolean" in kinds and text in ("true", "false"):
        return text == "true"
    if kinds & {"integer", "number"} and _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if "number" in kinds and _NUMBER.fullmatch(text) else text


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the target of a reference within the schema."""
    *_, last = _hops(schema, root)
    return last


def _hops(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a schema, and the targets of its references one after the other: each may say more of the value."""
    for _ in range(20):
        yield schema
        target = schema.get("$ref")
        if not isinstance(target, str) or not target.startswith("#"):
            return
        resolved: Any = root
        for part in filter(None, target[1:].split("/")):
            resolved = resolved.get(part) if isinstance(resolved, Mapping) else None
        schema = resolved if isinstance(resolved, Mapping) else {}
    yield {}
