"""The benchmark's checks find every kind of fault in a destination: each is made on purpose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from check import Verdict, check
from data import orders
from lines import LINES, DltLine, IngestrLine, Task
from pyiceberg.catalog.sql import SqlCatalog
from server import Server

LINE = IngestrLine("ingestr", "parquet", ())
WORKLOAD = orders("unit", 3)
NO_SERVER = Server(0, 0, "")
TRUTH = """
create table orders as select * from (values
  (1::bigint, 10::bigint, 1.25::decimal(18,4), 'new', 1672531201000000::bigint, 1672534801000000::bigint,
   date '2023-01-02', true, 'web|7|["a","b1"]', 'note 1'),
  (2, 20, 2.50, 'paid', 1672531202000000, 1672534802000000, date '2023-01-03', false, 'app|8|["a","b2"]', null),
  (3, 30, 99.99, 'paid', 1672531203000000, 1672534803000000, null, false, 'web|9|["a","b3"]', 'note 3'))
  t(id, customer_id, amount, status, created_at, updated_at, ship_date, gift, meta, note)
"""
ARRIVED = """
select id, customer_id::integer as customer_id, amount::decimal(12,2) as amount, status,
  to_timestamp(created_at / 1000000) as created_at, to_timestamp(updated_at / 1000000) as updated_at,
  ship_date, gift,
  '{"tags": ' || split_part(meta, '|', 3) || ', "source": "' || split_part(meta, '|', 1) || '", "score": '
    || split_part(meta, '|', 2) || '}' as meta, note
from truth.orders
"""


@pytest.fixture
def truth(tmp_path: Path) -> Path:
    path = tmp_path / "truth.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(TRUTH)
    return path


def written(folder: Path, truth: Path, query: str, suffix: str = "parquet", options: str = "") -> Task:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.execute(f"attach '{truth}' as truth (read_only)")
        connection.execute(f"create view arrived as {ARRIVED}")
        connection.execute(f"copy ({query}) to '{folder / f'orders.{suffix}'}' {options}")
    return Task(WORKLOAD, NO_SERVER, folder)


def verdict(folder: Path, truth: Path, query: str) -> Verdict:
    return check(LINE, written(folder, truth, query), truth)


def test_an_equal_destination_has_no_faults(tmp_path: Path, truth: Path) -> None:
    found = verdict(tmp_path, truth, "select * from arrived")
    assert (found.rows, found.faults, found.types) == (3, {}, {})
    assert found.sums == {
        "sum of amount": "103.7400",
        "highest of created_at": "2023-01-01 00:00:03",
        "count of created_at": "3",
        "highest of updated_at": "2023-01-01 01:00:03",
        "count of updated_at": "3",
    }


FAULTS = [
    ("row lost", "select * from arrived where id <> 2", {"rows are missing": 1}),
    (
        "row invented",
        "from arrived union all select * replace (9 as id) from arrived where id = 1",
        {"rows are extra": 1},
    ),
    ("row doubled", "from arrived union all from arrived where id = 3", {"rows are double": 1}),
    ("column lost", "select * exclude (note) from arrived", {"column note is missing": 3}),
    ("a cent off", "select * replace (amount + (id = 1)::int * 0.01 as amount) from arrived", {"amount differs": 1}),
    ("NULL became text", "select * replace (coalesce(note, '') as note) from arrived", {"note differs": 1}),
    ("text became NULL", "select * replace (nullif(status, 'paid') as status) from arrived", {"status differs": 2}),
    (
        "an hour off",
        "select * replace (updated_at + interval 1 hour as updated_at) from arrived",
        {"updated_at differs": 3},
    ),
    (
        "microseconds lost",
        "select * replace (created_at + interval '1 microsecond' as created_at) from arrived",
        {"created_at differs": 3},
    ),
    ("flag turned", "select * replace (not gift as gift) from arrived", {"gift differs": 3}),
    ("JSON broken", "select * replace ('{' || meta as meta) from arrived", {"meta differs": 3}),
    ("day off", "select * replace (ship_date + 1 as ship_date) from arrived", {"ship_date differs": 2}),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("query", "faults"), [case[1:] for case in FAULTS], ids=[case[0] for case in FAULTS])
def test_faults_are_counted(tmp_path: Path, truth: Path, query: str, faults: dict[str, int]) -> None:
    assert verdict(tmp_path, truth, query).faults == faults


TYPES = [
    ("decimal to double", "select * replace (amount::double as amount) from arrived", {"amount": "DOUBLE"}),
    ("zone lost", "select * replace (created_at::timestamp as created_at) from arrived", {"created_at": "TIMESTAMP"}),
    ("date to text", "select * replace (ship_date::varchar as ship_date) from arrived", {"ship_date": "VARCHAR"}),
    ("flag to number", "select * replace (gift::integer as gift) from arrived", {"gift": "INTEGER"}),
]


@pytest.mark.parametrize(("query", "types"), [case[1:] for case in TYPES], ids=[case[0] for case in TYPES])
def test_lost_types_are_told_apart_from_lost_values(
    tmp_path: Path, truth: Path, query: str, types: dict[str, str]
) -> None:
    found = verdict(tmp_path, truth, query)
    assert (found.faults, found.types) == ({}, types)


def test_a_destination_that_is_not_there_is_one_fault(tmp_path: Path, truth: Path) -> None:
    found = check(LINE, Task(WORKLOAD, NO_SERVER, tmp_path), truth)
    assert [(fault.split(":")[0], count) for fault, count in found.faults.items()] == [("cannot be read", 3)]


def test_text_files_are_read_as_text(tmp_path: Path, truth: Path) -> None:
    line = next(line for line in LINES if line.format == "csv")
    task = written(tmp_path, truth, "select * from arrived", "csv", "(header)")
    found = check(line, task, truth)
    assert (found.rows, found.faults, found.types) == (3, {}, {})


def test_a_lake_is_read_without_the_product_with_deletes_applied(tmp_path: Path, truth: Path) -> None:
    (tmp_path / "lake").mkdir()
    catalog = SqlCatalog("any", uri=f"sqlite:///{tmp_path}/lake/catalog.db", warehouse=f"file://{tmp_path}/lake")
    catalog.create_namespace("shop")
    rows = pq.read_table(written(tmp_path, truth, "select * from arrived") and tmp_path / "orders.parquet")
    for name in ("orders", "more"):
        table = catalog.create_table(f"shop.shop__{name}", rows.schema)
        table.append(rows)
        table.delete("id = 2")
    catalog.close()
    with duckdb.connect(str(truth)) as connection:
        connection.execute("create table more as from orders")
    line = next(line for line in LINES if line.format == "iceberg")
    two_tables = replace(WORKLOAD, tables=("orders", "more"))
    found = check(line, Task(two_tables, NO_SERVER, tmp_path), truth)
    assert (found.rows, found.faults, found.types) == (4, {"rows are missing": 2}, {})


def test_rows_marked_as_deleted_are_not_there(tmp_path: Path, truth: Path) -> None:
    found = verdict(tmp_path, truth, "select *, id = 2 as _instep_deleted from arrived")
    assert found.faults == {"rows are missing": 1}


def test_faults_add_up_over_tables(tmp_path: Path, truth: Path) -> None:
    with duckdb.connect(str(truth)) as connection:
        connection.execute("create table more as from orders")
    task = written(tmp_path, truth, "select * from arrived where id > 1")
    (tmp_path / "more.parquet").write_bytes((tmp_path / "orders.parquet").read_bytes())
    both = replace(task, workload=replace(WORKLOAD, tables=("orders", "more")))
    found = check(LINE, both, truth)
    assert (found.rows, found.faults) == (4, {"rows are missing": 2})


def test_the_new_column_of_a_second_sync_is_compared(tmp_path: Path, truth: Path) -> None:
    with duckdb.connect(str(truth)) as connection:
        connection.execute("alter table orders add column discount decimal(18,4) default 0.125")
    task = written(tmp_path, truth, "select *, null::decimal(8,4) as discount from arrived")
    found = check(LINE, replace(task, workload=WORKLOAD.churned()), truth)
    assert found.faults == {"discount differs": 3}
    assert found.sums["sum of discount"] == "None"


@pytest.mark.parametrize("line", LINES, ids=[line.label for line in LINES])
def test_no_line_reaches_beyond_loopback(line: Any, tmp_path: Path) -> None:
    environment = line.environment(Task(WORKLOAD, Server(1, 2, "18"), tmp_path))
    assert environment["HTTPS_PROXY"] == environment["https_proxy"] == "http://127.0.0.1:9"
    assert environment["NO_PROXY"] == "127.0.0.1,localhost"
    assert environment["HOME"].startswith(str(tmp_path))


def test_dlt_tables_lie_in_the_lake(tmp_path: Path) -> None:
    task = Task(WORKLOAD, NO_SERVER, tmp_path)
    assert DltLine("dlt", "delta", ()).location(task, "orders") == tmp_path / "lake" / "shop" / "orders"
