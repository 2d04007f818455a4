"""A table that follows a log is repaired: its position stays, and the log tells all that the repair did not see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from followed import Followed
from log_world import LogWorld

from instep.errors import Blocked
from instep.sync.operations import repair as module
from instep.sync.operations.repair import repair
from repair_world import content, put, remove

pytestmark = pytest.mark.server


def rows(world: Followed) -> list[tuple[Any, ...]]:
    """The source's, read by the test."""
    return sorted(tuple(row) for row in world.database.execute("SELECT id, v FROM t"))


def here(world: Followed) -> list[tuple[Any, ...]]:
    return sorted((dict(row)["id"], dict(row)["v"]) for row in content(world).rows.values())


def damage(world: Followed) -> None:
    remove(world, lambda row: row["id"] == 1)
    put(world, lambda row: {**row, "v": 99}, lambda row: row["id"] == 2)
    put(world, lambda row: {**row, "id": 50}, lambda row: row["id"] == 3)


def fix(world: Followed) -> Any:
    return repair(world.context, world.accepted("t").path, ["*"], engine=world.rows_by)


UNREAD = ("UPDATE t SET v = 7 WHERE id = 4", "DELETE FROM t WHERE id = 5", "INSERT INTO t VALUES (6, 6)")
MEANWHILE = (
    "UPDATE t SET v = 8 WHERE id = 2",
    "DELETE FROM t WHERE id = 1",
    "INSERT INTO t VALUES (50, 51)",
    "UPDATE t SET v = 10 WHERE id = 4",
    "INSERT INTO t VALUES (5, 55)",
)


def test_what_the_log_has_not_told_yet_is_told_again(either: Followed) -> None:
    """Rows that changed since the last sync are repaired, too, and the next sync finds them as they are."""
    world = either.loaded()
    damage(world)
    world.run(*UNREAD)
    cursors = world.store.cursors.of("shop")
    done = fix(world)
    assert done.verdict.equal, done.verdict
    assert here(world) == rows(world)
    assert world.store.cursors.of("shop") == cursors
    world.sync()
    assert here(world) == rows(world)


def test_what_changes_meanwhile_comes_with_the_log(either: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the snapshot of the repair and its commit: keys that it writes are updated, deleted and inserted."""
    world = either.loaded()
    damage(world)
    world.run(*UNREAD)
    monkeypatch.setattr(module, "crashpoint", lambda name: world.run(*MEANWHILE))
    assert fix(world).verdict.equal, "with the source as it was read"
    assert here(world) != rows(world)
    world.sync()
    assert here(world) == rows(world)


def test_a_log_that_is_gone_is_refused(world: LogWorld) -> None:
    world.loaded()
    damage(world)
    before = content(world)
    world.run("SELECT pg_drop_replication_slot('instep_shop')")
    with pytest.raises(Blocked, match="the log that it follows is gone") as caught:
        fix(world)
    assert "instep sync --full --table public.t" in caught.value.hint
    assert content(world) == before


def test_a_replica_may_be_behind_the_log(world: LogWorld) -> None:
    world.loaded()
    damage(world)
    config = world.database.config
    context = world.context
    source: Any = context.source
    source.config = source.config.model_copy(update={"read_replica": (f"{config.host}:{config.port}",)})
    with pytest.raises(Blocked, match="rows are read from a replica"):
        repair(replace(context, source=source), "public.t", ["*"], engine=world.rows_by)
