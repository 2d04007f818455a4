"""What a source says about values that it could not read or had to cut is noted in the row, as our own notes are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airbyte_world import INTEGER, TEXT, AirbyteWorld, Line, airbyte_world, record, state, status, stream
from instep.project.sections.tables import TableSettings
from instep.schema.catalog.types import DataType, Json, TimestampTz
from instep.sources.airbyte.columns import packing
from instep.sources.airbyte.stream_rows import noted_changes
from instep.sync.loading.engine import OnSpark
from instep.sync.quarantine.replay import replay
from instep.sync.run import RunScope, sync
from postgres_server import Database
from sync_world import PREFIX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOST, CUT = ("name", "NULLED", "SOURCE_RETRIEVAL_ERROR"), ("name", "TRUNCATED", "SOURCE_FIELD_SIZE_LIMITATION")
Said = tuple[str, str, str]


def noted(*said: Said, **data: Any) -> dict[str, Any]:
    """A record of which the source says this."""
    changes = [dict(zip(("field", "change", "reason"), one, strict=True)) for one in said]
    whole = record(**data)
    whole["record"]["meta"] = {"changes": changes}
    return whole


def note(*said: Said) -> list[dict[str, str]]:
    return [{"field": f, "change": c.lower(), "reason": r, "by": "source"} for f, c, r in said]


def notes(world: AirbyteWorld, name: str = "users", key: str = "id") -> dict[Any, list[dict[str, str]]]:
    """What the rows that have notes say, by their key."""
    rows = world.records(name, key, f"{PREFIX}meta")
    return {row[key]: json.loads(row[f"{PREFIX}meta"])["changes"] for row in rows if f"{PREFIX}meta" in row}


def read(world: AirbyteWorld, *rows: Line, at: int = 9, **wanted: Any) -> None:
    world.read(*rows, state(at, len(rows)), status(), **wanted)


@pytest.mark.parametrize("into", ["duckdb", "iceberg", "delta", "postgres"])
def test_notes_come_and_go_with_their_rows(tmp_path: Path, request: pytest.FixtureRequest, into: str) -> None:
    database: Database | None = request.getfixturevalue("postgres") if into == "postgres" else None
    world = airbyte_world(tmp_path, into=into, database=database)
    read(world, noted(LOST, id=1, name=None), noted(CUT, id=2, name="abc"), record(id=3), record(id=4, name="d"))
    assert notes(world) == {1: note(LOST), 2: note(CUT)}
    assert "_airbyte_meta" not in world.schema("users")
    read(world, record(id=1, name="a"), noted(LOST, id=3), noted(CUT, id=4, name="d"), at=10)
    assert notes(world) == {2: note(CUT), 3: note(LOST), 4: note(CUT)}
    assert world.records("users", "id", "name") == [
        {"id": 1, "name": "a"}, {"id": 2, "name": "abc"}, {"id": 3}, {"id": 4, "name": "d"},
    ]  # fmt: skip
    read(world, noted(LOST, id=2), record(id=4, name="d"), full=True)
    assert notes(world) == {2: note(LOST), 3: note(LOST)}
    world.close()


@pytest.mark.slow
def test_notes_come_through_spark_as_they_do_without(world: AirbyteWorld, spark_session: SparkSession) -> None:
    world.lines = [noted(LOST, id=1, name=None), record(id=2), state(1, 2), status()]
    assert sync(world.context, RunScope(), engine=OnSpark(lambda: spark_session)).status == "done"
    assert notes(world) == {1: note(LOST)}


WAYS: list[tuple[str, TableSettings, dict[str, Any]]] = [
    ("by key", TableSettings(), {}),
    ("as a whole", TableSettings(mode="full_refresh"), {}),
    ("appended", TableSettings(mode="append"), {}),
    ("without a key", TableSettings(), {"key": ()}),
    ("without a key, as a whole", TableSettings(), {"key": (), "incremental": False}),
]


@pytest.mark.parametrize(("settings", "given"), [way[1:] for way in WAYS], ids=[way[0] for way in WAYS])
def test_notes_of_every_way_to_read(world: AirbyteWorld, settings: TableSettings, given: dict[str, Any]) -> None:
    world.streams, world.tables["users"] = [stream(name=TEXT, **given)], settings
    read(world, record(id=1, name="a"), noted(LOST, id=2), record(id=3, name="c"))
    assert notes(world) == {2: note(LOST)}


NESTED = {"type": "object", "properties": {"city": TEXT, "zip": INTEGER}}
FIELDS: list[tuple[str, Sequence[Said], Sequence[Said]]] = [
    ("several columns", [LOST, ("id", "TRUNCATED", "x")], [LOST, ("id", "TRUNCATED", "x")]),
    ("twice", [LOST, CUT], [LOST, CUT]),
    ("a column that the table does not have", [("colour", "NULLED", "x")], []),
    ("inside of JSON", [("tags.first", "NULLED", "x")], [("tags", "NULLED", "x")]),
    ("a column of an object", [("address.city", "NULLED", "x")], [("address_city", "NULLED", "x")]),
    ("an object that is taken apart", [("address", "NULLED", "x")],
     [("address_city", "NULLED", "x"), ("address_zip", "NULLED", "x")]),
]  # fmt: skip


@pytest.mark.parametrize(("said", "expected"), [case[1:] for case in FIELDS], ids=[case[0] for case in FIELDS])
def test_a_note_names_the_columns_of_the_table(
    world: AirbyteWorld, said: Sequence[Said], expected: Sequence[Said]
) -> None:
    world.flatten = ("users",)
    world.streams = [stream(name=TEXT, address=NESTED, tags={"type": "array"})]
    read(world, record(id=1, name="a", tags=[1], address={"city": "Oslo", "zip": 1}), noted(*said, id=2))
    assert notes(world) == ({2: note(*expected)} if expected else {})


META: list[tuple[Any, list[dict[str, str]]]] = [
    (None, []), ("x", []), ([], []), ({}, []), ({"changes": None}, []), ({"changes": {}}, []), ({"changes": [1]}, []),
    ({"changes": [{"change": "NULLED"}]}, []), ({"changes": [{"field": 1}]}, []),
    ({"changes": [{"field": "a"}]}, [{"field": "a", "change": "nulled", "reason": ""}]),
    ({"changes": [{"field": "a", "change": "TRUNCATED", "reason": "y" * 900}]},
     [{"field": "a", "change": "truncated", "reason": "y" * 200}]),
]  # fmt: skip


@pytest.mark.parametrize(("meta", "expected"), META)
def test_only_changes_that_name_a_field_are_noted(meta: Any, expected: list[dict[str, str]]) -> None:
    assert noted_changes(meta) == expected


def test_a_column_that_was_renamed_is_noted_by_its_name_at_the_destination(world: AirbyteWorld) -> None:
    world.streams = [stream(name=TEXT, _instep_id=TEXT)]
    read(world, noted(LOST, ("_instep_id", "NULLED", "x"), id=1), record(id=2, _instep_id="a"))
    (found,) = notes(world).values()
    assert [one["field"] for one in found] == ["name", world.accepted("users").by_name["src__instep_id"].alias]


def test_a_value_in_quarantine_does_not_take_the_place_of_one_that_the_source_has_left_out(
    world: AirbyteWorld,
) -> None:
    world.streams = [stream(age=INTEGER)]
    read(world, record(id=1, age="n/a"), record(id=2, age="n/a"))
    assert {at: [one.get("by") for one in found] for at, found in notes(world).items()} == {1: [None], 2: [None]}
    read(world, noted(("age", "NULLED", "SOURCE_SERIALIZATION_ERROR"), id=1), record(id=3, age=7), at=10)
    world.answer("approved", "column.retyped")
    world.read(state(11, 0), status())
    replay(world.context)
    assert world.records("users", "id", "age") == [{"id": 1}, {"id": 2, "age": "n/a"}, {"id": 3, "age": "7"}]
    assert notes(world) == {1: note(("age", "NULLED", "SOURCE_SERIALIZATION_ERROR"))}


def test_our_note_and_that_of_the_source_stand_side_by_side(world: AirbyteWorld) -> None:
    world.streams = [stream(age=INTEGER, name=TEXT)]
    read(world, noted(CUT, id=1, age="n/a", name="abc"), record(id=2, age=2))
    (found,) = notes(world).values()
    assert [(one["field"], one["change"], one.get("by")) for one in found] == [
        ("age", "nulled", None), ("name", "truncated", "source"),
    ]  # fmt: skip


def test_notes_of_rows_that_wait_are_kept(world: AirbyteWorld) -> None:
    read(world, record(id=1, name="a"))
    world.store.pauses.pause("shop", "for a test", table=("", "users"))
    read(world, noted(LOST, id=1), at=10)
    assert notes(world) == {}
    world.store.pauses.resume("shop", who="test", table=("", "users"))
    world.read(state(11, 0), status())
    assert notes(world) == {1: note(LOST)}


def test_a_record_cannot_bring_notes_as_a_column(world: AirbyteWorld) -> None:
    assert "a property that cannot be a column" in world.failed(record(id=1, __notes="[]"), status())


MIXED = [
    (TimestampTz(), ["2020-01-01T10:00:00", "2020-01-01T10:00:00Z", None, "2020-01-01T12:00:00+02:00"], 0),
    (TimestampTz(), ["2020-01-01T10:00:00", "2020-01-01"], 0),
    (TimestampTz(), ["2020-01-01T10:00:00", "tomorrow"], 1),
    (Json(), [{"a": "NaN"}, [1, None], "Infinity", 1, True, None], 0),
    (Json(), [{"a": float("nan")}, {"a": 1.5}], 1),
]


@pytest.mark.parametrize(("kind", "values", "unfit"), MIXED)
def test_a_column_is_the_same_at_once_and_value_by_value(kind: DataType, values: list[Any], unfit: int) -> None:
    plan = packing(kind)
    at_once, one_by_one = plan.pack(values), replace(plan, plain=frozenset()).pack(values)
    assert at_once is not None
    assert one_by_one is not None
    assert at_once.unfit == one_by_one.unfit == unfit
    assert at_once.kinds == one_by_one.kinds
    pieces = zip(at_once.pieces, one_by_one.pieces, strict=False)
    assert all(bytes(a) == bytes(b) for a, b in pieces)
