"""Scheduled detection over hours of a real PostgreSQL: off by itself, on by a person, set off by errors."""

from __future__ import annotations

import pytest
from detection_world import ALL_OFF, ALL_ON, Base

from instep.control import detector
from instep.control.pauses import resume
from instep.control.reviews import answer
from instep.errors import Blocked


def test_off_by_itself_until_a_person_has_resolved_it(base: Base) -> None:
    base.write(ALL_OFF)
    assert base.do("sync").error == ""
    base.turn()
    base.sql("drop table box")
    assert [job.kind for job in base.turn(hours=1)] == ["detect"]
    assert (base.standing().state, "box" in base.paused()) == ("internal_disabled", True)
    assert base.turn(hours=5) == []
    with base.app() as app:
        with pytest.raises(Blocked, match="is still open"):
            resume(app.store, "shop", "ann")
        with pytest.raises(Blocked, match="detection is off"):
            detector.switch_on(app.store, "shop", "ann")
        answer(app.store, app.store.reviews.find("shop", ("open",)), "approved", "ann")
        resume(app.store, "shop", "ann")
        assert detector.switch_on(app.store, "shop", "ann")
    assert [job.kind for job in base.turn(hours=1)] == ["detect"]
    assert sorted(base.accepted()) == ["customer", "item"]
    assert (base.standing().state, base.paused(), base.waiting()) == ("scheduled", "", [])
    assert base.rows("select size from shop.box") == [(3,)]


def test_a_sync_that_fails_sets_off_one(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    base.write(ALL_ON)
    assert base.do("sync").error == ""
    base.sql("create table bag (id integer primary key)")
    monkeypatch.setenv("INSTEP_CRASH", "sync.snapshot=raise")
    assert "crash point" in base.do("sync").error
    job, ended = base.did[-1]
    assert (job.kind, job.options["triggered_by_error"], ended.error) == ("detect", True, "")
    assert base.lake()["bag"] == ["id"]
