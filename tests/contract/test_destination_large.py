# ruff: noqa: F811 - the imported fixtures
"""What large work leaves on every destination is what small work does: by tasks of Spark, and in this process."""

from __future__ import annotations

import itertools
import json
from datetime import datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from test_destination import destination  # noqa: F401

from instep.destinations.base import Commit, FileWorkers, LoadOutcome, Merge
from instep.destinations.facets import Destination
from instep.destinations.overflow import OverflowColumn, Promoted
from instep.schema.catalog.types import parse
from instep.schema.changes.describe import ColumnRemoved
from instep.schema.planning.step import UndropColumn, step
from lake import ID, PREFIX, REF, column, create, spark, stage, table, with_spark  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
EXTRA = f"{PREFIX}extra"
LONG = "x" * 3_000

# object, value before, value afterwards, text afterwards, names that stay in the object
KEPT: list[tuple[Any, int | None, int | None, str | None, set[str]]] = [
    (None, None, None, None, set()),
    ({"old": 7}, None, 7, None, set()),
    ({"old": "8", "text": "é"}, None, 8, "é", set()),
    ({"old": "many", "text": "t"}, None, None, "t", {"old"}),
    ({"other": 1}, None, None, None, {"other"}),
    ({"old": 5, "pad": LONG}, None, 5, None, {"pad"}),
    ({"old": 9}, 1, 1, None, {"old"}),
    ({"text": LONG}, 2, 2, LONG, set()),
]


def kept(value: Any) -> str | None:
    """The object as a load writes it."""
    return None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@with_spark
@pytest.mark.parametrize("engine", ["spark", "local"])
def test_kept_values_are_taken_out(
    destination: Destination, engine: str, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if destination.kind == "memory":
        pytest.skip("it has no objects")
    monkeypatch.setattr("instep.destinations.iceberg.backfill.fill.PART_ROWS", 1)
    monkeypatch.setattr("instep.destinations.delta.files.BATCH", 1)
    create(destination, table(ID, column("v", "int64"), column("w", "string"), column(EXTRA, "json")))
    for start in (0, 10, 20):
        rows = [{"id": start + n, "v": v, EXTRA: kept(o)} for n, (o, v, *_) in enumerate(KEPT)]
        destination.write.append(REF, [stage(destination, REF, rows)], Commit("run-1", 1, "c"))
    left = [stage(destination, REF, [{"id": 1}]), stage(destination, REF, [{"id": 2, EXTRA: '{"old":3}'}])]
    destination.write.merge(lambda: spark, REF, left, Merge(("id",)), Commit("run-2", 1, "c"))
    expected = {start + n: (v, w, names) for start in (0, 10, 20) for n, (_, _, v, w, names) in enumerate(KEPT)} | {
        1: (None, None, set()),
        2: (3, None, set()),
    }
    seen, sessions = list[int](), list[Any]()

    def session() -> Any:
        sessions.append(spark)
        return spark if engine == "spark" else None

    columns = {"v": OverflowColumn("old", parse("int64")), "w": OverflowColumn("text", parse("string"))}
    workers = FileWorkers(session, lambda rows, size: seen.append(rows))
    done = destination.write.promote(REF, columns, EXTRA, Commit("run-3", 1), workers)
    assert done == Promoted(rows=14, invalid_values=3)
    found = destination.write.read(REF, ["id", "v", "w", EXTRA]).read_all().to_pylist()
    assert {r["id"]: (r["v"], r["w"], {*json.loads(r[EXTRA] or "{}")}) for r in found} == expected
    assert (state := destination.schema.state(REF)) is not None
    assert (state.cursor, state.rows) == ("c", 24)
    in_files = destination.kind in ("iceberg", "delta")
    assert bool(seen) == in_files
    assert bool(sessions) == (in_files and destination.config.upsert_rows == 0)  # type: ignore[attr-defined]
    again = destination.write.promote(REF, columns, EXTRA, Commit("run-4", 1), workers)
    assert again == Promoted(rows=0, invalid_values=3)


NAN = float("nan")

# column, its type, values of which each differs from the others, then a spelling of the last one that is equal
COMPARED: list[tuple[str, str, list[Any], Any]] = [
    ("i", "int32", [None, 0, -1], -1),
    ("f", "float64", [None, 1.5, NAN, 0.0], -0.0),
    ("d", "decimal(38,10)", [None, Decimal("0E-10"), Decimal("1.0000000001")], Decimal("1.0000000001")),
    ("t", "string", [None, "", "a", "A", "x" * 3_000], "x" * 3_000),
    ("b", "binary", [None, b"", b"\x00", b"\x00\x00"], b"\x00\x00"),
    (
        "m",
        "timestamptz",
        [None, datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC"))],
        datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC")),
    ),
    ("l", "array(int32)", [None, [], [None], [1], [1, None]], [1, None]),
    (
        "s",
        'struct("a" int32, "b c" array(string))',
        [None, {"a": 1, "b c": None}, {"a": 1, "b c": []}],
        {"a": 1, "b c": []},
    ),
]


@with_spark
@pytest.mark.parametrize("engine", ["spark", "local"])
def test_a_whole_compare_writes_the_rows_that_differ(destination: Destination, engine: str, spark: Any) -> None:
    """Each pair of different values is an update, each pair of equal ones is none; rows go, come and return."""
    if destination.kind not in ("iceberg", "delta") or (engine == "local" and destination.kind == "iceberg"):
        pytest.skip("it has one path")
    create(destination, table(ID, *(column(name, kind) for name, kind, *_ in COMPARED)))
    pairs = [(name, a, b) for name, _, values, _ in COMPARED for a, b in itertools.pairwise([*values, values[0]])]
    equal = [(name, values[-1], same) for name, _, values, same in COMPARED]
    before = [{"id": n, name: a} for n, (name, a, _) in enumerate([*pairs, *equal])]
    after = [{"id": n, name: b} for n, (name, _, b) in enumerate([*pairs, *equal])]
    gone, new = {"id": 1_000, "t": "goes"}, {"id": 1_001, "t": "comes"}
    first = [stage(destination, REF, [*before[n::3], *([gone] if n == 1 else [])], chunk=n) for n in range(3)]
    destination.write.append(REF, first, Commit("run-1", 1, "c"))

    def compare(run: str) -> LoadOutcome:
        files = [stage(destination, REF, [*after[n::2], *([new] if n else [])], chunk=n) for n in range(2)]
        how = Merge(("id",), complete=True)
        return destination.write.merge(
            lambda: spark if engine == "spark" else None, REF, files, how, Commit(run, 1, "c")
        )

    done = compare("run-2")
    assert (done.inserted, done.updated, done.deleted) == (1, len(pairs), 1)
    found = {r["id"]: r for r in destination.write.read(REF).read_all().to_pylist()}
    for row in [*after, new]:
        told = {name: found[row["id"]][name] for name, *_ in COMPARED}
        assert repr(told) == repr({name: row.get(name) for name, *_ in COMPARED}).replace("-0.0", "0.0")
    assert [n for n, r in found.items() if r[f"{PREFIX}deleted"]] == [1_000]
    again = compare("run-3")
    assert (again.inserted, again.updated, again.deleted) == (0, 0, 0)


@with_spark
@pytest.mark.parametrize("engine", ["spark", "local"])
def test_values_of_a_column_that_comes_back_after_a_whole_load(
    destination: Destination, engine: str, spark: Any
) -> None:
    """Rows that were all written again since the drop get the value that their key had then, if they have none."""
    if destination.kind not in ("iceberg", "delta"):
        pytest.skip("its dropped columns keep their values in the table")
    name = column("name", "string")
    with_name, without = table(ID, name, column("n", "int32")), table(ID, column("n", "int32"))
    create(destination, with_name)
    for start in (0, 10, 20):
        rows = [{"id": start + n, "n": n, "name": f"name {start + n}" if n else None} for n in range(5)]
        destination.write.append(REF, [stage(destination, REF, rows)], Commit("run-1", 1, "c"))
    destination.schema.execute(REF, [step(REF, ColumnRemoved(REF, name, 1))], without, Commit("run-2", 1))
    rows = [{"id": start + n, "n": 100} for start in (0, 20, 30) for n in range(3)]
    destination.write.overwrite(
        REF, [stage(destination, REF, rows[n::2], chunk=n) for n in range(2)], Commit("run-3", 1, "c")
    )
    destination.schema.execute(REF, [step(REF, UndropColumn(REF, name, name))], with_name, Commit("run-4", 1))
    since = [stage(destination, REF, [{"id": 2, "n": 100, "name": "since"}])]
    destination.write.merge(lambda: spark, REF, since, Merge(("id",)), Commit("run-5", 1, "c"))
    sessions = list[Any]()

    def session() -> Any:
        sessions.append(spark)
        return spark if engine == "spark" else None

    done = destination.write.restore_dropped_values(REF, "name", Commit("run-6", 1), FileWorkers(session))
    assert done == 3
    found = destination.write.read(REF, ["id", "name", "n"]).read_all().to_pylist()
    assert {r["id"]: r["name"] for r in found} == {
        **dict.fromkeys((0, 20, 30, 31, 32)), 1: "name 1", 2: "since", 21: "name 21", 22: "name 22"
    }  # fmt: skip
    assert {r["n"] for r in found} == {100}
    assert (state := destination.schema.state(REF)) is not None
    assert (state.cursor, state.rows) == ("c", 9)
    assert bool(sessions) == (destination.config.upsert_rows == 0)  # type: ignore[attr-defined]
    assert destination.write.restore_dropped_values(REF, "name", Commit("run-7", 1), FileWorkers(session)) == 0


@with_spark
@pytest.mark.parametrize("engine", ["spark", "local"])
def test_values_of_a_column_that_comes_back(
    destination: Destination, engine: str, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that came again since the drop get the value that their key had then; others keep theirs."""
    if destination.kind not in ("iceberg", "delta"):
        pytest.skip("its dropped columns keep their values in the table")
    monkeypatch.setattr("instep.destinations.iceberg.backfill.fill.PART_ROWS", 1)
    monkeypatch.setattr("instep.destinations.iceberg.backfill.fill_task.STAGED_ROWS", 1)
    name, meta = column("name", "string"), f"{PREFIX}meta"
    with_name, without = table(ID, name, column("n", "int32")), table(ID, column("n", "int32"))
    create(destination, with_name)

    def upsert(run: str, *rows: dict[str, Any]) -> None:
        files = [stage(destination, REF, rows)]
        destination.write.merge(lambda: spark, REF, files, Merge(("id",)), Commit(run, 1, "c"))

    for start in (0, 10, 20):
        rows = [{"id": start + n, "n": n, "name": f"name {start + n}" if n else None} for n in range(5)]
        destination.write.append(REF, [stage(destination, REF, rows)], Commit("run-1", 1, "c"))
    upsert("run-2", {"id": 11, "name": "newer"}, {"id": 12, "name": None})
    destination.schema.execute(REF, [step(REF, ColumnRemoved(REF, name, 1))], without, Commit("run-3", 1))
    upsert("run-4", *({"id": n, "n": 100, meta: '{"changes":[]}'} for n in (0, 1, 2, 11, 12, 13, 30)))
    destination.schema.execute(REF, [step(REF, UndropColumn(REF, name, name))], with_name, Commit("run-5", 1))
    upsert("run-6", {"id": 2, "n": 100, "name": "since"})
    sessions = list[Any]()

    def session() -> Any:
        sessions.append(spark)
        return spark if engine == "spark" else None

    done = destination.write.restore_dropped_values(REF, "name", Commit("run-7", 1), FileWorkers(session))
    assert done == (3 if destination.kind == "iceberg" else 0), "files of Delta that are written again keep the column"
    found = destination.write.read(REF, ["id", "name", "n", meta]).read_all().to_pylist()
    again = {0: None, 1: "name 1", 2: "since", 11: "newer", 12: None, 13: "name 13", 30: None}
    expected = {s + n: f"name {s + n}" if n else None for s in (0, 10, 20) for n in range(5)} | again
    assert {r["id"]: r["name"] for r in found} == expected
    assert {r["id"] for r in found if r["n"] == 100} == again.keys()
    assert {r["id"] for r in found if r[meta]} == again.keys() - {2}
    assert (state := destination.schema.state(REF)) is not None
    assert (state.cursor, state.rows) == ("c", 16)
    assert bool(sessions) == (destination.config.upsert_rows == 0)  # type: ignore[attr-defined]
    assert destination.write.restore_dropped_values(REF, "name", Commit("run-8", 1), FileWorkers(session)) == 0
