"""The routes of the compatible API: answers, refusals, and what they do to the store and the project."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from compat_world import PROJECT, Compat, compatible

from instep.control.compat import CompatDocuments

SCHEMAS = "/connections/shop/schemas"
ITEM = f"{SCHEMAS}/main/tables/item"


def test_one_connection_from_never_run_to_synced(compat: Compat) -> None:
    new = compat.data("GET", "/connections/shop")
    assert new | {"created_at": ""} == {
        "id": "shop", "group_id": "lake", "service": "sqlite", "service_version": 1, "schema": "shop",
        "connected_by": "ann", "created_at": "", "succeeded_at": None, "failed_at": None, "paused": False,
        "pause_after_trial": False, "sync_frequency": 360, "schedule_type": "manual",
        "data_delay_sensitivity": "NORMAL", "data_delay_threshold": 0, "networking_method": "Directly",
        "status": {
            "setup_state": "connected", "schema_status": "ready", "sync_state": "scheduled",
            "update_state": "on_schedule", "is_historical_sync": True, "rescheduled_for": None, "tasks": [],
            "warnings": [],
        },
        "config": {"path": "shop.db"},
    }  # fmt: skip
    compat.sync()
    after = compat.data("GET", "/connections/shop")
    assert after["succeeded_at"].endswith("Z")
    assert after["failed_at"] is None
    assert (after["status"]["sync_state"], after["status"]["is_historical_sync"]) == ("scheduled", False)


def test_a_sync_under_way(compat: Compat) -> None:
    compat.worker.held.clear()
    compat.ask("POST", "/connections/shop/sync")
    assert compat.data("GET", "/connections/shop")["status"]["sync_state"] == "syncing"
    refused = compat.ask("POST", "/connections/shop/sync", {"force": False}, 409)
    assert refused["code"] == "Conflict"
    assert len(refused["request_id"]) == 16
    assert compat.ask("POST", "/connectors/shop/force")["code"] == "Success", "the older form joins it"
    compat.ask("POST", "/connections/shop/sync", {"force": "true"})
    compat.worker.held.set()
    compat.worker.idle()
    assert len(compat.worker.ended) == 1, "the first one was cancelled, the forced one ran"


def test_a_failed_sync_moves_failed_at(compat: Compat) -> None:
    compat.sync()
    compat.folder.joinpath("shop.db").unlink()
    compat.sync()
    found = compat.data("GET", "/connections/shop")
    assert found["failed_at"] > found["succeeded_at"]


def test_what_a_person_has_to_do_is_a_task(compat: Compat) -> None:
    compat.store.detectors.disable("shop", "table removed main.box (c-1)")
    [task] = compat.data("GET", "/connections/shop")["status"]["tasks"]
    assert task["code"] == "resolve_schema_change"
    assert "table removed main.box (c-1)" in task["message"]
    compat.store.detectors.enable("shop")
    assert compat.data("GET", "/connections/shop")["status"]["tasks"] == []


def test_pausing_and_resuming(compat: Compat) -> None:
    paused = compat.ask("PATCH", "/connections/shop", {"paused": True})["data"]
    assert (paused["paused"], paused["status"]["sync_state"]) == (True, "paused")
    assert "is paused" in compat.ask("POST", "/connections/shop/sync", {}, 409)["message"]
    assert compat.data("PATCH", "/connections/shop", {"paused": "false"})["paused"] is False
    assert compat.ask("PATCH", "/connections/shop", {"run_setup_tests": True}, 400)["code"] == "InvalidInput"


def test_the_schedule(compat: Compat) -> None:
    daily = compat.data("PATCH", "/connections/shop", {"sync_frequency": 1440, "daily_sync_time": "14:00"})
    assert (daily["sync_frequency"], daily["daily_sync_time"], daily["schedule_type"]) == (1440, "14:00", "auto")
    assert compat.app.project.connection("shop").schedule.sync == "0 14 * * *"
    assert compat.data("PATCH", "/connections/shop", {"schedule_type": "manual"}).items() >= {
        ("schedule_type", "manual"), ("sync_frequency", 1440), ("daily_sync_time", "14:00")}  # fmt: skip
    assert compat.app.project.connection("shop").schedule.sync == ""
    slow = compat.data("PATCH", "/connections/shop", {"sync_frequency": 30})
    assert (slow["schedule_type"], slow["sync_frequency"]) == ("manual", 30), "until it is said to be auto"
    assert compat.data("PATCH", "/connections/shop", {"schedule_type": "auto"})["sync_frequency"] == 30
    assert compat.app.project.connection("shop").schedule.sync == "*/30 * * * *"
    assert (
        "sync_frequency must be one of"
        in compat.ask("PATCH", "/connections/shop", {"sync_frequency": 7}, 400)["message"]
    )


def test_a_connection_that_files_manage_refuses_with_what_to_write(tmp_path: Path) -> None:
    with compatible(tmp_path, "{}", file=PROJECT.removeprefix("engine: local\n")) as compat:
        compat.sql("create table item (id integer primary key, name text)")
        compat.sync()
        check_refused(compat)


def check_refused(compat: Compat) -> None:
    for path, body in (
        ("/connections/shop", {"sync_frequency": 60}),
        (SCHEMAS, {"schema_change_handling": "BLOCK_ALL"}),
    ):
        refused = compat.ask("PATCH", path, body, 409)
        assert refused["message"] == "connection shop is managed by instep.yml:4"
        assert refused["hint"].startswith("write it there:\nconnections:\n  shop:")
    assert compat.data("PATCH", ITEM, {"enabled": False})["schemas"]["main"]["tables"]["item"]["enabled"] is False


def test_the_tree_with_names_locks_and_modes(compat: Compat) -> None:
    compat.sync()
    patched = compat.data("PATCH", f"{ITEM}/columns/id", {"enabled": True, "hashed": None, "is_primary_key": None})
    assert patched == {
        "enable_new_by_default": True, "schema_change_handling": "ALLOW_ALL", "schemas": {"main": {
            "name_in_destination": "shop", "enabled": True, "tables": {"item": {
                "name_in_destination": "item", "enabled": True, "sync_mode": "SOFT_DELETE",
                "enabled_patch_settings": {"allowed": True}, "supports_columns_config": True,
                "supports_history_mode": True, "columns": {"id": {
                    "name_in_destination": "id", "enabled": True, "hashed": False, "is_primary_key": True,
                    "enabled_patch_settings": {"allowed": False, "reason_code": "SYSTEM_COLUMN"},
                }},
            }},
        }},
    }  # fmt: skip
    assert "in the key" in compat.ask("PATCH", f"{ITEM}/columns/id", {"enabled": False}, 409)["message"]
    history = compat.data("PATCH", ITEM, {"sync_mode": "HISTORY"})
    assert history["schemas"]["main"]["tables"]["item"]["sync_mode"] == "HISTORY"
    assert compat.app.project.table("shop", ("main", "item")).history


def test_columns_are_read_from_the_source(compat: Compat) -> None:
    compat.sync()
    compat.sql("alter table item add column price real")
    found = compat.data("GET", f"{ITEM}/columns")["columns"]
    assert [(name, c["enabled"], c["is_primary_key"]) for name, c in found.items()] == [
        ("id", True, True), ("name", True, False), ("price", True, False),
    ]  # fmt: skip
    assert compat.ask("GET", f"{SCHEMAS}/main/tables/nope/columns", status=404)["code"] == "NotFound"


@pytest.mark.sampled
@pytest.mark.parametrize(("mode", "on"), [("EXCLUDE", False), ("INCLUDE", True), ("PRESERVE", False)])
def test_reloading_switches_tables_and_no_columns(compat: Compat, mode: str, on: bool) -> None:
    compat.ask("POST", f"{SCHEMAS}/reload")
    compat.ask("PATCH", ITEM, {"enabled": False})
    compat.sql("create table other (x text)")
    main = compat.data("POST", f"{SCHEMAS}/reload", {"exclude_mode": mode})["schemas"]["main"]
    new = True if mode == "PRESERVE" else on
    assert (main["tables"]["item"]["enabled"], main["tables"]["other"]["enabled"]) == (on, new)
    assert all(not table["columns"] for table in main["tables"].values())


def test_without_a_worker_nothing_reaches_a_source(compat: Compat) -> None:
    compat.worker.leave()
    refused = compat.client.post(f"/v1{SCHEMAS}/reload")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
    assert "instep worker" in refused.json()["hint"]


def test_a_source_that_fails_and_one_that_takes_long(compat: Compat) -> None:
    compat.folder.joinpath("shop.db").write_text("no database at all" * 100)
    assert compat.ask("POST", f"{SCHEMAS}/reload", status=400)["code"] == "InvalidInput"
    compat.worker.held.clear()
    answer = compat.hasty(0.01).post(f"/v1{SCHEMAS}/reload")
    assert (answer.status_code, "still going" in answer.text) == (503, True)


def test_a_config_made_before_the_source_was_seen(compat: Compat) -> None:
    body = {"schema_change_handling": "ALLOW_COLUMNS", "schemas": {"main": {"enabled": True, "tables": {
        "item": {"enabled": True, "columns": {"name": {"enabled": False, "hashed": False}}},
    }}}}  # fmt: skip
    assert compat.data("POST", SCHEMAS, body) == body
    compat.sync()
    compat.sql("create table other (x text)")
    compat.sync()
    tables = compat.data("GET", SCHEMAS)["schemas"]["main"]["tables"]
    assert {name: t["enabled"] for name, t in tables.items()} == {"item": True, "other": False}
    assert tables["item"]["columns"]["name"]["enabled"] is False
    assert compat.ask("POST", SCHEMAS, body, 409)["hint"] == "PATCH it"


def test_what_is_dropped_must_be_blocked(compat: Compat) -> None:
    compat.sync()
    assert "is not blocked" in compat.ask("DELETE", f"{ITEM}/columns/name", status=409)["message"]
    assert compat.ask("DELETE", f"{ITEM}/columns/nope", status=404)["code"] == "NotFound"
    compat.ask("PATCH", f"{ITEM}/columns/name", {"enabled": False})
    compat.worker.held.clear()
    body = {"schemas": {"main": {"tables": {"item": {"columns": ["name"]}}}}}
    compat.ask("POST", f"{SCHEMAS}/drop-columns", body)
    [job] = compat.store.jobs.unfinished(["shop"])
    assert job.options == {"drop_columns": ["main.item.name"]}
    compat.worker.held.set()
    compat.worker.idle()
    destination = compat.app.destination("lake")
    columns = destination.write.read(("shop", "item")).read_all().column_names
    assert [name for name in columns if not name.startswith("_instep_")] == ["id"]
    assert compat.data("GET", SCHEMAS)["schemas"]["main"]["tables"]["item"]["columns"]["name"]["enabled"] is False
    assert compat.ask("POST", f"{SCHEMAS}/drop-columns", {"schemas": {}}, 400)["code"] == "InvalidInput"


def test_columns_whose_names_read_alike_are_dropped_by_two_jobs(compat: Compat) -> None:
    compat.sql('alter table item add column a text; alter table item add column "a main.item.name" text')
    compat.sync()
    for column in ("name", "a", "a%20main.item.name"):
        compat.ask("PATCH", f"{ITEM}/columns/{column}", {"enabled": False})
    compat.worker.held.clear()
    for columns in (["a main.item.name"], ["a", "name"]):
        compat.ask("POST", f"{SCHEMAS}/drop-columns", {"schemas": {"main": {"tables": {"item": {"columns": columns}}}}})
    wanted = sorted(sorted(job.options["drop_columns"]) for job in compat.store.jobs.unfinished(["shop"]))
    assert wanted == [["main.item.a", "main.item.name"], ["main.item.a main.item.name"]]
    compat.worker.held.set()
    compat.worker.idle()


RESYNCS: list[tuple[str, Any]] = [
    ("/resync", {}), ("/resync", {"scope": None}), ("/resync", {"scope": {"main": ["item"]}}),
    ("/schemas/tables/resync", {"main": ["item"]}), ("/schemas/tables/resync", {"schema": ["main.item"]}),
    ("/schemas/main/tables/item/resync", None),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("path", "body"), RESYNCS)
def test_tables_are_read_again(compat: Compat, path: str, body: Any) -> None:
    compat.sync()
    compat.worker.held.clear()
    compat.ask("POST", f"/connections/shop{path}", body)
    assert [b.table for b in compat.store.backfills.waiting("shop")] == [("main", "item")]
    compat.worker.held.set()
    compat.worker.idle()
    assert compat.store.backfills.waiting("shop") == []


@pytest.mark.parametrize("scope", [{}, {"main": []}])
def test_an_empty_scope_is_refused(compat: Compat, scope: Any) -> None:
    compat.sync()
    assert "names no table" in compat.ask("POST", "/connections/shop/resync", {"scope": scope}, 400)["message"]


def test_a_paused_connection_is_read_again_when_it_is_resumed(compat: Compat) -> None:
    compat.sync()
    compat.ask("PATCH", "/connections/shop", {"paused": True})
    compat.ask("POST", "/connections/shop/resync")
    assert compat.store.jobs.unfinished(["shop"]) == []
    assert len(compat.store.backfills.waiting("shop")) == 1


def test_a_connection_is_made_tested_changed_and_deleted(compat: Compat) -> None:
    compat.sql("create table t (id integer primary key)", "second.db")
    body = {
        "group_id": "lake",
        "service": "sqlite",
        "config": {"path": "second.db", "schema": "second shop"},
        "paused": True,
    }
    made = compat.data("POST", "/connections", body, 201)
    assert (made["id"], made["schema"], made["paused"], made["group_id"]) == (
        "second_shop",
        "second shop",
        True,
        "lake",
    )
    assert {test["status"] for test in made["setup_tests"]} <= {"PASSED", "WARNING"}
    assert made["setup_tests"], "a new connection is tested"
    assert compat.data("POST", "/connections", body | {"run_setup_tests": False}, 201)["id"] == "second_shop_2"
    changed = compat.data("PATCH", "/connections/second_shop", {"config": {"path": "shop.db"}})
    assert changed["config"] == {"path": "shop.db"}
    assert compat.data("POST", "/connections/second_shop/test", {})["setup_tests"]
    assert compat.ask("DELETE", "/connections/second_shop")["code"] == "Success"
    assert compat.ask("GET", "/connections/second_shop", status=404)["code"] == "NotFound_Connection"
    assert compat.ask("POST", "/connections", body | {"group_id": "pond"}, 404)["code"] == "NotFound_Group"


def test_a_connection_that_is_refused_leaves_nothing_behind_and_tells_no_secret(compat: Compat) -> None:
    config = {"host": "localhost", "database": "d", "user": "u", "password": "canary", "port": "nope"}
    body = {"group_id": "lake", "service": "postgres", "config": config}
    assert "canary" not in str(compat.ask("POST", "/connections", body, 400))
    assert compat.store.objects.names("source") == compat.store.objects.names("connection") == ("shop",)


def test_a_service_that_nothing_here_reads(compat: Compat) -> None:
    config = {"schema": "apps", "app_ids": ["1"], "token": "t"}
    made = compat.data("POST", "/connections", {"group_id": "lake", "service": "itunes_connect", "config": config}, 201)
    masked = config | {"token": "******"}
    assert (made["service"], made["config"], made["status"]["setup_state"]) == ("itunes_connect", masked, "incomplete")
    assert [c["id"] for c in compat.data("GET", "/connections")["items"]] == ["apps", "shop"]
    compat.ask("POST", "/connections/apps/sync", {})
    after = compat.data("GET", "/connections/apps")
    assert after["failed_at"]
    assert after["status"]["tasks"][0]["code"] == "service_not_supported"
    assert compat.data("PATCH", "/connections/apps", {"config": {"token": "u"}})["config"] == masked
    assert CompatDocuments(compat.store).opened("foreign", "apps")["config"] == config | {"token": "u"}
    assert compat.ask("GET", "/connections/apps/schemas", status=404)["code"] == "NotFound_SchemaConfig"
    assert "nothing here reads" in compat.ask("POST", "/connections/apps/schemas/reload", status=400)["message"]
    compat.ask("DELETE", "/connections/apps")
    assert len(compat.data("GET", "/connections")["items"]) == 1


def test_a_connection_without_settings_is_incomplete_until_it_has_them(compat: Compat) -> None:
    compat.sql("create table t (id integer primary key)", "second.db")
    body = {
        "group_id": "lake",
        "service": "sqlite",
        "config": {"schema": "later"},
        "sync_frequency": 60,
        "paused": True,
    }
    made = compat.data("POST", "/connections", body, 201)
    assert (made["id"], made["setup_tests"], made["paused"], made["config"]) == ("later", [], True, {"schema": "later"})
    status = {"setup_state": "incomplete", "update_state": "on_schedule", "is_historical_sync": True, "tasks": []}
    assert status.items() <= made["status"].items()
    assert compat.ask("POST", "/connections/later/sync", {})["code"] == "Success"
    [task] = compat.data("GET", "/connections/later")["status"]["tasks"]
    assert (task["code"], "PATCH it with its config" in task["message"]) == ("reconnect", True)
    assert "no settings" in compat.ask("POST", "/connections/later/test", {}, status=400)["message"]
    compat.ask("PATCH", "/connections/later", {"config": {"path": 7}}, status=400)
    assert compat.data("PATCH", "/connections/later", {"paused": False})["status"]["setup_state"] == "incomplete"
    done = compat.data("PATCH", "/connections/later", {"config": {"path": "second.db"}})
    assert (done["status"]["setup_state"], done["config"], done["schema"]) == (
        "connected",
        {"path": "second.db"},
        "later",
    )
    assert (done["paused"], done["sync_frequency"], done["status"]["tasks"]) == (False, 60, [])
    assert {test["status"] for test in compat.data("POST", "/connections/later/test", {})["setup_tests"]} <= {
        "PASSED", "WARNING",
    }  # fmt: skip
    compat.ask("DELETE", "/connections/later")
    assert [c["id"] for c in compat.data("GET", "/connections")["items"]] == ["shop"]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("service", "config", "status", "state"),
    [
        ("postgres", {"hostname": "db1", "usr": "u"}, 400, "hostname, usr"),
        ("jdbc", {"uri": "jdbc:h2:mem:x"}, 400, "url, subprotocol"),
        ("postgres", {"update_method": "QUERY_BASED"}, 201, "incomplete"),
        ("postgres", {"tunnel_host": "gate", "hostname": "db1"}, 201, "incomplete"),
        ("jdbc", {"url": "jdbc:h2:tcp://db/x"}, 201, "connected"),
        ("google_ads", {"hostname": "db1"}, 201, "incomplete"),
    ],
)
def test_settings_that_are_not_understood_are_refused(
    compat: Compat, service: str, config: dict[str, str], status: int, state: str
) -> None:
    body = {"group_id": "lake", "service": service, "config": config, "run_setup_tests": False}
    answer = compat.ask("POST", "/connections", body, status)
    if status == 400:
        assert state in str(answer)
        assert len(compat.data("GET", "/connections")["items"]) == 1
        return
    assert answer["data"]["status"]["setup_state"] == state
    if service != "google_ads":
        patch = f"/connections/{answer['data']['id']}"
        assert "hostnam" in compat.ask("PATCH", patch, {"config": {"hostnam": "db1"}}, 400)["message"]


def test_a_connection_that_is_completed_stays_the_one_that_was_made(compat: Compat) -> None:
    body = {"group_id": "lake", "service": "sqlite", "config": {"schema": "later"}}
    made = compat.data("POST", "/connections", body, 201)
    compat.client.auth = compat.key("admin")
    done = compat.data("PATCH", "/connections/later", {"config": {"path": "shop.db"}})
    same = ("created_at", "connected_by", "id", "schema", "service", "group_id")
    assert [done[key] for key in same] == [made[key] for key in same]
    assert done["status"]["setup_state"] == "connected"
    told = [e.type for e in compat.store.events.after() if e.connection == "later"]
    assert told == ["connection.created", "connection.edited"]


def test_a_secret_that_came_before_the_other_settings_is_kept_and_not_told(compat: Compat) -> None:
    body = {"group_id": "lake", "service": "postgres", "config": {"api_token": "canary"}, "run_setup_tests": False}
    made = compat.data("POST", "/connections", body, 201)
    assert (made["status"]["setup_state"], made["config"]) == ("incomplete", {"api_token": "******"})
    config = {"host": "localhost", "database": "d", "user": "u", "password": "canary"}
    done = compat.data("PATCH", f"/connections/{made['id']}", {"config": config})
    assert (done["config"]["password"], done["service"]) == ("******", "postgres")
    assert "canary" not in str([e.data for e in compat.store.events.after()])


def test_a_password_is_not_sent_to_another_host(compat: Compat) -> None:
    config = {"host": "localhost", "database": "d", "user": "u", "password": "canary"}
    body = {"group_id": "lake", "service": "postgres", "config": {"schema": "mine", **config}, "run_setup_tests": False}
    path = f"/connections/{compat.data('POST', '/connections', body, 201)['id']}"
    compat.client.auth = compat.key("admin")
    for moved in ({"host": "evil"}, {"host": "evil", "password": "******"}):
        refused = compat.ask("PATCH", path, {"config": moved, "run_setup_tests": False}, status=400)
        assert "Write the secret's value again" in refused["message"]
    assert compat.data("GET", path)["config"]["host"] == "localhost"
    compat.data("PATCH", path, {"config": {"host": "other", "password": "canary"}, "run_setup_tests": False})
    group = {"name": "pg"}
    made = compat.data("POST", "/groups", group, 201)
    body = {
        "group_id": made["id"],
        "service": "postgres",
        "time_zone_offset": "0",
        "config": config,
        "run_setup_tests": False,
    }
    compat.data("POST", "/destinations", body, 201)
    refused = compat.ask("PATCH", f"/destinations/{made['id']}", {"config": {"host": "evil"}}, status=400)
    assert "Write the secret's value again" in refused["message"]


def test_groups_and_destinations(compat: Compat) -> None:
    assert [g["id"] for g in compat.data("GET", "/groups")["items"]] == ["lake"]
    assert compat.data("GET", "/groups/lake/connectors")["items"][0]["id"] == "shop"
    assert compat.data("GET", "/destinations/lake")["group_id"] == "lake"
    assert compat.ask("DELETE", "/destinations/lake", status=409)["message"] == "Destination 'lake' is in use."
    assert compat.data("POST", "/groups", {"name": "pond"}, 201)["id"] == "pond"
    body = {"group_id": "pond", "service": "duckdb", "time_zone_offset": "-5", "config": {"path": "pond.duckdb"}}
    assert compat.ask("GET", "/destinations/pond", status=404)["code"] == "NotFound_Destination"
    assert compat.data("POST", "/destinations", body, 201)["service"] == "duckdb"
    assert compat.ask("POST", "/destinations", body, 409)["code"] == "Conflict"
    assert [g["id"] for g in compat.data("GET", "/groups")["items"]] == ["lake", "pond"]
    assert (
        compat.data("PATCH", "/destinations/pond", {"config": {"path": "new.duckdb"}})["config"]["path"] == "new.duckdb"
    )
    compat.ask("DELETE", "/groups/pond")
    assert compat.ask("GET", "/groups/pond", status=404)["code"] == "NotFound_Group"


def test_webhooks_are_kept_and_their_secret_never_told(compat: Compat) -> None:
    body = {"url": "https://example.com/hook", "events": ["sync_end"], "secret": "canary", "active": False}
    made = compat.data("POST", "/webhooks/account", body)
    assert (made["secret"], made["type"]) == ("******", "account")
    other = compat.data("POST", "/webhooks/group/lake", body)["id"]
    assert compat.data("GET", f"/webhooks/{other}")["group_id"] == "lake"
    changed = compat.data("PATCH", f"/webhooks/{made['id']}", {"secret": "******", "events": ["sync_start"]})
    assert (changed["events"], changed["active"]) == (["sync_start"], False)
    assert CompatDocuments(compat.store).opened("webhook", made["id"])["secret"] == "canary"
    assert len(compat.data("GET", "/webhooks")["items"]) == 2
    assert compat.ask("DELETE", f"/webhooks/{made['id']}")["code"] == "Success"
    assert (
        "has failed"
        in compat.ask("PATCH", f"/webhooks/{other}", {"url": "https://127.0.0.1:9/", "active": True}, 400)["message"]
    )
    inner = compat.ask("POST", "/webhooks/account", {**body, "url": "https://169.254.169.254/"}, 400)
    assert "metadata" in inner["message"]
    for wrong in ({"url": "http://example.com"}, {"events": ["nope"]}, {"events": []}):
        assert compat.ask("POST", "/webhooks/account", body | wrong, 400)["code"] == "InvalidInput"


def test_users_types_and_metadata(compat: Compat) -> None:
    compat.sync()
    assert compat.data("GET", "/users")["items"][0]["id"] == compat.pair[0]
    assert "postgres" in [t["id"] for t in compat.data("GET", "/metadata/connector-types")["items"]]
    assert compat.data("GET", "/metadata/connector-types/mysql")["name"] == "MySQL"
    assert compat.data("GET", "/metadata/connectors/shop/schemas")["items"][0]["name_in_source"] == "main"
    assert compat.data("GET", "/metadata/connectors/shop/tables")["items"][0]["id"] == "main.item"
    columns = compat.data("GET", "/metadata/connectors/shop/columns")["items"]
    assert [(c["name_in_source"], c["is_primary_key"]) for c in columns] == [("id", True), ("name", False)]


def test_names_with_slashes_and_dots(compat: Compat) -> None:
    compat.sql('create table "a/b.c" (id integer primary key, "x y" text)')
    compat.sync()
    tree = compat.data("PATCH", f"{SCHEMAS}/main/tables/a%2Fb.c/columns/x%20y", {"enabled": False})
    assert tree["schemas"]["main"]["tables"]["a/b.c"]["columns"]["x y"]["enabled"] is False


def test_what_a_key_may_do_and_see(compat: Compat) -> None:
    viewer = compat.key("viewer")
    assert compat.ask("GET", "/connections/shop", auth=viewer)["code"] == "Success"
    assert compat.ask("POST", "/connections/shop/sync", {}, 403, auth=viewer)["code"] == "Forbidden"
    operator = compat.key("operator", "pond")
    assert compat.data("GET", "/connections", auth=operator)["items"] == []
    assert compat.data("GET", "/groups", auth=operator)["items"] == []
    for path in ("/connections/shop", "/connections/shop/schemas", "/groups/lake", "/groups/lake/connections"):
        compat.ask("GET", path, status=404, auth=operator)
    compat.ask("POST", "/groups", {"name": "x"}, 403, auth=operator)


def test_who_has_no_key_is_told_nothing(compat: Compat) -> None:
    pair = base64.b64encode(":".join(compat.pair).encode()).decode()
    for given in ("", "Basic !!", "Basic a2V5", f"Bearer {pair}", "Basic /w=="):
        answer = compat.client.get("/v1/connections", headers={"Authorization": given}, auth=None)
        assert (answer.status_code, answer.json()["code"]) == (401, "Unauthorized")
        assert "www-authenticate" in answer.headers


def test_filters_and_pages(tmp_path: Any) -> None:
    text = PROJECT.replace(
        "connections: {",
        "connections: {" + "".join(f"c{n:03}: {{source: shop, destination: lake}}, " for n in range(25)),
    )
    with compatible(tmp_path, text) as compat:
        found: list[str] = []
        cursor = None
        while True:
            query = {"group_id": "lake", "limit": 10} | ({"cursor": cursor} if cursor else {})
            data = compat.data("GET", "/connections", params=query)
            found += [item["id"] for item in data["items"]]
            assert data["next_cursor"] == data["nextCursor"]
            if not (cursor := data["next_cursor"]):
                break
        assert found == sorted(found)
        assert len(set(found)) == len(found) == 26
        assert "next_cursor" in data, "null on the last page"
        assert [i["id"] for i in compat.data("GET", "/connections", params={"schema": "c007"})["items"]] == ["c007"]
        assert compat.data("GET", "/connections", params={"schema": "c00"})["items"] == []
        assert compat.data("GET", "/connections", params={"group_id": "pond"})["items"] == []
