"""Random histories of four streams against a model: read in every mode, broken off anywhere, sent again, with states of
their own or a shared one. Behind each read that ends well, the destination has the rows of the model."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from airbyte_world import TEXT, AirbyteWorld, Line, Message, record, shared_state, state, status, stream
from instep.errors import InstepError
from instep.project.sections.tables import TableSettings

DELETED = "_ab_cdc_deleted_at"
NAMES = ("keyed", "each", "whole", "added")
"""Keyed rows with deletes, records without a key, a full refresh, and `mode: append` of a stream that has a key."""


@dataclass
class Source:
    """`log` are all records of the incremental streams so far, `rows` those that `whole` has now."""

    rng: random.Random
    shared: bool
    log: dict[str, list[Message]] = field(default_factory=lambda: {name: [] for name in NAMES})
    rows: dict[int, str] = field(default_factory=dict)

    def streams(self) -> list[Message]:
        deleted = {DELETED: TEXT}
        return [
            stream("keyed", name=TEXT, **deleted),
            stream("each", key=(), name=TEXT),
            stream("whole", incremental=False, name=TEXT),
            stream("added", name=TEXT),
        ]

    def grow(self) -> None:
        for _ in range(self.rng.randrange(1, 9)):
            for name in ("keyed", "each", "added"):
                row: Message = {"id": self.rng.randrange(6), "name": f"n{self.rng.randrange(1000)}"}
                if name == "keyed" and self.rng.random() < 0.3:
                    row[DELETED] = "2026-01-01T00:00:00Z"
                self.log[name].append(row)
            self.rows[self.rng.randrange(6)] = f"n{self.rng.randrange(1000)}"
            if self.rows and self.rng.random() < 0.2:
                self.rows.pop(self.rng.choice(list(self.rows)))

    def lines(self, at: dict[str, int]) -> list[Line]:
        """What the connector sends from these places on."""
        todo: list[list[Line]] = []
        for name in ("keyed", "each", "added"):
            first = at.get(name, 0)
            part: list[Line] = []
            while first < len(self.log[name]):
                last = min(first + self.rng.randrange(1, 5), len(self.log[name]))
                part += [record(name, **row) for row in self.log[name][first:last]]
                part.append(("at", name, last, last - first))  # type: ignore[arg-type]
                first = last
            todo.append([*part, status(name=name)])
        todo.append([*(record("whole", id=i, name=n) for i, n in self.rows.items()), status(name="whole")])
        found, places, since = list[Line](), dict(at), 0
        while todo := [part for part in todo if part]:
            line: Any = self.rng.choice(todo).pop(0)
            if not isinstance(line, tuple):
                since += line.get("type") == "RECORD"
                found.append(line)
                continue
            _, name, last, count = line
            places[name] = last
            if not self.shared:
                found.append(state(last, count, name))
            elif self.rng.random() < 0.6:
                found.append(shared_state(since, {n: {"at": a} for n, a in places.items()}, since))
                since = 0
        return found

    def expected(self) -> dict[str, Counter[tuple[Any, ...]]]:
        keyed: dict[int, Any] = {}
        for row in self.log["keyed"]:
            keyed[row["id"]] = None if row.get(DELETED) else row["name"]
        rows = {name: Counter((row["id"], row["name"]) for row in self.log[name]) for name in ("each", "added")}
        rows["keyed"] = Counter((i, name) for i, name in keyed.items() if name is not None)
        rows["whole"] = Counter(self.rows.items())
        return rows


def broken(rng: random.Random, lines: Sequence[Line]) -> list[Line]:
    """The same, but broken off, with a stream that ends badly, or with text where none belongs."""
    cut = rng.randrange(len(lines) + 1)
    match rng.randrange(4):
        case 0:
            return [*lines[:cut], ["kill"]]
        case 1:
            return [*lines[:cut], ["exit", 1]]
        case 2:
            name = rng.choice(NAMES)
            return [status("INCOMPLETE", name) if line == status(name=name) else line for line in lines]
        case _:
            return [*lines[:cut], '{"type":"RECORD","record":{"stream":"keyed","da']


def places(world: AirbyteWorld) -> dict[str, int]:
    return {name: one["at"] for name, one in world.states.items() if one and "at" in one}


def there(world: AirbyteWorld) -> dict[str, Counter[tuple[Any, ...]]]:
    return {name: Counter((r["id"], r["name"]) for r in world.records(name, "id", "name")) for name in NAMES}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True], ids=["a state each", "a shared state"])
@pytest.mark.parametrize("seed", range(6))
def test_the_destination_is_as_the_model(world: AirbyteWorld, seed: int, shared: bool) -> None:
    rng = random.Random(1000 * shared + seed)
    source = Source(rng, shared)
    world.streams = source.streams()
    world.tables = {"added": TableSettings(mode="append")}
    for _ in range(5):
        source.grow()
        before = there(world) if world.state else None
        if rng.random() < 0.5:
            with suppress(InstepError):
                world.read(*broken(rng, source.lines(places(world))))
            if before is not None:
                assert there(world)["whole"] in (before["whole"], source.expected()["whole"])
        if rng.random() < 0.25 and shared == (world.state.get("type") == "GLOBAL"):
            name = rng.choice(NAMES)
            again = {n: 0 if n == name else at for n, at in places(world).items()}
            lines = source.lines(again)
            if not shared:
                lines = [line for line in lines if name in str(line)]
            world.read(*lines, tables=frozenset({name}), full=True)
        report = world.read(*source.lines(places(world)))
        assert report.status == "done", [t.error for t in report.tables]
        assert there(world) == source.expected()
