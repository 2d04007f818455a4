"""A task: one connection, chunk by chunk; a table that fails leaves the others alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from stage_world import KEYLESS, Broken, MemoryReader, batch, column, rows_of, spec_of

from instep.errors import AccessDenied, ConnectError, ReadError, StageError
from instep.stage.spec import Chunk, ChunkResult, StageSpec
from instep.stage.task import ChunkProgress, may_pass, run_chunks

LOST = ConnectError("the server closed the connection")


@pytest.fixture
def specs(tmp_path: Path) -> dict[str, StageSpec]:
    columns = [column("id", "int64", key=1)]
    return {name: spec_of(columns, tmp_path / name, table=name) for name in ("a", "b", "c")}


def chunk(table: str, number: int, lane: str = "") -> Chunk:
    return Chunk(table, number, f"{table}{number}", lane=lane)


def run(reader: MemoryReader, specs: dict[str, StageSpec], *chunks: Chunk, **more: Any) -> list[ChunkResult]:
    return list(run_chunks(reader, specs, chunks, more.pop("attempt", 0), **more))


def ids(result: ChunkResult) -> list[int]:
    return [row["id"] for row in rows_of([f.path for f in result.files])]


def test_one_connection_for_all_chunks(specs: dict[str, StageSpec]) -> None:
    reader = MemoryReader({"a0": [batch(id=[1, 2]), batch(id=[3])], "a1": [batch(id=[4])], "b0": []})
    results = run(reader, specs, chunk("a", 0), chunk("a", 1), chunk("b", 0))
    assert reader.log == ["open", "a0", "a1", "b0", "close"]
    assert [(r.table, r.chunk, r.read, ids(r), r.error) for r in results] == [
        ("a", 0, 3, [1, 2, 3], ""),
        ("a", 1, 1, [4], ""),
        ("b", 0, 0, [], ""),
    ]


def test_counts_add_up(specs: dict[str, StageSpec], tmp_path: Path) -> None:
    specs["a"] = spec_of([column("id", "int64", key=1), column("n", "int32", "string")], tmp_path, table="a")
    rows = batch(id=[1, None, 3], n=["1", "2", "x"])
    (result,) = run(MemoryReader({"a0": [rows, rows]}), specs, chunk("a", 0))
    assert (result.read, sum(f.rows for f in result.files), result.invalid_values, result.rejected) == (6, 4, 2, 2)
    assert len(rows_of([result.quarantine])) == 4


def test_attempts_write_files_of_their_own(specs: dict[str, StageSpec]) -> None:
    reader = MemoryReader({"a0": [batch(id=[1])]})
    paths = [run(reader, specs, chunk("a", 0), attempt=n)[0].files[0].path for n in (0, 1)]
    assert ["-00000-0-0-" in paths[0], "-00000-1-0-" in paths[1]] == [True, True]


class TestFailures:
    def test_a_passing_error_is_tried_again_on_a_new_connection(self, specs: dict[str, StageSpec]) -> None:
        reader = MemoryReader({"a0": [batch(id=[1]), Broken(LOST, times=1), batch(id=[2])]})
        (result,) = run(reader, specs, chunk("a", 0))
        assert (result.read, ids(result), result.error) == (2, [1, 2], "")
        assert reader.log == ["open", "a0", "close", "open", "a0", "close"]
        assert len(list(Path(specs["a"].location).iterdir())) == 1

    def test_the_rest_of_the_table_is_skipped_and_others_go_on(self, specs: dict[str, StageSpec]) -> None:
        reader = MemoryReader({"a0": [Broken(LOST)], "a1": [batch(id=[9])], "b0": [batch(id=[1])]})
        results = run(reader, specs, chunk("a", 0), chunk("a", 1), chunk("b", 0))
        assert [(r.table, r.read, r.error) for r in results] == [("a", 0, str(LOST)), ("b", 1, "")]
        assert "a1" not in reader.log
        assert not Path(specs["a"].location).exists()

    def test_lost_access_is_not_tried_again(self, specs: dict[str, StageSpec]) -> None:
        reader = MemoryReader({"a0": [Broken(AccessDenied("no SELECT on a", hint="grant it"))], "b0": [batch(id=[1])]})
        results = run(reader, specs, chunk("a", 0), chunk("b", 0))
        assert [r.error for r in results] == ["no SELECT on a\n  grant it", ""]
        assert reader.log.count("a0") == 1

    def test_a_driver_error_names_table_and_chunk(self, specs: dict[str, StageSpec]) -> None:
        (result,) = run(MemoryReader({"a5": [Broken(OSError("reset\nmore"))]}), specs, chunk("a", 5))
        assert result.error.startswith("a: reading failed in chunk 5: reset\n  check the connection")

    def test_an_unforeseen_error_names_its_kind(self, specs: dict[str, StageSpec]) -> None:
        specs["a"] = replace(specs["a"], location="/dev/null/x")
        reader = MemoryReader({"a0": [batch(id=[1])], "b0": [batch(id=[1])]})
        results = run(reader, specs, chunk("a", 0), chunk("b", 0))
        assert results[0].error.startswith("cannot write /dev/null/x/run-1-")
        assert results[1].error == ""

    def test_a_source_that_refuses_fails_each_table(self, specs: dict[str, StageSpec]) -> None:
        reader = MemoryReader({}, refuse=ConnectError("wrong password"))
        results = run(reader, specs, chunk("a", 0), chunk("b", 0))
        assert [r.error for r in results] == ["wrong password", "wrong password"]

    def test_a_lane_keeps_its_connection(self, specs: dict[str, StageSpec]) -> None:
        """A view that cannot be shared ends with its connection: a new one would show another moment."""
        reader = MemoryReader({"a0": [Broken(LOST)], "b0": [batch(id=[1])], "c0": [batch(id=[2])]})
        results = run(reader, specs, chunk("a", 0, "one"), chunk("b", 0, "one"), chunk("c", 0))
        assert [(r.table, r.error) for r in results] == [("a", str(LOST)), ("b", ""), ("c", "")]
        assert reader.log == ["open", "a0", "b0", "close", "open", "c0", "close"]

    def test_a_keyless_table_is_not_read_twice(self, specs: dict[str, StageSpec], tmp_path: Path) -> None:
        specs["a"] = spec_of([column("n", "string")], tmp_path, system=KEYLESS, table="a")
        reader = MemoryReader({"a0": [batch(n=["x"]), Broken(LOST, times=1)]})
        (result,) = run(reader, specs, chunk("a", 0))
        assert result.error == str(LOST)

    def test_invalid_value_fail_is_told_and_leaves_no_file(self, specs: dict[str, StageSpec], tmp_path: Path) -> None:
        specs["a"] = spec_of([column("n", "int32", "string")], tmp_path, table="a", on_invalid_value="fail")
        (result,) = run(MemoryReader({"a0": [batch(n=["1"]), batch(n=["x"])]}), specs, chunk("a", 0))
        assert "column n" in result.error
        assert not (tmp_path / "data").exists()

    @pytest.mark.parametrize(
        ("error", "expected"),
        [(ReadError("x"), True), (LOST, True), (AccessDenied("x"), False), (StageError("x"), False)],
    )
    def test_may_pass(self, error: Any, expected: bool) -> None:
        assert may_pass(error) == expected


def test_keyless_ids_count_on_through_the_chunks_of_a_task(specs: dict[str, StageSpec], tmp_path: Path) -> None:
    specs["a"] = spec_of([column("n", "string")], tmp_path, system=KEYLESS, table="a")
    rows = batch(n=["x", "x"])
    results = run(MemoryReader({"a0": [rows], "a1": [rows]}), specs, chunk("a", 0, "a"), chunk("a", 1, "a"))
    found = {row["_id"] for r in results for row in rows_of([f.path for f in r.files])}
    assert len(found) == 4


def test_progress(specs: dict[str, StageSpec]) -> None:
    told: list[ChunkProgress] = []
    reader = MemoryReader({"a0": [batch(id=[1, 2]), batch(id=[3])], "b0": [batch(id=[1])]})
    run(reader, specs, chunk("a", 0), chunk("b", 0), progress=told.append)
    assert [(p.table, p.rows, p.done) for p in told] == [
        ("a", 2, 0),
        ("a", 3, 0),
        ("a", 3, 1),
        ("b", 1, 0),
        ("b", 1, 1),
    ]
    assert told[2].bytes > 0


def test_a_batch_of_any_size_is_streamed(specs: dict[str, StageSpec]) -> None:
    big = pa.RecordBatch.from_pydict({"id": pa.array(range(300_000))})
    (result,) = run(MemoryReader({"a0": [big, big.slice(0, 0), big]}), specs, chunk("a", 0))
    assert (result.read, len(result.files)) == (600_000, 1)
