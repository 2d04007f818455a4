"""What a plan costs, as people and scripts see it: backfills that decisions want, by runs on record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_world import PROJECT, Shop

from instep.destinations.base import Commit
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.model import TableRun
from lake import stage

REF = ("shop", "customer")
NOTE = "alter table customer add column note text"
ROWS = [{"id": 1, "name": "Ann", "city": "Oslo"}, {"id": 2, "name": "Bo"}]


def loaded(shop: Shop, backfill: str, *runs: tuple[str, str, float]) -> Shop:
    """Customers are in the lake, and (table, mode, seconds) of these runs, which read 2 rows each, on record."""
    shop.write(text=PROJECT.replace("policy: careful}", f"policy: careful, backfill: {backfill}}}"))
    shop.applied()
    lake = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(shop.folder / "lake")))
    with shop.store() as store:
        run = store.runs.claim("shop", "sync")
        store.runs.finish(run, "done")
        for table, mode, seconds in runs:
            one = store.runs.claim("shop", "sync")
            store.runs.record_tables(TableRun(one.id, ("main", table), "done", mode, read=2, seconds=seconds))
            store.runs.finish(one, "done")
    lake.write.claim(REF, run.fence)
    lake.write.append(REF, [stage(lake, REF, ROWS)], Commit(run.id, run.fence))
    return shop


@pytest.fixture
def shop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shop:
    made = Shop(tmp_path, capsys)
    made.sql("create table customer (id integer primary key, name text, city text);")
    made.sql("insert into customer values (1, 'Ann', 'Oslo'), (2, 'Bo', null)")
    return made


RUNS = (("customer", "upsert", 2.0), ("customer", "upsert", 4.0), ("other", "column", 6.0))
CASES: list[tuple[str, str, tuple[tuple[str, str, float], ...], dict[str, Any], str]] = [
    (
        "a column, by fills of another table", "column", RUNS,
        {"columns": ["note"], "mode": "column", "seconds": 6, "runs": 1, "own": False},
        "main.customer.note is filled: reads about 2 rows, 64 B (estimated), from the source, writes 1 file again, ",
    ),
    (
        "the whole table, by its own upserts", "table", RUNS,
        {"columns": [], "mode": "upsert", "seconds": 3, "runs": 2, "own": True},
        "main.customer is read again: reads about 2 rows, 160 B (estimated), from the source, writes 1 file again, ",
    ),
    (
        "no run of that mode", "column", RUNS[:2],
        {"columns": ["note"], "mode": "column", "seconds": 0, "runs": 0, "own": False},
        "main.customer.note is filled: ",
    ),
]  # fmt: skip
TIMES = [
    "about 6 s, from 1 column run of other tables",
    "about 3 s (2 s to 4 s), from 2 upsert runs of this table",
    "time unknown (no runs yet)",
]


@pytest.mark.parametrize(
    ("backfill", "runs", "expected", "text", "time"),
    [(*case[1:], time) for case, time in zip(CASES, TIMES, strict=True)],
    ids=[case[0] for case in CASES],
)
def test_a_backfill_is_part_of_the_plan(
    shop: Shop, backfill: str, runs: Any, expected: dict[str, Any], text: str, time: str
) -> None:
    loaded(shop, backfill, *runs)
    shop.sql(NOTE)
    [found] = shop.json("plan")["costs"]["backfills"]
    told = {**found, **found["estimate"]}
    assert {name: told[name] for name in expected} == expected
    assert (found["table"], found["rows"], found["files"], found["of"]) == ("main.customer", 2, 1, 1)
    assert found["rewritten"] > 100
    assert found["changes"] == [shop.changes("--all")["column main.customer.note added (string)"]]
    [line] = [line for line in shop.ok("plan").out.splitlines() if line.startswith(f"  {text}")]
    assert line.endswith(f": {time}")


@pytest.mark.parametrize(("backfill", "sql"), [("none", NOTE), ("column", "drop table customer")])
def test_a_plan_without_backfills(shop: Shop, backfill: str, sql: str) -> None:
    loaded(shop, backfill, *RUNS)
    shop.sql(sql)
    assert shop.json("plan")["costs"]["backfills"] == []


def test_a_table_without_rows_has_nothing_to_fill(shop: Shop) -> None:
    shop.write(text=PROJECT.replace("policy: careful}", "policy: careful, backfill: column}"))
    shop.applied()
    shop.sql(NOTE)
    assert shop.json("plan")["costs"]["backfills"] == []


def test_what_is_planned_is_what_is_asked_for(shop: Shop) -> None:
    """The plan names the backfill that applying it records."""
    loaded(shop, "column", *RUNS)
    shop.sql(NOTE)
    [planned] = shop.json("plan")["costs"]["backfills"]
    shop.ok("apply", "--yes")
    with shop.store() as store:
        assert [(b.column, b.scope) for b in store.backfills.waiting("shop")] == [("note", "column")]
    assert planned["columns"] == ["note"]
    dry = shop.json("backfill", "main.customer", "--column", "note", "--dry-run")["estimate"]
    same = ("rows", "read", "files", "of", "rewritten")
    assert {n: planned[n] for n in same} == {n: dry[n] for n in same}


RETYPED = """
    create table new (id integer primary key, name text, city date);
    insert into new values (1, 'Ann', '5'), (2, 'Bo', null), (3, 'Cy', '1999-12-31'), (4, 'Di', '7');
    drop table customer; alter table new rename to customer;
"""
COUNTED = "main.customer.city: 1 of 3 sampled source values does not fit int64, the accepted type"


@pytest.fixture
def held(shop: Shop) -> Shop:
    """The city was a number, is a date now, and that waits."""
    shop.sql("drop table customer; create table customer (id integer primary key, name text, city int)")
    shop.write()
    shop.applied()
    shop.sql(RETYPED)
    return shop


def test_source_values_are_tried_on_the_accepted_type(held: Shop) -> None:
    [found] = held.json("plan")["costs"]["held"]
    assert (found["sampled"], found["invalid_values"], found["type"], found["text"]) == (3, 1, "int64", COUNTED)
    said = held.ok("plan")
    assert f"  {COUNTED}\n" in said.out
    assert "1999" not in said.out
    assert held.json("plan", "--sample", "0")["costs"]["held"] == []
    assert [(h["sampled"], h["invalid_values"]) for h in held.json("plan", "--sample", "1")["costs"]["held"]] == [
        (1, 0)
    ]


def test_a_retype_that_waits_shows_what_does_not_fit(held: Shop) -> None:
    held.ok("detect")
    [id] = held.changes().values()
    [found] = held.json("changes", "show", id)["held"]
    assert (found["change"], found["text"]) == (id, COUNTED)
    said = held.ok("changes", "show", id).out
    assert (f"  {COUNTED}\n" in said, "1999" in said) == (True, False)
    assert held.json("changes", "show", id, "--sample", "0")["held"] == []
    held.ok("changes", "reject", id)
    assert held.json("changes", "show", id)["held"] == []


def test_a_change_is_shown_as_a_plan_tells_it(shop: Shop) -> None:
    """A narrowing: what happens to values meanwhile, and which of those that are there do not fit the new type."""
    shop.sql("create table wide (id integer primary key, v varchar(20)); insert into wide values (1, 'abcdefgh')")
    shop.write()
    shop.ok("sync")
    shop.sql("drop table wide; create table wide (id integer primary key, v varchar(4))")
    plan = shop.ok("plan").out
    meanwhile = "the wider accepted type holds every value"
    counted = "main.wide.v: all of 1 sampled values fit string(4)"
    [found] = [r for r in shop.json("detect")["changes"] if r["kind"] == "column.narrowed"]
    said = shop.ok("changes", "show", found["id"])
    for text in (meanwhile, counted):
        assert text in plan, text
        assert text in said.out, text
    shown = shop.json("changes", "show", found["id"])
    assert (shown["meanwhile"], [one["text"][: len(counted)] for one in shown["lossy"]]) == (meanwhile, [counted])


def test_a_source_that_is_gone_is_said(held: Shop) -> None:
    held.ok("detect")
    [id] = held.changes().values()
    held.folder.joinpath("shop.db").rename(held.folder / "away.db")
    [found] = held.json("changes", "show", id)["held"]
    assert "no source values were tried" in found["text"]
    assert "no source values were tried" in held.ok("changes", "show", id).out


def test_a_change_that_rebuilds_a_table_is_timed_as_its_mode(shop: Shop) -> None:
    """A new key: every row is read again, by upserts of before."""
    loaded(shop, "none", *RUNS)
    shop.sql(
        "create table new (id integer, name text primary key, city text); insert into new select * from customer;"
        "drop table customer; alter table new rename to customer"
    )
    assert shop.json("plan")["costs"]["backfills"] == [], "pending"
    [id] = [id for summary, id in shop.changes().items() if "key" in summary]
    shop.ok("changes", "approve", id)
    found = shop.json("plan")["costs"]["backfills"]
    assert [(b["columns"], b["mode"], b["estimate"]["runs"], b["changes"]) for b in found] == [([], "upsert", 2, [id])]
    shop.ok("apply", "--yes")
    with shop.store() as store:
        assert [b.scope for b in store.backfills.waiting("shop")] == ["table"]


LARGE = [
    ("{type: delta, warehouse: lake, upsert_rows: 1}", "in parts, one after the other in this process"),
    ("{type: duckdb, path: lake.duckdb}", "in the database"),
]


@pytest.mark.parametrize(("destination", "by"), LARGE, ids=["parts", "database"])
def test_the_way_of_large_work_is_in_the_plan_and_with_the_run(shop: Shop, destination: str, by: str) -> None:
    text = PROJECT.replace("{type: iceberg, warehouse: lake}", destination)
    shop.write(text=f"{text}engine: local\n")
    shop.sql("create table sizes (id integer primary key, n int)")
    for number in range(2):
        shop.sql(f"insert into sizes values ({2 * number}, 5), ({2 * number + 1}, 7)")  # noqa: S608
        shop.ok("sync")
    shop.sql("create table new (id integer primary key, n text); insert into new select * from sizes")
    shop.sql("drop table sizes; alter table new rename to sizes")
    line = f"shop.sizes: rewrite of 4 rows {by}"
    assert line in shop.ok("plan").out
    [one] = shop.json("plan")["large"]
    assert one == {"table": "shop.sizes", "operation": "rewrite", "rows": 4, "by": by}
    shop.ok("apply", "--yes")
    in_parts = "parts" in by
    assert ("(shop.sizes: rewrite)" in shop.ok("history", "--runs").out.replace("\n", "")) == in_parts
    shop.ok("sync")
    assert ("shop.sizes: merge" in shop.ok("plan", "--all").out) == in_parts
    assert shop.ok("verify", "--table", "main.sizes")


IN_PARTS = "in parts, one after the other in this process"
ALIKE = f"in this process if at most `upsert_rows` rows differ, otherwise {IN_PARTS}"
BY_SPARK = "by Spark alone: set `engine: spark`"
DELTA, ICEBERG = "delta, warehouse: lake, upsert_rows: ", "iceberg, warehouse: lake, upsert_rows: "
CURSOR = "cursor: at, deletes: ignore"
MERGES = [
    ("a whole table that fits", f"{DELTA}8", "deletes: hard", {}),
    ("a whole table of rows that are alike", f"{DELTA}2", "deletes: hard", {"merge": ALIKE}),
    ("a whole table", f"{DELTA}1", "deletes: hard", {"merge": IN_PARTS}),
    ("rows behind a cursor", f"{DELTA}1", CURSOR, {}),
    ("rows behind a cursor, and keys", f"{DELTA}7", "cursor: at", {"merge": IN_PARTS}),
    ("rows from a value on", f"{DELTA}1", "cursor: at, mode: append", {}),
    ("rows in the place of all", f"{DELTA}1", "mode: full_refresh", {}),
    ("versions", f"{DELTA}1", "history: true", {"history": IN_PARTS, "merge": IN_PARTS}),
    ("a whole table that fits", f"{ICEBERG}8", "deletes: hard", {}),
    ("a whole table", f"{ICEBERG}1", "deletes: hard", {"merge": BY_SPARK}),
    ("rows behind a cursor", f"{ICEBERG}1", CURSOR, {}),
    ("rows behind a cursor, and keys", f"{ICEBERG}7", "cursor: at", {"merge": BY_SPARK}),
    ("rows from a value on", f"{ICEBERG}1", "cursor: at, mode: append", {"merge": BY_SPARK}),
    ("a whole table", "duckdb, path: lake.duckdb", "deletes: hard", {}),
]


@pytest.mark.parametrize(
    ("destination", "settings", "large"),
    [m[1:] for m in MERGES],
    ids=[f"{m[1].partition(',')[0]} {m[0]}" for m in MERGES],
)
def test_the_path_of_a_merge_is_the_one_that_the_plan_tells(
    shop: Shop, destination: str, settings: str, large: dict[str, str]
) -> None:
    text = PROJECT.replace("{type: iceberg, warehouse: lake}", f"{{type: {destination}}}").replace(
        "policy: careful}", f"policy: careful, tables: {{main.sizes: {{{settings}}}}}}}"
    )
    assert settings in text
    shop.write(text=f"{text}engine: local\n")
    shop.sql("create table sizes (id integer primary key, at integer not null)")
    shop.sql("insert into sizes values (1, 1), (2, 2), (3, 3), (4, 4)")
    shop.ok("sync", "--table", "main.sizes")
    shop.sql("update sizes set at = 5 where id = 4")
    found = {one["operation"]: one["by"] for one in shop.json("plan", "--all")["large"] if "sizes" in one["table"]}
    assert found == large
    done = shop.run("sync", "--table", "main.sizes")
    if BY_SPARK in large.values():
        assert "cannot be merged without Spark" in done.out
        return
    assert done.code == 0, done.out + done.err
    with shop.store() as store:
        run = store.runs.latest("shop", "sync")
    parts = [one for one, by in large.items() if by == IN_PARTS]
    assert [f"main.sizes: {one}" in str(run and run.detail) for one in ("history", "merge")] == [
        one in parts for one in ("history", "merge")
    ]
