"""Lists of things that there are none of here: clients that read them on their way get an empty page."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from instep.api.compat.envelope import page
from instep.api.compat.paging import window
from instep.api.compat.route import Asked

router = APIRouter()
EMPTY = (
    "teams", "roles", "transformations", "transformation-projects", "transformations/package-metadata", "private-links",
    "proxy", "external-logging", "hybrid-deployment-agents", "system-keys", "connector-sdk/packages", "certificates",
    "fingerprints", "dbt/projects",
)  # fmt: skip
_BELOW = ("connections/{id}/certificates", "connections/{id}/fingerprints", "destinations/{id}/certificates",
          "destinations/{id}/fingerprints")  # fmt: skip


def _nothing(request: Request, desk: Asked) -> JSONResponse:
    window(request)
    return page("", [], None)


for path in (*EMPTY, *_BELOW):
    router.add_api_route(f"/{path}", _nothing, methods=["GET"])
