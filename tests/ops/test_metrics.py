"""Metrics: the text format, what is counted, and that what is forgotten stays counted."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ops_world import Moved, change

from instep.events import ChangeDetected, DetectionEnded, JobDead, RunEnded, TableFailed, TableLoaded
from instep.monitoring.metrics import NAMES, Family, counted, exposed, fold, metrics
from instep.store.history.outbox import Notice
from instep.store.store import Store

LABELS = r'(?:\{[a-z]+="(?:[^"\\\n]|\\["\\n])*"(?:,[a-z]+="(?:[^"\\\n]|\\["\\n])*")*\})?'
SAMPLE = re.compile(rf"([a-z_]+){LABELS} (-?\d+(?:\.\d+)?(?:e-?\d+)?)")


def parsed(text: str) -> dict[str, float]:
    """{sample: value}; AssertionError for what is not of the format."""
    found: dict[str, float] = {}
    typed = ""
    assert text.endswith("\n")
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# TYPE "):
            typed = line.split(" ")[2]
        elif not line.startswith("# HELP "):
            match = SAMPLE.fullmatch(line)
            assert match, line
            assert match[1].removesuffix("_sum").removesuffix("_count") == typed, line
            key = line.rpartition(" ")[0]
            assert key not in found, f"{key} is there twice"
            found[key] = float(match[2])
    return found


@pytest.fixture
def clock() -> Moved:
    return Moved()


@pytest.fixture
def store(tmp_path: Path, clock: Moved) -> Store:
    return Store(f"sqlite:///{tmp_path}/s.db", now=clock)


@given(st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=10)), st.floats(0, 1e12))
def test_any_label_and_value_is_of_the_format(labels: dict[str, str], value: float) -> None:
    text = exposed([Family("instep_x", "gauge", "Of\nlines \\", [("", tuple(sorted(labels.items())), value)])])
    assert list(parsed(text).values()) == [pytest.approx(value)]


def test_an_empty_store_has_metrics(store: Store) -> None:
    found = parsed(metrics(store))
    assert found["instep_changes_waiting"] == found["instep_workers"] == found["instep_jobs_stuck"] == 0


def _happened(store: Store) -> None:
    review = store.reviews.record("shop", [change()], source_fingerprint="f")[0]
    store.events.add(
        ChangeDetected("shop", review.id, "column.removed", "t.a is gone"),
        RunEnded("shop", "r-1", "sync", "done"), RunEnded("shop", "r-2", "sync", "failed", "no"),
        TableLoaded("shop", "r-1", "t", "upsert", 10, 6, 4, 0, 1),
        TableLoaded("shop", "r-1", "u", "append", 5, 5, 0, 0, 0),
        TableFailed("shop", "r-2", "t", "no"), JobDead("shop", "j-1", "sync", 5, "no"),
        DetectionEnded("shop", "j-2", "done", {}, seconds=1.5), DetectionEnded("shop", "j-3", "failed", {}, error="no"),
    )  # fmt: skip


EXPECTED = {
    'instep_changes_total{breaking="true",decision="review",kind="column.removed"}': 1,
    'instep_runs_total{kind="sync",status="done"}': 1,
    'instep_runs_total{kind="sync",status="failed"}': 1,
    'instep_rows_total{connection="shop",op="read"}': 15,
    'instep_rows_total{connection="shop",op="inserted"}': 11,
    'instep_rows_total{connection="shop",op="updated"}': 4,
    'instep_rows_total{connection="shop",op="invalid_values"}': 1,
    'instep_table_failures_total{connection="shop"}': 1,
    'instep_dead_jobs_total{kind="sync"}': 1,
    'instep_detections_total{connection="shop",result="done"}': 1,
    'instep_detections_total{connection="shop",result="failed"}': 1,
    "instep_detection_duration_seconds_sum": 1.5,
    "instep_detection_duration_seconds_count": 1,
    'instep_sync_lag_seconds{connection="shop"}': 60,
    "instep_changes_waiting": 1,
    "instep_oldest_waiting_seconds": 60,
}


def test_what_happened_is_counted_once(store: Store, clock: Moved) -> None:
    _happened(store)
    clock.forward(seconds=60)
    for _ in range(2):
        found = parsed(metrics(store))
        assert {name: found.get(name) for name in EXPECTED} == EXPECTED


@pytest.mark.parametrize("batch", [1, 2, 4, 100])
def test_batches_count_the_same(store: Store, clock: Moved, batch: int) -> None:
    _happened(store)
    assert store.totals.fold(lambda events: counted(events, {}), batch) == 9
    assert fold(store) == 0
    found = parsed(metrics(store))
    assert found['instep_rows_total{connection="shop",op="read"}'] == 15
    assert found["instep_detection_duration_seconds_count"] == 1


def test_the_queue_and_pauses_as_they_stand(store: Store, clock: Moved) -> None:
    store.jobs.enqueue("eu", "sync")
    store.jobs.enqueue("us", "detect")
    store.jobs.enqueue("asia", "sync", due=clock() + timedelta(hours=1))
    store.pauses.pause("us", "a table is gone")
    worker = store.workers.register(2)
    assert store.jobs.claim(worker.id)
    clock.forward(seconds=30)
    found = parsed(metrics(store))
    assert found["instep_paused_connections"] == 1
    assert found["instep_queue_oldest_seconds"] == 30
    assert found["instep_workers"] == 1
    assert sum(v for k, v in found.items() if k.startswith("instep_queue_depth")) == 1, "what is due later is no depth"
    assert sum(v for k, v in found.items() if k.startswith("instep_jobs_running")) == 1
    clock.forward(seconds=120)
    found = parsed(metrics(store))
    assert (found["instep_jobs_stuck"], found["instep_workers"]) == (1, 0)


def test_deliveries_that_are_forgotten_stay_counted(store: Store, clock: Moved) -> None:
    store.outbox.routing = lambda event, at: [Notice("ops", event.connection, "job", "error", True, at)]
    for turn in range(2):
        store.events.add(JobDead("shop", f"j-{turn}", "sync", 5, "no"))
        assert parsed(metrics(store))['instep_notices_waiting{channel="ops"}'] == 1
        store.outbox.gather()
        delivery = store.outbox.claim()
        assert delivery is not None
        store.outbox.sent(delivery, seconds=0.1)
        assert parsed(metrics(store))['instep_notifications_total{channel="ops",result="sent"}'] == turn + 1
        clock.forward(hours=1)
        assert store.outbox.forget(timedelta(minutes=1)) == 1
        assert parsed(metrics(store))['instep_notifications_total{channel="ops",result="sent"}'] == turn + 1


def test_every_metric_has_its_name_from_one_list(store: Store, clock: Moved) -> None:
    _happened(store)
    assert {re.split(r"[{ ]", name)[0] for name in parsed(metrics(store))} <= NAMES
    assert len(NAMES) == len({name.lower() for name in NAMES}) > 15
