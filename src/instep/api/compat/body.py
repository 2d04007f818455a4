"""Request bodies as loosely as clients send them: any JSON media type, none at all, truth values as texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from instep.api.compat.envelope import Refusal

MAX_BODY = 1 << 20
MAX_DEPTH = 24
M = TypeVar("M", bound=BaseModel)


class Wire(BaseModel):
    """A body. Unknown keys are ignored, as clients send more than is read; null counts as absent."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)


def _truth(value: Any) -> Any:
    return {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value


Truth = Annotated[bool, BeforeValidator(_truth)]


async def read(request: Request) -> Any:
    """The body's JSON; {} without a body. Refusal: 415 for another media type, 413 for more than 1 MiB, 400 for what is
    no JSON, has a key twice or is nested too deeply."""
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
        found = json.loads(raw, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"The body is not valid JSON: {error}.") from None
    if _depth(found) > MAX_DEPTH:
        raise Refusal(400, f"The body is nested more than {MAX_DEPTH} levels deep.")
    return found


def parse(model: type[M], found: Any) -> M:
    """`found` as a body of that form; Refusal (400) that names the first key that is wrong."""
    if not isinstance(found, dict):
        raise Refusal(400, "The body must be a JSON object.")
    try:
        return model.model_validate(without_null(found))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise Refusal(400, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def without_null(value: Any) -> Any:
    """The JSON value without the members of objects that are null, at any depth."""
    if isinstance(value, dict):
        return {k: without_null(v) for k, v in value.items() if v is not None}
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _no_constant(text: str) -> Callable[..., Any]:
    raise ValueError(f"{text} is no JSON number")


def _depth(value: Any) -> int:
    deepest, level = 0, [value]
    while level:
        deepest += 1
        level = [v for x in level for v in (x.values() if isinstance(x, dict) else x if isinstance(x, list) else ())]
    return deepest
