"""Who may do what over `/v1`: the same deed takes the same role there as over `/api/v1`."""

from __future__ import annotations

from typing import Any

import pytest
from compat_world import Compat

from instep.api.compat.desk import RANKS
from instep.api.compat.matrix import NEEDS, of_change

VALUES = {
    "{id}": "shop", "{schema}": "main", "{table}": "item", "{column}": "name", "{group}": "lake", "{user}": "user_x",
}  # fmt: skip


def test_every_route_that_writes_has_a_role(compat: Compat) -> None:
    paths: dict[str, Any] = compat.client.get("/v1/openapi.json").json()["paths"]
    writes = {
        f"{method.upper()} {path.removeprefix('/v1')}"
        for path, methods in paths.items()
        for method in methods
        if method in ("post", "put", "patch", "delete")
    }
    assert writes == set(NEEDS)


@pytest.mark.parametrize("route", sorted(NEEDS))
def test_who_has_less_is_refused(compat: Compat, route: str) -> None:
    method, path = route.split()
    for said, value in VALUES.items():
        path = path.replace(said, value)
    for role, rank in RANKS.items():
        if rank < RANKS[NEEDS[route]]:
            answer = compat.ask(method, path, {}, 403, auth=compat.key(role))
            assert answer["message"] == f"Your key has the role {role}; this takes {NEEDS[route]}."


CHANGES = [
    ("stop and start", {"paused": True}, "operator"),
    ("read again", {"is_historical_sync": True}, "operator"),
    ("how often", {"sync_frequency": 60}, "approver"),
    ("stop and how often", {"paused": True, "sync_frequency": 60}, "approver"),
    ("where from", {"config": {"path": "other.db"}}, "admin"),
]


@pytest.mark.parametrize(("name", "body", "role"), CHANGES, ids=[c[0] for c in CHANGES])
def test_what_is_changed_says_who_may(compat: Compat, name: str, body: dict[str, Any], role: str) -> None:
    assert of_change(body) == role
    below = [r for r, rank in RANKS.items() if 0 < rank < RANKS[role]]
    for less in below:
        compat.ask("PATCH", "/connections/shop", body, 403, auth=compat.key(less))
    compat.ask("PATCH", "/connections/shop", body, auth=compat.key(role))
