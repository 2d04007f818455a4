"""Where rows come from travels with their batches, and what was no row is held with its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from stage_world import MemoryReader, batch, column, rows_of, spec_of

from instep.stage.conform import origins, refused, with_origin
from instep.stage.spec import Chunk, ChunkResult
from instep.stage.task import run_chunks

LINES = [("none", []), ("even", [2, 3, 4]), ("with gaps", [2, 4, 900])]


@pytest.mark.parametrize("lines", [case[1] for case in LINES], ids=[case[0] for case in LINES])
def test_places_of_rows(lines: list[int]) -> None:
    done = with_origin(batch(n=pa.array(range(len(lines)), pa.int64())), "t/a:b.csv", pa.array(lines, pa.int64()))
    assert [origins(done)(at) for at in range(len(lines))] == [f"t/a:b.csv:{line}" for line in lines]
    assert refused(done) == []


def test_rows_of_no_file_have_no_place() -> None:
    assert origins(batch(n=[1]))(0) == ""
    assert refused(batch(n=[1])) == []


def run(tmp_path: Path, second: str, **facts: Any) -> ChunkResult:
    """A task that reads two rows and, between them, a record that is none."""
    columns = [column("id", "int64", key=1), column("n", "int32", "string")]
    spec = replace(spec_of(columns, tmp_path, table="t"), **facts)
    rows = with_origin(batch(id=[1, 2], n=["1", second]), "t/a.csv", pa.array([2, 4]), [(3, "broken", "1 value")])
    (result,) = run_chunks(MemoryReader({"q": [rows]}), {"t": spec}, [Chunk("t", 0, "q")], 0)
    return result


def test_a_record_that_is_no_row_is_held_with_its_text(tmp_path: Path) -> None:
    result = run(tmp_path, "x")
    assert (result.read, result.invalid_values, result.rejected, result.error) == (3, 1, 1, "")
    assert sorted((r["column"], r["original"], r["key"], r["place"]) for r in rows_of([result.quarantine])) == [
        ("", '{"_text":"broken"}', '{"_file":"t/a.csv","_line":"3"}', "t/a.csv:3"),
        ("n", "x", '{"id":"2"}', "t/a.csv:4"),
    ]


def test_the_policy_fail_refuses_it(tmp_path: Path) -> None:
    result = run(tmp_path, "2", on_invalid_value="fail")
    assert "record 3 of t/a.csv is not a row: 1 value" in result.error
    assert "broken" not in result.error
