"""What a query asks for is all that is read, and what it answers does not depend on that."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.destinations import DESTINATIONS
from contract.destinations import postgres as into_postgres
from instep.destinations.base import Commit, Merge
from instep.destinations.facets import Destination
from instep.destinations.filters import ColumnFilter, ColumnRange, may_pass
from instep.errors import DestinationError
from instep.schema.changes.kinds import ColumnAdded, ColumnWidened
from instep.schema.planning.aliases import View
from instep.schema.planning.step import step
from instep.sync import query
from instep.sync.query import ask, ask_arrow
from lake import ID, column, create, stage, stage_table, table

KINDS = {
    "n": "int32", "amount": "decimal(10,2)", "name": "string", "day": "date", "made": "timestamp", "tz": "timestamptz",
    "ok": "boolean", "ratio": "float64", "doc": "json",
}  # fmt: skip
WANTED = table(ID, *(column(name, kind) for name, kind in KINDS.items()))
OTHER = table(ID, column("label", "string"), name="labels")
REF = WANTED.ref
INTO = ("iceberg", "delta", "delta in partitions", "duckdb", "postgres")


def row(number: int) -> dict[str, Any]:
    at = dt.datetime(2026, 1, 1) + dt.timedelta(days=number, microseconds=number)
    return {
        "id": number, "n": None if number % 7 == 0 else number, "amount": Decimal(number) / 4, "name": f"n{number:03}",
        "day": at.date(), "made": at, "tz": at.replace(tzinfo=dt.UTC), "ok": number < 30,
        "ratio": float("nan") if number % 5 == 0 else number / 2, "doc": '{"a": 1}',
    }  # fmt: skip


def loaded(kind: str, folder: Path, request: pytest.FixtureRequest) -> Destination:
    """Six files of ten rows, then rows that were changed and removed, a column that is wider and one that is new."""
    if kind == "postgres":
        to: Destination = into_postgres(folder, request.getfixturevalue("postgres"))
    else:
        to = DESTINATIONS[kind](folder)
    for wanted in (WANTED, OTHER):
        create(to, wanted, Commit("make", 1))
    for start in range(0, 60, 10):
        rows = [row(start + n) for n in range(10)]
        to.write.append(REF, [stage(to, REF, rows)], Commit(f"r{start}", 1))
    labels = [{"id": n, "label": f"l{n % 3}"} for n in range(0, 60, 2)]
    to.write.append(OTHER.ref, [stage(to, OTHER.ref, labels)], Commit("labels", 1))
    how = Merge(("id",), deletes="hard", complete=False)
    to.write.merge(None, REF, [stage(to, REF, [{**row(12), "n": 5000, "name": "a'b"}, row(100)])], how, Commit("m", 1))
    late, wide = column("late", "int64"), column("n", "int64")
    after = table(ID, *(wide if c.name == "n" else c for c in WANTED.columns[1:-3]), late)
    changes = [ColumnWidened(REF, WANTED.by_name["n"], wide), ColumnAdded(REF, late, 13)]
    to.schema.execute(REF, [step(REF, c) for c in changes], after, Commit("wider", 1))
    more = {**row(200), "late": 7, "n": 2**40}
    to.write.append(REF, [stage(to, REF, [more])], Commit("late", 1))
    return to


WHERE = [
    "id = 35", "35 = id", "id >= 55 and id < 57", "id in (3, 33, 400)", "id between 10 and 12", "id > 5.5 and id < 7.5",
    "n = 5000", "n is null", "n is not null and n > 1000", "n > 100000000000", "n = 1099511627776", "late = 7",
    "late is null and id < 3", "late is not null", "amount = 2.5", "amount > 14", "amount <= 0.25", "amount = 2.505",
    "name = 'n017'", "name >= 'n055'", "name < 'b'", "name = 'a''b'", "name in ('n001', 'nope')", "day = '2026-02-01'",
    "day < date '2026-01-03'", "day >= timestamp '2026-02-20 12:00:00'", "made >= '2026-02-25'",
    "made < timestamp '2026-01-02 00:00:00.000002'", "tz >= timestamptz '2026-02-25 02:00:00+03'",
    "tz between '2026-01-05' and '2026-01-06 12:00:00'", "ok", "ok = false and id < 33", "not ok", "ratio > 20",
    "ratio = 'nan'", "id = 3 or id = 44", "not (id < 55)", "lower(name) = 'n003'", "id = n and id > 57", "id = null",
    "doc = '{\"a\": 1}' and id = 4", "id + 1 = 5", "day between '2026-01-01' and 'infinity' and id < 2", "true",
    "id > 99999999999999999999", "id < -1 or true", "(id > 50 and name > 'n052')", "id <> 3 and id < 5",
]  # fmt: skip
SHAPES = [
    "select id, n, name from t where {}", "select count(*), min(id) from shop.orders where {}",
    "select x.id from t x where {}", "select x.id, l.label from t x left join labels l on x.id = l.id where {}",
    "select x.id, l.label from labels l left join t x on x.id = l.id where {}",
    "select x.id, l.label from t x full join labels l on x.id = l.id and l.label = 'l1' where {}",
    "select x.id from t x join t y on x.id = y.id + 1 where {}",
    "select id from (select * from t where {}) where id > 3", "with q as (select * from t) select id from q where {}",
    "select id from t where {} union all select id from labels",
    "select id from t where id in (select id from t where {})",
    "select distinct ok from t where {} limit 3", "select id, row_number() over (order by id) from t where {}",
]  # fmt: skip


def sql(shape: str, where: str) -> str:
    shape = shape.replace(" t ", " orders ").replace(" t)", " orders)")
    if "x.id" in shape:
        names = {c.name for c in WANTED.columns} | {"late"}
        words = [f"x.{w}" if w.strip("()") in names else w for w in where.split(" ")]
        where = " ".join(words).replace("lower(name", "lower(x.name").replace("x.(id", "(x.id")
    return shape.format(where)


def answers(to: Destination, statements: Sequence[str]) -> list[Any]:
    return [sorted(map(str, ask(to, one).rows)) for one in statements]


@pytest.mark.parametrize("kind", INTO)
def test_answers_are_those_of_all_rows(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    to = loaded(kind, tmp_path, request)
    statements = [sql(SHAPES[0], where) for where in WHERE]
    statements += [sql(shape, where) for n, shape in enumerate(SHAPES) for where in WHERE[n % 9 :: 9]]
    filtered = answers(to, statements)
    monkeypatch.setattr(query, "filters_of", lambda *_: {})
    for statement, ours, all_rows in zip(statements, filtered, answers(to, statements), strict=True):
        assert ours == all_rows, statement


READ: list[tuple[ColumnFilter, int, int]] = [
    (ColumnFilter("id", "=", (35,)), 1, 10), (ColumnFilter("id", "in", (35, 36)), 2, 10),
    (ColumnFilter("id", ">", (58,)), 3, 22), (ColumnFilter("day", "<", (dt.date(2026, 1, 2),)), 1, 10),
    (ColumnFilter("made", ">=", (dt.datetime(2026, 2, 27),)), 3, 22),
    (ColumnFilter("amount", "=", (Decimal("8.75"),)), 1, 10),
    (ColumnFilter("tz", "<=", (dt.datetime(2026, 1, 1, tzinfo=dt.UTC),)), 1, 10),
    (ColumnFilter("late", "not null"), 1, 1), (ColumnFilter("n", "=", (2**40,)), 1, 1),
    (ColumnFilter("name", "=", ("n041",)), 1, 10), (ColumnFilter("id", "=", (-1,)), 0, 0),
]  # fmt: skip


@pytest.mark.parametrize("kind", INTO)
def test_files_without_such_a_row_are_not_read(tmp_path: Path, request: pytest.FixtureRequest, kind: str) -> None:
    to = loaded(kind, tmp_path, request)
    assert to.write.read(REF, ["id"]).read_all().num_rows == 62
    for one, least, most in READ:
        rows = to.write.read(REF, ["id"], [one]).read_all().num_rows
        if kind.startswith("delta"):  # a file that was rewritten has rows of two; old files say nothing of a new column
            most = most + 11 if one.column != "late" else 62
        assert least <= rows <= most, one


def test_row_groups_without_such_a_row_are_not_read(tmp_path: Path) -> None:
    for kind in ("iceberg", "delta"):
        to = DESTINATIONS[kind](tmp_path)
        create(to, WANTED)
        rows = pa.Table.from_pylist([row(n) for n in range(60)], to.write.target(REF).schema)
        to.write.append(REF, [stage_table(to, REF, rows, group=10)], Commit("r", 1))
        for one, _, most in READ:
            if one.column != "late":
                assert to.write.read(REF, ["id"], [one]).read_all().num_rows <= most, (kind, one)


LIMITED = ["select * from orders limit 3", "select id, name from shop.orders where id >= 0 limit 3 offset 2"]


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
@pytest.mark.parametrize("statement", LIMITED)
def test_a_limit_without_an_order_stops_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, statement: str
) -> None:
    to = DESTINATIONS[kind](tmp_path)
    create(to, WANTED)
    for start in range(0, 30_000, 5_000):
        to.write.append(REF, [stage(to, REF, [{"id": start + n} for n in range(5_000)])], Commit(f"r{start}", 1))
    seen, read = list[int](), type(to.write).read

    def counted(self: Any, *wanted: Any) -> pa.RecordBatchReader:
        rows = read(self, *wanted)

        def batches() -> Any:
            for batch in rows:
                seen.append(len(batch))
                yield batch

        return pa.RecordBatchReader.from_batches(rows.schema, batches())

    monkeypatch.setattr(type(to.write), "read", counted)
    assert len(ask(to, statement).rows) == 3
    assert sum(seen) <= 10_000
    seen.clear()
    assert ask(to, "select * from orders", 4).more
    assert sum(seen) <= 10_000, "more rows than are shown are not read either"


def test_what_goes_wrong_while_rows_are_read_is_said_as_it_is(tmp_path: Path) -> None:
    to = DESTINATIONS["delta"](tmp_path)
    create(to, WANTED)
    to.write.append(REF, [stage(to, REF, [row(n) for n in range(10)])], Commit("r", 1))
    with pytest.raises(DestinationError, match="more than"):
        ask_arrow(to, "select * from orders", 10)
    for file in tmp_path.glob("delta/shop/orders/data/*.parquet"):
        file.unlink()
    with pytest.raises(DestinationError, match="is not there") as caught:
        ask(to, "select * from orders where id = 3")
    assert "sync --full" in caught.value.hint


def test_a_view_is_read_by_filters_on_its_own_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = DESTINATIONS["iceberg"](tmp_path)
    create(lake, WANTED)
    for start in range(0, 30, 10):
        lake.write.append(REF, [stage(lake, REF, [row(start + n) for n in range(10)])], Commit(f"r{start}", 1))
    seen = list[Any]()
    read = type(lake.write).read
    monkeypatch.setattr(type(lake.write), "read", lambda self, *wanted: seen.append(wanted) or read(self, *wanted))

    class Viewed:
        schema, write = lake.schema, lake.write

        @property
        def views(self) -> Viewed:
            return self

        def all(self) -> dict[Any, View]:
            return {("shop", "old"): View(("shop", "old"), REF, (("id", "n"), ("nr", "id"), ("again", "id")), "c")}

    to: Any = Viewed()
    assert ask(to, "select id, nr, again from old where nr = 13").rows == [(13, 13, 13)]
    assert seen == [(REF, ("n", "id"), [ColumnFilter("id", "=", (13,))])]


INTS = st.integers(-3, 3)


@given(
    st.lists(st.none() | INTS, min_size=1), st.sampled_from(["=", "<", "<=", ">", ">=", "in", "null", "not null"]), INTS
)
def test_a_range_with_a_row_that_passes_may_pass(values: list[int | None], operator: Any, wanted: int) -> None:
    there = [v for v in values if v is not None]
    low, high = (min(there), max(there)) if there else (None, None)
    own = ColumnRange(low, high, None in values, not there)
    one = ColumnFilter("c", operator, () if "null" in operator else (wanted,))
    passes = {
        "=": lambda v: v == wanted, "in": lambda v: v == wanted, "<": lambda v: v < wanted, "<=": lambda v: v <= wanted,
        ">": lambda v: v > wanted, ">=": lambda v: v >= wanted,
    }  # fmt: skip
    found = (
        [v is None for v in values] if operator == "null" else [passes.get(operator, lambda _: True)(v) for v in there]
    )
    assert may_pass([one], {"c": own}) >= any(found)
    assert may_pass([one], {"c": ColumnRange()}), "nothing is known"
