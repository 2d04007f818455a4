# ruff: noqa: S608 - names are ours
"""Laws of the comparison by sums: it finds the keys that a full outer join of all rows would, on threads and Spark."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instep.errors import InstepError
from instep.spark.fold import fold_on_spark
from instep.stage.duckdb_memory import in_duckdb
from instep.stage.fold import Scan
from instep.stage.key_hashes import ColumnSides, HashColumns, KeyTotals, count_keys
from instep.stage.spec import Chunk
from instep.sync.loading.engine import Engine, LocalEngine, OnSpark
from instep.sync.loading.row_comparison import DIFFERS, EXTRA, MISSING, TWINS, RowComparison
from instep.sync.loading.row_sums import Buckets, ReturnRows, SideShape
from instep.sync.loading.table_sides import TableSide
from lake import SPARK
from sync_world import MakeWorld

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # pyspark's, of finished jobs
Row = tuple[Any, ...]
ZONED = pa.timestamp("us", "UTC")
KEYS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "whole numbers": (pa.int64(), st.integers(-3, 40) | st.sampled_from([-(2**63), 2**63 - 1, 2**40])),
    "texts": (pa.string(), st.text("ab", max_size=2)),
    "decimals": (pa.decimal128(9, 2), st.integers(-300, 300).map(lambda n: Decimal(n).scaleb(-2))),
    "moments": (ZONED, st.integers(-5, 5).map(lambda n: datetime.fromtimestamp(n, UTC))),
    "numbers": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf])),
}
VALUES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.float64(), st.sampled_from([None, 0.0, -0.0, math.nan, 1.0])),
    (pa.decimal128(38, 10), st.sampled_from([None, Decimal(0), Decimal("1e-10"), Decimal(10) ** 27])),
    (ZONED, st.sampled_from([None, datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)])),
    (pa.list_(pa.int32()), st.sampled_from([None, [], [1], [None]])),
]


@dataclass(frozen=True)
class Batches:
    """A reader of rows that are in memory: a chunk names them by number."""

    batches: tuple[pa.RecordBatch, ...]

    @contextmanager
    def open(self) -> Iterator[Batches]:
        yield self

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        yield self.batches[chunk.number]


def side(kinds: Sequence[pa.DataType], rows: Sequence[Row], buckets: Buckets) -> TableSide:
    """Rows in chunks of five."""
    names = [str(n) for n in range(len(kinds))]
    parts = [rows[n : n + 5] for n in range(0, len(rows), 5)]
    batches = tuple(
        pa.record_batch([pa.array(c, k) for c, k in zip(zip(*part, strict=True), kinds, strict=True)], names)
        for part in parts
    )
    chunks = [Chunk("t", n, "", len(part)) for n, part in enumerate(parts)]
    return TableSide(SideShape(len(kinds), (0,), buckets), lambda: Scan(Batches(batches), chunks))


def found(engine: Engine, source: TableSide, destination: TableSide) -> set[tuple[str, str]] | None:
    """(how it differs, key) of what is found; None: the sides are equal."""
    sums = source.sums(engine), destination.sums(engine)
    buckets = sums[0].differing(sums[1])
    if not buckets:
        return None
    with in_duckdb(lossless=True) as db:
        rows = RowComparison(db, ["key"])
        rows.load("source", source.rows(engine, buckets, columns=True))
        rows.load("destination", destination.rows(engine, buckets))
        rows.compare()
        return {(what, str(key)) for what, key in db.execute("SELECT what, k0 FROM different").fetchall()}


def plain(value: Any) -> str:
    """A value as it counts: -0.0 is 0.0, and NaN is NaN."""
    return str(value + 0.0) if isinstance(value, float) else repr(value)


def joined(source: Sequence[Row], destination: Sequence[Row]) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """What a full outer join finds, and of it what need not be found: keys of several rows, the same on both sides."""
    sides = [dict[str, tuple[str, Counter[str]]](), dict[str, tuple[str, Counter[str]]]()]
    for rows, by_key in zip((source, destination), sides, strict=True):
        for key, *values in rows:
            shown = str(key + 0.0 if isinstance(key, float) else key)
            by_key.setdefault(plain(key), (shown, Counter()))[1]["|".join(map(plain, values))] += 1
    must, may = set[tuple[str, str]](), set[tuple[str, str]]()
    for key in {*sides[0], *sides[1]}:
        shown = next(by_key[key][0] for by_key in sides if key in by_key)
        ours, theirs = (by_key.get(key, ("", Counter()))[1] for by_key in sides)
        if not ours or not theirs:
            must.add((MISSING if ours else EXTRA, shown))
        else:
            differs = len({*ours, *theirs}) > 1
            (may if ours == theirs else must).update({(DIFFERS, shown)} if differs else set())
            must.update({(TWINS, shown)} if ours.total() != theirs.total() else set())
    return must, may


def tables(kind: str) -> st.SearchStrategy[tuple[list[Row], list[Row]]]:
    """Two tables that are alike: the second has rows of the first, some of them changed, and others."""
    row = st.tuples(KEYS[kind][1], *(v[1] for v in VALUES))
    rows = st.lists(row, max_size=25)
    return rows.flatmap(
        lambda first: st.tuples(
            st.just(first),
            st.tuples(
                st.lists(st.sampled_from(first), max_size=25) if first else st.just([]), st.lists(row, max_size=2)
            ).map(lambda both: [*both[0], *both[1]])
            | st.just(list(reversed(first))),
        )
    )


def shown_keys(keys: set[tuple[str, str]], kind: str) -> set[tuple[str, str]]:
    """Keys of numbers as Python writes them, whichever of equal ones DuckDB has shown."""
    return {(what, str(float(key) + 0.0)) for what, key in keys} if kind == "numbers" else keys


@pytest.mark.parametrize("width", [0, 1, 8])
@pytest.mark.parametrize("kind", KEYS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_the_keys_that_a_full_outer_join_finds(kind: str, width: int, data: st.DataObject) -> None:
    source, destination = data.draw(tables(kind))
    kinds = [KEYS[kind][0], *(v[0] for v in VALUES)]
    buckets = Buckets(width if kind == "whole numbers" else 0, 16)
    found_keys = found(LocalEngine(2), side(kinds, source, buckets), side(kinds, destination, buckets))
    must, may = joined(source, destination)
    if found_keys is None:
        assert not must
    else:
        assert must <= shown_keys(found_keys, kind) <= must | may


LIST, PAIR = pa.list_(pa.int32()), pa.struct([("a", pa.int32()), ("B c", pa.list_(pa.int32()))])
LISTS, TEXTS = pa.struct([("a", LIST), ("b", LIST)]), pa.list_(pa.list_(pa.string()))
EQUAL: list[tuple[pa.DataType, Any, Any]] = [
    (pa.list_(pa.float64()), [0.0, math.nan], [-0.0, math.nan]), (LIST, [], []), (LIST, None, None),
    (TEXTS, [["x", None], None], [["x", None], None]), (PAIR, {"a": None, "B c": []}, {"a": None, "B c": []}),
    (pa.list_(PAIR), [None, {"a": 1, "B c": None}], [None, {"a": 1, "B c": None}]),
]  # fmt: skip
OTHER: list[tuple[pa.DataType, Any, Any]] = [
    (LIST, None, []), (LIST, [0], [0, 0]), (LIST, [], [None]), (LIST, None, [None]), (LIST, [0], []),
    (LIST, [0, 5], [5]), (LIST, [1, 2], [2, 1]), (LIST, [None, 1], [1, None]), (pa.list_(LIST), [[1], None], [[1], []]),
    (pa.list_(LIST), [[1], [2]], [[1, 2]]), (pa.list_(LIST), [None], [[]]), (TEXTS, [["x"], None], [["x", None]]),
    (TEXTS, [["x"], ["y"]], [["x", "y"]]), (TEXTS, [["a", None]], [["a", ""]]), (PAIR, None, {"a": None, "B c": None}),
    (PAIR, {"a": 1, "B c": None}, {"a": 1, "B c": []}), (LISTS, {"a": [1], "b": [2]}, {"a": [1, 2], "b": []}),
    (LISTS, {"a": [1], "b": [0]}, {"a": [1, 0], "b": [0]}), (LISTS, {"a": [1], "b": None}, {"a": None, "b": [1]}),
    (pa.list_(PAIR), [None], [{"a": None, "B c": None}]), (pa.list_(pa.bool_()), [False, True], [True]),
    (pa.struct([("s", PAIR)]), {"s": None}, None), (pa.struct([("s", PAIR)]), {"s": None}, {"s": {"a": None}}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "one", "other"), [*EQUAL, *OTHER], ids=str)
def test_nested_values_are_compared_exactly(kind: pa.DataType, one: Any, other: Any) -> None:
    kinds, differs = [pa.int64(), pa.string(), kind, pa.int32()], (kind, one, other) in OTHER
    buckets = Buckets.of(1, by_range=True)
    rows = ([(1, "x", value, 5), (2, "x", one, 5)] for value in (one, other))
    sides = [side(kinds, own, buckets) for own in rows]
    assert found(LocalEngine(), *sides) == ({(DIFFERS, "1")} if differs else None)


@pytest.mark.parametrize("rows", [0, 1, 7, 10_000, 10**9, 10**12])
def test_buckets_are_as_many_as_rows_are_worth(rows: int) -> None:
    ranged = Buckets.of(rows, by_range=True)
    assert Buckets.of(rows, by_range=False).width == 0
    assert 64 <= ranged.number <= 1 << 14
    assert ranged.width * ranged.number >= rows


MANY = [(n, None, Decimal(n), datetime.fromtimestamp(n, UTC), [n]) for n in range(2_000)]
OTHERS = [*((n, *MANY[n][1:4], [-n]) for n in range(700, 720)), *MANY[:700], *MANY[723:], (5_000, *MANY[0][1:])]


def test_spark_finds_what_threads_find(session: Callable[[], Any]) -> None:
    kinds, buckets = [pa.int64(), *(v[0] for v in VALUES)], Buckets.of(2_000, by_range=True)
    sides = side(kinds, MANY, buckets), side(kinds, OTHERS, buckets)
    here, there = found(LocalEngine(), *sides), found(OnSpark(session), *sides)
    assert here == there
    assert here is not None
    assert Counter(what for what, _ in here) == {DIFFERS: 19 + 1, MISSING: 3, EXTRA: 1}


def as_it_is(chunk: Chunk, batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


@dataclass(frozen=True)
class Frames:
    """A reader of data frames: the rows are made by Spark, a partition for each chunk."""

    rows: int

    def frame(self, spark: Any, chunks: Sequence[Chunk]) -> Any:
        return spark.range(0, self.rows, 1, len(chunks)).selectExpr("xxhash64(id)", "cast(id as string)")

    @property
    def batch_normalizer(self) -> Callable[[Chunk, pa.RecordBatch], pa.RecordBatch]:
        return as_it_is

    def failure(self, error: BaseException, subject: str) -> None:
        return None


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("kind", ["batches", "lanes", "frames"])
def test_the_driver_holds_a_part_of_many_rows(
    session: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, kind: str, known: bool
) -> None:
    """However many they are, whether or not somebody knows it before, and whatever chunks have to stay together."""
    rows, spark = 200_000, session()
    monkeypatch.setattr("instep.spark.fold.DRIVER_ROWS", 100_000)
    monkeypatch.setattr("instep.spark.fold.DRIVER_BYTES", 100_000)
    limit, conf = "spark.driver.maxResultSize", spark._jsc.sc().conf()
    chunks = [Chunk("t", n, "", known * rows // 8, lane=f"t{n % 4}" if kind == "lanes" else "") for n in range(8)]
    at = random.Random(7)
    keys = [[at.getrandbits(62) for _ in range(rows // 8)] for _ in range(8)]
    batches = tuple(pa.record_batch([pa.array(own), pa.array(map(str, own))], ["a", "b"]) for own in keys)
    reader: Any = Frames(rows) if kind == "frames" else Batches(batches)
    shape = SideShape(2, (0,), Buckets.of(rows, by_range=True))
    conf.set(limit, "2m")
    try:
        with pytest.raises(InstepError, match="maxResultSize"):  # what Spark makes of all of them at once
            list(fold_on_spark(spark, Scan(reader, chunks), ReturnRows(shape)))
        results = fold_on_spark(spark, Scan(reader, chunks), ReturnRows(shape), returned=1)
        found = [pa.ipc.open_stream(r.rows).read_all().num_rows for r in results]
    finally:
        conf.set(limit, "1g")
    assert (sum(found), len(found) > 1) == (rows, True)


@pytest.mark.parametrize("on", ["local", pytest.param("spark", marks=SPARK)])
def test_values_that_differ_are_counted_by_column(on: str, request: pytest.FixtureRequest) -> None:
    """By key and as texts, so that a column and a key of another type have the same values."""
    engine: Engine = LocalEngine(2)
    if on == "spark":
        engine = OnSpark(request.getfixturevalue("session"))
    at = random.Random(3)
    texts = [None, "", "7", "07", "x"]
    then = {n: (at.choice([None, 0, 7]), at.choice(texts)) for n in range(60)}
    now = {n: (at.choice([None, "0", "7"]), at.choice(texts), at.choice([None, 1.5])) for n in range(20, 90)}
    before = side([pa.int32(), pa.int64(), pa.string()], [(n, *row) for n, row in then.items()], Buckets()).now()
    kinds = [pa.string(), pa.string(), pa.float64(), pa.int64()]
    after = side(kinds, [(*row, n) for n, row in now.items()], Buckets()).now()
    assert isinstance(before, Scan)
    assert isinstance(after, Scan)
    sides = ColumnSides(HashColumns((3,), (0, 1, 2, 3)), HashColumns((0,), (1, 2)))
    found = engine.count_columns(after, before, sides)
    assert found.filled == (*(sum(row[i] is not None for row in now.values()) for i in range(3)), len(now))
    met = [(then[n], row) for n, row in now.items() if n in then]
    numbers = sum((None if a is None else str(a)) != b for (a, _), (b, *_) in met)
    assert found.differing == (numbers, sum(a != b for (_, a), (_, b, _) in met))
    alone = ColumnSides(HashColumns((), (0, 3)), HashColumns((), ()))
    only = engine.count_columns(after, replace(before, chunks=()), alone)
    assert (only.filled, only.differing) == ((found.filled[0], len(now)), ())


@pytest.mark.parametrize("kind", KEYS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_rows_that_share_their_key_are_counted(kind: str, data: st.DataObject) -> None:
    keys = data.draw(st.lists(st.tuples(st.none() | KEYS[kind][1], st.sampled_from([None, "a", "b"])), max_size=30))
    scan = side([KEYS[kind][0], pa.string()], keys, Buckets()).now()
    whole = [(plain(a), b) for a, b in keys if a is not None and b is not None]
    expected = KeyTotals(len(keys), len(whole) - len(set(whole)), len(keys) - len(whole))
    assert isinstance(scan, Scan)
    assert count_keys(LocalEngine(2), scan) == expected


def test_spark_counts_what_threads_count(session: Callable[[], Any]) -> None:
    keys = [*((n, "a") for n in range(3_000)), *((n, "a") for n in range(0, 3_000, 100)), (1, None), (None, None)]
    scan = side([pa.int64(), pa.string()], keys, Buckets()).now()
    assert isinstance(scan, Scan)
    assert count_keys(OnSpark(session), scan) == count_keys(LocalEngine(), scan) == KeyTotals(3_032, 30, 2)


SAME_ON_BOTH: Mapping[str, Any] = {"sqlite": "integer", "postgres": "bigint"}


@pytest.mark.parametrize("kind", SAME_ON_BOTH)
def test_the_report_is_the_same_by_either_engine(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    world.run(f"CREATE TABLE t (id {SAME_ON_BOTH[kind]} PRIMARY KEY, name varchar(9))", "CREATE TABLE u (a int)")
    values = ", ".join(f"({n}, 'n{n}')" for n in range(500))
    world.run(f"INSERT INTO t VALUES {values}", "INSERT INTO u VALUES (1), (1), (NULL)")
    world.sync()
    world.run("UPDATE t SET name = 'x' WHERE id IN (3, 77)", "DELETE FROM t WHERE id = 499", "INSERT INTO u VALUES (2)")
    reports = []
    for engine in ("local", "spark"):
        world.engine = engine
        reports.append(world.verify())
    here, there = (
        {name: (v.equal, v.source_rows, v.destination_rows, v.differences) for name, v in r.items()} for r in reports
    )
    assert here == there
    assert here["t"] == (
        False,
        499,
        500,
        (
            "columns that differ: id, name",
            "differs (2 rows): key 3",
            "differs (2 rows): key 77",
            "only in the destination (1 rows): key 499",
        ),
    )
    assert [r["t"].engine.partition(" ")[0] for r in reports] == ["local", "spark"]
