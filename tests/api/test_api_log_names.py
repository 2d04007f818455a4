"""The slot of a connection's log over the API: keys that are for some groups name none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_world import Api, serve

from instep.bootstrap import open_server

POSTGRES = {"type": "postgres", "host": "db", "database": "shop", "user": "u", "password": "pw"}
THEIRS = {"source": "pg", "destination": "lakeb", "mode": "cdc", "log": {"slot": "shop_slot"}}
MINE = {"source": "pg", "destination": "lakea", "mode": "cdc"}
AT = "/api/v1/connections/mine/settings"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    (tmp_path / "instep.yml").write_text("engine: local\n")
    with open_server(tmp_path, insecure_dev=True) as app:
        app.objects.put("source", "pg", POSTGRES, who="test")
        for name in ("lakea", "lakeb"):
            app.objects.put("destination", name, {"type": "duckdb", "path": f"data/{name}.duckdb"}, who="test")
        app.objects.put("connection", "theirs", THEIRS, who="test")
        app.objects.put("connection", "mine", MINE, who="test")
        yield serve(app)


@pytest.mark.parametrize("role", ["approver", "admin"])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", AT, {"spec": {"log": {"slot": "shop_slot", "publication": "shop_slot"}}}),
        ("PATCH", AT, {"spec": {"log": {"slot": "free"}}}),
        ("PUT", AT, {"spec": {**MINE, "log": {"publication": "free"}}}),
        ("POST", "/api/v1/connections", {"name": "new", "spec": {**MINE, "log": {"slot": "free"}}}),
    ],
)
def test_a_key_for_some_groups_names_no_slot(api: Api, role: str, method: str, path: str, body: Any) -> None:
    found = api.client.request(method, path, json=body, headers=api.key(role, "lakea"))
    assert (found.status_code, found.json()["code"]) == (403, "forbidden"), found.text
    assert "log" not in api.get("/connections/mine/settings")["spec"]
    patched = api.client.patch(AT, json={"spec": {"policy": "approve"}}, headers=api.key(role, "lakea"))
    assert patched.status_code == 200, "what else it may set"


def test_no_key_names_the_slot_of_another_connection(api: Api) -> None:
    found = api.call("PATCH", "/connections/mine/settings", body={"spec": {"log": {"slot": "shop_slot"}}})
    assert (found.status_code, found.json()["code"]) == (422, "invalid")
    assert "connection theirs of source pg has the slot 'shop_slot'" in found.text
    assert "mine" in found.text
    assert api.call("PATCH", "/connections/mine/settings", body={"spec": {"log": {"slot": "free"}}}).status_code == 200
