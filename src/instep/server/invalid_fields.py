"""Invalid fields of requests in the words of the API: where, what is allowed, and the kind of value that was given.

No answer repeats a text that was given, because any of them may be a secret.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request

from instep.suggest import did_you_mean

Place = tuple[str | int, ...]
_MOST_LISTED, _MOST_NAME = 12, 100
_TIME, _DAY = "a time such as 2026-01-31T12:00:00Z", "a day such as 2026-01-31"
_WHOLE, _OBJECT, _TRUTH = "a whole number", "an object", "true or false"
_ALLOWED: Mapping[str, str] = {
    "string_type": "text",
    "bool_type": _TRUTH,
    "bool_parsing": _TRUTH,
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a number that is not infinite",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": _OBJECT,
    "mapping_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "none_required": "null",
    "timezone_aware": f"{_TIME}, with its offset",
}
_BOUNDS: Mapping[str, tuple[str, str]] = {
    "greater_than_equal": ("ge", "at least"),
    "less_than_equal": ("le", "at most"),
    "greater_than": ("gt", "more than"),
    "less_than": ("lt", "less than"),
}
_LENGTHS: Mapping[str, tuple[str, str, str]] = {
    "string_too_short": ("min_length", "at least", "character"),
    "string_too_long": ("max_length", "at most", "character"),
    "too_short": ("min_length", "at least", "entr"),
    "too_long": ("max_length", "at most", "entr"),
}
_NUMBER = re.compile(r"-?\d{1,20}(\.\d{1,20})?")


def field_problems(details: Iterable[Mapping[str, Any]], model: Any, data: Any) -> list[tuple[Place, str]]:
    """Return (place, text) of each field that is wrong. `details` are errors of Pydantic, whose places begin in `data`,
    which should have been a `model`."""
    texts = dict[Place, list[str]]()
    for detail in details:
        place = _place(detail, data)
        if (text := _text(detail, place, model)) not in (found := texts.setdefault(place, [])):
            found.append(text)  # each form that a value may have tells why it is not that
    return [(place, " or ".join(some)) for place, some in texts.items()]


def invalid_fields(error: RequestValidationError, route: Any, most: int) -> list[tuple[str, str]]:
    """Return (place, text) of up to `most` wrong parts of a request; a place is `body.name` or `query.limit`."""
    parts = dict[str, list[Mapping[str, Any]]]()
    for detail in itertools.islice(error.errors(), most):
        where, *place = detail["loc"]
        if detail["type"] == "json_invalid":
            why = f"is not JSON: {detail['ctx']['error']} at character {place[0] if place else 0}"
            return [(str(where), why)]
        parts.setdefault(str(where), []).append({**detail, "loc": tuple(place)})
    problems = list[tuple[str, str]]()
    for where, details in parts.items():
        model, data = _model(route, where), error.body if where == "body" else None
        problems += [(dotted((where, *place)), text) for place, text in field_problems(details, model, data)]
    return problems


def dotted(place: Iterable[str | int]) -> str:
    """Return a place with dots between its parts."""
    return ".".join(str(part)[:_MOST_NAME] for part in place)


def check_parameters(request: Request) -> None:
    """Raise RequestValidationError for a parameter that the route does not take: a slip in the name of a filter, or of
    `dry_run`, would change what the request does."""
    if not request.query_params:
        return
    route = request.scope.get("route")
    known = _parameters(route.dependant) if isinstance(route, APIRoute) else ()
    unknown = [name for name in dict.fromkeys(request.query_params.keys()) if name not in known]
    if unknown:
        raise RequestValidationError(
            [{"type": "extra_forbidden", "loc": ("query", name), "msg": ""} for name in unknown]
        )


def _place(detail: Mapping[str, Any], data: Any) -> Place:
    """Return the place of an error without the parts that Pydantic adds: the chosen form of a union, `[key]`."""
    if data is None:
        return tuple(detail["loc"])
    place, last = list[str | int](), len(detail["loc"]) - 1
    for at, part in enumerate(detail["loc"]):
        inside = part in data if isinstance(data, dict) else isinstance(data, list) and isinstance(part, int)
        if inside and (isinstance(data, dict) or part < len(data)):
            place.append(part)
            data = data[part]
        elif at == last and detail["type"] == "missing":
            place.append(part)
    return tuple(place)


def _text(detail: Mapping[str, Any], place: Place, model: Any) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        known = names_at(model, place[:-1]) or []
        listed = f" (known: {', '.join(known)})" if 0 < len(known) <= _MOST_LISTED else ""
        return "unknown field" + did_you_mean(str(place[-1])[:_MOST_NAME], known, listed, form=", did you mean {}?")
    if kind in ("literal_error", "enum", "union_tag_invalid"):
        expected = str(context.get("expected") or context.get("expected_tags"))
        return f"must be one of {expected}{_suggested(detail.get('input'), expected)}"
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"must be {words} {context[name]}{_number(detail.get('input'))}"
    if kind in _LENGTHS:
        name, words, what = _LENGTHS[kind]
        return _length(context[name], words, what)
    if kind == "string_pattern_mismatch":
        return f"must match {context['pattern']}"
    if kind.startswith(("datetime", "date_", "time_delta")):
        return f"must be {_DAY if kind.startswith('date_') else _TIME}"
    if kind in _ALLOWED:
        return f"must be {_ALLOWED[kind]}{_kind(detail)}"
    own = str(detail["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return re.sub(r", got .*$", "", own, flags=re.DOTALL)[:300]


def _length(number: int, words: str, what: str) -> str:
    if words == "at least" and number == 1:
        return "must not be empty"
    ending = {"entr": "y" if number == 1 else "ies"}.get(what, "" if number == 1 else "s")
    return f"must have {words} {number:,} {what}{ending}"


def _suggested(given: Any, expected: str) -> str:
    if not isinstance(given, str):
        return _kind({"input": given})
    return did_you_mean(given[:_MOST_NAME], re.findall(r"'([^']*)'", expected), form=", did you mean {}?")


def _number(given: Any) -> str:
    text = str(given)
    return f", not {text}" if not isinstance(given, bool) and _NUMBER.fullmatch(text) else ""


def _kind(detail: Mapping[str, Any]) -> str:
    """Return the kind of the given value, as JSON has it; nothing of a text, which is all that a URL can hold."""
    kinds = ((bool, "true or false"), ((int, float), "a number"), (list, "a list"), (dict, "an object"))
    given = detail.get("input")
    if given is None:
        return ", not null" if "input" in detail else ""
    if isinstance(given, str) and detail["type"].endswith("_type"):
        return ", not text"
    return next((f", not {words}" for kind, words in kinds if isinstance(given, kind)), "")


def names_at(model: Any, place: Place) -> list[str] | None:
    """Return the fields of the models that may be at this place of a model, None if no model may be there."""
    hints = [model]
    for part in place:
        hints = [inner for hint in hints for inner in _below(hint, part)]
    found = [one for hint in hints for one in _models(hint)]
    if not found:
        return None
    return list(dict.fromkeys(field.alias or name for one in found for name, field in one.model_fields.items()))


def _models(hint: Any) -> Iterator[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    elif get_origin(hint) in (Annotated, Union, UnionType):
        for argument in get_args(hint):
            yield from _models(argument)


def _below(hint: Any, part: str | int) -> Iterator[Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        fields = {field.alias or name: field.annotation for name, field in hint.model_fields.items()}
        yield from (fields[name] for name in fields if name == part)
    elif origin is Annotated:
        yield from _below(arguments[0], part)
    elif origin in (Union, UnionType):
        for argument in arguments:
            yield from _below(argument, part)
    elif isinstance(part, int):
        yield from arguments
    else:
        yield from arguments[1:]


def _model(route: Any, where: str) -> Any:
    """Return the model of a part of the requests of a route."""
    if not isinstance(route, APIRoute):
        return None
    if where == "body":
        return route.body_field.field_info.annotation if route.body_field else None
    if where != "query":
        return None
    return type("Parameters", (BaseModel,), {"__annotations__": dict.fromkeys(_parameters(route.dependant), Any)})


def _parameters(dependant: Dependant) -> Sequence[str]:
    """Return the parameters that a route takes in its URL."""
    own = [(field.alias, names_at(field.field_info.annotation, ())) for field in dependant.query_params]
    models = [fields for _, fields in own if fields is not None]
    names = [alias for alias, fields in own if fields is None]
    inner = (name for dependency in dependant.dependencies for name in _parameters(dependency))
    return [*names, *itertools.chain(*models), *inner]
