"""Hashed by command, with rows: in the lake, in staging and in events there are hashes, also after a rename."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from events.shows import shows
from instep.schema.selection.overrides import Switch, bind
from instep.schema.selection.pii import Protect
from instep.sync.loading.engine import LocalEngine
from instep.sync.run import sync
from sync_world import MakeWorld, World

SECRET = "ann@example.org"
T = "CREATE TABLE t (id int PRIMARY KEY, email varchar(200), n int)"
ROW = "INSERT INTO t VALUES (1, 'ann@example.org', 1)"


def switch(world: World, **choice: bool) -> None:
    seen = world.store.discoveries.get("shop")
    assert seen is not None
    one = bind(Switch(world.case.schema, "t", "email", **choice), seen.catalog, seen.identity)
    world.store.switches.set("shop", [one], "ann")


def digest(text: str) -> str:
    return sha256(b"salt" + text.encode()).hexdigest()


def in_clear(folder: Path, text: str) -> list[str]:
    """The files of the lake and of the store that hold the text; the source's own are left out."""
    found = [p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("odd")]
    return [p.name for p in found if text in _content(p)]


def _content(path: Path) -> str:
    """With what Parquet compresses."""
    raw = path.read_bytes().decode(errors="replace")
    return raw + str(pq.read_table(path).to_pylist()) if path.suffix == ".parquet" else raw


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
def test_a_hashed_column_is_in_clear_nowhere(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    world.run(T)
    world.evolve()
    switch(world, hashed=True)
    world.run(ROW, "INSERT INTO t VALUES (2, NULL, 2)")
    world.sync()
    assert world.rows("t") == [(1, digest(SECRET), 1), (2, None, 2)]
    assert in_clear(world.folder, SECRET) == []
    assert all(SECRET not in str(e.data) for e in world.store.events.after(connection="shop"))


@shows(trap=12)
def test_a_renamed_column_goes_on_as_hashes(make_world: MakeWorld) -> None:
    world = make_world("postgres")
    world.run(T)
    world.evolve()
    switch(world, hashed=True)
    world.run(ROW)
    world.sync()
    world.run("ALTER TABLE t RENAME COLUMN email TO mail", "INSERT INTO t VALUES (2, 'bo@example.org', 2)")
    world.sync()
    assert world.rows("t", "id", "mail") == [(1, digest(SECRET)), (2, digest("bo@example.org"))]
    assert in_clear(world.folder, "example.org") == []


def test_hashing_later_reads_the_table_again(make_world: MakeWorld) -> None:
    world = make_world("postgres")
    world.run(T, ROW)
    world.sync()
    assert in_clear(world.folder, SECRET), "until then it is there"
    switch(world, hashed=True)
    world.store.backfills.request("shop", ("public", "t"), why="hashed")
    world.sync()
    assert world.rows("t") == [(1, digest(SECRET), 1)]


def test_switched_off_and_on_again(make_world: MakeWorld) -> None:
    world = make_world("postgres")
    world.run(T, ROW)
    world.sync()
    switch(world, enabled=False)
    world.run("INSERT INTO t VALUES (2, 'bo@example.org', 2)", "UPDATE t SET email = 'new', n = 9 WHERE id = 1")
    world.sync()
    assert world.rows("t") == [(1, SECRET, 9), (2, None, 2)], "what is loaded stays"
    switch(world, enabled=True)
    world.sync()
    assert world.rows("t") == [(1, "new", 9), (2, "bo@example.org", 2)]


def test_what_looks_personal_is_neither_loaded_nor_kept_aside(make_world: MakeWorld) -> None:
    world = make_world("postgres")
    world.run("CREATE TABLE t (id int PRIMARY KEY, x varchar(200))", "INSERT INTO t VALUES (1, 'ann@example.org')")
    sync(replace(world.context, protect=Protect("on")), engine=LocalEngine())
    assert [c.name for c in world.accepted("t").columns] == ["id"]
    assert world.rows("t", "id") == [(1,)]
    assert in_clear(world.folder, SECRET) == []
