"""The page's way to the API: requests to this same application, in this process, as the signed-in caller.

Roles, groups, bounds, ETags, rehearsals and the audit log are those of the API, because it is the API that answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlencode

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from instep.server.access import PREFIX, SIGNED_IN
from instep.server.context import Caller
from instep.server.problems import TITLES, ApiProblem

_KNOWN = ("type", "title", "status", "detail", "code", "hint", "docs")


@dataclass(frozen=True)
class ApiAnswer:
    """The answer to a request that succeeded."""

    status: int
    document: Any
    headers: Mapping[str, str]

    @property
    def etag(self) -> str:
        """Return the tag that the next write has to match; "" if the document has none."""
        return self.headers.get("etag", "")


@dataclass(frozen=True)
class ApiClient:
    """Asks the API below /api/v1 as `caller`."""

    app: ASGIApp
    caller: Caller
    headers: Mapping[str, str] = field(default_factory=dict)

    async def get(self, path: str, **parameters: Any) -> Any:
        """Return the document at a path below /api/v1; parameters that are None or "" are left out."""
        return (await self.send("GET", path, parameters=parameters)).document

    async def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        parameters: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ApiAnswer:
        """Send a request; raise ApiProblem for an answer that is one."""
        query = _query(parameters or {})
        payload = b"" if body is None else json.dumps(body).encode()
        sent = {"content-type": "application/json", "content-length": str(len(payload))} if body is not None else {}
        status, answer_headers, content = await self._exchange(
            method, PREFIX + path, query, {**sent, **self.headers, **(headers or {})}, payload
        )
        document = json.loads(content) if content else None
        if status >= 400:
            raise _problem(status, document or {}, answer_headers)
        return ApiAnswer(status, document, answer_headers)

    def stream(self, path: str, parameters: Mapping[str, Any], headers: Mapping[str, str]) -> Response:
        """Return the answer of the API to a GET as it comes, part by part."""
        return _Forwarded(self.app, self._scope("GET", PREFIX + path, _query(parameters), headers))

    def _scope(self, method: str, path: str, query: str, headers: Mapping[str, str]) -> dict[str, Any]:
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
            "client": None,
            "server": ("instep", 80),
            SIGNED_IN: self.caller,
        }

    async def _exchange(
        self, method: str, path: str, query: str, headers: Mapping[str, str], payload: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        scope = self._scope(method, path, query, headers)
        parts: list[bytes] = []
        start: dict[str, Any] = {}
        sent = False

        async def receive() -> Message:
            nonlocal sent
            if sent:
                return {"type": "http.disconnect"}
            sent = True
            return {"type": "http.request", "body": payload, "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            elif message["type"] == "http.response.body":
                parts.append(message.get("body", b""))

        await self.app(scope, receive, send)
        answer_headers = {name.decode().lower(): value.decode("latin-1") for name, value in start["headers"]}
        return int(start["status"]), answer_headers, b"".join(parts)


class _Forwarded(Response):
    """The answer of an application to another request than the one that it is the answer to."""

    def __init__(self, app: ASGIApp, scope: Scope) -> None:
        super().__init__()
        self.app, self.scope = app, scope

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on to the application."""
        await self.app({**self.scope, "client": scope.get("client")}, receive, send)


def _query(parameters: Mapping[str, Any]) -> str:
    """Return parameters as an address has them, without those that are None or empty."""
    given = {name: one for name, one in parameters.items() if one not in (None, "", [], ())}
    return urlencode({name: _text(one) for name, one in given.items()}, doseq=True)


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return list(value) if isinstance(value, list | tuple) else value


def _problem(status: int, document: Mapping[str, Any], headers: Mapping[str, str]) -> ApiProblem:
    code = str(document.get("code", "internal"))
    more = {name: value for name, value in document.items() if name not in _KNOWN}
    detail = str(document.get("detail", "the request failed"))
    return ApiProblem(status, code if code in TITLES else "internal", detail, str(document.get("hint", "")), more=more)
