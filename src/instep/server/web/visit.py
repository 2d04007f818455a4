"""One request for a page: whose session it is, the API as that caller, and what a page answers.

Every page stands in a `PageRoutes` list. One that is not open needs a session; a form needs the session's token.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from instep.control.resources import sign_in
from instep.control.resources.api_keys import may
from instep.errors import InstepError
from instep.operations.spec import Role
from instep.server.access import server_of
from instep.server.context import Caller, ServerContext
from instep.server.problems import ApiProblem, of_error
from instep.server.web import rendering
from instep.server.web.api_client import ApiClient
from instep.store.server.sessions import Session

COOKIE = "instep_session"
"""The session's cookie, before the port that the address names: browsers send cookies to every port of a host, and two
projects on one machine would sign each other out."""
NOTICE = "instep_notice"
MOST_FIELDS = 2000
HEADERS = {"Content-Security-Policy": rendering.CONTENT_POLICY, "Referrer-Policy": "same-origin"}
"""A form that is sent without a referrer would come without its origin."""


@dataclass(frozen=True)
class Visit:
    """A signed-in request."""

    request: Request
    server: ServerContext
    session: Session
    token: str = field(repr=False)
    form: Mapping[str, list[str]] = field(default_factory=dict, repr=False)
    """The fields of a form, each with its values in order."""

    @property
    def caller(self) -> Caller:
        """Return whose request it is."""
        return Caller(self.session.key, self.token)

    @property
    def api(self) -> ApiClient:
        """Return the API as this caller."""
        return ApiClient(self.request.app, self.caller)

    @property
    def path(self) -> Mapping[str, str]:
        """Return the values in the path."""
        return self.request.path_params

    def query(self, name: str, default: str = "") -> str:
        """Return a parameter of the address."""
        return self.request.query_params.get(name, default)

    def query_all(self, name: str) -> list[str]:
        """Return all values of a parameter of the address."""
        return self.request.query_params.getlist(name)

    def sent(self, name: str, default: str = "") -> str:
        """Return the first value of a field of the form."""
        return (self.form.get(name) or [default])[0]

    def may(self, role: Role) -> bool:
        """Return True if the caller has this role or a higher one."""
        return may(self.caller.key.role, role)

    async def here(self) -> str:
        """Return the address of this page, which a form comes back to."""
        query = self.request.url.query
        return self.request.url.path + (f"?{query}" if query else "")

    async def render(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Return a page in the frame that all pages have."""
        return await show(self.request, template, status, visit=self, **values)

    def go(self, address: str, notice: str = "", undo: str = "") -> RedirectResponse:
        """Return the way to another page, with a notice there.

        `undo`: the address of the form that takes it back, with its fields.
        """
        answer = RedirectResponse(local(address), 303)
        if notice:
            plain = f"{notice[:600]}\n{undo}"
            text = quote(f"{sign_in.notice_mark(self.token, plain)}\n{plain}")
            answer.set_cookie(NOTICE, text, max_age=60, httponly=True, samesite="lax", path="/")
        return answer


PageCode = Callable[[Visit], Awaitable[Response]]
OpenPageCode = Callable[[Request], Awaitable[Response]]


class PageRoutes:
    """The routes of a screen, and the least role that each needs."""

    def __init__(self) -> None:
        self.routes: list[Route] = []
        self.roles: dict[str, Role | None] = {}

    def page(self, path: str, role: Role = "viewer") -> Callable[[PageCode], PageCode]:
        """Add a page that is read."""
        return self._add(path, "GET", role)

    def form(self, path: str, role: Role = "viewer") -> Callable[[PageCode], PageCode]:
        """Add the target of a form. The role of what it does is checked by the API."""
        return self._add(path, "POST", role)

    def open(self, path: str, method: str = "GET") -> Callable[[OpenPageCode], OpenPageCode]:
        """Add a page without a session."""

        def add(code: OpenPageCode) -> OpenPageCode:
            self.routes.append(Route(path, _guarded(code), methods=[method], name=code.__name__))
            self.roles[f"{method} {path}"] = None
            return code

        return add

    def _add(self, path: str, method: str, role: Role) -> Callable[[PageCode], PageCode]:
        def add(code: PageCode) -> PageCode:
            self.routes.append(Route(path, _signed_in(code, role), methods=[method], name=code.__name__))
            self.roles[f"{method} {path}"] = role
            return code

        return add


def _guarded(code: OpenPageCode) -> OpenPageCode:
    async def endpoint(request: Request) -> Response:
        try:
            return await code(request)
        except ApiProblem as problem:
            return await show(request, "problem.html", problem.status, problem=problem, visit=None)
        except InstepError as error:
            known = of_error(error)
            return await show(request, "problem.html", known.status, problem=known, visit=None)

    return endpoint


def _signed_in(code: PageCode, role: Role) -> OpenPageCode:
    async def endpoint(request: Request) -> Response:
        server, token = server_of(request), request.cookies.get(cookie_of(request), "")
        session = await run_sync(sign_in.session_of, server.store, token)
        if session is None:
            return await _to_sign_in(request)
        visit = Visit(request, server, session, token, await read_form(request))
        try:
            server.rates.count(session.key.id)
            if request.method == "POST":
                check_origin(request)
                if not hmac.compare_digest(visit.sent("form_token").encode(), sign_in.form_token(token).encode()):
                    raise ApiProblem(403, "forbidden", "this form is not of your session", "open the page again")
            if not visit.may(role):
                why = f"this page needs the role {role}; {session.key.name} is {session.key.role}"
                raise ApiProblem(403, "forbidden", why, "ask an admin for the role, or go back")
            return await code(visit)
        except ApiProblem as problem:
            return await visit.render("problem.html", problem.status, problem=problem)
        except InstepError as error:
            known = of_error(error)
            return await visit.render("problem.html", known.status, problem=known)

    return endpoint


def cookie_of(request: Request) -> str:
    """Return the name of the session's cookie at the address that the browser asks."""
    return f"{COOKIE}_{request.url.port}" if request.url.port else COOKIE


async def _to_sign_in(request: Request) -> Response:
    place = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    back = quote(place, safe="") if request.method == "GET" and place != "/" else ""
    return RedirectResponse(f"/sign-in?back={back}" if back else "/sign-in", 303)


async def read_form(request: Request) -> dict[str, list[str]]:
    """Return the fields of a form. Raises ApiProblem for one that is too long or no text."""
    if request.method != "POST":
        return {}
    try:
        pairs = parse_qsl(
            (await request.body()).decode(),
            keep_blank_values=True,
            strict_parsing=False,
            max_num_fields=MOST_FIELDS,
            errors="strict",
        )
    except ValueError:
        raise ApiProblem(400, "unreadable", "the form cannot be read", "open the page again") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        if any(ord(one) < 32 and one not in "\r\n\t" for one in value):
            raise ApiProblem(400, "unreadable", f"the field {name[:50]!r} has control characters", "take them out")
        fields.setdefault(name, []).append(value.replace("\r\n", "\n"))
    return fields


def check_origin(request: Request) -> None:
    """Raise problem 403 for a form that another site has sent."""
    site, origin = request.headers.get("sec-fetch-site", ""), request.headers.get("origin", "")
    same_origin = origin == "" or urlsplit(origin).netloc == request.headers.get("host", "")
    if not (site in ("same-origin", "none") or (site == "" and same_origin)):
        raise ApiProblem(403, "forbidden", "this form was sent by another site", "open the page here")


def local(address: str) -> str:
    """Return an address of this server; anything else becomes the home page."""
    parts = urlsplit(address)
    fine = address.startswith("/") and not address.startswith(("//", "/\\")) and not parts.scheme and not parts.netloc
    return address if fine and "\n" not in address and "\\" not in address else "/"


async def show(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page made of a template, and forget the notice that it has shown."""
    visit = values.get("visit")
    text, undo = notice_of(request, visit.token) if visit else ("", None)
    content = rendering.render(template, request=request, notice=text, notice_undo=undo, **values)
    answer = HTMLResponse(content, status, HEADERS)
    if NOTICE in request.cookies:
        answer.delete_cookie(NOTICE, path="/")
    return answer


def notice_of(request: Request, token: str) -> tuple[str, tuple[str, list[tuple[str, str]]] | None]:
    """Return what the last form of this session has done, and the form that takes it back: its address and its fields.
    A cookie with another mark was written by somebody else, who must not offer anything."""
    mark, _, plain = unquote(request.cookies.get(NOTICE, "")).partition("\n")
    if not hmac.compare_digest(mark.encode(), sign_in.notice_mark(token, plain).encode()):
        return "", None
    text, _, undo = plain.partition("\n")
    parts = urlsplit(undo)
    return text, (parts.path, parse_qsl(parts.query)) if undo and local(undo) == undo else None
