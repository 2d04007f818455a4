"""Whatever is sent to whatever route, the server does not fail, and what it answers is what it describes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from api_world import Api, project, recorded, serve
from described import followed, values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from instep.api.matrix import NEEDS, PREFIX


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with project(tmp_path_factory.mktemp("fuzz")) as app:
        recorded(app.store, "eu", *"abc")
        app.store.runs.finish(app.store.runs.claim("eu", "sync"), "done")
        yield serve(app, stream=0.0)


TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
NAMES = st.sampled_from(
    ["eu", "us", "c-1", "r-1", "p-1", "1", "0", "-1", "99999999999", "%", "é", "a b", "'"]
) | TEXT.filter(
    lambda text: text not in (".", "..")  # clients take these out of addresses themselves
)
QUERY = st.dictionaries(
    st.sampled_from(["limit", "cursor", "connection", "status", "kind", "type", "side", "dry_run", "after", "tag",
                     "search", "table", "all"]),
    st.sampled_from(["1", "0", "-1", "open", "sync", "true", "source", "WzFd", "WyJ4Il0", "eu", "W251bGxd"]) | TEXT,
    max_size=3,
)  # fmt: skip
FIELDS = st.sampled_from(
    ["reason", "table", "answer", "ids", "duration", "until", "name", "role", "days", "full", "why"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
    | st.sampled_from(["approved", "3d", "viewer", "admin", "9999-12-31", "0001-01-01", "9999w"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
BODIES = st.dictionaries(FIELDS, VALUES, max_size=4)


def check(api: Api, route: str, answer: Any) -> None:
    """The answer is one that the route describes."""
    document = api.client.get(f"{PREFIX}/openapi.json").json()
    method, path = route.split(" ")
    said = document["paths"][PREFIX + path][method.lower()]["responses"]
    assert str(answer.status_code) in said, (route, answer.status_code, answer.text)
    content = followed(document, said[str(answer.status_code)]).get("content", {})
    media = answer.headers["content-type"].partition(";")[0]
    assert media in content, (route, answer.status_code, media)
    if media.endswith("json") and (schema := content[media].get("schema")):
        Draft202012Validator({**schema, "components": document["components"]}).validate(answer.json())


@pytest.mark.parametrize("route", sorted(NEEDS))
@given(names=st.lists(NAMES, min_size=2, max_size=2), query=QUERY, body=BODIES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_route_fails(api: Api, route: str, names: list[str], query: dict[str, str], body: dict[str, Any]) -> None:
    method, path = route.split(" ")
    for part in [p for p in path.split("/") if p.startswith("{")]:
        path = path.replace(part, quote(names.pop(), safe=""))
    content = json.dumps(body).encode() if method in ("POST", "PUT", "PATCH") else None
    headers = {**api.key("admin"), "Content-Type": "application/json"}
    answer = api.client.request(method, PREFIX + path, content=content, params=query, headers=headers)
    assert answer.status_code < 500, (route, path, query, body, answer.text)
    if answer.status_code not in (400, 404):
        check(api, route, answer)
    else:
        assert answer.headers["content-type"] == "application/problem+json"


@st.composite
def requests(draw: st.DrawFn, document: dict[str, Any], operation: dict[str, Any]) -> tuple[Any, Any, Any]:
    """(path values, query, body) as the description allows them."""
    parameters = [followed(document, one) for one in operation.get("parameters", ())]
    path = {p["name"]: draw(NAMES if p["schema"].get("type") == "string" else values(document, p["schema"]))
            for p in parameters if p["in"] == "path"}  # fmt: skip
    asked = [p for p in parameters if p["in"] == "query" and draw(st.booleans())]
    query = {p["name"]: draw(values(document, p["schema"])) for p in asked}
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    return path, query, draw(values(document, content["schema"])) if content else None


@pytest.mark.slow
@pytest.mark.parametrize("route", sorted(NEEDS))
def test_what_is_described_is_answered_as_described(api: Api, route: str) -> None:
    method, path = route.split(" ")
    document = api.client.get(f"{PREFIX}/openapi.json").json()

    @given(requests(document, document["paths"][PREFIX + path][method.lower()]))
    @settings(max_examples=15, deadline=None)
    def sent(request: tuple[Any, Any, Any]) -> None:
        names, query, body = request
        at = path
        for name, value in names.items():
            at = at.replace(f"{{{name}}}", quote(str(value), safe=""))
        params = {k: v for k, v in query.items() if v is not None}
        answer = api.client.request(method, PREFIX + at, json=body, params=params, headers=api.key("admin"))
        assert answer.status_code < 500 or answer.status_code == 503, (route, request, answer.text)
        if answer.status_code not in (400, 404):
            check(api, route, answer)

    sent()
