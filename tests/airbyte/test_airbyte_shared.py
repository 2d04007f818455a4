"""A state that streams share, and a log that is read behind it: no stream goes on from where it did not get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from bridge_in_thread import Output, ScriptedConnector, in_this_process, lines

from airbyte_world import AirbyteWorld, Message, airbyte_world, record, records, shared_state, state, status, stream
from instep.destinations.duckdb.file import DatabaseFile
from instep.project.sections.tables import TableSettings
from instep.schema.selection.selection import Selection

NAMES = ("users", "orders")
DONE = [status(name=name) for name in NAMES]
BOTH = {"users": {"snapshot": "done"}, "orders": {"snapshot": "done"}}
Change = tuple[str, int]


@dataclass
class LogSource:
    """A log of rows that come. A stream begins with all of them, and then goes on behind the place in the log: that it
    has begun is told by its own state, or (`shared_only`) by what is shared."""

    shared_only: bool
    log: list[Change] = field(default_factory=list)

    def read(self, given: Any, catalog: Mapping[str, Any]) -> Output:
        whole = given[0]["global"] if given else {"shared_state": {"lsn": 0, "begun": []}, "stream_states": []}
        at, begun = whole["shared_state"]["lsn"], set(whole["shared_state"].get("begun", ()))
        begun |= {one["stream_descriptor"]["name"] for one in whole["stream_states"]}
        configured = [one["stream"]["name"] for one in catalog["streams"]]
        sent = [
            record(n, id=i)
            for place, (n, i) in enumerate(self.log)
            if n in configured and (n not in begun or place >= at)
        ]
        last = shared_state(
            len(self.log), {} if self.shared_only else {n: {"done": True} for n in configured}, len(sent)
        )
        if self.shared_only:
            last["state"]["global"]["shared_state"]["begun"] = sorted({*begun, *configured})
        return b"".join(lines([*sent, last, *(status(name=name) for name in configured)])), 0


def excluded(world: AirbyteWorld, connector: ScriptedConnector) -> Callable[[], None]:
    world.excluded("orders")
    return lambda: setattr(world, "selection", Selection())


def keyless_for_now(world: AirbyteWorld, connector: ScriptedConnector) -> Callable[[], None]:
    """Its key is gone from the catalog, so that it is not read until somebody decides about that, or it comes back."""
    before = connector.streams
    connector.streams = [before[0], stream("orders", key=())]
    return lambda: setattr(connector, "streams", before)


WAYS = [
    (excluded, ("id",), False),
    (excluded, (), False),
    (excluded, ("id",), True),
    (excluded, (), True),
    (keyless_for_now, ("id",), False),
]


@pytest.fixture
def logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """A world that reads a log in this process."""
    worlds: list[AirbyteWorld] = []

    def make(source: LogSource, key: tuple[str, ...]) -> tuple[AirbyteWorld, ScriptedConnector]:
        connector = ScriptedConnector([stream(name, key=key) for name in NAMES], source.read)
        in_this_process(monkeypatch, connector, prompt=lambda: True)
        worlds.append(airbyte_world(tmp_path, streams=connector.streams))
        if key:
            worlds[0].tables["orders"] = TableSettings(mode="upsert")
        return worlds[0], connector

    with DatabaseFile(tmp_path / "warehouse.db").session():
        yield make
        for world in worlds:
            world.close()


@pytest.mark.parametrize(("away", "key", "shared_only"), WAYS)
def test_a_stream_that_was_not_read_for_a_while_misses_nothing(
    logged: Callable[..., Any], away: Any, key: tuple[str, ...], shared_only: bool
) -> None:
    source = LogSource(shared_only, [("users", 1), ("orders", 1)])
    world, connector = logged(source, key)
    world.read()
    back = away(world, connector)
    source.log += [("orders", 2), ("users", 2)]
    world.read()
    assert world.ids("orders") == [1]
    back()
    source.log += [("orders", 3), ("users", 3)]
    world.read()
    if world.store.backfills.waiting("shop"):
        world.read()
    for name in NAMES:
        assert Counter(world.ids(name)) == Counter(i for n, i in source.log if n == name), name
    source.log += [("orders", 4)]
    world.read()
    assert Counter(world.ids("orders")) == Counter(i for n, i in source.log if n == "orders")


def test_a_stream_that_is_off_keeps_its_state_while_what_is_shared_stays(world: AirbyteWorld) -> None:
    world.streams = [stream(name) for name in NAMES]
    world.read(*records(1, 2), *records(1, 1, "orders"), shared_state(7, BOTH, 3), *DONE)
    world.excluded("orders")
    world.read(shared_state(7, {"users": {"snapshot": "done"}}, 0), status())
    assert world.states == BOTH
    world.read(shared_state(8, {"users": {"snapshot": "done"}}, 0), status())
    assert world.states == {"users": {"snapshot": "done"}}


def test_a_state_that_becomes_null_is_none(world: AirbyteWorld) -> None:
    world.streams = [stream(name) for name in NAMES]
    world.read(*records(1, 1), *records(1, 1, "orders"), shared_state(7, BOTH, 2), *DONE)
    world.failed(*records(2, 2), shared_state(8, {**BOTH, "users": None}, 1), ["exit", 1])
    assert (world.state["shared"], world.states) == ({"lsn": 8}, {"orders": {"snapshot": "done"}})


def test_a_stream_that_a_later_shared_state_leaves_out_keeps_its_state_until_that_is_null(world: AirbyteWorld) -> None:
    """As Airbyte keeps it: connectors send what has changed, and null for what is to begin again."""
    world.streams = [stream(name) for name in NAMES]
    world.read(*records(1, 1), *records(1, 1, "orders"), shared_state(7, BOTH, 2), *DONE)
    world.read(*records(2, 2), shared_state(8, {"users": {"snapshot": "more"}}, 1), *DONE)
    assert world.states == {**BOTH, "users": {"snapshot": "more"}}
    world.read(shared_state(9, {"orders": None}, 0), *DONE)
    assert world.states == {"users": {"snapshot": "more"}}


@pytest.mark.parametrize("first", [True, False], ids=["before it", "behind it"])
def test_a_state_of_one_stream_leaves_what_others_share(world: AirbyteWorld, first: bool) -> None:
    world.streams = [stream(name) for name in NAMES]
    shared, own = shared_state(7, BOTH), state(5, name="orders")
    world.read(*records(1, 1), *records(5, 5, "orders"), *([own, shared] if first else [shared, own]), *DONE)
    world.read(*records(6, 6, "orders"), state(6, name="orders"), *DONE)
    (given,) = world.seen["state"]
    assert given["global"]["shared_state"] == {"lsn": 7}
    assert world.state["shared"] == {"lsn": 7}
    assert world.states == {**BOTH, "orders": {"at": 6}}


def test_streams_whose_whole_state_is_shared_begin_again_together(world: AirbyteWorld) -> None:
    world.streams = [stream(name) for name in NAMES]
    world.read(*records(1, 2), *records(1, 1, "orders"), shared_state(7, {}, 3), *DONE)
    world.read(*records(3, 3), shared_state(8, {}, 1), *DONE)
    assert [one["generation_id"] for one in world.seen["catalog"]["streams"]] == [1, 1], "it goes on"
    world.store.backfills.request("shop", ("", "users"), why="test")
    world.read(*records(1, 3), *records(1, 1, "orders"), shared_state(8, {}, 4), *DONE)
    assert world.seen["state"] is None
    assert not world.store.backfills.waiting("shop")
    world.read(
        *records(1, 4), *records(1, 2, "orders"), shared_state(9, {}, 6), *DONE, tables=frozenset({"users"}), full=True
    )
    assert world.seen["state"] is None
    assert (world.ids(), world.ids("orders")) == ([1, 2, 3, 4], [1])
    assert world.state["shared"] == {"lsn": 8}, "the rows of orders are still to come"


NULLED: list[tuple[str, Callable[[int], Message]]] = [
    ("shared", lambda at: shared_state(at, {"users": {"done": True}})),
    ("its own", lambda at: state(at)),
    ("one text", lambda at: {"type": "STATE", "state": {"type": "LEGACY", "data": None}}),
]


@pytest.mark.parametrize("told", [one[1] for one in NULLED], ids=[one[0] for one in NULLED])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("mode", ["upsert", "append"])
def test_a_whole_read_that_is_over_leaves_no_state_for_the_next(
    world: AirbyteWorld, told: Callable[[int], Message], late: bool, mode: Any
) -> None:
    world.streams = [stream(incremental=False)]
    world.tables["users"] = TableSettings(mode=mode)
    for number in (1, 2):
        end = [status(), told(number)] if late else [told(number), status()]
        world.read(*records(1, 2), *end)
        assert world.states == {}
        given = world.seen["state"] or []
        assert not any(one.get("stream") or one["global"]["stream_states"] for one in given)
    assert world.ids() == ([1, 2] if mode == "upsert" else [1, 1, 2, 2])


@pytest.mark.parametrize("told", ["shared", "own"])
def test_a_read_that_replaces_all_rows_is_given_no_state(world: AirbyteWorld, told: str) -> None:
    world.streams = [stream(name) for name in NAMES]
    saved = [shared_state(7, BOTH)] if told == "shared" else [state(3), state(1, name="orders")]
    world.read(*records(1, 3), *records(1, 1, "orders"), *saved, *DONE)
    world.tables["users"] = TableSettings(mode="full_refresh")
    world.read(*records(2, 4), *saved, *DONE)
    given = world.seen["state"]
    states = given[0]["global"]["stream_states"] if told == "shared" else [one["stream"] for one in given]
    assert [one["stream_descriptor"]["name"] for one in states] == ["orders"]
    assert world.ids() == [2, 3, 4]
    assert set(world.states) == {"orders"}
