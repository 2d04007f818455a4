"""Events: as pages, and as a stream for those who listen."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import anyio
from anyio.to_thread import run_sync
from fastapi import Header, Query, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from instep.control.resources import sign_in
from instep.server.access import CallerDep, ServerDep, router
from instep.server.context import Caller, ServerContext
from instep.server.models import ResponseModel
from instep.server.problems import ApiProblem
from instep.server.writes import as_json
from instep.store.history.events import LoggedEvent


class EventOut(ResponseModel):
    number: int
    connection: str
    at: datetime
    type: str
    data: dict[str, Any]


routes = router("events")
Of = Annotated[str | None, Query(max_length=200)]
Types = Annotated[tuple[str, ...], Query(max_length=50, description="Only events of these types.")]
_LARGEST = 2**63 - 1
_SILENCE = 15.0  # proxies take a connection that says nothing for dead


@routes.get("/events/stream", response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}})
async def stream(
    request: Request,
    who: CallerDep,
    server: ServerDep,
    connection: Of = None,
    type: Types = (),
    after: Annotated[int | None, Query(ge=0, le=_LARGEST, description="Only events with a higher number.")] = None,
    last: Annotated[str | None, Header(alias="Last-Event-ID", pattern=r"^\d{1,18}$")] = None,
) -> StreamingResponse:
    """Stream server-sent events, oldest first, from now on or after a given number. The stream ends after a while, or
    once its key is revoked or expires; a client that reconnects with Last-Event-ID misses nothing."""
    server.listeners.begin(who.key.id)
    end = partial(server.listeners.end, who.key.id)
    try:
        scope = await run_sync(server.only, who, connection)
        begin = int(last) if last is not None else after
        if begin is None:
            begin = await run_sync(server.store.events.last_number)
    except BaseException:
        end()
        raise
    headers = {**request.state.limit_headers, "X-Accel-Buffering": "no"}
    return _CountedStream(_lines(request, server, who, connection, scope, type, begin), headers, end)


class _CountedStream(StreamingResponse):
    """A stream that tells when it is over, also if nobody has read of it."""

    def __init__(self, lines: AsyncIterator[str], headers: Mapping[str, str], end: Callable[[], None]) -> None:
        super().__init__(lines, media_type="text/event-stream", headers=headers)
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()


async def _lines(
    request: Request,
    server: ServerContext,
    who: Caller,
    connection: str | None,
    scope: Collection[str] | None,
    types: Sequence[str],
    number: int,
) -> AsyncIterator[str]:
    end, last_line = time.monotonic() + server.stream, time.monotonic()
    yield "retry: 2000\n\n"
    while time.monotonic() < end and not await request.is_disconnected():
        if not await run_sync(is_let_in, server, who):
            return
        if who.scoped:  # connections come into its groups, and leave them
            try:
                scope = await run_sync(server.only, who, connection)
            except ApiProblem:  # the one that it names has left them
                return
        find = partial(server.store.events.after, number, types=types, limit=200, connections=scope)
        for event in await run_sync(find):
            number, last_line = event.number, time.monotonic()
            yield _event(event)
        if time.monotonic() - last_line >= _SILENCE:
            last_line = time.monotonic()
            yield ": still here\n\n"
        await anyio.sleep(server.poll)


def is_let_in(server: ServerContext, who: Caller) -> bool:
    """Return whether the key that opened a stream is as it was then, and the session of the page goes on by which it
    came. Those of the page and of people have no secret."""
    key = who.key
    if who.token and sign_in.session_of(server.store, who.token) is None:
        return False
    now = server.store.api_keys.get(key.id)
    has_secret = now.lives(server.store.api_keys.now()) or not key.secrets
    return now.ended is None and has_secret and (now.role, now.groups) == (key.role, key.groups)


def _event(logged_event: LoggedEvent) -> str:
    text = json.dumps(as_json(EventOut.model_validate(logged_event)))
    return f"id: {logged_event.number}\nevent: {logged_event.type}\ndata: {text}\n\n"
