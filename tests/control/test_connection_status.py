"""The words for what a connection is doing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from instep.server.fivetran_api.connection import PendingJob, status
from instep.store.work.runs import Outcomes

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
DONE, NEVER = Outcomes(NOW - timedelta(hours=1)), Outcomes()
CASES: list[tuple[str, Outcomes, list[PendingJob], bool, str]] = [
    ("nothing", NEVER, [], False, "scheduled"),
    ("paused", DONE, [], True, "paused"),
    ("a run", Outcomes(running=True), [], False, "syncing"),
    ("a run of a paused one ends first", Outcomes(running=True), [], True, "syncing"),
    ("queued, due now", DONE, [PendingJob(False, NOW)], False, "syncing"),
    ("queued, at any time", DONE, [PendingJob(False)], False, "syncing"),
    ("queued for later", DONE, [PendingJob(False, LATER)], False, "scheduled"),
    ("tried again later", DONE, [PendingJob(False, LATER, 2)], False, "rescheduled"),
    ("tried again later, paused", DONE, [PendingJob(False, LATER, 2)], True, "paused"),
    ("running again", DONE, [PendingJob(True, LATER, 2)], False, "syncing"),
]


@pytest.mark.parametrize(("_", "outcomes", "pending", "paused", "expected"), CASES, ids=[c[0] for c in CASES])
def test_sync_states(_: str, outcomes: Outcomes, pending: list[PendingJob], paused: bool, expected: str) -> None:
    found = status(outcomes, pending, NOW, paused=paused, late_after=7200)
    assert found.sync == expected
    assert (found.rescheduled_for is not None) == (expected == "rescheduled")


@pytest.mark.parametrize(("after", "paused", "late"), [(7200, False, False), (1800, False, True), (1800, True, False)])
def test_delays(after: float, paused: bool, late: bool) -> None:
    assert status(DONE, [], NOW, paused=paused, late_after=after).delayed is late
    assert not status(NEVER, [], NOW, paused=paused, late_after=after).delayed, "what never ran is not late"


def test_what_never_succeeded_is_historical() -> None:
    assert status(Outcomes(failed=NOW), [], NOW, paused=False, late_after=1).historical
    assert not status(DONE, [], NOW, paused=False, late_after=1).historical
    assert status(NEVER, [], NOW, paused=False, late_after=1, complete=False).setup == "incomplete"
