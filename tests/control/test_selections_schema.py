"""A schema that was rejected and a table of it that is switched on: the table comes in alone, and is listed so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from selection_desk import Desk, desk

from instep.control.reviews import answer
from instep.schema.policy.presets import PRESETS

__all__ = ["desk"]
APART = ["allow_all", "allow_columns", "block_all", "propagate_all", "propagate_columns", "approve"]
"""The presets that do not pause the connection."""


def says(desk: Desk, kind: str, status: str, table: str = "") -> None:
    """Answer the standing addition of that kind."""
    with desk.app() as app:
        found = [r for r in app.store.reviews.existing("shop").values() if r.kind == kind]
        answer(app.store, [r for r in found if not table or r.table[1] == table], status, "ann")  # type: ignore[arg-type]


def on(desk: Desk) -> dict[str, bool]:
    """Table to whether the selection lists it as read, with its schema."""
    main = desk.tree()["schemas"]["main"]
    return {name: main["enabled"] and table["enabled"] for name, table in main["tables"].items()}


def comes(desk: Desk, *tables: str) -> None:
    """Before the next sync, after it and after one more these tables are listed as read, and these are read."""
    every = {name: name in tables for name in ("table_1", "table_2")}
    assert on(desk) == every
    desk.detect(apply=False)
    assert on(desk) == every
    for _ in range(2):
        desk.detect()
        assert on(desk) == every
        assert set(desk.reads()) == set(tables)


@pytest.fixture
def seen(desk: Desk) -> Callable[[str], Desk]:
    """Two tables that a first detection has seen under this preset."""

    def made(preset: str) -> Desk:
        desk.write(preset)
        desk.sql("create table table_2 (id integer primary key, a text)")
        desk.detect(apply=False)
        return desk

    return made


@pytest.mark.sampled
@pytest.mark.parametrize("preset", APART)
def test_a_rejected_schema_stays_out_with_its_tables(seen: Callable[[str], Desk], preset: str) -> None:
    desk = seen(preset)
    says(desk, "schema.added", "rejected")
    assert desk.why("main") == "off: rejected by ann"
    assert desk.why("main.table_1") == "off: schema 'main' is not accepted"
    comes(desk)


@pytest.mark.sampled
@pytest.mark.parametrize("rejected_first", [True, False])
@pytest.mark.parametrize("preset", PRESETS)
def test_a_table_that_is_switched_on_comes_in_alone(
    seen: Callable[[str], Desk], preset: str, rejected_first: bool
) -> None:
    desk = seen(preset)
    if rejected_first:
        says(desk, "schema.added", "rejected")
    [step] = desk.switch("on", "main.table_2")
    if not rejected_first:
        says(desk, "schema.added", "rejected")
    assert step.lines == ("it gets its first load at the next sync",)
    comes(desk, "table_2")


@pytest.mark.sampled
@pytest.mark.parametrize("later", APART)
def test_its_siblings_stay_out_under_any_later_policy(seen: Callable[[str], Desk], later: str) -> None:
    desk = seen("allow_all")
    says(desk, "schema.added", "rejected")
    desk.switch("on", "main.table_2")
    desk.detect()
    desk.write(later)
    comes(desk, "table_2")
    desk.switch("on", "main.table_1")
    comes(desk, "table_1", "table_2")


def test_an_approved_table_comes_with_it(seen: Callable[[str], Desk]) -> None:
    desk = seen("approve")
    says(desk, "schema.added", "rejected")
    says(desk, "table.added", "approved", "table_1")
    assert on(desk) == {"table_1": False, "table_2": False}
    desk.switch("on", "main.table_2")
    comes(desk, "table_1", "table_2")


@pytest.mark.sampled
@pytest.mark.parametrize("preset", APART)
def test_a_table_that_is_rejected_after_it_was_switched_on_stays_out(seen: Callable[[str], Desk], preset: str) -> None:
    """The later word counts; switched on again, it comes in."""
    desk = seen(preset)
    desk.switch("on", "main.table_2")
    says(desk, "table.added", "rejected", "table_2")
    assert desk.why("main.table_2") == "off: rejected by ann"
    says(desk, "schema.added", "rejected")
    comes(desk)
    desk.switch("off", "main.table_2")
    desk.switch("on", "main.table_2")
    comes(desk, "table_2")


@pytest.mark.sampled
@pytest.mark.parametrize("preset", APART)
def test_a_schema_that_is_switched_on_comes_in_as_a_whole(seen: Callable[[str], Desk], preset: str) -> None:
    desk = seen(preset)
    says(desk, "schema.added", "rejected")
    desk.switch("on", "main")
    comes(desk, "table_1", "table_2")


@pytest.mark.sampled
@pytest.mark.parametrize("preset", APART)
def test_a_table_that_is_switched_off_again_leaves_the_schema_rejected(
    seen: Callable[[str], Desk], preset: str
) -> None:
    """What was listed with it as switched off stays so when the schema is approved after all."""
    desk = seen(preset)
    says(desk, "schema.added", "rejected")
    desk.switch("on", "main.table_2")
    desk.detect(apply=False)
    desk.switch("off", "main.table_2")
    comes(desk)
    says(desk, "schema.added", "approved")
    comes(desk)
