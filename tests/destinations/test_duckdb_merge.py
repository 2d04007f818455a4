"""A merge in SQL against the one row by row of the destination in this process: the same rows, the same counts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from instep.destinations.base import Commit, Merge
from instep.destinations.duckdb import staging
from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.destinations.facets import Destination
from lake import ID, PREFIX, REF, column, create, rows_of, stage, table
from memory.destination import MemoryDestination

WANTED = table(ID, column("at", "int32"), column("v", "string"), column("f", "float64"))
SHOWN = ("id", "at", "v", "f", f"{PREFIX}deleted")
IDS = st.integers(1, 6)
ROW = st.fixed_dictionaries(
    {
        "id": IDS,
        "at": st.none() | st.integers(1, 4),
        "v": st.none() | st.sampled_from(["", "x", "é"]),
        "f": st.none() | st.sampled_from([0.0, -0.0, float("inf"), 1.5]),
    }
)
MERGE = st.builds(
    dict,
    cursor=st.sampled_from(["", "at"]),
    deletes=st.sampled_from(["soft", "hard", "ignore"]),
    complete=st.booleans(),
    unread=st.sampled_from([(), ("v",)]),
)


def _one_a_key(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({row["id"]: row for row in rows}.values())


def _state(to: Destination) -> tuple[Any, ...]:
    state = to.schema.state(REF)
    assert state is not None
    return state.run, state.fence, state.cursor, state.rows, state.deleted


WIDE = pytest.mark.parametrize("least", [staging.WIDE, -1], ids=["rows as they are", "rows as if they were wide"])


@pytest.mark.drawn(4)
@WIDE
@pytest.mark.slow
@settings(max_examples=25)
@given(
    base=st.lists(ROW, max_size=6).map(_one_a_key),
    loads=st.lists(st.tuples(st.lists(ROW, max_size=6), MERGE, st.none() | st.sets(IDS, min_size=1)), max_size=3),
)
@example(  # a deleted row whose key is there again, with an older version
    base=[{"id": 1, "at": 3, "v": "x", "f": None}],
    loads=[
        ([], {"cursor": "", "deletes": "soft", "complete": True, "unread": ()}, None),
        (
            [{"id": 1, "at": 1, "v": "y", "f": None}],
            {"cursor": "at", "deletes": "soft", "complete": False, "unread": ()}, {1, 2},
        ),
    ],
)  # fmt: skip
def test_sql_merges_as_rows_do(least: int, base: list[dict[str, Any]], loads: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as name, patch.object(staging, "WIDE", least):
        folder = Path(name)
        pair = (
            DuckDbDestination(DuckDbConfig.resolved(name="d", path=str(folder / "d.duckdb"))),
            MemoryDestination(folder / "m"),
        )
        for to in pair:
            create(to, WANTED)
            to.write.overwrite(REF, [stage(to, REF, base)], Commit("base", 1))
        for fence, (rows, how, known) in enumerate(loads, 2):
            if known is not None:
                how = how | {"complete": False}
                known = known | {row["id"] for row in rows}
            told = []
            for to in pair:
                to.write.claim(REF, fence)
                keys = (stage(to, REF, [{"id": i} for i in sorted(known)], only=["id"]),) if known else ()
                files = [stage(to, REF, rows[:3]), stage(to, REF, rows[3:], chunk=1)]
                outcome = to.write.merge(
                    None, REF, files, Merge(("id",), keys=keys, **how), Commit(f"r{fence}", fence, "c")
                )
                told.append((outcome, rows_of(to, REF, SHOWN), _state(to)))
            assert told[0] == told[1]


LONG = "é🫖" * 300_000
"""More than a megabyte."""


def test_of_long_rows_only_those_that_differ_are_staged(tmp_path: Path) -> None:
    """Both spellings of a value that DuckDB takes for one are one; every type is compared; a deleted row returns."""
    to = DuckDbDestination(DuckDbConfig.resolved(name="d", path=str(tmp_path / "d.duckdb")))
    kinds = {"v": "string", "b": "binary", "j": "json", "l": "array(string)", "f": "float64"}
    create(to, table(ID, *(column(name, kind) for name, kind in kinds.items())))
    threads = _threads(to)
    row = {"v": LONG, "b": LONG.encode(), "j": '{"a": 1}', "l": ["a, b"], "f": 0.0}
    rows = [{"id": i, **row} for i in range(1, 7)]
    to.write.overwrite(REF, [stage(to, REF, rows)], Commit("r1", 1))
    changes: list[dict[str, Any]] = [
        {}, {"v": LONG + "x"}, {"b": LONG.encode() + b"\0"}, {"j": '{"a":1}'}, {"l": ["a", "b"]}, {"f": -0.0},
    ]  # fmt: skip
    new = [old | change for old, change in zip(rows, changes, strict=True)]
    how = Merge(("id",), complete=True, deletes="soft")
    outcome = to.write.merge(None, REF, [stage(to, REF, new)], how, Commit("r2", 2))
    assert (outcome.inserted, outcome.updated, outcome.deleted) == (0, 4, 0)
    shown = ("id", *kinds)
    assert rows_of(to, REF, shown) == [tuple(one[name] for name in shown) for one in new]
    outcome = to.write.merge(None, REF, [stage(to, REF, new[1:])], how, Commit("r3", 3))
    assert (outcome.inserted, outcome.updated, outcome.deleted) == (0, 0, 1)
    outcome = to.write.merge(None, REF, [stage(to, REF, [*new, {**new[0], "id": 9}])], how, Commit("r4", 4))
    assert (outcome.inserted, outcome.updated, outcome.deleted) == (1, 1, 0)
    assert _threads(to) == threads


@pytest.mark.parametrize(
    ("values", "long"),
    [
        ([], False),
        ([[]], False),
        ([["a"] * 1000], False),
        ([["a" * 1_200_000]], True),
        ([["a" * 1_200_000], ["b", "c"]], False),
        ([["a" * 4_000_000, "b"], ["c"]], True),
    ],
)
def test_how_long_rows_are_on_average_is_known_without_opening_files(
    tmp_path: Path, values: list[list[str]], long: bool
) -> None:
    to = DuckDbDestination(DuckDbConfig.resolved(name="d", path=str(tmp_path / "d.duckdb")))
    create(to, table(ID, column("v", "string")))
    files = [stage(to, REF, [{"id": i, "v": v} for i, v in enumerate(rows)], chunk=n) for n, rows in enumerate(values)]
    for file in files:
        Path(file.path.removeprefix("file://")).unlink()
    assert staging.is_wide(files) is long


def _threads(to: DuckDbDestination) -> list[Any]:
    with to.file.reading() as session:
        return session.run("SELECT current_setting('threads')")
