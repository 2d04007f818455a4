"""Pauses manually and by changes, and what may end them."""

from __future__ import annotations

import pytest
from control_world import ITEM, ORDER, events, found, recorded

from instep.control.pauses import BREAKING, pause, resume
from instep.control.reviews import answer
from instep.errors import Blocked
from instep.store.store import Store


def test_a_pause_is_made_once_and_ended_once(store: Store) -> None:
    assert pause(store, "shop", "migration")
    assert not pause(store, "shop", "again")
    assert store.pauses.connection("shop").reason == "migration"  # type: ignore[union-attr]
    assert [p.reason for p in resume(store, "shop", "ana")] == ["migration"]
    assert resume(store, "shop", "ana") == []
    assert events(store) == ["connection.paused", "connection.resumed"]


def test_tables_and_connections_are_paused_apart(store: Store) -> None:
    pause(store, "shop", "one", ORDER)
    pause(store, "shop", "two", ITEM)
    pause(store, "shop", "all")
    assert [p.table for p in resume(store, "shop", "ana")] == [None]
    assert [p.table for p in resume(store, "shop", "ana", ORDER)] == [ORDER]
    assert set(store.pauses.tables("shop")) == {ITEM}
    assert store.pauses.active("twin") == []


def test_events_name_table_and_person(store: Store) -> None:
    pause(store, "shop", "later", ORDER)
    resume(store, "shop", "ana", ORDER)
    paused, resumed = (e.event.data() for e in store.events.after(connection="shop"))
    assert (paused["table"], paused["reason"]) == ("public.order", "later")
    assert (resumed["table"], resumed["who"]) == ("public.order", "ana")


REFUSED = [
    ("the connection, stopped by a change", "column.added", "pause_connection", None, True),
    ("the connection, by its own breaking change", "key.changed", "pause_connection", None, True),
    ("the connection, while one table is broken", "key.changed", "pause_table", None, False),
    ("the connection, while something waits", "column.removed", "review", None, False),
    ("the table of a breaking change", "key.removed", "pause_table", ORDER, True),
    ("the table of a breaking change that waits", "cursor.changed", "review", ORDER, True),
    ("the table of a change that policy stops for", "column.added", "pause_table", ORDER, True),
    ("another table", "key.removed", "pause_table", ITEM, False),
    ("the table of a change that merely waits", "column.retyped", "review", ORDER, False),
]


@pytest.mark.parametrize(
    ("kind", "action", "table", "refused"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_what_an_open_change_keeps_paused(
    store: Store, kind: str, action: str, table: tuple[str, str] | None, refused: bool
) -> None:
    [review] = recorded(store, found(kind, action=action))
    pause(store, "shop", "manually", table)
    if not refused:
        assert resume(store, "shop", "ana", table)
        return
    with pytest.raises(Blocked, match=f"change {review.id} is still open") as error:
        resume(store, "shop", "ana", table)
    assert f"instep changes approve {review.id}" in error.value.hint
    assert store.pauses.active("shop")
    assert events(store) == ["connection.paused"]


@pytest.mark.parametrize("status", ["approved", "rejected"])
@pytest.mark.parametrize("kind", BREAKING)
def test_a_decision_lets_it_run_again(store: Store, kind: str, status: str) -> None:
    reviews = recorded(store, found(kind, action="pause_table"))
    store.pauses.pause("shop", "key", change=reviews[0].id, table=ORDER)
    answer(store, reviews, status, "ana")  # type: ignore[arg-type]
    assert [p.change for p in resume(store, "shop", "ana", ORDER)] == [reviews[0].id]


def test_another_connection_s_change_keeps_nothing_paused(store: Store) -> None:
    recorded(store, found("key.changed", action="pause_connection"), connection="twin")
    pause(store, "shop", "manually")
    assert resume(store, "shop", "ana")
