"""A table whose rows are gone from the destination is sent again: its next rows are not taken for all of them."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest

from connector_world import CHECKPOINT, ConnectorWorld, MakeConnector, upserts
from instep import crash
from instep.sync.operations import set_key

KEY = [{"table": "t", "primary_key": ["id"], "columns": {"id": "LONG", "part": "LONG"}}]
TWO = [{**KEY[0], "primary_key": ["id", "part"]}]


@pytest.fixture
def world(make_connector: MakeConnector) -> ConnectorWorld:
    world = make_connector(declared=KEY)
    world.play(*upserts("t", {"id": 1, "part": 1}, {"id": 2, "part": 2}), CHECKPOINT)
    return world


def drop(world: ConnectorWorld) -> None:
    with duckdb.connect(str(world.folder / "warehouse.db")) as connection:
        connection.execute("DROP TABLE shop.t")
    world.play(CHECKPOINT)
    world.answer("approved")


def check_all_comes(world: ConnectorWorld) -> None:
    for number in (3, 4):
        report = world.play(*upserts("t", {"id": number, "part": number}), CHECKPOINT)
    assert world.statuses(report) == {"t": "done"}
    assert world.rows("t", "id", "part") == [(n, n) for n in (1, 2, 3, 4)]
    assert world.store.backfills.waiting("shop") == []


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("point", "way", "changed"),
    [
        ("apply.table.after", "rebuild", False),
        ("apply.accepted", "rebuild", False),
        pytest.param("apply.accepted", "clear", True, id="the source has changed it"),
    ],
)
def test_a_key_that_is_given_dies_half_way(
    world: ConnectorWorld, monkeypatch: pytest.MonkeyPatch, point: str, way: set_key.Way, changed: bool
) -> None:
    if changed:
        world.declared = TWO
        world.play(CHECKPOINT)
    monkeypatch.setattr(crash, "_passed", Counter())
    monkeypatch.setenv(crash.VARIABLE, f"{point}=raise")
    with pytest.raises(crash.Crashed):
        set_key.carry_out(world.context, set_key.prepare(world.context, "t", ["id", "part"], way), ["t"])
    monkeypatch.delenv(crash.VARIABLE)
    assert world.store.backfills.waiting("shop") != []
    if point == "apply.accepted" and not changed:  # the accepted key is not the one that is read by
        world.play(*upserts("t", {"id": 3, "part": 3}), CHECKPOINT)
        set_key.carry_out(world.context, set_key.prepare(world.context, "t", ["id", "part"], way), ["t"])
    check_all_comes(world)


def test_somebody_dropped_the_table(world: ConnectorWorld) -> None:
    drop(world)
    check_all_comes(world)


def test_a_table_that_is_not_sent_again_goes_on(world: ConnectorWorld) -> None:
    """What a run from the start has nothing of begins with its next rows."""
    drop(world)
    world.play(*upserts("t", {"id": 3, "part": 3}), CHECKPOINT)
    world.steps = [CHECKPOINT]
    world.play()
    world.play(*upserts("t", {"id": 4, "part": 4}), CHECKPOINT)
    assert (world.rows("t", "id"), world.store.backfills.waiting("shop")) == ([(4,)], [])
