"""Every mapping of a Fivetran account, as its management API gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from import_world import imported as any_import
from import_world import loaded, the_connection

from instep.errors import ProjectError
from instep.project.imports.imported_project import ImportedProject

MASK = "******"
CONFIG = {
    "host": "db.example",
    "port": 5432,
    "database": "shop",
    "user": "reader",
    "password": MASK,
    "schema_prefix": "pg",
    "update_method": "QUERY_BASED",
    "always_encrypted": True,
}


def answer(data: Any) -> dict[str, Any]:
    return {"code": "Success", "message": "ok", "data": data}


def items(*found: dict[str, Any]) -> dict[str, Any]:
    return answer({"items": list(found), "next_cursor": None})


def conn(config: dict[str, Any] = CONFIG, **more: Any) -> dict[str, Any]:
    return {
        "id": "iron_crow",
        "service": "postgres",
        "schema": "pg",
        "group_id": "g_1",
        "paused": False,
        "status": {"setup_state": "connected", "sync_state": "scheduled"},
        "config": config,
        "created_at": "2026-01-01T00:00:00Z",
        "sync_frequency": 360,
        "schedule_type": "auto",
        **more,
    }


def dest(config: dict[str, Any] | None = None, service: str = "postgres_warehouse", **more: Any) -> dict[str, Any]:
    usual = {"host": "wh.example", "port": 5432, "database": "wh", "user": "w", "password": MASK}
    return {"id": "g_1", "group_id": "g_1", "service": service, "region": "EU", "config": config or usual, **more}


def table(enabled: bool = True, **more: Any) -> dict[str, Any]:
    settings = {"allowed": True}
    return {"enabled": enabled, "name_in_destination": "x", "enabled_patch_settings": settings, "columns": {}, **more}


COLUMNS = {
    "id": {"enabled": True, "hashed": False, "is_primary_key": True, "name_in_destination": "id"},
    "email": {"enabled": True, "hashed": True, "name_in_destination": "email"},
    "note": {"enabled": False, "hashed": False, "name_in_destination": "note", "data_type": "new key of the API"},
}
TREE = {
    "enable_new_by_default": False,
    "schema_change_handling": "ALLOW_COLUMNS",
    "schemas": {
        "public": {
            "enabled": True,
            "name_in_destination": "pg_public",
            "tables": {"orders": table(columns=COLUMNS, sync_mode="HISTORY"), "scratch": table(enabled=False)},
        },
        "old": {"enabled": False, "name_in_destination": "pg_old", "tables": {}},
    },
}


def account(*connections: dict[str, Any], destination: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "groups": items({"id": "g_1", "name": "Warehouse", "created_at": "2026-01-01T00:00:00Z"}),
        "destinations": items(destination or dest()),
        "connections": items(*(connections or (conn(),))),
        "schemas": {"iron_crow": answer(TREE)},
        **more,
    }


def imported(*data: Any, **more: Any) -> ImportedProject:
    return any_import(*data, product="fivetran", **more)


def left_out(found: ImportedProject) -> str:
    return "\n".join(f"{one.object}: {one.reason}; {one.next}" for one in found.left_out)


def test_the_whole_of_a_small_account(tmp_path: Path) -> None:
    found = imported(account())
    assert found.sections == {
        "sources": {
            "pg": {
                "type": "postgres",
                "host": "db.example",
                "port": 5432,
                "database": "shop",
                "user": "reader",
                "password": "${env:FIVETRAN_SOURCE_PG_PASSWORD}",
                "tls": {"mode": "require"},
            }
        },
        "destinations": {
            "warehouse": {
                "type": "postgres",
                "host": "wh.example",
                "port": 5432,
                "database": "wh",
                "user": "w",
                "password": "${env:FIVETRAN_DESTINATION_WAREHOUSE_PASSWORD}",
            }
        },
        "connections": {
            "pg": {
                "source": "pg",
                "destination": "warehouse",
                "schema_change_handling": "ALLOW_COLUMNS",
                "include": {"tables": ["public.orders"]},
                "exclude": {"tables": ["old.*"], "columns": ["public.orders.note"]},
                "hash": ["public.orders.email"],
                "salt": "${env:INSTEP_SALT}",
                "tables": {
                    "public.orders": {"enabled": True, "history": True},
                    "public.scratch": {"enabled": False},
                },
                "namespace": "pg_public",
                "schedule": {"sync": "every 6h"},
            }
        },
    }
    assert found.left_out == []
    assert {one.variable for one in found.secrets} == {
        "FIVETRAN_SOURCE_PG_PASSWORD",
        "FIVETRAN_DESTINATION_WAREHOUSE_PASSWORD",
        "INSTEP_SALT",
    }
    assert loaded(found, tmp_path).connections == ("pg",)


def test_a_file_for_each_answer_is_the_same() -> None:
    whole = account()
    parts = [whole["groups"], whole["destinations"], whole["connections"], answer(TREE)]
    found = imported(*parts, names=("groups", "destinations", "connections", "schemas.iron_crow"))
    assert found.sections == imported(whole).sections
    details = imported(whole["groups"], answer(dest()), answer(conn()), answer(TREE))
    assert details.sections == found.sections


# keys of the connection | schedule
SCHEDULES: list[tuple[dict[str, Any], str | None]] = [
    ({"sync_frequency": 1}, "every 1m"),
    ({"sync_frequency": 60}, "every 1h"),
    ({"sync_frequency": 1440}, "every 24h"),
    ({"sync_frequency": 1440, "daily_sync_time": "14:00"}, "0 14 * * *"),
    ({"schedule_type": "manual"}, None),
    ({"schedule": {"schedule_type": "INTERVAL", "interval": 30}}, "every 30m"),
    ({"schedule": {"schedule_type": "CRON", "cron": "0 4 * * 1"}}, "0 4 * * 1"),
    ({"schedule": {"schedule_type": "CRON", "cron": "whenever"}}, None),
    ({"schedule": {"schedule_type": "TIME_OF_DAY", "time_of_day": "06:30", "days_of_week": ["MONDAY", "FRIDAY"]}},
     "30 6 * * mon,fri"),
    ({"schedule": {"schedule_type": "MANUAL"}}, None),
    ({"paused": True}, None),
]  # fmt: skip


@pytest.mark.parametrize(("more", "line"), SCHEDULES, ids=[str(s[0]) for s in SCHEDULES])
def test_schedules(more: dict[str, Any], line: str | None, tmp_path: Path) -> None:
    found = imported(account(conn(**more)))
    assert the_connection(found).get("schedule", {}).get("sync") == line
    assert any("paused in Fivetran" in note for note in found.notes) == ("paused" in more)
    loaded(found, tmp_path)


@pytest.mark.parametrize("handling", ["ALLOW_ALL", "ALLOW_COLUMNS", "BLOCK_ALL"])
def test_what_happens_to_changes(handling: str, tmp_path: Path) -> None:
    found = imported(account(schemas={"iron_crow": {**TREE, "schema_change_handling": handling}}))
    assert the_connection(found)["schema_change_handling"] == handling
    assert loaded(found, tmp_path).policy("pg").preset == handling.lower()


@pytest.mark.parametrize(
    ("mode", "settings"),
    [("SOFT_DELETE", {"deletes": "soft"}), ("LIVE", {"deletes": "hard"}), ("HISTORY", {"history": True}), ("", {})],
)
def test_sync_modes_of_tables(mode: str, settings: dict[str, Any], tmp_path: Path) -> None:
    tree = {
        "schema_change_handling": "ALLOW_ALL",
        "schemas": {"s": {"enabled": True, "tables": {"t": table(sync_mode=mode)}}},
    }
    found = imported(account(schemas={"iron_crow": tree}))
    assert the_connection(found)["tables"]["s.t"] == {"enabled": True, **settings}
    loaded(found, tmp_path)


def test_tables_of_one_name_in_two_schemas_get_two_names(tmp_path: Path) -> None:
    below = {"enabled": True, "tables": {"t": table()}}
    found = imported(
        account(schemas={"iron_crow": {"schema_change_handling": "ALLOW_ALL", "schemas": {"a": below, "b": below}}})
    )
    assert [one["name"] for one in the_connection(found)["tables"].values()] == ["a_t", "b_t"]
    assert any("2 schemas go into one namespace" in note for note in found.notes)
    loaded(found, tmp_path)


# service, config beside the usual | type, mode
SERVICES: list[tuple[str, dict[str, Any], str, str | None]] = [
    ("postgres", {}, "postgres", None),
    ("postgres_rds", {"update_method": "WAL_PGOUTPUT", "replication_slot": "fivetran_slot"}, "postgres", "cdc"),
    ("aurora_postgres", {"update_method": "XMIN"}, "postgres", None),
    ("google_cloud_postgresql", {}, "postgres", None),
    ("mysql", {"update_method": "BINLOG"}, "mysql", "cdc"),
    ("aurora", {}, "mysql", None),
    ("maria_rds", {}, "mariadb", None),
]


@pytest.mark.parametrize(("service", "config", "type", "mode"), SERVICES, ids=[s[0] for s in SERVICES])
def test_services(service: str, config: dict[str, Any], type: str, mode: str | None, tmp_path: Path) -> None:
    found = imported(account(conn({**CONFIG, **config}, service=service)))
    assert found.sections["sources"]["pg"]["type"] == type
    assert the_connection(found).get("mode") == mode
    assert any("drop slot fivetran_slot" in note for note in found.notes) == ("replication_slot" in config)
    loaded(found, tmp_path)


# service | reason, next step
FOREIGN = [
    ("salesforce", "instep has no source for the service salesforce", "type: airbyte"),
    ("connector_sdk", "its code is not in the export", "type: connector"),
]


@pytest.mark.parametrize(("service", "reason", "step"), FOREIGN, ids=[f[0] for f in FOREIGN])
def test_services_without_a_counterpart_are_listed(service: str, reason: str, step: str) -> None:
    found = imported(account(conn(service=service, config={})))
    assert reason in left_out(found)
    assert step in left_out(found)
    assert found.sections["connections"] == {}


def test_mysql_without_a_database_takes_the_only_one_that_is_on(tmp_path: Path) -> None:
    config = {key: value for key, value in CONFIG.items() if key != "database"}
    found = imported(account(conn(config, service="mysql")))
    assert found.sections["sources"]["pg"]["database"] == "public"
    loaded(found, tmp_path)
    assert "it reads unknown databases" in left_out(imported(account(conn(config, service="mysql"), schemas={})))


def test_a_tunnel_needs_a_key_of_ours(tmp_path: Path) -> None:
    through = {**CONFIG, "tunnel_host": "jump.example", "tunnel_port": 22, "tunnel_user": "t"}
    found = imported(account(conn(through, networking_method="SshTunnel")))
    ssh = {"host": "jump.example", "port": 22, "user": "t", "key": "${env:FIVETRAN_SOURCE_PG_SSH_KEY}"}
    assert found.sections["sources"]["pg"]["ssh"] == ssh
    assert any("SSH key stays with it" in note for note in found.notes)
    loaded(found, tmp_path)
    elsewhere = imported(account(conn(networking_method="PrivateLink")))
    assert any("it was reached by PrivateLink" in note for note in elsewhere.notes)


LAKE = {"bucket": "b", "prefix_path": "raw/", "region": "eu-west-1"}
# service, config | section, None if there is none
DESTINATIONS: list[tuple[str, dict[str, Any], dict[str, Any] | None]] = [
    ("new_s3_datalake", {**LAKE, "table_format": "ICEBERG", "should_maintain_tables_in_glue": True},
     {"type": "iceberg", "warehouse": "s3://b/raw", "catalog": "glue", "properties": {"s3.region": "eu-west-1"}}),
    ("managed_data_lake", {**LAKE, "table_format": "DELTA_LAKE"},
     {"type": "delta", "warehouse": "s3://b/raw", "properties": {"s3.region": "eu-west-1"}}),
    ("managed_data_lake", {**LAKE, "table_format": "ICEBERG"}, None),
    ("snowflake", {"host": "x"}, None),
]  # fmt: skip


@pytest.mark.parametrize(("service", "config", "section"), DESTINATIONS)
def test_destinations(service: str, config: dict[str, Any], section: dict[str, Any] | None, tmp_path: Path) -> None:
    given = account(destination=dest(config, service))
    if section is None:
        with pytest.raises(ProjectError, match=f"instep has no destination for the service {service}"):
            imported(given)
        section = {"type": "iceberg", "warehouse": "lake"}
        found = imported(given, warehouse="lake")
    else:
        found = imported(given)
    assert found.sections["destinations"]["warehouse"] == section
    assert loaded(found, tmp_path).connections == ("pg",)


def test_a_connection_without_its_schema_config_reads_everything(tmp_path: Path) -> None:
    found = imported(account(schemas={}))
    assert the_connection(found) == {
        "source": "pg",
        "destination": "warehouse",
        "schema_change_handling": "ALLOW_ALL",
        "namespace": "pg",
        "schedule": {"sync": "every 6h"},
    }
    assert any("export GET /connections/iron_crow/schemas" in note for note in found.notes)
    loaded(found, tmp_path)


def test_a_schema_config_that_is_wrong_is_listed() -> None:
    found = imported(account(schemas={"iron_crow": {**TREE, "schemas": {"public": {"enabled": "perhaps"}}}}))
    assert "schema config of connection pg: schemas.public.enabled is not as the API has it" in left_out(found)


def test_a_schema_config_of_nobody_and_a_page_that_is_not_the_last() -> None:
    whole = account(conn(), conn(id="calm_bee", schema="other"), schemas={})
    whole["connections"]["data"]["next_cursor"] = "abc"
    found = imported(whole, answer(TREE))
    assert any("one page of a longer list" in note for note in found.notes)
    assert "schema config export1.json: it is not clear which connection it is of" in left_out(found)


def name_of(id: str) -> str:
    return f"connections-{id}-schemas"


@pytest.mark.parametrize(
    "name",
    [
        "schemas",
        "schema_config",
        "export2",
        "fivetran-schemas (1)",
        "iron_crow",
        "schemas.iron_crow",
        "connections_iron_crow_schemas",
        "IRON_CROW-schemas",
    ],
)
def test_a_schema_config_of_the_only_connection_is_taken(name: str) -> None:
    found = imported(account(schemas={}), answer(TREE), names=("account", name))
    assert (the_connection(found)["hash"], found.left_out) == (["public.orders.email"], [])


@pytest.mark.parametrize(
    "name",
    ["calm_bee", name_of("calm_bee"), "schemas.calm_bee", "iron_crows", "iron_crowd-schemas", "wrought_iron_crow2"],
)
def test_a_schema_config_of_another_connection_is_not_taken_for_the_only_one(name: str) -> None:
    found = imported(account(schemas={}), answer(TREE), names=("account", name))
    assert "hash" not in the_connection(found)
    assert f"schema config {name}.json: its file's name has no id of the export; put the connection's id" in left_out(
        found
    )


def test_schema_configs_by_ids_that_the_export_has_not_are_listed() -> None:
    found = imported(account(schemas={"iron_crow": answer(TREE), "calm_bee": answer(TREE)}))
    assert left_out(found) == (
        "schema config of connection calm_bee: connection calm_bee is not in the export; "
        "export GET /connections/calm_bee, too"
    )


def test_of_two_connections_each_gets_the_schema_config_that_names_it() -> None:
    two = account(conn(), conn(id="calm_bee", schema="other"), schemas={})
    found = imported(two, answer(TREE), names=("account", name_of("calm_bee")))
    assert ["hash" in found.sections["connections"][name] for name in ("pg", "other")] == [False, True]
    assert found.left_out == []


def test_a_connection_whose_destination_is_not_there_is_listed() -> None:
    found = imported(account(conn(), conn(id="x", schema="lost", group_id="g_9")))
    assert "connection lost: its destination g_9 is not taken over, or not in the export" in left_out(found)
