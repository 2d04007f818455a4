"""Columns of a source that are called as a column that Iceberg has in every table."""

from __future__ import annotations

from typing import Any

import pytest

from instep.destinations.base import Commit
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.iceberg.metadata.schema import METADATA_COLUMNS
from instep.errors import SchemaError
from instep.schema.catalog.catalog import Column
from instep.schema.catalog.types import parse
from instep.schema.changes.describe import ColumnAdded
from instep.schema.planning.step import step
from instep.sync.query import ask
from lake import ID, SPARK, create, table
from sync_world import MakeWorld, World, cursor, preset

FIRST = ("_file", "_POS", "_deleted", "_spec_id", "_row_id")
STORED = tuple(f"src_{name}" for name in FIRST)


def value(row: int, name: str) -> str:
    return f"{row}{name}"


def insert(row: int, at: int, *names: str) -> str:
    values = ", ".join(f"'{value(row, name)}'" for name in names)
    return f"INSERT INTO t (id, at, {', '.join(names)}) VALUES ({row}, {at}, {values})"  # noqa: S608


@pytest.fixture(params=["local", pytest.param("spark", marks=SPARK)])
def world(request: pytest.FixtureRequest, make_world: MakeWorld) -> World:
    """Rows are read and merged in this process, or by Spark, however few they are."""
    world = make_world("sqlite", engine=request.param)
    if request.param == "spark":
        world.destination = IcebergDestination(
            IcebergConfig.resolved(name="lake", warehouse=str(world.folder / "lake"), upsert_rows=0)
        )
    world.settings["t"] = cursor("at", deletes="hard")
    world.policy = preset("allow_all", backfill="column")
    columns = ", ".join(f"{name} varchar(20)" for name in FIRST)
    world.run(f"CREATE TABLE t (id int PRIMARY KEY, at int NOT NULL, {columns})")
    return world


def test_they_are_stored_under_another_name_by_every_way_of_writing(world: World) -> None:
    world.run(*(insert(row, 1, *FIRST) for row in (1, 2, 3)))
    decisions = [d.why for d in world.preview().detection.decisions]
    assert all(any(f"{name} is stored as src_{name}" in why for why in decisions) for name in FIRST)
    assert world.sync().status == "done"
    assert [c.alias for c in world.accepted("t").columns] == ["id", "at", *STORED]
    rows = {row: tuple(value(row, name) for name in FIRST) for row in (1, 2, 3)}

    world.run("UPDATE t SET _file = 'other', at = 2 WHERE id = 2", insert(4, 2, *FIRST), "DELETE FROM t WHERE id = 3")
    assert world.sync().status == "done"
    rows |= {2: ("other", *rows[2][1:]), 4: tuple(value(4, name) for name in FIRST)}
    del rows[3]
    assert {row[0]: row[1:] for row in world.rows("t", "id", *STORED)} == rows

    world.run("ALTER TABLE t ADD COLUMN _partition varchar(20) DEFAULT 'p'")
    assert world.sync().status == "done"
    assert world.rows("t", "id", "src__partition") == [(1, "p"), (2, "p"), (4, "p")]
    answer = ask(world.destination, "select id, src__file, src__partition from shop.t order by id")
    assert answer.rows == [(1, "1_file", "p"), (2, "other", "p"), (4, "4_file", "p")]
    assert world.differing() == {}


def test_one_that_is_renamed_to_such_a_name(make_world: MakeWorld) -> None:
    world = make_world("postgres")
    world.run("CREATE TABLE t (id int PRIMARY KEY, name text)", "INSERT INTO t VALUES (1, 'a')")
    world.sync()
    world.run("ALTER TABLE t RENAME name TO _pos", "INSERT INTO t VALUES (2, 'b')")
    assert world.sync().status == "done"
    assert world.rows("t", "id", "src__pos") == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("name", sorted(METADATA_COLUMNS))
def test_no_table_gets_such_a_column(tmp_path: Any, name: str) -> None:
    lake = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))
    odd = Column(name.upper(), parse("string"))
    with pytest.raises(SchemaError, match="in every table"):
        create(lake, table(ID, odd))
    ref = create(lake, table(ID))
    with pytest.raises(SchemaError, match="in every table"):
        lake.schema.execute(ref, [step(ref, ColumnAdded(ref, odd, 1))], table(ID, odd), Commit("run-1", 1))
