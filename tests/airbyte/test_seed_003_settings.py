"""Each change of a connector's catalog under each of four settings, as docs/reference/airbyte-changes.md shows it."""

from __future__ import annotations

import json

import pytest
from seed_003 import CHANGES, LOADED, ORDERS, SETTINGS, USERS, Change, Outcome, page, page_file

from airbyte_world import INTEGER, TEXT, AirbyteWorld, record, state, status, stream
from instep.errors import Blocked
from instep.project.sections.tables import TableSettings
from instep.schema.policy.presets import preset_named
from sync_world import preset

CASES = [(change, number) for change in CHANGES for number in range(len(SETTINGS))]


def loaded(world: AirbyteWorld, word: str, **modifiers: str) -> AirbyteWorld:
    world.policy = preset(preset_named(word), **modifiers)
    world.streams = [stream(**USERS), ORDERS]
    world.read(*LOADED)
    return world


def outcome(world: AirbyteWorld) -> Outcome:
    names = [column.name for column in world.accepted("users").columns]
    columns = [name for name in names if name != "_instep_id"]
    rows = ("|".join("-" if v is None else str(v) for v in row) for row in world.rows("users", *columns))
    catalog = world.store.accepted.catalog("shop")
    return Outcome(
        ", ".join(names),
        "; ".join(row.replace("|", " ") for row in rows),
        ", ".join(sorted(table.name for table in catalog.tables)),
        tuple(sorted(s for s, action in world.reviews().items() if action != "ignore")),
        "" in world.pauses(),
    )


@pytest.mark.sampled
@pytest.mark.parametrize(("change", "number"), CASES, ids=[f"{c.title}-{SETTINGS[n]}" for c, n in CASES])
def test_each_row_under_each_setting(world: AirbyteWorld, change: Change, number: int) -> None:
    expected = change.outcomes[number]
    loaded(world, SETTINGS[number])
    world.streams = change.streams
    for _ in range(2):
        if expected.paused:
            with pytest.raises(Blocked, match="pause"):
                world.read(*change.lines)
        else:
            assert world.read(*change.lines).status == "done"
    assert outcome(world) == expected
    assert world.ids("orders") == [1], "the rows of a stream that is gone stay"
    if "bags" in expected.tables:
        assert world.ids("bags") == [1, 2]


@pytest.mark.parametrize("word", SETTINGS[:2])
def test_a_new_column_is_filled_by_reading_its_stream_again(world: AirbyteWorld, word: str) -> None:
    loaded(world, word, backfill="column")
    world.streams = [stream(**USERS, city=TEXT), ORDERS]
    rows = [record(id=i, name=f"n{i}", age=i * 10, city=f"c{i}") for i in (1, 2)]
    end = [state(9, 2), status(), state(1, 0, "orders"), status(name="orders")]
    given = []
    for _ in range(2):
        world.read(*rows, *end)
        given.append([one["stream"]["stream_descriptor"]["name"] for one in world.seen["state"]])
    assert ["orders"] in given, "users is read from its start, orders is not"
    assert [row["city"] for row in world.records("users", "city")] == ["c1", "c2"]


def test_a_value_that_does_not_fit_is_noted_in_its_row(world: AirbyteWorld) -> None:
    change = next(one for one in CHANGES if "does not take" in one.title)
    loaded(world, SETTINGS[0])
    world.streams = change.streams
    world.read(*change.lines)
    (noted,) = [note for row, note in world.rows("users", "id", "_instep_meta") if row == 2]
    assert "age" in json.dumps(noted, default=str)


@pytest.mark.parametrize("word", SETTINGS)
def test_a_cursor_that_is_gone_pauses_the_connection(world: AirbyteWorld, word: str) -> None:
    own = {"source_defined_cursor": False}
    world.policy = preset(preset_named(word))
    world.tables["users"] = TableSettings(cursor="at")
    world.streams = [stream(**USERS, at=INTEGER) | own, ORDERS]
    world.read(*LOADED)
    world.streams = [stream(**USERS) | own, ORDERS]
    for _ in range(2):
        with pytest.raises(Blocked, match="pause"):
            world.read(*CHANGES[0].lines)
    assert "cursor of users removed (was at)" in world.reviews()
    assert world.ids() == [1, 2]


def test_the_page_shows_the_cases() -> None:
    assert page_file().read_text() == page(), "run python tests/airbyte/seed_003.py"
