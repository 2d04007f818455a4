"""A table of the destination that cannot be written while its schema is changed: it fails alone, and is tried again."""

from __future__ import annotations

from typing import Any

import pytest

from instep.errors import DestinationError
from sync_world import MakeWorld, World

SETUP = (
    "CREATE TABLE t (id int PRIMARY KEY, a int)",
    "CREATE TABLE u (id int PRIMARY KEY)",
    "INSERT INTO t VALUES (1, 1)",
    "INSERT INTO u VALUES (1)",
)
CHANGES = [
    ("column added", ("ALTER TABLE t ADD COLUMN b int", "UPDATE t SET a = 2")),
    ("column renamed", ("ALTER TABLE t RENAME COLUMN a TO b", "INSERT INTO t VALUES (2, 2)")),
    ("column widened", ("ALTER TABLE t ALTER COLUMN a TYPE bigint", "UPDATE t SET a = 5000000000")),
    ("table renamed", ("ALTER TABLE t RENAME TO t2", "INSERT INTO t2 VALUES (2, 2)")),
    ("table added", ("CREATE TABLE t2 (id int PRIMARY KEY)", "INSERT INTO t2 VALUES (2)")),
]


def broken(world: World, monkeypatch: pytest.MonkeyPatch, *names: str, what: str = "execute") -> None:
    """Let the destination fail to change these tables, until it is undone."""
    facet = type(world.destination.write if what == "claim" else world.destination.schema)
    real = getattr(facet, what)

    def failing(self: Any, ref: tuple[str, str], *rest: Any) -> Any:
        if ref[1] in names:
            raise DestinationError(f"{ref[1]} cannot be written: the disk has holes", hint="mend it, then sync again")
        return real(self, ref, *rest)

    monkeypatch.setattr(facet, what, failing)


@pytest.mark.sampled
@pytest.mark.parametrize("what", ["execute", "claim"])
@pytest.mark.parametrize("statements", [c[1] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_the_others_go_on(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, statements: tuple[str, ...], what: str
) -> None:
    world = make_world()
    world.run(*SETUP)
    world.sync()
    world.run(*statements, "INSERT INTO u VALUES (2)", "ALTER TABLE u ADD COLUMN c int")
    with monkeypatch.context() as patched:
        broken(world, patched, "t", "t2", what=what)
        for _ in range(2):
            report = world.sync()
            statuses = world.statuses(report)
            assert (report.status, statuses.pop("u")) == ("partial", "done")
            assert "failed" in statuses.values()
            assert {"the disk has holes" in t.error for t in report.tables if t.status == "failed"} == {True}
            assert world.rows("u", "id", "c") == [(1, None), (2, None)]
            assert set(world.reviews("open").values()) <= {"apply"}, "nobody is asked"
    assert world.sync().status == "done"
    assert world.differing() == {}
    assert world.reviews("open") == {}


def test_a_destination_that_fails_everywhere_fails_at_once(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    names = [f"t{number}" for number in range(20)]
    world.run(*(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in names))
    world.sync()
    world.run(*(f"ALTER TABLE {name} ADD COLUMN b int" for name in names))
    with monkeypatch.context() as patched:
        broken(world, patched, *names)
        with pytest.raises(DestinationError, match="the disk has holes"):
            world.sync()
    assert world.sync().status == "done"
    assert world.differing() == {}
