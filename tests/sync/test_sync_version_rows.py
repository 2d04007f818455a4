# ruff: noqa: F811 - the imported `spark` is a fixture
"""What is read of a large table of versions: the keys that tasks find, and no more rows than a load needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from into_world import into_postgres
from test_sync_row_sums import KEYS, VALUES, Batches, Row, plain, tables
from version_checks import versions

from contract.destinations import DESTINATIONS
from instep.project.sections.tables import TableSettings
from instep.stage.fold import Scan
from instep.stage.key_hashes import Hashes, Side
from instep.stage.spec import Chunk
from instep.sync.loading.engine import Engine, LocalEngine, OnSpark
from instep.sync.loading.row_matching import numbered
from instep.sync.loading.version_rows import ChooseRows, HashRows, LargeVersions, VersionColumns
from lake import SPARK, spark, with_spark  # noqa: F401
from sync_world import MakeWorld

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # pyspark's, of finished jobs


def side(kinds: Sequence[pa.DataType], rows: Sequence[Row]) -> Side:
    """Rows in chunks of five, and what hashes them."""
    names = [f"x{n}" for n in range(len(kinds))]
    parts = [rows[n : n + 5] for n in range(0, len(rows), 5)]
    batches = tuple(
        pa.record_batch([pa.array(c, k) for c, k in zip(zip(*part, strict=True), kinds, strict=True)], names)
        for part in parts
    )
    schema = numbered(pa.schema(list(zip(names, kinds, strict=True))))
    fold = HashRows(VersionColumns(schema, (0,)), tuple(range(1, len(kinds))))
    return Scan(Batches(batches), [Chunk("t", n, "", len(part)) for n, part in enumerate(parts)]), fold


def touched(source: Sequence[Row], destination: Sequence[Row]) -> set[str]:
    """The keys of rows that are not on both sides, as often."""
    left, right = (Counter("|".join(map(plain, row)) for row in rows) for rows in (source, destination))
    return {row.split("|")[0] for row in (left - right) | (right - left)}


def hashes(engine: Engine, kind: pa.DataType, keys: Sequence[Any]) -> Hashes:
    scan, fold = side([kind], [(key,) for key in keys])
    found = [batch.column(0).to_numpy() for batch in engine.fold(scan, fold)]
    return np.unique(np.concatenate([np.empty(0, np.int64), *found]))


def check(engine: Engine, kind: str, source: Sequence[Row], destination: Sequence[Row]) -> None:
    kinds = [KEYS[kind][0], *(v[0] for v in VALUES)]
    wanted = touched(source, destination)
    keys = [row[0] for row in (*source, *destination) if plain(row[0]) in wanted]
    found = engine.differing(side(kinds, source), side(kinds, destination), 1_000)
    assert found is not None
    assert found.tolist() == hashes(engine, kinds[0], keys).tolist()
    if len(found):
        assert engine.differing(side(kinds, source), side(kinds, destination), len(found) - 1) is None


@pytest.mark.parametrize("kind", sorted(KEYS))
def test_law(kind: str) -> None:
    @settings(max_examples=30)
    @given(tables(kind))
    def law(both: tuple[list[Row], list[Row]]) -> None:
        check(LocalEngine(threads=2), kind, *both)

    law()


@with_spark
def test_spark_finds_the_same(spark: Any) -> None:
    engine = OnSpark(lambda: spark)
    rows: list[Row] = [(n, float(n % 3), None, None, [n]) for n in range(40)]
    other = [*rows[:10], (10, 9.0, None, None, [10]), *rows[12:], (50, 0.0, None, None, None)]
    check(engine, "whole numbers", rows, other)
    check(engine, "whole numbers", rows, rows)
    check(engine, "whole numbers", rows, [])


def test_the_rows_that_are_chosen_are_those_of_the_keys() -> None:
    """As many as DuckDB returns in another order."""
    kinds, count = [pa.int64(), pa.string()], 400_000
    keys = pa.array(range(count), pa.int64())
    batch = pa.record_batch([keys, keys.cast(pa.string())], ["c0", "c1"])
    chosen = hashes(LocalEngine(threads=2), kinds[0], list(range(0, count, 1_000)))
    columns = VersionColumns(pa.schema([("c0", kinds[0]), ("c1", kinds[1])]), (0,))
    found = [
        row
        for stream in ChooseRows(columns, hashes=chosen.tobytes())(iter([batch]))
        for row in pa.ipc.open_stream(stream).read_all().to_pylist()
    ]
    assert [row["c0"] for row in found] == list(range(0, count, 1_000))
    assert all(row["c1"] == str(row["c0"]) for row in found)


SETTINGS = {
    "whole": TableSettings(history=True),
    "cursor": TableSettings(history=True, cursor="u", deletes="ignore"),
    "keys": TableSettings(history=True, cursor="u", deletes="soft"),
}


@pytest.mark.parametrize("how", SETTINGS)
@pytest.mark.parametrize("kind", ["delta", "iceberg", pytest.param("iceberg by Spark", marks=SPARK)])
def test_no_more_rows_than_a_load_needs_leave_the_tasks(
    make_world: MakeWorld, kind: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a hundred keys with two versions each one changes, one goes, one is new."""
    world = make_world("sqlite")
    world.engine = "spark" if "Spark" in kind else "local"
    destination: Any = DESTINATIONS[kind](world.folder)
    world.destination = destination
    monkeypatch.setattr(type(destination.write), "is_large", lambda self, ref, files=(): True)
    world.settings = {"t": SETTINGS[how]}
    world.run("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, u INTEGER)")
    world.run(*(f"INSERT INTO t VALUES ({n}, 'a', {n})" for n in range(100)))  # noqa: S608
    world.sync()
    world.run("UPDATE t SET a = 'b', u = u + 1000")
    world.sync()
    found, read = list[int](), LargeVersions._chosen

    def counted(*given: Any) -> Any:
        for batch in read(*given):
            found.append(len(batch))
            yield batch

    monkeypatch.setattr(LargeVersions, "_chosen", counted)
    world.run("UPDATE t SET a = 'c', u = 5000 WHERE id = 7", "DELETE FROM t WHERE id = 9")
    world.run("INSERT INTO t VALUES (200, 'n', 5001)")
    assert [t.status for t in world.sync().tables] == ["done"]
    assert sum(found) <= 10
    kept = versions(world)
    assert len(kept) == 202
    assert (7, "c", 5000, 3, None) in kept
    assert ((9, "b", 1009, 2, 3) in kept) == (how != "cursor")
    found.clear()
    world.sync()
    assert sum(found) <= 4, "the rows at the cursor's boundary"


@pytest.mark.parametrize("kind", ["duckdb", "postgres"])
def test_a_database_looks_up_the_keys_that_came(
    make_world: MakeWorld, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world("sqlite")
    postgres = kind == "postgres"
    destination: Any = (
        into_postgres(world.folder, request.getfixturevalue("postgres"))
        if postgres
        else DESTINATIONS["duckdb"](world.folder)
    )
    world.destination, world.settings = destination, {"t": SETTINGS["cursor"]}
    world.run("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, u INTEGER)", "INSERT INTO t VALUES (1, 'a', 1)")
    world.sync()
    world.run("INSERT INTO t VALUES (2, 'b', 2)", "UPDATE t SET a = 'c', u = 3 WHERE id = 1")
    columns, read = set[str](), type(destination.write).read

    def noted(self: Any, ref: Any, names: Sequence[str] = ()) -> Any:
        columns.update(names)
        return read(self, ref, names)

    with monkeypatch.context() as patched:
        patched.setattr(type(destination.write), "read", noted)
        assert [t.error for t in world.sync().tables] == [""]
    assert columns == {f"_instep_{name}" for name in ("valid_from", "valid_to", "synced")}, "no values are read"
    assert versions(world) == [(1, "a", 1, 1, 2), (1, "c", 3, 2, None), (2, "b", 2, 2, None)]
