"""The frame of every write: one transaction with its audit entry, a rehearsal that is rolled back (`dry_run`), the same
answer to a request that is sent again (`Idempotency-Key`), a check that nothing has moved since (`If-Match`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Header, Query, Request
from fastapi.encoders import jsonable_encoder
from starlette.responses import JSONResponse, Response

from instep.server.access import CallerDep, ServerDep, route_name
from instep.server.context import Caller
from instep.server.problems import MEDIA_TYPE, ApiProblem
from instep.store.server.audit import StoredAnswer
from instep.store.store import Store


def as_json(document: Any) -> Any:
    """Return a value as JSON has it. Keys stay whatever their names are: by itself FastAPI leaves out those that begin
    with `_sa`, which may be columns."""
    return jsonable_encoder(document, sqlalchemy_safe=False)


Token = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern="^[!-~]+$",
        description="A key of your choice. A request repeated with it within a day gets the same response and is not "
        "carried out again.",
    ),
]
Match = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=1000,
        description="The ETag that was read; refused with 412 if the object has changed since.",
    ),
]
DryRun = Annotated[bool, Query(description="Run all checks but change nothing; the response shows what would happen.")]


@dataclass(frozen=True)
class WriteAnswer:
    """Answer of a write. `detail` is what the audit log keeps; `replay_body` replaces the body for a request that is
    sent again, where the body holds a secret."""

    body: Mapping[str, Any] = field(repr=False)
    status: int = 200
    detail: Mapping[str, Any] = field(default_factory=dict)
    replay_body: Mapping[str, Any] | None = field(default=None, repr=False)


class _RolledBack(Exception):
    """Ends a rehearsal."""


@dataclass(frozen=True)
class Write:
    """One write request. `request` is what is asked, word for word."""

    store: Store
    caller: Caller
    request: bytes = field(repr=False)
    token: str | None
    match: str | None
    dry_run: bool
    headers: Mapping[str, str]
    looked: list[bool] = field(default_factory=list, repr=False)
    """Not empty once `check` has looked at If-Match."""

    def run(self, action: str, target: str, do: Callable[[], WriteAnswer]) -> Response:
        """Do it, writes it down, and answers; all in one transaction, so that none is there without the others."""
        answer: WriteAnswer | None = None
        try:
            with self.store.transaction():
                if (again := self._stored_answer()) is not None:
                    return self._response(again.body, again.status, {"Idempotent-Replayed": "true"})
                answer = do()
                if self.match is not None and not self.looked:
                    raise _unchecked(f"{action} does not check")  # all of it is taken back
                if self.dry_run:
                    raise _RolledBack
                self._write_down(action, target, answer)
        except _RolledBack:
            assert answer is not None
            return self._response({**answer.body, "dry_run": True}, 200)
        return self._response(answer.body, answer.status)

    def check(self, *documents: Mapping[str, Any]) -> None:
        """Raise problem 412 if the client has read none of these documents: the current one, in each form in which
        it may be read."""
        self.looked.append(True)
        if self.match is None or self.match.strip() == "*":
            return
        if not {etag(document) for document in documents} & {one.strip() for one in self.match.split(",")}:
            raise ApiProblem(
                412, "precondition_failed", "the object has changed since it was read", "read it again, then decide"
            )

    def repeated(self) -> bool:
        """Return True if this very request was carried out before: for what is done outside of the transaction."""
        return self._stored_answer() is not None

    def _stored_answer(self) -> StoredAnswer | None:
        if self.token is None or self.dry_run:
            return None
        given = self.store.idempotency.find(self.caller.key.id, self.token)
        if given is not None and not given.answers(self.request):
            why = f"Idempotency-Key {self.token!r} was sent with another request"
            raise ApiProblem(422, "repeated_differently", why, "use a new key for a new request")
        return given

    def _write_down(self, action: str, target: str, answer: WriteAnswer) -> None:
        self.store.audit.add(self.caller.who, action, target, as_json(answer.detail))
        if self.token is not None:
            body = as_json(answer.body if answer.replay_body is None else answer.replay_body)
            self.store.idempotency.store_answer(self.caller.key.id, self.token, self.request, answer.status, body)

    def _response(self, body: Mapping[str, Any], status: int, more: Mapping[str, str] | None = None) -> Response:
        media = MEDIA_TYPE if status >= 400 else None
        return JSONResponse(as_json(body), status, {**self.headers, **(more or {})}, media)


async def write(
    request: Request, who: CallerDep, server: ServerDep, dry_run: DryRun = False, token: Token = None
) -> Write:
    fingerprint = json.dumps([request.method, _address(request), str(dry_run), (await request.body()).decode()])
    return Write(server.store, who, fingerprint.encode(), token, None, dry_run, request.state.limit_headers)


async def unmatched(request: Request, writes: Annotated[Write, Depends(write)]) -> Write:
    """Raise problem 400 for an If-Match, before anything is done: nothing that was read could be compared with it."""
    if "if-match" in request.headers:
        raise _unchecked(f"{route_name(request)} does not check")
    return writes


async def matched(writes: Annotated[Write, Depends(write)], match: Match = None) -> Write:
    """Return the write with its If-Match; `run` refuses one that the route has not given to `check`."""
    return replace(writes, match=match)


def _unchecked(who: str) -> ApiProblem:
    why = f"{who} the header If-Match, so nothing was done"
    return ApiProblem(400, "unreadable", why, "leave If-Match out; the API's description lists it where it is checked")


def _address(request: Request) -> str:
    """Return path and parameters, in a fixed order: a parameter that decides what becomes of tables is part of the
    request."""
    parameters = sorted((name, value) for name, value in request.query_params.multi_items() if name != "dry_run")
    return request.url.path + (f"?{urlencode(parameters)}" if parameters else "")


Writes = Annotated[Write, Depends(unmatched)]
"""A write of what has no ETag."""
Matched = Annotated[Write, Depends(matched)]
"""A write of what is read with an ETag: it calls `check`."""


def etag(document: Mapping[str, Any]) -> str:
    """Return a strong tag of a JSON-ready document."""
    text = json.dumps(as_json(document), sort_keys=True, separators=(",", ":"))
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


def tagged(request: Request, document: Mapping[str, Any]) -> Response:
    """Return the document with its ETag; 304 if the client has this one, or (`*`) any."""
    tag, headers = etag(document), dict(request.state.limit_headers)
    known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    if tag in known or "*" in known:
        return Response(status_code=304, headers={"ETag": tag, **headers})
    return JSONResponse(as_json(document), headers={"ETag": tag, **headers})
