"""Queries over a destination's tables end when they are asked to."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyarrow import csv
from pyarrow import parquet as pq

from contract.destinations import DESTINATIONS
from instep.destinations.base import Commit
from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.destinations.facets import Destination
from instep.errors import InstepError
from instep.schema.planning.aliases import View
from instep.sync.query import _columns, _shown, _tree, ask, rereadable_rows, write_rows
from lake import ID, ORDERS, REF, column, create, stage, table

FOR_EVER = "select count(*) from range(1000000000000) t(x) where x % 7 = 3"
CODE = """
import sys
from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.sync.query import ask
ask(DuckDbDestination(DuckDbConfig.resolved(name="there", path=sys.argv[1])), sys.argv[2])
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
    return DuckDbDestination(DuckDbConfig.resolved(name="there", path=str(tmp_path / "lake.db")))


def test_what_does_not_fit_into_memory_goes_to_a_folder_of_this_user(lake: DuckDbDestination) -> None:
    """And not to the current one, where others may read it and where it may stay."""
    [(folder,)] = ask(lake, "select current_setting('temp_directory')").rows
    assert (Path(folder).is_relative_to(tempfile.gettempdir()), Path(folder).exists()) == (True, False)


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


UNREAD = ["select id from orders limit 0", "select id from orders limit 1", "select nothing from orders"]


@pytest.mark.parametrize("sql", UNREAD)
def test_a_file_is_free_once_a_query_has_ended(lake: DuckDbDestination, tmp_path: Path, sql: str) -> None:
    create(lake, ORDERS)
    lake.write.overwrite(REF, [stage(lake, REF, [{"id": n} for n in range(5000)])], Commit("run-1", 1))
    with suppress(InstepError):
        ask(lake, sql)
    other = f"import duckdb; duckdb.connect({str(tmp_path / 'lake.db')!r})"
    assert subprocess.run([sys.executable, "-c", other], check=False, timeout=300).returncode == 0


QUERIES: list[tuple[str, list[str] | None]] = [
    ("select NAME from orders where id > 1", ["id", "name"]),
    ("select o.name as id from shop.orders o order by id", ["id", "name"]),
    ("select count(*) from orders", ["id"]),
    ("with q as (select amount as a from orders) select sum(a) from q", ["amount"]),
    ("select name, amount from orders group by all order by name", ["name", "amount"]),
    ("select max(id) over (partition by name) from orders order by 1", ["id", "name"]),
    ("select a.name from orders a join orders b using (id) order by name", ["id", "name"]),
    ("select id from orders where exists (select 1 from orders o where o.amount = orders.amount) order by id",
     ["id", "amount"]),
    ("select * from orders order by id", None),
    ("from orders order by id", None),
    ("select o from orders o order by o.id", None),
    ("select orders from orders order by id", None),
    ("select shop.orders from shop.orders order by all", None),
    ("select columns('n.*') from orders order by 1", None),
    ("select b from orders o(a, b) order by a", None),
    ("select a.id from orders a natural join orders b order by 1", None),
    ("select id from (summarize orders), orders order by all", None),
    ("select name from (unpivot orders on id into name n value v) order by all", None),
    ("select #1 from orders order by 1", None),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["iceberg", "duckdb"])
def test_a_query_reads_the_columns_that_it_can_use(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = DESTINATIONS[kind](tmp_path)
    create(lake, ORDERS)
    rows = [{"id": n, "name": f"n{n % 2}", "amount": n} for n in range(1, 4)]
    lake.write.overwrite(REF, [stage(lake, REF, rows)], Commit("run-1", 1))
    assert [_wanted(lake, sql) for sql, _ in QUERIES] == [names for _, names in QUERIES]
    narrow = {sql: ask(lake, sql).rows for sql, _ in QUERIES}
    monkeypatch.setattr("instep.sync.query._columns", lambda *_: {})
    whole = {sql: ask(lake, sql).rows for sql, _ in QUERIES}
    assert narrow == whole


WHOLE = [
    "select orders from orders where id in (select id from items where items.orders is not null) order by id",
    "select (select orders from orders order by id limit 1), i.orders from items i order by all",
    "select orders.orders from items orders order by all",
    "select count(shop.orders) from shop.orders, items",
]


def test_a_row_is_whole_where_a_column_has_the_name_of_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, items = DESTINATIONS["iceberg"](tmp_path), table(ID, column("orders", "string"), name="items")
    for wanted, row in ((ORDERS, {"name": "n", "amount": 1}), (items, {"orders": "o"})):
        create(lake, wanted)
        lake.write.overwrite(wanted.ref, [stage(lake, wanted.ref, [{"id": 1, **row}])], Commit("run-1", 1))
    narrow = [ask(lake, sql).rows for sql in WHOLE]
    monkeypatch.setattr("instep.sync.query._columns", lambda *_: {})
    assert narrow == [ask(lake, sql).rows for sql in WHOLE]


@dataclass
class Viewed:
    """A destination with one view, whose first column the table has no more."""

    schema: Any
    write: Any

    @property
    def views(self) -> Viewed:
        return self

    def all(self) -> dict[Any, View]:
        return {("shop", "old"): View(("shop", "old"), REF, (("gone", "gone"), ("nr", "id"), ("name", "name")), "c")}


def test_a_view_whose_first_column_is_gone_is_counted(lake: DuckDbDestination) -> None:
    create(lake, ORDERS)
    lake.write.overwrite(REF, [stage(lake, REF, [{"id": n} for n in range(3)])], Commit("run-1", 1))
    to: Any = Viewed(lake.schema, lake.write)
    assert ask(to, "select count(*) from old").rows == ask(lake, "select count(*) from orders").rows
    assert ask(to, "select nr from old order by 1").rows == ask(lake, "select id from orders order by 1").rows


def _wanted(lake: Destination, sql: str) -> list[str] | None:
    with duckdb.connect(":memory:") as connection:
        tree = _tree(connection, sql)
    return _columns(tree, {REF: _shown(lake, {}, REF)}).get(REF)
