"""Partitioned tables as Spark has them: it finds rows by a filter where they are, and merges into the partitions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from test_sync_partition import MOVES, ROWS, TABLE, changed, entries, synced, table, wrong_places

from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.project.sections.tables import TableSettings
from lake import SPARK
from sync_world import MakeWorld, World

pytestmark = [*SPARK, pytest.mark.slow]

EPOCH = datetime(1970, 1, 1)
FILTERS: list[tuple[str, Callable[[tuple[Any, ...]], bool]]] = [
    ("region = 'a/b=c%d'", lambda r: r[1] == "a/b=c%d"),
    ("region = ''", lambda r: r[1] == ""),
    ("region IS NULL", lambda r: r[1] is None),
    ("region LIKE 'a/%'", lambda r: (r[1] or "").startswith("a/")),
    ("region = 'ä€😀'", lambda r: r[1] == "ä€😀"),
    ("at = TIMESTAMP_NTZ'1969-12-31 23:59:59.5'", lambda r: r[2] == datetime(1969, 12, 31, 23, 59, 59, 500000)),
    ("at < TIMESTAMP_NTZ'1970-01-01'", lambda r: r[2] is not None and r[2] < EPOCH),
    ("at >= TIMESTAMP_NTZ'1970-01-01'", lambda r: r[2] is not None and r[2] >= EPOCH),
    ("id = -5", lambda r: r[0] == -5),
    ("id IN (1, 4)", lambda r: r[0] in (1, 4)),
    ("amount = -1.25", lambda r: r[3] == Decimal("-1.25")),
    ("amount = 9999999.99", lambda r: r[3] == Decimal("9999999.99")),
    ("amount IS NULL", lambda r: r[3] is None),
]
SPECS = [
    ("bucket(4, id)", "region", "month(at)"),
    ("at", "amount"),
    ("truncate(2, region)", "bucket(3, amount)", "hour(at)"),
    ("year(at)", "truncate(10, id)"),
    ("bucket(5, region)", "day(at)", "truncate(100, amount)"),
    ("bucket(7, at)", "id"),
]


def session(world: World) -> Any:
    assert world.start is not None
    started = world.start().newSession()
    for name, value in world.destination.lifecycle.spark_catalog().items():
        started.conf.set(name, value)
    return started


def select(spark: Any, where: str) -> list[int]:
    return sorted(row.id for row in spark.sql(f"SELECT id FROM lake.shop.t WHERE {where}").collect())  # noqa: S608


def test_filters_find_the_rows_under_every_spec(make_world: MakeWorld) -> None:
    world = make_world("postgres")
    world.run(TABLE)
    for number, by in enumerate(SPECS):
        world.settings["t"] = TableSettings(partition=by)
        world.sync()
        changed(world, "DELETE FROM t", *([ROWS] if number == 0 else [ROWS.replace("(1,", f"({100 + number},")]))
        spark, rows = session(world), world.rows("t", deleted=True)
        spark.sql("REFRESH TABLE lake.shop.t")
        for where, says in FILTERS:
            assert select(spark, where) == sorted(r[0] for r in rows if says(r)), (by, where)


def test_only_files_of_the_partition_are_read(make_world: MakeWorld) -> None:
    world = make_world("postgres")
    world.settings["t"] = TableSettings(partition=("region",))
    world.run(TABLE, ROWS)
    synced(world)
    for file in entries(table(world)):
        if file.partition[0] != "a/b=c%d":
            Path(file.file_path.removeprefix("file://")).unlink()
    assert select(session(world), "region = 'a/b=c%d'") == [-5, 1]


def test_spark_extracts_and_merges_into_partitions(make_world: MakeWorld, tmp_path: Path) -> None:
    world = make_world("postgres", engine="spark")
    world.destination = IcebergDestination(
        IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake"), upsert_rows=0)
    )
    world.settings["t"] = TableSettings(partition=SPECS[0])
    world.run(TABLE, ROWS)
    synced(world)
    changed(world, *MOVES)
    world.settings["t"] = TableSettings(partition=("day(at)", "bucket(2, id)"))
    changed(world, "UPDATE t SET region = NULL", "DELETE FROM t WHERE id = 2", "INSERT INTO t (id) VALUES (70)")
    assert {f.spec_id for f in entries(table(world))} == {1, 2}
    world.destination = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))
    changed(world, "UPDATE t SET note = 'here'", "DELETE FROM t WHERE id = 1")
    assert wrong_places(world) == []
