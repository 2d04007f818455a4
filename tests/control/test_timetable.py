"""Schedules follow what a server keeps: each writing is heard of, and nothing else is looked at again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instep.control.resources.resources import Resources
from instep.control.schedules import Timetable, fire
from instep.project.load import load
from instep.project.project import Project
from instep.project.served import served
from instep.store.engine.keyring import Keyring, new_key, parse
from instep.store.store import Store

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
FILE = """\
sources: {till: {type: sqlite, path: till.db}}
destinations: {lake: {type: duckdb, path: lake.duckdb}}
connections: {mine: {source: till, schedule: {sync: every 1h}}}
shelves: [.]
"""


class World:
    def __init__(self, folder: Path, store: Store) -> None:
        self.folder, self.store, self.timetable = folder, store, Timetable()
        (folder / "instep.yml").write_text(FILE)
        self.read()

    def read(self) -> None:
        self.project: Project = served(load(self.folder, {}), self.store.objects, lambda *_: "")

    def put(self, kind: Any, name: str, **spec: Any) -> None:
        Resources(self.project, self.store).put(kind, name, spec, who="eve")

    def follow(self) -> list[str]:
        return self.timetable.follow(self.store, self.project, NOW)

    @property
    def specs(self) -> dict[str, str]:
        assert self.follow() == []
        return {f"{s.connection} {s.kind}": s.spec for s in self.store.schedules.all()}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with Store(f"sqlite:///{tmp_path / 'state.db'}", keys=Keyring(parse(new_key("k"), ""))) as store:
        yield World(tmp_path, store)


MINE = {"mine sync": "every 3600", "mine detect": "every 3600"}


def test_connections_come_change_and_go(world: World) -> None:
    assert world.specs == MINE
    world.put("source", "pos", type="sqlite", path="pos.db")
    world.put("connection", "theirs", source="pos", destination="lake", schedule={"sync": "every 15m"})
    assert world.specs == {**MINE, "theirs sync": "every 900", "theirs detect": "every 3600"}
    world.put("connection", "theirs", source="pos", destination="lake", schedule={"detect": "every 30m"})
    assert world.specs == {**MINE, "theirs detect": "every 1800"}
    Resources(world.project, world.store).delete("connection", "theirs")
    assert world.specs == MINE


def test_settings_of_a_source_are_those_of_its_connections(world: World) -> None:
    world.put("source", "pos", type="sqlite", path="pos.db")
    world.put("connection", "theirs", source="pos", destination="lake")
    assert world.specs["theirs detect"] == "every 3600"
    world.put("source", "pos", type="sqlite", path="pos.db", app_options={"enable": True, "frequency": 1800})
    assert world.specs["theirs detect"] == "every 1800"
    world.put("source", "pos", type="sqlite", path="pos.db", app_options={"enable": False})
    assert world.specs == MINE


def test_only_what_was_written_is_looked_at_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put("source", "pos", type="sqlite", path="pos.db")
    for name in ("a", "b", "c"):
        world.put("connection", name, source="pos", destination="lake")
    assert len(world.specs) == 5
    looked: list[str] = []
    of = type(world.project).of
    monkeypatch.setattr(type(world.project), "of", lambda self, name: (looked.append(name), of(self, name))[1])
    assert world.follow() == []
    assert looked == []
    world.put("connection", "b", source="pos", destination="lake", schedule={"sync": "every 1h"})
    assert world.follow() == []
    assert set(looked) == {"b"}


def test_a_file_that_takes_away_what_a_connection_of_the_server_uses(world: World) -> None:
    world.put("connection", "theirs", source="till", destination="lake")
    assert "theirs detect" in world.specs
    (world.folder / "instep.yml").write_text(FILE.replace("till", "other"))
    world.read()
    assert world.follow() == ["connection theirs: there is no source 'till', which it uses"]
    assert {s.connection for s in world.store.schedules.all()} == {"mine"}


# what stands when the clock comes to it, how many jobs `fire` makes, what waits then
DUE: list[tuple[str, timedelta, int, list[str]]] = [
    ("nothing is due yet", timedelta(0), 0, []),
    ("an hour is over", timedelta(hours=1), 2, ["detect", "sync"]),
    ("a day was missed: once", timedelta(days=1), 2, ["detect", "sync"]),
]


@pytest.mark.parametrize(("name", "later", "count", "waits"), DUE, ids=[name for name, *_ in DUE])
def test_what_is_due_comes_once(world: World, name: str, later: timedelta, count: int, waits: list[str]) -> None:
    assert world.specs == MINE
    now = NOW + later
    assert fire(world.store, now) == count
    assert sorted(job.kind for job in world.store.jobs.unfinished(["mine"])) == waits
    assert all(one.next_due is not None and one.next_due > now for one in world.store.schedules.all())
    assert fire(world.store, now) == 0, "not a second time"
    assert fire(world.store, now + timedelta(hours=1)) == (2 if not waits else 0), "what waits already is not doubled"
    assert sorted(job.kind for job in world.store.jobs.unfinished(["mine"])) == (waits or ["detect", "sync"])


def test_a_detector_that_switched_itself_off_is_passed_over_until_it_is_on(world: World) -> None:
    assert world.specs == MINE
    world.store.detectors.disable("mine", "a column was deleted")
    now = NOW + timedelta(hours=1)
    assert fire(world.store, now) == 1
    assert [job.kind for job in world.store.jobs.unfinished(["mine"])] == ["sync"]
    assert world.store.schedules.due(now) == [], "it does not come back at every look"
    world.store.detectors.enable("mine")
    assert fire(world.store, now + timedelta(hours=1)) == 1
    assert sorted(job.kind for job in world.store.jobs.unfinished(["mine"])) == ["detect", "sync"]


@given(st.lists(st.integers(60, 400_000), min_size=1, max_size=6), st.integers(1, 3))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_however_the_clock_goes_nothing_is_doubled_or_forgotten(world: World, steps: list[int], limit: int) -> None:
    store, now, world.timetable = world.store, NOW, Timetable()
    store.schedules.drop((one.connection, one.kind) for one in store.schedules.all())
    assert world.specs == MINE
    for step in steps:
        now += timedelta(seconds=step)
        due, made = len(store.schedules.due(now)), 0
        while store.schedules.due(now):
            made += fire(store, now, limit)
        assert made == due, "each that was due came, once"
        while job := store.jobs.claim("w"):
            store.jobs.finish(job)
        assert all(now < (one.next_due or now) <= now + timedelta(hours=1) for one in store.schedules.all())
