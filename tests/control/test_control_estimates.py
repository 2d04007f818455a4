"""How long it takes, from what recorded runs took."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.model import TableRun
from instep.plans.costs import TimeEstimate, from_rates, rates, reading, rewriting
from instep.store.store import Store

T, U = ("public", "t"), ("public", "u")
CASES = [
    (TimeEstimate(), "time unknown (no runs yet)"),
    (TimeEstimate(0.2, 0.2, 0.2, 1, own=True), "about less than 1 s, from 1 run of this table"),
    (TimeEstimate(90, 60, 100, 3), "about 90 s (60 s to 100 s), from 3 runs of other tables"),
    (TimeEstimate(5, 5, 5, 1, mode="append"), "about 5 s, from 1 append run of other tables"),
    (TimeEstimate(5, 4, 6, 2, own=True, mode="upsert"), "about 5 s (4 s to 6 s), from 2 upsert runs of this table"),
    (TimeEstimate(600, 300, 9000, 4, own=True), "about 10 min (5 min to 2.5 h), from 4 runs of this table"),
]


@pytest.mark.parametrize(("estimate", "text"), CASES)
def test_what_is_said(estimate: TimeEstimate, text: str) -> None:
    assert str(estimate) == text


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'state.db'}") as opened:
        yield opened


def run(store: Store, table: tuple[str, str], rows: int, seconds: float, mode: str = "upsert") -> None:
    done = store.runs.claim("c", "sync", "test")
    store.runs.record_tables(TableRun(done.id, table, "done", mode, read=rows, seconds=seconds))
    store.runs.finish(done, "done", "")


def how_long(store: Store, mode: str, rows: int) -> TimeEstimate:
    return reading(rates(store, "c"), T, mode, rows)


def test_runs_of_the_table_count_before_those_of_others(store: Store) -> None:
    assert not how_long(store, "upsert", 1000).runs
    run(store, U, 1000, 10)
    assert how_long(store, "upsert", 1000) == TimeEstimate(10, 10, 10, 1, mode="upsert")
    for seconds in (1, 2, 4):
        run(store, T, 1000, seconds)
    assert how_long(store, "upsert", 2000) == TimeEstimate(4, 2, 8, 3, own=True, mode="upsert")
    run(store, T, 0, 3)
    run(store, T, 5, 0)
    assert how_long(store, "upsert", 2000).runs == 3


def test_a_run_of_another_mode_says_nothing(store: Store) -> None:
    run(store, T, 1000, 1)
    run(store, U, 1000, 7, "column")
    assert how_long(store, "column", 1000) == TimeEstimate(7, 7, 7, 1, mode="column")
    assert str(how_long(store, "append", 1000)) == "time unknown (no runs yet)"


def test_without_steps_on_record_nothing_is_known(store: Store) -> None:
    assert rewriting(store, "c", "shop.t", 1000) == TimeEstimate()


@given(st.lists(st.floats(0.1, 1e6), min_size=1), st.integers(0, 10**9))
def test_the_range_holds_the_estimate(rates: list[float], rows: int) -> None:
    found = from_rates(rows, rates, own=True)
    assert found.low <= found.seconds <= found.high
    assert found.runs == len(rates)
