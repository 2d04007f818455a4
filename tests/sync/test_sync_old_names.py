"""Old names stay readable in views for the time that the settings give, and no later change breaks a view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.model import TableSettings
from instep.sync.query import ask
from sync_world import MakeWorld, World, preset

DAYS = 30 * 86_400.0
SETUP = (
    "CREATE TABLE t (id int PRIMARY KEY, total int, note varchar(9))",
    "INSERT INTO t VALUES (1, 10, 'x'), (2, NULL, NULL)",
)


def iceberg(world: World) -> None:
    """What a world has anyway."""


def duckdb(world: World) -> None:
    config = DuckDbConfig("warehouse", str(world.folder / "shop.duckdb"))
    destination: Any = DuckDbDestination(config)
    world.destination = destination


@pytest.fixture(params=[duckdb, iceberg], ids=lambda make: make.__name__)
def world(request: pytest.FixtureRequest, make_world: MakeWorld) -> World:
    made = make_world()
    make: Callable[[World], None] = request.param
    make(made)
    made.engine, made.policy = "inline", preset("allow_all", removed="drop")
    made.settings = {name: TableSettings(keep_old_names=DAYS) for name in ("t", "s", "u")}
    made.run(*SETUP)
    made.sync()
    return made


def asked(world: World, sql: str) -> list[tuple[Any, ...]]:
    return ask(world.destination, sql).rows


def alive(world: World) -> dict[str, str]:
    """Old name to the view that shows it, or to why none does."""
    return {n.old: n.shown or n.trouble for n in world.store.old_names.of("shop")}


def test_a_renamed_column_keeps_its_old_name(world: World) -> None:
    world.run("ALTER TABLE t RENAME COLUMN total TO amount")
    [line] = world.preview().old_names
    world.sync()
    assert line.startswith("old name total of shop.t: stays readable in shop.t__compat until 20")
    assert alive(world) == {"total": "shop.t__compat"}
    assert asked(world, "SELECT id, amount, total, note FROM t__compat ORDER BY id") == [
        (1, 10, 10, "x"), (2, None, None, None)]  # fmt: skip
    assert world.events("old_name.kept", "old_name.ended") == ["old_name.kept"]
    world.run("INSERT INTO t VALUES (3, 30, 'z')")
    world.sync()
    assert asked(world, "SELECT total FROM t__compat WHERE id = 3") == [(30,)]
    assert world.events("old_name.kept", "old_name.ended") == ["old_name.kept"]
