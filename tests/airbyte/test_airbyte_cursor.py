"""A cursor or key by which a stream was read, and that its catalog does not have any more, is a change to decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from airbyte_world import INTEGER, TEXT, AirbyteWorld, Line, Message, record, records, state, status, stream
from instep.errors import Blocked, ProjectError
from instep.project.sections.tables import TableSettings
from instep.schema.policy.presets import preset_named
from sync_world import preset

OWN = {"source_defined_cursor": False}
ORDERS = stream("orders")


def users(key: tuple[str, ...] = ("id",), **columns: Any) -> Message:
    return stream(key=key, **columns) | OWN


def by_default(*cursor: str, **columns: Any) -> Message:
    """A stream that is read by this cursor unless the settings name another."""
    return users(**columns) | {"default_cursor_field": list(cursor)}


def orders(at: int) -> list[Line]:
    return [*records(at, at, "orders"), state(at, 1, "orders"), status(name="orders")]


def names(world: AirbyteWorld) -> list[str]:
    """The streams that the connector was asked for last."""
    return [one["stream"]["name"] for one in world.seen["catalog"]["streams"]]


def kinds(world: AirbyteWorld) -> set[str]:
    return {review.kind for review in world.store.reviews.find("shop", ("open",))}


def loaded(world: AirbyteWorld, settings: TableSettings, first: Message) -> AirbyteWorld:
    """Two rows of users and one of orders, read by these settings."""
    world.tables["users"] = settings
    world.streams = [first, ORDERS]
    rows = [record(id=i, at=i * 10, code=f"c{i}", name=f"n{i}") for i in (1, 2)]
    assert world.read(*rows, state(2, 2), status(), *orders(1)).status == "done"
    return world


NOTHING = TableSettings()
INFO = {"type": "object", "properties": {"at": INTEGER, "by": TEXT}}
BY_AT, BY_CODE = TableSettings(cursor="at"), TableSettings(cursor="code")
WHOLE = users(at=INTEGER, code=TEXT, name=TEXT)
LOST: list[tuple[str, TableSettings, Message, Message, str]] = [
    ("its cursor", BY_AT, WHOLE, users(code=TEXT, name=TEXT), "cursor.removed"),
    ("a cursor of texts", BY_CODE, WHOLE, users(at=INTEGER, name=TEXT), "cursor.removed"),
    ("the key of the settings", TableSettings(key=("code",), cursor="at"),
     users((), at=INTEGER, code=TEXT, name=TEXT), users((), at=INTEGER, name=TEXT), "key.removed"),
    ("a default cursor", NOTHING, by_default("at", at=INTEGER, name=TEXT), users(name=TEXT), "cursor.removed"),
    ("a default cursor, beside another default", NOTHING, by_default("at", at=INTEGER, code=TEXT, name=TEXT),
     by_default("code", code=TEXT, name=TEXT), "cursor.removed"),
    ("a default cursor that is still said to be there", NOTHING, by_default("at", at=INTEGER, name=TEXT),
     by_default("at", name=TEXT), "cursor.removed"),
    ("a default cursor in an object", NOTHING, by_default("info", "at", info=INFO), by_default("info", "at", info={
        **INFO, "properties": {"by": TEXT}}), "cursor.removed"),
    ("the key of an upsert", TableSettings(mode="upsert", cursor="at"), WHOLE,
     users((), at=INTEGER, code=TEXT, name=TEXT), "key.changed"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "first", "then", "kind"), [c[1:] for c in LOST], ids=[c[0] for c in LOST])
def test_its_table_pauses_and_others_are_read(
    world: AirbyteWorld, settings: TableSettings, first: Message, then: Message, kind: str
) -> None:
    loaded(world, settings, first)
    world.streams = [then, ORDERS]
    for at in (2, 3):
        report = world.read(*orders(at))
        assert world.statuses(report) == {"users": "paused", "orders": "done"}
        assert names(world) == ["orders"]
    assert kind in kinds(world)
    assert world.ids("orders") == [1, 2, 3]
    assert world.ids() == [1, 2]
    assert world.states["users"] == {"at": 2}, "it reads on from there if the source takes it back"
    world.streams = [first, ORDERS]
    world.read(record(id=3, at=30, code="c3", name="n3"), state(3, 1), status(), *orders(4))
    assert kinds(world) == set()
    assert world.ids() == [1, 2, 3]
    assert {"name": "users"} in [one["stream"]["stream_descriptor"] for one in world.seen["state"]]


DECIDED: list[tuple[str, TableSettings, str, tuple[str, ...]]] = [
    ("read as a whole", BY_AT, "full_refresh", ()),
    ("read by another cursor", BY_CODE, "incremental", ("code",)),
]


@pytest.mark.parametrize(("settings", "mode", "cursor"), [c[1:] for c in DECIDED], ids=[c[0] for c in DECIDED])
def test_what_is_decided_is_how_it_is_read_from_then_on(
    world: AirbyteWorld, settings: TableSettings, mode: str, cursor: tuple[str, ...]
) -> None:
    loaded(world, BY_AT, WHOLE)
    world.streams, world.tables["users"] = [users(code=TEXT, name=TEXT), ORDERS], settings
    world.read(*orders(2))
    world.answer("approved")
    again = [record(id=i, code=f"c{i}", name=f"m{i}") for i in (2, 3)]
    world.read(*again, state(3, 2), status(), *orders(3))
    world.read(*again, state(3, 2), status(), *orders(4))
    (read,) = [one for one in world.seen["catalog"]["streams"] if one["stream"]["name"] == "users"]
    assert (read["sync_mode"], tuple(read["cursor_field"])) == (mode, cursor)
    assert kinds(world) == set()
    assert world.records("users", "id", "name") == [{"id": 2, "name": "m2"}, {"id": 3, "name": "m3"}]
    assert world.ids("orders") == [1, 2, 3, 4]


@pytest.mark.parametrize(("then", "mode", "cursor"), [
    (users(code=TEXT, name=TEXT), "full_refresh", []),
    (by_default("code", code=TEXT, name=TEXT), "incremental", ["code"]),
])  # fmt: skip
def test_a_default_cursor_that_was_given_up_is_followed_by_the_next_one(
    world: AirbyteWorld, then: Message, mode: str, cursor: list[str]
) -> None:
    loaded(world, NOTHING, by_default("at", at=INTEGER, code=TEXT, name=TEXT))
    world.streams = [then, ORDERS]
    world.read(*orders(2))
    world.answer("approved")
    again = [record(id=i, code=f"c{i}", name=f"m{i}") for i in (2, 3)]
    for at in (3, 4):
        world.read(*again, state(3, 2), status(), *orders(at))
    (read,) = [one for one in world.seen["catalog"]["streams"] if one["stream"]["name"] == "users"]
    assert (read["sync_mode"], read["cursor_field"]) == (mode, cursor)
    assert kinds(world) == set()
    assert world.records("users", "id", "name") == [{"id": 2, "name": "m2"}, {"id": 3, "name": "m3"}]


def test_another_default_is_a_change_and_the_accepted_cursor_counts_until_it_is_decided(world: AirbyteWorld) -> None:
    columns = {"at": INTEGER, "code": TEXT, "name": TEXT}
    loaded(world, NOTHING, by_default("at", **columns))
    world.streams = [by_default("code", **columns), ORDERS]
    report = world.read(record(id=3, at=30, code="c3", name="n3"), state(3, 1), status(), *orders(2))
    assert world.statuses(report) == {"users": "paused", "orders": "done"}
    assert kinds(world) == {"cursor.changed"}
    cursors = [one["cursor_field"] for one in world.seen["catalog"]["streams"] if one["stream"]["name"] == "users"]
    assert cursors == [["at"]]
    world.streams = [by_default("at", **columns), ORDERS]
    world.read(record(id=4, at=40, code="c4", name="n4"), state(4, 1), status(), *orders(3))
    assert kinds(world) == set()
    assert world.ids() == [1, 2, 3, 4]


@pytest.mark.parametrize("then", [
    stream(at=INTEGER, name=TEXT), stream(name=TEXT) | {"default_cursor_field": ["at"]},
])  # fmt: skip
def test_a_cursor_that_the_source_defines_by_itself_is_its_own_affair(world: AirbyteWorld, then: Message) -> None:
    first = stream(at=INTEGER, name=TEXT) | {"default_cursor_field": ["at"]}
    loaded(world, NOTHING, first)
    world.streams = [then, ORDERS]
    report = world.read(record(id=3, name="n3"), state(3, 1), status(), *orders(2))
    assert world.statuses(report) == {"users": "done", "orders": "done"}
    assert not kinds(world) & {"cursor.removed", "cursor.changed"}
    assert world.ids() == [1, 2, 3]


def test_a_key_that_the_source_defines_no_more_is_one_change(world: AirbyteWorld) -> None:
    world.streams = [stream(name=TEXT), ORDERS]
    world.read(record(id=1, name="a"), record(id=2, name="b"), state(2, 2), status(), *orders(1))
    world.streams = [stream(key=(), name=TEXT), ORDERS]
    report = world.read(record(id=2, name="b"), state(3, 1), status(), *orders(2))
    assert world.statuses(report) == {"users": "paused", "orders": "done"}
    waits = {summary for summary, action in world.reviews().items() if action != "ignore"}
    assert waits == {"primary key of users changed from (id) to (_instep_id)"}
    assert world.schema("users") == "id int64!, name string", "nothing of it is accepted before it is decided"
    world.answer("approved")
    for at in (3, 4):
        world.read(record(id=2, name="b"), record(id=2, name="b"), state(4, 2), status(), *orders(at))
    assert world.records("users", "id", "name") == [{"id": 2, "name": "b"}] * 2
    assert kinds(world) == set()


def test_a_connector_that_has_nothing_to_read_is_not_started(world: AirbyteWorld) -> None:
    world.tables["users"], world.streams = BY_AT, [WHOLE]
    world.read(record(id=1, at=1), state(1, 1), status())
    world.streams = [users(name=TEXT)]
    report = world.read(["exit", 1])
    assert world.statuses(report) == {"users": "paused"}
    assert world.ids() == [1]


@pytest.mark.parametrize("word", ["propagate_all", "approve", "stop"])
def test_other_presets_pause_the_connection(world: AirbyteWorld, word: str) -> None:
    loaded(world, BY_AT, WHOLE)
    world.policy = preset(preset_named(word))
    world.streams = [users(name=TEXT), ORDERS]
    with pytest.raises(Blocked, match="cursor"):
        world.read(*orders(2))
    assert "" in world.pauses()


WRONG: Mapping[str, TableSettings] = {
    "cannot be read by the cursor nowhere": TableSettings(cursor="nowhere"),
    "cannot have the key nowhere": TableSettings(key=("nowhere",)),
    "cannot be synced by upsert": TableSettings(mode="upsert"),
}


@pytest.mark.parametrize("says", WRONG)
def test_what_a_stream_never_had_is_an_error_of_the_settings(world: AirbyteWorld, says: str) -> None:
    world.tables["users"], world.streams = WRONG[says], [users((), name=TEXT)]
    with pytest.raises(ProjectError, match=says):
        world.read(status())
