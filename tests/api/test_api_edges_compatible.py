"""What the compatible API refuses, in its own words, and the life of a group; without a worker."""

from __future__ import annotations

from typing import Any

import pytest
from compat_world import Compat, compatible

# method, path, body (bytes: as it is), media type, and the answer of the compatible API
COMPATIBLE: list[tuple[str, str, Any, int, str]] = [
    ("GET", "/groups?limit=1000", None, 200, "Success"),
    ("GET", "/groups?limit=1001", None, 400, "InvalidInput"),
    ("GET", "/groups?cursor=eyJhZnRlciI6ICJcdWQ4MDAifQ==", None, 400, "InvalidInput"),
    ("GET", "/webhooks?cursor=eyJhZnRlciI6ICJhXHUwMDAwIn0=", None, 400, "InvalidInput"),
    ("GET", "/users?cursor=eyJhZnRlciI6IDd9", None, 400, "InvalidInput"),
    ("GET", "/groups/none", None, 404, "NotFound_Group"),
    ("GET", "/destinations/none", None, 404, "NotFound_Destination"),
    ("GET", "/groups/none/connections", None, 404, "NotFound_Group"),
    ("GET", "/webhooks/none", None, 404, "NotFound_Webhook"),
    ("POST", "/groups", {}, 400, "InvalidInput"),
    ("POST", "/groups", {"name": ""}, 400, "InvalidInput"),
    ("POST", "/groups", {"name": "x" * 64}, 400, "InvalidInput"),
    ("POST", "/groups", [], 400, "InvalidInput"),
    ("POST", "/groups", {"name": "lake"}, 409, "Conflict"),
    ("POST", "/groups", b"{", 400, "InvalidInput"),
    ("POST", "/groups", b'{"name": "a", "name": "b"}', 400, "InvalidInput"),
    ("POST", "/groups", b'{"name": NaN}', 400, "InvalidInput"),
    ("POST", "/groups", b" " * (1 + (1 << 20)), 413, "PayloadTooLarge"),
    ("PATCH", "/groups/lake", {"name": "lake"}, 200, "Success"),
    ("PATCH", "/groups/lake", {"name": ""}, 400, "InvalidInput"),
    ("PATCH", "/groups/none", {"name": "sea"}, 404, "NotFound_Group"),
    ("DELETE", "/groups/lake", None, 409, "Conflict"),
    ("DELETE", "/destinations/lake", None, 409, "Conflict"),
    ("POST", "/destinations", {"group_id": "none", "service": "duckdb"}, 404, "NotFound_Group"),
    ("POST", "/destinations", {"group_id": "lake", "service": "duckdb"}, 409, "Conflict"),
    ("POST", "/destinations", {"group_id": "lake", "service": "paper"}, 400, "InvalidInput"),
    (
        "POST",
        "/destinations",
        {"group_id": "lake", "service": "duckdb", "time_zone_offset": "+13"},
        400,
        "InvalidInput",
    ),
    ("POST", "/webhooks/account", {"url": "http://localhost", "events": []}, 400, "InvalidInput"),
    ("POST", "/webhooks/account", {"url": "http://localhost", "events": ["none"]}, 400, "InvalidInput"),
    ("POST", "/webhooks/group/none", {"url": "http://localhost", "events": ["sync_end"]}, 404, "NotFound_Group"),
    ("PATCH", "/webhooks/none", {"active": False}, 404, "NotFound_Webhook"),
    ("PATCH", "/connections/shop/state", {}, 405, "MethodNotAllowed"),
    ("GET", "/connections/none/state", None, 404, "NotFound_Connection"),
]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server that no case changes."""
    with compatible(tmp_path_factory.mktemp("compat")) as opened:
        opened.worker.leave()
        yield opened


@pytest.mark.parametrize(("method", "path", "body", "status", "code"), COMPATIBLE)
def test_refusals_of_the_compatible_api(one: Compat, method: str, path: str, body: Any, status: int, code: str) -> None:
    content = body if isinstance(body, bytes) else None
    more = {"content": content, "headers": {"Content-Type": "application/json"}} if content else {}
    found = one.ask(method, path, None if content else body, status, **more)
    assert found["code"] == code, found
    if status >= 400:
        assert set(found) <= {"code", "message", "request_id", "hint"}
        assert found["message"]
    assert [g["id"] for g in one.data("GET", "/groups")["items"]] == ["lake"]


def test_a_group_waits_for_its_destination_and_goes(one: Compat) -> None:
    made = one.data("POST", "/groups", {"name": "Bay of Naples"}, 201)
    assert made["id"] == "Bay_of_Naples"
    assert one.ask("POST", "/groups", {"name": "Bay of Naples"}, 409)["code"] == "Conflict"
    first = one.data("GET", "/groups?limit=1")
    second = one.data("GET", f"/groups?limit=1&cursor={first['next_cursor']}")
    assert [g["id"] for g in (*first["items"], *second["items"])] == ["Bay_of_Naples", "lake"]
    assert second["next_cursor"] is None
    wanted = {"group_id": made["id"], "service": "duckdb", "config": {"path": "bay.duckdb"}}
    assert one.data("POST", "/destinations", wanted, 201)["config"] == {"path": "bay.duckdb"}
    changed = one.data("PATCH", f"/destinations/{made['id']}", {"config": {"path": "b.duckdb", "type": "iceberg"}})
    assert (changed["service"], changed["config"]["path"]) == ("duckdb", "b.duckdb"), "its service stays"
    assert one.ask("DELETE", f"/destinations/{made['id']}")["code"] == "Success"
    assert one.data("GET", f"/groups/{made['id']}")["name"] == "Bay of Naples", "it outlives its destination"
    assert one.ask("DELETE", f"/groups/{made['id']}")["code"] == "Success"
    assert one.ask("GET", f"/groups/{made['id']}", status=404)["code"] == "NotFound_Group"
