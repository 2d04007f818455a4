"""The list of crash points is made from the source: one without a case, or a case without one, fails here."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from crash_cases import (
    APPLY,
    BACKFILL,
    CONNECTOR,
    DELTA,
    DUCKDB,
    FILL,
    FIRST,
    HISTORY,
    LEAVE,
    LOG,
    MAINTAIN,
    OLD_NAMES,
    POSTGRES,
    POSTGRES_COPY,
    PROMOTE,
    PUBLISH,
    REPAIR,
    REPLAY,
    RESTORE,
    REWRITE,
    ROLLOUT,
    ROLLOUT_BACK,
    SECRETS,
    SPARK_MERGE,
    SYNC,
    TWICE,
    UNDO,
    ZOMBIE,
)

from instep import crash
from instep.crash import Crashed, crashpoint, points
from instep.errors import Fenced
from instep.store.store import Store
from instep.sync.context import SyncContext


@cache
def known() -> frozenset[str]:
    """All points of the source."""
    return frozenset(points())


def bare(names: tuple[str, ...]) -> set[str]:
    return {name.partition("@")[0] for name in names}


def test_every_point_has_a_case() -> None:
    cases = (SYNC, FILL, UNDO, REPLAY, REWRITE, REPAIR, RESTORE, PROMOTE, DELTA, DUCKDB, POSTGRES, POSTGRES_COPY,
             MAINTAIN, OLD_NAMES, LOG, HISTORY, CONNECTOR, SECRETS, LEAVE, ROLLOUT, ROLLOUT_BACK,
             PUBLISH)  # fmt: skip
    assert set().union(*map(bare, cases)) == known()


KINDS = (
    FIRST, SPARK_MERGE, APPLY, BACKFILL, DELTA, DUCKDB, POSTGRES, POSTGRES_COPY, FILL, ZOMBIE, TWICE, UNDO, REPLAY,
    REWRITE, REPAIR, RESTORE, PROMOTE, MAINTAIN, LOG, CONNECTOR, HISTORY, SECRETS, LEAVE, ROLLOUT, ROLLOUT_BACK,
    PUBLISH,
)  # fmt: skip


@pytest.mark.parametrize("cases", KINDS)
def test_every_case_has_a_point(cases: tuple[str, ...]) -> None:
    assert bare(cases) <= known()
    assert len(set(cases)) == len(cases)


def test_a_point_may_act_at_its_nth_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(crash.VARIABLE, "nth.pass@3=raise")
    crashpoint("nth.pass")
    crashpoint("nth.pass")
    with pytest.raises(Crashed):
        crashpoint("nth.pass")
    crashpoint("nth.pass")


def test_a_late_run_writes_nothing_to_the_store(tmp_path: Path) -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    with Store(f"sqlite:///{tmp_path / 'state.db'}", now=lambda: now[0]) as store:
        nothing: Any = None
        context = SyncContext("c", nothing, nothing, nothing, nothing, nothing, nothing, store, nothing)
        with context.transaction():  # nobody holds the connection yet
            store.pauses.pause("c", "before")
        late = replace(context, run=store.runs.claim("c", "sync"))
        now[0] += timedelta(hours=1)
        own = replace(context, run=store.runs.claim("c", "sync"))
        with pytest.raises(Fenced, match="taken over"), late.transaction():
            store.pauses.resume("c", who="late")
        assert store.pauses.connection("c")
        with own.transaction():
            store.pauses.resume("c", who="own")
        assert not store.pauses.connection("c")
