"""A whole compare that sets equal rows aside finds what the join of all rows finds."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import numpy as np
import pyarrow.parquet as pq
import pytest

from instep.destinations.base import Commit, LoadOutcome, Merge
from instep.destinations.delta import merge as delta_merge
from instep.destinations.delta.destination import DeltaConfig, DeltaDestination
from instep.destinations.facets import Destination
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.iceberg.write import merge as iceberg_merge
from instep.destinations.iceberg.write import upsert as iceberg_delta
from instep.destinations.iceberg.write.upsert import SparkOnly, Upsert
from instep.errors import DestinationError, StageError
from lake import PREFIX, column, create, rows_of, stage, table

Row = dict[str, Any]
Lake = TypeVar("Lake", bound=Destination)
VALUES = table(
    column("id", "int64", key=1),
    column("part", "string(20)", key=2),
    column("u", "uuid"),
    column("name", "string(20)"),
    column("rate", "float64"),
    column("tags", "array(string)"),
    name="values",
)
SHOWN = ["id", "part", "u", "name", "rate", "tags"]
KEYS = {"whole number": ("id",), "text": ("part",), "uuid": ("u",), "several columns": ("id", "part")}


def row(number: int, **more: Any) -> Row:
    return {
        "id": number, "part": f"part {number}", "u": number.to_bytes(16, "big"), "name": f"n{number}" * (number % 3),
        "rate": None if number % 5 else math.nan, "tags": [None, str(number)] if number % 4 else None, **more,
    }  # fmt: skip


ROWS = [row(i) for i in range(60)]


def reworked(rows: list[Row]) -> list[Row]:
    """Some are gone, some changed and at the end as in a heap, some are new."""
    rest = [r for r in rows if r["id"] % 10 not in (0, 1)]
    return [*rest, *({**r, "name": "other"} for r in rows if r["id"] % 10 == 1), row(900), row(901)]


def shuffled(rows: list[Row]) -> list[Row]:
    return random.Random(7).sample(rows, len(rows))


STAGED: dict[str, tuple[Callable[[list[Row]], list[Row]], bool]] = {
    "the same": (lambda rows: rows, True),
    "reworked": (reworked, True),
    "in another order": (shuffled, True),
    "a key twice": (lambda rows: [*rows, {**rows[3], "name": "later"}], False),
    "all changed": (lambda rows: [{**r, "name": "other"} for r in rows], False),
    "none": (lambda rows: [], False),
}
"""What is staged, and whether equal rows are set aside."""


def lake_of(folder: Path, *files: list[Row]) -> IcebergDestination:
    return filled(IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(folder / "lake"))), *files)


def stored(lake: Destination, rows: list[Row]) -> list[Row]:
    """The rows as the destination has them: Delta has a text for a UUID."""
    return [{**r, "u": str(UUID(bytes=r["u"]))} for r in rows] if lake.kind == "delta" else rows


def filled(lake: Lake, *files: list[Row]) -> Lake:
    create(lake, VALUES)
    lake.write.claim(VALUES.ref, 1)
    staged = [stage(lake, VALUES.ref, stored(lake, part), chunk=n) for n, part in enumerate(files)]
    lake.write.overwrite(VALUES.ref, staged, Commit("run-1", 1))
    return lake


def compare(lake: Destination, rows: list[Row], how: Merge, fence: int) -> LoadOutcome:
    lake.write.claim(VALUES.ref, fence)
    files = [
        stage(lake, VALUES.ref, stored(lake, part), chunk=n) for n, part in enumerate((rows[:20], rows[20:])) if part
    ]
    return lake.write.merge(lambda: None, VALUES.ref, files, how, Commit(f"run-{fence}", fence))


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Finds each delta in both ways, which must be the same; lists whether equal rows were set aside."""
    aside: list[bool] = []
    find, set_aside = iceberg_merge.find_upsert, iceberg_delta.set_equal_aside

    def noted(*args: Any) -> bool:
        aside.append(set_aside(*args))
        return aside[-1]

    def both(*args: Any) -> Upsert | SparkOnly:
        monkeypatch.setattr(iceberg_delta, "set_equal_aside", lambda *_: False)
        joined = find(*args)
        monkeypatch.setattr(iceberg_delta, "set_equal_aside", noted)
        found = find(*args)
        if isinstance(found, SparkOnly) or isinstance(joined, SparkOnly):
            assert found == joined
        else:
            assert (found.outcome, found.rows_after) == (joined.outcome, joined.rows_after)
            for part in ("inserted", "updated", "marked", "removed"):
                assert np.array_equal(getattr(found.delta, part), getattr(joined.delta, part)), part
        return found

    monkeypatch.setattr(iceberg_delta, "set_equal_aside", noted)
    monkeypatch.setattr(iceberg_delta, "SOON_JOINED", 0)
    monkeypatch.setattr("instep.destinations.equal_rows._TRIAL", 1)
    monkeypatch.setattr(iceberg_merge, "find_upsert", both)
    return aside


@pytest.mark.sampled
@pytest.mark.parametrize("deletes", ["soft", "hard", "ignore"])
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("staged", STAGED)
def test_equal_rows_are_set_aside_and_the_delta_is_the_same(
    tmp_path: Path, compared: list[bool], staged: str, key: str, deletes: Any
) -> None:
    lake = lake_of(tmp_path, ROWS[30:], ROWS[:30])
    change, aside = STAGED[staged]
    how = Merge(KEYS[key], complete=True, deletes=deletes)
    compare(lake, change(ROWS), how, 2)
    assert compared == [aside]
    compare(lake, ROWS[:-1], how, 3)  # with position deletes, rows of their own file and some that are marked
    compare(lake, [*ROWS[40:], *ROWS[:40]], how, 4)


def test_few_rows_are_joined_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways find the same delta (above); which is taken depends on the rows of both sides."""
    called: list[bool] = []
    set_aside = iceberg_delta.set_equal_aside
    monkeypatch.setattr(iceberg_delta, "set_equal_aside", lambda *args: called.append(True) or set_aside(*args))
    lake, how = lake_of(tmp_path, ROWS), Merge(("id",), complete=True)
    compare(lake, reworked(ROWS), how, 2)
    assert not called
    monkeypatch.setattr(iceberg_delta, "SOON_JOINED", len(ROWS))
    compare(lake, ROWS, how, 3)
    assert called


@pytest.mark.parametrize("side", ["table", "staged"])
def test_rows_that_cannot_be_decoded_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str) -> None:
    """The thread that decodes them has ended then, and nothing is written."""
    many = [row(number, name=f"name {number * 7919}") for number in range(3_000)]
    lake = lake_of(tmp_path, many)
    monkeypatch.setattr(iceberg_delta, "SOON_JOINED", 0)
    before, there = found_in(lake), set(tmp_path.rglob("*.parquet"))
    files = [stage(lake, VALUES.ref, many)]
    [damaged] = there if side == "table" else [Path(files[0].path.removeprefix("file://"))]
    whole = damaged.read_bytes()
    column_of = pq.ParquetFile(damaged).metadata.row_group(0).column(3)
    first = column_of.data_page_offset + 20
    damaged.write_bytes(whole[:first] + bytes(len(whole[first : first + 400])) + whole[first + 400 :])
    lake.write.claim(VALUES.ref, 2)
    with pytest.raises(DestinationError, match="rows of it cannot be read"):
        lake.write.merge(lambda: None, VALUES.ref, files, Merge(("id",), complete=True), Commit("run-2", 2))
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("decode")]
    damaged.write_bytes(whole)
    assert found_in(lake) == before


def test_a_key_that_the_table_has_twice_is_left_to_spark(tmp_path: Path, compared: list[bool]) -> None:
    from instep.errors import SparkNeeded

    for number, twin in enumerate((row(4), row(4, name="other"))):
        lake = lake_of(tmp_path / str(number), ROWS, [twin])
        with pytest.raises(SparkNeeded):
            compare(lake, ROWS, Merge(("id",), complete=True), 2)
    assert compared == [False, False]


def delta_at(folder: Path, upsert_rows: int) -> DeltaDestination:
    lake = DeltaDestination(DeltaConfig.resolved(name="d", warehouse=str(folder), upsert_rows=upsert_rows))
    return filled(lake, ROWS[30:], ROWS[:30])


def found_in(lake: Destination) -> list[str]:
    return [repr(one) for one in rows_of(lake, VALUES.ref, [*SHOWN, f"{PREFIX}deleted"])]


@pytest.mark.sampled
@pytest.mark.parametrize("deletes", ["soft", "hard", "ignore"])
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("staged", STAGED)
def test_delta_makes_the_same_table_of_what_is_set_aside_joined_and_done_by_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, staged: str, key: str, deletes: Any
) -> None:
    change, aside = STAGED[staged]
    how, set_aside, noted = Merge(KEYS[key], complete=True, deletes=deletes), delta_merge.set_equal_aside, list[bool]()
    monkeypatch.setattr("instep.destinations.equal_rows._TRIAL", 1)
    lakes = {name: delta_at(tmp_path / name, 0 if name == "tasks" else 1_000) for name in ("aside", "joined", "tasks")}
    for fence, rows in enumerate((change(ROWS), ROWS[:-1], [*ROWS[40:], *ROWS[:40]]), 2):
        found = []
        for name, lake in lakes.items():

            def noting(*args: Any, by: str = name) -> bool:
                return by == "aside" and (noted.append(set_aside(*args)) or noted[-1])  # type: ignore[func-returns-value]

            monkeypatch.setattr(delta_merge, "set_equal_aside", noting)
            found.append((compare(lake, rows, how, fence), found_in(lake)))
        assert found[0] == found[1] == found[2]
    assert noted[0] == aside


def test_rows_that_differ_by_more_than_the_setting_go_to_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_tasks, tasks = list[int](), delta_merge.upsert_by_tasks

    def noted(*args: Any) -> LoadOutcome:
        by_tasks.append(1)
        return tasks(*args)

    monkeypatch.setattr(delta_merge, "upsert_by_tasks", noted)
    lake, whole = delta_at(tmp_path, 40), Merge(("id",), complete=True)
    assert compare(lake, [{**r, "name": "a"} if r["id"] < 10 else r for r in ROWS], whole, 2).updated == 10
    assert not by_tasks, "20 rows are left of 120"
    assert compare(lake, [{**r, "name": "b"} if r["id"] < 25 else r for r in ROWS], whole, 3).updated == 25
    assert by_tasks
    assert [name for (name,) in rows_of(lake, VALUES.ref, ["name"])].count("b") == 25


def test_a_staged_key_that_is_null_is_refused_beside_one_in_the_table(tmp_path: Path) -> None:
    nameless = row(70, part=None)
    lake = DeltaDestination(DeltaConfig.resolved(name="d", warehouse=str(tmp_path)))
    filled(lake, [*ROWS, nameless])
    with pytest.raises(StageError, match="1 staged rows have NULL in their key"):
        compare(lake, [*ROWS, nameless], Merge(("part",), complete=True), 2)
