"""The page over a project: clients that are signed in with each role, and a real browser on a real port."""

from __future__ import annotations

import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import uvicorn
from starlette.testclient import TestClient

from instep.bootstrap import App
from instep.control.resources import api_keys, sign_in
from instep.server.app import create_app
from instep.server.rates import Rates
from instep.server.web.visit import COOKIE
from instep.store.store import Store

CHROMIUM = shutil.which("chromium")
WAIT = 60_000.0
"""Milliseconds that a browser waits for what has to come: a machine may be ten times slower."""


def application(app: App) -> Any:
    """Return the server's application over an open project, without limits on requests."""
    return create_app(app, rates=Rates(requests=1_000_000, failures=1_000_000), poll=0.05, stream=5.0)


@dataclass
class Site:
    """The page in this process. `get` and `post` are those of a browser that is signed in with a role."""

    app: App
    made: Any = field(repr=False)
    tokens: dict[str, str] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return self.app.store

    def token(self, role: str, *groups: str) -> str:
        """Return the token of a session of a key with this role."""
        name = "-".join((role, *groups))
        if name not in self.tokens:
            key = api_keys.create(self.store, name, role, "test", groups=groups).key
            self.tokens[name] = sign_in.begin(self.store, key).token
        return self.tokens[name]

    def client(self, role: str = "admin", *groups: str) -> TestClient:
        """Return a browser without scripts that is signed in."""
        made = TestClient(self.made, follow_redirects=False, base_url="http://testserver")
        made.cookies.set(COOKIE, self.token(role, *groups))
        return made

    def get(self, path: str, role: str = "admin", status: int = 200) -> str:
        """Return the text of a page, whose status is checked."""
        answer = self.client(role).get(path)
        assert answer.status_code == status, (path, answer.status_code, answer.text[:2000])
        return answer.text

    def post(self, path: str, by: str = "admin", /, **fields: Any) -> httpx2.Response:
        """Send a form as the page's own, as the role `by`."""
        data = {"form_token": sign_in.form_token(self.token(by)), **fields}
        return self.client(by).post(path, data=data)


def site(app: App) -> Site:
    """Return the page over an open project."""
    return Site(app, application(app))


@contextmanager
def served(app: App) -> Iterator[str]:
    """Serve on a free port of loopback; the address."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = uvicorn.Server(uvicorn.Config(application(app), log_config=None, server_header=False, ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive(), "the server has ended"
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{taken.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@dataclass
class Tab:
    """A browser tab that is signed in. `faults`: console errors, reports of the content policy, requests that would
    leave the host."""

    page: Any
    base: str
    faults: list[str] = field(default_factory=list)

    def open(self, path: str) -> Any:
        """Open a page of the server and wait until it is there."""
        self.page.goto(self.base + path, wait_until="load")
        return self.page

    def violations(self) -> list[str]:
        """Return what axe finds on the page as it stands."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page).response["violations"]
        return [f"{one['id']}: {node['html'][:200]}" for one in found for node in one["nodes"]]


@contextmanager
def tab(
    browser: Any, base: str, token: str, *, theme: str = "light", scripts: bool = True, zone: str = ""
) -> Iterator[Tab]:
    """Open a tab that is signed in; what must not happen is checked when it closes."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900},
        color_scheme=theme,
        java_script_enabled=scripts,
        reduced_motion="reduce",
        timezone_id=zone or None,
        bypass_csp=False,
    )
    context.set_default_timeout(WAIT)
    context.add_cookies([{"name": f"{COOKIE}_{urlsplit(base).port}", "value": token, "url": base}])
    opened = Tab(context.new_page(), base)

    def within(route: Any) -> None:
        if urlsplit(route.request.url).netloc == urlsplit(base).netloc or route.request.url.startswith("data:"):
            route.continue_()
        else:
            opened.faults.append(f"request to {route.request.url}")
            route.abort()

    context.route("**/*", within)
    opened.page.on("console", lambda one: opened.faults.append(one.text) if one.type == "error" else None)
    opened.page.on("pageerror", lambda error: opened.faults.append(str(error)))
    try:
        yield opened
        assert not opened.faults, opened.faults
    finally:
        context.close()


def form_tokens(text: str) -> set[str]:
    """Return the tokens of the forms of a page."""
    return set(re.findall(r'name="form_token" value="([0-9a-f]+)"', text))


needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
SCREENSHOTS = Path(__file__).resolve().parents[2] / "docs" / "assets" / "page"
