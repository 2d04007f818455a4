"""Types that are held, refused or taken anew, over every destination: nothing is asked in vain, nothing is equal that
is not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from instep.destinations.delta.destination import DeltaConfig, DeltaDestination
from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.destinations.postgres.connect import PostgresServerConfig
from instep.destinations.postgres.destination import PostgresDestination
from postgres_server import Server, make_database
from sync_world import MakeWorld, World


@pytest.fixture
def on(make_world: MakeWorld, request: pytest.FixtureRequest) -> Iterator[Callable[[str], World]]:
    """Makes a world from PostgreSQL into a destination of this kind."""
    with ExitStack() as stack:

        def make(kind: str) -> World:
            world = make_world()
            made: Any = world.destination
            if kind == "delta":
                made = DeltaDestination(DeltaConfig.resolved(name="warehouse", warehouse=str(world.folder / "delta")))
            elif kind == "duckdb":
                made = DuckDbDestination(
                    DuckDbConfig.resolved(name="warehouse", path=str(world.folder / "shop.duckdb"))
                )
            elif kind == "postgres":
                server: Server = request.getfixturevalue("postgres_server")
                at = make_database(server, name := f"unfit_{abs(hash(request.node.nodeid)) % 10**9}")
                whole = replace(at, config=at.config.model_copy(update={"database": "postgres"}))
                stack.callback(whole.execute, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
                staging = str(world.folder / "staging")
                made = PostgresDestination(PostgresServerConfig.resolved(name="warehouse", **at.login, staging=staging))
            world.destination = made
            return world

        yield make


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["iceberg", "delta", "duckdb", "postgres"])
def test_types_that_do_not_fit(on: Callable[[str], World], kind: str) -> None:
    """One world for all of it: `k` has a key of another type, `r` is replaced, `f` has four new types, one of which old
    rows do not fit, and `v` values that its accepted type does not take."""
    world = on(kind)
    world.run(
        "CREATE TABLE k (id int PRIMARY KEY, a int)", "INSERT INTO k VALUES (1, 1), (2, 2)",
        "CREATE TABLE r (id int PRIMARY KEY, c date)", "INSERT INTO r VALUES (1, '2024-01-01')",
        "CREATE TABLE f (id int PRIMARY KEY, a varchar(9), b varchar(9), c varchar(9), d varchar(9))",
        "INSERT INTO f VALUES (1, '1', '2', '3', '4'), (2, 'x', '5', '6', '7')",
        "CREATE TABLE v (id int PRIMARY KEY, n int)", "INSERT INTO v VALUES (1, 1), (2, 2)",
    )  # fmt: skip
    world.sync()
    world.run(
        "ALTER TABLE k ALTER id TYPE uuid USING ('00000000-0000-0000-0000-00000000000' || id)::uuid",
        "DROP TABLE r", "CREATE TABLE r (id int PRIMARY KEY, c integer[])", "INSERT INTO r VALUES (7, '{1,2}')",
        "DELETE FROM f WHERE id = 2", *(f"ALTER TABLE f ALTER {c} TYPE int USING {c}::int" for c in "abcd"),
        "ALTER TABLE v ALTER n TYPE varchar(9) USING CASE id WHEN 2 THEN 'x' ELSE '1' END",
    )  # fmt: skip
    statuses = {"f": "done", "k": "paused", "r": "done", "v": "done"}
    assert world.statuses(world.sync()) == statuses
    assert world.rows("k", "a") == [(1,), (2,)]
    assert [row[0] for row in world.rows("r", deleted=True)] == [7]
    found = world.verify()
    assert {name: (v.equal, v.held, bool(v.skipped), v.waits) for name, v in found.items()} == {
        "f": (True, 0, False, False), "k": (False, 0, True, True), "r": (True, 0, False, False),
        "v": (True, 1, False, True),
    }  # fmt: skip
    world.answer("approved", "key.changed", "column.retyped")
    for _ in range(2):
        report = world.sync()
        assert world.statuses(report) == dict.fromkeys(statuses, "done")
        (left,) = world.store.reviews.find("shop", ("open",))
        assert (report.waiting, left.column, left.rule) == ((left.id,), "a", "destination")
    assert world.rows("f", deleted=True) == [(1, "1", 2, 3, 4), (2, "x", 5, 6, 7)]
    assert len(world.rows("k", deleted=True)) == 2
    assert {name: (v.equal, v.waits) for name, v in world.verify().items()} == dict.fromkeys(statuses, (True, False))
