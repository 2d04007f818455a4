"""A table that was off while rows came of it has all of them once it is on: nothing else brings those from before."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from connector_world import CHECKPOINT, ConnectorWorld, MakeConnector, upserts
from instep.control.reviews import answer
from instep.schema.policy.policy import Policy
from instep.schema.selection.selection import Pattern, Selection
from sync_world import preset

pytestmark = pytest.mark.slow
KEY = [{"table": name, "primary_key": ["id"], "columns": {"id": "LONG"}} for name in ("t", "u")]
AGAIN = "u waits for all of its rows, so the connector sends everything again"
OFF = Selection(exclude_tables=(Pattern("u"),))
Act = Callable[[ConnectorWorld], object]


def exclude(world: ConnectorWorld) -> None:
    world.selection = OFF


def include(world: ConnectorWorld) -> None:
    world.selection = Selection()


def policy(name: str) -> Act:
    def act(world: ConnectorWorld) -> None:
        world.policy = preset(name) if name else Policy()

    return act


def reject(world: ConnectorWorld) -> None:
    policy("approve")(world)
    world.play(CHECKPOINT)
    world.answer("rejected")


def approve(world: ConnectorWorld) -> None:
    found = world.store.reviews.find("shop", ("open", "rejected"))
    answer(world.store, found, "approved", "test")


def waiting(world: ConnectorWorld) -> list[tuple[str, str]]:
    return [b.table for b in world.store.backfills.waiting("shop")]


WAYS = {
    "a pattern": (exclude, include),
    "a preset that lists it off": (policy("block_all"), approve),
    "a rejection": (reject, approve),
}


@pytest.mark.parametrize(("way", "loaded"), [("a pattern", True), *((way, False) for way in WAYS)])
def test_what_came_while_it_was_off(make_connector: MakeConnector, way: str, loaded: bool) -> None:
    off, on = WAYS[way]
    world = make_connector(declared=KEY if loaded else KEY[:1])
    world.play(*upserts("t", {"id": 1}), *upserts("u", *[{"id": 1}] * loaded), CHECKPOINT)
    world.declared = KEY
    off(world)
    world.play(*upserts("u", {"id": 2}), CHECKPOINT)
    on(world)
    world.play(*upserts("u", {"id": 3}), CHECKPOINT)
    assert waiting(world) == [("", "u")]
    assert AGAIN in world.play(CHECKPOINT).notes
    assert world.rows("u", "id") == [(i,) for i in (1, 2, 3) if loaded or i > 1]
    assert (waiting(world), world.play(CHECKPOINT).notes) == ([], ())


def test_a_run_from_the_start_brings_them_at_once(make_connector: MakeConnector) -> None:
    world = make_connector(declared=KEY, selection=OFF)
    world.play(*upserts("t", {"id": 1}), *upserts("u", {"id": 1}), CHECKPOINT)
    include(world)
    world.play(*upserts("u", {"id": 2}), CHECKPOINT, full=True)
    assert (world.rows("u", "id"), waiting(world)) == ([(1,), (2,)], [])


def test_nothing_is_sent_again_for_a_table_that_is_off(make_connector: MakeConnector) -> None:
    world = make_connector(declared=KEY)
    world.play(*upserts("t", {"id": 1}), *upserts("u", {"id": 1}), CHECKPOINT)
    world.store.backfills.request("shop", ("", "u"), why="for a test")
    exclude(world)
    assert (world.play(CHECKPOINT).notes, waiting(world)) == ((), [("", "u")])
    include(world)
    assert AGAIN in world.play(CHECKPOINT).notes
    assert waiting(world) == []
