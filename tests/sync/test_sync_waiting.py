"""What is let in and not applied yet is told as waiting, not as ignored."""

from __future__ import annotations

from typing import Any

import pytest

from instep.events import ChangeWaiting
from sync_world import MakeWorld, World, preset

TABLE = "CREATE TABLE t (id int PRIMARY KEY, a int, b int)"


def told(world: World) -> list[tuple[str, Any]]:
    """What was said about changes after the first run: type, and (seen, of) of those that wait."""
    events = [e.event for e in world.store.events.after(0, connection="shop")]
    last = max((i for i, e in enumerate(events) if e.type == "run.ended"), default=0)
    changes = [e for e in events[last:] if e.type.startswith("change.")]
    return [(e.type, (e.seen, e.of) if isinstance(e, ChangeWaiting) else None) for e in changes]


CASES = [
    ("no proof: twice", "sqlite", "propagate_all", [("change.detected", None), ("change.waiting", (1, 2))]),
    ("proven: at once", "postgres", "propagate_all", [("change.detected", None)]),
    ("left out", "sqlite", "block_all", [("change.detected", None), ("change.waiting", (1, 2))]),
]


@pytest.mark.parametrize(("kind", "policy", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_removal_that_is_not_believed_yet(
    make_world: MakeWorld, kind: str, policy: str, expected: list[tuple[str, Any]]
) -> None:
    world = make_world(kind)
    world.run(TABLE)
    world.evolve()
    world.policy = preset(policy)
    world.run("ALTER TABLE t DROP COLUMN a")
    world.detect()
    assert told(world) == expected
    world.evolve(world.detect())
    assert [kind for kind, _ in told(world)] == []
    assert world.events("change.waiting", "change.ignored") == [k for k, _ in expected if k != "change.detected"]
    assert world.events("change.applied")[-1:] == ["change.applied"]


def test_what_waits_for_a_key_says_so(make_world: MakeWorld) -> None:
    world = make_world("postgres")
    world.run(TABLE)
    world.evolve()
    world.run("ALTER TABLE t DROP COLUMN id")
    world.detect()
    [waiting] = [e for e in world.store.events.after(0, connection="shop") if e.type == "change.waiting"]
    assert (waiting.data["seen"], waiting.data["of"]) == (0, 0)
    assert waiting.data["why"] == "waits for key.removed"


def test_what_policy_leaves_out_is_ignored(make_world: MakeWorld) -> None:
    world = make_world("sqlite")
    world.run(TABLE)
    world.evolve()
    world.policy = preset("block_all")
    world.run("ALTER TABLE t ADD COLUMN c int")
    world.detect()
    assert told(world)[-1] == ("change.ignored", None)
