"""Files that arrive, change and go, synced into a lake without a JVM."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from contract.sources import Case
from files_world import new_store, write, write_parquet
from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.errors import ConnectError
from instep.project.sections.file_settings import FileOptions
from instep.project.sections.tables import TableSettings
from instep.schema.selection.selection import Selection, patterns
from instep.sources.base import Source
from instep.sources.files.config import FilesConfig
from instep.sources.files.source import FilesSource
from instep.sync.quarantine.replay import replay
from quarantined import entries_of
from sync_world import World, counts, preset

NEW_FILES = TableSettings(mode="append", cursor="_file_number")


@dataclass
class Drop:
    """A folder and a world that reads it; `config` may be changed between syncs."""

    folder: Path
    config: FilesConfig
    world: World

    def write(self, name: str, content: str | bytes) -> None:
        write(self.folder / name, content)

    def delete(self, name: str) -> None:
        (self.folder / name).unlink()

    def places(self) -> list[tuple[str, ...]]:
        """(column, original, place, status) of what is held of all tables."""
        return sorted((e.column, e.original, e.place, e.status) for e in entries_of(self.world.context))


@pytest.fixture
def drop(tmp_path: Path) -> Iterator[Drop]:
    with ExitStack() as stack:
        files = stack.enter_context(new_store(tmp_path / "files.db"))
        folder = tmp_path / "drop"
        folder.mkdir()
        found: list[Drop] = []

        def source(**options: Any) -> Source:
            return FilesSource(found[0].config, files.source_files)

        case = Case("files", "files", _nothing, source, str, views=False)
        world = World(case, tmp_path)
        stack.callback(world.close)
        found.append(Drop(folder, FilesConfig.resolved(path=str(folder), metadata=("_file_number",)), world))
        yield found[0]


def _nothing(sql: str) -> None:
    raise NotImplementedError(sql)


def reading(change: Callable[[World], Any], world: World, name: str = "t") -> tuple[int, int]:
    """(rows read, rows inserted) of the next sync."""
    report = change(world)
    assert [t.error for t in report.tables if t.error] == []
    read, inserted, *_ = counts(report, name)
    return read, inserted


def test_new_files_are_appended_whatever_their_dates(drop: Drop) -> None:
    world, world.settings = drop.world, {"t": NEW_FILES}
    drop.write("t/b.csv", "n\n1\n2\n")
    assert reading(World.sync, world) == (2, 2)
    assert reading(World.sync, world) == (0, 0)
    drop.write("t/a.csv", "n\n3\n")
    os.utime(drop.folder / "t/a.csv", ns=(1, 1))
    write_parquet(drop.folder / "t/c.parquet", {"n": [4]})
    assert reading(World.sync, world) == (2, 2)
    assert world.rows("t", "n") == [(1,), (2,), (3,), (4,)]
    assert world.differing() == {}


def test_a_changed_file_replaces_its_rows(drop: Drop) -> None:
    """Into a DuckDB file: rows of a lake from a number on are replaced by Spark."""
    world, world.settings = drop.world, {"t": NEW_FILES}
    destination: Any = DuckDbDestination(
        DuckDbConfig.resolved(name="warehouse", path=str(world.folder / "shop.duckdb"))
    )
    world.destination = destination
    for name, value in (("a", 1), ("b", 2), ("c", 3)):
        drop.write(f"t/{name}.csv", f"n\n{value}\n")
        world.sync()
    drop.write("t/b.csv", "n\n20\n21\n")
    assert reading(World.sync, world)[0] == 3
    assert world.rows("t", "n") == [(1,), (20,), (21,), (3,)]
    assert world.differing() == {}
    assert reading(World.sync, world) == (0, 0)


def test_rows_of_files_that_are_gone_stay(drop: Drop) -> None:
    world, world.settings = drop.world, {"t": NEW_FILES}
    for name, value in (("a", 1), ("b", 2), ("c", 3)):
        drop.write(f"t/{name}.csv", f"n\n{value}\n")
    world.sync()
    drop.delete("t/c.csv")
    drop.write("t/d.csv", "n\n4\n")
    (note,) = world.sync().notes
    assert note == "files.t: 1 files that were read are gone (t/c.csv, ...): their rows stay"
    assert world.rows("t", "n") == [(1,), (2,), (3,), (4,)]
    drop.write("t/a.csv", "n\n10\n")
    assert any("t/a.csv changed: read again beside" in n for n in world.sync().notes)
    assert world.rows("t", "n") == [(1,), (10,), (2,), (3,), (4,)]


def test_a_lost_record_of_files_is_no_reason_to_read_rows_twice(drop: Drop, tmp_path: Path) -> None:
    world, world.settings = drop.world, {"t": NEW_FILES}
    drop.write("t/a.csv", "n\n1\n")
    world.sync()
    drop.config = drop.config.model_copy(update={"name": "another"})
    report = world.sync()
    (error,) = [t.error for t in report.tables]
    assert "the store does not know which files were read up to _file_number" in error
    assert world.rows("t", "n") == [(1,)]
    world.sync(full=True)
    assert reading(World.sync, world) == (0, 0)
    assert world.rows("t", "n") == [(1,)]


def test_a_refresh_is_what_the_files_are_now(drop: Drop) -> None:
    drop.write("t/a.csv", "n,s\n1,x\n1,x\n")
    drop.write("t/b.jsonl", '{"n":2,"j":{"k":1.50}}\n')
    drop.world.sync()
    assert drop.world.rows("t", "n", "s", "j") == [(1, "x", None), (1, "x", None), (2, None, '{"k":1.50}')]
    drop.delete("t/b.jsonl")
    drop.write("t/a.csv", "s,n\ny,3\n")
    drop.world.sync(again=1, drop_retained=True)
    assert drop.world.rows("t", "n", "s") == [(3, "y")]


def test_a_column_of_a_later_file_is_added(drop: Drop) -> None:
    world, world.settings = drop.world, {"t": NEW_FILES}
    drop.write("t/a.csv", "n\n1\n")
    world.sync()
    drop.write("t/b.csv", "more,n\nx,2\n")
    world.sync()
    assert "column.added" in {e.kind for e in world.store.reviews.find("shop", ("applied",))}
    assert world.rows("t", "n", "more") == [(1, None), (2, "x")]
    assert world.differing() == {}


def test_a_wider_type_of_a_later_file_is_let_in(drop: Drop) -> None:
    world, world.settings = drop.world, {"t": NEW_FILES}
    write_parquet(drop.folder / "t/a.parquet", {"n": pa.array([1], pa.int32())})
    world.sync()
    write_parquet(drop.folder / "t/b.parquet", {"n": pa.array([2**40], pa.int64())})
    world.sync()
    assert world.schema("t") == "n int64, _file_number int64"
    assert world.rows("t", "n") == [(1,), (2**40,)]


def test_values_that_do_not_fit_are_held_with_their_place_and_replayed(drop: Drop) -> None:
    world = drop.world
    world.settings = {"t": TableSettings(cursor="_file_number", deletes="ignore")}
    drop.config = drop.config.model_copy(update={"key": ("id",)})
    drop.write("t/a.csv", "id,n\n1,10\n")
    world.sync()
    drop.write("t/b.csv", "id,n\n2,20\n3,30.5\nbroken\n")
    world.sync()
    assert world.rows("t", "id", "n") == [(1, 10), (2, 20), (3, None)]
    assert drop.places() == [
        ("", '{"_text":"broken"}', "t/b.csv:4", "held"), ("n", "30.5", "t/b.csv:3", "held")
    ]  # fmt: skip
    assert world.answer("approved", "column.retyped")
    world.sync()
    replay(world.context)
    assert world.rows("t", "id", "n") == [(1, 10.0), (2, 20.0), (3, 30.5)]
    assert [p[-1] for p in drop.places()] == ["held", "replayed"]


def test_a_later_file_corrects_rows_of_an_earlier_one(drop: Drop) -> None:
    world = drop.world
    world.settings = {"t": TableSettings(cursor="_file_number", deletes="ignore")}
    drop.config = drop.config.model_copy(update={"key": ("id",)})
    drop.write("t/a.csv", "id,n\n1,10\n2,20\n")
    drop.write("t/b.csv", "id,n\n2,21\n2,22\n")
    world.sync()
    assert world.rows("t", "id", "n") == [(1, 10), (2, 22)]
    drop.write("t/c.csv", "id,n\n1,11\n3,30\n")
    assert reading(World.sync, world) == (2, 1)
    assert world.rows("t", "id", "n") == [(1, 11), (2, 22), (3, 30)]
    assert world.differing() == {}


UNCOVERED: dict[str, tuple[dict[str, str], dict[str, str], list[tuple[int, int]]]] = {
    "the newest row leaves its file": ({"a": "1,10", "b": "1,11"}, {"b": "2,20"}, [(1, 10), (2, 20)]),
    "of two files that change": (
        {"a": "3,30", "b": "1,10", "c": "1,11"}, {"a": "3,31", "c": "2,20"}, [(1, 10), (2, 20), (3, 31)]
    ),
    "an earlier file changes": ({"a": "1,10", "b": "1,11"}, {"a": "1,12\n2,20"}, [(1, 12), (2, 20)]),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("deletes", ["soft", "ignore"])
@pytest.mark.parametrize(("before", "after", "expected"), list(UNCOVERED.values()), ids=list(UNCOVERED))
def test_a_row_of_an_earlier_file_counts_again(
    drop: Drop, before: dict[str, str], after: dict[str, str], expected: list[tuple[int, int]], deletes: Any
) -> None:
    world = drop.world
    world.settings = {"t": TableSettings(cursor="_file_number", deletes=deletes)}
    drop.config = drop.config.model_copy(update={"key": ("id",)})
    for files in (before, after):
        for name, rows in files.items():
            drop.write(f"t/{name}.csv", f"id,n\n{rows}\n")
            if files is before:
                world.sync()
        world.sync()
    assert world.rows("t", "id", "n") == expected
    assert world.differing() == {}
    assert reading(World.sync, world) == (0, 0)


def test_values_that_are_not_quite_what_they_were_are_told(drop: Drop) -> None:
    moments = pa.array([1_000, 1_001, None], pa.timestamp("ns"))
    write_parquet(drop.folder / "t/a.parquet", pa.table({"at": moments, "n": [1, 2, 3]}))
    assert drop.world.sync().notes == ("files.t.at: digits below a microsecond cut (1 value)",)


def test_a_declared_invalid_value_policy_refuses_records_that_are_no_rows(drop: Drop) -> None:
    world, world.settings = drop.world, {"t": TableSettings(on_invalid_value="fail")}
    drop.write("t/a.csv", "a,b\n1,2\n3\n")
    (error,) = [t.error for t in world.sync().tables]
    assert "record 3 of t/a.csv is not a row: 1 values where 2 columns are" in error


def test_a_broken_file_holds_its_table_and_no_other(drop: Drop) -> None:
    world = drop.world
    write_parquet(drop.folder / "t/a.parquet", {"n": [1]})
    drop.write("u.csv", "n\n1\n")
    world.sync()
    drop.write("t/b.parquet", b"")
    drop.write("u.csv", "n\n2\n")
    report = world.sync(again=1)
    assert world.statuses(report) == {"t": "failed", "u": "done"}
    assert (world.rows("t", "n"), world.rows("u", "n")) == ([(1,)], [(2,)])
    drop.delete("t/b.parquet")
    assert world.statuses(world.sync())["t"] == "done"


@pytest.mark.parametrize("name", ["t.parquet", "t.json", "t.csv.gz"])
def test_a_new_table_that_cannot_be_read_fails_until_its_file_is_repaired(drop: Drop, name: str) -> None:
    world = drop.world
    drop.write("u.csv", "n\n1\n")
    drop.write(name, "[1]")
    for _ in range(2):
        report = world.sync()
        assert (report.status, world.statuses(report)) == ("partial", {"t": "failed", "u": "done"})
        assert name in next(t.error for t in report.tables if t.table[1] == "t")
        assert not any("t is not synced" in note for note in report.notes)
    assert any(text.startswith("a sync will fail files.t: ") for text in world.preview().partial)
    world.selection = Selection(exclude_tables=patterns(["files.t"]))
    assert world.sync().status == "done"
    world.selection, world.policy = Selection(), preset("block_all")
    assert world.sync().status == "done"
    world.policy = preset("allow_all")
    drop.delete(name)
    drop.write("t.csv", "n\n5\n")
    assert world.statuses(world.sync()) == {"t": "done", "u": "done"}
    assert world.rows("t", "n") == [(5,)]


@pytest.mark.parametrize("name", ["t/b.csv", "t/b.jsonl"])
def test_verify_counts_records_that_are_no_rows_as_long_as_their_file_has_them(drop: Drop, name: str) -> None:
    world, lines = drop.world, {"csv": ["1,2,3", "5,6"], "jsonl": ["[1]", '{"id": 5, "n": 6}']}[name.split(".")[1]]
    head = ["id,n"] if name.endswith("csv") else []
    drop.config = drop.config.model_copy(update={"key": ("id",)})
    drop.write("t/a" + name[3:], "\n".join([*head, {"csv": "1,10", "jsonl": '{"id": 1, "n": 10}'}[name.split(".")[1]]]))
    drop.write(name, "\n".join([*head, *lines, lines[0], ""]))
    world.sync()
    found = world.verify()["t"]
    assert (found.equal, found.held_rows, found.stale) == (True, 2, 0)
    assert (found.source_rows, found.destination_rows, found.waits) == (4, 2, True)
    drop.write(name, "\n".join([*head, lines[1], ""]))
    world.sync()
    found = world.verify()["t"]
    assert (found.equal, found.held_rows, found.stale, found.waits) == (True, 0, 2, False)


def test_files_that_no_reader_takes_are_named_until_a_setting_leaves_them_out(drop: Drop) -> None:
    """Once a table, counted; beside the tables once for all that is no data."""
    world = drop.world
    for name in ("t/a.csv", "t/b.avro", "t/c/d.zip", "t/e.avro", "only/x.orc", "notes/x.md", "y.md", "z.txt", "u.xlsx",
                 ".hidden.orc", "_SUCCESS", "t/.a.csv.crc"):  # fmt: skip
        drop.write(name, "n\n1\n")
    told = {
        "files.t": "3 files are not read, for no reader takes the format (.avro 2, .zip 1; t/b.avro)",
        "files.notes": "1 file is not read, for no reader takes the format (.md 1; notes/x.md)",
        "files": "2 files are not read, for no reader takes the format (.md 1, .txt 1; y.md)",
    }
    failing = {"only": "only/x.orc", "u": "u.xlsx"}
    for stored in (False, True):  # what was seen before is told as well
        report = world.sync()
        assert world.statuses(report) == {"t": "done", "only": "failed", "u": "failed"}
        for table in report.tables:
            assert failing.get(table.table[1], "") in table.error
        for notes in (report.notes, world.preview().detection.notes):
            for place, text in told.items():
                assert [note for note in notes if note.startswith(f"{place}: {text}")], (stored, notes)
    assert world.store.discoveries.unread(["shop"])["shop"].keys() == {("files", n) for n in ("t", "notes", "")}
    verdicts = world.verify()
    assert (verdicts["t"].equal, verdicts["t"].waits, told["files.t"] in verdicts["t"].unread) == (True, True, True)
    drop.config = drop.config.model_copy(
        update={
            "skip": ("*.md", "*.TXT"),
            "options": {
                "t": FileOptions(skip=("*.avro", "t/c/*")),
                "only": FileOptions(skip=("*.orc",)),
                "u": FileOptions(skip=("u.*",)),
            },
        }
    )
    drop.config.model_fields_set.add("skip")
    report = world.sync()
    assert (report.status, [note for note in report.notes if "not read" in note]) == ("done", [])
    assert not world.verify()["t"].waits


def test_each_real_folder_is_read_once(drop: Drop) -> None:
    """Whatever links lead to it: one within itself, several from beside it, one to a folder elsewhere."""
    elsewhere = drop.folder.parent / "elsewhere"
    elsewhere.mkdir()
    drop.write("t/a.csv", "n\n1\n")
    drop.write("t/deep/b.csv", "n\n2\n")
    write(elsewhere / "c.csv", "n\n3\n")
    links = {"t/deep/up": drop.folder / "t", "a-link": drop.folder / "t", "t/self": drop.folder, "far": elsewhere,
             "far/back": drop.folder, "t/none": drop.folder / "none"}  # fmt: skip
    for name, target in links.items():
        (drop.folder / name).symlink_to(target)
    (drop.folder / "t/loop.csv").symlink_to(drop.folder / "t/loop.csv")
    world = drop.world
    assert world.statuses(world.sync()) == {"t": "done", "far": "done"}
    assert (sorted(world.rows("t", "n")), world.rows("far", "n")) == ([(1,), (2,)], [(3,)])


@pytest.mark.parametrize(("name", "ok"), [("t\udcff.csv", False), ("t/\udcff.csv", False), ("\udcff.txt", True),
                                          (".t\udcff.csv", True)])  # fmt: skip
def test_a_file_whose_name_is_no_text_is_named(drop: Drop, name: str, ok: bool) -> None:
    drop.write("t/a.csv", "id,n\n1,10\n")
    (drop.folder / name).write_text("id,n\n2,20\n")
    if ok:
        assert drop.world.sync().status == "done"
        return
    with pytest.raises(ConnectError, match=r"the name of t.*\\xff\.csv in .* is not UTF-8 text"):
        drop.world.sync()
    (drop.folder / name).unlink()
    assert drop.world.sync().status == "done"
