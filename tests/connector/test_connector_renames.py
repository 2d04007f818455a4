"""Columns that a connector has renamed: the question, what its rows say, and what an answer does."""

from __future__ import annotations

from typing import Any

import pytest

from connector_world import CHECKPOINT, ConnectorWorld, MakeConnector, Step, moved, upserts
from instep.errors import Blocked
from instep.sources.connector.seen import SeenTables
from instep.sync.schema_changes import declare_column_rename as mapping
from sync_world import preset

ROWS = 30


def declared(**columns: str) -> list[dict[str, Any]]:
    return [{"table": "t", "primary_key": ["id"], "columns": {"id": "LONG", **columns}}]


def rows(column: str, first: int = 0, other: str = "") -> list[Step]:
    """Rows with values of their own in a column; `other` text makes them others."""
    return list(upserts("t", *({"id": n, "n": n % 7, column: f"text {other}{n}"} for n in range(first, first + ROWS))))


@pytest.fixture
def world(make_connector: MakeConnector) -> ConnectorWorld:
    world = make_connector(declared=declared())
    world.play(*rows("mail"), CHECKPOINT)
    return world


def proposals(world: ConnectorWorld) -> list[str]:
    found = world.store.reviews.find("shop", ("open",))
    return [f"{r.evidence['line']}" for r in found if r.rule == "rename proposal"]


def map_it(world: ConnectorWorld, old: str = "t.mail", new: str = "t.address") -> None:
    mapping.carry_out(world.context, mapping.prepare(world.context, old, new))


ASKED: list[tuple[str, list[Step], bool]] = [
    ("in one sync", rows("address"), True),
    ("later than the old one stopped", [*upserts("t", {"id": 500, "n": 1}), CHECKPOINT, *rows("address")], True),
    ("other values", rows("address", other="of another "), False),
    ("no row of which is known", rows("address", first=ROWS), False),
    ("by updates, which need not have the old one", [["update", *rest] for _, *rest in rows("address")], False),
    ("beside the old one", [*rows("address"), *upserts("t", {"id": 99, "mail": "text"})], False),
    ("of another type", [*upserts("t", *({"id": n, "n": 1, "address": n} for n in range(ROWS)))], False),
]


def test_a_column_that_begins_where_another_has_stopped(make_connector: MakeConnector) -> None:
    tables = {f"t{n}": case for n, case in enumerate(ASKED)}
    world = make_connector(declared=[{"table": table, "primary_key": ["id"]} for table in tables])
    world.play(*(step for table in tables for step in moved(rows("mail"), table)), CHECKPOINT)
    for table, (_, steps, _) in tables.items():
        world.steps += [*moved(steps, table), CHECKPOINT]
    assert world.play().status == "done"
    found = {r.table[1]: r for r in world.store.reviews.find("shop", ("open",)) if r.rule == "rename proposal"}
    assert {case: table in found for table, (case, *_) in tables.items()} == {case: asked for case, _, asked in ASKED}
    for review in found.values():
        assert review.evidence["line"].startswith("mail -> address: ")
        assert "30 of 30 sampled rows have the same value" in review.evidence["line"]
    assert not any(world.accepted(table).by_name["mail"].retained for table in tables)


def test_it_is_asked_as_long_as_the_old_one_is_silent(world: ConnectorWorld) -> None:
    world.play(*rows("address"), CHECKPOINT)
    before = proposals(world)
    world.play(*rows("address", first=ROWS), CHECKPOINT)
    world.play(CHECKPOINT)
    world.detect()
    assert proposals(world) == before != []
    world.play(*upserts("t", {"id": 1, "mail": "again"}), CHECKPOINT)
    assert proposals(world) == []


@pytest.mark.sampled
@pytest.mark.parametrize("later", [False, True])
def test_a_declaration_that_is_renamed(make_connector: MakeConnector, later: bool) -> None:
    """Also where the new declaration comes before the first rows with it."""
    world = make_connector(declared=declared(n="LONG", mail="STRING"))
    world.play(*rows("mail"), CHECKPOINT)
    world.declared = declared(n="LONG", address="STRING")
    if later:
        world.play(CHECKPOINT)
    world.play(*rows("address"), CHECKPOINT)
    assert [line.split(":")[0] for line in proposals(world)] == ["mail -> address"]
    map_it(world)
    assert world.play(CHECKPOINT, full=True).status == "done"
    assert world.schema("t").startswith("id int64!, n int64, address string")
    assert [v for (v,) in world.rows("t", "address")] == sorted(
        (f"text {n}" for n in range(ROWS)), key=lambda v: repr((v,))
    )


def test_the_mapped_column_keeps_its_values(world: ConnectorWorld) -> None:
    world.play(*rows("address", other="new "), CHECKPOINT)
    world.play(*upserts("t", {"id": 99, "n": 1, "address": "last"}), CHECKPOINT)
    with pytest.raises(Blocked, match="still at the source"):
        map_it(world, "t.n")
    map_it(world)
    assert world.schema("t") == "id int64!, n int64, address string, address__v1 string~"
    world.steps = [*rows("address", other="again "), CHECKPOINT]
    report = world.play()
    assert (report.status, proposals(world), world.reviews("open")) == ("done", [], {})
    assert [c.name for c in world.accepted("t").live] == ["id", "n", "address"]
    assert ("text again 3",) in world.rows("t", "address")
    world.play(*upserts("t", {"id": 3, "n": 3, "mail": "back"}), CHECKPOINT)
    assert world.schema("t").endswith(", mail string")


@pytest.mark.sampled
@pytest.mark.parametrize("together", [True, False])
def test_rows_that_came_under_the_new_name_are_sent_again(world: ConnectorWorld, together: bool) -> None:
    """By a plain next sync, once."""
    if together:
        world.play(*rows("address"), CHECKPOINT)
    else:
        world.play(*upserts("t", {"id": 1, "n": 1, "address": "text 1"}), CHECKPOINT)
    map_it(world)
    assert (None,) in world.rows("t", "address")
    world.steps = [*rows("address"), CHECKPOINT]
    report = world.play()
    assert any("t waits for all of its rows" in note for note in report.notes)
    assert {v for (v,) in world.rows("t", "address")} == {f"text {n}" for n in range(ROWS)}
    assert world.store.backfills.waiting("shop") == []
    assert not any("waits for all" in note for note in world.play(CHECKPOINT).notes)


@pytest.mark.sampled
@pytest.mark.parametrize("prepared", [False, True])
def test_nothing_is_mapped_while_operations_wait_that_have_the_old_name(world: ConnectorWorld, prepared: bool) -> None:
    """Also where they came after somebody had looked at the plan."""
    later = list(upserts("t", {"id": 99, "n": 1, "mail": "text 99"}))
    if prepared:
        world.play(*upserts("t", {"id": 0, "n": 0, "address": "text 0"}), CHECKPOINT)
        plan = mapping.prepare(world.context, "t.mail", "t.address")
    world.store.pauses.pause("shop", "for a test", table=("", "t"))
    world.play(*later, CHECKPOINT)
    world.play(*rows("address", first=ROWS), CHECKPOINT)
    with pytest.raises(Blocked, match=r"operations on t wait that may have values of mail") as error:
        mapping.carry_out(world.context, plan) if prepared else map_it(world)
    assert "resume the table first" in error.value.hint
    assert (world.store.mappings.waiting("shop"), world.tables()) == ([], {"t": "t"})
    world.store.pauses.resume("shop", who="test", table=("", "t"))
    world.play(CHECKPOINT)
    map_it(world)
    assert ("text 99",) in world.rows("t", "address")


def test_a_mapping_that_was_interrupted_is_finished_by_the_next_run(world: ConnectorWorld) -> None:
    world.play(*rows("address"), CHECKPOINT)
    world.store.mappings.request("shop", ("", "t"), "mail", "address", "test")
    world.context.source.forget(("", "t"), "mail")  # type: ignore[attr-defined]
    world.play(*upserts("t", {"id": 99, "n": 1, "address": "last"}), CHECKPOINT)
    assert [c.name for c in world.accepted("t").live] == ["id", "n", "address"]
    assert world.reviews("open") == {}


def test_what_is_still_declared_cannot_be_mapped(make_connector: MakeConnector) -> None:
    world = make_connector(declared=declared(mail="STRING"))
    world.play(*rows("mail"), CHECKPOINT)
    world.play(*rows("address"), CHECKPOINT)
    assert proposals(world) == []
    with pytest.raises(Blocked, match="still at the source") as error:
        map_it(world)
    assert "schema() declares it" in error.value.hint


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["approve", "block_all"])
def test_where_a_new_column_would_wait_the_question_does(world: ConnectorWorld, name: str) -> None:
    world.policy = preset(name)
    world.play(*rows("address"), CHECKPOINT)
    assert len(proposals(world)) == 1
    world.play(CHECKPOINT)
    assert len(proposals(world)) == 1
    map_it(world)
    world.play(*rows("address", other="new "), CHECKPOINT)
    assert world.schema("t") == "id int64!, n int64, address string"
    assert ("text new 3",) in world.rows("t", "address")


def test_a_shape_from_before_silence_was_known() -> None:
    old = {"tables": [{"schema": "", "name": "t", "key": ["id"], "declared": True, "sent": True,
                       "columns": [["id", "int64", True], ["a", "string", False]]}]}  # fmt: skip
    seen = SeenTables.from_dict(old)
    assert seen.stale_columns == {}
    assert SeenTables.from_dict(seen.to_dict()) == seen
