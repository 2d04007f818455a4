"""Queries over a destination's tables end when they are asked to."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv
from pyarrow import parquet as pq

from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.errors import InstepError
from instep.sync.query import ask, rereadable_rows, write_rows

FOR_EVER = "select count(*) from range(1000000000000) t(x) where x % 7 = 3"
CODE = """
import sys
from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.sync.query import ask
ask(DuckDbDestination(DuckDbConfig("there", sys.argv[1])), sys.argv[2])
"""


def test_ctrl_c_ends_a_long_query(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CODE, str(tmp_path / "lake.db"), FOR_EVER]
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    ) as process:
        time.sleep(5)  # it is computing, or still importing: it ends in both cases
        process.send_signal(signal.SIGINT)
        try:
            _, err = process.communicate(timeout=300)
        finally:
            process.kill()
    assert "KeyboardInterrupt" in err


def test_rows_that_are_many_go_through_a_file(tmp_path: Path) -> None:
    table = pa.table({"id": range(1000), "at": pa.array([1] * 1000, pa.timestamp("us", "UTC"))})
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=100))
    file = tmp_path / "rows.arrow"
    held = rereadable_rows(reader, file, 1000)
    assert file.exists()
    assert held.to_table() == held.to_table() == table, "they can be read again"
    in_memory = rereadable_rows(table.to_reader(), tmp_path / "none.arrow")
    assert (in_memory, (tmp_path / "none.arrow").exists()) == (table, False)


@pytest.fixture
def lake(tmp_path: Path) -> DuckDbDestination:
    return DuckDbDestination(DuckDbConfig("there", str(tmp_path / "lake.db")))


@pytest.mark.parametrize(("most", "rows", "more"), [(None, 5, False), (5, 5, False), (4, 4, True), (0, 0, True)])
def test_a_query_returns_at_most_so_many_rows(lake: DuckDbDestination, most: int | None, rows: int, more: bool) -> None:
    found = ask(lake, "select * from range(5) t(x)", most)
    assert (len(found.rows), found.more) == (rows, more)


def test_all_rows_are_written_to_a_file(lake: DuckDbDestination, tmp_path: Path) -> None:
    sql = "select x, 'a' as y from range(25000) t(x) order by x"
    for name, read in (("a.parquet", pq.read_table), ("a.csv", csv.read_csv)):
        assert write_rows(lake, sql, tmp_path / name) == 25000
        assert read(tmp_path / name)["x"].to_pylist() == list(range(25000))
    with pytest.raises(InstepError, match=r"rows are written as \.parquet or \.csv"):
        write_rows(lake, sql, tmp_path / "a.xlsx")
    with pytest.raises(InstepError, match="cannot be written"):
        write_rows(lake, sql, tmp_path / "none" / "a.csv")
    with pytest.raises(InstepError, match="the query failed"):
        write_rows(lake, "select nothing", tmp_path / "b.csv")
    assert {one.name for one in tmp_path.iterdir()} <= {"a.parquet", "a.csv", "lake.db"}
