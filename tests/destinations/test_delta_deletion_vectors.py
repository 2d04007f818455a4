"""Rows that another program has deleted by a vector are no rows of the table, whatever is done with it."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from delta_spark import ask
from delta_world import Warehouse
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from instep.destinations.base import MaintenanceSpec
from instep.destinations.delta.protocol.deletion_vectors import decoded, deleted_places
from instep.destinations.delta.protocol.snapshot import Action
from instep.errors import DestinationError
from instep.schema.maintenance import Maintenance
from lake import REF, rows_of

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
VECTORS = {"delta.enableDeletionVectors": "true"}


def z85(content: bytes) -> str:
    found = ""
    for start in range(0, len(content), 4):
        number, letters = int.from_bytes(content[start : start + 4], "big"), ""
        for _ in range(5):
            number, rest = divmod(number, 85)
            letters = Z85[rest] + letters
        found += letters
    return found


def bitmap(places: Iterable[int]) -> bytes:
    return (1681511377).to_bytes(4, "little") + BitMap64(places).serialize()


def vector(folder: Path, places: set[int], *, inline: bool = False, prefix: str = "") -> dict[str, Any]:
    """A vector in a file of its own, behind another one, or in the log."""
    data = bitmap(places)
    facts = {"sizeInBytes": len(data), "cardinality": len(places)}
    if inline:
        padded = data + b"\0" * (-len(data) % 4)
        return {"storageType": "i", "pathOrInlineDv": z85(padded), **facts}
    name = uuid.uuid4()
    (folder / prefix).mkdir(exist_ok=True)
    block = len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")
    (folder / prefix / f"deletion_vector_{name}.bin").write_bytes(b"\1" + b"before" + block)
    return {"storageType": "u", "pathOrInlineDv": prefix + z85(name.bytes), "offset": 7, **facts}


def delete(shop: Warehouse, *places: int, first: str = "remove", **how: Any) -> None:
    """What Spark's DELETE commits for the first file of the table."""
    held = shop.held
    file, metadata, protocol = held.files[0], held.snapshot.metadata, held.snapshot.protocol
    features = {k: [*protocol[k], "deletionVectors"] for k in ("readerFeatures", "writerFeatures")}
    old = {n: file[n] for n in ("path", "partitionValues", "size", "deletionVector") if n in file}
    changes: list[Action] = [
        {"remove": {**old, "deletionTimestamp": 1, "dataChange": True, "extendedFileMetadata": True}},
        {"add": {**file, "deletionVector": vector(held.folder, set(places), **how)}},
    ]
    more: list[Action] = [
        {"commitInfo": {}},
        {"protocol": {**protocol, **{k: list(dict.fromkeys(v)) for k, v in features.items()}}},
        {"metaData": {**metadata, "configuration": {**metadata["configuration"], **VECTORS}}},
    ]
    assert held.log.put(held.snapshot.version + 1, [*more, *(changes if first == "remove" else changes[::-1])])


@pytest.fixture
def shop(tmp_path: Path) -> Warehouse:
    made = Warehouse(tmp_path)
    made.overwrite(*({"id": n, "name": f"n{n}"} for n in range(1, 7)))
    return made


def names(shop: Warehouse) -> dict[int, str]:
    return {row[0]: row[1] for row in shop.rows("id", "name")}


WAYS = [{}, {"inline": True}, {"prefix": "ab"}, {"first": "add"}]


@pytest.mark.parametrize("how", WAYS, ids=["file", "inline", "folder", "order"])
def test_deleted_rows_are_not_read_and_do_not_come_back(shop: Warehouse, how: dict[str, Any]) -> None:
    delete(shop, 1, 4, **how)
    left = {1: "n1", 3: "n3", 4: "n4", 6: "n6"}
    assert names(shop) == left
    assert shop.held.rows == 4
    scan = shop.to.write.scan(REF, ["id"])
    with scan.reader.open() as reader:
        assert sorted(i for c in scan.chunks for b in reader.read(c) for i in b.column(0).to_pylist()) == sorted(left)
    delete(shop, 1, 4, 5, **how)
    shop.held.log.checkpoint(shop.held.snapshot, 0)
    shop.forget()
    assert names(shop) == {1: "n1", 3: "n3", 4: "n4"}
    assert shop.merge({"id": 3, "name": "new"}, {"id": 5, "name": "back"}).updated == 1
    assert names(shop) == {1: "n1", 3: "new", 4: "n4", 5: "back"}
    assert [f for f in shop.held.files if "deletionVector" in f] == []
    assert shop.held.rows == 4


def test_files_of_a_version_are_told_apart_by_their_deleted_rows(shop: Warehouse) -> None:
    before = shop.to.lifecycle.savepoints.savepoints(REF)[0]
    delete(shop, 0)
    delete(shop, 0, 1)
    points = shop.to.lifecycle.savepoints.savepoints(REF)
    shop.to.lifecycle.savepoints.restore(REF, points[1].id, points[0].id, 5, shop.commit())
    assert sorted(names(shop)) == [2, 3, 4, 5, 6]
    points = shop.to.lifecycle.savepoints.savepoints(REF)
    shop.to.lifecycle.savepoints.restore(REF, before.id, points[0].id, 6, shop.commit())
    assert sorted(names(shop)) == [1, 2, 3, 4, 5, 6]


def test_a_copy_needs_no_vector(shop: Warehouse) -> None:
    delete(shop, 2)
    copy = ("shop", "copy")
    assert shop.to.lifecycle.clones.clone_table(REF, copy, shop.commit()) == 5
    for file in shop.held.folder.glob("*.bin"):
        file.unlink()
    assert [row[0] for row in rows_of(shop.to, copy, ["id"])] == [1, 2, 4, 5, 6]


def test_maintenance_writes_worn_files_again(tmp_path: Path) -> None:
    shop = Warehouse(tmp_path)
    shop.overwrite(*({"id": n} for n in range(30_000)))
    delete(shop, *range(0, 30_000, 2))
    how = Maintenance(delete_ratio=0.4)
    fence = shop.commit().fence
    done = shop.to.maintenance.maintain(REF, MaintenanceSpec(how, "r", fence))
    assert done.rewritten == 1
    assert shop.held.rows == 15_000
    assert [f for f in shop.held.files if "deletionVector" in f] == []
    assert sorted(row[0] for row in shop.rows("id")) == [*range(1, 30_000, 2)]


DAMAGES = [
    ("the file is gone", lambda f: f.unlink(), "FileNotFoundError"),
    ("another byte", lambda f: f.write_bytes(f.read_bytes()[:-6] + b"\xff" + f.read_bytes()[-5:]), "checksum"),
    ("cut off", lambda f: f.write_bytes(f.read_bytes()[:-9]), "checksum"),
]


@pytest.mark.parametrize(("damage", "text"), [c[1:] for c in DAMAGES], ids=[c[0] for c in DAMAGES])
def test_a_damaged_vector_is_named_and_no_row_is_read(shop: Warehouse, damage: Any, text: str) -> None:
    delete(shop, 2)
    [file] = shop.held.folder.glob("*.bin")
    damage(file)
    with pytest.raises(DestinationError, match=f"deletion vector .* cannot be read: .*{text}") as caught:
        shop.rows()
    assert "REORG" in caught.value.hint
    with pytest.raises(DestinationError, match="cannot be read"):
        shop.merge({"id": 1, "name": "x"})


@given(st.sets(st.integers(0, 2**40), max_size=50))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, places: set[int]) -> None:
    folder = tmp_path_factory.mktemp("vectors")
    for inline in (True, False):
        assert deleted_places(folder, vector(folder, places, inline=inline)).tolist() == sorted(places)
    wrong = {**vector(folder, places), "cardinality": len(places) + 1}
    with pytest.raises(DestinationError, match="rows and not"):
        deleted_places(folder, wrong)
    with pytest.raises(DestinationError, match="stored as 'p'"):
        deleted_places(folder, {**wrong, "storageType": "p"})


@given(st.binary(max_size=40).map(lambda b: b + b"\0" * (-len(b) % 4)))
def test_texts_are_bytes(content: bytes) -> None:
    assert decoded(z85(content)) == content


@pytest.mark.drawn(5)
@pytest.mark.slow
def test_spark_deletes_by_vectors_and_syncs_go_on(tmp_path: Path) -> None:
    shop = Warehouse(tmp_path)
    shop.overwrite(*({"id": n, "name": f"n{n}"} for n in range(1, 101)))
    at = f"delta.`{shop.held.folder}`"
    ask(
        tmp_path,
        [
            f"ALTER TABLE {at} SET TBLPROPERTIES ('delta.enableDeletionVectors' = true, "
            "'delta.enableInCommitTimestamps' = true)",
            f"DELETE FROM {at} WHERE id IN (2, 50)",  # noqa: S608 - ours
            f"DELETE FROM {at} WHERE id = 51",  # noqa: S608 - ours
        ],
    )
    assert [f["deletionVector"]["cardinality"] for f in shop.held.files] == [3]
    assert sorted(names(shop)) == [n for n in range(1, 101) if n not in (2, 50, 51)]
    shop.append({"id": 101, "name": "new"})
    shop.merge({"id": 3, "name": "changed"}, {"id": 50, "name": "back"})
    [said] = ask(tmp_path, [f"SELECT id, name FROM {at} WHERE id IN (2, 3, 50, 51, 101)"])[-1:]  # noqa: S608 - ours
    assert sorted((int(r["id"]), r["name"]) for r in said) == [(3, "changed"), (50, "back"), (101, "new")]
    last = [action for v in shop.held.log.versions()[-3:] for action in shop.held.log.actions(v)]
    times = [a["commitInfo"]["inCommitTimestamp"] for a in last if "commitInfo" in a]
    assert times == sorted(set(times))
