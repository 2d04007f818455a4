"""Templates: the environment, its filters, and what each page's frame shows. Values are escaped by default."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from instep.control.resources import sign_in
from instep.errors import HIDDEN, visible
from instep.operations.spec import Role
from instep.operations.values import duration_text
from instep.server.problems import ApiProblem
from instep.server.web.copies import copies
from instep.server.web.forms import action_of

if TYPE_CHECKING:
    from instep.server.web.visit import Visit

CONTENT_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_TAGS = re.compile(r"(<textarea\b.*?</textarea>|<[^>]*>)", re.DOTALL)
"""Pattern of what is no text in a page: a value in it has no `<` or `>` of its own."""
_READ = re.compile(r'(?<=\s)(?:title|alt|placeholder|label|aria-(?:label|description|valuetext))="[^"]*"')
"""Pattern of the attributes that people read, or have read to them."""
_KEYED = re.compile(r"(.+) \((k-[0-9a-z-]+)\)")
_UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
THEMES = ("auto", "light", "dark")
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
NAVIGATION: tuple[tuple[str, str, Role], ...] = (
    ("Changes", "/changes", "viewer"),
    ("Connections", "/connections", "viewer"),
    ("Runs", "/runs", "viewer"),
    ("Rollouts", "/rollouts", "viewer"),
    ("Policies", "/policies", "viewer"),
    ("Notifications", "/notifications", "viewer"),
    ("Set-up", "/setup", "operator"),
    ("Settings", "/settings", "viewer"),
)
KINDS = {
    "added": ("+", "added", "plus"),
    "removed": ("−", "removed", "minus"),
    "renamed": ("↷", "renamed", "moved"),
    "moved": ("↷", "moved", "moved"),
}
"""The sign, word and colour of changes, by the last part of their kind; all others are changes of something."""


@cache
def static_files() -> Mapping[str, tuple[bytes, str]]:
    """Return the files that browsers load: content and media type by name."""
    by_name: dict[str, tuple[bytes, str]] = {}
    root = files("instep.server.web") / "static"
    for folder in (root, root / "vendor"):
        prefix = "" if folder is root else "vendor/"
        for one in folder.iterdir():
            suffix = "." + one.name.rpartition(".")[2]
            if suffix in _TYPES:
                by_name[prefix + one.name] = (one.read_bytes(), _TYPES[suffix])
    return by_name


def static_url(name: str) -> str:
    """Return the address of a static file; it changes with the file, so that browsers may keep it for ever."""
    content, _ = static_files()[name]
    return f"/static/{hashlib.sha256(content).hexdigest()[:12]}/{name}"


async def _static(request: Request) -> Response:
    file = static_files().get(request.path_params["name"])
    if file is None:
        return Response("not found", 404, media_type="text/plain")
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(file[0], headers=headers, media_type=file[1])


STATIC = Route("/static/{digest}/{name:path}", _static, methods=["GET"], name="static")


@cache
def environment() -> Environment:
    """Return the templates' environment."""
    made = Environment(
        loader=PackageLoader("instep.server.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        extensions=["jinja2.ext.do"],
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        moment=moment,
        clock=clock,
        person=person,
        prose=prose,
        count=count,
        size=size,
        pretty=pretty,
        change_sign=change_sign,
        duration=duration,
        path=quoted,
        schedule=schedule,
        seconds=duration_text,
    )
    made.globals.update(
        static_url=static_url,
        query=query,
        action_of=action_of,
        copies_of=copies_of,
        values_of=values_of,
        form_token_of=lambda visit: sign_in.form_token(visit.token),
        now=lambda: datetime.now(UTC),
    )
    return made


def copies_of(operation: str, values: Mapping[str, Any], base: str) -> dict[str, str]:
    """Return what a button does with the values of its form, as text for other faces."""
    action = action_of(operation)
    return copies(action, action.read({name: values_of(one) for name, one in values.items()}), base)


def values_of(value: Any) -> list[str]:
    """Return the texts that a form sends for a value: one for each entry of a list."""
    return [str(one) for one in value] if isinstance(value, list | tuple) else [str(value)]


def render(template: str, *, request: Request, visit: Visit | None, **values: Any) -> str:
    """Return the text of a page."""
    theme = request.cookies.get("instep_theme", "auto")
    frame = {
        "request": request,
        "visit": visit,
        "caller": visit.caller.key if visit else None,
        "form_token": sign_in.form_token(visit.token) if visit else "",
        "navigation": [one for one in NAVIGATION if visit.may(one[2])] if visit else (),
        "project_name": visit.server.project.model.project if visit else "",
        "theme": theme if theme in THEMES else "auto",
        "page_actions": [],
        "keys_on": request.cookies.get("instep_keys", "on") != "off",
        "here": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
    }
    return _visible(environment().get_template(template).render(**{"problem": None, **frame, **values}))


def _visible(page: str) -> str:
    """Return a page in whose texts, and in the attributes that are read as such, characters that turn text round are
    escapes: a source's name must not rewrite the line that a person decides on. What a form sends stays as it is:
    values of fields, and texts of many lines."""
    if HIDDEN.search(page) is None:
        return page
    return "".join(
        _READ.sub(lambda read: visible(read[0]), part) if at % 2 else visible(part)
        for at, part in enumerate(_TAGS.split(page))
    )


def moment(value: Any, now: datetime | None = None) -> Markup:
    """Return a moment as time ago, with the exact time on hover and for programs; "" for none."""
    if not value:
        return Markup("")
    at = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    exact = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    shown = _ago((now or datetime.now(UTC)) - at)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(at.isoformat(), exact, shown)


def clock(value: str) -> Markup:
    """Return a moment as its time of day, with the exact time on hover and for programs."""
    at = datetime.fromisoformat(value.replace("Z", "+00:00")).astimezone(UTC)
    return Markup('<time datetime="{}" title="{}" data-clock>{}</time>').format(
        value, f"{at:%Y-%m-%d %H:%M:%S} UTC", f"{at:%H:%M:%S}"
    )


def person(value: Any) -> Markup:
    """Return who did something by name; the id of their key is shown on hover."""
    named = _KEYED.fullmatch(str(value or ""))
    return Markup('<span title="key {}">{}</span>').format(named[2], named[1]) if named else escape(value or "")


def prose(text: str) -> Markup:
    """Return a text in which names between backticks are shown as code."""
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in enumerate(text.split("`"))
    )


def _ago(passed: Any) -> str:
    seconds = passed.total_seconds()
    if abs(seconds) < 45:
        return "just now"
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if abs(seconds) >= length or unit == "min":
            amount = max(1, round(abs(seconds) / length))
            return f"{amount} {unit} ago" if seconds > 0 else f"in {amount} {unit}"
    return ""


def count(value: Any) -> str:
    """Return a number exactly below ten thousand, and shortened above."""
    if value is None:
        return ""
    number = int(value)
    if abs(number) < 10_000:
        return f"{number:,}"
    for sign, unit in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if abs(number) >= unit:
            return f"{number / unit:.1f}".removesuffix(".0") + f" {sign}"
    return f"{number:,}"


def size(value: Any) -> str:
    """Return bytes in a unit that people read."""
    if value is None:
        return ""
    number = float(value)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024 or unit == "TiB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return ""


def duration(begun: Any, ended: Any) -> str:
    """Return the time between two moments; "" if one is missing."""
    if not begun or not ended:
        return ""
    seconds = (datetime.fromisoformat(str(ended)) - datetime.fromisoformat(str(begun))).total_seconds()
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def schedule(spec: str) -> str:
    """Return a schedule as people say it: `every 3600` as "every hour", a cron line as it is."""
    word, _, number = spec.partition(" ")
    if word != "every" or not number.isdecimal():
        return spec
    seconds = int(number)
    length, unit = next((one, name) for one, name in _UNITS if seconds % one == 0)
    return f"every {unit}" if seconds == length else f"every {seconds // length} {unit}s"


def pretty(value: Any) -> str:
    """Return a document as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=False)


def quoted(value: Any) -> str:
    """Return a name as a part of an address."""
    return quote(str(value), safe="")


def query(path: str, **parameters: Any) -> str:
    """Return an address with parameters; those that are empty are left out."""
    given = {name: one for name, one in parameters.items() if one not in (None, "", [], ())}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def change_sign(kind: str) -> Markup:
    """Return the chip of a kind of change: a sign, the word and a colour."""
    sign, word, colour = KINDS.get(kind.rpartition(".")[2], ("~", kind.rpartition(".")[2], "change"))
    what = kind.partition(".")[0]
    return Markup('<span class="chip {}"><span aria-hidden="true">{}</span> {} {}</span>').format(
        colour, sign, escape(what), escape(word)
    )


def not_found(path: str) -> ApiProblem:
    """Return the problem of an address that is no page."""
    return ApiProblem(404, "not_found", f"there is no page at {path}", "go to /changes")
