"""The lake as a whole: what is ours, what is refused, what is read without pyiceberg, what stays secret."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema

from instep.destinations.base import Commit
from instep.destinations.iceberg.commit.commit import new_table
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.iceberg.metadata import catalog
from instep.destinations.iceberg.metadata.updates import set_properties
from instep.errors import Conflict, ConnectError, DestinationError
from lake import ORDERS, REF, column, create, rows_of, stage, table
from work_count import calls_of

X, Y = column("x", "int64", key=1), column("y", "json")


def lake_at(folder: Path, name: str = "lake") -> IcebergDestination:
    return IcebergDestination(IcebergConfig.resolved(name=name, warehouse=str(folder)))


def test_looking_makes_nothing(tmp_path: Path) -> None:
    lake = lake_at(tmp_path / "lake")
    assert lake.schema.inspect([REF]).tables == ()
    assert lake.schema.tables() == []
    assert not (tmp_path / "lake").exists()


def test_a_folder_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "family.jpg").write_text("precious")
    lake = lake_at(tmp_path)
    for attempt in (lambda: lake.schema.inspect([REF]), lambda: create(lake), lambda: lake.write.claim(REF, 1)):
        with pytest.raises(DestinationError, match="not empty"):
            attempt()
    assert [c.ok for c in lake.lifecycle.test()] == [False]
    assert [p.name for p in tmp_path.iterdir()] == ["family.jpg"]


@pytest.mark.parametrize("ask", [lambda lake: lake.schema.tables(), lambda lake: lake.schema.inspect([REF]), create])
def test_a_catalog_that_another_process_makes_meanwhile_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[IcebergDestination], object]
) -> None:
    """It was not there when this process looked for it, and the folder was not empty a moment later."""
    looked = catalog._is_empty_folder

    def made_meanwhile(folder: Path) -> bool:
        monkeypatch.setattr(catalog, "_is_empty_folder", looked)
        create(lake_at(tmp_path / "lake"), table(X, name="theirs"))
        return looked(folder)

    (tmp_path / "lake").mkdir()
    monkeypatch.setattr(catalog, "_is_empty_folder", made_meanwhile)
    ask(lake_at(tmp_path / "lake"))
    assert ("shop", "theirs") in lake_at(tmp_path / "lake").schema.tables()


@pytest.mark.parametrize("content", [b"not a database at all" * 100, None])
def test_a_catalog_file_that_is_none_is_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "catalog.db"
    if content is not None:
        file.write_bytes(content)
    else:
        with sqlite3.connect(file) as db:
            db.execute("CREATE TABLE accounts (id)")
        db.close()
    with pytest.raises(DestinationError, match="not an Iceberg catalog"):
        lake_at(tmp_path).schema.inspect([REF])


@pytest.mark.parametrize("name", ["a%20b", "a?b", "a#b"])
def test_a_folder_that_no_uri_can_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DestinationError, match="warehouse"):
        create(lake_at(tmp_path / name))


def test_folders_with_spaces_and_other_letters_work(tmp_path: Path) -> None:
    lake = lake_at(tmp_path / "my läke 🦆")
    create(lake)
    lake.write.append(REF, [stage(lake, REF, [{"id": 1}])], Commit("run-1", 1))
    assert len(rows_of(lake)) == 1


def test_a_table_of_somebody_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    lake = lake_at(tmp_path / "lake")
    create(lake, table(name="ours"))
    lake.lake.catalog.create_table(REF, pa.schema([("x", pa.int64())]))
    for attempt in (
        lambda: lake.schema.inspect([REF]),
        lambda: lake.write.target(REF),
        lambda: lake.schema.state(REF),
        lambda: lake.write.append(REF, [], Commit("run-1", 1)),
        lambda: lake.write.claim(REF, 3),
        lambda: create(lake),
    ):
        with pytest.raises(DestinationError, match="not ours"):
            attempt()
    assert lake.schema.tables() == [("shop", "ours")]


def test_a_table_of_somebody_else_can_be_adopted_as_it_is(tmp_path: Path) -> None:
    lake = lake_at(tmp_path / "lake")
    create(lake, table(name="ours"))
    foreign = lake.lake.catalog.create_table(REF, pa.schema([("x", pa.int64()), ("y", pa.string())]))
    foreign.append(pa.table({"x": [1], "y": ["kept"]}))
    described = replace(table(column("x", "int64", key=1), column("y", "json")), columns=(X, Y))
    for wrong in ((X,), (X, replace(Y, name="z")), (X, replace(Y, type=X.type))):
        with pytest.raises(DestinationError, match="not as described"):
            lake.schema.adopt(REF, replace(described, columns=wrong), Commit("run-1", 1))
    lake.schema.adopt(REF, described, Commit("run-1", 1))
    assert lake.schema.inspect([REF]).tables == (described,)
    lake.write.append(REF, [stage(lake, REF, [{"x": 2, "y": "new"}])], Commit("run-1", 1))
    assert rows_of(lake) == [(1, "kept"), (2, "new")]


def test_a_partitioned_table_is_not_adopted(tmp_path: Path) -> None:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import LongType, NestedField

    lake = lake_at(tmp_path / "lake")
    create(lake, table(name="ours"))
    spec = PartitionSpec(PartitionField(source_id=1, field_id=1000, transform=IdentityTransform(), name="x"))
    schema = Schema(NestedField(1, "x", LongType(), required=False))
    lake.lake.catalog.create_table(REF, schema, partition_spec=spec)
    with pytest.raises(DestinationError, match="unpartitioned"):
        lake.schema.adopt(REF, replace(table(), columns=(X,)), Commit("run-1", 1))


def test_a_lake_that_was_given_another_name_keeps_its_tables(tmp_path: Path) -> None:
    create(lake_at(tmp_path / "lake", "first"))
    renamed = lake_at(tmp_path / "lake", "second")
    assert renamed.schema.inspect([REF]).tables == (ORDERS,)
    assert "spark.sql.catalog.first" in renamed.lifecycle.spark_catalog()


def test_a_sqlite_catalog_of_a_remote_warehouse_needs_a_place() -> None:
    with pytest.raises(DestinationError, match="REST"):
        IcebergDestination(IcebergConfig.resolved(name="lake", warehouse="s3://bucket/lake")).schema.inspect([REF])


SECRET = {"uri": "http://127.0.0.1:9", "credential": "me:hunter2", "s3.secret-access-key": "hunter3", "scope": "all"}


def test_secrets_show_nowhere() -> None:
    lake = IcebergDestination(
        IcebergConfig.resolved(name="lake", warehouse="s3://bucket/lake", catalog="rest", properties=SECRET)
    )
    conf = lake.lifecycle.spark_catalog()
    assert "hunter" not in repr(lake.config) + repr(lake.lake) + json.dumps(dict(conf))
    assert conf["spark.sql.catalog.lake.uri"] == "http://127.0.0.1:9"
    assert conf["spark.sql.catalog.lake.scope"] == "all"
    assert lake.lake.spark_secrets() == {
        "spark.sql.catalog.lake.credential": "me:hunter2",
        "spark.sql.catalog.lake.s3.secret-access-key": "hunter3",
    }
    assert "hunter" not in lake.lake.redacted("401 for me:hunter2 and hunter3")


def test_a_catalog_that_does_not_answer_is_named_without_its_credentials() -> None:
    lake = IcebergDestination(
        IcebergConfig.resolved(name="lake", warehouse="s3://bucket/lake", catalog="rest", properties=SECRET)
    )
    with pytest.raises(ConnectError, match="rest catalog does not answer") as caught:
        lake.write.claim(REF, 1)
    assert "hunter" not in str(caught.value)


def test_spark_reaches_the_same_tables(tmp_path: Path) -> None:
    conf = lake_at(tmp_path / "lake").lifecycle.spark_catalog()
    assert conf["spark.sql.catalog.lake.jdbc.schema-version"] == "V1"
    assert conf["spark.sql.catalog.lake.cache-enabled"] == "false"
    assert "busy_timeout=60000" in conf["spark.sql.catalog.lake.uri"]


def test_many_tables_are_inspected_with_little_work_and_without_pyiceberg(tmp_path: Path) -> None:
    lake = lake_at(tmp_path / "lake")
    tables = [table(*ORDERS.columns[:3], name=f"t{i}") for i in range(40)]
    for wanted in tables:
        create(lake, wanted)
    code = (
        "import sys; from instep.destinations.iceberg.destination import *;"
        f"lake = IcebergDestination(IcebergConfig.resolved(name='lake', warehouse={str(tmp_path / 'lake')!r}));"
        "found = lake.schema.inspect([('shop', f't{i}') for i in range(200)]);"
        "heavy = {m.split('.')[0] for m in sys.modules} & {'pyiceberg', 'pyspark', 'sqlalchemy'};"
        "print(len(found.tables), heavy)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["40", "set()"]
    fresh = lake_at(tmp_path / "lake")
    assert calls_of(lambda: fresh.schema.inspect([("shop", f"t{i}") for i in range(200)])) < 60_000


def test_a_lock_held_elsewhere_is_waited_for(tmp_path: Path) -> None:
    lake = lake_at(tmp_path / "lake")
    create(lake)
    other = sqlite3.connect(tmp_path / "lake" / "catalog.db", check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    begun = time.monotonic()
    threading.Timer(1.0, lambda: (other.rollback(), other.close())).start()
    lake.write.append(REF, [stage(lake, REF, [{"id": 1}])], Commit("run-1", 1))
    assert time.monotonic() - begun > 0.5
    assert len(rows_of(lake)) == 1


def test_a_name_that_comes_back_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    lake = lake_at(tmp_path / "lake")
    assert lake.lake.new_location(("a/b", "../x?#")) != lake.lake.new_location(("a/b", "../x?#"))
    assert "/../" not in lake.lake.new_location(("a/b", "../x?#"))


def test_of_commits_at_once_each_lands_whole_or_is_refused(tmp_path: Path) -> None:
    """The pointer moves from the metadata that a commit was made from, or not at all."""
    create(lake_at(tmp_path))
    landed: list[str] = []

    def commit(who: int) -> None:
        catalog = lake_at(tmp_path).lake.catalog
        for n in range(5):  # 20 in all: the metadata lists no more of its predecessors
            with suppress(CommitFailedException):
                catalog.commit_table(catalog.load_table(REF), (), (set_properties({f"by-{who}-{n}": "x"}),))
                landed.append(f"by-{who}-{n}")

    threads = [threading.Thread(target=commit, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table = lake_at(tmp_path).lake.catalog.load_table(REF)
    assert sorted(landed) == sorted(name for name in table.properties if name.startswith("by-"))
    assert len(table.metadata.metadata_log) == len(landed) >= 4


def test_of_creations_at_once_one_lands(tmp_path: Path) -> None:
    lake = lake_at(tmp_path).lake
    lake.ensure_namespace(REF[0])
    made = [new_table(lake.catalog, REF, Schema(), lake.new_location(REF), {}) for _ in range(2)]
    made[0].land_new()
    with pytest.raises(Conflict):
        made[1].land_new()
    with pytest.raises(CommitFailedException, match="faster"):
        lake.catalog._point(REF, None, "file:///other.metadata.json")
