"""What all routes take: the desk of the caller, the body, names out of the path."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import Depends, Request
from pydantic import AfterValidator

from instep.api.compat.body import read
from instep.api.compat.desk import Desk, caller_of
from instep.api.compat.envelope import Refusal
from instep.api.compat.matrix import NEEDS
from instep.api.compat.ports import Ports


def desk(request: Request) -> Desk:
    """Refusal: 401 without a key, 403 where its role or groups do not do, 406 for an Accept that cannot be met."""
    ports: Ports = request.app.state.ports
    path = request.scope["route"].path
    found = Desk(ports, caller_of(request, ports), f"{request.method} /v1{path}", request.url.path)
    found.allow(NEEDS[f"{request.method} {path}"])
    _check_accept(request.headers.get("accept", "*/*"))
    return found


def _check_accept(accept: str) -> None:
    words = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    if not words & {"", "*/*", "application/*", "application/json"}:
        raise Refusal(406, "The answer is application/json; the Accept header does not take it.")


Asked = Annotated[Desk, Depends(desk)]
Body = Annotated[Any, Depends(read)]
Name = Annotated[str, AfterValidator(unquote)]
"""A part of the path, which is matched before it is decoded, so that names may hold slashes."""
