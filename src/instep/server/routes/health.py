"""Liveness and readiness of the server, and the API's description: as a document, and as one page without scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Literal

from fastapi import Depends, FastAPI, Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from instep.errors import InstepError
from instep.monitoring.metrics import MEDIA_TYPE, metrics
from instep.server.access import NEEDS, PREFIX, ServerDep, caller, open_router, router
from instep.server.models import ResponseModel
from instep.server.problems import TITLES


class Health(ResponseModel):
    status: Literal["ok", "unavailable"]
    version: str = ""
    detail: str = ""


routes = open_router("health")


@routes.get("/healthz", response_model=Health)
def healthz(server: ServerDep) -> Health:
    """Report that the process answers."""
    return Health(status="ok", version=server.version)


@routes.get("/readyz", response_model=Health, responses={503: {"model": Health, "description": "Not now."}})
def readyz(server: ServerDep) -> Any:
    """Report whether the state store is readable and of this version."""
    try:
        server.store.events.last_number()
        if outgrown := server.store.reason_unusable():
            return JSONResponse(Health(status="unavailable", detail=outgrown).model_dump(), 503)
    except InstepError as error:
        return JSONResponse(Health(status="unavailable", detail=error.message).model_dump(), 503)
    return Health(status="ok", version=server.version)


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
def read_metrics(server: ServerDep) -> Response:
    """Return counters since the store was created, and current gauges. Also at `/metrics`."""
    return Response(metrics(server.store), media_type=MEDIA_TYPE)


def add_alias(app: FastAPI) -> None:
    app.add_api_route("/metrics", read_metrics, dependencies=[Depends(caller)], include_in_schema=False)


STYLE = """\
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.9em; }
pre { overflow-x: auto; padding: 0.75rem; border: 1px solid; border-radius: 4px; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 1rem 0.3rem 0; border-bottom: 1px solid; }
section { margin-top: 2rem; }
summary { cursor: pointer; padding: 0.3rem 0; }
"""
_INTRO = """\
<p>Send an API key with each request: <code>Authorization: Bearer instep_sk_...</code>, or Basic with the key's id and
secret. Lists have <code>limit</code> and <code>cursor</code>. Writes know <code>dry_run=true</code>
and, as POST, <code>Idempotency-Key</code>; <code>If-Match</code> where it is listed, elsewhere it is refused.
The description for programs is
<a href="openapi.json">openapi.json</a>.</p>
"""


def page(api: Mapping[str, Any]) -> str:
    """Return the whole page; `api` is the OpenAPI document."""
    title = escape(api["info"]["title"])
    head = f'<meta charset="utf-8"><title>{title}</title><meta name="viewport" content="width=device-width">'
    body = "".join([f"<h1>{title}</h1>", _INTRO, *_routes(api), *_problems(), *_schemas(api)])
    head += '<link rel="stylesheet" href="docs.css">'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'


def _routes(api: Mapping[str, Any]) -> Iterator[str]:
    by_tag: dict[str, list[str]] = {}
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation.get("tags", ["other"])[0], []).append(_route(path, method.upper(), operation))
    for tag, found in by_tag.items():
        yield f"<section><h2>{escape(tag)}</h2>{''.join(found)}</section>"


def _route(path: str, method: str, operation: Mapping[str, Any]) -> str:
    needed = NEEDS.get(f"{method} {path.removeprefix(PREFIX)}")
    role = f"needs the role {needed}" if needed else "needs no key"
    rows = "".join(_parameter(one) for one in operation.get("parameters", ()))
    grid = f"<table><tr><th>parameter</th><th>in</th><th>meaning</th></tr>{rows}</table>" if rows else ""
    about = f"<p>{escape(operation.get('description', ''))} <em>({role})</em></p>"
    return f"<details><summary><code>{method} {escape(path)}</code></summary>{about}{grid}{_body(operation)}</details>"


def _parameter(one: Mapping[str, Any]) -> str:
    meaning = one.get("description") or one.get("schema", {}).get("description", "")
    name = escape(one["name"]) + (" *" if one.get("required") else "")
    return f"<tr><td><code>{name}</code></td><td>{escape(one['in'])}</td><td>{escape(meaning)}</td></tr>"


def _body(operation: Mapping[str, Any]) -> str:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    return f'<p>Body: <a href="#schema-{escape(name)}"><code>{escape(name)}</code></a></p>' if name else ""


def _problems() -> Iterator[str]:
    rows = "".join(
        f'<tr id="problem-{code}"><td><code>{code}</code></td><td>{escape(title)}</td></tr>'
        for code, title in TITLES.items()
    )
    yield f"<section><h2>problems</h2><table><tr><th>code</th><th>meaning</th></tr>{rows}</table></section>"


def _schemas(api: Mapping[str, Any]) -> Iterator[str]:
    yield "<section><h2>documents</h2>"
    for name, schema in sorted(api["components"]["schemas"].items()):
        text = escape(json.dumps(schema, indent=2))
        summary = f"<summary><code>{escape(name)}</code></summary>"
        yield f'<details id="schema-{escape(name)}">{summary}<pre>{text}</pre></details>'
    yield "</section>"
