"""Signing in and out."""

from __future__ import annotations

from typing import Any

from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from instep.control.resources import sign_in
from instep.server.access import address_of, server_of
from instep.server.problems import ApiProblem
from instep.server.web.visit import COOKIE, Pages, Visit, check_origin, local, read_form, show

pages = Pages()


@pages.open("/sign-in")
async def ask(request: Request) -> Response:
    """Show the form."""
    return await show(request, "sign_in.html", visit=None, back=local(request.query_params.get("back", "/")), name="")


@pages.open("/sign-in", "POST")
async def check(request: Request) -> Response:
    """Begin a session with a name and its password, or with an API key."""
    server = server_of(request)
    check_origin(request)
    form = await read_form(request)
    name, password, back = ((form.get(one) or [""])[0] for one in ("name", "password", "back"))
    if password.startswith("instep_sk_"):
        begun = await run_sync(sign_in.with_secret, server.store, password)
    else:
        begun = await run_sync(sign_in.with_password, server.store, name, password)
    if begun is None:
        server.rates.fail(address_of(request))
        problem = ApiProblem(401, "unauthorized", "name and password do not go together", "an API key does as well")
        return await show(request, "sign_in.html", 401, visit=None, back=local(back or "/"), name=name, problem=problem)
    return _signed_in(request, begun, local(back or "/"))


@pages.open("/sign-in/once/{token}")
async def ask_once(request: Request) -> Response:
    """Show a button: a program that looks at links must not use this one up."""
    return await show(request, "sign_in_once.html", visit=None, token=request.path_params["token"])


@pages.open("/sign-in/once/{token}", "POST")
async def use_once(request: Request) -> Response:
    """Begin the session of a one-time link."""
    server = server_of(request)
    check_origin(request)
    begun = await run_sync(sign_in.with_link, server.store, request.path_params["token"])
    if begun is None:
        server.rates.fail(address_of(request))
        raise ApiProblem(401, "unauthorized", "this link has expired or was used", "make another: instep ui")
    return _signed_in(request, begun, "/")


@pages.form("/sign-out")
async def leave(visit: Visit) -> Response:
    """End the session."""
    await run_sync(sign_in.end, visit.server.store, visit.token)
    answer = RedirectResponse("/sign-in", 303)
    answer.delete_cookie(COOKIE, path="/")
    return answer


@pages.form("/appearance")
async def appearance(visit: Visit) -> Response:
    """Keep this browser's theme, and whether single keys work."""
    answer = visit.go(visit.sent("back", "/"))
    for name, values in (("theme", ("auto", "light", "dark")), ("keys", ("on", "off"))):
        if visit.sent(name) in values:
            answer.set_cookie(
                f"instep_{name}", visit.sent(name), max_age=31_536_000, httponly=True, samesite="lax", path="/"
            )
    return answer


def _signed_in(request: Request, begun: Any, back: str) -> Response:
    answer = RedirectResponse(back, 303)
    answer.set_cookie(
        COOKIE,
        begun.token,
        max_age=int(sign_in.LASTS.total_seconds()),
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
        path="/",
    )
    return answer
