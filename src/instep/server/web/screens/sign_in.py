"""Signing in and out."""

from __future__ import annotations

from typing import Any

from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from instep.control.resources import sign_in
from instep.server.access import address_of, server_of
from instep.server.problems import ApiProblem
from instep.server.web import oidc
from instep.server.web.visit import PageRoutes, Visit, check_origin, cookie_of, local, read_form, show

pages = PageRoutes()
ATTEMPT = "instep_sign_in"


async def _ask(request: Request, back: str, status: int = 200, **values: Any) -> Response:
    issuer = server_of(request).project.model.oidc.issuer
    return await show(request, "sign_in.html", status, visit=None, back=back, issuer=issuer, **{"name": "", **values})


@pages.open("/sign-in")
async def ask(request: Request) -> Response:
    """Show the form."""
    return await _ask(request, local(request.query_params.get("back", "/")))


@pages.open("/sign-in", "POST")
async def check(request: Request) -> Response:
    """Begin a session with a name and its password, or with an API key."""
    server = server_of(request)
    check_origin(request)
    form = await read_form(request)
    name, password, back = ((form.get(one) or [""])[0] for one in ("name", "password", "back"))
    if password.startswith("instep_sk_"):
        begun = await run_sync(sign_in.with_secret, server.store, password)
        if begun is None:
            server.rates.fail(address_of(request))
    else:
        server.rates.guess(address_of(request), name)
        begun = await run_sync(sign_in.with_password, server.store, name, password)
    if begun is None:
        problem = ApiProblem(401, "unauthorized", "name and password do not go together", "an API key does as well")
        return await _ask(request, local(back or "/"), 401, name=name, problem=problem)
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
    server.linked.append(begun.token)
    return _signed_in(request, begun, "/")


@pages.open("/sign-in/oidc")
async def ask_provider(request: Request) -> Response:
    """Redirect to the provider."""
    provider = _provider(request)
    attempt = oidc.SignInAttempt.new()
    address = await run_sync(provider.address, attempt, _callback(request))
    answer = RedirectResponse(address, 303)
    _set_cookie(request, answer, ATTEMPT, attempt.text(), 600)
    return answer


@pages.open("/sign-in/oidc/done")
async def back_from_provider(request: Request) -> Response:
    """Begin the session of a person whom the provider sends back."""
    provider, attempt = _provider(request), oidc.SignInAttempt.of(request.cookies.get(ATTEMPT, ""))
    given = request.query_params
    if attempt is None or given.get("state") != attempt.state or not given.get("code"):
        why = "the provider has refused" if given.get("error") else "this sign-in was not begun in this browser"
        raise ApiProblem(403, "forbidden", why, "sign in again")
    claims = await run_sync(provider.claims, attempt, given["code"], _callback(request))
    begun = await run_sync(oidc.signed_in, server_of(request).store, provider.section, claims)
    answer = _signed_in(request, begun, "/")
    answer.delete_cookie(ATTEMPT, path="/")
    return answer


def _provider(request: Request) -> oidc.Provider:
    provider = oidc.provider_of(server_of(request))
    if provider is None:
        raise ApiProblem(404, "not_found", "this project names no provider", "see `oidc:` in instep.yml")
    return provider


def _callback(request: Request) -> str:
    """Return the address that the provider sends people back to: below `server_url`, or where they came from."""
    base = server_of(request).project.model.server_url or str(request.base_url).rstrip("/")
    return f"{base}/sign-in/oidc/done"


@pages.form("/sign-out")
async def leave(visit: Visit) -> Response:
    """End the session."""
    await run_sync(sign_in.end, visit.server.store, visit.token)
    answer = RedirectResponse("/sign-in", 303)
    answer.delete_cookie(cookie_of(visit.request), path="/")
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
    _set_cookie(request, answer, cookie_of(request), begun.token, int(sign_in.LASTS.total_seconds()))
    return answer


def _set_cookie(request: Request, answer: Response, name: str, value: str, seconds: int) -> None:
    secure = request.url.scheme == "https"
    answer.set_cookie(name, value, max_age=seconds, httponly=True, samesite="lax", secure=secure, path="/")
