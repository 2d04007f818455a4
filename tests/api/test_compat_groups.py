"""Groups without a destination, what waits in them, and the words that other products have for destinations."""

from __future__ import annotations

from typing import Any

import pytest
from compat_world import Compat

from instep.server.fivetran_api.destinations import NO_EFFECT, TYPES, understood

SQLITE = {"service": "sqlite", "config": {"path": "shop.db"}}
DUCKDB = {"service": "duckdb", "time_zone_offset": "0", "config": {"path": "pond.duckdb"}}


def test_a_group_takes_connections_before_it_has_a_destination(compat: Compat) -> None:
    assert compat.data("POST", "/groups", {"name": "pond"}, 201)["id"] == "pond"
    made = compat.data("POST", "/connections", {"group_id": "pond", **SQLITE}, 201)
    assert (made["group_id"], made["status"]["setup_state"]) == ("pond", "incomplete")
    compat.ask("POST", f"/connections/{made['id']}/sync", {})
    [task] = compat.data("GET", f"/connections/{made['id']}")["status"]["tasks"]
    assert "waits for a destination" in task["message"]
    assert "waits for a destination" in compat.ask("POST", f"/connections/{made['id']}/test", {}, 400)["message"]
    compat.data("POST", "/destinations", {"group_id": "pond", **DUCKDB}, 201)
    now = compat.data("GET", f"/connections/{made['id']}")
    assert (now["status"]["setup_state"], now["created_at"]) == ("connected", made["created_at"])
    compat.sync(made["id"])
    assert compat.data("GET", f"/connections/{made['id']}")["succeeded_at"]


def test_a_password_that_waits_for_a_destination_stays_with_its_host(compat: Compat) -> None:
    compat.data("POST", "/groups", {"name": "pond"}, 201)
    config = {"host": "db.internal", "database": "d", "user": "u", "password": "canary"}
    made = compat.data("POST", "/connections", {"group_id": "pond", "service": "postgres", "config": config}, 201)
    path = f"/connections/{made['id']}"
    for moved in ({"host": "evil"}, {"port": 1}, {"host": "evil", "password": "******"}, {"tunnel_host": "evil"}):
        refused = compat.ask("PATCH", path, {"config": moved}, status=400)
        assert "Write the secret's value again" in refused["message"]
    assert compat.data("PATCH", path, {"config": {"user": "v"}})["config"]["host"] == "db.internal"
    assert compat.data("PATCH", path, {"config": {"host": "b", "password": "canary"}})["config"]["host"] == "b"


def test_a_group_is_renamed_and_outlives_its_destination(compat: Compat) -> None:
    id = compat.data("POST", "/groups", {"name": "the pond"}, 201)["id"]
    assert compat.data("GET", f"/groups/{id}")["name"] == "the pond"
    compat.data("POST", "/destinations", {"group_id": id, **DUCKDB}, 201)
    assert compat.data("GET", f"/groups/{id}")["name"] == "the pond"
    assert compat.data("PATCH", f"/groups/{id}", {"name": "lagoon"})["name"] == "lagoon"
    assert {g["id"]: g["name"] for g in compat.data("GET", "/groups")["items"]} == {"lake": "lake", id: "lagoon"}
    made = compat.data("GET", f"/groups/{id}")["created_at"]
    assert compat.ask("DELETE", f"/destinations/{id}")["code"] == "Success"
    assert compat.data("GET", f"/groups/{id}")["created_at"] == made
    assert compat.ask("GET", f"/destinations/{id}", status=404)["code"] == "NotFound_Destination"
    assert compat.data("GET", f"/groups/{id}")["name"] == "lagoon"
    compat.data("PATCH", f"/groups/{id}", {"name": "pond again"})
    assert compat.ask("DELETE", f"/groups/{id}")["code"] == "Success"
    assert compat.ask("GET", f"/groups/{id}", status=404)["code"] == "NotFound_Group"


def test_a_warehouse_by_the_words_of_others(compat: Compat) -> None:
    compat.data("POST", "/groups", {"name": "pond"}, 201)
    config = {
        "host": "127.0.0.1", "port": "5433", "user": "ann", "password": "hidden", "database": "dwh",
        "connection_type": "Directly", "tunnel_host": "jump",
    }  # fmt: skip
    body = {"group_id": "pond", "service": "postgres_warehouse", "time_zone_offset": "0", "run_setup_tests": False}
    for given in (
        compat.data("POST", "/destinations", body | {"config": config}, 201),
        compat.data("GET", "/destinations/pond"),
        compat.data("PATCH", "/destinations/pond", {"config": {"user": "bob"}, "run_setup_tests": False}),
    ):
        assert given["service"] == "postgres_warehouse"
        assert given["config"] | {"user": ""} == config | {"port": 5433, "password": "******", "user": ""}
    found = compat.app.objects.get("destination", "pond")
    assert (found.spec["type"], found.spec["port"], found.spec["user"]) == ("postgres", 5433, "bob")
    tunnel = {"config": {"connection_type": "SshTunnel"}}
    assert "reached directly" in compat.ask("PATCH", "/destinations/pond", tunnel, 400)["message"]
    assert "snowflake" in compat.ask("POST", "/destinations", body | {"service": "snowflake"}, 400)["message"]


@pytest.mark.parametrize("service", sorted(set(TYPES) - set(TYPES.values())))
def test_words_of_destinations(service: str) -> None:
    told: dict[str, Any] = dict.fromkeys(sorted(NO_EFFECT - {"connection_type"}), "x")
    if TYPES[service] == "iceberg":
        lake = {"bucket": "b", "prefix_path": "/a/b/"}
        assert understood(service, {**lake, **told}).spec == {"warehouse": "s3://b/a/b"}
        assert understood(service, {**lake, **told}).echoed == {**lake, **told}
    else:
        assert understood(service, {"host": "h", "port": 1, **told}).spec == {"host": "h", "port": 1}
        assert understood(service, {"host": "h", **told}).echoed == told


def test_ids_of_users_are_those_of_their_keys(compat: Compat) -> None:
    [me] = compat.data("GET", "/users")["items"]
    assert (me["id"], me["email"]) == (compat.pair[0], "ann")
    assert compat.data("GET", "/account/info")["user_id"] == compat.pair[0]
    made = compat.data("POST", "/connections", {"group_id": "lake", **SQLITE}, 201)
    assert made["connected_by"] == me["id"]


def test_what_was_never_loaded_is_dropped_if_it_is_blocked(compat: Compat) -> None:
    item = "/connections/shop/schemas/main/tables/item"
    compat.ask("POST", "/connections/shop/schemas/reload")
    assert "is not blocked" in compat.ask("DELETE", f"{item}/columns/name", status=409)["message"]
    compat.ask("PATCH", f"{item}/columns/name", {"enabled": False})
    assert compat.ask("DELETE", f"{item}/columns/name")["code"] == "Success"
    body = {"schemas": {"main": {"tables": {"item": {"columns": ["name"]}}}}}
    assert compat.ask("POST", "/connections/shop/schemas/drop-columns", body)["code"] == "Success"
    assert compat.store.jobs.unfinished(["shop"]) == []
    assert compat.ask("DELETE", f"{item}/columns/nope", status=404)["code"] == "NotFound"


def test_a_sync_that_is_tried_again_says_why(compat: Compat) -> None:
    compat.worker.leave()
    worker = compat.store.workers.register(1)
    compat.ask("POST", "/connections/shop/sync", {})
    job = compat.store.jobs.claim(worker.id)
    assert job is not None
    compat.store.jobs.fail(job, "the folder is not ours", retryable=True)
    status = compat.data("GET", "/connections/shop")["status"]
    assert (status["sync_state"], [t["code"] for t in status["tasks"]]) == ("rescheduled", ["sync_failed"])
    assert "the folder is not ours" in status["tasks"][0]["message"]
