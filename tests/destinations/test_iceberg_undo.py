"""What a lake keeps of what was dropped, for how long, and how it comes back."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from instep.destinations.base import Commit, InvalidValueCount, UndropReport
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.iceberg.evolve import undo as iceberg_undo
from instep.errors import DestinationError, Fenced
from instep.schema.catalog.catalog import Table
from instep.schema.catalog.types import parse
from instep.schema.changes.describe import ColumnAdded, ColumnRemoved, TableRemoved
from instep.schema.planning.step import UndropColumn, step
from lake import ID, REF, column, create, stage, table

A, B = column("a", "int32"), column("b", "string")
AB, ONLY_A = table(ID, A, B), table(ID, A)
DAY = iceberg_undo.DAY_MS


@pytest.fixture
def lake(tmp_path: Path) -> IcebergDestination:
    return IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))


def metadata(lake: IcebergDestination, ref: tuple[str, str] = REF) -> Any:
    return lake.lake.metadata([ref])[ref]


def run(lake: IcebergDestination, after: Table, *changes: Any, fence: int = 1) -> None:
    lake.schema.execute(REF, [step(REF, change) for change in changes], after, Commit("run-2", fence))


def loaded(lake: IcebergDestination, *rows: dict[str, Any], name: str = "run-1") -> None:
    lake.write.append(REF, [stage(lake, REF, list(rows))], Commit(name, 1))


def dropped(lake: IcebergDestination) -> None:
    """Two rows, then a table without `b`."""
    create(lake, AB)
    loaded(lake, {"id": 1, "a": 1, "b": "one"}, {"id": 2, "a": 2, "b": "two"})
    run(lake, ONLY_A, ColumnRemoved(REF, B, 2))


def later(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    now = iceberg_undo.now_ms() + int(days * DAY)
    monkeypatch.setattr(iceberg_undo, "now_ms", lambda: now)


def rows(lake: IcebergDestination) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.write.read(REF).read_all().to_pylist()
    return found


def tags(lake: IcebergDestination) -> list[str]:
    return sorted(name for name in metadata(lake)["refs"] if name.startswith(iceberg_undo.UNDO))


def test_a_drop_is_remembered_with_its_tag(lake: IcebergDestination) -> None:
    dropped(lake)
    [record] = json.loads(metadata(lake)["properties"][iceberg_undo.DROPPED_COLUMNS])
    assert (record["name"], record["field"], [record["tag"]]) == ("b", 3, tags(lake))


def test_a_column_comes_back_under_its_own_field(lake: IcebergDestination) -> None:
    dropped(lake)
    loaded(lake, {"id": 3, "a": 3}, name="run-3")
    assert lake.lifecycle.undrop_report(REF, "b") == UndropReport("", written=1, rewritten=0, snapshot=True)
    run(lake, AB, UndropColumn(REF, B, B))
    assert sorted(r["b"] or "" for r in rows(lake)) == ["", "one", "two"]
    now = metadata(lake)
    fields = {
        f["name"]: f["id"] for s in now["schemas"] if s["schema-id"] == now["current-schema-id"] for f in s["fields"]
    }
    assert fields["b"] == 3
    assert lake.schema.inspect([REF]).tables[0].by_name["b"].id == B.id
    assert lake.lifecycle.undrop_report(REF, "b") == UndropReport()


def test_of_two_dropped_columns_of_a_name_the_last_comes_back(lake: IcebergDestination) -> None:
    dropped(lake)
    run(lake, AB, ColumnAdded(REF, B, 2))
    loaded(lake, {"id": 3, "a": 3, "b": "three"}, name="run-3")
    run(lake, ONLY_A, ColumnRemoved(REF, replace(B, comment="again"), 2))
    run(lake, AB, UndropColumn(REF, B, B))
    assert sorted(r["b"] or "" for r in rows(lake)) == ["", "", "three"]


def test_what_was_rewritten_since_is_counted(lake: IcebergDestination) -> None:
    dropped(lake)
    lake.write.overwrite(REF, [stage(lake, REF, [{"id": 1, "a": 5}])], Commit("run-3", 1))
    assert lake.lifecycle.undrop_report(REF, "b") == UndropReport("", written=1, rewritten=2, snapshot=True)
    run(lake, AB, UndropColumn(REF, B, B))
    assert [r["b"] for r in rows(lake)] == [None]
    assert lake.write.restore_dropped_values(REF, "b", Commit("run-4", 1)) == 1
    assert [(r["id"], r["a"], r["b"]) for r in rows(lake)] == [(1, 5, "one")]
    assert lake.write.restore_dropped_values(REF, "b", Commit("run-4", 1)) == 0


def test_a_column_that_never_was(lake: IcebergDestination) -> None:
    dropped(lake)
    assert "no schema" in lake.lifecycle.undrop_report(REF, "x").why_not
    assert "not there" in lake.lifecycle.undrop_report(("shop", "none"), "x").why_not
    with pytest.raises(DestinationError, match="no schema that is kept has had a column 'x'"):
        run(lake, table(ID, A, column("x", "int32")), UndropColumn(REF, column("x", "int32"), column("x", "int32")))


def test_tags_go_after_the_window(lake: IcebergDestination, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped(lake)
    later(monkeypatch, 6)
    run(lake, table(ID, A, column("c", "int32")), ColumnAdded(REF, column("c", "int32"), 2))
    assert len(tags(lake)) == 1
    later(monkeypatch, 2)
    run(lake, ONLY_A, ColumnRemoved(REF, column("c", "int32"), 2))
    [left] = json.loads(metadata(lake)["properties"][iceberg_undo.DROPPED_COLUMNS])
    assert [left["tag"]] == tags(lake)
    assert left["name"] == "c"


def parked(lake: IcebergDestination) -> list[str]:
    return lake.lake.names(lake.lake.dropped)


def drop(lake: IcebergDestination) -> None:
    lake.schema.execute(REF, [step(REF, TableRemoved(AB))], None, Commit("run-2", 2))


def test_a_table_comes_back_with_its_rows(lake: IcebergDestination) -> None:
    create(lake, AB)
    loaded(lake, {"id": 1, "a": 1, "b": "one"})
    drop(lake)
    assert lake.lifecycle.dropped(REF, AB.id)
    assert not lake.lifecycle.dropped(REF, "another")
    for _ in range(2):
        lake.schema.undrop_table(REF, AB, Commit("run-3", 3))
    assert [r["b"] for r in rows(lake)] == ["one"]
    assert parked(lake) == []
    assert iceberg_undo.DROPPED not in metadata(lake)["properties"]
    with pytest.raises(Fenced):
        lake.write.append(REF, [stage(lake, REF, [{"id": 2}])], Commit("run-2", 2))


def test_an_undrop_that_was_interrupted_is_finished(lake: IcebergDestination) -> None:
    """The name was back, its mark not yet gone."""
    create(lake, AB)
    drop(lake)
    [name] = parked(lake)
    lake.lake.catalog.rename_table((lake.lake.dropped, name), REF)
    lake.schema.undrop_table(REF, AB, Commit("run-3", 3))
    assert iceberg_undo.DROPPED not in metadata(lake)["properties"]


def test_another_table_of_the_name_is_in_the_way(lake: IcebergDestination) -> None:
    create(lake, AB)
    drop(lake)
    create(lake, replace(AB, id="oid-other"), Commit("run-3", 3))
    with pytest.raises(DestinationError, match="another table is now called"):
        lake.schema.undrop_table(REF, AB, Commit("run-4", 4))


def test_a_table_dropped_twice_comes_back_as_it_was_last(lake: IcebergDestination) -> None:
    for number in (1, 2):
        create(lake, AB, Commit(f"make-{number}", number))
        lake.write.append(REF, [stage(lake, REF, [{"id": number}])], Commit(f"load-{number}", number))
        lake.schema.execute(REF, [step(REF, TableRemoved(AB))], None, Commit(f"drop-{number}", number))
    assert len(parked(lake)) == 2
    lake.schema.undrop_table(REF, AB, Commit("run-9", 9))
    assert [r["id"] for r in rows(lake)] == [2]


def test_dropped_tables_go_after_the_window(lake: IcebergDestination, monkeypatch: pytest.MonkeyPatch) -> None:
    create(lake, AB)
    loaded(lake, {"id": 1})
    folder = Path(metadata(lake)["location"].removeprefix("file://"))
    drop(lake)
    assert iceberg_undo.purge(lake.lake) == []
    later(monkeypatch, 8)
    assert len(iceberg_undo.purge(lake.lake)) == 1
    assert parked(lake) == []
    assert not folder.exists()
    with pytest.raises(DestinationError, match="no longer retained"):
        lake.schema.undrop_table(REF, AB, Commit("run-3", 3))


FITS = (
    ("all fit", "int64", [1, None, -(2**31)], "int32", InvalidValueCount()),
    ("one is wider", "int64", [1, 2**31], "int32", InvalidValueCount(1, str(2**31))),
    ("a decimal", "decimal(20,2)", ["1.00", "12345678901.00"], "decimal(10,2)", InvalidValueCount(1, "12345678901.00")),
    ("text", "string", ["abc", "abcdef", None], "string(3)", InvalidValueCount(1, "abcdef")),
)


@pytest.mark.parametrize(("name", "wide", "values", "narrow", "expected"), FITS, ids=[f[0] for f in FITS])
def test_values_that_do_not_fit(
    lake: IcebergDestination, name: str, wide: str, values: list[Any], narrow: str, expected: InvalidValueCount
) -> None:
    create(lake, table(ID, column("v", wide)))
    assert lake.write.count_invalid_values(REF, "v", parse(narrow)) == InvalidValueCount()
    exact = [Decimal(v) if wide.startswith("decimal") else v for v in values]
    loaded(lake, *({"id": i, "v": v} for i, v in enumerate(exact)))
    assert lake.write.count_invalid_values(REF, "v", parse(narrow)) == expected
