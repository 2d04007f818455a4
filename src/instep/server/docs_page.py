"""The API's documentation as one page, made from its description: no script, nothing from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from instep.server.problems import TITLES
from instep.server.roles import NEEDS, PREFIX

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
