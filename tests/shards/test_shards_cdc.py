# ruff: noqa: S608 - the SQL of tests
"""Shards of one table that follow the logs of their sources: what one of them tells is about its own rows."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from shard_world import ShardWorld, Shop

from contract import destinations
from contract.sources import Case
from instep.model import LogNames
from instep.project.sections.tables import TableSettings
from instep.sources.postgres.source import PostgresSource
from instep.sources.postgres.types import quote
from instep.store.store import Store
from instep.sync.context import SyncContext
from postgres_server import Database, Server, launch, make_database
from sync_world import preset

pytestmark = pytest.mark.server
KINDS = ("duckdb", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("delta", "iceberg")))
_numbers = itertools.count(1)
Open = Callable[[str, str], Shop]


@dataclass
class CdcShard(ShardWorld):
    """`slot`: of its own server; all of its tables follow the log, unless the settings say otherwise."""

    slot: str = ""

    @property
    def context(self) -> SyncContext:
        log = TableSettings(mode="cdc")
        return replace(
            super().context, settings=lambda t: self.settings.get(t.name, log), log=LogNames(self.slot, self.slot)
        )


@pytest.fixture(scope="module")
def logging() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="instep-shard-log-"))
    folder.chmod(0o755)
    settings = "-c wal_level=logical -c max_replication_slots=40"
    server = launch(folder / "server", int(os.environ.get("POSTGRES_MAJOR", "18")), settings)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def case_of(database: Database) -> Case:
    def make(*, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), restricted: bool = False) -> Any:
        return PostgresSource(database.config.model_copy(update={"include": include, "exclude": exclude}))

    return Case("postgres", "public", database.execute, make, quote, table_ids=True, column_ids=True)


@contextmanager
def made(folder: Path, server: Server, kind: str, names: str) -> Iterator[Shop]:
    base, store = destinations.DESTINATIONS[kind](folder), Store(f"sqlite:///{folder / 'control.db'}")
    with ExitStack() as stack:
        stack.callback(store.close)
        shards: dict[str, ShardWorld] = {}
        for name in names:
            database = make_database(server, slot := f"shard_{next(_numbers)}")
            shards[name] = CdcShard(case_of(database), folder, shard=name, base=base, shared=store, slot=slot)
        yield Shop(shards, base)


@pytest.fixture
def open_shop(logging: Server, tmp_path: Path) -> Iterator[Open]:
    with ExitStack() as stack:
        yield lambda kind, names: stack.enter_context(made(tmp_path, logging, kind, names))


def test_keys_that_are_those_of_other_shards(open_shop: Open) -> None:
    shop = open_shop("duckdb", "ab")
    shop.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'x'), (2, 'y'), (3, 'z')")
    shop.sync()
    shop["a"].run("DELETE FROM t WHERE id = 1", "UPDATE t SET id = 9 WHERE id = 2", "UPDATE t SET v = 'n' WHERE id = 3")
    shop["b"].run("UPDATE t SET v = 'b' WHERE id = 1")
    shop.sync()
    assert shop.rows("id", "v") == [("a", 3, "n"), ("a", 9, "y"), ("b", 1, "b"), ("b", 2, "y"), ("b", 3, "z")]
    shop["b"].run("TRUNCATE t", "INSERT INTO t VALUES (3, 'again')")
    shop.sync()
    assert shop.rows("id", "v") == [("a", 3, "n"), ("a", 9, "y"), ("b", 3, "again")]
    assert shop.differing() == {}


AGAIN = {
    "at once": (("ALTER TABLE t DROP COLUMN v", "ALTER TABLE t ADD COLUMN v text"),),
    "for a later sync": (("ALTER TABLE t DROP COLUMN v",), ("ALTER TABLE t ADD COLUMN v text DEFAULT 'now'",)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", AGAIN.values(), ids=AGAIN)
def test_a_column_that_one_shard_drops_and_makes_again(
    open_shop: Open, kind: str, steps: tuple[tuple[str, ...], ...]
) -> None:
    """The others have it all the time, so that it stays in the table with the values that this shard has dropped."""
    shop = open_shop(kind, "ab")
    for shard in shop.shards.values():
        shard.policy = preset("propagate_all", backfill="column")
    shop.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    shop.sync()
    for statements in steps:
        shop["a"].run(*statements)
        shop["a"].sync()
    assert shop.differing() == {}
    assert {row[2] for row in shop.rows("id", "v") if row[0] == "b"} == {"x", "y"}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), [(kind, seed) for kind in ("duckdb", "delta", "iceberg") for seed in (0,)])
def test_random_changes_of_rows_and_columns(open_shop: Open, kind: str, seed: int) -> None:
    chance = random.Random(seed)
    shop = open_shop(kind, "abc")
    for shard in shop.shards.values():
        shard.policy = preset("propagate_all", backfill="column")
    shop.run("CREATE TABLE t (id int PRIMARY KEY, n int)")
    have: dict[str, dict[str, str]] = {name: {} for name in "abc"}
    for _ in range(12):
        for name in chance.choices("abc", k=3):
            for statement in _changes(chance, have[name]):
                shop[name].run(statement)
            if chance.random() < 0.6:
                shop[name].sync()
        shop.sync()
        assert shop.differing() == {}


def _changes(chance: random.Random, have: dict[str, str]) -> Iterator[str]:
    column = chance.choice("uvw")
    match chance.randrange(6):
        case 0 if column in have:
            yield f"ALTER TABLE t DROP COLUMN {column}"
            del have[column]
        case 0 | 1 if column not in have:
            have[column] = chance.choice(["int", "int DEFAULT 7", "bigint"])
            yield f"ALTER TABLE t ADD COLUMN {column} {have[column]}"
        case 2 if column in have:
            yield f"ALTER TABLE t DROP COLUMN {column}"
            yield f"ALTER TABLE t ADD COLUMN {column} {have[column]}"
    for _ in range(chance.randrange(4)):
        one, other = chance.randrange(12), chance.randrange(12)
        match chance.randrange(5):
            case 0:
                yield f"DELETE FROM t WHERE id = {one}"
            case 1:
                yield f"UPDATE t SET id = {other} WHERE id = {one} AND NOT EXISTS (SELECT FROM t WHERE id = {other})"
            case 2 if column in have:
                yield f"UPDATE t SET {column} = {other} WHERE id = {one}"
            case _:
                yield f"INSERT INTO t (id, n) VALUES ({one}, {other}) ON CONFLICT (id) DO UPDATE SET n = excluded.n"
    if chance.random() < 0.05:
        yield "TRUNCATE t"
