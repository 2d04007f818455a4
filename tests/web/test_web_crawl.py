"""All pages that links lead to, from the home page on: none fails, none leads nowhere, and what a source, a person or a
log says is shown as text wherever it is shown."""

from __future__ import annotations

import re
import shutil
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_origin, get_type_hints
from urllib.parse import urlsplit

import pytest
from hostile import HOSTILE, MARK
from rich_world import Words, build, drain
from web_world import Site, needs_browser, served, site, tab

from instep.bootstrap import open_project
from instep.control.resources.api_keys import may
from instep.errors import HIDDEN
from instep.events import Event
from instep.model import TableRun
from instep.server.web.app import page_roles
from instep.server.web.forms import actions

MOST_PAGES = 400
MOST_ROWS = 200
_READ = ("title", "alt", "placeholder", "label", "aria-label", "aria-description", "aria-valuetext")
_STARTS = re.compile(r"[a-z]-[0-9a-f-]{6,}|\d{4,}")


class Parsed(HTMLParser):
    """The elements of a page: links, scripts, attributes that run code, rows; texts that turn a line round."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.wrong: list[str] = []
        self.rows = 0
        self._is_sent = False
        self.feed(text)

    def handle_data(self, data: str) -> None:
        if not self._is_sent and (found := HIDDEN.search(data)):
            self.wrong.append(f"{found[0]!r} in {data.strip()[:200]!r}")

    def handle_endtag(self, tag: str) -> None:
        self._is_sent = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._is_sent = tag == "textarea"  # a form sends its text
        self.rows += tag == "tr"
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in ("iframe", "object", "embed", "base", "marquee", "math", "video", "template", "style"):
            self.wrong.append(tag)
        if tag == "script" and not given.get("src", "").startswith("/static/"):
            self.wrong.append(f"script {given}")
        for name, value in given.items():
            if name.startswith(("on", "hx-on")) or name == "style":
                self.wrong.append(f"{tag} {name}")
            if name in _READ and HIDDEN.search(value):
                self.wrong.append(f"{tag} {name}={value!r}")
            if name in ("href", "src", "action", "hx-get", "hx-post") and not value.startswith(("/", "#", "?")):
                self.wrong.append(f"{tag} {name}={value}")


_FORM = re.compile(r'<form[^>]* action="/do/(\w+)">(.*?)</form>(.{0,300})', re.DOTALL)


def uncopied(text: str) -> list[str]:
    """Return the buttons of a page that act at once and are not shown as text, nor lead to it."""
    shown = text.partition('<div id="copies">')[2]
    found = []
    for name, form, behind in _FORM.findall(text):
        label = re.search(r'value="do"[^>]*>([^<]*)<', form)
        listed = label is not None and f"<h3>{label[1]}</h3>" in shown
        if not listed and f"/do/{name}?" not in behind and 'id="copy"' not in text:
            found.append(name)
    return found


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with everything, made once."""
    folder = tmp_path_factory.mktemp("rich")
    build(folder)
    return folder


@pytest.fixture
def rich(template: Path, tmp_path: Path) -> Iterator[Site]:
    """The page over a copy of it."""
    shutil.copytree(template, tmp_path / "project")
    with open_project(tmp_path / "project") as app:
        yield site(app)


def crawl(page: Site, role: str = "admin") -> dict[str, str]:
    """Return the text of every page that links lead to; of addresses that differ in ids alone only a few."""
    client = page.client(role)
    waiting, found, kinds = deque(["/changes"]), {}, dict[str, int]()
    while waiting and len(found) < MOST_PAGES:
        address = waiting.popleft()
        kind = _STARTS.sub("ID", address)
        if address in found or kinds.get(kind, 0) >= 3:
            continue
        kinds[kind] = kinds.get(kind, 0) + 1
        answer = client.get(address, follow_redirects=True)
        if "text/html" not in answer.headers.get("content-type", ""):
            assert answer.status_code < 400, address
            continue
        assert answer.status_code == 200, (address, answer.status_code, answer.text[-2000:])
        found[address] = answer.text
        for link in Parsed(answer.text).links:
            parts = urlsplit(link)
            if not parts.netloc and parts.path.startswith("/") and not parts.path.startswith("/static/"):
                waiting.append(parts.path + (f"?{parts.query}" if parts.query else ""))
    return found


def test_every_link_leads_to_a_page_that_shows_no_more_than_a_screenful(rich: Site) -> None:
    found = crawl(rich)
    assert len(found) > 20
    for address, text in found.items():
        parsed = Parsed(text)
        assert not parsed.wrong, (address, parsed.wrong)
        assert parsed.rows <= MOST_ROWS + 20, address
        assert not uncopied(text), (address, uncopied(text))


@pytest.mark.parametrize("role", ["viewer", "operator", "approver"])
def test_no_link_leads_a_role_to_what_it_may_not_see(rich: Site, role: str) -> None:
    crawl(rich, role)


@pytest.mark.parametrize("number", range(0, len(HOSTILE), 10))
def test_hostile_texts_are_shown_as_text(tmp_path: Path, number: int) -> None:
    first, *others = HOSTILE[number : number + 10]
    build(tmp_path, Words(column=others[0], table=others[1], value=first, type=others[2]))
    with open_project(tmp_path) as app:
        opened = site(app)
        for text in (first, *others):
            _say_everywhere(app, text)
        _fail_everywhere(app, first, others[1])
        _save_everywhere(app, opened, first)
        seen = set()
        for address, text in crawl(opened).items():
            assert not Parsed(text).wrong, (address, Parsed(text).wrong)
            seen |= {_STARTS.sub("ID", urlsplit(address).path)} if MARK in text else set()
        assert seen >= {"/changes", "/changes/ID", "/connections/shop", "/connections/crm", "/connections/crm/timeline",
                        "/connections/shop/quarantine", "/runs", "/runs/ID", "/queue", "/jobs/ID", "/settings/keys",
                        "/settings/audit", "/connections/shop/schema/history"}, seen  # fmt: skip


def _say_everywhere(app: Any, text: str) -> None:
    """Write a text wherever a person or a run may write one."""
    from instep.store.catalogs.reviews import DetectedChange

    change = DetectedChange(
        f"column.added {text}",
        "column.added",
        ("main", text),
        text,
        text,
        {"kind": "column.added", "table": ["main", text], "after": {"name": text, "type": "string"}, "position": 1},
        "review",
        text,
        text,
    )
    app.store.reviews.record("shop", [change], "f")
    app.store.pauses.pause("crm", text)
    app.store.audit.add(text, text, text, {"text": text})


def _fail_everywhere(app: Any, text: str, table: str) -> None:
    """Let a run, its tables and a job fail with a text, and record every kind of event with it in every field."""
    run = app.store.runs.claim("crm", "sync", who=text)
    app.store.runs.record_tables(TableRun(run.id, ("main", table), "failed", mode=text, error=text))
    app.store.runs.finish(run, "failed", error=text)
    app.store.jobs.enqueue("shop", "detect", who=text, why=text)
    job = app.store.jobs.fail(app.store.jobs.claim("w-1"), text, retryable=False)
    own = {"job": job.id, "run": run.id, "change": app.store.reviews.find("shop")[0].id}
    app.store.backfills.request("crm", ("main", text), column=text, why=text)
    app.store.pauses.pause("crm", text, table=("main", text))
    for event in Event.__subclasses__():
        kinds = get_type_hints(event)
        names = [one.name for one in fields(event) if one.name != "connection"]
        if not {"rollout", "plan"} & set(names):  # there is none, and their ids are ours
            values = {name: own.get(name) or _filled(kinds[name], text) for name in names}
            app.store.events.add(event("crm", **values))


def _filled(kind: Any, text: str) -> Any:
    """Return a value of a type that holds the text where it can."""
    plain = {int: 1, float: 1.0, bool: True}
    if get_origin(kind) is tuple:
        return (text,)
    return (
        {text: text}
        if get_origin(kind) is not None and issubclass(get_origin(kind), Mapping)
        else plain.get(kind, text)
    )


def _save_everywhere(app: Any, page: Site, text: str) -> None:
    """Write a text wherever a person may: comments, assignees, filters, names of keys, models of the lineage."""
    page.token("admin")
    key = app.store.api_keys.named("admin")
    app.store.api_keys.add("k-000000000000", text[:80], "viewer", (text,), text)
    app.store.filters.save(key.id, text[:50], {"search": text})
    for review in app.store.reviews.find("shop", ("open",)):
        app.store.comments.add(review, text, text)
        app.store.reviews.assign(review.id, text[:80])
        finding = {"change": review.id, "level": "breaks", "why": text, "line": 1, "output": text}
        model = {"name": text, "reads": [text], "findings": [finding], "file": text, "line": 1}
        app.store.jobs.enqueue("shop", "impact", key=review.id, who=text)
        job = app.store.jobs.claim("w-1")
        app.store.jobs.finish(job, result={"verdicts": {"changes": [{"id": review.id}], "models": [model]}})


@pytest.mark.parametrize("role", ["viewer", "operator", "approver"])
def test_a_form_is_refused_to_roles_below_its_own(rich: Site, role: Any) -> None:
    """Each operation, and each form of a screen: refused, and nothing but the refusal is written down."""
    for action in actions().values():
        given = {one.name: "{}" if one.control == "document" else "x" for one in action.fields if one.required}
        answer = rich.post(f"/do/{action.name}", role, **{**given, "button": "do", "connection": "shop"})
        assert (answer.status_code == 403) or may(role, action.role), (action.name, answer.status_code)
        assert answer.status_code < 500, action.name
    change = rich.store.reviews.find("shop", ("open",))[0]
    places = {"change": change.id, "connection": "shop", "plural": "sources", "name": "strict", "run": "r-1"}
    for route, needed in page_roles().items():
        method, path = route.split(" ")
        if method == "POST" and needed is not None and path not in ("/do/{operation}", "/sign-out"):
            address = re.sub(r"{(\w+)(:\w+)?}", lambda found: places.get(found[1], "x"), path)
            answer = rich.post(address, role, button="do")
            assert answer.status_code < 500, (route, answer.text)
            assert answer.status_code == 403 or may(role, needed), route
    if role == "viewer":
        done = {one.action for one in rich.store.audit.page(limit=500) if one.actor.startswith("viewer ")}
        assert done <= {"access.refused", "session.begin", "filter.save"}, done


def test_a_change_is_tried_on_a_copy_and_the_page_says_what_differs(rich: Site) -> None:
    change = next(one for one in rich.store.reviews.find("shop", ("open",)) if one.kind == "column.added")
    assert "Try on a copy" in rich.get(f"/changes/{change.id}", "operator")
    answer = rich.post("/do/preview_change", "operator", connection="shop", change=change.id, button="do")
    drain(rich.app)
    text = rich.get(answer.headers["location"], "operator")
    assert "The copy was deleted; nothing was changed." in text
    assert '<th scope="row">colour' in text
    assert rich.store.reviews.get(change.id).status == "open"


@needs_browser
@pytest.mark.server
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_are_fit_for_everybody_and_load_nothing_from_elsewhere(rich: Site, browser: Any, theme: str) -> None:
    addresses, kinds = [], set()
    for address in crawl(rich):
        kind = _STARTS.sub("ID", urlsplit(address).path)
        if kind not in kinds:
            kinds.add(kind)
            addresses.append(address)
    with served(rich.app) as base, tab(browser, base, rich.token("admin"), theme=theme) as opened:
        for address in addresses:
            opened.open(address)
            assert not opened.violations(), address


@pytest.mark.parametrize("role", ["viewer", "operator", "approver", "admin"])
def test_a_page_is_refused_to_roles_below_its_own(rich: Site, role: str) -> None:
    order = ("viewer", "operator", "approver", "admin")
    for route, needed in page_roles().items():
        method, path = route.split(" ")
        if method == "GET" and needed is not None and order.index(role) < order.index(needed):
            assert rich.client(role).get(re.sub(r"{(\w+)(:\w+)?}", "x", path)).status_code == 403, route
