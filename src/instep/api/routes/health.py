"""Whether the server lives, and whether it can work; the API's own description."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from instep.api.access import The
from instep.api.common import open_router
from instep.api.docs import STYLE, page
from instep.api.matrix import PREFIX
from instep.api.wire.health import Health
from instep.errors import InstepError

routes = open_router("health")


@routes.get("/healthz", response_model=Health)
def healthz(the: The) -> Health:
    """The process answers."""
    return Health(status="ok", version=the.version)


@routes.get("/readyz", response_model=Health, responses={503: {"model": Health, "description": "Not now."}})
def readyz(the: The) -> Any:
    """The store can be read, and is of this version."""
    try:
        the.store.events.last_number()
        if outgrown := the.store.outgrown():
            return JSONResponse(Health(status="unavailable", detail=outgrown).model_dump(), 503)
    except InstepError as error:
        return JSONResponse(Health(status="unavailable", detail=error.message).model_dump(), 503)
    return Health(status="ok", version=the.version)


@routes.get(f"{PREFIX}/openapi.json", include_in_schema=False)
def openapi(request: Request) -> Response:
    return JSONResponse(request.app.openapi())


@routes.get(f"{PREFIX}/docs", include_in_schema=False)
def docs(request: Request) -> Response:
    return HTMLResponse(page(request.app.openapi()))


@routes.get(f"{PREFIX}/docs.css", include_in_schema=False)
def style() -> Response:
    return Response(STYLE, media_type="text/css")
