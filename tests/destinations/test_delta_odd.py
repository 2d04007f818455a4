"""A Delta table under odd names and texts, beside what others wrote, and on disks that refuse."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from delta_world import Warehouse

from instep.destinations.base import Commit, MaintenanceSpec
from instep.destinations.delta.protocol.log import EVERY
from instep.errors import ConnectError, DestinationError, SchemaError, StageError
from instep.schema.changes.kinds import ColumnAdded, ColumnComment, ColumnRemoved, ColumnRenamed, TableRemoved
from instep.schema.maintenance import Maintenance
from instep.schema.planning.step import RewriteColumn, UndropColumn, step
from lake import ID, ORDERS, REF, column, create, rows_of, stage, table

ODD = ["100%", '"quoted"', "it's", "back\\slash", "new\nline", "u\u2028", "a b", "é", "a.b", "c0", "f", "p", ".", "_x"]
SHELF = table(ID, *(column(name, "string") for name in ODD))
NAME = ORDERS.columns[1]
WITHOUT = replace(ORDERS, columns=tuple(c for c in ORDERS.columns if c is not NAME))


@pytest.fixture
def shop(tmp_path: Path) -> Warehouse:
    made = Warehouse(tmp_path)
    made.append({"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    return made


def row(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, **{name: f"{name}{number}" for name in ODD}, **more}


def test_names_of_columns_may_be_anything(tmp_path: Path) -> None:
    shop = Warehouse(tmp_path, SHELF)
    shop.append(row(1), row(2))
    assert shop.merge(row(2), row(3), {**row(1), "a.b": "new"}).updated == 1
    assert shop.rows("id", "a.b") == [(1, "new"), (2, "a.b2"), (3, "a.b3")]
    shop.overwrite(row(1))
    shop.append(row(2))
    now = shop.to.schema.inspect([REF]).get(REF)
    assert now == SHELF
    names = [*ODD[1:], ODD[0]]
    moved = [replace(SHELF.by_name[a], name=b) for a, b in zip(ODD, names, strict=True)]
    turned = replace(SHELF, columns=(ID, *moved, *SHELF.columns[-3:]))
    shop.change(turned, *(ColumnRenamed(REF, SHELF.by_name[a], b) for a, b in zip(ODD, moved, strict=True)))
    shop.append({"id": 3, **{b: f"{a}3" for a, b in zip(ODD, names, strict=True)}})
    shop.merge({"id": 2, **{b: f"{a}4" for a, b in zip(ODD, names, strict=True)}})
    assert shop.rows(*names) == sorted([tuple(f"{a}{n}" for a in ODD) for n in (1, 3, 4)], key=repr)
    assert shop.to.schema.inspect([REF]).get(REF) == turned


def test_a_name_that_was_made_up_is_no_other_columns(tmp_path: Path) -> None:
    """Dropped and added again until its physical name would be that of a neighbour."""
    a = column("a", "string")
    others = tuple(column(f"a-{n}", "string") for n in range(7, 10))
    full, less = table(ID, a, *others), table(ID, *others)
    shop = Warehouse(tmp_path, full)
    shop.append({"id": 1, "a": "0", **{c.name: c.name for c in others}})
    for number in range(1, 4):
        current = shop.to.schema.inspect([REF]).tables[0]
        shop.change(less, ColumnRemoved(REF, current.by_name["a"], 1))
        shop.change(replace(full, columns=(ID, *others, *full.columns[-3:], a)), ColumnAdded(REF, a, 5))
        shop.merge({"id": 1, "a": str(number), **{c.name: c.name for c in others}})
        assert shop.rows("id", "a", "a-7", "a-8", "a-9") == [(1, str(number), "a-7", "a-8", "a-9")]
        assert len({f.physical for f in shop.held.layout}) == len(shop.held.layout)


def test_a_file_system_without_links_or_locks_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Warehouse(tmp_path)
    before = shop.held.snapshot.version

    def fails(*_: Any, **__: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "link", fails)
    with pytest.raises(DestinationError, match="hard links"):
        shop.append({"id": 1})
    monkeypatch.undo()
    monkeypatch.setattr(fcntl, "flock", fails)
    with pytest.raises(DestinationError, match="locks no files"):
        shop.commit()
    monkeypatch.undo()
    assert (shop.held.snapshot.version, shop.rows()) == (before, [])


def test_a_link_whose_answer_was_lost_is_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop, link = Warehouse(tmp_path), os.link

    def lost(source: Path, target: Path) -> None:
        link(source, target)
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr(os, "link", lost)
    shop.append({"id": 1})
    assert shop.rows("id") == [(1,)]


TEXTS = ["it's 100%", "two\nlines", "u\u2028\u2029\x85", '"', "\\"]


@pytest.mark.parametrize("text", TEXTS, ids=[ascii(t) for t in TEXTS])
def test_comments_and_cursors_may_be_anything(tmp_path: Path, text: str) -> None:
    shop = Warehouse(tmp_path, table(ID, column("v", "int32", comment=text), comment=text))
    shop.to.write.append(REF, [stage(shop.to, REF, [{"id": 1}])], shop.commit("r", cursor=json.dumps(text)))
    wanted = table(ID, column("v", "int32", comment=text), comment=text)
    assert shop.to.schema.inspect([REF]).get(REF) == wanted
    assert json.loads(shop.to.schema.state(REF).cursor) == text
    bare = table(ID, column("v", "int32"))
    shop.change(bare, ColumnComment(REF, wanted.columns[1], bare.columns[1]))
    assert shop.to.schema.inspect([REF]).get(REF) == bare


def test_a_name_too_long_for_a_folder_is_refused(shop: Warehouse) -> None:
    with pytest.raises(SchemaError, match="too long for a folder"):
        create(shop.to, replace(ORDERS, name="/" * 100, id="x"), shop.commit())
    assert shop.to.schema.tables() == [REF]


def _full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_checkpoint_that_cannot_be_written_stops_no_load(shop: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.destinations.delta.protocol.checkpoint.content", _full)
    while shop.held.snapshot.version < EVERY + 1:
        shop.append({"id": 10 + shop.fence})
    assert len(shop.rows()) == shop.to.schema.state(REF).rows
    assert list(shop.held.log.folder.glob(".instep-*")) == []


def test_a_dropped_table_that_is_half_deleted_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Warehouse(tmp_path, undo_days=0)
    shop.append({"id": 1})
    shop.to.schema.execute(REF, [step(REF, TableRemoved(ORDERS))], None, shop.commit())
    [one] = shop.to.warehouse.waiting()
    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            shop.to.warehouse.delete(one.folder)
    assert not shop.to.lifecycle.dropped(REF, ORDERS.id)
    with pytest.raises(DestinationError, match="is no longer retained"):
        shop.to.schema.undrop_table(REF, ORDERS, shop.commit())
    shop.to.lifecycle.purge_expired([], 1)
    assert list(one.folder.parent.iterdir()) == [], "the next one finishes it"


def _interrupted(path: Path) -> None:
    raise KeyboardInterrupt


ABSOLUTE = ["file://{}", "file:{}", "{}"]


@pytest.mark.parametrize("spelled", ABSOLUTE)
def test_files_of_others_may_lie_elsewhere(shop: Warehouse, tmp_path: Path, spelled: str) -> None:
    held = shop.held
    [file] = held.files
    other = tmp_path / "else where.parquet"
    other.write_bytes((held.folder / file["path"]).read_bytes())
    path = spelled.format(str(other).replace(" ", "%20"))
    bare = {k: v for k, v in file.items() if k != "stats"} | {"path": path}
    held.log.put(held.snapshot.version + 1, [{"commitInfo": {}}, {"add": bare}])
    assert shop.rows("id") == [(1,), (1,), (2,), (2,)]
    assert shop.held.rows == 4
    shop.append({"id": 3})
    assert shop.to.schema.state(REF).rows == 5


def test_maintenance_deletes_nothing_outside_the_table(tmp_path: Path) -> None:
    shop = Warehouse(tmp_path, undo_days=0)
    shop.append({"id": 1})
    held = shop.held
    [file] = held.files
    theirs = tmp_path / "theirs.parquet"
    theirs.write_bytes((held.folder / file["path"]).read_bytes())
    held.log.put(held.snapshot.version + 1, [{"commitInfo": {}}, {"add": {**file, "path": theirs.as_uri()}}])
    shop.overwrite({"id": 2})
    time.sleep(0.01)
    eager = Maintenance(min_files=2, keep_snapshots=1, max_snapshot_age=0, orphan_age=0)
    assert shop.to.maintenance.maintain(REF, MaintenanceSpec(eager, "r-maintain", shop.fence)).removed == 1
    assert theirs.exists()
    assert not (held.folder / file["path"]).exists()
    assert shop.rows("id") == [(2,)]


REFUSED: list[tuple[str, Any, type[Exception], str]] = [
    ("merge without key", lambda s: s.to.write.merge(None, REF, [], _merge(), s.commit()), DestinationError, "no key"),
    ("a key that is NULL", lambda s: s.merge({"id": None, "name": "x"}), StageError, "1 staged rows have NULL"),
    ("a column that is not there", lambda s: s.to.write.read(REF, ["none"]), DestinationError, "no column 'none'"),
    ("a table that is not there", lambda s: s.to.write.target(("shop", "none")), DestinationError, "is not there"),
    ("a purge of a table", lambda s: s.to.lifecycle.clones.purge_clone(REF, s.fence), DestinationError, "not a copy"),
    ("another's name", lambda s: s.to.schema.undrop_table(REF, replace(ORDERS, id="x"), s.commit()), DestinationError,
     "is now called"),
]  # fmt: skip


def _merge(key: tuple[str, ...] = ()) -> Any:
    from instep.destinations.base import Merge

    return Merge(key)


@pytest.mark.parametrize(("attempt", "error", "text"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_what_is_refused_leaves_the_table(shop: Warehouse, attempt: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        attempt(shop)
    assert getattr(caught.value, "hint", "")
    assert shop.rows("id", "name") == [(1, "a"), (2, "b")]
    assert list(shop.held.folder.joinpath("data").glob("*-rewrite-*")) == []


REWRITES = [("no number", "int32", "x"), ("too big", "int8", "300"), ("no day", "date", "2026-02-30")]


@pytest.mark.parametrize(("kind", "value"), [c[1:] for c in REWRITES], ids=[c[0] for c in REWRITES])
def test_a_rewrite_that_would_lose_a_value_is_refused(tmp_path: Path, kind: str, value: str) -> None:
    old, new = column("v", "string"), column("v", kind)
    shop = Warehouse(tmp_path, table(ID, old))
    shop.append({"id": 1, "v": "1" if kind != "date" else "2026-01-01"})
    shop.append({"id": 2, "v": value})
    files, version = shop.files(), shop.held.snapshot.version + 1
    with pytest.raises(SchemaError, match="do not fit"):
        shop.change(table(ID, new), RewriteColumn(REF, old, new))
    assert (shop.files(), shop.held.snapshot.version) == (files, version), "the claim only"
    assert list(shop.held.folder.joinpath("data").glob("*-rewrite-*")) == [], "what was written for it is gone"
    assert shop.to.write.count_invalid_values(REF, "v", new.type).count == 1


def test_two_drops_of_one_column_wait_side_by_side(shop: Warehouse) -> None:
    for value in ("x", "y"):
        shop.change(WITHOUT, ColumnRemoved(REF, NAME, 1))
        shop.change(ORDERS, ColumnAdded(REF, NAME, 1))
        shop.merge({"id": 1, "name": value})
    shop.change(WITHOUT, ColumnRemoved(REF, NAME, 1))
    shop.change(ORDERS, UndropColumn(REF, NAME, NAME))
    assert shop.rows("id", "name") == [(1, "y"), (2, None)]
    assert len(shop.held.parked) == 2


def test_a_folder_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    shop = Warehouse(tmp_path)
    (tmp_path / "file").write_text("")
    odd = type(shop.to)(shop.to.config.model_copy(update={"warehouse": str(tmp_path / "file")}))
    with pytest.raises(ConnectError, match="Not a directory"):
        odd.schema.tables()
    assert [c.ok for c in odd.lifecycle.test()] == [False]


def test_a_run_that_comes_twice_brings_its_rows_once(shop: Warehouse) -> None:
    commit = shop.commit("again")
    file = stage(shop.to, REF, [{"id": 3}])
    assert [shop.to.write.append(REF, [file], commit).inserted for _ in range(2)] == [1, 0]
    assert [shop.to.write.overwrite(REF, [], Commit("none", shop.fence)).deleted for _ in range(2)] == [3, 0]
    assert rows_of(shop.to) == []
