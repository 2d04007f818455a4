"""Values for rows that have none, by key: files are exchanged, deletes stay deletes, newer values stay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.destinations.base import BackfillResult, Commit, Fill, Merge
from instep.destinations.iceberg.backfill import fill as iceberg_fill
from instep.destinations.iceberg.backfill.fill import been_through, folder_name
from instep.destinations.iceberg.backfill.fill_task import _first
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.rows import merged
from instep.errors import Conflict, Fenced
from instep.schema.changes.kinds import ColumnAdded
from instep.schema.planning.step import step
from instep.stage.conform import compact_json
from lake import ID, PREFIX, REF, column, create, rows_of, stage, stage_table, table

META = f"{PREFIX}meta"
OLD = table(ID, column("name", "string"))
NEW = table(ID, column("name", "string"), column("size", "int64"), column("tags", "array(string)"))
Row = dict[str, Any]


class Lake:
    """A table that was loaded before two columns were added to it."""

    def __init__(self, folder: Path) -> None:
        self.to = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(folder / "lake")))
        self.fence = 0
        create(self.to, OLD, self.commit("make"))

    def commit(self, run: str, cursor: str = "") -> Commit:
        self.fence += 1
        self.to.write.claim(REF, self.fence)
        return Commit(run, self.fence, cursor, "print")

    def append(self, *rows: Row) -> None:
        file = stage(self.to, REF, rows)
        self.to.write.append(REF, [file], self.commit(f"r{self.fence}", '{"upper": 7}'))

    def widen(self) -> None:
        added = [ColumnAdded(("public", "orders"), c, 2 + i) for i, c in enumerate(NEW.columns[2:4])]
        self.to.schema.execute(REF, [step(REF, a) for a in added], NEW, self.commit("ddl"))

    def upsert(self, *rows: Row, **how: Any) -> None:
        merge = Merge(("id",), **how)
        self.to.write.merge(
            None, REF, [stage(self.to, REF, rows)], merge, self.commit(f"r{self.fence}", '{"upper": 8}')
        )

    def values(self, rows: Sequence[Row], columns: Sequence[str]) -> tuple[Any, ...]:
        schema = self.to.write.target(REF).schema
        names = [f.name for f in schema if f.name in {"id", META, *columns}]
        part = pa.schema([schema.field(n) for n in names])
        half = len(rows) // 2
        return tuple(stage_table(self.to, REF, pa.Table.from_pylist(r, part)) for r in (rows[:half], rows[half:]) if r)

    def fill(self, *rows: Row, number: int = 1, columns: Sequence[str] = ("size",), **more: Any) -> BackfillResult:
        go_on = more.pop("go_on", lambda: True)
        commit = more.pop("commit", None) or self.commit(f"fill{self.fence}")
        wanted = Fill(("id",), dict.fromkeys(columns, number), self.values(rows, columns), META, "x", **more)
        return self.to.write.fill(None, REF, wanted, commit, lambda rows, size: None, go_on)

    def rows(self) -> list[tuple[Any, ...]]:
        return rows_of(self.to, REF, ["id", "name", "size"])

    def files(self) -> set[str]:
        found = self.to.lake.load(REF)
        assert found is not None
        return {t.file.file_path for t in found.scan().plan_files()}

    def totals(self) -> dict[str, int]:
        found = self.to.lake.load(REF)
        assert found is not None
        snapshot = found.metadata.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        said = snapshot.summary.additional_properties
        return {k.removeprefix("total-"): int(said[k]) for k in said if k.startswith("total-")}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    made.append({"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": "c"})
    made.append({"id": 11, "name": "k"}, {"id": 12, "name": "l"})
    made.widen()
    return made


def test_rows_without_a_value_get_one(lake: Lake) -> None:
    done = lake.fill({"id": 1, "size": 10}, {"id": 3, "size": 30}, {"id": 12, "size": 120}, {"id": 99, "size": 1})
    assert lake.rows() == [(1, "a", 10), (11, "k", None), (12, "l", 120), (2, "b", None), (3, "c", 30)]
    assert (done.rows, done.files, done.whole) == (3, 2, True)
    assert done.bytes > 0


def test_files_where_nothing_changes_stay(lake: Lake) -> None:
    before = lake.files()
    assert lake.fill({"id": 1, "size": 10}).files == 1
    assert len(lake.files() & before) == 1
    again = lake.files()
    assert lake.fill({"id": 1, "size": 11}, number=2) == BackfillResult()
    assert lake.files() == again


def test_a_newer_value_stays_and_a_newer_null_is_older_than_the_read(lake: Lake) -> None:
    lake.upsert({"id": 1, "name": "a", "size": 7}, {"id": 2, "name": "b", "size": None})
    lake.fill({"id": 1, "size": 10}, {"id": 2, "size": 20})
    assert lake.rows()[0] == (1, "a", 7)
    assert (2, "b", 20) in lake.rows()


def test_deleted_rows_stay_deleted_and_their_deletes_go(lake: Lake) -> None:
    lake.upsert({"id": 1, "name": "a"}, {"id": 2, "name": "new"}, complete=True, deletes="hard")
    assert lake.totals()["position-deletes"] > 0
    lake.fill({"id": 1, "size": 10}, {"id": 2, "size": 20}, {"id": 3, "size": 30}, {"id": 11, "size": 1})
    assert lake.rows() == [(1, "a", 10), (2, "new", 20)]
    state = lake.to.schema.state(REF)
    assert state is not None
    assert state.rows == 2
    lake.upsert({"id": 2, "name": "newer", "size": 20})
    assert lake.rows() == [(1, "a", 10), (2, "newer", 20)]


def test_rows_that_the_source_has_deleted_are_kept(lake: Lake) -> None:
    lake.upsert({"id": 1, "name": "a"}, complete=True, deletes="soft")
    lake.fill({"id": 1, "size": 10})
    marked = rows_of(lake.to, REF, ["id", "size", f"{PREFIX}deleted"])
    assert marked == [(1, 10, False), (11, None, True), (12, None, True), (2, None, True), (3, None, True)]


def test_several_columns_at_once(lake: Lake) -> None:
    lake.upsert({"id": 2, "name": "b", "size": 5})
    lake.fill(
        {"id": 1, "size": 10, "tags": ["x", None]}, {"id": 2, "size": 20, "tags": []}, {"id": 3, "size": None},
        columns=("size", "tags"),
    )  # fmt: skip
    found = rows_of(lake.to, REF, ["id", "size", "tags"])
    assert found[0] == (1, 10, ["x", None])
    assert found[3:] == [(2, 5, []), (3, None, None)]


def test_cursor_and_accepted_schema_stay(lake: Lake) -> None:
    before = lake.to.schema.state(REF)
    lake.fill({"id": 1, "size": 10}, {"id": 11, "size": 10})
    after = lake.to.schema.state(REF)
    assert before is not None
    assert after is not None
    assert (after.cursor, after.accepted, after.rows) == (before.cursor, before.accepted, 5)
    assert after.fence > before.fence


def test_one_that_stopped_goes_on_with_the_other_files(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_fill, "PART_ROWS", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    monkeypatch.setattr(iceberg_fill, "PARTS_PER_CORE", 1)
    rows: list[Row] = [{"id": i, "size": i * 10} for i in (1, 2, 3, 11, 12)]
    assert lake.to.write.fill_size(REF, {"size": 4}).files == 2
    first = lake.fill(*rows, number=4, go_on=lambda: False)
    assert (first.files, first.whole) == (1, False)
    assert lake.to.write.fill_size(REF, {"size": 4}).files == 1
    second = lake.fill(*rows, number=4)
    assert (second.files, second.whole) == (1, True)
    assert lake.rows() == [(1, "a", 10), (11, "k", 110), (12, "l", 120), (2, "b", 20), (3, "c", 30)]
    assert lake.to.write.fill_size(REF, {"size": 4}).files == 0
    assert lake.to.write.fill_size(REF, {"tags": 5}).files == 2


def test_a_later_claim_refuses_it_and_nothing_is_left(lake: Lake) -> None:
    before, old = lake.rows(), lake.commit("late")
    lake.commit("newer")
    with pytest.raises(Fenced):
        lake.fill({"id": 1, "size": 10}, commit=old)
    assert lake.rows() == before
    assert not list(Path(lake.to.config.warehouse).rglob("late-fill-1"))


def test_a_table_that_moves_meanwhile_refuses_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite = iceberg_fill.run_parts

    def moved(*arguments: Any) -> Any:
        found = rewrite(*arguments)
        lake.to.write.append(REF, [stage(lake.to, REF, [{"id": 50}])], Commit("other", lake.fence))
        return found

    monkeypatch.setattr(iceberg_fill, "run_parts", moved)
    with pytest.raises(Conflict):
        lake.fill({"id": 1, "size": 10})
    assert lake.rows()[0] == (1, "a", None)


def test_notes_tell_what_did_not_fit(lake: Lake) -> None:
    note = compact_json({"changes": [{"field": "size", "change": "nulled", "reason": "no number"}]})
    assert lake.fill({"id": 1, "size": None, META: note}, {"id": 2, "size": 2}, holds=True).rows == 2
    assert rows_of(lake.to, REF, ["id", META])[0][1] is not None
    assert lake.fill({"id": 1, "size": None, META: note}, number=2, holds=True) == BackfillResult()
    assert lake.fill({"id": 1, "size": 10}, number=3).rows == 1
    assert rows_of(lake.to, REF, ["id", "size", META])[0] == (1, 10, None)


def test_a_table_that_was_never_loaded(tmp_path: Path) -> None:
    made = Lake(tmp_path)
    made.widen()
    assert made.to.write.fill_size(REF, {"size": 1}).why_not == "it has not been loaded yet"


@pytest.mark.parametrize(
    ("old", "new", "lacking", "expected"),
    [
        (None, None, set(), None),
        ("a", None, {"a"}, "a"),
        ("a", None, set(), None),
        ("b", None, set(), "b"),
        (None, "a", {"a"}, "a"),
        (None, "a", set(), None),
        ("a", "a", {"a"}, "a"),
    ],
)
def test_notes_are_merged(old: str | None, new: str | None, lacking: set[str], expected: str | None) -> None:
    def note(field: str | None) -> str | None:
        return field and compact_json({"changes": [{"field": field, "change": "nulled"}]})

    assert merged(note(old), note(new), lacking, ["a"]) == note(expected)


@pytest.mark.parametrize("numbers", [[1], [3, 12], [7, 5]])
def test_a_file_knows_who_has_been_through(numbers: list[int]) -> None:
    path = f"file:///x/data/{folder_name('r-20261121-2', numbers)}/part-1-fill-9.parquet"
    assert been_through(path) == frozenset(numbers)
    assert been_through("file:///x/data/r-20261121-2/part.parquet") == frozenset()


INTS = st.lists(st.tuples(*[st.none() | st.integers(-5, 5)] * 2), max_size=20)
LISTS = st.lists(st.tuples(*[st.none() | st.lists(st.integers(0, 3), max_size=2)] * 2), max_size=20)


@pytest.mark.parametrize(("pairs", "kind"), [(INTS, pa.int64()), (LISTS, pa.list_(pa.int64()))])
def test_a_value_stays_and_a_null_gives_way(pairs: Any, kind: pa.DataType) -> None:
    @given(pairs)
    def law(rows: list[tuple[Any, Any]]) -> None:
        old, new = (pa.array([row[side] for row in rows], kind) for side in (0, 1))
        assert _first(old, new).to_pylist() == [a if a is not None else b for a, b in rows]

    law()
