# ruff: noqa: F811 - the imported `spark` is a fixture
"""What every destination does: one suite over all of them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from inspect import isfunction, signature
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pytest

from destinations import (
    DESTINATIONS,
    delta_in_bucket,
    iceberg_in_bucket,
    iceberg_over_rest,
    postgres,
    postgres_by_spark,
)
from instep.destinations import facets
from instep.destinations.base import Commit, FileWorkers, LoadOutcome, Merge, TableSize
from instep.destinations.facets import Destination
from instep.destinations.filters import ColumnFilter
from instep.errors import Fenced, IllegalChange
from instep.schema.catalog.catalog import Column, Table
from instep.schema.changes.describe import (
    ColumnAdded,
    ColumnComment,
    ColumnNullability,
    ColumnRemoved,
    ColumnRenamed,
    ColumnReordered,
    ColumnWidened,
    KeyChanged,
    TableComment,
    TableRemoved,
    TableRenamed,
    TableReplaced,
)
from instep.schema.planning.step import RecordIdentity, RewriteColumn, Step, step
from instep.stage.files.place import StorageFolder, children
from instep.stage.fold import fold_locally
from lake import ID, ORDERS, PREFIX, REF, SPARK, column, create, rows_of, spark, stage, table, with_spark  # noqa: F401  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
"""PySpark leaves the sockets of its calls to the garbage collector."""
ALL_TYPES = (
    "boolean", "int8", "int16", "int32", "int64", "decimal(38,10)", "decimal(9,2)", "float32", "float64", "string",
    "string(200)", "binary", "binary(16)", "date", "time", "timestamp", "timestamptz", "uuid", "json",
    "array(int32)", "array(array(string))", 'struct("a" int32, "b c" array(decimal(5,1)))', "unknown",
)  # fmt: skip


SERVED = (
    pytest.param("postgres", marks=pytest.mark.server),
    pytest.param("postgres by Spark", marks=[pytest.mark.server, *SPARK]),
    *(
        pytest.param(f"{kind} in {store}", marks=[pytest.mark.server, pytest.mark.slow, pytest.mark.drawn(drawn)])
        for store, drawn in (("S3", 2), ("Azure", 4))
        for kind in ("delta", "iceberg")
    ),
    pytest.param("iceberg over REST", marks=pytest.mark.server),
)


STORES = {"S3": "bucket", "Azure": "container"}


@pytest.fixture(params=[*sorted(DESTINATIONS), "duckdb, rows as if they were wide", *SERVED])
def destination(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Destination:
    if request.param == "duckdb, rows as if they were wide":
        monkeypatch.setattr("instep.destinations.duckdb.staging.WIDE", -1)
        return DESTINATIONS["duckdb"](tmp_path)
    if request.param == "postgres":
        return postgres(tmp_path, request.getfixturevalue("postgres"))
    if request.param == "postgres by Spark":
        session = request.getfixturevalue("spark")
        return postgres_by_spark(tmp_path, request.getfixturevalue("postgres"), lambda: session)
    kind, _, store = request.param.partition(" in ")
    if store in STORES:
        bucket = request.getfixturevalue(STORES[store])
        return delta_in_bucket(bucket) if kind == "delta" else iceberg_in_bucket(tmp_path, bucket)
    if request.param == "iceberg over REST":
        return iceberg_over_rest(tmp_path, request.getfixturevalue("rest_catalog"))
    return DESTINATIONS[request.param](tmp_path)


def facets_of(destination: Destination) -> dict[type, Any]:
    """Facets by their protocol; None for what the destination lacks."""
    lifecycle, schema = destination.lifecycle, destination.schema
    return {
        facets.WriteFacet: destination.write,
        facets.LifecycleFacet: lifecycle,
        facets.ClonesFacet: lifecycle.clones,
        facets.SavepointsFacet: lifecycle.savepoints,
        facets.SchemaFacet: schema,
        facets.LayoutsFacet: schema.layouts,
        facets.MaintenanceFacet: destination.maintenance,
        facets.ViewsFacet: destination.views,
        facets.SharingFacet: destination.sharing,
    }


def test_a_parameter_has_one_name_in_all_destinations(destination: Destination) -> None:
    """Whoever writes against the protocols may name what it passes."""
    other = {
        f"{type(facet).__name__}.{name}"
        for kind, facet in facets_of(destination).items()
        for name, method in vars(kind).items()
        if facet is not None and isfunction(method) and not name.startswith("_")
        if list(signature(method).parameters) != ["self", *signature(getattr(facet, name)).parameters]
    }
    assert other == set()


def load(destination: Destination, rows: list[dict[str, Any]], fence: int = 1, **commit: Any) -> LoadOutcome:
    return destination.write.overwrite(REF, [stage(destination, REF, rows)], Commit("run-1", fence, **commit))


def test_a_destination_that_is_not_there_yet_holds_nothing(destination: Destination) -> None:
    assert destination.schema.inspect([REF]).tables == ()
    assert destination.schema.state(REF) is None
    destination.write.claim(REF, 7)


def test_every_type_reads_back_as_it_was_asked_for(destination: Destination) -> None:
    wanted = table(ID, *(column(f"c{i}", kind) for i, kind in enumerate(ALL_TYPES)), comment="all of them")
    create(destination, wanted)
    assert destination.schema.inspect([REF, ("shop", "nothing")]).tables == (wanted,)


def test_facts_beside_the_columns_read_back(destination: Destination) -> None:
    odd = column(
        "ünï \"q\" 'x' 🦀", "string", note="kept as text", native="citext", comment="hello\nworld", retained=True
    )
    wanted = replace(table(ID, odd), cursor="id", generation=3, kind="view", comment="a comment")
    create(destination, wanted)
    create(destination, wanted)
    assert destination.schema.inspect([REF]).get(REF) == wanted


def test_append_and_overwrite_record_what_they_did(destination: Destination) -> None:
    create(destination)
    assert destination.write.append(
        REF, [stage(destination, REF, [{"id": 1}])], Commit("run-1", 1, "c1", "f1")
    ) == LoadOutcome(1)
    destination.write.append(REF, [stage(destination, REF, [{"id": 2}])], Commit("run-2", 1, "c2", "f2"))
    state = destination.schema.state(REF)
    assert state is not None
    assert (state.run, state.fence, state.cursor, state.accepted, state.rows) == ("run-2", 1, "c2", "f2", 2)
    assert state.files == 2
    assert state.bytes > 0
    assert not state.deleted
    assert load(destination, [{"id": 3}], cursor="c3") == LoadOutcome(inserted=1, deleted=2)
    assert [r[0] for r in rows_of(destination)] == [3]
    assert destination.write.overwrite(REF, [], Commit("run-4", 1)).deleted == 1
    assert rows_of(destination) == []


def test_a_replayed_append_adds_nothing(destination: Destination) -> None:
    create(destination)
    file = stage(destination, REF, [{"id": 1}])
    destination.write.append(REF, [file], Commit("run-1", 1))
    assert destination.write.append(REF, [file], Commit("run-1", 1)) == LoadOutcome()
    assert len(rows_of(destination)) == 1


def test_a_later_claim_refuses_everything_of_an_earlier_run(destination: Destination) -> None:
    create(destination)
    load(destination, [{"id": 1}])
    destination.write.claim(REF, 5)
    destination.write.claim(REF, 5)
    late, file = Commit("late", 4), stage(destination, REF, [{"id": 2}])
    wider = table(*ORDERS.columns[:-3], column("x", "string"))
    for attempt in (
        lambda: destination.write.claim(REF, 4),
        lambda: destination.write.append(REF, [file], late),
        lambda: destination.write.overwrite(REF, [file], late),
        lambda: destination.schema.execute(REF, [step(REF, ColumnAdded(REF, wider.columns[3], 3))], wider, late),
        lambda: destination.schema.execute(REF, [step(REF, TableRemoved(ORDERS))], None, late),
    ):
        with pytest.raises(Fenced):
            attempt()
    assert rows_of(destination) == [(1, None, None)]
    assert destination.schema.inspect([REF]).get(REF) == ORDERS


def _renamed(before: Column, name: str) -> Column:
    return replace(before, name=name, alias=name)


A, B, C = column("a", "int32"), column("b", "int32"), column("c", "int32")
AB, ABC = table(ID, A, B), table(ID, A, B, C)
VALUES = {"id": 1, "a": 10, "b": 20, "c": 30}


def _steps(*changes: Any) -> list[Step]:
    return [step(REF, change) for change in changes]


def _rename(before: Column, name: str) -> ColumnRenamed:
    return ColumnRenamed(REF, before, _renamed(before, name))


STEPS: list[tuple[str, Table, list[Step], Table, dict[str, Any]]] = [
    ("add", AB, _steps(ColumnAdded(REF, C, 3)), table(ID, A, B, C), {"a": 10, "b": 20, "c": None}),
    ("add in between", AB, _steps(ColumnAdded(REF, C, 1)), table(ID, C, A, B), {"a": 10, "b": 20, "c": None}),
    ("drop", AB, _steps(ColumnRemoved(REF, B, 2)), table(ID, A), {"a": 10}),
    ("rename", AB, _steps(_rename(A, "z")), table(ID, _renamed(A, "z"), B), {"z": 10, "b": 20}),
    ("case only", AB, _steps(_rename(A, "A")), table(ID, _renamed(A, "A"), B), {"A": 10, "b": 20}),
    ("swap", AB, _steps(_rename(A, "b"), _rename(B, "a")), table(ID, _renamed(A, "b"), _renamed(B, "a")),
     {"b": 10, "a": 20}),
    ("chain", ABC, _steps(ColumnRemoved(REF, C, 3), _rename(A, "b"), _rename(B, "c")),
     table(ID, _renamed(A, "b"), _renamed(B, "c")), {"b": 10, "c": 20}),
    ("cycle of three", ABC, _steps(_rename(A, "b"), _rename(B, "c"), _rename(C, "a")),
     table(ID, _renamed(A, "b"), _renamed(B, "c"), _renamed(C, "a")), {"b": 10, "c": 20, "a": 30}),
    ("swap by a parked name", AB,
     _steps(_rename(A, "_p"), _rename(B, "a"), ColumnRenamed(REF, _renamed(A, "_p"), _renamed(A, "b"))),
     table(ID, _renamed(A, "b"), _renamed(B, "a")), {"b": 10, "a": 20}),
    ("drop and add again", AB,
     _steps(ColumnRemoved(REF, B, 2), ColumnAdded(REF, column("b", "string"), 2)),
     table(ID, A, column("b", "string")), {"a": 10, "b": None}),
    ("widen", AB, _steps(ColumnWidened(REF, A, column("a", "int64"))), table(ID, column("a", "int64"), B),
     {"a": 10, "b": 20}),
    ("rewrite", AB, _steps(RewriteColumn(REF, A, column("a", "string"))), table(ID, column("a", "string"), B),
     {"a": "10", "b": 20}),
    ("rename and rewrite", AB,
     _steps(_rename(A, "z"), RewriteColumn(REF, _renamed(A, "z"), column("z", "decimal(10,1)"))),
     table(ID, column("z", "decimal(10,1)", id="#a"), B), {"z": 10, "b": 20}),
    ("comments", AB, _steps(ColumnComment(REF, A, replace(A, comment="what")), TableComment(REF, None, "table")),
     table(ID, replace(A, comment="what"), B, comment="table"), {"a": 10, "b": 20}),
    ("reorder", AB, _steps(ColumnReordered(REF, ("id", "a", "b"), ("b", "id", "a"))), table(B, ID, A),
     {"a": 10, "b": 20}),
    ("retain", AB, _steps(RecordIdentity(REF, B, replace(B, retained=True))), table(ID, A, replace(B, retained=True)),
     {"a": 10, "b": 20}),
    ("another source column", AB, _steps(RecordIdentity(REF, B, replace(B, id="#9", alias="bee"))),
     table(ID, A, replace(B, id="#9", alias="bee")), {"a": 10, "b": 20}),
    ("another key", AB, _steps(KeyChanged(REF, ("id",), ("id", "a"))), table(ID, replace(A, key=2), B),
     {"a": 10, "b": 20}),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("before", "steps", "after", "values"), [c[1:] for c in STEPS], ids=[c[0] for c in STEPS])
def test_steps(
    destination: Destination, before: Table, steps: list[Step], after: Table, values: dict[str, Any]
) -> None:
    create(destination, before)
    known = {k: v for k, v in VALUES.items() if k in before.by_name}
    destination.write.append(REF, [stage(destination, REF, [known])], Commit("run-1", 1, "cursor"))
    destination.schema.execute(REF, steps, after, Commit("run-2", 1))
    assert destination.schema.inspect([REF]).get(REF) == after
    assert rows_of(destination, columns=[*values]) == [tuple(values.values())]
    state = destination.schema.state(REF)
    assert state is not None
    assert (state.run, state.cursor, state.rows) == ("run-1", "cursor", 1)
    destination.schema.execute(REF, steps, after, Commit("run-2", 1))
    load(destination, [{"id": 2}], fence=1)
    assert len(rows_of(destination)) == 1


@with_spark
@pytest.mark.parametrize("engine", ["spark", "local"])
def test_a_rewrite_in_parts_leaves_the_rows_that_one_of_the_whole_does(
    destination: Destination, engine: str, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some rows are deleted, some values are NULL, and a column waits for an undo."""
    before = [column("b", "string"), column("c", "decimal(10,2)"), column("at", "timestamptz")]
    after = [column("b", "int64"), column("c", "string"), column("at", "string")]
    reference = DESTINATIONS["memory"](tmp_path / "reference")
    for to in (destination, reference):
        create(to, table(ID, A, *before))
        for start in (0, 10, 20):
            rows = [{"id": start + n, "a": n, "b": str(n) if n else None, "c": n, "at": n} for n in range(4)]
            to.write.append(REF, [stage(to, REF, rows)], Commit("run-1", 1, "c"))
        kept = [stage(to, REF, [{"id": 1, "b": "7"}, {"id": 12, "c": 9}]), stage(to, REF, [{"id": 20}])]
        to.write.merge(lambda: spark, REF, kept, Merge(("id",)), Commit("run-1", 1, "c"))
        to.schema.execute(REF, _steps(ColumnRemoved(REF, A, 1)), table(ID, *before), Commit("run-2", 1))
    monkeypatch.setattr("instep.destinations.parts.PART_ROWS", 1)
    seen, sessions = list[int](), list[Any]()

    def session() -> Any:
        sessions.append(spark)
        return spark if engine == "spark" else None

    steps = _steps(*(RewriteColumn(REF, b, a) for b, a in zip(before, after, strict=True)))
    workers = FileWorkers(session, lambda rows, size: seen.append(rows))
    for to in (destination, reference):
        to.schema.execute(REF, steps, table(ID, *after), Commit("run-3", 1), workers)
    assert rows_of(destination) == rows_of(reference)
    assert (state := destination.schema.state(REF)) is not None
    assert (state.cursor, state.rows) == ("c", 12)
    in_parts = destination.kind in ("iceberg", "delta")
    assert bool(seen) == in_parts
    assert bool(sessions) == (in_parts and destination.config.upsert_rows == 0)  # type: ignore[attr-defined]


def test_not_null_is_relaxed_in_place(destination: Destination) -> None:
    strict, loose = column("a", "int32", nullable=False), column("a", "int32")
    create(destination, table(ID, strict))
    load(destination, [{"id": 1, "a": 1}])
    destination.schema.execute(REF, _steps(ColumnNullability(REF, strict, loose)), table(ID, loose), Commit("run-2", 1))
    destination.write.append(REF, [stage(destination, REF, [{"id": 2}])], Commit("run-2", 1))
    assert rows_of(destination) == [(1, 1), (2, None)]


FORBIDDEN = (("decimal(10,2)", "decimal(12,4)"), ("int32", "float32"), ("string", "int32"), ("int64", "int32"))


def test_a_change_that_the_format_forbids_changes_nothing(destination: Destination) -> None:
    pairs = ((column("a", before), column("a", after)) for before, after in FORBIDDEN)
    able = destination.capabilities
    before, after = next((a, b) for a, b in pairs if not able.promotes_in_place(a.type, b.type))
    create(destination, table(ID, before))
    with pytest.raises(IllegalChange):
        destination.schema.execute(REF, _steps(ColumnWidened(REF, before, after)), table(ID, after), Commit("run-2", 1))
    assert destination.schema.inspect([REF]).get(REF) == table(ID, before)


def test_a_table_is_renamed_with_its_rows(destination: Destination) -> None:
    create(destination)
    load(destination, [{"id": 1}], cursor="c")
    new = replace(ORDERS, schema="other", name="sales.2026", alias="public.sales.2026")
    for _ in range(2):
        destination.schema.execute(REF, _steps(TableRenamed(ORDERS, new)), new, Commit("run-2", 1))
    assert destination.schema.inspect([REF, new.ref]).tables == (new,)
    assert len(rows_of(destination, new.ref)) == 1
    assert (state := destination.schema.state(new.ref)) is not None
    assert state.cursor == "c"


def test_a_dropped_table_is_gone_and_its_name_free(destination: Destination) -> None:
    create(destination)
    load(destination, [{"id": 1}])
    for _ in range(2):
        destination.schema.execute(REF, _steps(TableRemoved(ORDERS)), None, Commit("run-2", 1))
    assert destination.schema.inspect([REF]).tables == ()
    create(destination)
    assert rows_of(destination) == []


def test_readers_keep_a_replaced_table_until_its_rows_are_there(destination: Destination) -> None:
    create(destination)
    load(destination, [{"id": 1, "name": "old"}], cursor="c")
    new = replace(table(column("id", "string", key=1), column("name", "int32")), id="oid-2", generation=1)
    destination.schema.execute(REF, _steps(TableReplaced(ORDERS, new)), new, Commit("run-2", 1))
    assert destination.schema.inspect([REF]).get(REF) == new
    assert rows_of(destination) == [(1, "old", None)]
    assert destination.schema.state(REF) is None
    destination.write.overwrite(REF, [stage(destination, REF, [{"id": "x", "name": 5}])], Commit("run-2", 1))
    assert rows_of(destination) == [("x", 5)]
    assert destination.schema.inspect([REF]).get(REF) == new


def test_a_table_whose_new_generation_waits_can_be_renamed(destination: Destination) -> None:
    create(destination)
    load(destination, [{"id": 1, "name": "old"}], cursor="c")
    new = replace(table(column("id", "string", key=1), column("name", "int32")), id="oid-2", generation=1)
    destination.schema.execute(REF, _steps(TableReplaced(ORDERS, new)), new, Commit("run-2", 1))
    moved = replace(new, name="sales")
    destination.schema.execute(REF, _steps(TableRenamed(new, moved)), moved, Commit("run-2", 1))
    assert destination.schema.inspect([moved.ref]).get(moved.ref) == moved
    destination.write.overwrite(
        moved.ref, [stage(destination, moved.ref, [{"id": "x", "name": 5}])], Commit("run-2", 1)
    )
    assert rows_of(destination, moved.ref) == [("x", 5)]


def test_it_can_be_tested(destination: Destination) -> None:
    checks = destination.lifecycle.test()
    assert [c.name for c in checks if not c.ok] == []
    assert len(checks) >= 5


BASE = [{"id": i, "name": f"n{i}", "amount": i} for i in range(1, 5)]
Rows = list[dict[str, Any]]
FIELDS = ("id", "name", f"{PREFIX}deleted")


def _merge(
    name: str,
    how: Merge,
    staged: Rows,
    expected: list[tuple[Any, ...]],
    outcome: LoadOutcome,
    keys: Sequence[dict[str, Any]] = (),
) -> Any:
    return pytest.param(how, staged, [*keys], expected, outcome, id=name)


UNTOUCHED = [(i, f"n{i}", False) for i in range(1, 5)]
MERGES = [
    _merge("insert and update", Merge(("id",)), [{"id": 2, "name": "x"}, {"id": 9, "name": "y"}],
           [(1, "n1", False), (2, "x", False), *UNTOUCHED[2:], (9, "y", False)], LoadOutcome(1, 1)),
    _merge("columns that were not read keep their values", Merge(("id",), unread=("name",)), [{"id": 1, "amount": 9}],
           UNTOUCHED, LoadOutcome(0, 1)),
    _merge("unchanged rows stay", Merge(("id",), complete=True), BASE, UNTOUCHED, LoadOutcome()),
    _merge("the later of two versions", Merge(("id",)), [{"id": 7, "name": "x"}, {"id": 7, "name": "y"}],
           [*UNTOUCHED, (7, "y", False)], LoadOutcome(1)),
    _merge("a new value of NULL", Merge(("id",)), [{"id": 1, "name": None}],
           [(1, None, False), *UNTOUCHED[1:]], LoadOutcome(0, 1)),
    _merge("nothing comes", Merge(("id",)), [], UNTOUCHED, LoadOutcome()),
    _merge("an older version loses", Merge(("id",), cursor="amount"),
           [{"id": 4, "name": "old", "amount": 3}, {"id": 1, "name": "new", "amount": 2}],
           [(1, "new", False), *UNTOUCHED[1:]], LoadOutcome(0, 1)),
    _merge("the highest cursor of a key wins", Merge(("id",), cursor="amount"),
           [{"id": 1, "name": "b", "amount": 9}, {"id": 1, "name": "a", "amount": 8}],
           [(1, "b", False), *UNTOUCHED[1:]], LoadOutcome(0, 1)),
    _merge("soft delete", Merge(("id",), complete=True), BASE[:3],
           [*UNTOUCHED[:3], (4, "n4", True)], LoadOutcome(0, 0, 1)),
    _merge("hard delete", Merge(("id",), complete=True, deletes="hard"), BASE[:3], UNTOUCHED[:3], LoadOutcome(0, 0, 1)),
    _merge("deletes ignored", Merge(("id",), complete=True, deletes="ignore"), BASE[:3], UNTOUCHED, LoadOutcome()),
    _merge("all gone", Merge(("id",), complete=True), [],
        [(i, n, True) for i, n, _ in UNTOUCHED], LoadOutcome(0, 0, 4)),
    _merge("keys find the deleted", Merge(("id",)), [{"id": 5, "name": "n5"}],
           [*UNTOUCHED[:2], (3, "n3", True), (4, "n4", True), (5, "n5", False)], LoadOutcome(1, 0, 2),
           keys=[{"id": 1}, {"id": 2}, {"id": 5}]),
    _merge("keys find the deleted, and the key is the cursor", Merge(("id",), cursor="id"), [{"id": 5, "name": "n5"}],
           [*UNTOUCHED[:2], (3, "n3", True), (4, "n4", True), (5, "n5", False)], LoadOutcome(1, 0, 2),
           keys=[{"id": 1}, {"id": 2}, {"id": 5}]),
    _merge("keys that no row has", Merge(("id",)), [{"id": 5, "name": "n5"}], [*UNTOUCHED, (5, "n5", False)],
           LoadOutcome(1, absent=2), keys=[{"id": i} for i in range(1, 8)]),
    _merge("keys that no row has, and keys of none", Merge(("id",), deletes="hard"), [], UNTOUCHED[:1],
           LoadOutcome(deleted=3, absent=1), keys=[{"id": 1}, {"id": 9}]),
    _merge("keys, hard", Merge(("id",), deletes="hard"), [], [UNTOUCHED[0]], LoadOutcome(0, 0, 3), keys=[{"id": 1}]),
    _merge("from a value on", Merge((), since=("amount", "3.00")), [{"id": 3, "name": "z", "amount": 3}],
           [*UNTOUCHED[:2], (3, "z", False)], LoadOutcome(inserted=1, deleted=2)),
]  # fmt: skip


@pytest.mark.sampled
@with_spark
@pytest.mark.parametrize(("how", "staged", "keys", "expected", "outcome"), MERGES)
def test_merge(
    destination: Destination,
    spark: Any,
    how: Merge,
    staged: Rows,
    keys: Rows,
    expected: Any,
    outcome: LoadOutcome,
) -> None:
    create(destination)
    load(destination, BASE, cursor="c1")
    destination.write.claim(REF, 2)
    files = [stage(destination, REF, staged)] if staged else []
    if keys:
        how = replace(how, keys=(stage(destination, REF, keys, only=["id"]),))
    assert destination.write.merge(lambda: spark, REF, files, how, Commit("run-2", 2, "c2", "f2")) == outcome
    assert rows_of(destination, columns=FIELDS) == expected
    assert destination.schema.sizes([REF])[REF].rows == destination.write.first_rows(REF, 100).num_rows == len(expected)
    state = destination.schema.state(REF)
    assert state is not None
    assert (state.run, state.fence, state.cursor, state.rows) == ("run-2", 2, "c2", len(expected))
    assert state.deleted == any(deleted for *_, deleted in expected)


ASKED: list[Any] = [
    ("soft", [*UNTOUCHED[:2], (3, "n3", True), (4, "x", False), (8, "new", False)]),
    ("hard", [*UNTOUCHED[:2], (4, "x", False), (8, "new", False)]),
    ("ignore", [*UNTOUCHED[:3], (4, "x", False), (8, "new", False)]),
]


@pytest.mark.sampled
@with_spark
@pytest.mark.parametrize(("deletes", "expected"), ASKED)
def test_only_what_was_asked_for_is_gone(destination: Destination, spark: Any, deletes: Any, expected: Any) -> None:
    if not destination.capabilities.merges_requested:
        pytest.skip("keys are read as a whole")
    create(destination)
    load(destination, BASE)
    rows, keys = [{"id": 4, "name": "x"}, {"id": 8, "name": "new"}], [{"id": i} for i in (3, 4, 8, 9, 3)]
    for _ in range(2):
        asked = (stage(destination, REF, keys, only=["id"]),)
        how = Merge(("id",), requested=asked, deletes=deletes)
        destination.write.merge(lambda: spark, REF, [stage(destination, REF, rows)], how, Commit("run-2", 2, "c2"))
        assert rows_of(destination, columns=FIELDS) == expected
    asked = (stage(destination, REF, keys, only=["id"]),)
    destination.write.merge(
        lambda: spark, REF, [], Merge(("id",), requested=asked, deletes="hard"), Commit("run-3", 3, "c3")
    )
    assert rows_of(destination, columns=FIELDS) == UNTOUCHED[:2]
    state = destination.schema.state(REF)
    assert state is not None
    assert state.cursor == "c3"


@with_spark
def test_a_deleted_row_that_returns_lives_again(
    destination: Destination,
    spark: Any,
) -> None:
    """If its values came. A bare key does not tell what they are now."""
    create(destination)
    load(destination, BASE)
    known = Merge(("id",), deletes="soft")
    steps: list[tuple[Rows, Merge, list[bool], LoadOutcome]] = [
        (BASE[:2], Merge(("id",), complete=True), [False, False, True, True], LoadOutcome(0, 0, 2)),
        (BASE[2:3], Merge(("id",)), [False, False, False, True], LoadOutcome(0, 1)),
        ([], known, [False, False, False, True], LoadOutcome(returned=1)),
        (BASE[:1], known, [False, False, False, True], LoadOutcome(returned=1)),
        (BASE, Merge(("id",), complete=True), [False] * 4, LoadOutcome(0, 1)),
    ]
    for fence, (staged, how, deleted, outcome) in enumerate(steps, 2):
        destination.write.claim(REF, fence)
        files = [stage(destination, REF, staged)] if staged else []
        if how is known:
            how = replace(how, keys=(stage(destination, REF, BASE, only=["id"]),))
        assert destination.write.merge(lambda: spark, REF, files, how, Commit(f"run-{fence}", fence)) == outcome
        assert [d for _, d in rows_of(destination, columns=["id", f"{PREFIX}deleted"])] == deleted


@with_spark
def test_a_retained_column_keeps_its_values_on_updated_rows(destination: Destination, spark: Any) -> None:
    kept = column("kept", "string")
    create(destination, table(ID, A, kept))
    load(destination, [{"id": 1, "a": 1, "kept": "k"}, {"id": 2, "a": 1, "kept": "l"}])
    after = table(ID, A, replace(kept, retained=True))
    destination.schema.execute(REF, _steps(RecordIdentity(REF, kept, after.columns[2])), after, Commit("run-1", 1))
    destination.write.claim(REF, 2)
    files = [stage(destination, REF, [{"id": 1, "a": 5}, {"id": 3, "a": 5}])]
    destination.write.merge(lambda: spark, REF, files, Merge(("id",)), Commit("run-2", 2))
    assert rows_of(destination) == [(1, 5, "k"), (2, 1, "l"), (3, 5, None)]


def test_rows_with_a_flag_come_where_they_are_wanted(destination: Destination) -> None:
    marked = column("marked", "boolean")
    create(destination, table(ID, A, marked))
    load(destination, [{"id": n, "a": 10 * n, "marked": (None, True, False)[n % 3]} for n in range(6)])
    for names in (["id", "a"], ["marked", "id"], ["a"]):
        found = destination.write.read(REF, names, [ColumnFilter("marked", "=", (True,))]).read_all()
        assert {*found.column_names} == {*names}
        assert {1, 4} <= {*found.column(names[-1]).to_pylist()} or {10, 40} <= {*found.column(names[-1]).to_pylist()}


def test_there_is_room_for_files_of_no_table(destination: Destination) -> None:
    """Also before there is a table; and no table is seen in it."""
    room = destination.lifecycle.shared_storage()
    if room is None:
        assert destination.kind == "memory"
        return
    file = StorageFolder(room.child("shop"), room.io).create("run-1")
    file.sink.write(b"word")
    file.finish()
    assert destination.schema.tables() == []
    create(destination, ORDERS)
    load(destination, [{"id": 1}])
    assert destination.schema.tables() == [REF]
    assert children(f"{room.uri}/shop", room.io) == ["run-1"]


def test_sizes_come_from_metadata(destination: Destination) -> None:
    """Of tables that are there alone; also once their files are gone."""
    other = ("shop", "nothing")
    assert destination.schema.sizes([REF, other]) == {}
    create(destination)
    assert destination.schema.sizes([REF, other]) == {REF: TableSize()}
    load(destination, [])
    assert destination.schema.sizes([REF])[REF].rows == 0
    load(destination, [{"id": i} for i in range(5)])
    destination.write.append(REF, [stage(destination, REF, [{"id": 7}])], Commit("run-2", 1))
    for fragment in folder_of(destination).glob("*.parquet"):
        fragment.unlink()
    size = destination.schema.sizes([REF, other])[REF]
    assert size.rows == 6
    assert (size.bytes or 0) > 0 or destination.kind == "duckdb"


def folder_of(destination: Destination) -> Path:
    """Where the data files of the table are, if they are files that only it has."""
    return Path(unquote(urlsplit(destination.write.target(REF).location).path))


@pytest.mark.sampled
@pytest.mark.parametrize("limit", [0, 1, 7, 100])
def test_the_first_rows_are_rows_of_the_table(destination: Destination, limit: int) -> None:
    create(destination)
    assert destination.write.first_rows(REF, limit).num_rows == 0
    load(destination, [{"id": i, "name": f"n{i}"} for i in range(5)])
    destination.write.append(REF, [stage(destination, REF, [{"id": i} for i in range(5, 10)])], Commit("run-2", 1))
    found, whole = destination.write.first_rows(REF, limit), destination.write.read(REF).read_all()
    assert found.schema.names == whole.schema.names
    assert found.schema.types == whole.schema.types
    assert found.num_rows == min(limit, 10)
    assert {str(row) for row in found.to_pylist()} <= {str(row) for row in whole.to_pylist()}


def test_tasks_read_the_rows_of_the_table(destination: Destination, spark: Any) -> None:
    create(destination)
    names = ["name", "id", f"{PREFIX}deleted"]
    scan = destination.write.scan(REF, names)
    if scan is None:
        assert destination.kind in ("duckdb", "memory", "postgres")
        return
    assert list(fold_locally(scan, whole)) == []
    load(destination, [{"id": i, "name": f"n{i}"} for i in range(5)])
    changed = [stage(destination, REF, [{"id": i, "name": "new"} for i in range(4, 8)])]
    destination.write.merge(lambda: spark, REF, changed, Merge(("id",), deletes="ignore"), Commit("run-2", 2))
    scan = destination.write.scan(REF, names)
    assert scan is not None
    there = pickle.loads(pickle.dumps(scan))
    found = pa.concat_tables(fold_locally(there, whole))
    expected = destination.write.read(REF, names).read_all().select(names)
    assert found.schema.types == expected.schema.types
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist()))


def whole(batches: Iterator[pa.RecordBatch]) -> list[pa.Table]:
    """All rows of a task as they are."""
    found = list(batches)
    return [pa.Table.from_batches(found)] if found else []
