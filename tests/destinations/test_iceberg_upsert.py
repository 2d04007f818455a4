# ruff: noqa: F811 - the imported `spark` is a fixture
"""Upserts without Spark: what MERGE would do to any rows, and files that Spark reads and merges on."""

from __future__ import annotations

import json
import math
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import DataFileContent

from instep.destinations.base import Commit, LoadOutcome, Merge
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.iceberg.write import merge as iceberg_merge
from instep.destinations.iceberg.write import upsert as iceberg_delta
from instep.destinations.iceberg.write.upsert import fits_in_process
from instep.errors import DestinationError, Fenced, SparkNeeded
from lake import ID, ORDERS, PREFIX, REF, column, create, rows_of, spark, stage, table, with_spark  # noqa: F401

WHOLE = Merge(("id",), complete=True)
KEYED = Merge(("id",))
BASE = [{"id": i, "name": "old", "amount": Decimal(i)} for i in range(6)]
Row = dict[str, Any]
DELETED = f"{PREFIX}deleted"


def lake_at(folder: Path, *rows: Row, **config: Any) -> IcebergDestination:
    """A lake with these rows in two data files."""
    lake = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(folder / "lake"), **config))
    create(lake)
    lake.write.claim(REF, 1)
    half = len(rows) // 2
    lake.write.overwrite(
        REF, [stage(lake, REF, part) for part in (rows[:half], rows[half:]) if part], Commit("run-1", 1)
    )
    return lake


def upsert(
    lake: IcebergDestination, rows: list[Row], how: Merge = KEYED, fence: int = 1, spark: Any = None
) -> LoadOutcome:
    lake.write.claim(REF, fence)
    files = [stage(lake, REF, rows)] if rows else []
    return lake.write.merge(lambda: spark, REF, files, how, Commit(f"run-{fence}", fence))


def names(lake: IcebergDestination) -> list[str]:
    return [n for _, n, _ in rows_of(lake)]


ROWS = st.dictionaries(
    st.integers(0, 6), st.tuples(st.sampled_from(["x", "y", None]), st.sampled_from([1, 2, 3, None])), max_size=6
)


def _rows(values: dict[int, tuple[str | None, int | None]]) -> list[Row]:
    return [{"id": k, "name": n, "amount": a and Decimal(a)} for k, (n, a) in values.items()]


@settings(max_examples=25, deadline=None)
@given(
    loads=st.lists(st.tuples(ROWS, st.sets(st.integers(0, 6))), min_size=2, max_size=4),
    kind=st.sampled_from(["complete", "keys", "requested", "cursor", "plain"]),
    deletes=st.sampled_from(["soft", "hard", "ignore"]),
)
def test_any_upserts_lead_where_the_model_leads(loads: Any, kind: str, deletes: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lake, model = lake_at(Path(folder)), {}
        for fence, (values, more) in enumerate(loads, 2):
            how = Merge(
                ("id",), complete=kind == "complete", cursor="amount" if kind == "cursor" else "", deletes=deletes
            )
            known = {*values, *more} if kind in ("keys", "requested") else set(values)
            if kind in ("keys", "requested") and known:
                keys: Any = (stage(lake, REF, [{"id": k} for k in sorted(known)], only=["id"]),)
                how = replace(how, **{kind: keys})
            before = dict(model)
            outcome = upsert(lake, _rows(values), how, fence)
            model = _merged(model, values, how, known)
            found = rows_of(lake, columns=["id", "name", "amount", DELETED])
            assert found == sorted(((k, n, a and Decimal(a), d) for k, (n, a, d) in model.items()), key=repr)
            assert outcome == _counted(before, model, known - set(values) if kind == "keys" and known else set())
            assert (state := lake.schema.state(REF)) is not None
            assert (state.run, state.rows) == (f"run-{fence}", len(model))


def _merged(model: dict[int, Any], values: dict[int, Any], how: Merge, known: set[int]) -> dict[int, Any]:
    """MERGE in five lines: what the rows of the table become."""
    after = dict(model)
    for key, (name, amount) in values.items():
        old = model.get(key)
        if not (how.cursor and old and None not in (old[1], amount) and amount < old[1]):
            after[key] = (name, amount, False)
    for key in set(model) - set(values):
        if (how.keys and key in known) or (how.requested and key not in known):
            continue
        if (how.complete or how.keys or how.requested) and how.deletes != "ignore":
            after[key] = (*model[key][:2], True)
    return {k: v for k, v in after.items() if not (how.deletes == "hard" and v[2])}


def _counted(before: dict[int, Any], after: dict[int, Any], bare: set[int]) -> LoadOutcome:
    gone = {k for k in before if k not in after or (after[k][2] and not before[k][2])}
    changed = {k for k in before if k in after and k not in gone and before[k] != after[k]}
    back = {k for k in bare if k in after and after[k][2]}
    return LoadOutcome(len(set(after) - set(before)), len(changed), len(gone), len(bare - set(after)), len(back))


def test_an_unchanged_table_gets_no_snapshot_and_only_a_new_cursor(tmp_path: Path) -> None:
    lake = lake_at(tmp_path, *BASE)
    before = lake.lake.load(REF)
    files = [stage(lake, REF, BASE)]
    assert lake.write.merge(None, REF, files, WHOLE, Commit("run-2", 1, "c2")) == LoadOutcome()  # type: ignore[arg-type]
    after = lake.lake.load(REF)
    assert before is not None
    assert after is not None
    assert after.metadata.current_snapshot_id == before.metadata.current_snapshot_id
    assert (state := lake.schema.state(REF)) is not None
    assert (state.run, state.cursor, state.rows) == ("run-2", "c2", 6)


SAME = {
    "f": ("float64", math.nan), "z": ("float32", -0.0), "n": ("string", None), "d": ("decimal(38,10)", Decimal("1.5")),
    "at": ("timestamptz", datetime(1969, 3, 1, 12, 0, 0, 1, tzinfo=UTC)), "local": ("timestamp", datetime(1, 1, 1)),
    "b": ("binary", b"\x00\xff"), "u": ("uuid", bytes(15) + b"\x07"),
    "l": ("array(array(string))", [["x", None], None]),
    "s": ('struct("a" int8, "B c" float64)', {"a": None, "B c": math.nan}), "j": ("json", '{"a": 1}'),
}  # fmt: skip
OTHER = {
    "f": 1.5, "z": 0.5, "n": "", "d": Decimal("1.6"), "at": datetime(1969, 3, 1, 12, 0, 0, 2, tzinfo=UTC),
    "local": datetime(1, 1, 2), "b": b"\x00", "u": bytes(16), "l": [["x", ""], None], "s": {"a": 0, "B c": 0.5},
    "j": '{"a":1}',
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("name", SAME)
def test_values_of_every_type_are_compared_exactly(tmp_path: Path, name: str) -> None:
    lake = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))
    wanted = table(ID, *(column(n, kind) for n, (kind, _) in SAME.items()), name="all")
    create(lake, wanted)
    row = {"id": 1, **{n: v for n, (_, v) in SAME.items()}}
    lake.write.overwrite(wanted.ref, [stage(lake, wanted.ref, [row])], Commit("run-1", 1))
    for coming, outcome in ((row, LoadOutcome()), ({**row, name: OTHER[name]}, LoadOutcome(0, 1))):
        files = [stage(lake, wanted.ref, [coming])]
        assert lake.write.merge(None, wanted.ref, files, WHOLE, Commit("run-1", 1)) == outcome  # type: ignore[arg-type]
    other = OTHER[name]
    read = lake.write.read(wanted.ref).read_all().column(name).to_pylist()[0]
    assert (read if name != "u" else read.bytes) == other


def test_rows_that_were_written_before_a_column_meet_it_as_null(tmp_path: Path) -> None:
    from instep.schema.changes.describe import ColumnAdded
    from instep.schema.planning.step import step

    lake = lake_at(tmp_path, *BASE)
    wider = table(*ORDERS.columns[:3], column("more", "string"))
    lake.schema.execute(REF, [step(REF, ColumnAdded(REF, wider.columns[3], 3))], wider, Commit("run-2", 1))
    assert upsert(lake, BASE, WHOLE) == LoadOutcome()
    assert upsert(lake, [*BASE[1:], {**BASE[0], "more": "x"}], WHOLE) == LoadOutcome(0, 1)
    assert rows_of(lake)[0][3] == "x"


def _deletes(lake: IcebergDestination) -> list[Any]:
    """The delete files of the current snapshot, and that its summary counts them."""
    loaded = lake.lake.load(REF)
    assert loaded is not None
    snapshot = loaded.metadata.current_snapshot()
    assert snapshot is not None
    entries = [e for m in snapshot.manifests(loaded.io) for e in m.fetch_manifest_entry(loaded.io)]
    found = [e.data_file for e in entries if e.data_file.content == DataFileContent.POSITION_DELETES]
    assert snapshot.summary is not None
    assert int(snapshot.summary["total-delete-files"] or 0) == len(found)
    assert int(snapshot.summary["total-position-deletes"] or 0) == sum(d.record_count for d in found)
    return found


def test_a_data_file_never_has_two_delete_files(tmp_path: Path) -> None:
    lake = lake_at(tmp_path, *BASE)
    for fence in range(2, 6):
        upsert(lake, [{**BASE[fence - 2], "name": f"v{fence}"}], fence=fence)
    assert [d.record_count for d in _deletes(lake)] in ([3, 1], [1, 3])
    assert names(lake) == ["v2", "v3", "v4", "v5", "old", "old"]


@with_spark
def test_spark_reads_and_merges_what_was_upserted_and_the_other_way_round(tmp_path: Path, spark: Any) -> None:
    lake = lake_at(tmp_path, *BASE)
    by_spark = IcebergDestination(lake.config.model_copy(update={"upsert_rows": 0}))
    done = [
        upsert(
            [lake, by_spark][n % 2], [{**BASE[n], "name": f"v{n}"}, {"id": 9, "name": str(n)}], fence=n + 2, spark=spark
        )
        for n in range(4)
    ]
    assert done == [LoadOutcome(1, 1)] + [LoadOutcome(0, 2)] * 3
    assert upsert(lake, [*BASE[:3]], Merge(("id",), complete=True, deletes="hard"), fence=7) == LoadOutcome(0, 3, 4)
    session = spark.newSession()
    for key, value in lake.lifecycle.spark_catalog().items():
        session.conf.set(key, value)
    read = session.table(f"lake.shop.{REF[1]}").select("id", "name").orderBy("id").collect()
    assert [tuple(r) for r in read] == [(0, "old"), (1, "old"), (2, "old")]
    assert [(i, n) for i, n, _ in rows_of(lake)] == [tuple(r) for r in read]


def test_a_refused_upsert_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lake_at(tmp_path, *BASE)
    find = iceberg_merge.find_upsert

    def overtaken(*args: Any) -> Any:
        found = find(*args)
        lake.write.claim(REF, 9)
        return found

    monkeypatch.setattr(iceberg_merge, "find_upsert", overtaken)
    with pytest.raises(Fenced):
        upsert(lake, [{**BASE[0], "name": "late"}], fence=2)
    assert names(lake) == ["old"] * 6
    assert not list(tmp_path.rglob("upsert-*"))


@with_spark
@pytest.mark.parametrize(
    ("memory", "column_type"), [("2MB", None), ("1GB", pa.float16())], ids=["more than its memory", "a type it lacks"]
)
def test_what_duckdb_cannot_do_is_merged_by_spark(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, memory: str, column_type: pa.DataType | None
) -> None:
    config: Any = {"memory_limit": memory, "temp_directory": ""}
    monkeypatch.setattr(iceberg_delta, "duckdb_cursor", lambda *_, **__: duckdb.connect(":memory:", config=config))
    lake = lake_at(tmp_path, *BASE)
    if column_type:
        of_rows = iceberg_delta.numbered

        def typed(*args: Any) -> pa.RecordBatchReader:
            found = of_rows(*args)
            schema = found.schema.append(pa.field("more", column_type))
            return pa.RecordBatchReader.from_batches(schema, iter([]))

        monkeypatch.setattr(iceberg_delta, "numbered", typed)
    assert upsert(lake, [{**BASE[0], "name": "new"}], fence=2, spark=spark) == LoadOutcome(0, 1)
    assert names(lake)[0] == "new"


def test_rows_whose_key_does_not_come_pass_by(tmp_path: Path) -> None:
    lake = lake_at(tmp_path, *BASE, upsert_rows=2)
    assert upsert(lake, [{**BASE[0], "name": "new"}, {**BASE[5], "id": 9}], fence=2) == LoadOutcome(1, 1)
    assert names(lake) == ["new", *["old"] * 6]
    assert (state := lake.schema.state(REF)) is not None
    assert state.rows == 7
    with pytest.raises(SparkNeeded):
        upsert(lake, [*BASE, {**BASE[0], "id": 9}], WHOLE, fence=3)


@pytest.mark.parametrize("cursor", ["", "amount"])
def test_of_rows_with_one_key_the_newest_counts(tmp_path: Path, cursor: str) -> None:
    lake = lake_at(tmp_path, *BASE)
    twins = [{**BASE[1], "name": "first", "amount": Decimal(9)}, {**BASE[1], "name": "last", "amount": Decimal(8)}]
    assert upsert(lake, [BASE[0], *twins], replace(KEYED, cursor=cursor), fence=2) == LoadOutcome(0, 1)
    assert names(lake)[1] == ("first" if cursor else "last")


def test_an_error_of_its_own_sql_is_raised_and_not_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_at(tmp_path, *BASE)
    monkeypatch.setattr(iceberg_delta, "met_sql", lambda _: "SELECT no_such_column FROM t")
    with pytest.raises(duckdb.BinderException, match="no_such_column"):
        upsert(lake, [{**BASE[0], "name": "new"}], fence=2)
    assert names(lake) == ["old"] * 6


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    lake = lake_at(tmp_path, *BASE)
    file = next(path for path in (tmp_path / "lake").rglob("*.parquet"))
    file.unlink()
    with pytest.raises(DestinationError, match=f"rows of it cannot be read: .*{file.name}") as failed:
        upsert(lake, [{**BASE[0], "name": "new"}], fence=2)
    assert "instep restore" in failed.value.hint


@pytest.mark.parametrize(
    ("how", "limits", "expected"),
    [
        (WHOLE, {}, True),
        (WHOLE, {"limit": 12}, True),
        (WHOLE, {"limit": 11}, False),
        (WHOLE, {"size": 100}, False),
        (KEYED, {"limit": 6}, True),
        (KEYED, {"limit": 5}, False),
        (KEYED, {"size": 100}, False),
        (replace(KEYED, cursor="amount"), {"limit": 6}, True),
        (Merge((), since=("id", "3")), {"limit": 11}, False),
        (replace(WHOLE, key=("name", "amount")), {}, True),
        (replace(WHOLE, key=("id", "ratio")), {}, False),
        (replace(WHOLE, key=("parts",)), {}, False),
        (Merge((), since=("id", "3")), {}, True),
        (Merge((), since=("ratio", "3")), {}, False),
    ],
)
def test_what_fits(tmp_path: Path, how: Merge, limits: dict[str, int], expected: bool) -> None:
    lake = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))
    create(lake, table(*ORDERS.columns[:3], column("ratio", "float64"), column("parts", "array(string)")))
    files = [stage(lake, REF, BASE)]
    lake.write.overwrite(REF, files, Commit("run-1", 1))
    loaded = lake.lake.load(REF)
    assert loaded is not None
    assert fits_in_process(json.loads(loaded.metadata.model_dump_json()), files, how, **limits) == expected


@pytest.mark.parametrize(
    ("key", "rows", "config", "why", "hint"),
    [
        (["ratio"], 1, {}, "its key ratio is of the type double, which only Spark compares", "mode: full_refresh"),
        (["parts"], 1, {}, "its key parts is of the type list, which only Spark compares", "mode: full_refresh"),
        (
            ["id"],
            1,
            {"upsert_rows": 1},
            r"more than 1 rows \(`upsert_rows` of the destination\)",
            "raise `upsert_rows`",
        ),
        (["id"], 2, {}, "it has keys in more than one row", "`instep backfill` reloads it"),
    ],
    ids=["a float", "a list", "too large", "twins"],
)
def test_a_merge_that_only_spark_can_do_says_which_reason_holds(
    tmp_path: Path, key: list[str], rows: int, config: dict[str, int], why: str, hint: str
) -> None:
    lake = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake"), **config))
    create(lake, table(ID, column("ratio", "float64"), column("parts", "array(string)")))
    one: Row = {"id": 1, "ratio": 1.5, "parts": ["a"]}
    lake.write.claim(REF, 1)
    lake.write.overwrite(REF, [stage(lake, REF, [one] * rows)], Commit("run-1", 1))
    lake.write.claim(REF, 2)
    changed = [stage(lake, REF, [{**one, "ratio": 2.5}, {**one, "id": 2}])] if config else [stage(lake, REF, [one])]
    with pytest.raises(SparkNeeded, match=f"cannot be merged without Spark: {why}") as error:
        lake.write.merge(lambda: None, REF, changed, Merge(tuple(key), complete=True), Commit("run-2", 2))
    assert hint in error.value.hint
