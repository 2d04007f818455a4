"""Partitions of Iceberg tables that the settings say: every operation leaves rows and partition values right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import Table as IcebergTable

from instep.model import TableSettings
from sync_world import MakeWorld, World

TABLE = "CREATE TABLE t (id int PRIMARY KEY, region varchar(20), at timestamp, amount decimal(9,2), note text)"
ROWS = """INSERT INTO t VALUES
 (1, 'a/b=c%d', '1969-12-31 23:59:59.5', -1.25, 'x'), (2, '', '1970-01-01 00:00:00', 0, 'y'),
 (3, NULL, NULL, NULL, NULL), (4, 'ä€😀', '2024-02-29 12:00:00', 9999999.99, 'z'),
 (-5, 'a/b=c%d', '0001-01-01', 7, '')"""
BY = ("bucket(4, id)", "region", "month(at)")


def table(world: World) -> IcebergTable:
    found: IcebergTable | None = world.destination.lake.load(("shop", "t"))
    assert found is not None
    return found


def entries(loaded: IcebergTable) -> Iterator[DataFile]:
    snapshot = loaded.current_snapshot()
    for manifest in snapshot.manifests(loaded.io) if snapshot else ():
        for entry in manifest.fetch_manifest_entry(loaded.io, discard_deleted=True):
            yield entry.data_file


def wrong_places(world: World) -> list[str]:
    """Data files with a row that belongs to another partition, by pyiceberg's own transforms; delete files that are not
    where their data file is."""
    loaded = table(world)
    files = {f.file_path: f for f in entries(loaded)}
    wrong = [path for path, f in files.items() if f.content == DataFileContent.DATA and not _is_right(loaded, f)]
    for task in loaded.scan().plan_files():
        for deletes in task.delete_files:
            if (deletes.spec_id, deletes.partition) != (task.file.spec_id, task.file.partition):
                wrong.append(deletes.file_path)
    return wrong


def _is_right(loaded: IcebergTable, file: DataFile) -> bool:
    import pyarrow.parquet as pq

    spec, schema = loaded.specs()[file.spec_id], loaded.schema()
    rows = pq.read_table(file.file_path.removeprefix("file://"))
    names = {int(f.metadata[b"PARQUET:field_id"]): f.name for f in rows.schema if f.metadata}
    for number, field in enumerate(spec.fields):
        kind = schema.find_field(field.source_id).field_type
        change = field.transform.transform(kind)
        if {_plain(change(v)) for v in rows[names[field.source_id]].to_pylist()} != {file.partition[number]}:
            return False
    return True


def _plain(value: Any) -> Any:
    return value


def synced(world: World, **wanted: Any) -> None:
    """A sync that leaves everything as it should be."""
    report = world.sync(**wanted)
    assert [t.error for t in report.tables if t.error] == []
    assert (report.status, wrong_places(world), world.differing()) == ("done", [], {})


def begun(world: World, by: tuple[str, ...] = BY) -> World:
    world.settings["t"] = TableSettings(partition=by)
    world.run(TABLE, ROWS)
    assert world.sync().status == "done"
    return world


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
def test_a_new_table_is_partitioned_from_its_first_commit(make_world: MakeWorld, kind: str) -> None:
    world = begun(make_world(kind))
    spec = table(world).spec()
    assert [str(f.transform) for f in spec.fields] == ["bucket[4]", "identity", "month"]
    assert (wrong_places(world), world.differing()) == ([], {})
    assert len(list(entries(table(world)))) == 5
    assert [s.text for s in world.preview().plan.steps] == []
    world.run("UPDATE t SET region = 'q' WHERE id = 1", "DELETE FROM t WHERE id = 2", "INSERT INTO t (id) VALUES (9)")
    synced(world)
