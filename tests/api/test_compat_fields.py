"""What clients say of a connection reads back as they said it, is refused with the reason, or is named as left out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from compat_world import PROJECT, Compat, compatible

SHOP = "/connections/shop"
TOLD: dict[str, Any] = {
    "pause_after_trial": True, "data_delay_sensitivity": "CUSTOM", "data_delay_threshold": 90,
    "destination_schema_names": "FIVETRAN_NAMING", "destination_configuration": {"virtual_warehouse": "small"},
    "connect_card_config": {"redirect_uri": "https://example.com/done"},
}  # fmt: skip


def shown(found: Any) -> dict[str, Any]:
    return {name: found.get(name) for name in TOLD}


def test_what_is_patched_reads_back_and_goes_with_the_connection(compat: Compat) -> None:
    assert shown(compat.data("PATCH", SHOP, TOLD)) == TOLD
    assert shown(compat.data("PATCH", SHOP, {"data_delay_sensitivity": "LOW"})) == {
        **TOLD, "data_delay_sensitivity": "LOW"}  # fmt: skip
    assert shown(compat.data("GET", SHOP))["data_delay_threshold"] == 90
    assert shown(compat.data("GET", "/connections")["items"][0])["pause_after_trial"] is True
    compat.ask("DELETE", SHOP)
    compat.keep(PROJECT)
    assert shown(compat.data("GET", SHOP))["data_delay_sensitivity"] == "NORMAL"


def test_what_was_said_before_the_settings_came_stays(compat: Compat) -> None:
    body = {"group_id": "lake", "service": "sqlite", "config": {"schema": "later", "sync_mode": "x"}, **TOLD}
    assert shown(compat.data("POST", "/connections", {**body, "schedule_type": "manual"}, 201)) == TOLD
    done = compat.data("PATCH", "/connections/later", {"config": {"path": "shop.db"}, "run_setup_tests": True})
    assert (shown(done), done["schedule_type"], done["status"]["setup_state"]) == (TOLD, "manual", "connected")
    assert done["config"] == {"path": "shop.db", "sync_mode": "x"}
    assert {test["status"] for test in done["setup_tests"]} <= {"PASSED", "WARNING"}
    assert done["setup_tests"]


def test_one_that_a_file_manages_keeps_them_too(tmp_path: Any) -> None:
    with compatible(tmp_path, "{}", file=PROJECT.removeprefix("engine: local\n")) as compat:
        assert shown(compat.data("PATCH", SHOP, TOLD)) == TOLD


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"networking_method": "PrivateLink"}, "is reached Directly"),
        ({"networking_method": "SshTunnel"}, "is reached Directly"),
        ({"hybrid_deployment_agent_id": "agent"}, "hybrid_deployment_agent_id: the worker connects by itself"),
        ({"private_link_id": "a", "proxy_agent_id": "b"}, "private_link_id, proxy_agent_id: the worker"),
        ({"schema_status": "blocked_on_capture"}, "schema_status"),
        ({"destination_schema_names": "OURS"}, "destination_schema_names"),
        ({"data_delay_threshold": -1}, "data_delay_threshold"),
    ],
)
def test_what_would_not_be_so_is_refused(compat: Compat, body: dict[str, Any], said: str) -> None:
    assert said in compat.ask("PATCH", SHOP, {**body, "pause_after_trial": True}, 400)["message"]
    assert compat.data("GET", SHOP)["pause_after_trial"] is False
    if "schema_status" not in body:
        new = {"group_id": "lake", "service": "sqlite", "config": {"path": "shop.db"}, "run_setup_tests": False}
        assert said in compat.ask("POST", "/connections", {**new, **body}, 400)["message"]
    assert [c["id"] for c in compat.data("GET", "/connections")["items"]] == ["shop"]


def test_what_is_so_may_be_said(compat: Compat) -> None:
    body = {"networking_method": "Directly", "schema_status": "ready", "private_link_id": "", "proxy_agent_id": None}
    assert compat.data("PATCH", SHOP, body)["networking_method"] == "Directly"


def test_another_way_to_a_source_is_kept_until_there_is_one(compat: Compat) -> None:
    early = {"networking_method": "PrivateLink", "private_link_id": "link"}
    body = {"group_id": "lake", "service": "sqlite", "config": {"schema": "later"}, **early}
    made = compat.data("POST", "/connections", body, 201)
    assert early.items() <= made.items()
    patch = {"config": {"path": "shop.db"}}
    assert "private_link_id" in compat.ask("PATCH", "/connections/later", patch, 400)["message"]
    assert compat.data("GET", "/connections/later")["config"] == {"schema": "later"}, "nothing of it was taken"
    done = compat.data("PATCH", "/connections/later", {**patch, "networking_method": "Directly", "private_link_id": ""})
    assert (done["status"]["setup_state"], done["networking_method"]) == ("connected", "Directly")


UNKNOWN: list[tuple[str, dict[str, Any], str]] = [
    ("sqlite", {"path": "shop.db", "pth": "x", "colour": "red"}, "colour, pth"),
    ("postgres", {"update_method": "QUERY_BASED", "hostname": "db1"}, "hostname"),
    ("postgres", {"tunnel_host": "gate", "schema": "s", "api_key": "k"}, "api_key"),
    ("google_ads", {"anything": 1}, ""), ("sqlite", {"path": "shop.db", "schema": "s", "sync_mode": "x"}, ""),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("service", "config", "named"), UNKNOWN)
def test_settings_that_mean_nothing_here_are_named(
    compat: Compat, service: str, config: dict[str, Any], named: str
) -> None:
    body = {"group_id": "lake", "service": service, "config": config, "run_setup_tests": False}
    made = compat.ask("POST", "/connections", body, 201)
    changed = compat.ask("PATCH", f"/connections/{made['data']['id']}", {"config": config})
    for answer in (made, changed):
        warnings = answer["data"]["status"]["warnings"]
        assert [w["details"] for w in warnings] == ([named] if named else [])
        assert (named in answer["message"], "no effect" in answer["message"]) == (True, bool(named))


def test_sign_ins_of_other_services_are_named_too(compat: Compat) -> None:
    answer = compat.ask("PATCH", SHOP, {"auth": {"client_access": {"client_secret": "canary"}}})
    assert answer["data"]["status"]["warnings"][0]["details"] == "auth"
    assert "canary" not in str(answer)


def test_a_column_is_hashed_though_no_client_has_a_word_for_salt(compat: Compat) -> None:
    compat.ask("POST", f"{SHOP}/schemas/reload", {})
    column = f"{SHOP}/schemas/main/tables/item/columns/name"
    tree = compat.data("PATCH", column, {"enabled": True, "hashed": True})
    assert tree["schemas"]["main"]["tables"]["item"]["columns"]["name"]["hashed"] is True
    salt = compat.app.project.connection("shop").salt
    compat.ask("PATCH", column, {"enabled": True, "hashed": False})
    compat.ask("PATCH", f"{SHOP}/schemas", {"schemas": {"main": {"tables": {"item": {"columns": {"name": {
        "hashed": True}}}}}}})  # fmt: skip
    assert compat.app.project.connection("shop").salt == salt, "there is one for good"
    compat.sync()
    rows = compat.app.destination("lake").write.read(("shop", "item")).read_all()
    assert len(rows["name"][0].as_py()) == 64
    assert str(salt) not in str(compat.data("GET", SHOP))


def hashing(*columns: str) -> dict[str, Any]:
    return {"schemas": {"main": {"tables": {"item": {"columns": {c: {"hashed": True} for c in columns}}}}}}


def test_a_config_made_before_the_source_was_seen_brings_its_salt(compat: Compat) -> None:
    compat.ask("POST", f"{SHOP}/schemas", hashing("name"))
    assert compat.app.project.connection("shop").salt


def test_a_patch_that_is_refused_leaves_no_salt(compat: Compat) -> None:
    compat.ask("POST", f"{SHOP}/schemas/reload", {})
    compat.ask("PATCH", f"{SHOP}/schemas", hashing("name", "nope"), 404)
    assert not compat.app.project.connection("shop").salt


def test_one_that_a_file_manages_has_its_salt_there(tmp_path: Any) -> None:
    with compatible(tmp_path, "{}", file=PROJECT.removeprefix("engine: local\n")) as compat:
        compat.sql("create table item (id integer primary key, name text)")
        assert "no salt" in compat.ask("POST", f"{SHOP}/schemas", hashing("name"), 409)["message"]
        compat.ask("POST", f"{SHOP}/schemas/reload", {})
        column = f"{SHOP}/schemas/main/tables/item/columns/name"
        assert "no salt" in compat.ask("PATCH", column, {"hashed": True}, 409)["message"]


LISTS = (
    "/connections", "/groups", "/groups/lake/connections", "/groups/lake/users", "/destinations", "/users", "/webhooks",
    "/metadata/connector-types", "/metadata/connectors/shop/tables", "/teams", "/transformations", "/proxy",
)  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("path", LISTS)
def test_every_list_has_a_message_and_both_cursors(compat: Compat, path: str) -> None:
    found = compat.ask("GET", path)
    assert found["message"].endswith("successfully")
    assert {"items", "next_cursor", "nextCursor"} <= set(found["data"])


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"config": {"schema": "other"}}, "config.schema of a connection is permanent: it is shop"),
        ({"config": {"schema_prefix": "other", "path": "b.db"}}, "config.schema_prefix of a connection is permanent"),
        ({"external_secrets_manager_id": "vault"}, "external_secrets_manager_id: the worker connects by itself"),
        ({"service": "postgres"}, "service of a connection is permanent: it is sqlite"),
        ({"group_id": "pond"}, "group_id of a connection is permanent: it is lake"),
    ],
)
def test_what_a_connection_is_made_with_stays(compat: Compat, body: dict[str, Any], said: str) -> None:
    before = compat.data("GET", SHOP)
    refused = compat.ask("PATCH", SHOP, {**body, "paused": True}, 400)
    assert (said in refused["message"], refused["code"]) == (True, "InvalidInput")
    assert compat.data("GET", SHOP) == before, "nothing of it was taken"


def test_what_a_connection_is_made_with_may_be_said_again(compat: Compat) -> None:
    same = {"service": "sqlite", "group_id": "lake", "config": {"schema": "shop"}, "external_secrets_manager_id": ""}
    assert compat.data("PATCH", SHOP, same)["schema"] == "shop"
    kept = {"group_id": "lake", "service": "itunes_connect", "external_secrets_manager_id": "vault"}
    made = compat.data("POST", "/connections", kept, 201)
    assert made["external_secrets_manager_id"] == "******", "kept as a secret, by its name"
    path = f"/connections/{made['id']}"
    assert "permanent" in compat.ask("PATCH", path, {"service": "google_ads"}, 400)["message"]
    assert compat.data("PATCH", path, {"config": {"schema": "other"}})["schema"] == "other", "nothing is loaded yet"


def test_the_word_that_its_client_has_for_a_service_stays(compat: Compat) -> None:
    config = {"host": "127.0.0.1", "user": "u", "database": "d", "schema_prefix": "erp"}
    body = {"group_id": "lake", "service": "postgres_rds", "config": config, "run_setup_tests": False}
    made = compat.data("POST", "/connections", body, 201)
    assert (made["service"], made["schema"]) == ("postgres_rds", "erp")
    assert compat.data("PATCH", f"/connections/{made['id']}", {"service": "postgres"})["service"] == "postgres_rds"


UNREAD: list[tuple[str, str, dict[str, Any], str]] = [
    ("PATCH", SHOP, {"pause_after_trial": True, "schedule": {"cron": "* * * * *"}},
     "schedule (did you mean schedule_type?)"),
    ("PATCH", f"{SHOP}/schemas", {"schemas": {"main": {"tables": {"item": {"enabeld": False}}}}},
     "schemas.main.tables.item.enabeld (did you mean enabled?)"),
    ("PATCH", f"{SHOP}/schemas/main", {"enabled": True, "tabels": {}}, "tabels (did you mean tables?)"),
    ("PATCH", f"{SHOP}/schemas/main/tables/item", {"enabled": True, "columns": {"name": {"hash": True}}},
     "columns.name.hash (did you mean hashed?)"),
    ("PATCH", f"{SHOP}/schemas/main/tables/item/columns/name", {"enabled": True, "masked": True},
     "masked (did you mean hashed?)"),
    ("POST", f"{SHOP}/schemas/reload", {"mode": "EXCLUDE"}, "mode"),
    ("POST", f"{SHOP}/sync", {"forced": True}, "forced (did you mean force?)"),
    ("POST", f"{SHOP}/resync", {"tables": {"main": ["item"]}}, "tables"),
    ("PATCH", SHOP, {"sync_frequency": 60, "daily_sync_time": "03:00"}, "daily_sync_time"),
    ("PATCH", "/groups/lake", {"name": "lake", "colour": "red"}, "colour"),
    ("PATCH", "/destinations/lake", {"region": "EU", "service": "delta", "run_setup_tests": False}, "service"),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("method", "path", "body", "named"), UNREAD)
def test_fields_that_nothing_reads_are_named(
    compat: Compat, method: str, path: str, body: dict[str, Any], named: str
) -> None:
    if "/schemas" in path:
        compat.ask("POST", f"{SHOP}/schemas/reload", {})
    assert compat.ask(method, path, body)["message"].endswith(f"settings have no effect here: {named}.")


def test_a_tree_that_is_sent_back_as_it_was_read_has_nothing_unknown(compat: Compat) -> None:
    compat.ask("POST", f"{SHOP}/schemas/reload", {})
    compat.ask("PATCH", f"{SHOP}/schemas/main/tables/item/columns/name", {"enabled": True})
    tree = compat.data("GET", f"{SHOP}/schemas")
    assert compat.ask("PATCH", f"{SHOP}/schemas", tree)["message"] == "Schema configuration has been modified"


def test_two_that_are_made_at_the_same_time_get_two_names(compat: Compat) -> None:
    body = {"group_id": "lake", "service": "sqlite", "config": {"path": "shop.db", "schema": "twin"}}
    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda _: compat.data(
            "POST", "/connections", {**body, "run_setup_tests": False}, 201)["id"], range(6)))  # fmt: skip
    assert sorted(made) == ["twin", *(f"twin_{number}" for number in range(2, 7))]
