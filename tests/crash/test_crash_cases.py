"""The list of crash points is made from the source: one without a case, or a case without one, fails here."""

from __future__ import annotations

import pytest
from crash_cases import APPLY, BACKFILL, FIRST, SPARK_MERGE, SYNC, TWICE, ZOMBIE

from instep import crash
from instep.crash import Crashed, crashpoint, points


def bare(names: tuple[str, ...]) -> set[str]:
    return {name.partition("@")[0] for name in names}


def test_every_point_has_a_case() -> None:
    assert bare(SYNC) == set(points())


@pytest.mark.parametrize("cases", [FIRST, SPARK_MERGE, APPLY, BACKFILL, ZOMBIE, TWICE])
def test_every_case_has_a_point(cases: tuple[str, ...]) -> None:
    assert bare(cases) <= set(points())
    assert len(set(cases)) == len(cases)


def test_a_point_may_act_at_its_nth_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(crash.VARIABLE, "nth.pass@3=raise")
    crashpoint("nth.pass")
    crashpoint("nth.pass")
    with pytest.raises(Crashed):
        crashpoint("nth.pass")
    crashpoint("nth.pass")
