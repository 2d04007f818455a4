"""What becomes of tables and columns as a connector's records and declarations change (one row of docs each)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from connector_world import AGAIN, CHECKPOINT, ConnectorWorld, MakeConnector, Step, upserts
from instep.control.reviews import answer
from instep.errors import InstepError, ReadError
from instep.sync.progress import Silent
from instep.sync.quarantine.replay import replay
from instep.sync.run import RunScope, sync
from sync_world import preset

KEY = [{"table": "t", "primary_key": ["id"]}]


def typed(**columns: Any) -> list[dict[str, Any]]:
    return [{"table": "t", "primary_key": ["id"], "columns": {"id": "LONG", **columns}}]


@pytest.fixture
def world(make_connector: MakeConnector) -> ConnectorWorld:
    world = make_connector(declared=KEY)
    world.play(*upserts("t", {"id": 1, "a": "x"}), CHECKPOINT)
    return world


def test_a_new_table_is_made_once_rows_of_it_come(world: ConnectorWorld) -> None:
    world.play(*upserts("t", {"id": 2}), CHECKPOINT, *upserts("later", {"v": 1}), CHECKPOINT)
    assert world.tables() == {"t": "t", "later": "later"}
    assert {r.kind for r in world.store.reviews.find("shop", ())} == {"table.added"}
    assert world.rows("later", "v") == [(1,)]


def test_a_table_that_is_not_sent_any_more_stays(world: ConnectorWorld) -> None:
    world.declared = []
    for _ in range(3):
        assert world.play(CHECKPOINT).status == "done"
    assert world.rows("t") == [(1, "x")]
    assert not world.accepted("t").retained


def test_a_declaration_without_rows_that_is_dropped_is_a_removed_table(make_connector: MakeConnector) -> None:
    world = make_connector(declared=[*KEY, {"table": "empty", "columns": {"v": "LONG"}}])
    world.play(*upserts("t", {"id": 1}), CHECKPOINT)
    assert world.tables() == {"t": "t", "empty": "empty"}
    world.declared = KEY
    world.play(CHECKPOINT)
    assert world.tables() == {"t": "t", "empty": "empty"}
    world.play(CHECKPOINT)
    assert world.tables() == {"t": "t", "empty": "empty~"}


def test_a_renamed_table_is_a_new_one(world: ConnectorWorld) -> None:
    world.declared = [{"table": "u", "primary_key": ["id"]}]
    world.play(*upserts("u", {"id": 1, "a": "y"}), CHECKPOINT)
    assert (world.rows("t"), world.rows("u")) == ([(1, "x")], [(1, "y")])


def test_a_new_column_is_made_with_its_first_value(world: ConnectorWorld) -> None:
    world.play(*upserts("t", {"id": 2, "b": None}), CHECKPOINT)
    assert world.schema("t") == "id int64!, a string"
    world.play(*upserts("t", {"id": 3, "b": 1}), CHECKPOINT)
    assert world.schema("t") == "id int64!, a string, b int64"
    assert world.rows("t") == [(1, "x", None), (2, None, None), (3, None, 1)]


def test_a_column_that_is_not_sent_any_more_stays_and_is_null_in_new_rows(world: ConnectorWorld) -> None:
    world.play(*upserts("t", {"id": 2}), CHECKPOINT)
    assert world.rows("t") == [(1, "x"), (2, None)]
    assert world.reviews() == {}


def test_a_renamed_column_is_a_new_one(world: ConnectorWorld) -> None:
    world.play(*upserts("t", {"id": 2, "b": "y"}), CHECKPOINT)
    assert world.rows("t") == [(1, "x", None), (2, None, "y")]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("first", "then", "kind", "values"),
    [
        (1, "text", "string", ["1", "text"]),
        (1, 2**70, "decimal(38,0)", [1, 2**70]),
        (True, "yes", "string", ["true", "yes"]),
        (1.5, 2, "float64", [1.5, 2.0]),
        ("text", 2, "string", ["2", "text"]),
        ({"a": 1}, "text", "string", ["text", '{"a":1}']),
    ],
)
def test_an_inferred_type_becomes_wider(
    make_connector: MakeConnector, first: Any, then: Any, kind: str, values: list[Any]
) -> None:
    world = make_connector(declared=KEY)
    world.play(*upserts("t", {"id": 1, "v": first}), CHECKPOINT)
    assert world.play(*upserts("t", {"id": 2, "v": then}), CHECKPOINT).status == "done"
    assert world.schema("t") == f"id int64!, v {kind}"
    assert sorted(str(v).replace(" ", "") for (v,) in world.rows("t", "v")) == [str(v) for v in values]


def test_a_declared_type_becomes_wider_and_never_narrower(make_connector: MakeConnector) -> None:
    world = make_connector(declared=typed(v="INT"))
    world.play(*upserts("t", {"id": 1, "v": 1}), CHECKPOINT)
    assert world.schema("t") == "id int64!, v int32"
    world.declared = typed(v="LONG")
    world.play(*upserts("t", {"id": 2, "v": 2**40}), CHECKPOINT)
    assert world.schema("t") == "id int64!, v int64"
    world.declared = typed(v="INT")
    world.play(*upserts("t", {"id": 3, "v": 3}), CHECKPOINT)
    assert world.schema("t") == "id int64!, v int64"
    assert world.rows("t", "v") == [(1,), (2**40,), (3,)]


def test_a_value_that_does_not_match_its_declaration_ends_the_sync(make_connector: MakeConnector) -> None:
    world = make_connector(declared=typed(v="LONG"))
    with pytest.raises(ReadError, match=r"table t.*column v|v.*seven"):
        world.play(*upserts("t", {"id": 1, "v": 1}), CHECKPOINT, *upserts("t", {"id": 2, "v": "seven"}), CHECKPOINT)
    assert world.rows("t", "v") == [(1,)]
    assert world.state == {"at": 2}


def test_a_key_that_changes_needs_a_decision_and_all_rows_again(world: ConnectorWorld) -> None:
    world.declared = [{"table": "t", "primary_key": ["id", "part"], "columns": {"id": "LONG", "part": "LONG"}}]
    report = world.play(*upserts("t", {"id": 1, "part": 1, "a": "x"}), CHECKPOINT)
    assert world.statuses(report) == {"t": "paused"}
    assert world.rows("t", "id") == [(1,)]
    world.answer("approved")
    world.steps = [*upserts("t", {"id": 1, "part": 1, "a": "x"}, {"id": 1, "part": 2, "a": "y"}), CHECKPOINT]
    assert world.statuses(world.play(CHECKPOINT)) == {"t": "paused"}
    assert world.rows("t", "id") == [(1,)]
    for _ in range(2):
        assert world.statuses(world.play()) == {"t": "done"}
    assert world.rows("t", "id", "part", "a") == [(1, 1, "x"), (1, 2, "y")]
    assert world.store.backfills.waiting("shop") == []


def test_a_key_that_comes_and_goes_again_is_told_of_until_all_rows_have_come(make_connector: MakeConnector) -> None:
    """What waited for a decision about the key is taken by its content, as the rows of before are not."""
    keyless = [{"table": "t", "columns": {"id": "LONG"}}]
    world = make_connector(declared=keyless)
    world.play(*upserts("t", {"id": 1, "a": "x"}), CHECKPOINT)
    world.declared = KEY
    assert world.statuses(world.play(*upserts("t", {"id": 2, "a": "y"}), CHECKPOINT)) == {"t": "paused"}
    world.declared = keyless
    report = world.play(*upserts("t", {"id": 2, "a": "y"}), CHECKPOINT)
    assert world.statuses(report) == {"t": "done"}
    [told] = [note for note in report.notes if "may differ until the next sync" in note]
    assert told.startswith("t may differ")
    assert told.endswith("was missing and is back")
    assert world.play(CHECKPOINT).notes == (AGAIN,)
    assert world.rows("t", "id", "a") == [(1, "x"), (2, "y")]
    assert world.play(CHECKPOINT).notes == ()


@pytest.mark.sampled
@pytest.mark.parametrize(
    "last", [[CHECKPOINT], [*upserts("other", *({"id": n} for n in range(4)))]], ids=["checkpoint", "rows"]
)
def test_a_table_of_which_nothing_comes_again_is_built_anew_empty(world: ConnectorWorld, last: list[Any]) -> None:
    world.declared = [{"table": "t", "primary_key": ["id", "part"], "columns": {"id": "LONG", "part": "LONG"}}]
    world.play(CHECKPOINT)
    world.answer("approved")
    world.play(CHECKPOINT)
    world.steps = last
    assert world.statuses(world.play())["t"] == "done"
    assert (world.rows("t"), world.store.backfills.waiting("shop")) == ([], [])
    state = world.state
    world.play(*upserts("t", {"id": 1, "part": 1, "a": "x"}), CHECKPOINT)
    assert (world.rows("t", "id", "part", "a"), state != world.state) == ([(1, 1, "x")], True)
    assert not any("sends everything again" in note for note in world.play(CHECKPOINT).notes)


class InMidRun(Silent):
    """Does something once before the second group, then lets the connector go on behind its `wait`."""

    def __init__(self, act: Callable[[], object], gate: Path) -> None:
        self.act, self.gate, self.groups = act, gate, 0

    def step(self, text: str) -> None:
        self.groups += text == "waiting for the connector"
        if self.groups == 2 and not self.gate.exists():
            self.act()
            self.gate.touch()


def row(part: int) -> Step:
    return ["upsert", "t", {"id": 1, "part": part, "a": "y"}]


REST: dict[str, list[Step]] = {
    "nothing": [],
    "a checkpoint": [CHECKPOINT],
    "another table": [*upserts("other", {"id": 1}), CHECKPOINT],
    "more of it": [row(2), CHECKPOINT],
}


@pytest.fixture
def approved(world: ConnectorWorld) -> ConnectorWorld:
    """The table waits to be built anew, with another key."""
    rekey(world)
    world.answer("approved")
    world.play(CHECKPOINT)
    return world


def rekey(world: ConnectorWorld) -> None:
    world.declared = [{"table": "t", "primary_key": ["id", "part"], "columns": {"id": "LONG", "part": "LONG"}}]
    world.play(CHECKPOINT)


def in_mid_run(world: ConnectorWorld, act: Callable[[], object], rest: list[Step], **wanted: Any) -> None:
    """A row of the table, then the act, then the rest."""
    gate = world.folder / "gate"
    world.steps = [row(1), CHECKPOINT, ["wait", str(gate)], *rest]
    sync(world.context, RunScope(**wanted), InMidRun(act, gate), world.rows_by)


def check_all_is_there_later(world: ConnectorWorld) -> None:
    for _ in range(2):
        world.play(CHECKPOINT)
    sent = [(1, step[2]["part"]) for step in world.steps if step[:2] == ["upsert", "t"]]
    assert (world.rows("t", "id", "part"), world.store.backfills.waiting("shop")) == (sent, [])


@pytest.mark.sampled
@pytest.mark.parametrize("rest", REST.values(), ids=REST)
def test_a_table_approved_in_mid_run_keeps_its_rows_until_all_come(world: ConnectorWorld, rest: list[Step]) -> None:
    """What came of it before was left: neither nothing nor the rest alone takes the place of its rows."""
    rekey(world)
    in_mid_run(world, lambda: world.answer("approved"), rest, full=True, tables=frozenset({"t"}))
    assert world.rows("t", "id", "a") == [(1, "x")]
    check_all_is_there_later(world)


@pytest.mark.sampled
@pytest.mark.parametrize("rest", REST.values(), ids=REST)
def test_a_table_resumed_in_mid_run_keeps_its_rows_until_all_come(approved: ConnectorWorld, rest: list[Step]) -> None:
    pauses = approved.store.pauses
    pauses.pause("shop", "for a test", table=("", "t"))
    in_mid_run(approved, lambda: pauses.resume("shop", who="test", table=("", "t")), rest)
    assert approved.rows("t", "id", "a") == [(1, "x")]
    check_all_is_there_later(approved)


def test_a_table_paused_while_it_is_built_anew_is_sent_again(approved: ConnectorWorld) -> None:
    pauses = approved.store.pauses
    in_mid_run(approved, lambda: pauses.pause("shop", "for a test", table=("", "t")), REST["more of it"])
    assert approved.rows("t", "id", "part") == [(1, 1)]
    pauses.resume("shop", who="test", table=("", "t"))
    check_all_is_there_later(approved)


def test_a_table_alone_whose_connector_failed_is_sent_again(approved: ConnectorWorld) -> None:
    approved.steps = [row(1), CHECKPOINT, ["fail", "no more"]]
    with pytest.raises(ReadError, match="no more"):
        approved.play(full=True, tables=frozenset({"t"}))
    approved.steps[2:] = [row(2), CHECKPOINT]
    check_all_is_there_later(approved)


def test_a_composite_key(make_connector: MakeConnector) -> None:
    world = make_connector(declared=[{"table": "t", "primary_key": ["b", "a"]}])
    world.play(*upserts("t", {"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 1, "b": "x", "v": 2}), CHECKPOINT)
    assert world.rows("t", "a", "b", "v") == [(1, "x", 2), (1, "y", None)]
    world.play(["delete", "t", {"b": "y", "a": 1}], CHECKPOINT)
    assert world.rows("t", "a", "b", "v") == [(1, "x", 2)]


def test_records_without_a_key_have_one_row_each(make_connector: MakeConnector) -> None:
    world = make_connector()
    world.play(*upserts("t", {"a": 1, "b": "x"}, {"b": "x", "a": 1}), CHECKPOINT, *upserts("t", {"a": 1}), CHECKPOINT)
    world.play(*upserts("t", {"a": 1, "b": "x", "c": None}, {"a": 1, "c": 5}), CHECKPOINT)
    assert world.rows("t", "a", "b", "c") == [(1, "x", None), (1, None, 5), (1, None, None)]
    ids = [i for (i,) in world.rows("t", "_instep_id")]
    assert len(set(ids)) == 3
    assert {len(i) for i in ids} == {64}
    assert world.schema("t").startswith("_instep_id string!")


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["block_all", "approve"])
def test_values_of_a_column_that_is_not_let_in_are_kept(make_connector: MakeConnector, name: str) -> None:
    world = make_connector(declared=KEY)
    world.play(*upserts("t", {"id": 1, "a": "x"}), CHECKPOINT)
    world.policy = preset(name)
    world.play(*upserts("t", {"id": 1, "a": "y", "b": 5}, {"id": 2, "b": 6}), CHECKPOINT)
    world.play(["update", "t", {"id": 2, "a": "z"}], ["update", "t", {"id": 1, "b": 7}], CHECKPOINT)
    assert world.schema("t") == "id int64!, a string"
    assert world.rows("t", "id", "a", "_instep_extra") == [(1, "y", '{"b":7}'), (2, "z", '{"b":6}')]
    if name == "approve":
        world.answer("approved", "column.added")
    else:
        world.policy = preset("allow_all")
        world.play(["update", "t", {"id": 1, "b": 8}], CHECKPOINT)
        assert world.rows("t", "id", "a", "_instep_extra") == [(1, "y", '{"b":8}'), (2, "z", '{"b":6}')]
        world.switch_on("t", "b")
    world.play(CHECKPOINT)
    assert world.rows("t", "id", "a", "b") == [(1, "y", 7 if name == "approve" else 8), (2, "z", 6)]


def test_operations_on_a_table_in_review_wait_for_the_answer(world: ConnectorWorld) -> None:
    world.policy = preset("approve")
    world.play(*upserts("new", {"v": 1}), *upserts("t", {"id": 2}), CHECKPOINT)
    world.play(*upserts("new", {"v": 2}), CHECKPOINT)
    assert world.tables() == {"t": "t"}
    assert world.rows("t", "id") == [(1,), (2,)]
    world.answer("approved", "table.added")
    world.play(*upserts("new", {"v": 3}), CHECKPOINT)
    assert world.rows("new", "v") == [(1,), (2,), (3,)]
    assert world.store.connectors.pending("shop") == []


def test_rows_of_a_table_that_is_off_are_sent_again_by_a_full_sync(world: ConnectorWorld) -> None:
    world.policy = preset("block_all")
    report = world.play(*upserts("new", {"v": 1}), CHECKPOINT)
    assert any("sent again once it is selected" in note for note in report.notes)
    world.policy = preset("allow_all")
    world.play(full=True)
    assert world.tables() == {"t": "t"}, "what was listed off stays off under any later policy"
    world.switch_on("new")
    world.play(full=True)
    assert world.rows("new", "v") == [(1,)]


def test_operations_on_a_paused_table_wait_until_it_goes_on(world: ConnectorWorld) -> None:
    world.store.pauses.pause("shop", "for a test", table=("", "t"))
    report = world.play(*upserts("t", {"id": 2, "a": "y"}), CHECKPOINT, ["delete", "t", {"id": 1}], CHECKPOINT)
    assert world.statuses(report) == {"t": "paused"}
    assert (world.rows("t"), world.state) == ([(1, "x")], {"at": 6})
    assert world.events("table.failed") == []
    world.store.pauses.resume("shop", who="test", table=("", "t"))
    world.play(["update", "t", {"id": 2, "a": "z"}], CHECKPOINT)
    assert world.rows("t") == [(2, "z")]


def test_one_table_is_sent_again(world: ConnectorWorld) -> None:
    world.play(*upserts("other", {"v": 1}), CHECKPOINT)
    state = world.state
    report = world.play(full=True, tables=frozenset({"t"}))
    assert world.statuses(report) == {"t": "done"}
    assert world.state == state
    with pytest.raises(InstepError, match="syncs all of its tables together"):
        world.play(tables=frozenset({"t"}))


def test_an_approved_column_comes_whatever_else_comes_beside_it(world: ConnectorWorld) -> None:
    world.policy = preset("block_all")
    world.play(*upserts("t", {"id": 2, "late": "x"}), CHECKPOINT)
    answer(world.store, world.store.reviews.find("shop", ("open",)), "approved", "test")
    world.play(*upserts("t", {"id": 3, "late": "y", "later": 1}), CHECKPOINT)
    assert sorted(world.reviews().values()) == ["ignore"]
    assert world.rows("t", "id", "late") == [(1, None), (2, "x"), (3, "y")]
    answer(world.store, world.store.reviews.find("shop", ("open",)), "approved", "test")
    world.play(CHECKPOINT)
    assert world.rows("t", "id", "late", "later") == [(1, None, None), (2, "x", None), (3, "y", 1)]


SENT = {
    "whole": 7, "large": 10**25, "float": 1.5, "boolean": True, "text": "text", "digits": "12", "hex": "\\x6869",
    "bytes": {"bytes": "6869"}, "object": {"a": [1]}, "list": [1, "x"],
}  # fmt: skip
ROUNDED = {("whole", "float"), ("float", "large")}
"""Whose type is another one if they come in one segment, and text if they come one after the other."""


def test_values_beside_those_of_another_type_are_what_they_are_alone(make_connector: MakeConnector) -> None:
    """In the same segment, while the type that holds both waits, and after it was approved."""
    pairs = {f"{a}_{b}": (SENT[a], SENT[b]) for a, b in permutations(SENT, 2) if (a, b) not in ROUNDED}
    world, fresh = make_connector(declared=KEY), make_connector(declared=KEY)
    first, other = ({"id": n, **{c: both[n - 1] for c, both in pairs.items()}} for n in (1, 2))
    world.play(*upserts("t", first), CHECKPOINT)
    before = world.records("t", *pairs)
    world.policy = preset("approve")
    world.play(*upserts("t", {**first, "id": 3}, other), CHECKPOINT, *upserts("t", {**other, "id": 4}), CHECKPOINT)
    world.play(*upserts("t", {**other, "id": 5}), CHECKPOINT)
    assert [row for row in world.records("t", *pairs) if len(row) == len(pairs)] == before * 2
    answer(world.store, world.store.reviews.find("shop", ("open",)), "approved", "test")
    world.play(CHECKPOINT)
    replay(world.context)
    fresh.play(*upserts("t", first, {**first, "id": 3}, other), CHECKPOINT)
    found = world.records("t", "id", *pairs)
    assert [row for row in found if row["id"] < 4] == fresh.records("t", "id", *pairs)
    assert [row | {"id": 2} for row in found if row["id"] > 3] == [row for row in found if row["id"] == 2] * 2
    apart = make_connector(declared=KEY)
    apart.play(*upserts("t", first), CHECKPOINT, *upserts("t", {**first, "id": 3}), CHECKPOINT)
    apart.play(*upserts("t", other), CHECKPOINT)
    apart.play(*upserts("t", {**other, "id": 4}), CHECKPOINT)
    others = [row for row in apart.records("t", "id", *pairs) if row["id"] in (2, 4)]
    assert [row | {"id": 2} for row in others] == [
        row for row in fresh.records("t", "id", *pairs) if row["id"] == 2
    ] * 2
