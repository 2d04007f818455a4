"""Streams without a primary key: each record is a row of its own, however often it is sent again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from airbyte_world import (
    INTEGER,
    TEXT,
    AirbyteWorld,
    Line,
    airbyte_world,
    error,
    record,
    records,
    shared_state,
    state,
    status,
    stream,
)
from instep.project.sections.tables import TableSettings
from instep.store.catalogs.airbyte_states import changed_state
from postgres_server import Database

KEYLESS = stream(key=(), name=TEXT)


NOT = "the state that it shares with other streams does not cover its records"


def many(world: AirbyteWorld, name: str = "users") -> dict[Any, int]:
    return dict(Counter(row["id"] for row in world.records(name, "id")))


@pytest.mark.parametrize("into", ["duckdb", "iceberg", "delta", "postgres"])
def test_equal_records_are_rows_each_in_every_destination(
    tmp_path: Path, request: pytest.FixtureRequest, into: str
) -> None:
    database: Database | None = request.getfixturevalue("postgres") if into == "postgres" else None
    world = airbyte_world(tmp_path, into=into, database=database)
    world.streams = [KEYLESS, stream("whole", key=(), incremental=False)]
    whole, done = [record("whole", id=7)] * 3, [status(), status(name="whole")]
    same = [record(id=1)] * 3 + [record(id=2)]
    world.read(*same, state(1, 4), *same[:1], state(2, 1), *whole, *done)
    assert (many(world), many(world, "whole")) == ({1: 4, 2: 1}, {7: 3})
    world.read(*same, state(3, 4), *whole[:2], record("whole", id=8), *done)
    assert (many(world), many(world, "whole")) == ({1: 7, 2: 2}, {7: 2, 8: 1})
    world.close()


APART = [(["sleep", 1.5], 3), (["sleep", 0.01], 3)]


@pytest.mark.parametrize(("between", "rows"), APART)
def test_equal_records_of_several_segments(world: AirbyteWorld, between: Any, rows: int) -> None:
    world.streams = [KEYLESS]
    world.read(record(id=1), state(1, 1), between, record(id=1), state(2, 1), between, record(id=1), state(3), status())
    assert many(world) == {1: rows}


def test_a_whole_read_between_the_states_of_another_stream_has_each_record(world: AirbyteWorld) -> None:
    world.streams = [stream("whole", key=(), incremental=False), KEYLESS]
    some = [record("whole", id=7)] * 2
    for number in (1, 2):
        states = [[record(id=number), state(10 * number + n, 1), ["sleep", 1.5]] for n in range(3)]
        lines = [line for one in states for line in (*some, *one)]
        world.read(*lines, *some, status(name="whole"), status())
        assert many(world, "whole") == {7: 8}
    assert many(world) == {1: 3, 2: 3}


def test_a_whole_read_that_is_appended_keeps_the_rows_of_the_last_one(world: AirbyteWorld) -> None:
    world.streams = [stream(key=(), incremental=False)]
    world.tables["users"] = TableSettings(mode="append")
    for syncs in (1, 2, 3):
        world.read(record(id=1), record(id=1), record(id=syncs), status())
    assert many(world) == {1: 7, 2: 1, 3: 1}


def test_a_stream_with_a_key_that_is_appended_has_each_record(world: AirbyteWorld) -> None:
    world.tables["users"] = TableSettings(mode="append")
    world.read(record(id=1, name="a"), record(id=1, name="a"), record(id=1, name="b"), state(1, 3), status())
    assert many(world) == {1: 3}


def test_a_stream_without_any_state_has_what_each_read_brings(world: AirbyteWorld) -> None:
    world.streams = [KEYLESS]
    world.read(record(id=1), status())
    world.read(record(id=1), record(id=2), status())
    assert many(world) == {1: 2, 2: 1}


def test_records_that_a_state_brings_again_are_no_new_rows(world: AirbyteWorld) -> None:
    world.streams = [KEYLESS]
    world.failed(record(id=1), record(id=1), state(1, 2), record(id=2), record(id=2), ["exit", 1])
    assert many(world) == {1: 2, 2: 2}
    world.failed(record(id=2), ["exit", 1])
    world.read(record(id=2), record(id=2), record(id=2), state(2, 3), status())
    assert many(world) == {1: 2, 2: 3}


def test_a_first_read_that_broke_off_without_a_state_is_no_double(world: AirbyteWorld) -> None:
    world.streams = [KEYLESS]
    world.failed(record(id=1), record(id=1), ["exit", 1])
    world.read(record(id=1), record(id=1), record(id=1), state(1, 3), status())
    assert many(world) == {1: 3}


LEFT: list[tuple[str, list[Line], list[Line], dict[int, int]]] = [
    ("fewer", [record(id=2), record(id=3)], [record(id=2), state(2, 1)], {1: 2, 2: 1}),
    ("none", [record(id=2), record(id=3)], [], {1: 2}),
    ("others", [record(id=2), record(id=3)], [record(id=4), state(2, 1)], {1: 2, 4: 1}),
    ("in another order", [record(id=2), record(id=3)], [record(id=3), record(id=2), state(2, 2)], {1: 2, 2: 1, 3: 1}),
    ("more", [record(id=2)], [record(id=2), record(id=3), state(2, 2)], {1: 2, 2: 1, 3: 1}),
    ("fewer, without a state", [record(id=2), record(id=3)], [record(id=3)], {1: 2, 3: 1}),
    ("fewer than many", [*[record(id=2)] * 12_000, ["sleep", 1.5], record(id=3)], [*[record(id=2)] * 11_000],
     {1: 2, 2: 11_000}),
]  # fmt: skip


@pytest.mark.parametrize(("broken", "again", "rows"), [case[1:] for case in LEFT], ids=[case[0] for case in LEFT])
def test_rows_of_a_broken_run_that_are_not_sent_again_go(
    world: AirbyteWorld, broken: list[Line], again: list[Line], rows: dict[int, int]
) -> None:
    world.streams = [KEYLESS]
    begun: list[Line] = [record(id=1), record(id=1), state(1, 2)]
    world.failed(*begun, *broken, ["exit", 1])
    assert sum(many(world).values()) == 2 + sum(isinstance(line, dict) for line in broken)
    world.failed(*again[:1], ["exit", 1])
    world.read(*again, status())
    assert many(world) == rows
    left = world.read(*([] if any("STATE" in str(line) for line in again) else again), record(id=9), status())
    assert [t.deleted for t in left.tables] == [0], "a run behind one that was complete looks for nothing"
    assert many(world) == {**rows, 9: 1}


def test_rows_behind_the_last_state_of_a_complete_stream_count(world: AirbyteWorld) -> None:
    world.streams = [KEYLESS]
    world.read(record(id=1), state(1, 1), record(id=2), record(id=3), status())
    assert many(world) == {1: 1, 2: 1, 3: 1}
    world.read(record(id=2), record(id=3), record(id=4), state(2, 3), status())
    assert many(world) == {1: 1, 2: 1, 3: 1, 4: 1}


def test_a_broken_run_of_one_stream_leaves_the_rows_of_others(world: AirbyteWorld) -> None:
    world.streams = [KEYLESS, stream("orders", key=())]
    world.read(
        record(id=1), state(1, 1), record("orders", id=1), state(1, 1, "orders"), status(), status(name="orders")
    )
    broken_off = world.read(record(id=2), record("orders", id=2), state(2, 1, "orders"), status(name="orders"))
    assert world.statuses(broken_off) == {"users": "failed", "orders": "done"}
    world.read(status(), record("orders", id=3), state(3, 1, "orders"), status(name="orders"))
    assert (many(world), many(world, "orders")) == ({1: 1}, {1: 1, 2: 1, 3: 1})


def test_records_before_a_shared_state_that_failed_are_no_doubles(world: AirbyteWorld) -> None:
    world.streams = [KEYLESS, stream("orders")]
    both = {"users": {"at": 1}, "orders": {"at": 1}}
    world.read(record(id=1), record("orders", id=1), shared_state(1, both, 2), status(), status(name="orders"))
    broken_off = world.read(record(id=1), record(id=1), status(), error("boom"), ["exit", 1])
    assert world.statuses(broken_off) == {"users": "done", "orders": "failed"}
    assert many(world) == {1: 3}
    world.read(record(id=1), record(id=1), shared_state(2, both, 2), status(), status(name="orders"))
    assert many(world) == {1: 3}
    world.read(record(id=1), shared_state(3, both, 1), status(), status(name="orders"))
    assert many(world) == {1: 4}


NOT_COVERED = [
    ("left out", {"orders": {"at": 2}}, 2, True),
    ("as before", {"users": {"at": 1}, "orders": {"at": 1}}, 1, True),
    ("covered by itself", {"users": {"at": 2}, "orders": {"at": 1}}, 1, False),
    ("covered by what they share", {"users": {"at": 1}, "orders": {"at": 1}}, 2, False),
    ("of no stream", {}, 2, False),
]


@pytest.mark.parametrize(("states", "at", "noted"), [one[1:] for one in NOT_COVERED], ids=[n[0] for n in NOT_COVERED])
def test_records_that_a_shared_state_may_bring_again_are_noted(
    world: AirbyteWorld, states: Any, at: int, noted: bool
) -> None:
    """At least once, as in Airbyte: it is new rows that come again, and none that is lost."""
    world.streams = [KEYLESS, stream("orders")]
    done, both = [status(), status(name="orders")], {"users": {"at": 1}, "orders": {"at": 1}}
    first = world.read(record(id=1), shared_state(1, both, 1), *done)
    second = world.read(record(id=1), shared_state(at, states, 1), *done)
    texts = "\n".join(first.notes), "\n".join(second.notes)
    assert [f"users: {NOT}" in text for text in texts] == [False, noted]
    assert "orders: the state" not in "".join(texts)
    assert many(world) == {1: 2}


@pytest.mark.parametrize("wanted", [{"full": True}, {"full": True, "tables": frozenset({"users"})}])
def test_a_read_from_the_start_replaces_the_rows(world: AirbyteWorld, wanted: Any) -> None:
    world.streams = [KEYLESS]
    world.read(record(id=1), record(id=1), record(id=2), state(1, 3), status())
    world.read(record(id=1), record(id=1), record(id=3), state(2, 3), status(), **wanted)
    assert many(world) == {1: 2, 3: 1}
    world.read(record(id=1), state(3, 1), status())
    assert many(world) == {1: 3, 3: 1}


@pytest.mark.parametrize("given", [{}, {"type": "STREAM", "streams": []}])
def test_a_state_that_a_person_sets_to_nothing_replaces_the_rows(world: AirbyteWorld, given: dict[str, Any]) -> None:
    world.streams = [stream(key=())]
    world.read(*records(1, 3), state(3), status())
    world.store.connectors.save("shop", changed_state(world.state, given))
    world.read(*records(1, 4), state(4), status())
    assert world.seen["state"] is None
    assert world.ids() == [1, 2, 3, 4]


DAMAGED = [{"streams": [{"name": "users"}]}, {"streams": 5}, {"generations": [["users"]], "records": {}}, {"type": []}]


@pytest.mark.parametrize("damaged", DAMAGED, ids=str)
def test_a_saved_state_that_cannot_be_read_is_an_error_and_full_begins_anew(
    world: AirbyteWorld, damaged: dict[str, Any]
) -> None:
    world.read(*records(1, 2), state(2), status())
    world.store.connectors.save("shop", {**world.state, **damaged})
    assert "the connector's saved state cannot be read: `" in world.failed(*records(3, 3), state(3), status())
    assert world.ids() == [1, 2]
    world.read(*records(1, 3), state(3), status(), full=True)
    assert (world.ids(), world.states) == ([1, 2, 3], {"users": {"at": 3}})


def test_a_read_from_the_start_that_broke_off_goes_on_so(world: AirbyteWorld) -> None:
    world.streams = [KEYLESS]
    world.read(record(id=1), record(id=1), state(1, 2), status())
    world.failed(record(id=1), ["exit", 1], full=True)
    world.read(record(id=1), record(id=1), state(1, 2), status())
    assert world.seen["state"] is None
    assert many(world) == {1: 2}


def test_each_record_is_a_row_whichever_way_its_stream_is_read(world: AirbyteWorld) -> None:
    world.streams = [KEYLESS]
    for number, mode in enumerate(("full_refresh", "auto", "auto", "full_refresh", "full_refresh", "auto")):
        world.tables["users"] = TableSettings.model_validate({"mode": mode})
        goes_on = number == 2
        read = [record(id=9)] if goes_on else [record(id=1), record(id=1), record(id=2)]
        world.read(*read, state(number, len(read)), status())
        assert many(world) == ({1: 2, 2: 1, 9: 1} if goes_on else {1: 2, 2: 1}), number
        assert bool(world.seen["state"]) is goes_on


def test_rows_that_a_whole_read_brings_again_stay_the_same(world: AirbyteWorld) -> None:
    world.streams = [stream(key=(), incremental=False, n=INTEGER)]
    world.read(record(id=1), record(id=1), record(id=2), status())
    ids = {row["_instep_id"] for row in world.records("users", "_instep_id")}
    world.read(record(id=2), record(id=1), record(id=1), status())
    assert {row["_instep_id"] for row in world.records("users", "_instep_id")} == ids


@pytest.mark.parametrize("which", ["ends", "reserved"])
def test_a_state_with_numbers_of_two_countings_fails_until_all_is_read_again(world: AirbyteWorld, which: str) -> None:
    world.streams = [KEYLESS]
    world.read(record(id=1), record(id=2), state(1, 2), status())
    document = dict(world.context.store.connectors.get(world.context.name).state)
    document["records"] = [["", "users", 1, False]]
    document = {name: value for name, value in document.items() if name not in {"ends", "reserved"} - {which}}
    world.context.store.connectors.save(world.context.name, document)
    for _ in range(2):
        why = world.failed(record(id=3), state(2, 1), status())
        assert "do not belong together" in why
        assert "`instep sync --full`" in why
    world.read(record(id=1), record(id=2), record(id=3), state(2, 3), status(), full=True)
    assert many(world) == {1: 1, 2: 1, 3: 1}
    world.read(record(id=4), state(3, 1), status())
    assert many(world) == {1: 1, 2: 1, 3: 1, 4: 1}
