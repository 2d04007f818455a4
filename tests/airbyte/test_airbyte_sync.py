"""A connector of Airbyte's protocol from its messages to the rows of tables."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airbyte_world import (
    INTEGER,
    TEXT,
    AirbyteWorld,
    error,
    record,
    records,
    shared_state,
    state,
    status,
    stream,
)
from instep.project.sections.tables import TableSettings


def test_rows_land_and_the_next_read_begins_with_the_state_behind_them(world: AirbyteWorld) -> None:
    world.read(*records(1, 3), state(3, 3), status())
    assert world.ids() == [1, 2, 3]
    assert world.seen["state"] is None
    world.read(record(id=2, name="b"), record(id=4), state(4, 2), status())
    assert world.seen["state"] == [
        {"type": "STREAM", "stream": {"stream_descriptor": {"name": "users"}, "stream_state": {"at": 3}}}
    ]
    assert world.records("users", "id", "name") == [{"id": 1}, {"id": 2, "name": "b"}, {"id": 3}, {"id": 4}]
    assert world.states == {"users": {"at": 4}}


def test_its_files_are_private_and_gone(world: AirbyteWorld) -> None:
    world.configuration = {"api_token": "tok-12345678"}
    world.read(*records(1, 1), state(1), status())
    seen = world.seen
    assert seen["modes"][0] == 0o700
    assert set(seen["modes"][1:]) == {0o600}
    assert seen["configuration"] == {"api_token": "tok-12345678"}
    assert not any("tok-12345678" in word for word in [*seen["argv"], *seen["environment"].values()])


MODES = [
    ("auto", True, ("id",), ("incremental", "append_dedup", 0)),
    ("auto", True, (), ("incremental", "append", 0)),
    ("auto", False, ("id",), ("full_refresh", "overwrite", 1)),
    ("full_refresh", True, ("id",), ("full_refresh", "overwrite", 1)),
    ("append", True, ("id",), ("incremental", "append", 0)),
    ("append", False, ("id",), ("full_refresh", "append", 0)),
    ("upsert", False, ("id",), ("full_refresh", "append_dedup", 0)),
]


@pytest.mark.parametrize(("mode", "incremental", "key", "expected"), MODES)
def test_the_mode_of_a_table_chooses_how_its_stream_is_read(
    world: AirbyteWorld, mode: Any, incremental: bool, key: tuple[str, ...], expected: tuple[str, str, int]
) -> None:
    world.streams = [stream(key=key, incremental=incremental)]
    world.tables["users"] = TableSettings(mode=mode)
    world.read(*records(1, 2), status())
    (found,) = world.seen["catalog"]["streams"]
    assert (found["sync_mode"], found["destination_sync_mode"], found["minimum_generation_id"]) == expected
    assert found["generation_id"] == 1
    assert found["sync_id"] > 0
    assert world.ids() == [1, 2]


def test_a_full_refresh_replaces_all_rows_at_once(world: AirbyteWorld) -> None:
    world.streams = [stream(incremental=False)]
    world.read(*records(1, 3), status())
    world.read(*records(3, 4), status())
    assert world.ids() == [3, 4]
    assert [one["generation_id"] for one in world.seen["catalog"]["streams"]] == [2]


def test_a_full_refresh_that_breaks_off_leaves_the_rows_that_are_there(world: AirbyteWorld) -> None:
    world.streams = [stream(incremental=False), stream("orders")]
    world.read(*records(1, 3), status(), *records(1, 1, "orders"), state(1, 1, "orders"), status(name="orders"))
    report = world.read(
        *records(8, 9), *records(2, 2, "orders"), state(2, 1, "orders"), status(name="orders"), ["exit", 1]
    )
    assert world.statuses(report) == {"users": "failed", "orders": "done"}
    assert world.ids() == [1, 2, 3]
    assert world.ids("orders") == [1, 2]
    world.read(status(), status(name="orders"))
    assert world.ids() == []


def test_a_full_refresh_that_an_error_ends_leaves_the_rows_that_are_there(world: AirbyteWorld) -> None:
    """Whatever its exit code is: a connector without statuses says by an error that it has not sent all."""
    world.streams = [stream(incremental=False)]
    world.read(*records(1, 3))
    assert "boom" in world.failed(*records(1, 1), error("boom"))
    assert world.ids() == [1, 2, 3]


def test_a_stream_without_incremental_reads_resumes_when_its_rows_are_not_replaced(world: AirbyteWorld) -> None:
    world.streams = [stream(incremental=False)]
    world.tables["users"] = TableSettings(mode="upsert")
    world.failed(*records(1, 2), state(2, 2), ["exit", 1])
    assert world.states == {"users": {"at": 2}}
    world.read(*records(3, 4), state(4, 2), status())
    assert world.seen["state"][0]["stream"]["stream_state"] == {"at": 2}
    assert world.ids() == [1, 2, 3, 4]
    assert world.states == {}


def test_records_that_a_log_tells_as_deleted_are_deletes(world: AirbyteWorld) -> None:
    world.streams = [stream(name=TEXT, _ab_cdc_deleted_at=TEXT)]
    world.read(*records(1, 3), state(3, 3), status())
    world.read(record(id=2, _ab_cdc_deleted_at="2026-01-01"), record(id=4), state(4, 2), status())
    assert world.ids() == [1, 3, 4]


def test_one_of_the_streams_that_share_a_state_is_read_anew_and_the_state_is_saved(world: AirbyteWorld) -> None:
    world.streams = [stream(), stream("orders")]
    done = [status(), status(name="orders")]
    both = {"users": {"snapshot": "done"}, "orders": {"snapshot": "done"}}
    world.read(*records(1, 3), *records(1, 1, "orders"), shared_state(7, both, 4), *done)
    lines = [*records(2, 4), *records(2, 2, "orders"), shared_state(9, both, 4), *done]
    report = world.read(*lines, tables=frozenset({"users"}), full=True)
    (given,) = world.seen["state"]
    assert given["global"]["shared_state"] == {"lsn": 7}
    assert [one["stream_descriptor"]["name"] for one in given["global"]["stream_states"]] == ["orders"]
    assert (world.ids(), world.ids("orders")) == ([1, 2, 3, 4], [1, 2])
    assert world.state["shared"] == {"lsn": 9}
    assert world.states == both
    assert any("its state is shared" in note for note in report.notes)


def test_a_stream_that_is_read_anew_beside_others_keeps_the_state_where_a_read_breaks_off(world: AirbyteWorld) -> None:
    world.streams = [stream(), stream("orders")]
    done = [status(), status(name="orders")]
    both = {"users": {"snapshot": "done"}, "orders": {"snapshot": "done"}}
    world.read(*records(1, 3), *records(1, 1, "orders"), shared_state(7, both, 4), *done)
    world.failed(*records(2, 4), *records(2, 2, "orders"), ["exit", 1], tables=frozenset({"users"}), full=True)
    assert (world.state["shared"], world.states) == ({"lsn": 7}, {"orders": {"snapshot": "done"}}), "users begins again"
    world.read(*records(2, 2, "orders"), *records(4, 4), shared_state(8, both, 2), *done)
    assert {1, 2} == set(world.ids("orders"))
    assert "no table nothing" in world.failed(tables=frozenset({"nothing"}), full=True)


def test_one_stream_of_a_state_that_is_one_text_is_read_anew_without_moving_the_others(world: AirbyteWorld) -> None:
    world.streams = [stream(), stream("orders")]
    done = [status(), status(name="orders")]

    def legacy(at: int) -> dict[str, Any]:
        return {"type": "STATE", "state": {"type": "LEGACY", "data": {"at": at}}}

    world.read(*records(1, 3), *records(1, 1, "orders"), legacy(3), *done)
    world.read(*records(2, 5), *records(1, 4, "orders"), legacy(5), *done, tables=frozenset({"users"}), full=True)
    assert world.seen["state"] is None, "all of it is sent from the start"
    assert (world.ids("orders"), world.state["legacy"]) == ([1], {"at": 3})
    assert {2, 3, 4, 5} <= set(world.ids())
    world.read(*records(4, 5), *records(2, 4, "orders"), legacy(5), *done)
    assert world.seen["state"] == {"at": 3}
    assert (world.ids("orders"), world.state["legacy"]) == ([1, 2, 3, 4], {"at": 5})


def test_states_that_streams_share_are_one(world: AirbyteWorld) -> None:
    world.streams = [stream(), stream("orders")]
    done = [status(), status(name="orders")]
    both = {"users": {"snapshot": "done"}, "orders": {"snapshot": "done"}}
    world.read(*records(1, 2), *records(1, 1, "orders"), shared_state(7, both, 3), *done)
    world.store.backfills.request("shop", ("", "users"), why="test")
    world.read(*records(1, 5), shared_state(9, both, 5), *done)
    (given,) = world.seen["state"]
    assert given["global"]["shared_state"] == {"lsn": 7}
    assert [one["stream_descriptor"]["name"] for one in given["global"]["stream_states"]] == ["orders"]
    assert world.state["shared"] == {"lsn": 9}
    assert world.ids() == [1, 2, 3, 4, 5]


def test_a_legacy_state_is_given_back_as_it_was(world: AirbyteWorld) -> None:
    world.read(*records(1, 2), {"type": "STATE", "state": {"data": {"at": 2}}}, status())
    world.read(record(id=3), {"type": "STATE", "state": {"type": "LEGACY", "data": {"at": 3}}}, status())
    assert world.seen["state"] == {"at": 2}
    assert world.state["legacy"] == {"at": 3}


def test_one_stream_is_read_by_itself_and_sent_again_by_itself(world: AirbyteWorld) -> None:
    world.streams = [stream(), stream("orders")]
    world.read(
        *records(1, 2), state(2), status(), *records(1, 1, "orders"), state(1, name="orders"), status(name="orders")
    )
    world.read(*records(3, 3), state(3), status(), tables=frozenset({"users"}))
    assert [one["stream"]["name"] for one in world.seen["catalog"]["streams"]] == ["users"]
    assert world.states == {"users": {"at": 3}, "orders": {"at": 1}}
    world.read(*records(1, 4), state(4), status(), tables=frozenset({"users"}), full=True)
    assert world.seen["state"] is None
    assert world.states == {"users": {"at": 4}, "orders": {"at": 1}}
    world.store.backfills.request("shop", ("", "orders"), why="test")
    world.read(status(), *records(1, 2, "orders"), state(2, name="orders"), status(name="orders"))
    assert [one["stream"]["stream_descriptor"]["name"] for one in world.seen["state"]] == ["users"]
    assert world.states == {"users": {"at": 4}, "orders": {"at": 2}}
    assert not world.store.backfills.waiting("shop")


def test_a_new_configuration_is_saved_at_once_and_used_from_then_on(world: AirbyteWorld) -> None:
    world.configuration = {"refresh_token": "old-token-1"}
    new = {"type": "CONTROL", "control": {"type": "CONNECTOR_CONFIG", "emitted_at": 1}}
    new["control"]["connectorConfig"] = {"config": {"refresh_token": "new-token-2"}}  # type: ignore[index]
    world.failed(*records(1, 1), new, ["exit", 1])
    world.read(*records(1, 1), state(1), status())
    assert world.seen["configuration"] == {"refresh_token": "new-token-2"}
    world.read(state(1), status(), full=True)
    assert world.seen["configuration"] == {"refresh_token": "new-token-2"}
    world.configuration = {"refresh_token": "written-3"}
    world.read(state(1), status())
    assert world.seen["configuration"] == {"refresh_token": "written-3"}


def test_a_catalog_that_differs_behind_the_read_is_a_change_of_this_run(world: AirbyteWorld) -> None:
    world.after = [stream(name=TEXT, age=INTEGER)]
    world.read(*records(1, 1), state(1), status())
    assert "age" in {c.name for c in world.accepted("users").columns}


def test_names_that_the_catalog_does_not_have_are_new_columns(world: AirbyteWorld) -> None:
    report = world.read(record(id=1, age=7), state(1), status())
    assert world.records("users", "id", "age") == [{"id": 1, "age": 7}]
    assert any("users: records have age" in note for note in report.notes)


def test_objects_are_json_unless_they_are_flattened(make: Any) -> None:
    address = {"type": "object", "properties": {"city": TEXT, "at": {"type": "object", "properties": {"x": INTEGER}}}}
    data = {"id": 1, "address": {"city": "Rome", "at": {"x": 1}, "zip": "z"}}
    world: AirbyteWorld = make(streams=[stream(address=address)])
    world.read(record(**data), state(1), status())
    (row,) = world.records("users", "address")
    assert row["address"].replace(" ", "") == '{"city":"Rome","at":{"x":1},"zip":"z"}'


def test_flattened_objects_are_columns(world: AirbyteWorld) -> None:
    address = {"type": "object", "properties": {"city": TEXT, "at": {"type": "object", "properties": {"x": INTEGER}}}}
    world.streams, world.flatten = [stream(address=address)], ("users",)
    world.read(record(id=1, address={"city": "Rome", "at": {"x": 1}, "zip": "z"}), record(id=2), state(2, 2), status())
    names = ("id", "address_city", "address_at_x", "address_zip")
    assert world.records("users", *names) == [
        {"id": 1, "address_city": "Rome", "address_at_x": 1, "address_zip": "z"}, {"id": 2},
    ]  # fmt: skip


OBJECT = {"type": "object"}
CITY = {**OBJECT, "properties": {"city": TEXT}}
SAME_NAMES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"a": {**OBJECT, "properties": {"b_c": TEXT, "b": {**OBJECT, "properties": {"c": TEXT}}}}},
     {"a": {"b_c": "x", "b": {"c": "y"}}}),
    ({"a": {**OBJECT, "properties": {"b_c": TEXT}}, "a_b": {**OBJECT, "properties": {"c": TEXT}}},
     {"a": {"b_c": "x"}, "a_b": {"c": "y"}}),
    ({"a": CITY, "a_city": TEXT}, {"a": {"city": "x"}, "a_city": "y"}),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "data"), SAME_NAMES)
def test_objects_whose_columns_would_have_one_name_are_not_flattened(
    world: AirbyteWorld, columns: dict[str, Any], data: dict[str, Any]
) -> None:
    world.streams, world.flatten = [stream(**columns)], ("users",)
    world.read(record(id=1, **data), state(1, 1), status())
    (row,) = world.records("users", *data)
    assert {name: value if isinstance(data[name], str) else json.loads(value) for name, value in row.items()} == data


@pytest.mark.parametrize("data", [{"a_city": "y"}, {"a": {"city": "x", "b_c": 1, "b": {"c": 2}}}])
def test_a_property_that_would_have_the_column_of_another_ends_its_stream(
    world: AirbyteWorld, data: dict[str, Any]
) -> None:
    world.streams, world.flatten = [stream(a={**CITY, "properties": {**CITY["properties"], "b": {
        **OBJECT, "properties": {"d": TEXT}}}})], ("users",)  # fmt: skip
    said = world.failed(
        record(id=1, a={"city": "x"}), state(1, 1), record(**{"id": 2, "a": {"city": "x"}, **data}), status()
    )
    assert "two properties that would be the column a_" in said
    assert (world.ids(), world.states) == ([1], {"users": {"at": 1}})


NESTED = {"user": {**OBJECT, "properties": {"id": INTEGER}}, "user_id": INTEGER}


@pytest.mark.parametrize("flatten", [(), ("users",)])
@pytest.mark.parametrize("named", [False, True], ids=["of the source", "of the project"])
def test_a_key_in_an_object_is_not_that_of_a_property_of_its_name(
    world: AirbyteWorld, flatten: tuple[str, ...], named: bool
) -> None:
    world.streams, world.flatten = [stream(key=(), **NESTED)], flatten
    if named:
        world.tables["users"] = TableSettings(key=("user.id",))
    else:
        world.streams[0]["source_defined_primary_key"] = [["user", "id"], ["user", "id"]]
    world.read(*(record(id=i, user={"id": i}, user_id=9) for i in (1, 2, 2)), state(2, 3), status())
    assert world.records("users", "id", "user_id") == [{"id": 1, "user_id": 9}, {"id": 2, "user_id": 9}]
    (read,) = world.seen["catalog"]["streams"]
    assert [path for path in read["primary_key"] if path != ["user", "id"]] == []


def test_a_table_that_is_switched_off_is_not_asked_for(world: AirbyteWorld) -> None:
    world.streams = [stream(), stream("orders")]
    world.excluded("orders")
    world.read(*records(1, 1), state(1), status())
    assert [one["stream"]["name"] for one in world.seen["catalog"]["streams"]] == ["users"]
