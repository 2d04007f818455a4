# ruff: noqa: S608 - names are ours
"""What other readers of a partitioned Delta table see: the same rows, and only the files that a filter asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_spark import Rows, ask, plain
from delta_world import Warehouse
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from test_delta_readers import WANTED, by_delta_rs, row, told, widened

from instep.destinations.base import Commit
from instep.destinations.delta.destination import DeltaConfig, DeltaDestination
from instep.destinations.delta.files import path_of
from instep.destinations.delta.shape import DeltaField, texts, values_of
from instep.destinations.overflow import OverflowColumn
from instep.destinations.shared import shard_column
from instep.errors import IllegalChange, StageError
from instep.schema.catalog.layout import PartitionTerm, TableLayout
from instep.schema.catalog.types import String
from instep.schema.changes.describe import ColumnRemoved, ColumnRenamed, TableAdded
from instep.schema.planning.step import SetLayout
from instep.sharding.destination import sharded
from instep.stage.partition import Partition
from lake import ID, PREFIX, REF, create, stage, table

ODD = ("a/b=c%d", " ", "__HIVE_DEFAULT_PARTITION__", "ä€😀", None, "x\ny", "null", "%20")


def partitioned(folder: Path, *names: str) -> Warehouse:
    """An empty table that is partitioned by these columns."""
    shop = Warehouse.__new__(Warehouse)
    shop.path, shop.fence = folder / "delta", 0
    shop.to = DeltaDestination(DeltaConfig.resolved(name="lake", warehouse=str(shop.path)))
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


def test_times_without_a_zone_are_utc_as_their_writer_means_them(tmp_path: Path) -> None:
    shop = partitioned(tmp_path, "tz", "at")
    shop.overwrite(row(1))
    rows = shop.to.write.read(REF).read_all()
    own = rows.set_column(0, "id", pa.array([9], pa.int64()))
    write_deltalake(str(shop.held.folder), own, mode="append")
    places = [f["partitionValues"]["tz"] for f in shop.held.files]
    assert sorted(p.endswith("Z") for p in places) == [False, True], "delta-rs spells them without a zone"
    [times] = set(shop.rows("tz", "at"))
    assert times == tuple(rows.select(["tz", "at"]).to_pylist()[0].values())


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


BY = (("name",), ("amount", "day", "key", "tz", "at", "small"))
SHARD = shard_column(PREFIX)
SEEKS: list[tuple[str, Any]] = [
    ("id > 3", lambda r: r["id"] > 3), ("name = 'a/b=c%d'", lambda r: r["name"] == "a/b=c%d"),
    ("name IS NULL", lambda r: r["name"] is None), ("name = ' '", lambda r: r["name"] == " "),
    ("name = '__HIVE_DEFAULT_PARTITION__'", lambda r: r["name"] == "__HIVE_DEFAULT_PARTITION__"),
    ("amount = 0.25", lambda r: str(r["amount"]) == "0.25"), ("day = date'2026-01-05'", lambda r: r["id"] == 5),
    ("tz = timestamp'2026-01-03 01:02:03.456789Z'", lambda r: r["id"] == 3), ("n IS NULL", lambda r: r["n"] is None),
    ("at = timestamp_ntz'2026-01-02 01:02:03.456789'", lambda r: r["id"] == 2), ("small = 6", lambda r: r["id"] == 6),
    ("key = '00000000-0000-0000-0000-000000000007'", lambda r: r["id"] == 7),
]  # fmt: skip


def read_back(folder: Path) -> Iterator[tuple[str, Rows]]:
    """Statements over tables that are partitioned in many ways, and the rows that they have to find."""
    for number, names in enumerate(BY):
        shop = loaded(folder / str(number), *names)
        at, rows = f"delta.`{shop.held.folder}`", shop.to.write.read(REF).read_all().to_pylist()
        yield f"SELECT * FROM {at}", told(shop)
        for where, says in SEEKS:
            yield f"SELECT id FROM {at} WHERE {where}", plain([{"id": r["id"]} for r in rows if says(r)])
    shop = loaded(folder / "wider", "n", "amount", "small")
    widened(shop)
    shop.append(row(8, id=88, n=2**40, amount=Decimal("1.2345"), small=2**20, ratio=0.1))
    yield f"SELECT * FROM delta.`{shop.held.folder}`", told(shop)
    yield f"SELECT id FROM delta.`{shop.held.folder}` WHERE n = 1099511627776 AND amount = 1.2345", [{"id": "88"}]
    yield f"SELECT id FROM delta.`{shop.held.folder}` WHERE n = 2", [{"id": "2"}]


def only(shop: Warehouse, name: str, value: str) -> str:
    """The files of other partitions are gone: a reader who looks at them fails."""
    for file in shop.held.files:
        if file["partitionValues"][name] != value:
            Path(str(path_of(shop.held, file))).unlink()
    return f"delta.`{shop.held.folder}`"


def shared(folder: Path) -> Warehouse:
    """The table of two shards."""
    shop = Warehouse.__new__(Warehouse)
    shop.to = DeltaDestination(DeltaConfig.resolved(name="lake", warehouse=str(folder / "delta")))
    for name in ("eu", "us"):
        to = sharded(shop.to, name, PREFIX)
        create(to, table(ID), Commit("r1", 1))
        to.write.append(REF, [stage(to, REF, [{SHARD: name, "id": n} for n in range(3)])], Commit("r2", 2))
    return shop


@pytest.mark.slow
@pytest.mark.parametrize("names", BY)
def test_delta_rs_reads_values_of_each_type(tmp_path: Path, names: tuple[str, ...]) -> None:
    shop = loaded(tmp_path, *names)
    assert by_delta_rs(DeltaTable(str(shop.held.folder))) == told(shop)


@pytest.mark.drawn(5)
@pytest.mark.slow
def test_spark_reads_the_same_and_no_other_files(tmp_path: Path) -> None:
    asked = [*read_back(tmp_path)]
    shop = loaded(tmp_path / "pruned", "name")
    renamed(shop)
    asked += [(f"SELECT id FROM {only(shop, 'name', 'a/b=c%d')} WHERE called = 'a/b=c%d'", [{"id": "2"}])]
    both = shared(tmp_path / "shards")
    count = f"SELECT {SHARD} AS s, count(*) AS n FROM delta.`{both.held.folder}` GROUP BY ALL"
    said = ask(tmp_path, [statement for statement, _ in asked] + [count, *written(tmp_path / "written")])
    for (statement, ours), theirs in zip(asked, said, strict=False):
        assert theirs == ours, statement
    assert said[len(asked)] == [{"n": "3", "s": "eu"}, {"n": "3", "s": "us"}]
    shop = Warehouse.__new__(Warehouse)
    shop.to, shop.fence = (
        DeltaDestination(DeltaConfig.resolved(name="lake", warehouse=str(tmp_path / "written" / "delta"))),
        50,
    )
    assert said[-1] == told(shop), "files that Spark writes have no partition columns"
    shop.merge(row(5, id=998), row(6, id=999))
    assert len(told(shop)) == len(said[-1])
    assert {("998", "n5"), ("999", "n6")} <= {(r["id"], r["name"]) for r in told(shop)}


def written(folder: Path) -> list[str]:
    """What Spark writes into a table of ours, and reads of it then."""
    at = f"delta.`{loaded(folder, 'name', 'tz', 'amount').held.folder}`"
    return [
        f"INSERT INTO {at} (id, name, tz, amount) VALUES (998, 'a/b', timestamp'2020-02-02 02:02:02.5Z', -1.50)",
        f"INSERT INTO {at} (id, name) VALUES (999, NULL)",
        f"UPDATE {at} SET n = 7 WHERE id = 3", f"DELETE FROM {at} WHERE id = 2", f"SELECT * FROM {at}",
    ]  # fmt: skip


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
    } | {str(path_of(shop.held, f)) for f in shop.held.snapshot.tombstones.values() if "rewrite" in f["path"]}


def test_kept_values_move_rows_to_their_partitions(tmp_path: Path) -> None:
    shop = partitioned(tmp_path, "name")
    docs = ('{"x":"new"}', '{"x":""}', None, '{"x":"other","y":1}')
    shop.overwrite(*(row(n + 1, name=None, doc=doc) for n, doc in enumerate(docs)), row(5, name="has", doc='{"x":"b"}'))
    done = shop.to.write.promote(REF, {"name": OverflowColumn("x", String())}, "doc", shop.commit())
    assert (done.rows, done.invalid_values) == (2, 1)
    assert [(r["id"], r["name"], r["doc"]) for r in told(shop)] == [
        ("1", "new", None), ("2", None, '{"x":""}'), ("3", None, None), ("4", "other", '{"y":1}'),
        ("5", "has", '{"x":"b"}'),
    ]  # fmt: skip
    assert sorted(str(f["partitionValues"]["name"]) for f in shop.held.files) == ["None", "has", "new", "other"]


def test_a_copy_has_the_partitions_of_its_table(tmp_path: Path) -> None:
    shop = loaded(tmp_path, "name")
    place = ("shop", "kept")
    assert shop.to.lifecycle.clones.clone_table(REF, place, Commit("copy", shop.fence)) == len(told(shop))
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


_FIRST, _LAST = (-62_135_596_800_000_000, 253_402_300_799_999_999)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "byte": st.integers(-128, 127), "long": st.integers(-(2**63), 2**63 - 1), "boolean": st.booleans(),
    "string": st.text(min_size=1), "date": st.integers(-719_162, 2_932_896), "timestamp": st.integers(_FIRST, _LAST),
    "timestamp_ntz": st.integers(_FIRST, _LAST),
    "decimal(38,9)": st.decimals(-(10**28), 10**28, places=9, allow_nan=False, allow_infinity=False),
}  # fmt: skip


@given(st.data(), st.sampled_from(sorted(VALUES)))
def test_what_the_log_spells_reads_back(data: st.DataObject, kind: str) -> None:
    made, value = DeltaField(1, "p", "c", kind), data.draw(st.none() | VALUES[kind])
    said = json.loads(json.dumps(texts(Partition(0, (value,)), [made])))
    back = values_of({"partitionValues": said}, [made])["p"]
    plain_types = {"date": pa.int32(), "timestamp": pa.int64(), "timestamp_ntz": pa.int64()}
    assert back.cast(plain_types.get(kind, back.type)).as_py() == value


def test_a_time_that_no_reader_knows_is_not_written() -> None:
    for kind, value in (("date", 10_000_000), ("timestamp", 2**60)):
        with pytest.raises(StageError, match="outside of the years 1 to 9999"):
            texts(Partition(0, (value,)), [DeltaField(1, "p", "c", kind)])
