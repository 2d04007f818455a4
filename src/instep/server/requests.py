"""The bodies of requests for operations, made of their records."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import pydantic
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, create_model

from instep.operations.spec import Options, Query, Request, served_fields
from instep.server.models import RequestModel


class Requested(RequestModel):
    """The body of a request for an operation."""


_MODELS: dict[type[Options], type[Requested]] = {}
_RECORDS: dict[type[Requested], type[Options]] = {}


def request_model(record: type[Options], without: tuple[str, ...] = ()) -> type[Requested]:
    """Return the body of a request: the fields of its record that are not in the path, each with the text that stands
    beneath it."""
    if record not in _MODELS:
        hints, texts = served_fields(record), texts_of(record)
        made: dict[str, Any] = {
            field.name: (
                _as_body(hints[field.name]),
                pydantic.Field(**_default(field), description=texts.get(field.name)),
            )
            for field in sorted(fields(record), key=lambda one: bool(one.kw_only))  # the reason comes last
            if field.name in hints and field.name not in without
        }
        _MODELS[record] = create_model(record.__name__, __base__=Requested, __doc__=record.__doc__, **made)
        _RECORDS[_MODELS[record]] = record
    return _MODELS[record]


def parts_of(body: type[Requested]) -> dict[type[Requested], type[Options]]:
    """Return the bodies of the objects within a body, with their records."""
    hints = served_fields(_RECORDS[body])
    records = {part for name in body.model_fields for part in _records_in(hints[name])}
    return {request_model(record): record for record in records}


def _records_in(hint: Any) -> Iterator[type[Options]]:
    if isinstance(hint, type) and issubclass(hint, Options):
        yield hint
    for argument in get_args(hint):
        yield from _records_in(argument)


def _as_body(hint: Any) -> Any:
    """Return a type with the bodies of the records in it: unknown fields of an object are mistakes, too."""
    if isinstance(hint, type) and issubclass(hint, Options):
        return request_model(hint)
    if not any(_records_in(hint)):
        return hint
    origin, arguments = get_origin(hint), tuple(_as_body(argument) for argument in get_args(hint))
    if origin is Annotated:
        return Annotated[(arguments[0], *hint.__metadata__)]
    return reduce(or_, arguments) if origin in (Union, UnionType) else origin[arguments]


def record_of(body: Requested, **more: Any) -> Any:
    """Return the record of a body; `more`: the fields that are in the path. Raises ValueError for fields that do not go
    together."""
    return _RECORDS[type(body)](**more, **{name: _in_record(getattr(body, name)) for name in type(body).model_fields})


def _in_record(value: Any) -> Any:
    if isinstance(value, Requested):
        return record_of(value)
    return tuple(_in_record(one) for one in value) if isinstance(value, tuple) else value


def parameters_model(record: type[Query], base: type[BaseModel], without: tuple[str, ...] = ()) -> type[BaseModel]:
    """Return the parameters of a query's URL: the fields of its record that are not in the path."""
    hints, texts = get_type_hints(record, include_extras=True), texts_of(record)
    made: dict[str, Any] = {
        field.name: (hints[field.name], pydantic.Field(**_default(field), description=texts.get(field.name)))
        for field in fields(record)
        if field.name not in without
    }
    return create_model(f"{record.__name__}Parameters", __base__=base, **made)


R = TypeVar("R", bound=Request)


def requested(record: type[R]) -> Callable[..., R]:
    """Return the dependency of a route that reads the body as this record."""

    def read(body: Requested) -> R:
        try:
            return cast(R, record_of(body))
        except ValueError as error:  # fields that do not go together
            raise RequestValidationError([{"type": "value_error", "loc": ("body",), "msg": str(error)}]) from None

    read.__annotations__["body"] = request_model(record)
    return read


def texts_of(record: type[Any]) -> dict[str, str]:
    """Return the text that stands beneath each field of a record."""
    return dict(_texts(record))


def records_in(hint: Any, records: set[type[Any]] | None = None) -> set[type[Any]]:
    """Return the dataclasses in a type: in its parameters, and in the fields of models and of these dataclasses."""
    records = set() if records is None else records
    for part in get_args(hint):
        records_in(part, records)
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        for field in hint.model_fields.values():
            records_in(field.annotation, records)
    elif isinstance(hint, type) and is_dataclass(hint) and hint not in records:
        records.add(hint)
        for part in get_type_hints(hint).values():
            records_in(part, records)
    return records


def _default(field: Field[Any]) -> Mapping[str, Any]:
    """Return the default of a field as pydantic takes it."""
    if field.default_factory is not MISSING:
        return {"default_factory": field.default_factory}
    return {"default": ... if field.default is MISSING else field.default}


def _texts(record: type[Any]) -> Iterator[tuple[str, str]]:
    for cls in reversed(record.__mro__[:-1]):
        body = _classes(cls.__module__).get(cls.__qualname__)
        if body is None:  # made of its base: it has no fields of its own
            continue
        for field, text in zip(body.body, body.body[1:], strict=False):
            if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
                continue
            if (
                isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                yield field.target.id, inspect.cleandoc(text.value.value)


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    """Return the classes of a module by name. `inspect.getsource` would parse the module for each of them."""
    body = ast.parse(inspect.getsource(sys.modules[module])).body
    return {one.name: one for one in body if isinstance(one, ast.ClassDef)}
