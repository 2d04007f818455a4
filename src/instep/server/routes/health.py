"""Whether the server lives, and whether it can work; the API's own description."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import Depends, FastAPI, Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from instep.errors import InstepError
from instep.monitoring.metrics import MEDIA_TYPE, metrics
from instep.server.access import ServerDep, caller
from instep.server.docs_page import STYLE, page
from instep.server.models import ResponseModel
from instep.server.responses import open_router, router
from instep.server.roles import PREFIX


class Health(ResponseModel):
    status: Literal["ok", "unavailable"]
    version: str = ""
    detail: str = ""


routes = open_router("health")


@routes.get("/healthz", response_model=Health)
def healthz(the: ServerDep) -> Health:
    """The process answers."""
    return Health(status="ok", version=the.version)


@routes.get("/readyz", response_model=Health, responses={503: {"model": Health, "description": "Not now."}})
def readyz(the: ServerDep) -> Any:
    """The state store is readable and of this version."""
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


metrics_routes = router("health")
_TEXT = {"description": "In Prometheus' text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}


@metrics_routes.get("/metrics", response_class=Response, responses={200: _TEXT})
def read_metrics(the: ServerDep) -> Response:
    """Return counters since the store was created, and current gauges. Also at `/metrics`."""
    return Response(metrics(the.store), media_type=MEDIA_TYPE)


def add_alias(app: FastAPI) -> None:
    app.add_api_route("/metrics", read_metrics, dependencies=[Depends(caller)], include_in_schema=False)
