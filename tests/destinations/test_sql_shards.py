"""Shards of one table: a commit that another shard's change of schema was in the way of is made again."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from contract import destinations
from instep.destinations.base import Commit, Fill, Merge, RowUpdate
from instep.destinations.shared import RowsMoved, shard_column
from instep.schema.changes.kinds import ColumnWidened
from instep.schema.planning.step import step
from instep.sharding.destination import sharded
from lake import ID, PREFIX, REF, column, create, stage, stage_table, table

SHARD, META = shard_column(PREFIX), f"{PREFIX}meta"
NARROW, WIDE = (table(ID, column("n", kind)) for kind in ("int32", "int64"))


class Pair:
    """Two shards; `eu` is about to commit something when `us` widens a column."""

    def __init__(self, base: Any) -> None:
        self.eu, self.us = (sharded(base, name, PREFIX) for name in ("eu", "us"))
        for to in (self.eu, self.us):
            create(to, NARROW, Commit("r1", 1))
            to.write.append(REF, [self.staged(to, {"id": 1, "n": 1}, {"id": 2})], Commit("r2", 2))

    def staged(self, to: Any, *rows: Any) -> Any:
        return stage(to, REF, [{SHARD: to.shard.shard.name, **r} for r in rows])

    def widen_before_loading(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Once, when all is staged and before the transaction that moves it."""
        database = self.eu.part.database
        loading = database.loading

        def later(*args: Any) -> Any:
            monkeypatch.undo()
            widening = ColumnWidened(REF, NARROW.by_name["n"], WIDE.by_name["n"])
            self.us.schema.execute(REF, [step(REF, widening)], WIDE, Commit("r3", 3))
            return loading(*args)

        monkeypatch.setattr(database, "loading", later)


def append(pair: Pair) -> Any:
    files = [pair.staged(pair.eu, {"id": 3, "n": 3})]
    return lambda: pair.eu.write.append(REF, files, Commit("r4", 4))


def overwrite(pair: Pair) -> Any:
    files = [pair.staged(pair.eu, {"id": 1, "n": 1}, {"id": 2}, {"id": 3, "n": 3})]
    return lambda: pair.eu.write.overwrite(REF, files, Commit("r4", 4))


def merge(pair: Pair) -> Any:
    files = [pair.staged(pair.eu, {"id": 3, "n": 3})]
    return lambda: pair.eu.write.merge(None, REF, files, Merge(("id",)), Commit("r4", 4))


def fill(pair: Pair) -> Any:
    schema = pair.eu.write.target(REF).schema
    part = pa.schema([f for f in schema if f.name in {SHARD, "id", META, "n"}])
    rows = pa.Table.from_pylist([{SHARD: "eu", "id": 2, "n": 7}], part)
    work = Fill(("id",), {"n": 1}, (stage_table(pair.eu, REF, rows),), META, "x", False)
    return lambda: pair.eu.write.fill(None, REF, work, Commit("r4", 4), lambda rows, size: None, lambda: True)


def update_rows(pair: Pair) -> Any:
    met = pair.eu.write.lookup_rows(REF, pa.table({"id": pa.array([2], pa.int64())}))
    place = met.rows.schema.get_field_index("n")
    updated = met.rows.set_column(place, met.rows.schema.field(place), pa.array([7], pa.int32()))
    new = pa.Table.from_pylist([{"id": 3, "n": 3}], met.rows.schema)
    return lambda: pair.eu.write.update_rows(REF, met, RowUpdate([0], updated, new), Commit("r4", 4))


COMMITS: list[tuple[Callable[[Pair], Any], list[tuple[int, int | None]]]] = [
    (append, [(1, 1), (2, None), (3, 3)]),
    (overwrite, [(1, 1), (2, None), (3, 3)]),
    (merge, [(1, 1), (2, None), (3, 3)]),
    (fill, [(1, 1), (2, 7)]),
    (update_rows, [(1, 1), (2, 7), (3, 3)]),
]


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=[pytest.mark.server, pytest.mark.slow])])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "postgres":
        return destinations.postgres(tmp_path / "staging", request.getfixturevalue("postgres"))
    return destinations.DESTINATIONS[request.param](tmp_path)


@pytest.fixture
def pair(base: Any) -> Pair:
    return Pair(base)


@pytest.mark.parametrize(("commit", "rows"), COMMITS, ids=[c.__name__ for c, _ in COMMITS])
def test_a_commit_from_before_a_change_of_schema_is_made_anew(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, commit: Any, rows: Any
) -> None:
    attempt = commit(pair)
    pair.widen_before_loading(monkeypatch)
    attempt()
    found = pair.eu.write.read(REF, ["id", "n"]).read_all()
    assert found.schema.field("n").type == pa.int64(), "the other shard has widened it meanwhile"
    assert sorted(tuple(r.values()) for r in found.to_pylist()) == rows


def test_rows_that_moved_are_not_looked_for_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt, database = update_rows(pair), pair.eu.part.database
    pair.eu.write.append(REF, [pair.staged(pair.eu, {"id": 9})], Commit("r4", 4))
    tries, loading = list[int](), database.loading

    def counted(*args: Any) -> Any:
        tries.append(1)
        return loading(*args)

    monkeypatch.setattr(database, "loading", counted)
    with pytest.raises(RowsMoved, match="moved while its rows were looked at"):
        attempt()
    assert tries == [1]


WIDER = [
    ("int8", "int32", 7), ("int32", "decimal(12,2)", 7), ("int64", "decimal(24,3)", 7), ("float32", "float64", 0.5),
    ("decimal(5,2)", "decimal(9,3)", Decimal("1.50")), ("string(3)", "string(9)", "abc"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "value"), WIDER, ids=[f"{b} to {a}" for b, a, _ in WIDER])
def test_values_that_were_staged_before_fit_the_wider_column(base: Any, before: str, after: str, value: Any) -> None:
    narrow, wide = (table(ID, column("n", kind)) for kind in (before, after))
    eu, us = (sharded(base, name, PREFIX) for name in ("eu", "us"))
    for to in (eu, us):
        create(to, narrow, Commit("r1", 1))
    early = [stage(eu, REF, [{SHARD: "eu", "id": number, "n": value}]) for number in range(3)]
    us.schema.execute(
        REF, [step(REF, ColumnWidened(REF, narrow.by_name["n"], wide.by_name["n"]))], wide, Commit("r2", 2)
    )
    eu.write.overwrite(REF, early[:1], Commit("r3", 3))
    eu.write.append(REF, early[1:2], Commit("r4", 4))
    eu.write.merge(None, REF, early[2:], Merge(("id",)), Commit("r5", 5))
    assert sorted(tuple(r.values()) for r in eu.write.read(REF, ["id", "n"]).read_all().to_pylist()) == [
        (number, value) for number in range(3)
    ]
