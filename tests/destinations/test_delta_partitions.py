# ruff: noqa: S608 - names are ours
"""What other readers of a partitioned Delta table see: the same rows, and only the files that a filter asks for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_spark import ask, plain
from delta_world import Warehouse
from deltalake import DeltaTable
from test_delta_readers import WANTED, by_delta_rs, row, told

from instep.destinations.base import Commit
from instep.destinations.delta.destination import DeltaConfig, DeltaDestination
from instep.destinations.delta.files import path_of
from instep.destinations.delta.partition import texts, values_of
from instep.destinations.delta.shape import DeltaField
from instep.errors import IllegalChange, StageError
from instep.schema.change import ColumnRemoved, ColumnRenamed, TableAdded
from instep.schema.layout import TableLayout
from instep.schema.partition import PartitionTerm
from instep.schema.step import SetLayout
from instep.stage.partition import Partition
from lake import REF

ODD = ("a/b=c%d", " ", "__HIVE_DEFAULT_PARTITION__", "ä€😀", None, "x\ny", "null", "%20")


def partitioned(folder: Path, *names: str) -> Warehouse:
    """An empty table that is partitioned by these columns."""
    shop = Warehouse.__new__(Warehouse)
    shop.path, shop.fence = folder / "delta", 0
    shop.to = DeltaDestination(DeltaConfig("lake", str(shop.path)))
    after = TableLayout(partition=tuple(PartitionTerm("identity", n) for n in names))
    shop.change(WANTED, TableAdded(WANTED), SetLayout(REF, TableLayout(), after))
    return shop


def loaded(folder: Path, *names: str) -> Warehouse:
    shop = partitioned(folder, *names)
    shop.overwrite(row(1), row(2), row(3))
    shop.append(row(4, name=None, n=None, day=None, tz=None, at=None, amount=None, key=None))
    shop.merge(*(row(2 + number, name=name) for number, name in enumerate(ODD)))
    return shop


def renamed(shop: Warehouse) -> None:
    """The partition column gets another name, and more rows come."""
    name = WANTED.by_name["name"]
    new = replace(name, name="called", alias="called")
    after = replace(WANTED, columns=tuple(new if c.name == "name" else c for c in WANTED.columns))
    shop.change(after, ColumnRenamed(REF, name, new))
    shop.append({**{k: v for k, v in row(9, id=77).items() if k != "name"}, "called": "late"})


def test_delta_rs_reads_the_same_and_no_other_files(tmp_path: Path) -> None:
    shop = loaded(tmp_path, "name")
    renamed(shop)
    there = DeltaTable(str(shop.held.folder))
    assert there.metadata().partition_columns == ["called"]
    assert by_delta_rs(there) == told(shop)
    assert len(shop.files()) == 1 + len(ODD) + 1
    for _ in range(12):
        shop.merge({**{k: v for k, v in row(9, id=78).items() if k != "name"}, "called": "again"})
    shop.held.log.clean(shop.held.snapshot.version)
    assert by_delta_rs(DeltaTable(str(shop.held.folder))) == told(shop), "from a checkpoint"


BY = (("name",), ("amount", "day", "key"), ("tz", "at", "small"))
SEEKS: list[tuple[str, Any]] = [
    ("id > 3", lambda r: r["id"] > 3), ("name = 'a/b=c%d'", lambda r: r["name"] == "a/b=c%d"),
    ("name IS NULL", lambda r: r["name"] is None), ("name = ' '", lambda r: r["name"] == " "),
    ("name = '__HIVE_DEFAULT_PARTITION__'", lambda r: r["name"] == "__HIVE_DEFAULT_PARTITION__"),
    ("amount = 0.25", lambda r: str(r["amount"]) == "0.25"), ("day = date'2026-01-05'", lambda r: r["id"] == 5),
    ("tz = timestamp'2026-01-03 01:02:03.456789Z'", lambda r: r["id"] == 3), ("n IS NULL", lambda r: r["n"] is None),
    ("at = timestamp_ntz'2026-01-02 01:02:03.456789'", lambda r: r["id"] == 2), ("small = 6", lambda r: r["id"] == 6),
    ("key = '00000000-0000-0000-0000-000000000007'", lambda r: r["id"] == 7),
]  # fmt: skip


@pytest.mark.slow
def test_spark_reads_the_same_and_no_other_files(tmp_path: Path) -> None:
    asked, wanted = list[str](), list[Any]()
    for number, names in enumerate(BY):
        shop = loaded(tmp_path / str(number), *names)
        at, rows = f"delta.`{shop.held.folder}`", shop.to.read(REF).read_all().to_pylist()
        asked.append(f"SELECT * FROM {at}")
        wanted.append(told(shop))
        for where, says in SEEKS:
            asked.append(f"SELECT id FROM {at} WHERE {where}")
            wanted.append(plain([{"id": r["id"]} for r in rows if says(r)]))
    shop = loaded(tmp_path / "pruned", "name")
    renamed(shop)
    for file in shop.held.files:
        if file["partitionValues"]["name"] != "a/b=c%d":
            Path(str(path_of(shop.held, file))).unlink()
    asked.append(f"SELECT id FROM delta.`{shop.held.folder}` WHERE called = 'a/b=c%d'")
    wanted.append([{"id": "2"}])
    said = ask(tmp_path, asked)
    for statement, theirs, ours in zip(asked, said, wanted, strict=True):
        assert theirs == ours, statement


@pytest.mark.slow
def test_files_that_spark_writes_are_read_with_the_values_of_the_log(tmp_path: Path) -> None:
    shop = loaded(tmp_path, "name", "tz", "amount")
    at = f"delta.`{shop.held.folder}`"
    said = ask(tmp_path, [
        f"INSERT INTO {at} (id, name, tz, amount) VALUES (998, 'a/b', timestamp'2020-02-02 02:02:02.5Z', -1.50)",
        f"INSERT INTO {at} (id, name) VALUES (999, NULL)",
        f"UPDATE {at} SET n = 7 WHERE id = 3", f"DELETE FROM {at} WHERE id = 2", f"SELECT * FROM {at}",
    ])  # fmt: skip
    assert said[-1] == told(shop)
    shop.merge(row(5, id=998), row(6, id=999))
    assert len(told(shop)) == len(said[-1])
    there = {(r["id"], r["name"]) for r in told(shop)}
    assert {("998", "n5"), ("999", "n6")} <= there


def test_partition_columns_stay(tmp_path: Path) -> None:
    shop = partitioned(tmp_path, "name")
    name = WANTED.by_name["name"]
    without = replace(WANTED, columns=tuple(c for c in WANTED.columns if c.name != "name"))
    with pytest.raises(IllegalChange, match=r"column name cannot be dropped: the table's partitions \(name\)"):
        shop.change(without, ColumnRemoved(REF, name, 1))


def test_a_writer_that_meets_an_empty_text_fails_before_it_commits(tmp_path: Path) -> None:
    shop = loaded(tmp_path, "name")
    before = shop.held.snapshot.version, shop.files()
    with pytest.raises(StageError, match="column name: an empty text cannot be told from NULL"):
        shop.merge(row(1, name=""))
    assert (shop.held.snapshot.version - 1, shop.files()) == before, "a claim"
    assert set(map(str, Path(str(shop.held.folder / "data")).glob("*rewrite*"))) == {
        str(path_of(shop.held, f)) for f in shop.held.snapshot.files.values() if "rewrite" in f["path"]
    } | {str(path_of(shop.held, f)) for f in shop.held.snapshot.gone.values() if "rewrite" in f["path"]}


def test_a_copy_has_the_partitions_of_its_table(tmp_path: Path) -> None:
    shop = loaded(tmp_path, "name")
    place = ("shop", "kept")
    assert shop.to.keep(REF, place, Commit("copy", shop.fence)) == len(told(shop))
    assert told(shop, place) == told(shop)
    assert by_delta_rs(DeltaTable(str(shop.to.warehouse.folder(place)))) == told(shop)


SPELLED = [
    ("string", "x", "x"), ("long", -5, "-5"), ("boolean", True, "true"), ("boolean", False, "false"),
    ("date", -1, "1969-12-31"), ("timestamp", -500_000, "1969-12-31T23:59:59.500000Z"),
    ("timestamp_ntz", 1, "1970-01-01 00:00:00.000001"), ("timestamp_ntz", 0, "1970-01-01 00:00:00"),
    ("string", None, None),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "text"), SPELLED)
def test_how_the_log_spells_a_value(kind: str, value: Any, text: str | None) -> None:
    made = DeltaField(1, "p", "c", kind)
    assert texts(Partition(0, (value,)), [made]) == {"p": text}
    back = values_of({"partitionValues": {"p": text}}, [made])["p"]
    stored = (
        back.cast(pa.int64()) if kind.startswith("timestamp") else back.cast(pa.int32()) if kind == "date" else back
    )
    assert stored.as_py() == value


def test_a_time_that_no_reader_knows_is_not_written() -> None:
    for kind, value in (("date", 10_000_000), ("timestamp", 2**60)):
        with pytest.raises(StageError, match="outside of the years 1 to 9999"):
            texts(Partition(0, (value,)), [DeltaField(1, "p", "c", kind)])
