"""Freshness targets: which tables are late, what is told of it once, and what pauses and settings make of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from instep.control import pauses
from instep.control.freshness import FreshnessWatch, freshness_of, note_freshness, summary
from instep.events import FreshnessLate, FreshnessRecovered
from instep.project.load import load
from instep.project.project import Project
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.store.store import Store

ORDER, ITEM = ("public", "order"), ("public", "item")
FILE = """\
sources: {{db: {{type: sqlite, path: x}}}}
destinations: {{lake: {{type: duckdb, path: y}}}}
connections: {{shop: {{{shop}}}}}
"""


def catalog(*refs: tuple[str, str]) -> Catalog:
    return Catalog.of([Table(*ref, (Column("id", parse("int64")),)) for ref in refs])


@dataclass
class Clock:
    at: datetime = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.at

    def pass_by(self, minutes: float) -> None:
        self.at += timedelta(minutes=minutes)


@dataclass
class World:
    folder: Path
    store: Store
    clock: Clock

    def project(self, shop: str = "freshness: 30m") -> Project:
        (self.folder / "instep.yml").write_text(FILE.format(shop=shop))
        return load(self.folder, {})

    def load(self, *tables: tuple[str, str]) -> None:
        self.store.fresh_tables.loaded("shop", tables or (ORDER, ITEM), self.clock())

    def states(self, shop: str = "freshness: 30m") -> dict[str, str]:
        found = freshness_of(self.store, self.project(shop), ["shop"], self.clock(), whole=True)["shop"]
        return {one.table: one.state for one in found.values()}

    def told(self, shop: str = "freshness: 30m") -> list[tuple[str, tuple[str, ...]]]:
        """What a look adds to the events."""
        before = {event.number for event in self.store.events.latest(limit=1000)}
        note_freshness(self.store, self.project(shop), ["shop"], self.clock())
        new = [e.event for e in self.store.events.latest(limit=1000) if e.number not in before]
        return [(e.type, e.tables) for e in new if isinstance(e, FreshnessLate | FreshnessRecovered)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    clock = Clock()
    with Store(f"sqlite:///{tmp_path / 'state.db'}", now=clock) as store:
        store.connections.put("shop", destination="lake")
        store.accepted.add("shop", catalog(ORDER, ITEM), who="ann", why="test")
        yield World(tmp_path, store, clock)


TARGETS = [
    ("none", "tags: []", {}),
    ("of the connection", "freshness: 30m", {"public.order": "late", "public.item": "late"}),
    ("of one table", "tables: {public.order: {freshness: 30m}}", {"public.order": "late"}),
    ("a table without one", "freshness: 30m, tables: {public.item: {freshness: 0}}", {"public.order": "late"}),
    ("a table with a longer one", "freshness: 30m, tables: {'*.item': {freshness: 2h}}",
     {"public.order": "late", "public.item": "on_time"}),
]  # fmt: skip


@pytest.mark.parametrize(("shop", "expected"), [case[1:] for case in TARGETS], ids=[case[0] for case in TARGETS])
def test_targets(world: World, shop: str, expected: dict[str, str]) -> None:
    world.load()
    world.clock.pass_by(31)
    assert world.states(shop) == expected


def test_a_table_that_no_sync_has_loaded_is_not_late(world: World) -> None:
    world.load(ORDER)
    world.clock.pass_by(31)
    assert world.states() == {"public.order": "late", "public.item": "not_loaded"}


def test_a_breach_is_told_once_and_so_is_its_end(world: World) -> None:
    world.load()
    world.clock.pass_by(29)
    assert world.told() == []
    world.clock.pass_by(2)
    assert world.told() == [("freshness.late", ("public.item", "public.order"))]
    world.clock.pass_by(60)
    assert world.told() == []
    world.load(ORDER)
    assert world.told() == [("freshness.recovered", ("public.order",))]
    assert world.store.gauges.now().late == {"shop": 1}
    world.load()
    assert world.told() == [("freshness.recovered", ("public.item",))]
    assert world.told() == []


def test_what_is_paused_is_not_late_and_has_its_whole_target_afterwards(world: World) -> None:
    world.load()
    pauses.pause(world.store, "shop", "works at the source")
    world.clock.pass_by(120)
    assert set(world.states().values()) == {"paused"}
    assert world.told() == []
    pauses.resume(world.store, "shop", "ann")
    world.clock.pass_by(29)
    assert set(world.states().values()) == {"on_time"}
    assert world.told() == []
    world.clock.pass_by(2)
    assert world.told() == [("freshness.late", ("public.item", "public.order"))]


def test_a_pause_ends_a_breach_without_a_word(world: World) -> None:
    world.load()
    world.clock.pass_by(31)
    assert len(world.told()) == 1
    pauses.pause(world.store, "shop", "works at the source", table=ORDER)
    assert world.told() == []
    assert world.states() == {"public.order": "paused", "public.item": "late"}
    pauses.resume(world.store, "shop", "ann", table=ORDER)
    assert world.told() == [], "nothing was loaded: it is not on time again"
    world.clock.pass_by(31)
    assert world.told() == [("freshness.late", ("public.order",))]


def test_a_target_that_is_taken_away_ends_a_breach_without_a_word(world: World) -> None:
    world.load()
    world.clock.pass_by(31)
    assert len(world.told()) == 1
    assert world.told("tags: []") == []
    assert world.store.gauges.now().late == {}


def test_tables_that_have_left_are_forgotten(world: World) -> None:
    world.load()
    world.store.accepted.add("shop", catalog(ORDER), who="ann", why="test")
    world.clock.pass_by(31)
    assert world.told() == [("freshness.late", ("public.order",))]


def test_a_table_that_is_not_read_is_not_late(world: World) -> None:
    shop = "freshness: 30m, exclude: {tables: [public.item]}"
    world.load()
    world.clock.pass_by(31)
    assert len(world.told()) == 1
    assert world.told(shop) == []
    assert world.states(shop) == {"public.order": "late"}
    assert world.store.gauges.now().late == {"shop": 1}


def test_two_workers_tell_it_once(world: World) -> None:
    world.load()
    world.clock.pass_by(31)
    with Store(f"sqlite:///{world.folder / 'state.db'}", now=world.clock) as other:
        for store in (world.store, other):
            note_freshness(store, world.project(), ["shop"], world.clock())
    assert [e.type for e in world.store.events.latest()].count("freshness.late") == 1


def test_a_watch_looks_at_what_has_a_target_once_a_minute(world: World) -> None:
    seconds = [0.0]
    watch = FreshnessWatch(lambda: seconds[0])
    project = world.project()
    watch.follow("shop", project.connection("shop"))
    world.load()
    assert watch.check_next(world.store, project, world.clock()) == []
    world.clock.pass_by(31)
    seconds[0] = 30.0
    watch.check_next(world.store, project, world.clock())
    assert world.store.gauges.now().late == {}
    seconds[0] = 61.0
    watch.check_next(world.store, project, world.clock())
    assert world.store.gauges.now().late == {"shop": 2}
    watch.follow("shop", None)
    world.load()
    seconds[0] = 122.0
    watch.check_next(world.store, project, world.clock())
    assert world.store.gauges.now().late == {"shop": 2}, "nobody watches it"


def test_a_connection_is_as_late_as_its_worst_table(world: World) -> None:
    world.load(ITEM)
    world.clock.pass_by(31)
    world.load(ORDER)
    found = freshness_of(world.store, world.project(), ["shop"], world.clock())["shop"]
    short = summary(found.values())
    assert short is not None
    assert (short.state, short.late, short.since) == ("late", 1, world.clock() - timedelta(minutes=1))
    assert summary([]) is None
