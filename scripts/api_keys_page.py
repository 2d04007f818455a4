"""Writes docs/reference/api-keys.md from the models of what an API can set, their rules, and routes' roles.

python scripts/api_keys_page.py          writes the page
python scripts/api_keys_page.py --check  exits 1 if the page is not up to date
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from instep.operations.values import ObjectKind
from instep.project.allowed.keys import reach_of
from instep.project.allowed.values import CATALOGS, OBJECT_STORE, TABLE
from instep.project.documents import PLURALS, TYPES
from instep.project.sections.values import Section
from instep.server.access import NEEDS, RequiredRights
from instep.server.body_keys import COMPATIBLE as OF_V1
from instep.server.body_keys import OWN
from instep.server.fivetran_api.http.route import NEEDS as COMPATIBLE
from instep.server.fivetran_api.http.route import of_change

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "api-keys.md"
HEAD = """\
# What an API key can set
Made by `python scripts/api_keys_page.py` from the models and rules of the code; do not edit.

All keys of the objects that a server stores, with who may set them and the possible effects of their values. The same
rules apply to both APIs, to `POST`, `PUT` and `PATCH`, and to `instep import project`. They are checked when an object
is written, and again when a worker opens it. A key that is not listed is refused. The [project file](project-file.md)
is not restricted by them: whoever writes it may do everything that the account of the process may. A key that is not
set has its default (`lake`, `.instep/staging`). After the objects come the other keys of requests, by what their routes
need: a role, for some a key without groups.

**On a shelf**: below one of the folders that `shelves` of the project file names (`data/` and `lakes/`), links
followed, and neither in nor around `.instep`, the store, `.env`, `instep.yml`, `connectors/` and `drivers/`.
"""
LISTS = """\
## Properties
Properties that an API may set, by name; a REST catalog also accepts `header.NAME`, and a table your own labels.
"""


def who(kind: ObjectKind) -> str:
    """Return who may set keys of an object, by the matrices of both APIs."""
    if kind == "connection":
        settings = NEEDS["PATCH /connections/{connection}/settings"]
        beside = of_change(["sync_frequency"])
        compatible = f"{needed(COMPATIBLE['POST /connections'])} and {needed(beside)}"
        return f"{NEEDS['POST /connections']} makes one, {settings} changes it; in `/v1` {compatible}"
    role = NEEDS[f"POST /{PLURALS[kind]}"]
    compatible = {"source": of_change(["config"]), "destination": COMPATIBLE["POST /destinations"]}
    return role + (f"; in `/v1` {needed(compatible[kind])}" if kind in compatible else "; not in `/v1`")


def sections(annotation: Any) -> Iterator[type[Section]]:
    """Yield the sections that a type of a field or of an object names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        assert issubclass(annotation, Section), annotation
        yield annotation
    for inner in get_args(annotation):
        yield from sections(inner)


def keys(section: type[Section], path: str = "", above: tuple[type[Section], ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield (key, what it leads to), those of sections within it as well."""
    for name, field in section.model_fields.items():
        rule = reach_of(section, name)
        yield f"{path}{name}", rule.words if rule else "MISSING"
        for inner in dict.fromkeys(sections(field.annotation)):
            if inner not in above:
                yield from keys(inner, f"{path}{name}.", (*above, inner))


def title(kind: str, section: type[Section]) -> str:
    types = get_args(section.model_fields["type"].annotation) if "type" in section.model_fields else ()
    return f"{kind.capitalize()}: {', '.join(types)}" if types else kind.capitalize()


def table(rows: Sequence[tuple[str, ...]], head: tuple[str, ...]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def requests(
    bodies: Mapping[type[BaseModel], Mapping[str, str]], described: str, prefix: str, needs: Mapping[str, object]
) -> Iterator[str]:
    """Yield the tables of requests, by what their routes are described to take."""
    known = {cls.__name__: cls for cls in bodies}
    paths = json.loads(PAGE.with_name(f"{described}.json").read_text(encoding="utf-8"))["paths"]
    found: dict[str, list[str]] = {}
    for path, methods in paths.items():
        for method, said in methods.items():
            for content in said.get("requestBody", {}).get("content", {}).values():
                name = content["schema"].get("$ref", "").rpartition("/")[2]
                found.setdefault(name, []).append(f"{method.upper()} {path.removeprefix(prefix)}")
    for name, routes in found.items():
        if name not in known:
            continue
        rows = [(f"`{key}`", words) for key, words in body_keys(known[name], bodies)]
        who = "; ".join(f"`{prefix}` `{route}`: {needed(needs[route])}" for route in routes)
        yield f"## Request: {name}\n{who}\n\n{table(rows, ('key', 'what it can lead to'))}\n"


def body_keys(
    body: type[BaseModel], bodies: Mapping[type[BaseModel], Mapping[str, str]], path: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield (key, what it leads to), those of bodies within it as well."""
    for key, field in body.model_fields.items():
        yield f"{path}{field.alias or key}", bodies[body].get(key, "MISSING")
        for inner in (cls for cls in bodies if cls in classes(field.annotation)):
            yield from body_keys(inner, bodies, f"{path}{field.alias or key}.")


def classes(annotation: Any) -> Iterator[Any]:
    yield annotation
    for inner in get_args(annotation):
        yield from classes(inner)


def needed(need: object) -> str:
    """Return the words for what a route takes of a key."""
    if not isinstance(need, RequiredRights):
        return str(need)
    return f"{need.role}, without groups" if need.whole else need.role


def page() -> str:
    parts = [HEAD]
    for kind in PLURALS:
        for section in dict.fromkeys(sections(TYPES[kind])):
            rows = [
                (f"`{key}`", who(kind) if at == 0 else "same", words) for at, (key, words) in enumerate(keys(section))
            ]
            parts.append(
                f"## {title(kind, section)}\n{table(rows, ('key', 'who may set it', 'what it can lead to'))}\n"
            )
    parts += [*requests(OWN, "openapi", "/api/v1", NEEDS), *requests(OF_V1, "compatible-openapi", "/v1", COMPATIBLE)]
    lists = [
        ("a bucket", OBJECT_STORE),
        *((f"a catalog of type `{name}`", found) for name, found in CATALOGS.items()),
        ("a table of Iceberg", TABLE),
    ]
    rows = [(what, ", ".join(f"`{name}`" for name in sorted(names))) for what, names in lists]
    parts.append(f"{LISTS}\n{table(rows, ('of', 'names'))}\n")
    return "\n".join(parts)


def main(arguments: Sequence[str]) -> int:
    made = page()
    if "--check" in arguments:
        return int(not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != made)
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
