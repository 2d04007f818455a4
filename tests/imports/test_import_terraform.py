"""States of Terraform's provider for Airbyte: resources, forms under their names, secrets in clear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from import_world import documents, imported, loaded, the_connection, the_table

from instep.project.imports.airbyte import ImportOptions, translate_airbyte
from instep.project.imports.airbyte_export import read_export
from instep.project.imports.imported_project import ImportedProject, project_text

CLEAR = "canary-4711-secret"


def resource(type: str, attributes: dict[str, Any], name: str = "it", **instance: Any) -> dict[str, Any]:
    return {
        "mode": "managed",
        "type": type,
        "name": name,
        "provider": 'provider["registry.terraform.io/airbytehq/airbyte"]',
        "instances": [{"schema_version": 0, "attributes": attributes, **instance}],
    }


def state(*resources: dict[str, Any]) -> dict[str, Any]:
    return {"version": 4, "terraform_version": "1.9.0", "serial": 3, "lineage": "x", "resources": list(resources)}


PG = {
    "source_id": "s-1",
    "name": "Shop",
    "workspace_id": "w",
    "source_type": "postgres",
    "definition_id": None,
    "configuration": {
        "host": "db.example",
        "port": 5432,
        "database": "shop",
        "username": "reader",
        "password": CLEAR,
        "schemas": ["public"],
        "jdbc_url_params": None,
        "ssl_mode": {
            "allow": None,
            "disable": None,
            "require": None,
            "verify_full": {"ca_certificate": "-----BEGIN CERTIFICATE-----", "client_key": None},
        },
        "tunnel_method": {"no_tunnel": {}, "password_authentication": None, "ssh_key_authentication": None},
        "replication_method": {
            "detect_changes_with_xmin_system_column": None,
            "read_changes_using_write_ahead_log_cdc": {
                "plugin": "pgoutput",
                "publication": "p",
                "replication_slot": "s",
            },
            "scan_changes_with_user_defined_cursor": None,
        },
    },
}
DUCK = {
    "destination_id": "d-1",
    "name": "Lake",
    "destination_type": "duckdb",
    "configuration": {"destination_path": "/local/lake.duckdb", "schema": "main", "motherduck_api_key": None},
}
MAPPERS = [
    {"id": "1", "type": "hashing", "mapper_configuration": {
        "hashing": {"target_field": "email", "method": "SHA-256", "field_name_suffix": "_h"},
        "encryption": None, "row_filtering": None, "field_renaming": None}},
    {"id": "2", "type": "row-filtering", "mapper_configuration": {
        "row_filtering": {"conditions": {"equal": {"field_name": "region", "comparison_value": "EU"}, "not": None}},
        "hashing": None}},
]  # fmt: skip
CONNECTION = {
    "connection_id": "c-1",
    "name": "Shop to Lake",
    "source_id": "s-1",
    "destination_id": "d-1",
    "status": "active",
    "schedule": {"schedule_type": "cron", "cron_expression": "0 0 3 * * ?", "basic_timing": None},
    "namespace_definition": "destination",
    "namespace_format": None,
    "prefix": None,
    "non_breaking_schema_updates_behavior": "propagate_columns",
    "tags": [{"name": "critical", "color": "red", "tag_id": "t", "workspace_id": "w"}],
    "configurations": {
        "streams": [
            {
                "name": "orders",
                "namespace": "public",
                "sync_mode": "incremental_deduped_history",
                "cursor_field": ["_ab_cdc_lsn"],
                "primary_key": [["id"]],
                "selected_fields": [],
                "mappers": MAPPERS,
            }
        ]
    },
}
WHOLE = state(
    resource("airbyte_source_postgres", PG, "shop"),
    resource("airbyte_destination_duckdb", DUCK, "lake"),
    resource("airbyte_connection", CONNECTION, "shop"),
    resource("airbyte_workspace", {"name": "ours"}),
    resource("aws_s3_bucket", {"bucket": "b"}),
)


def test_the_whole_of_a_state(tmp_path: Path) -> None:
    found = imported(WHOLE)
    assert found.sections["sources"]["shop"] == {
        "type": "postgres",
        "host": "db.example",
        "port": 5432,
        "database": "shop",
        "user": "reader",
        "password": "${env:AIRBYTE_SOURCE_SHOP_PASSWORD}",
        "tls": {"mode": "verify-full", "ca": "${env:AIRBYTE_SOURCE_SHOP_TLS_CA}"},
        "include": ["public.*"],
    }
    section = the_connection(found)
    assert (section["mode"], section["policy"], section["tags"]) == ("cdc", "propagate_columns", ["critical"])
    assert section["schedule"] == {"sync": "0 3 * * *"}
    assert section["hash"] == ["public.orders.email"]
    assert the_table(found) == {"mode": "cdc", "deletes": "hard", "key": ["id"], "filter": "\"region\" = 'EU'"}
    assert found.left_out == []
    loaded(found, tmp_path)


def test_what_terraform_shows_as_json_is_the_same() -> None:
    def shown(one: dict[str, Any]) -> dict[str, Any]:
        address, [instance] = f"{one['type']}.{one['name']}", one["instances"]
        return {"address": address, "mode": "managed", "type": one["type"], "values": instance["attributes"]}

    first, *others = map(shown, WHOLE["resources"])
    root = {"resources": [first], "child_modules": [{"resources": others}]}
    found = imported({"format_version": "1.0", "values": {"root_module": root}})
    assert found.sections == imported(WHOLE).sections


def test_secrets_in_clear_are_named_and_never_shown() -> None:
    found = imported(WHOLE)
    [password, *_] = found.secrets
    assert password.found == "in clear in export.json, airbyte_source_postgres.shop"
    assert CLEAR not in project_text(found) + str(found)


def connector(**instance: Any) -> ImportedProject:
    attributes = {
        "source_id": "s-1",
        "name": "Stripe",
        "configuration": {
            "account_id": "acct_1",
            "client_secret": CLEAR,
            "pin_code": "9153",
            "lookback": 3,
            "start": "2026-01-01T00:00:00Z",
            "dsn": "https://u:pw-canary@h/x",
            "note": "${env:HOME}",
            "blob": "A1b2C3d4E5f6G7h8I9j0K1",
            "credentials": {"oauth": {"refresh_token": CLEAR, "region": "eu"}, "api_key": None},
        },
    }
    whole = state(resource("airbyte_source_stripe", attributes, **instance))
    return translate_airbyte(read_export(documents(whole)), ImportOptions({"source-stripe": "5.0.0"}))


def test_the_configuration_of_a_connector_has_no_secret() -> None:
    paths = [[{"type": "get_attr", "value": "configuration"}, {"type": "get_attr", "value": "pin_code"}]]
    found = connector(sensitive_attributes=paths)
    prefix = "${env:AIRBYTE_SOURCE_STRIPE_"
    assert found.sections["sources"]["stripe"]["configuration"] == {
        "account_id": "acct_1",
        "client_secret": f"{prefix}CLIENT_SECRET}}",
        "pin_code": f"{prefix}PIN_CODE}}",
        "lookback": 3,
        "start": "2026-01-01T00:00:00Z",
        "dsn": f"{prefix}DSN}}",
        "note": f"{prefix}NOTE}}",
        "blob": f"{prefix}BLOB}}",
        "credentials": {"refresh_token": f"{prefix}CREDENTIALS_REFRESH_TOKEN}}", "region": "eu"},
    }
    assert "Terraform leaves out which form of `credentials` it is (oauth)" in found.notes[0]
    assert "canary" not in str(found)


# attributes of a general resource | type of its source
GENERAL: list[tuple[str, dict[str, Any]]] = [
    (
        "airbyte_source_custom",
        {"source_type": "postgres", "configuration": '{"host": "h", "database": "d", "username": "u"}'},
    ),
    (
        "airbyte_source",
        {
            "source_definition_id": "decd338e-5647-4c0b-adf4-da0e75f5a750",
            "connection_configuration": '{"host": "h", "database": "d", "username": "u"}',
        },
    ),
]


@pytest.mark.parametrize(("type", "attributes"), GENERAL, ids=[g[0] for g in GENERAL])
def test_general_resources_have_their_configuration_as_text(type: str, attributes: dict[str, Any]) -> None:
    found = imported(state(resource(type, {"source_id": "s", "name": "Shop", **attributes})))
    assert found.sections["sources"]["shop"] == {"type": "postgres", "host": "h", "database": "d", "user": "u"}


def test_resources_made_for_each_of_many_are_all_there() -> None:
    one = resource("airbyte_source_postgres", PG, "shop")
    second = {"index_key": "b", "attributes": {**PG, "source_id": "s-2", "name": "Other"}}
    one["instances"] = [{**one["instances"][0], "index_key": "a"}, second]
    found = imported(state(one))
    assert list(found.sections["sources"]) == ["shop", "other"]
    assert found.secrets[-2].found == "in clear in export.json, airbyte_source_postgres.shop['b']"


def test_data_sources_of_a_state_are_passed_over() -> None:
    read = {**resource("airbyte_source_postgres", {**PG, "source_id": "s-9", "name": "Read"}), "mode": "data"}
    assert list(imported(state(read, resource("airbyte_source_postgres", PG))).sections["sources"]) == ["shop"]
