"""Every mapping of an Airbyte configuration, as the public API and the configuration API give it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from import_world import (
    CDC,
    DUCK,
    MASK,
    ORDERS,
    PG,
    airbyte,
    connection,
    destination,
    documents,
    imported,
    loaded,
    source,
    the_connection,
    the_table,
)

from instep.errors import InstepError
from instep.project.imports.airbyte import ImportOptions, translate_airbyte
from instep.project.imports.airbyte_export import adopted_state, read_export, state_messages
from instep.project.imports.imported_project import ImportedProject

SECRET = "${env:AIRBYTE_SOURCE_SHOP_PASSWORD}"
PG_SECTION = {
    "type": "postgres",
    "host": "db.example",
    "port": 5432,
    "database": "shop",
    "user": "reader",
    "password": SECRET,
    "tls": {"mode": "prefer"},
    "include": ["public.*"],
}


def left_out(found: ImportedProject) -> str:
    return "\n".join(f"{one.object}: {one.reason}; {one.next}" for one in found.left_out)


def test_the_whole_of_a_small_export(tmp_path: Path) -> None:
    found = imported(airbyte())
    assert found.sections == {
        "sources": {"shop": PG_SECTION},
        "destinations": {"lake": {"type": "duckdb", "path": "lake.duckdb"}},
        "connections": {
            "shop_to_lake": {
                "source": "shop",
                "destination": "lake",
                "policy": "approve",
                "namespace": "main",
                "include": {"tables": ["public.orders"]},
                "tables": {"public.orders": {"enabled": True, "mode": "upsert", "cursor": "updated_at", "key": ["id"]}},
            }
        },
    }
    assert [(one.variable, one.object, one.key, one.found) for one in found.secrets] == [
        ("AIRBYTE_SOURCE_SHOP_PASSWORD", "source shop", "password", "masked in the export")
    ]
    assert found.left_out == []
    assert loaded(found, tmp_path).connections == ("shop_to_lake",)


# sync mode | settings of the table
MODES: list[tuple[str, dict[str, Any]]] = [
    ("full_refresh_overwrite", {"mode": "full_refresh", "key": ["id"]}),
    ("full_refresh_append", {"mode": "full_refresh", "key": ["id"]}),
    ("full_refresh_overwrite_deduped", {"mode": "full_refresh", "key": ["id"]}),
    ("full_refresh_update", {"mode": "upsert", "cursor": "updated_at", "key": ["id"]}),
    ("incremental_append", {"mode": "append", "cursor": "updated_at", "key": ["id"]}),
    ("incremental_deduped_history", {"mode": "upsert", "cursor": "updated_at", "key": ["id"]}),
    ("incremental_update", {"mode": "upsert", "cursor": "updated_at", "key": ["id"]}),
    ("incremental_soft_delete", {"mode": "upsert", "cursor": "updated_at", "key": ["id"]}),
    ("", {"key": ["id"]}),
    ("invented", {"key": ["id"]}),
]


@pytest.mark.parametrize(("mode", "settings"), MODES, ids=[mode or "none" for mode, _ in MODES])
def test_sync_modes(mode: str, settings: dict[str, Any], tmp_path: Path) -> None:
    found = imported(airbyte(connection({**ORDERS, "syncMode": mode})))
    assert the_table(found) == settings
    assert any("not known" in note for note in found.notes) == (mode == "invented")
    loaded(found, tmp_path)


# sync mode | deletion mode of the destination | settings
LOGGED: list[tuple[str, str, dict[str, Any]]] = [
    ("incremental_deduped_history", "", {"mode": "cdc", "deletes": "hard"}),
    ("incremental_deduped_history", "Soft delete", {"mode": "cdc", "deletes": "soft"}),
    ("incremental_append", "", {"mode": "cdc", "history": True, "deletes": "hard"}),
    ("incremental_soft_delete", "", {"mode": "cdc", "deletes": "soft"}),
    ("full_refresh_overwrite", "", {"mode": "full_refresh"}),
]


@pytest.mark.parametrize(("mode", "deletion", "settings"), LOGGED, ids=[f"{m} {d}" for m, d, _ in LOGGED])
def test_a_source_that_is_read_by_its_log(mode: str, deletion: str, settings: dict[str, Any], tmp_path: Path) -> None:
    lake = destination({**DUCK, "cdc_deletion_mode": deletion})
    stream = {**ORDERS, "syncMode": mode, "cursorField": ["_ab_cdc_lsn"], "primaryKey": []}
    found = imported(airbyte(source({**PG, "replication_method": CDC}), lake, connection(stream)))
    assert the_connection(found)["mode"] == "cdc"
    assert "log" not in the_connection(found), "the slot is Airbyte's, whose position it holds"
    assert any("drop slot airbyte_slot" in note for note in found.notes)
    assert the_table(found) == settings
    loaded(found, tmp_path)


# setting for changes | policy
POLICIES = [
    ("ignore", "approve"),
    ("disable_connection", "stop"),
    ("disable", "stop"),
    ("propagate_columns", "propagate_columns"),
    ("propagate_fully", "propagate_all"),
    ("", "approve"),
    ("invented", "approve"),
]


@pytest.mark.parametrize(("word", "policy"), POLICIES)
def test_settings_for_changes(word: str, policy: str, tmp_path: Path) -> None:
    found = imported(airbyte(connection(nonBreakingSchemaUpdatesBehavior=word)))
    assert the_connection(found)["policy"] == policy
    assert loaded(found, tmp_path).policy("shop_to_lake").preset == policy
    assert any("invented" in note for note in found.notes) == (word == "invented")


# cron line of Quartz | ours, time zone
CRONS = [
    ("0 0 12 * * ?", "0 12 * * *", None),
    ("0 15 6 ? * MON-FRI UTC", "15 6 * * mon-fri", None),
    ("0 0 3 ? * 2 Europe/Berlin", "0 3 * * 1", "Europe/Berlin"),
    ("0 0 3 ? * 1,7", "0 3 * * 0,6", None),
    ("0 0/20 * * * ?", "*/20 * * * *", None),
    ("0 5/20 * * * ? *", "5-59/20 * * * *", None),
    ("0 0 0 1 JAN ?", "0 0 1 jan *", None),
    ("30 10 * * *", "30 10 * * *", None),
]


@pytest.mark.parametrize(("quartz", "line", "zone"), CRONS, ids=[c[0] for c in CRONS])
def test_cron_lines(quartz: str, line: str, zone: str | None, tmp_path: Path) -> None:
    schedule = {"scheduleType": "cron", "cronExpression": quartz}
    found = imported(airbyte(connection(schedule=schedule)))
    assert the_connection(found)["schedule"] == {"sync": line, **({"timezone": zone} if zone else {})}
    loaded(found, tmp_path)


@pytest.mark.parametrize("quartz", ["0 0 12 L * ?", "0 0 12 ? * 6#3", "0 0 12 * * ? 2031", "soon", "*/5 * * * * ?"])
def test_cron_lines_that_have_no_counterpart(quartz: str, tmp_path: Path) -> None:
    found = imported(airbyte(connection(schedule={"scheduleType": "cron", "cronExpression": quartz})))
    assert "schedule" not in the_connection(found)
    assert "schedule of connection shop_to_lake" in left_out(found)
    loaded(found, tmp_path)


# basicTiming | ours
INTERVALS = [
    ("Every 24 HOURS", "every 24h"),
    ("Every 1 HOURS", "every 1h"),
    ("Every 15 MINUTES", "every 15m"),
    ("Every 90 minutes", "every 90m"),
    ("Every 2 DAYS", "0 0 */2 * *"),
    ("Every 1 MONTHS", "0 0 1 * *"),
    ("Every 0 HOURS", None),
    ("now and then", None),
]


@pytest.mark.parametrize(("timing", "line"), INTERVALS)
def test_intervals(timing: str, line: str | None, tmp_path: Path) -> None:
    found = imported(airbyte(connection(schedule={"scheduleType": "basic", "basicTiming": timing})))
    assert the_connection(found).get("schedule", {}).get("sync") == line
    loaded(found, tmp_path)


def test_a_connection_that_is_off_has_no_schedule_and_a_deleted_one_is_passed_over() -> None:
    schedule = {"scheduleType": "cron", "cronExpression": "0 0 12 * * ?"}
    found = imported(
        airbyte(
            connection(schedule=schedule, status="inactive"),
            connection(connectionId="c-2", name="Old", status="deprecated"),
        )
    )
    assert "schedule" not in the_connection(found)
    assert any("it is inactive in Airbyte: its schedule is left out (sync: 0 12 * * *)" in n for n in found.notes)


def mapper(kind: str, **settings: Any) -> dict[str, Any]:
    return {"id": "m", "type": kind, "mapperConfiguration": settings}


EQUAL = {"type": "EQUAL", "fieldName": "region", "comparisonValue": "O'Neill"}
FILTER = "\"region\" = 'O''Neill'"
# mapper | keys of the connection, keys of the table
MAPPERS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (
        mapper("hashing", targetField="email", method="SHA-256", fieldNameSuffix="_hashed"),
        {"hash": ["public.orders.email"], "salt": "${env:INSTEP_SALT}"},
        {},
    ),
    (mapper("field-filtering", targetField="note"), {"exclude": {"columns": ["public.orders.note"]}}, {}),
    (
        mapper("field-renaming", originalFieldName="ref", newFieldName="reference"),
        {},
        {"columns": {"ref": "reference"}},
    ),
    (mapper("row-filtering", conditions=EQUAL), {}, {"filter": FILTER}),
    (
        mapper("row-filtering", conditions={"type": "NOT", "conditions": [EQUAL]}),
        {},
        {"filter": "(\"region\" IS NULL OR \"region\" <> 'O''Neill')"},
    ),
]


@pytest.mark.parametrize(("given", "keys", "table"), MAPPERS, ids=[str(m[0]["type"]) for m in MAPPERS])
def test_mappers(given: dict[str, Any], keys: dict[str, Any], table: dict[str, Any], tmp_path: Path) -> None:
    found = imported(airbyte(connection({**ORDERS, "mappers": [given]})))
    section = the_connection(found)
    assert {key: section.get(key) for key in keys} == keys
    assert {key: the_table(found).get(key) for key in table} == table
    assert found.left_out == []
    loaded(found, tmp_path)


HASHED = mapper("hashing", targetField="mail", method="SHA-256", fieldNameSuffix="_hashed")
MAIL = mapper("field-renaming", originalFieldName="email", newFieldName="mail")
SWAPPED = [
    mapper("field-renaming", originalFieldName=old, newFieldName=new)
    for old, new in (("a", "c"), ("b", "a"), ("c", "b"))
]
REGION = [
    mapper("field-renaming", originalFieldName="region", newFieldName="area"),
    mapper("row-filtering", conditions={**EQUAL, "fieldName": "area"}),
]
# mappers, each behind those before it | columns that are hashed, left out, renamed | filter | those that are listed
CHAINS: list[tuple[list[dict[str, Any]], list[str], list[str], dict[str, str] | None, str | None, int]] = [
    ([MAIL, HASHED], ["email"], [], {"email": "mail"}, None, 0),
    ([MAIL, mapper("field-filtering", targetField="mail")], [], ["email"], None, None, 0),
    (
        [HASHED, mapper("field-renaming", originalFieldName="mail_hashed", newFieldName="m")],
        ["mail"],
        [],
        {"mail": "m"},
        None,
        0,
    ),
    ([HASHED, mapper("field-filtering", targetField="mail_hashed")], ["mail"], ["mail"], None, None, 0),
    (
        [MAIL, mapper("field-renaming", originalFieldName="mail", newFieldName="m")],
        [],
        [],
        {"email": "m"},
        None,
        0,
    ),
    ([MAIL, mapper("encryption", targetField="mail", algorithm="AES")], [], ["email"], None, None, 1),
    (SWAPPED, [], [], {"a": "b", "b": "a"}, None, 0),
    ([*SWAPPED, mapper("hashing", targetField="a")], ["b"], [], {"a": "b", "b": "a"}, None, 0),
    (REGION, [], [], {"region": "area"}, FILTER, 0),
    (
        [HASHED, mapper("row-filtering", conditions={**EQUAL, "fieldName": "mail_hashed"})],
        ["mail"],
        [],
        None,
        None,
        1,
    ),
]


@pytest.mark.parametrize(("given", "hashed", "excluded", "renamed", "filter", "listed"), CHAINS)
def test_mappers_name_columns_as_those_before_them_have_called_them(
    given: list[dict[str, Any]],
    hashed: list[str],
    excluded: list[str],
    renamed: dict[str, str] | None,
    filter: str | None,
    listed: int,
    tmp_path: Path,
) -> None:
    """A column that is hashed or left out under its new name is not in clear at the destination."""
    found = imported(airbyte(connection({**ORDERS, "mappers": given})))
    section, table = the_connection(found), the_table(found)
    assert section.get("hash", []) == [f"public.orders.{name}" for name in hashed]
    assert section.get("exclude", {}).get("columns", []) == [f"public.orders.{name}" for name in excluded]
    assert (table.get("columns"), table.get("filter"), len(found.left_out)) == (renamed, filter, listed)
    loaded(found, tmp_path)


# what cannot be said for sure in SQL, or not at all
UNMAPPED = [
    mapper("encryption", targetField="card", algorithm="AES", key="canary-key-4711"),
    mapper("invented", targetField="x"),
    mapper("hashing"),
    mapper("row-filtering", conditions={"type": "EQUAL", "fieldName": 'a"; drop', "comparisonValue": "x"}),
    mapper("row-filtering", conditions={"type": "EQUAL", "fieldName": "a", "comparisonValue": "\\'"}),
    mapper("row-filtering", conditions={"type": "EQUAL", "fieldName": "a", "comparisonValue": "${env:HOME}"}),
    mapper("row-filtering", conditions={"type": "EQUAL", "fieldName": "a", "comparisonValue": "x\ny"}),
    mapper("row-filtering", conditions={"type": "AND", "conditions": [EQUAL, EQUAL]}),
    mapper("row-filtering", conditions={"type": "NOT", "conditions": [EQUAL, EQUAL]}),
]


@pytest.mark.parametrize("given", UNMAPPED, ids=str)
def test_mappers_without_a_counterpart_are_listed(given: dict[str, Any], tmp_path: Path) -> None:
    found = imported(airbyte(connection({**ORDERS, "mappers": [given]})))
    assert f"mapper {given['type']} of public.orders" in left_out(found)
    assert "canary" not in left_out(found) + str(found)
    assert not {"filter", "columns"} & set(the_table(found))
    loaded(found, tmp_path)


# namespaceDefinition, namespaceFormat, prefix | streams | namespace, names of the tables
NAMING: list[tuple[dict[str, Any], tuple[str, ...], str | None, list[str | None]]] = [
    ({"namespaceDefinition": "destination"}, ("public",), "main", [None]),
    ({"namespaceDefinition": "source"}, ("public",), "public", [None]),
    ({"namespaceDefinition": "custom_format", "namespaceFormat": "raw_${SOURCE_NAMESPACE}"}, ("public",), "raw_public",
     [None]),
    ({"namespaceDefinition": "customformat", "namespaceFormat": "fixed"}, ("public", "audit"), "fixed",
     ["public_orders", "audit_orders"]),
    ({"namespaceDefinition": "custom_format", "namespaceFormat": "x_${DAY}"}, ("public",), None, [None]),
    ({"namespaceDefinition": "source"}, ("public", "audit"), "main", ["public_orders", "audit_orders"]),
    ({"prefix": "pg_"}, ("public",), "main", ["pg_orders"]),
]  # fmt: skip


@pytest.mark.parametrize(("given", "schemas", "namespace", "names"), NAMING, ids=[str(n[0]) for n in NAMING])
def test_names_at_the_destination(
    given: dict[str, Any], schemas: tuple[str, ...], namespace: str | None, names: list[str | None], tmp_path: Path
) -> None:
    streams = [{**ORDERS, "namespace": schema} for schema in schemas]
    found = imported(airbyte(connection(*streams, **given)))
    assert the_connection(found).get("namespace") == namespace
    assert [the_table(found, f"{schema}.orders").get("name") for schema in schemas] == names
    loaded(found, tmp_path)


STREAMS = [
    {"streamName": "orders", "streamnamespace": "public", "syncModes": ["incremental_append"],
     "sourceDefinedCursorField": False, "sourceDefinedPrimaryKey": [["id"]],
     "propertyFields": [["id"], ["email"], ["note"], ["at", "day"]]},
    {"streamName": "scratch", "streamnamespace": "public", "propertyFields": [["id"]]},
]  # fmt: skip


@pytest.mark.parametrize("name", ["streams-s-1", "streams of Shop", "streams"])
def test_streams_of_a_source_tell_keys_and_fields_that_are_not_read(name: str, tmp_path: Path) -> None:
    chosen = {**ORDERS, "selectedFields": [{"fieldPath": ["id"]}, {"fieldPath": ["email"]}]}
    found = imported(airbyte(connection(chosen)), STREAMS, names=("export", name))
    assert the_connection(found)["exclude"] == {"columns": ["public.orders.note", "public.orders.at"]}
    assert the_table(found) == {"mode": "upsert", "cursor": "updated_at"}, "the key is the source's own"
    assert found.left_out == []
    loaded(found, tmp_path)


def test_chosen_fields_without_the_source_s_streams_are_listed() -> None:
    chosen = {**ORDERS, "selectedFields": [{"fieldPath": ["id"]}]}
    found = imported(airbyte(connection(chosen)))
    assert "public.orders reads 1 fields only (id); the export has not the others" in left_out(found)
    assert "GET /streams" in left_out(found)


def test_everything_new_comes_where_the_unselected_streams_are_known(tmp_path: Path) -> None:
    fully = connection(nonBreakingSchemaUpdatesBehavior="propagate_fully")
    found = imported(airbyte(fully, streams={"s-1": STREAMS}))
    assert "include" not in the_connection(found)
    assert the_connection(found)["tables"]["public.scratch"] == {"enabled": False}
    loaded(found, tmp_path)
    assert the_connection(imported(airbyte(fully)))["include"] == {"tables": ["public.orders"]}


def catalog_entry(**config: Any) -> dict[str, Any]:
    properties = {"id": {"type": "integer"}, "email": {"type": "string"}}
    return {
        "stream": {
            "name": "users",
            "jsonSchema": {"type": "object", "properties": properties},
            "supportedSyncModes": ["full_refresh", "incremental"],
            "sourceDefinedCursor": True,
            "defaultCursorField": ["updated_at"],
            "sourceDefinedPrimaryKey": [["id"]],
        },
        "config": {
            "syncMode": "incremental",
            "destinationSyncMode": "append_dedup",
            "cursorField": ["updated_at"],
            "primaryKey": [["id"]],
            "selected": True,
            **config,
        },
    }


def internal(**more: Any) -> dict[str, Any]:
    """A connection as the configuration API has it."""
    return {
        "connectionId": "c-1",
        "name": "Shop to Lake",
        "sourceId": "s-1",
        "destinationId": "d-1",
        "status": "active",
        "scheduleType": "basic",
        "scheduleData": {"basicSchedule": {"timeUnit": "hours", "units": 6}},
        "namespaceDefinition": "destination",
        "prefix": "",
        "nonBreakingChangesPreference": "propagate_columns",
        "backfillPreference": "enabled",
        "notifySchemaChanges": True,
        "syncCatalog": {"streams": [catalog_entry()]},
        **more,
    }


FAKER = {"count": 100, "seed": 1, "api_token": MASK, "credentials": {"auth_type": "Client", "client_secret": MASK}}
STATE = {
    "stateType": "stream",
    "connectionId": "c-1",
    "streamState": [{"streamDescriptor": {"name": "users"}, "streamState": {"updated_at": "2026-11-01"}}],
}


def translated(*data: Any, **versions: str) -> ImportedProject:
    """An export before it is checked."""
    return translate_airbyte(read_export(documents(*data)), ImportOptions(versions))


def test_a_connector_keeps_its_configuration_state_and_catalog() -> None:
    found = translated(
        airbyte(source(FAKER, "faker", dockerImageTag="7.2.1"), internal(), states={"c-1": STATE}),
    )
    assert found.sections["sources"]["shop"] == {
        "type": "airbyte",
        "package": "airbyte-source-faker==7.2.1",
        "configuration": {
            "count": 100,
            "seed": 1,
            "api_token": "${env:AIRBYTE_SOURCE_SHOP_API_TOKEN}",
            "credentials": {
                "auth_type": "Client",
                "client_secret": "${env:AIRBYTE_SOURCE_SHOP_CREDENTIALS_CLIENT_SECRET}",
            },
        },
    }
    section = the_connection(found)
    assert section["backfill"] == "enabled"
    assert section["notify_schema_changes"] is True
    assert section["schedule"] == {"sync": "every 6h"}
    assert section["tables"] == {"users": {"enabled": True, "mode": "upsert"}}, "cursor and key are the source's own"
    assert found.states == {
        "shop_to_lake": [
            {
                "type": "STREAM",
                "stream": {"stream_descriptor": {"name": "users"}, "stream_state": {"updated_at": "2026-11-01"}},
            }
        ]
    }
    [entry] = found.catalogs["shop_to_lake"]["streams"]
    assert entry["stream"]["json_schema"]["properties"]["email"] == {"type": "string"}
    assert (entry["sync_mode"], entry["destination_sync_mode"]) == ("incremental", "append_dedup")


def test_hashed_and_chosen_fields_of_a_catalog() -> None:
    config = {
        "hashedFields": [{"fieldPath": ["email"]}],
        "fieldSelectionEnabled": True,
        "selectedFields": [{"fieldPath": ["email"]}],
    }
    given = internal(syncCatalog={"streams": [catalog_entry(**config)]})
    found = translated(airbyte(source(FAKER, "faker", dockerImageTag="7.2.1"), given))
    assert the_connection(found)["hash"] == ["users.email"]
    assert the_connection(found)["exclude"] == {"columns": ["users.id"]}


def test_the_version_of_a_connector_is_given_or_asked_for() -> None:
    export = airbyte(source(FAKER, "faker"), connection({"name": "users"}))
    without = translated(export)
    assert without.sections["sources"] == {}
    assert "import again with --connector source-faker==VERSION" in left_out(without)
    found = translated(export, **{"source-faker": "7.2.1"})
    assert found.sections["sources"]["shop"]["package"] == "airbyte-source-faker==7.2.1"
    with pytest.raises(InstepError, match="'faker' is not a version of a connector"):
        imported(export, packages=["faker"])


# state of the configuration API | messages | as the store keeps it
STATES: list[tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]] = [
    (
        STATE,
        [{
            "type": "STREAM",
            "stream": {"stream_descriptor": {"name": "users"}, "stream_state": {"updated_at": "2026-11-01"}},
        }],
        {
            "type": "STREAM",
            "streams": [{"namespace": "", "name": "users", "state": {"updated_at": "2026-11-01"}}],
        },
    ),
    (
        {
            "stateType": "global",
            "globalState": {
                "shared_state": {"lsn": 7},
                "streamStates": [{"streamDescriptor": {"name": "t", "namespace": "p"}, "streamState": {}}],
            },
        },
        [{
            "type": "GLOBAL",
            "global": {
                "shared_state": {"lsn": 7},
                "stream_states": [{"stream_descriptor": {"name": "t", "namespace": "p"}, "stream_state": {}}],
            },
        }],
        {
            "type": "GLOBAL",
            "streams": [{"namespace": "p", "name": "t", "state": {}}],
            "shared": {"lsn": 7},
        },
    ),
    (
        {"stateType": "legacy", "state": {"cursor": 3}},
        [{"type": "LEGACY", "data": {"cursor": 3}}],
        {"type": "LEGACY", "streams": [], "legacy": {"cursor": 3}},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("given", "messages", "adopted"), STATES, ids=[str(s[0]["stateType"]) for s in STATES])
def test_states(given: dict[str, Any], messages: list[dict[str, Any]], adopted: dict[str, Any]) -> None:
    assert state_messages(given) == messages
    assert adopted_state(messages) == {"airbyte": 1, "generations": [], **adopted}


def test_states_that_are_none() -> None:
    assert state_messages({"stateType": "not_set"}) == []
    for wrong in ([], [{"type": "STREAM"}, {"type": "GLOBAL"}], [{"type": "RECORD"}]):
        with pytest.raises(InstepError, match="not one of Airbyte's"):
            adopted_state(wrong)


@pytest.mark.parametrize("given", [{"c-2": STATE}, [{**STATE, "connectionId": "c-2"}]])
def test_the_state_of_a_connection_that_is_not_in_the_export_is_nobodys(given: Any) -> None:
    """Its only connection would read on from where another one has stopped."""
    found = translated(airbyte(source(FAKER, "faker", dockerImageTag="7.2.1"), internal(), states=given))
    assert found.states == {}
    assert any("the state of connection c-2 is left out: the export has no such" in note for note in found.notes)


def test_the_streams_of_a_source_that_is_not_in_the_export_are_nobodys() -> None:
    chosen = {**ORDERS, "selectedFields": [{"fieldPath": ["id"]}]}
    found = translated(airbyte(connection(chosen), streams={"s-9": STREAMS}))
    assert "exclude" not in the_connection(found)
    assert any("the streams of source s-9 are left out" in note for note in found.notes)


def test_a_state_may_stand_below_the_name_of_its_connection() -> None:
    crm = source(FAKER, "faker", dockerImageTag="7.2.1")
    assert list(translated(airbyte(crm, internal(), states={"Shop to Lake": STATE})).states) == ["shop_to_lake"]


def test_keys_of_a_catalog_that_are_texts_are_paths_of_one_name() -> None:
    entry = catalog_entry()
    entry["stream"]["sourceDefinedPrimaryKey"] = ["id"]
    entry["stream"]["defaultCursorField"] = "updated_at"
    crm = source(FAKER, "faker", dockerImageTag="7.2.1")
    [kept] = translated(airbyte(crm, internal(syncCatalog={"streams": [entry]}))).catalogs["shop_to_lake"]["streams"]
    assert kept["stream"]["source_defined_primary_key"] == [["id"]]
    assert "default_cursor_field" not in kept["stream"]


def test_the_state_of_a_database_is_listed(tmp_path: Path) -> None:
    found = imported(airbyte(states={"c-1": STATE}))
    assert found.states == {}
    assert "state of connection shop_to_lake: instep reads this database itself" in left_out(found)
    loaded(found, tmp_path)


# configuration of the source beside the usual | section
REACHED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"ssl_mode": {"mode": "disable"}}, {"tls": {"mode": "disable"}}),
    ({"ssl_mode": {"mode": "allow"}}, {"tls": {"mode": "prefer"}}),
    ({"ssl_mode": {"mode": "require"}}, {"tls": {"mode": "require"}}),
    (
        {"ssl_mode": {"mode": "verify-ca", "ca_certificate": MASK}},
        {"tls": {"mode": "verify-ca", "ca": "${env:AIRBYTE_SOURCE_SHOP_TLS_CA}"}},
    ),
    (
        {"ssl_mode": {"mode": "verify-full", "ca_certificate": MASK, "client_certificate": MASK, "client_key": MASK}},
        {"tls": {"mode": "verify-full", "ca": "${env:AIRBYTE_SOURCE_SHOP_TLS_CA}",
                 "cert": "${env:AIRBYTE_SOURCE_SHOP_TLS_CERT}", "key": "${env:AIRBYTE_SOURCE_SHOP_TLS_KEY}"}},
    ),
    ({"ssl_mode": None, "ssl": True}, {"tls": {"mode": "require"}}),
    (
        {"tunnel_method": {"tunnel_method": "SSH_KEY_AUTH", "tunnel_host": "jump.example", "tunnel_port": 2222,
                           "tunnel_user": "tunnel", "ssh_key": MASK}},
        {"ssh": {"host": "jump.example", "port": 2222, "user": "tunnel", "key": "${env:AIRBYTE_SOURCE_SHOP_SSH_KEY}"}},
    ),
    ({"port": "5433"}, {"port": 5433}),
    ({"schemas": []}, {"include": None}),
]  # fmt: skip


@pytest.mark.parametrize(("more", "section"), REACHED, ids=[str(r[0])[:60] for r in REACHED])
def test_how_a_database_is_reached(more: dict[str, Any], section: dict[str, Any], tmp_path: Path) -> None:
    found = imported(airbyte(source({**PG, **more})))
    shown = found.sections["sources"]["shop"]
    assert {key: shown.get(key) for key in section} == section
    loaded(found, tmp_path).model.sources["shop"]


def test_mysql_and_its_streams(tmp_path: Path) -> None:
    given = {
        "host": "my.example",
        "port": 3306,
        "database": "till",
        "username": "u",
        "password": MASK,
        "ssl_mode": {"mode": "verify_identity", "ca_certificate": MASK},
        "jdbc_url_params": "sessionVariables=x&password=canary",
        "replication_method": {"method": "CDC", "initial_waiting_seconds": 300},
    }
    streams = [{"name": "t", "namespace": "till", "syncMode": "incremental_deduped_history"}, {"name": "u"}]
    found = imported(airbyte(source(given, "mysql"), connection(*streams)))
    assert found.sections["sources"]["shop"]["tls"]["mode"] == "verify-full"
    assert the_connection(found)["tables"] == {
        "till.t": {"enabled": True, "mode": "cdc", "deletes": "hard"},
        "till.u": {"enabled": True},
    }
    assert any("JDBC parameters are left out (sessionVariables, password)" in note for note in found.notes)
    assert "canary" not in str(found.notes)
    loaded(found, tmp_path)


@pytest.mark.parametrize(
    ("kind", "more", "section"),
    [
        ("mssql", {"schemas": ["dbo"]}, {"subprotocol": "sqlserver", "database": "shop", "schemas": ["dbo"]}),
        ("oracle", {"database": None, "sid": "ORCL"}, {"subprotocol": "oracle", "database": "ORCL"}),
    ],
)
def test_databases_by_jdbc(kind: str, more: dict[str, Any], section: dict[str, Any], tmp_path: Path) -> None:
    found = imported(airbyte(source({**PG, **more}, kind)))
    shown = found.sections["sources"]["shop"]
    assert {key: shown[key] for key in section} == section
    assert shown["type"] == "jdbc"
    loaded(found, tmp_path)


LAKE_BASE = {
    "s3_bucket_name": "b", "s3_bucket_region": "eu-west-1", "s3_endpoint": "http://s3.example:9000",
    "access_key_id": "AKIAEXAMPLE", "secret_access_key": MASK, "warehouse_location": "s3://b/lake",
    "main_branch_name": "main",
}  # fmt: skip
PLACED = {
    "s3.endpoint": "http://s3.example:9000",
    "s3.region": "eu-west-1",
    "s3.access-key-id": "${env:AIRBYTE_DESTINATION_LAKE_S3_ACCESS_KEY_ID}",
    "s3.secret-access-key": "${env:AIRBYTE_DESTINATION_LAKE_S3_SECRET_ACCESS_KEY}",
}
# connector, configuration | section, None if there is none
DESTINATIONS: list[tuple[str, dict[str, Any], dict[str, Any] | None]] = [
    ("duckdb", {"destination_path": "/local/a/b.duckdb"}, {"type": "duckdb", "path": "b.duckdb"}),
    ("duckdb", {"destination_path": "/local/../../etc/passwd"}, {"type": "duckdb", "path": "passwd"}),
    ("duckdb", {"destination_path": "md:cloud"}, None),
    ("motherduck", {"destination_path": "md:cloud", "motherduck_api_key": MASK}, None),
    (
        "postgres",
        {"host": "h", "port": 5432, "database": "d", "username": "u", "password": MASK, "schema": "public"},
        {"type": "postgres", "host": "h", "port": 5432, "database": "d", "user": "u",
         "password": "${env:AIRBYTE_DESTINATION_LAKE_PASSWORD}"},
    ),
    (
        "s3-data-lake",
        {**LAKE_BASE, "catalog_type": {"catalog_type": "REST", "server_uri": "https://c.example", "namespace": "n"}},
        {"type": "iceberg", "warehouse": "s3://b/lake", "catalog": "https://c.example", "properties": PLACED},
    ),
    (
        "s3-data-lake",
        {**LAKE_BASE, "catalog_type": {"catalog_type": "GLUE", "glue_id": "1", "database_name": "n"}},
        {"type": "iceberg", "warehouse": "s3://b/lake", "catalog": "glue", "properties": PLACED},
    ),
    (
        "s3-data-lake",
        {**LAKE_BASE, "catalog_type": {"catalog_type": "NESSIE", "server_uri": "http://n:19120/api/v2",
                                       "access_token": MASK}},
        {"type": "iceberg", "warehouse": "s3://b/lake", "catalog": "http://n:19120/iceberg",
         "properties": {**PLACED, "token": "${env:AIRBYTE_DESTINATION_LAKE_TOKEN}"}},
    ),
    ("s3-data-lake", {**LAKE_BASE, "warehouse_location": "/etc", "catalog_type": {"catalog_type": "GLUE"}}, None),
    ("s3-data-lake", {**LAKE_BASE, "catalog_type": {"catalog_type": "OTHER"}}, None),
    ("snowflake", {"host": "x"}, None),
    ("", {}, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "given", "section"), DESTINATIONS, ids=[f"{n}-{d[0]}" for n, d in enumerate(DESTINATIONS)]
)
def test_destinations(kind: str, given: dict[str, Any], section: dict[str, Any] | None, tmp_path: Path) -> None:
    found = imported(airbyte(destination(given, kind)))
    if section is None:
        assert found.sections["destinations"] == {}
        assert found.sections["connections"] == {}
        assert "destination Lake" in left_out(found)
        assert "connection Shop to Lake: its destination is not taken over" in left_out(found)
        found = imported(airbyte(destination(given, kind)), warehouse="lake")
        section = {"type": "iceberg", "warehouse": "lake"}
    assert found.sections["destinations"]["lake"] == section
    assert loaded(found, tmp_path).connections == ("shop_to_lake",)


@pytest.mark.parametrize(
    ("kind", "why"), [("snowflake", "no Python package"), ("custom", "does not name its connector")]
)
def test_sources_without_a_counterpart_are_listed(kind: str, why: str) -> None:
    found = imported(airbyte(source({}, kind)))
    assert why in left_out(found)
    assert "type: airbyte` with a `command:`" in left_out(found)
    assert "connection Shop to Lake: its source is not taken over" in left_out(found)


def test_a_connector_is_known_by_its_definition() -> None:
    given = source(kind="", definitionId="decd338e-5647-4c0b-adf4-da0e75f5a750")
    assert imported(airbyte(given)).sections["sources"]["shop"]["type"] == "postgres"


def test_one_file_for_each_list_and_a_page_that_is_not_the_last() -> None:
    whole = airbyte()
    pages = [{**whole[name], "next": "https://x/next" if name == "sources" else ""} for name in whole]
    found = imported(*pages)
    assert found.sections == imported(whole).sections
    assert found.notes[0].startswith("export.json is one page of a longer list")


def test_the_same_export_gives_the_same_project() -> None:
    assert imported(airbyte()) == imported(airbyte())


def test_names_that_are_alike_stay_apart(tmp_path: Path) -> None:
    found = imported(
        airbyte(
            source(),
            source(sourceId="s-2", name="SHOP"),
            source(sourceId="s-3", name="źródło 3"),
            source(sourceId="s-4", name="商店"),
            connection(connectionId="c-2", sourceId="s-2", name="shop-to-lake"),
            connection(),
        )
    )
    assert list(found.sections["sources"]) == ["shop", "shop_2", "zrodo_3", "source"]
    assert [one.variable for one in found.secrets][:2] == [
        "AIRBYTE_SOURCE_SHOP_PASSWORD",
        "AIRBYTE_SOURCE_SHOP_2_PASSWORD",
    ]
    assert set(loaded(found, tmp_path).connections) == {"shop-to-lake", "shop_to_lake"}
