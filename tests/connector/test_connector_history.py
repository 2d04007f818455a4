"""Versions of a connector's rows, and PostgreSQL as the place that its operations go to."""

from __future__ import annotations

import datetime
from itertools import pairwise
from typing import Any

import pytest

from connector_world import CHECKPOINT, STREAM, ConnectorWorld, MakeConnector, Step, moved, upserts
from instep.sync.operations import set_key

HISTORY = STREAM.model_copy(update={"history": True})
KEY = [{"table": "t", "primary_key": ["id"]}]
BEFORE = [*upserts("t", {"id": 1, "a": "x", "b": 1}, {"id": 2, "a": "other"})]
INTO = ["duckdb", "iceberg", "postgres"]


def versions(world: ConnectorWorld, id: int, table: str = "t") -> list[tuple[Any, ...]]:
    """(a, b, whether it is current) of the versions of a row, the oldest first."""
    names = ("_instep_valid_from", "id", "a", "b", "_instep_current", "_instep_valid_to")
    found = sorted((r for r in world.rows(table, *names, deleted=True) if r[1] == id), key=lambda r: r[0])
    for before, after in pairwise(found):
        assert before[-1] <= after[0]
    assert all(current is (end is None) for *_, current, end in found)
    return [r[2:5] for r in found]


RUNS: list[tuple[str, list[Step], list[tuple[Any, ...]]]] = [
    ("an update is a version with the rest of the row", [["update", "t", {"id": 1, "a": "z"}]],
     [("x", 1, False), ("z", 1, True)]),
    ("one that changes nothing is none", [["update", "t", {"id": 1, "a": "x"}]], [("x", 1, True)]),
    ("several between two checkpoints are one version",
     [["update", "t", {"id": 1, "a": "y"}], ["update", "t", {"id": 1, "b": 2}]],
     [("x", 1, False), ("y", 2, True)]),
    ("an upsert replaces the row", list(upserts("t", {"id": 1, "b": 5})), [("x", 1, False), (None, 5, True)]),
    ("an update to NULL", [["update", "t", {"id": 1, "a": None}]], [("x", 1, False), (None, 1, True)]),
    ("a delete ends the last one", [["delete", "t", {"id": 1}]], [("x", 1, False)]),
    ("and an update after it is nobody's", [["delete", "t", {"id": 1}], ["update", "t", {"id": 1, "a": "z"}]],
     [("x", 1, False)]),
    ("a truncate ends all of them", [["truncate", "t"]], [("x", 1, False)]),
    ("and what comes after it begins another",
     [["truncate", "t"], *upserts("t", {"id": 1, "a": "back"})], [("x", 1, False), ("back", None, True)]),
]  # fmt: skip


def test_what_becomes_of_versions(make_connector: MakeConnector) -> None:
    tables = [f"t{n}" for n in range(len(RUNS))]
    declared = [{"table": table, "primary_key": ["id"]} for table in tables]
    world = make_connector(declared=declared, settings=dict.fromkeys(tables, HISTORY))
    world.play(*(step for table in tables for step in moved(BEFORE, table)), CHECKPOINT)
    pairs = list(zip(tables, RUNS, strict=True))
    assert world.play(*(s for table, (_, steps, _) in pairs for s in moved(steps, table)), CHECKPOINT).status == "done"
    assert {case: versions(world, 1, table) for table, (case, *_) in pairs} == {c: found for c, _, found in RUNS}


@pytest.mark.sampled
@pytest.mark.parametrize("into", INTO)
def test_a_row_that_comes_and_goes(make_connector: MakeConnector, into: str) -> None:
    world = make_connector(into, declared=KEY, settings={"t": HISTORY})
    world.play(*BEFORE, CHECKPOINT)
    for steps in (
        [["update", "t", {"id": 1, "a": "y"}]],
        [["delete", "t", {"id": 1}]],
        [["update", "t", {"id": 1, "a": "nobody's"}]],
        list(upserts("t", {"id": 1, "a": "back"})),
        [["update", "t", {"id": 1, "b": 7}]],
    ):
        assert world.play(*steps, CHECKPOINT).status == "done"
    assert versions(world, 1) == [("x", 1, False), ("y", 1, False), ("back", None, False), ("back", 7, True)]
    assert versions(world, 2) == [("other", None, True)]


def test_operations_into_postgres(make_connector: MakeConnector) -> None:
    world = make_connector("postgres", declared=[*KEY, {"table": "typed", "primary_key": ["k"], "columns": {
        "k": "STRING", "at": "UTC_DATETIME", "day": "NAIVE_DATE", "n": {"type": "DECIMAL", "precision": 9, "scale": 2},
        "raw": "BINARY"}}])  # fmt: skip
    world.play(
        *upserts("t", {"id": 1, "a": "x", "deep": {"x": [1]}}, {"id": 2, "a": "y"}, {"id": 3}),
        *upserts("typed", {"k": "é", "at": "2026-01-31T12:00:00+02:00", "day": "2026-01-31", "n": "1.50",
                           "raw": {"bytes": "00ff"}}),
        *upserts("loose", {"v": 1}, {"v": 1}, {"v": 2.5}),
        CHECKPOINT, ["update", "t", {"id": 1, "a": "z"}], ["update", "t", {"id": 9, "a": "nobody's"}], CHECKPOINT,
        ["delete", "t", {"id": 2}], CHECKPOINT, *upserts("t", {"id": 4, "late": 1}), CHECKPOINT,
    )  # fmt: skip
    assert world.rows("t", "id", "a", "late") == [(1, "z", None), (3, None, None), (4, None, 1)]
    assert world.rows("t", "id", deleted=True) == [(1,), (2,), (3,), (4,)]
    at = datetime.datetime(2026, 1, 31, 10, tzinfo=datetime.UTC)
    ((key, when, *rest),) = world.rows("typed", "k", "at", "day", "raw")
    assert (key, when, rest) == ("é", at, [at.date(), b"\x00\xff"])
    assert [str(n) for (n,) in world.rows("typed", "n")] == ["1.50"]
    assert world.rows("loose", "v") == [(1.0,), (2.5,)]
    world.play(*upserts("t", {"id": 5, "late": "text"}), ["truncate", "typed"], CHECKPOINT)
    assert world.rows("t", "id", "late") == [(1, None), (3, None), (4, "1"), (5, "text")]
    assert (world.rows("typed"), world.state) == ([], {"at": len(world.steps)})


REKEYED = [{"table": "t", "primary_key": ["id", "b"], "columns": {"id": "LONG", "b": "LONG"}}]


@pytest.mark.sampled
@pytest.mark.parametrize("into", ["duckdb", "iceberg"])
def test_another_key_begins_anew_beside_a_copy(make_connector: MakeConnector, into: str) -> None:
    """Until somebody says so its operations wait: by the old key they would be versions of other rows."""
    world = make_connector(into, declared=KEY, settings={"t": HISTORY})
    world.play(*BEFORE, CHECKPOINT, ["update", "t", {"id": 1, "a": "y"}], CHECKPOINT)
    world.declared = REKEYED
    rows: Any = upserts("t", {"id": 1, "b": 1, "a": "one"}, {"id": 1, "b": 2, "a": "two"})
    for step in rows:
        world.play(step, CHECKPOINT)
    world.answer("approved")
    for _ in range(2):
        report = world.play(CHECKPOINT)
        assert world.statuses(report) == {"t": "paused"}
        assert any("its versions have the old one" in t.error for t in report.tables)
    assert versions(world, 1) == [("x", 1, False), ("y", 1, True)]
    made = set_key.prepare(world.context, "t", ["id", "b"], "rebuild")
    _, place = set_key.carry_out(world.context, made)
    assert place is not None
    assert len(world.rows_at(place, "id", deleted=True)) == 3
    world.steps = [*rows, CHECKPOINT]
    report = world.play(["update", "t", {"id": 1, "b": 2, "a": "new"}], CHECKPOINT)
    assert any("sends everything again" in note for note in report.notes)
    assert (world.statuses(report), world.store.backfills.waiting("shop")) == ({"t": "done"}, [])
    current = world.rows("t", "id", "b", "a", "_instep_current", deleted=True)
    assert [row[:3] for row in current if row[3]] == [(1, 1, "one"), (1, 2, "new")]
    assert all(row[0] == 1 for row in current)


@pytest.mark.sampled
@pytest.mark.parametrize("way", ["rebuild", "clear"])
def test_a_key_that_somebody_gives_has_everything_sent_again(make_connector: MakeConnector, way: set_key.Way) -> None:
    world = make_connector(declared=KEY)
    world.play(*BEFORE, CHECKPOINT)
    world.declared = REKEYED
    world.steps = [*upserts("t", {"id": 1, "b": 1, "a": "x"}, {"id": 1, "b": 2, "a": "other"}), CHECKPOINT]
    world.play()
    set_key.carry_out(world.context, set_key.prepare(world.context, "t", ["id", "b"], way), ["t"])
    assert world.play().status == "done"
    assert world.rows("t", "id", "b", "a") == [(1, 1, "x"), (1, 2, "other")]
    assert world.store.backfills.waiting("shop") == []
