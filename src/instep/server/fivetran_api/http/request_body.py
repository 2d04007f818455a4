"""Request bodies as loosely as clients send them: any JSON media type, none at all, truth values as texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypeVar, get_args

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, PrivateAttr, ValidationError

from instep.server.fivetran_api.http.envelope import Refusal
from instep.server.invalid_fields import dotted, field_problems
from instep.suggest import did_you_mean, first_of

MAX_BODY = 1 << 20
MAX_DEPTH = 24
MAX_NAMED, MAX_NAME = 10, 100
"""The most keys, and the most characters of each, that an answer names."""
DEPTH, MAX_FIELDS = 2, 100
"""The most levels of a body, and the most fields, that the audit log names."""
M = TypeVar("M", bound=BaseModel)

TEST_ONLY = {"run_setup_tests", "trust_certificates", "trust_fingerprints"}
"""Keys that only set-up tests read."""


class RequestBody(BaseModel):
    """A body. Keys that are unknown have no effect, as clients send more than is read, and are named in the answer;
    null counts as absent."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)
    answered: ClassVar[frozenset[str]] = frozenset()
    """Keys of answers, which clients send back with the rest."""
    _unread: tuple[str, ...] = PrivateAttr(())

    @property
    def unread(self) -> tuple[str, ...]:
        """Return the names of what was sent and is not known."""
        return self._unread

    def remark(self, message: str) -> str:
        """Return the message of an answer, with what was not read."""
        return f"{message}. {no_effect(self.unread)}" if self.unread else message


def _as_boolean(value: Any) -> Any:
    return {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value


Truth = Annotated[bool, BeforeValidator(_as_boolean)]


async def read(request: Request) -> Any:
    """Return the body's JSON; {} without a body. Refusal: 415 for another media type, 413 for more than 1 MiB, 400 for
    what is no JSON, has a key twice or is nested too deeply."""
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > MAX_BODY:
            raise Refusal(413, f"The body is larger than {MAX_BODY >> 20} MiB.")
    if not raw.strip():
        return {}
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise Refusal(415, "The Content-Type must be application/json.")
    try:
        document = json.loads(raw, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"The body is not valid JSON: {error}.") from None
    if _depth(document) > MAX_DEPTH:
        raise Refusal(400, f"The body is nested more than {MAX_DEPTH} levels deep.")
    return document


def parse(model: type[M], document: Any) -> M:
    """Return `document` as a body of that form; raises Refusal (400) that names the first wrong key."""
    if not isinstance(document, dict):
        raise Refusal(400, "The body must be a JSON object.")
    try:
        made = model.model_validate(without_null(document))
        if isinstance(made, RequestBody):
            strange = list(_strange(type(made), document))
            made._unread = tuple(
                path + (_suggestion(path, known) if at < MAX_NAMED else "") for at, (path, known) in enumerate(strange)
            )
        return made
    except ValidationError as error:
        first = error.errors(include_url=False)[:1]
        place, text = field_problems(first, model, without_null(document))[0]
        raise Refusal(400, f"{dotted(place)}: {text}.") from None


def no_effect(names: Sequence[str]) -> str:
    """Return the sentence that names what was left out."""
    return f"These settings have no effect here: {first_of(names, MAX_NAMED)}."


def _suggestion(path: str, known: Collection[str]) -> str:
    return did_you_mean(path.rpartition(".")[2], known, form=" (did you mean {}?)")


def _strange(model: type[RequestBody], document: Mapping[str, Any]) -> Iterator[tuple[str, Collection[str]]]:
    """Yield the paths of keys that the model does not know, with those that may have been meant; a member that is no
    value is an object of named bodies."""
    known = {field.alias or name: field for name, field in model.model_fields.items()}
    for key, value in document.items():
        field = known.get(key)
        if field is None and value is not None and key not in model.answered:
            yield key[:MAX_NAME], known.keys()
        elif field is not None and isinstance(value, Mapping):
            for inner in (
                argument
                for argument in get_args(field.annotation)
                if isinstance(argument, type) and issubclass(argument, RequestBody)
            ):
                for name, body in value.items():
                    yield from ((f"{key}.{name}.{path}", names) for path, names in _strange(inner, body or {}))


def fields_of(body: Any, depth: int = DEPTH) -> list[str]:
    """Yield the names of what a body says, with dots between levels: not of nulls, and never a value. Objects that are
    nested deeper than `depth` are named as a whole."""

    def names(value: Any, path: str, level: int) -> Iterator[str]:
        if not isinstance(value, dict) or not value or level == depth:
            yield path
            return
        for name, inner in value.items():
            yield from names(inner, f"{path}.{name[:MAX_NAME]}", level + 1)

    document = without_null(body) if isinstance(body, dict) else {}
    unknown = sorted(path for name, value in document.items() for path in names(value, name[:MAX_NAME], 1))
    left = len(unknown) - MAX_FIELDS
    return [*unknown[:MAX_FIELDS], f"and {left} more"] if left > 0 else unknown


def without_null(value: Any) -> Any:
    """Return the JSON value without the members of objects that are null, at any depth."""
    if isinstance(value, dict):
        return {k: without_null(v) for k, v in value.items() if v is not None}
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("a key is there twice")
    return document


def _no_constant(text: str) -> Callable[..., Any]:
    raise ValueError(f"{text} is not a JSON number")


def _depth(value: Any) -> int:
    deepest, level = 0, [value]
    while level:
        deepest += 1
        level = [v for x in level for v in (x.values() if isinstance(x, dict) else x if isinstance(x, list) else ())]
    return deepest
