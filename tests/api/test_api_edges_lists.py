"""Every list, by what the description says of it: bounds of a page, cursors of other lists, words that are none; and
reads of one connection's schemas, of what is decided about them, and of metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from api_world import Api, project, recorded, serve

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.server.access import NEEDS, PREFIX
from instep.server.paging import cursor
from instep.store.catalogs.discoveries import CachedDiscovery

LISTS = [
    "/connections", "/sources", "/destinations", "/policies", "/channels", "/changes", "/runs", "/events", "/queue",
    "/rollouts", "/deliveries", "/keys", "/audit", "/status", "/connections/eu/plans", "/connections/eu/history",
    "/connections/eu/backfills", "/connections/eu/quarantine", "/connections/eu/changed-tables",
    "/connections/eu/loads", "/connections/eu/selection/tables", "/connections/eu/status/tables",
    "/filters", "/notification-routes", "/references",
]  # fmt: skip


def table(*columns: str) -> Catalog:
    return Catalog.of([Table("main", "item", tuple(Column(c, parse("int64")) for c in columns))])


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server that only is read: two accepted versions, what the source has beyond them, a change, a run."""
    with project(tmp_path_factory.mktemp("lists")) as app:
        app.store.accepted.add("eu", table("id"), who="ann", why="first")
        app.store.accepted.add("eu", table("id", "note"), who="ann", why="second")
        app.store.discoveries.save("eu", CachedDiscovery(table("id", "note", "more"), "f"))
        app.store.runs.finish(app.store.runs.claim("eu", "sync"), "done")
        recorded(app.store, "eu", "other")
        yield serve(app)


def parameters(api: Api) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(path, parameter, schema) of every read; of optional ones the schema that is not null."""
    for path, methods in api.client.get(f"{PREFIX}/openapi.json").json()["paths"].items():
        for said in methods.get("get", {}).get("parameters", []):
            for schema in [said["schema"], *said["schema"].get("anyOf", [])]:
                yield path.removeprefix(PREFIX), said, schema


def test_no_list_is_missing_here(api: Api) -> None:
    paged = {path for path, said, _ in parameters(api) if said["name"] == "cursor"}
    mine = {path.replace("/eu/", "/{connection}/") for path in LISTS}
    of_one = {
        "/rollouts/{rollout}/connections", "/changes/{change}/comments", "/runs/{run}/tables", "/runs/{run}/steps",
    }  # fmt: skip
    with_parameters = {"/connections/{connection}/selection/columns", "/connections/{connection}/version-comparison"}
    assert paged == mine | of_one | with_parameters


def test_all_words_of_a_filter_may_be_said_at_once(api: Api) -> None:
    """A list that is asked for everything by name is not refused."""
    seen = 0
    for path, said, schema in parameters(api):
        words = schema.get("items", {}).get("enum", [])
        if words:
            seen += 1
            assert schema["maxItems"] >= len(words), (path, said["name"])
            if "{" not in path:
                assert api.call("GET", path, params={said["name"]: words}).status_code == 200
    assert seen >= 7


@pytest.mark.parametrize("path", LISTS)
def test_pages_have_bounds(api: Api, path: str) -> None:
    most = {"/status": 100, "/connections/eu/selection/tables": 200, "/connections/eu/status/tables": 200}.get(
        path, 1000
    )
    for limit, status in ((1, 200), (most, 200), (0, 422), (most + 1, 422), ("", 422), ("1.5", 422)):
        found = api.call("GET", path, params={"limit": limit})
        assert (found.status_code, limit) == (status, limit), found.text
        if status == 422:
            assert found.json()["errors"][0]["at"] == "query.limit"


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("place", [[], [1, "a", 2], [None], [{"a": 1}], ["\ud800"], ["a\nb"], [1e300]])
def test_a_cursor_of_no_list(api: Api, path: str, place: list[Any]) -> None:
    found = api.call("GET", path, params={"cursor": cursor(place)})
    assert (found.status_code, found.json()["code"]) == (400, "unreadable"), found.text


@pytest.mark.parametrize("path", [p for p in LISTS if "/eu/" in p])
def test_a_connection_that_there_is_not(api: Api, path: str) -> None:
    for role, name in (("admin", "nope"), ("admin", "EU"), ("viewer", "e")):
        found = api.call("GET", path.replace("/eu/", f"/{name}/"), "operator" if "quarantine" in path else role)
        assert (found.status_code, found.json()["code"]) == (404, "not_found")


# a list, a parameter, a value that is none of its words
NO_WORDS = [
    ("/changes", "status", "waiting"), ("/runs", "status", "ok"), ("/runs", "kind", "look"),
    ("/queue", "status", "new"),
    ("/rollouts", "status", "over"), ("/deliveries", "status", "lost"), ("/connections/eu/backfills", "status", "open"),
    ("/connections/eu/history", "side", "both"), ("/connections/eu/schema", "side", "both"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "name", "value"), NO_WORDS)
def test_words_that_are_none(api: Api, path: str, name: str, value: str) -> None:
    found = api.call("GET", path, params={name: value})
    assert (found.status_code, found.json()["code"]) == (422, "invalid")
    assert found.json()["errors"][0]["at"].startswith(f"query.{name}")


def test_a_parameter_that_a_query_does_not_take_is_refused(api: Api) -> None:
    """A filter with a slip in its name does not answer everything."""
    for path in ("/events", "/runs", "/connections/eu/plans", "/connections/eu/history"):
        found = api.call("GET", path, params={"conection": "eu"})
        assert (found.status_code, found.json()["errors"][0]["at"]) == (422, "query.conection")


@pytest.mark.parametrize("path", ["/changes", "/runs", "/events", "/queue", "/events/stream"])
def test_a_list_of_one_connection_is_of_one_that_there_is(api: Api, path: str) -> None:
    assert api.call("GET", path, params={"connection": "nope"}).status_code == 404
    assert api.call("GET", path, params={"connection": "x" * 201}).status_code == 422


def test_status_goes_on_behind_a_page(api: Api) -> None:
    first = api.get("/status", params={"limit": 1})
    second = api.get("/status", params={"limit": 1, "cursor": first["next_cursor"]})
    assert [one["connection"] for one in (*first["items"], *second["items"])] == ["eu", "us"]
    assert second["next_cursor"] is None
    assert api.get("/status", params={"cursor": cursor(["us"])}) == {"items": [], "next_cursor": None}
    scoped = api.client.get(f"{PREFIX}/status", headers=api.key("viewer", "america")).json()
    assert [one["connection"] for one in scoped["items"]] == ["us"]


# parameters of the schema of a connection, its columns (None: refused with 422)
SCHEMAS: list[tuple[dict[str, str], list[str] | None]] = [
    ({}, ["id", "note"]), ({"at": "1"}, ["id"]), ({"at": "v2"}, ["id", "note"]), ({"at": "1.1"}, ["id", "note"]),
    ({"at": "2999-01-01"}, ["id", "note"]), ({"side": "source"}, ["id", "note", "more"]),
    ({"at": "2000-01-01"}, None), ({"at": "3"}, None), ({"at": "1.9"}, None), ({"at": "soon"}, None),
    ({"at": ""}, None),
    ({"at": "0001-01-01T00:00:00+14:00"}, None), ({"at": "9999-12-31T23:59:59-14:00"}, ["id", "note"]),
    ({"side": "destination"}, None), ({"at": "x" * 51}, None),
]  # fmt: skip


@pytest.mark.parametrize(("params", "columns"), SCHEMAS)
def test_schemas_of_then(api: Api, params: dict[str, str], columns: list[str] | None) -> None:
    found = api.call("GET", "/connections/eu/schema", "viewer", params=params)
    if columns is None:
        assert (found.status_code, found.json()["code"]) == (422, "invalid")
        return
    [shown] = found.json()["catalog"]["tables"]
    assert [c["name"] for c in shown["columns"]] == columns


# what a trail is asked of, its answer
TRAILS = [
    ("main.item", 200), ("main.item.note", 200), ("main.none", 422), ("main.item.none", 422), ("", 422),
    ("x" * 501, 422), ("..", 422),
]  # fmt: skip


@pytest.mark.parametrize(("of", "status"), TRAILS)
def test_trails(api: Api, of: str, status: int) -> None:
    found = api.call("GET", "/connections/eu/trail", "viewer", params={"of": of})
    assert found.status_code == status, found.text
    if status == 422:
        assert found.json()["detail"]


def explained(path: str = "main.item.note", kind: str = "column.added", **more: str) -> dict[str, str]:
    return {"path": path, "kind": kind, **more}


# what is asked about a decision, its answer, the action
DECISIONS: list[tuple[dict[str, str], int, str]] = [
    (explained(), 200, "review"), (explained("main.item", "table.removed"), 200, "review"),
    (explained(kind="column.narrowed", before="string", after="int64"), 200, "review"),
    (explained(kind="column.comment"), 200, "apply"), (explained(kind="column.gone"), 422, ""),
    (explained(kind="column.retyped", after="no type"), 422, ""), ({"path": "main.item"}, 422, ""),
    ({"kind": "column.added"}, 422, ""), (explained(path=""), 422, ""), (explained(after="x" * 201), 422, ""),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "status", "action"), DECISIONS)
def test_why_a_change_is_decided_so(api: Api, asked: dict[str, str], status: int, action: str) -> None:
    found = api.call("GET", "/connections/eu/policy/explain", "viewer", params=asked)
    assert found.status_code == status, found.text
    assert status != 200 or found.json()["decision"]["action"] == action
    assert len(api.store.reviews.find("eu")) == 1, "nothing is recorded of it"


def case(**said: Any) -> dict[str, Any]:
    return {"change": "column.added", "table": "main.item", "column": "note", "expect": "review", **said}


def test_sample_cases_are_decided_one_by_one(api: Api) -> None:
    body = {"cases": [case(), case(expect="apply"), case(change="column.retyped", to="no type")]}
    right, wrong, none = api.call("POST", "/connections/eu/policy/test", "viewer", body).json()["results"]
    assert (right["passed"], right["action"], wrong["passed"]) == (True, "review", False)
    assert "apply" in wrong["wrong"][0]
    assert list(none) == ["problem"]
    for cases in ([], [case(change="column.gone")], [case(expect="maybe")], [case(more=1)], [{}], "x"):
        found = api.call("POST", "/connections/eu/policy/test", "viewer", {"cases": cases})
        assert (found.status_code, found.json()["code"]) == (422, "invalid"), cases


# since when (null: ever), how many of the one recorded change that is, the answer's status
SINCE: list[tuple[Any, int, int]] = [
    (None, 1, 200), ("2000-01-01T00:00:00Z", 1, 200), ("2000-01-01T00:00:00", 1, 200), ("2999-01-01T00:00:00", 0, 200),
    ("2999-01-01", 0, 200), ("2999-01-01T00:00:00+14:00", 0, 200), (0, 1, 200), ("soon", 0, 422), ([], 0, 422),
]  # fmt: skip


@pytest.mark.parametrize(("since", "count", "status"), SINCE)
def test_what_another_policy_would_have_said(api: Api, since: Any, count: int, status: int) -> None:
    """Times without an offset are UTC, as everywhere."""
    body = {"name": "other", "policy": {"preset": "block_all"}, "since": since}
    found = api.call("POST", "/connections/eu/policy/simulation", "viewer", body)
    assert found.status_code == status, found.text
    assert status != 200 or found.json()["recorded"] == count


def test_a_policy_that_is_none_is_told_by_place(api: Api) -> None:
    body = {"name": "other", "policy": {"preset": "let me"}}
    found = api.call("POST", "/connections/eu/policy/simulation", "viewer", body)
    assert (found.status_code, found.json()["errors"][0]["at"]) == (422, "/spec/preset")


def test_a_policy_that_could_not_be_stored_is_not_simulated(api: Api) -> None:
    rules = [{"on": ["table.added"] * 10_001, "decide": "review"}] * 2
    body = {"name": "other", "policy": {"preset": "block_all", "rules": rules}}
    found = api.call("POST", "/connections/eu/policy/simulation", "viewer", body)
    assert (found.status_code, "may hold 20000" in found.text) == (422, True), found.text[:500]


def test_metrics_are_where_scrapers_look(api: Api) -> None:
    mine, alias = (api.client.get(path, headers=api.key("viewer")) for path in (f"{PREFIX}/metrics", "/metrics"))
    assert mine.status_code == alias.status_code == 200
    assert mine.headers["content-type"] == alias.headers["content-type"]
    assert "text/plain" in alias.headers["content-type"]
    names = [{line.split("{")[0].split(" ")[0] for line in one.text.splitlines()} for one in (mine, alias)]
    assert names[0] == names[1]
    assert any(name.startswith("instep_") for name in names[0])
    assert api.client.get("/metrics").status_code == 401
    assert api.client.get("/metrics", headers=api.key("viewer", "europe")).status_code == 403


def test_every_read_of_one_thing_says_what_there_is_not(api: Api) -> None:
    """No read fails inside, and none finds what nobody has made."""
    odd = {"{delivery}": "7", "{version}": "7"}
    for route in sorted(NEEDS):
        method, path = route.split(" ")
        if method != "GET" or "{" not in path:
            continue
        for name in ("{connection}", "{name}", "{plan}", "{job}", "{change}", "{run}", "{rollout}", "{key}", *odd):
            path = path.replace(name, odd.get(name, "nope"))
        given = {
            "path": "a.b",
            "kind": "table.added",
            "of": "a.b",
            "table": "a.b",
            "pattern": "a",
            "before": 1,
            "after": 2,
        }
        params = api.taken(route, given)
        found = api.call("GET", path, params=params)
        assert (found.status_code, found.json()["code"]) == (404, "not_found"), (route, found.text)
