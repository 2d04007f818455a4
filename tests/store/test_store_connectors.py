"""How far connectors got, and what waits for their tables."""

from __future__ import annotations

import pytest

from instep.errors import Fenced
from instep.store.store import Store


def test_a_state_is_saved_by_the_latest_run_or_by_a_person(any_store: Store) -> None:
    states = any_store.connectors
    assert (states.get("c").state, states.get("c").at) == ({}, None)
    states.save("c", {"at": 2}, run="r2", fence=2)
    with pytest.raises(Fenced, match="a later run"):
        states.save("c", {"at": 1}, run="r1", fence=1)
    states.save("c", {"at": 0})
    assert (states.get("c").state, states.get("c").run, states.get("c").fence) == ({"at": 0}, "", 2)
    states.save("c", {"at": 3}, run="r2", fence=2)
    assert states.get("c").state == {"at": 3}
    assert "state=" not in repr(states.get("c"))


def test_a_shape_and_a_state_leave_each_other_alone(any_store: Store) -> None:
    one = any_store.connectors.of("c")
    one.keep_shape({"tables": []})
    one.done({"at": 1}, [], [], "r", 1)
    assert (one.shape(), one.state().state) == ({"tables": []}, {"at": 1})
    one.keep_shape({"tables": [1]})
    one.done(None, [], [], "r", 1)
    assert (one.shape(), one.state().state) == ({"tables": [1]}, {"at": 1})


def test_operations_are_held_in_order_and_let_go_with_the_state(any_store: Store) -> None:
    one = any_store.connectors.of("c")
    one.done({"at": 1}, [(("", "t"), "/a", 3, "k1"), (("s", "u"), "/b", 1, "k2")], [], "r", 1)
    one.done({"at": 2}, [(("", "t"), "/c", 2, "k3")], [], "r", 1)
    held = one.held()
    assert [(h.table, h.place, h.operations) for h in held] == [
        (("", "t"), "/a", 3), (("s", "u"), "/b", 1), (("", "t"), "/c", 2),
    ]  # fmt: skip
    with pytest.raises(Fenced):
        one.done({"at": 0}, [], [h.number for h in held], "old", 0)
    assert len(one.held()) == 3
    one.done({"at": 3}, [], [held[0].number, held[2].number], "r", 1)
    assert [(h.place, h.key) for h in one.held()] == [("/b", "k2")]
    assert "k2" not in repr(one.held())
    assert any_store.connectors.of("other").held() == []
