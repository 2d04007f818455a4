# ruff: noqa: F811 - the imported `spark` is a fixture
"""Merges that die half way, come late, or meet what a plain MERGE gets wrong without a word."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from events.shows import shows
from instep.crash import VARIABLE, Crashed
from instep.destinations.base import Commit, LoadOutcome, Merge
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.iceberg.write import merge as iceberg_merge
from instep.errors import DestinationError, Fenced, StageError
from lake import ID, ORDERS, PREFIX, REF, column, create, rows_of, spark, stage, table, with_spark  # noqa: F401

KEYED = Merge(("id",))
BASE = [{"id": i, "name": "old"} for i in range(5)]


@pytest.fixture(params=[5_000_000, 0], ids=["here", "by Spark"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> IcebergDestination:
    """A lake with a loaded table, whose upserts are made by this process or by Spark."""
    destination = IcebergDestination(
        IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake"), upsert_rows=request.param)
    )
    create(destination)
    destination.write.claim(REF, 1)
    destination.write.overwrite(REF, [stage(destination, REF, BASE)], Commit("run-1", 1, "c1"))
    return destination


def upsert(
    lake: IcebergDestination, spark: Any, rows: list[dict[str, Any]], fence: int, how: Merge = KEYED
) -> LoadOutcome:
    lake.write.claim(REF, fence)
    return lake.write.merge(
        lambda: spark, REF, [stage(lake, REF, rows)], how, Commit(f"run-{fence}", fence, f"c{fence}")
    )


@pytest.fixture
def crash_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    yield lambda point: monkeypatch.setenv(VARIABLE, f"{point}=raise")
    monkeypatch.delenv(VARIABLE, raising=False)


NEW = [{"id": 4, "name": "new"}, {"id": 5, "name": "new"}]
AFTER = ["old"] * 4 + ["new"] * 2


@pytest.mark.sampled
@with_spark
@pytest.mark.parametrize("point", ["merge.staged", "merge.merged", "merge.published"])
def test_a_merge_that_died_is_as_if_it_had_not_been_and_the_next_one_converges(
    lake: IcebergDestination, spark: Any, crash_at: Any, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    crash_at(point)
    with pytest.raises(Crashed):
        upsert(lake, spark, NEW, 2)
    monkeypatch.delenv(VARIABLE)
    published = point == "merge.published"
    assert (state := lake.schema.state(REF)) is not None
    assert (state.cursor, state.rows) == (("c2", 6) if published else ("c1", 5))
    assert [n for _, n, _ in rows_of(lake)] == (AFTER if published else ["old"] * 5)
    assert lake.schema.inspect([REF]).tables == (ORDERS,)
    upsert(lake, spark, NEW, 3)
    assert [n for _, n, _ in rows_of(lake)] == AFTER
    table = lake.lake.load(REF)
    assert table is not None
    assert set(table.metadata.refs) == {"main"}
    assert lake.lake.names(lake.lake.staging) == []
    assert not list((Path(lake.config.warehouse) / lake.lake.staging).glob("*"))


@with_spark
def test_a_late_publish_is_refused(lake: IcebergDestination, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run loses the table while it compares, or while Spark does."""
    name = "find_upsert" if lake.config.upsert_rows else "found_by_spark"
    run = getattr(iceberg_merge, name)

    def slow(*args: Any) -> Any:
        monkeypatch.setattr(iceberg_merge, name, run)
        found = run(*args)
        upsert(lake, spark, [{"id": 0, "name": "successor"}], 3)
        return found

    monkeypatch.setattr(iceberg_merge, name, slow)
    with pytest.raises(Fenced):
        upsert(lake, spark, NEW, 2)
    assert [n for _, n, _ in rows_of(lake)] == ["successor"] + ["old"] * 4
    assert (state := lake.schema.state(REF)) is not None
    assert state.run == "run-3"


@with_spark
def test_the_same_merge_twice_changes_nothing_more(lake: IcebergDestination, spark: Any) -> None:
    assert upsert(lake, spark, NEW, 2) == LoadOutcome(1, 1)
    assert upsert(lake, spark, NEW, 3) == LoadOutcome()
    assert upsert(lake, spark, [*NEW, *NEW], 3) == LoadOutcome()


@with_spark
def test_data_and_cursor_are_in_one_snapshot(lake: IcebergDestination, spark: Any) -> None:
    upsert(lake, spark, NEW, 2)
    table = lake.lake.load(REF)
    assert table is not None
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    said = {k: snapshot.summary[f"instep.{k}"] for k in ("run", "fence", "cursor")}
    assert said == {"run": "run-2", "fence": "2", "cursor": "c2"}


@with_spark
def test_a_rollback_by_hand_rolls_the_cursor_back(lake: IcebergDestination, spark: Any) -> None:
    upsert(lake, spark, NEW, 2)
    table = lake.lake.load(REF)
    assert table is not None
    first = next(s.snapshot_id for s in table.metadata.snapshots if s.summary and s.summary["instep.cursor"] == "c1")
    with table.manage_snapshots() as snapshots:
        snapshots.rollback_to_snapshot(first)
    assert (state := lake.schema.state(REF)) is not None
    assert (state.run, state.cursor, state.rows) == ("run-1", "c1", 5)


@with_spark
def test_every_type_survives_a_merge(lake: IcebergDestination, spark: Any) -> None:
    kinds = {
        "u": ("uuid", uuid.UUID(int=7).bytes), "d": ("decimal(38,10)", 5), "b": ("binary", b"\x00\xff"),
        "at": ("timestamptz", datetime(2026, 3, 1, 12, tzinfo=UTC)), "local": ("timestamp", datetime(1969, 1, 1)),
        "day": ("date", datetime(2026, 3, 1).date()), "t": ("time", "12:00:00"), "j": ("json", '{"a": 1}'),
        "l": ("array(array(string))", [["x"], None]), "s": ('struct("a" int8, "b c" float64)', {"a": 1, "b c": 0.5}),
        "odd `name` 🦀": ("string", "it's \\ odd"), "f": ("float32", 1.5), "no": ("boolean", False),
    }  # fmt: skip
    wanted = table(column("u", "uuid", key=1), *(column(n, k) for n, (k, _) in kinds.items() if n != "u"), name="all")
    create(lake, wanted)
    row = {n: v for n, (_, v) in kinds.items()}
    lake.write.overwrite(wanted.ref, [stage(lake, wanted.ref, [{**row, "f": 2.5}])], Commit("run-1", 1))
    lake.write.claim(wanted.ref, 2)
    other = {**row, "u": uuid.UUID(int=8).bytes}
    done = lake.write.merge(
        lambda: spark, wanted.ref, [stage(lake, wanted.ref, [row, other])], Merge(("u",)), Commit("run-2", 2)
    )
    assert done == LoadOutcome(1, 1)
    again = lake.write.merge(
        lambda: spark, wanted.ref, [stage(lake, wanted.ref, [row, other])], Merge(("u",)), Commit("run-2", 2)
    )
    assert again == LoadOutcome()
    expected = [tuple({**r, "u": uuid.UUID(bytes=r["u"])}.values()) for r in (row, other)]
    assert rows_of(lake, wanted.ref, list(row)) == sorted(expected, key=repr)


@with_spark
def test_the_later_file_wins_and_within_it_the_later_row(lake: IcebergDestination, spark: Any) -> None:
    lake.write.claim(REF, 2)
    files = [
        stage(lake, REF, [{"id": 1, "name": "third"}, {"id": 1, "name": "fourth"}], chunk=2),
        stage(lake, REF, [{"id": 1, "name": "first"}, {"id": 2, "name": "second"}], chunk=1),
    ]
    assert lake.write.merge(lambda: spark, REF, files, KEYED, Commit("run-2", 2)) == LoadOutcome(0, 2)
    assert [n for _, n, _ in rows_of(lake)] == ["old", "fourth", "second", "old", "old"]


@with_spark
def test_duplicate_keys_that_are_there_already_are_told(lake: IcebergDestination, spark: Any) -> None:
    lake.write.append(REF, [stage(lake, REF, [{"id": 4, "name": "twin"}])], Commit("run-1", 1))
    with pytest.raises(StageError, match="nothing was published"):
        upsert(lake, spark, NEW, 2)
    assert len(rows_of(lake)) == 6


@with_spark
def test_a_compound_key_and_an_empty_table(lake: IcebergDestination, spark: Any) -> None:
    wanted = table(ID, column("k", "string", key=2), column("v", "int32"), name="pairs")
    create(lake, wanted)
    rows = [{"id": 1, "k": "a", "v": 1}, {"id": 1, "k": "b", "v": 2}, {"id": 1, "k": "a", "v": 3}]
    how = Merge(("id", "k"), complete=True)
    done = lake.write.merge(lambda: spark, wanted.ref, [stage(lake, wanted.ref, rows)], how, Commit("run-1", 1))
    assert done == LoadOutcome(2)
    assert rows_of(lake, wanted.ref) == [(1, "a", 3), (1, "b", 2)]


@with_spark
def test_many_merges_leave_one_delete_file_a_data_file_and_state(lake: IcebergDestination, spark: Any) -> None:
    for fence in range(2, 5):
        upsert(lake, spark, [{"id": 1, "name": f"v{fence}"}], fence)
    assert (state := lake.schema.state(REF)) is not None
    assert state.rows == 5
    assert rows_of(lake)[1] == (1, "v4", None)


def test_null_keys_are_refused_before_spark_is_asked(lake: IcebergDestination) -> None:
    file = stage(lake, REF, [{"id": None}])
    with pytest.raises(StageError, match="NULL in their key id"):
        lake.write.merge(None, REF, [file], KEYED, Commit("run-2", 1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("how", "said"),
    [(Merge(()), "no key"), (Merge(("nope",)), "'nope'"), (replace(KEYED, cursor="gone"), "'gone'")],
)
@shows(trap=3)
def test_a_merge_that_cannot_be_is_refused(lake: IcebergDestination, how: Merge, said: str) -> None:
    with pytest.raises(DestinationError, match=said):
        lake.write.merge(None, REF, [], how, Commit("run-2", 1))  # type: ignore[arg-type]


def test_a_merge_of_nothing_moves_the_cursor_without_spark(lake: IcebergDestination) -> None:
    assert lake.write.merge(None, REF, [], KEYED, Commit("run-2", 1, "c2")) == LoadOutcome()  # type: ignore[arg-type]
    assert (state := lake.schema.state(REF)) is not None
    assert (state.run, state.cursor, state.rows) == ("run-2", "c2", 5)
