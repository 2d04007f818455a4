"""A column that is let in hashed: what was kept of it while it waited is in clear nowhere."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from connector_world import CHECKPOINT, ConnectorWorld, MakeConnector, upserts
from instep.events import SelectionChanged
from instep.schema.selection.overrides import Switch
from instep.schema.selection.selection import Pattern, Selection
from instep.sync.progress import Silent
from instep.sync.run import RunScope, sync
from sync_world import preset

KEY = [{"table": "t", "primary_key": ["id"]}]
CANARY = "canary-hashed-5e2c"
BY_COMMAND = Selection(masked=frozenset({"t.b", "t.n"}))
BY_FILE = Selection(hashed=(Pattern("t.b"), Pattern("t.n")))


def digest(text: str) -> str:
    return sha256(b"salt" + text.encode()).hexdigest()


def in_clear(world: ConnectorWorld) -> list[Path]:
    """Files of the connection with the canary."""
    spool = (world.folder / "spool").rglob("*")
    return [p for p in spool if p.is_file() and CANARY.encode() in p.read_bytes()]


@pytest.fixture(params=["duckdb", "iceberg", "postgres"])
def world(make_connector: MakeConnector, request: pytest.FixtureRequest) -> ConnectorWorld:
    world = make_connector(request.param, declared=KEY)
    world.play(*upserts("t", {"id": 1, "a": "x"}), CHECKPOINT)
    world.policy = preset("approve")
    return world


def rows(*values: tuple[int, Any, Any]) -> list[Any]:
    return [*upserts("t", *({"id": n, "b": b, "n": v} for n, b, v in values)), CHECKPOINT]


@pytest.mark.sampled
@pytest.mark.parametrize("selection", [BY_COMMAND, BY_FILE], ids=["by command", "by file"])
def test_values_beside_the_rows_are_hashed_as_they_become_the_column_s(
    world: ConnectorWorld, selection: Selection
) -> None:
    """As those are that come later, whatever their type."""
    world.play(*rows((1, CANARY, 1.5), (2, None, 2**53 + 1)))
    assert CANARY in str(world.rows("t", "_instep_extra"))
    world.selection = selection
    world.answer("approved", "column.added")
    world.play(*rows((3, CANARY, 1.5), (4, "ü", 7.0)))
    found = world.rows("t", "id", "b", "n", "_instep_extra")
    (_, first, number, _), (_, nothing, big, _), (_, later, same, _), (_, other, _, _) = found
    assert (first, later, other, nothing) == (digest(CANARY), digest(CANARY), digest("ü"), None)
    assert (number == same, len(big)) == (True, 64)
    assert all(extra is None for *_, extra in found)


@pytest.mark.parametrize("selection", [BY_COMMAND, BY_FILE], ids=["by command", "by file"])
@pytest.mark.parametrize(
    "value", ["0f" * 32, digest("a token"), {"sha256": "0f" * 32}], ids=["hex digits", "a hash", "a document"]
)
def test_a_value_that_looks_like_a_hash_is_hashed(
    make_connector: MakeConnector, selection: Selection, value: Any
) -> None:
    """What was kept in clear before the column was hashed, and what came later, whoever asked for the hash."""
    world = make_connector("duckdb", declared=KEY)
    world.play(*upserts("t", {"id": 1, "a": "x"}), CHECKPOINT)
    world.policy = preset("approve")
    world.play(*rows((1, value, 5)))
    world.selection = selection
    world.play(*rows((2, value, 5)))
    world.answer("approved", "column.added")
    world.play(*rows((3, value, 5)))
    found = world.rows("t", "b", "n")
    text = value if isinstance(value, str) else '{"sha256":"' + value["sha256"] + '"}'
    assert found == [(digest(text), digest("5"))] * 3


def test_what_was_kept_as_hashes_stays_so(world: ConnectorWorld) -> None:
    world.selection = BY_FILE
    world.play(*rows((1, CANARY, 5)))
    assert CANARY not in str(world.rows("t", "_instep_extra"))
    world.answer("approved", "column.added")
    world.play(CHECKPOINT)
    assert world.rows("t", "b", "n") == [(digest(CANARY), digest("5"))]


def test_a_column_that_was_hashed_while_it_waited_is_hashed_once(world: ConnectorWorld) -> None:
    """What was kept before is in clear, what was kept after is a hash."""
    world.play(*rows((1, CANARY, 5)))
    world.store.events.add(SelectionChanged("shop", "t.b", "hashed", "ann"))
    world.selection = Selection(masked=frozenset({"t.b"}))
    world.play(*rows((2, CANARY, 5)))
    world.answer("approved", "column.added")
    world.play(*rows((3, CANARY, 5)))
    assert world.rows("t", "b") == [(digest(CANARY),)] * 3


@pytest.mark.sampled
@pytest.mark.parametrize("waits", ["new table", "paused table"])
def test_operations_that_waited_land_hashed_and_leave_no_file(make_connector: MakeConnector, waits: str) -> None:
    world = make_connector(declared=KEY)
    if waits == "paused table":
        world.play(*upserts("t", {"id": 1, "a": "x"}), CHECKPOINT)
        world.store.pauses.pause("shop", "for a test", table=("", "t"))
    else:
        world.play(CHECKPOINT)
        world.declared = []
    world.policy = preset("approve")
    table = "t" if waits == "paused table" else "late"
    world.play(*upserts(table, {"id": 2, "b": CANARY}), CHECKPOINT)
    assert (len(world.store.connectors.pending("shop")), in_clear(world)) == (1, [])
    world.selection = Selection(masked=frozenset({f"{table}.b"}))
    world.answer("approved")
    world.store.pauses.resume("shop", who="test", table=("", "t"))
    assert world.play(CHECKPOINT).status == "done"
    assert (digest(CANARY),) in world.rows(table, "b")
    assert (world.store.connectors.pending("shop"), in_clear(world)) == ([], [])
    assert [p for p in (world.folder / "spool").rglob("*") if p.is_file()] == []


class Once(Silent):
    """Does something before the second group of a run."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act, self.seen = act, 0

    def step(self, text: str) -> None:
        self.seen += text == "waiting for the connector"
        if self.seen == 2:
            self.seen += 1
            self.act()


@pytest.mark.sampled
@pytest.mark.parametrize("approved", [True, False])
def test_a_column_that_is_hashed_while_the_connector_runs(make_connector: MakeConnector, approved: bool) -> None:
    """What is kept of it from then on, and what becomes the column's."""
    world = make_connector(declared=KEY)
    world.play(*upserts("t", {"id": 1, "a": "x"}), CHECKPOINT)
    world.policy, gate = preset("approve"), str(world.folder / "gate")
    world.play(*rows((1, CANARY, 1)))

    def act() -> None:
        if approved:
            world.answer("approved", "column.added")
        world.store.switches.set("shop", [Switch("", "t", "b", enabled=approved or None, hashed=True)], "test")
        Path(gate).touch()

    world.steps += [*rows((2, "two", 1)), ["wait", gate], *rows((3, CANARY, 1))]
    assert sync(world.context, RunScope(), Once(act), world.rows_by).status == "done"
    if approved:
        assert world.rows("t", "id", "b") == [(1, digest(CANARY)), (2, digest("two")), (3, digest(CANARY))]
    else:
        extras = dict(world.rows("t", "id", "_instep_extra"))
        assert (CANARY in str(extras[3]), digest(CANARY) in str(extras[3])) == (False, True)
