"""The scheduled detector, option by option: asked for, set off by errors, switching itself off, and its schedule."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from control_world import found

from instep.control import detector, schedules
from instep.errors import Blocked
from instep.model import Job
from instep.project.load import load
from instep.project.project import Project
from instep.store.store import Store
from instep.store.work.jobs import WAITED_FOR

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HEAD = """\
sources: {db: {type: sqlite, path: shop.db}, other: {type: sqlite, path: o.db}}
destinations: {lake: {type: duckdb, path: lake.db}}
connections:
  shop: {source: SOURCE, OPTIONS}
"""
Made = Callable[..., Project]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    def write(options: str = "", source: str = "db") -> Project:
        text = HEAD.replace("OPTIONS", options or "tags: []").replace("SOURCE", source)
        (tmp_path / "instep.yml").write_text(text)
        return load(tmp_path)

    return write


def app(text: str) -> str:
    return f"app_options: {{{text}}}"


def claimed(store: Store) -> Job:
    job = store.jobs.claim("w")
    assert job is not None
    return job


def types(store: Store) -> list[str]:
    return [e.type for e in store.events.after(connection="shop") if e.type.startswith(("detect", "connection"))]


def removed(store: Store, rule: str = "option app_options.auto_unsync_deleted_tables") -> str:
    """The connection is paused because of a table that is gone; the id of the change."""
    finding = found("table.removed", column="", action="pause_connection")
    (review,) = store.reviews.record("shop", [type(finding)(**{**vars(finding), "rule": rule})], "f")
    store.pauses.pause("shop", "table removed", change=review.id)
    return review.id


class TestAsking:
    def test_a_new_one_is_202_the_one_that_is_there_200(self, store: Store, made: Made) -> None:
        project = made()
        first = detector.ask(store, project, "shop", "ann")
        waiting = detector.ask(store, project, "shop", "bob")
        assert (first.new, waiting.new, waiting.job.id) == (True, False, first.job.id)
        job = claimed(store)
        running = detector.ask(store, project, "shop", "bob")
        assert (running.new, running.job.id, running.job.status) == (False, job.id, "running")
        assert store.jobs.counts() == {"running": 1}
        store.jobs.finish(job)
        assert detector.ask(store, project, "shop", "bob").new

    def test_it_comes_before_schedules(self, store: Store, made: Made) -> None:
        store.jobs.enqueue("a", "sync")
        assert detector.ask(store, made(), "shop", "ann").job.priority == WAITED_FOR
        assert claimed(store).kind == "detect"

    def test_one_waits_for_each_base_and_app(self, store: Store, made: Made) -> None:
        assert detector.ask(store, made(), "shop", "ann").job.key == "dsc_shop_db"
        assert detector.ask(store, made(source="other"), "shop", "ann").new
        assert [job.key for job in store.jobs.find()] == ["dsc_shop_other", "dsc_shop_db"]
        claimed(store)
        assert store.jobs.claim("w") is None  # one of a base runs at a time

    @pytest.mark.parametrize(("options", "apply"), [("", False), (app("enable: true"), True)])
    def test_it_propagates_where_the_detector_has_options(
        self, store: Store, made: Made, options: str, apply: bool
    ) -> None:
        assert detector.ask(store, made(options), "shop", "ann").job.options["apply"] is apply


class TestOnError:
    def test_at_most_one_in_ten_minutes(self, tmp_path: Path, made: Made) -> None:
        now, project = [NOW], made()
        with Store(f"sqlite:///{tmp_path / 's.db'}", now=lambda: now[0]) as store:
            for minutes, jobs in ((0, 1), (1, 1), (9, 1), (10, 2), (11, 2), (20, 3)):
                now[0] = NOW + timedelta(minutes=minutes)
                asked = detector.on_error(store, project, "shop")
                if asked is not None:
                    assert asked.job.options["triggered_by_error"] is True
                    assert asked.job.due == now[0]
                    store.jobs.finish(claimed(store))
                assert len(store.jobs.find()) == jobs

    @pytest.mark.parametrize(
        "options",
        [
            app("create_detect_schema_changes_ping_on_each_error: false"),
            app("detect_on_error: false"),
            app("enable_detect_schema_changes: false"),
        ],
    )
    def test_not_where_it_is_switched_off(self, store: Store, made: Made, options: str) -> None:
        assert detector.on_error(store, made(options), "shop") is None
        assert store.jobs.find() == []

    def test_it_hastens_the_one_that_waits(self, store: Store, made: Made) -> None:
        project, later = made(), datetime.now(UTC) + timedelta(hours=1)
        options = {"apply": False}
        job, _ = store.jobs.enqueue("shop", "detect", key="dsc_shop_db", options=options, due=later)
        asked = detector.on_error(store, project, "shop")
        assert asked is not None
        assert (asked.new, asked.job.id) == (False, job.id)
        assert asked.job.options == {"apply": False, "triggered_by_error": True}
        assert asked.job.due < later

    def test_the_one_that_runs_is_enough(self, store: Store, made: Made) -> None:
        project = made()
        detector.ask(store, project, "shop", "ann")
        job = claimed(store)
        asked = detector.on_error(store, project, "shop")
        assert asked is not None
        assert (asked.new, asked.job.id) == (False, job.id)


class TestSwitchingItselfOff:
    def ended(self, store: Store, project: Project) -> Job:
        detector.ask(store, project, "shop", "ann")
        job = claimed(store)
        detector.disable_after_deletion(store, job, {"tables": {"deleted": 1}})
        return store.jobs.finish(job)

    def test_something_deleted_that_is_not_let_go(self, store: Store, made: Made) -> None:
        project, change = made(app("enable: true")), removed(store)
        self.ended(store, project)
        now = detector.detector_status(store, project, "shop")
        assert (now.state, now.internal_disabled, change in now.reason) == ("internal_disabled", True, True)
        assert types(store) == ["detection.finished", "detector.disabled"]
        assert detector.on_error(store, project, "shop") is None

    @pytest.mark.parametrize("rule", ["rule 1", "preset stop"])
    def test_another_pause_leaves_it_on(self, store: Store, made: Made, rule: str) -> None:
        removed(store, rule)
        self.ended(store, made())
        assert types(store) == ["detection.finished"]

    def test_once_however_often_it_is_seen(self, store: Store, made: Made) -> None:
        removed(store)
        for _ in range(2):
            self.ended(store, made())
        assert types(store).count("detector.disabled") == 1

    def test_a_failed_propagation_pauses_too(self, store: Store, made: Made) -> None:
        project = made(app("enable: true"))
        detector.ask(store, project, "shop", "ann")
        detector.propagation_failed(store, claimed(store), "the lake is full\nat line 3")
        pause = store.pauses.connection("shop")
        assert pause is not None
        assert pause.reason == "propagating schema changes has failed: the lake is full"
        assert types(store) == ["connection.paused", "detector.disabled"]
        assert detector.detector_status(store, project, "shop").internal_disabled

    def test_a_person_resolves_and_switches_it_on_again(self, store: Store, made: Made) -> None:
        project, _ = made(app("enable: true")), removed(store)
        self.ended(store, project)
        with pytest.raises(Blocked, match="detection is off and the connection is paused"):
            detector.switch_on(store, "shop", "ann")
        store.pauses.resume("shop", who="ann")
        assert detector.switch_on(store, "shop", "ann")
        assert not detector.switch_on(store, "shop", "ann")
        assert detector.detector_status(store, project, "shop").state == "scheduled"
        assert types(store)[-1] == "detector.enabled"

    def test_a_person_may_look_while_it_is_off(self, store: Store, made: Made) -> None:
        project, _ = made(app("enable: true")), removed(store)
        self.ended(store, project)
        job = detector.ask(store, project, "shop", "ann").job
        assert detector.idle(store, project, job) == ""


class TestSchedule:
    @pytest.mark.parametrize("seconds", [1800, 3600, 21600, 43200, 86400])
    def test_the_five_frequencies(self, store: Store, made: Made, seconds: int) -> None:
        project = made(app(f"detect_schema_changes_frequency_in_seconds: {seconds}"))
        assert schedules.reconcile(store, project, NOW) == []
        (one,) = store.schedules.all()
        assert (one.kind, one.spec, one.key) == ("detect", f"every {seconds}", "dsc_shop_db")
        assert one.next_due is not None
        assert timedelta() < one.next_due - NOW <= timedelta(seconds=seconds)

    def test_every_hour_if_nothing_is_said(self, store: Store, made: Made) -> None:
        assert [s.spec for s in schedules.schedules_of(made(), "shop")] == ["every 3600"]
        said = 'schedule: {detect: "*/5 * * * *", sync: every 15m, timezone: Europe/Berlin}'
        assert [(s.kind, s.spec, s.timezone) for s in schedules.schedules_of(made(said), "shop")] == [
            ("sync", "every 900", "Europe/Berlin"),
            ("detect", "*/5 * * * *", "Europe/Berlin"),
        ]

    def test_the_same_settings_keep_the_next_time(self, store: Store, made: Made) -> None:
        schedules.reconcile(store, made(), NOW)
        before = store.schedules.all()
        schedules.reconcile(store, made(), NOW + timedelta(hours=5))
        assert store.schedules.all() == before

    def test_missed_fires_are_one(self, store: Store, made: Made) -> None:
        schedules.reconcile(store, made(), NOW)
        late = NOW + timedelta(days=2)
        assert schedules.fire(store, late) == 1
        assert schedules.fire(store, late) == 0
        (one,) = store.schedules.all()
        assert one.next_due is not None
        assert late < one.next_due <= late + timedelta(hours=1)
        assert len(store.jobs.find()) == 1

    def test_a_fire_while_the_last_one_still_waits_adds_none(self, store: Store, made: Made) -> None:
        schedules.reconcile(store, made(), NOW)
        for hours in (1, 2, 3):
            schedules.fire(store, NOW + timedelta(hours=hours))
        assert len(store.jobs.find()) == 1

    def test_off_leaves_what_runs_alone_and_on_again_starts_no_second(self, store: Store, made: Made) -> None:
        on, off = made(app("enable: true")), made(app("enable: false"))
        schedules.reconcile(store, on, NOW)
        schedules.fire(store, NOW + timedelta(hours=1))
        job = claimed(store)
        schedules.reconcile(store, off, NOW)
        assert store.schedules.all() == []
        assert store.jobs.get(job.id).status == "running"
        assert detector.detector_status(store, off, "shop").state == "processing"
        schedules.reconcile(store, on, NOW)
        schedules.fire(store, NOW + timedelta(hours=2))
        assert store.jobs.claim("w2") is None  # the second waits until the first has ended
        store.jobs.finish(job)
        assert detector.detector_status(store, off, "shop").state == "queued"
        second = claimed(store)
        assert detector.idle(store, off, second) == "detection is switched off"
        assert detector.idle(store, on, second) == ""

    def test_one_that_switched_itself_off_is_not_fired(self, store: Store, made: Made) -> None:
        schedules.reconcile(store, made(), NOW)
        store.detectors.disable("shop", "why")
        assert schedules.fire(store, NOW + timedelta(hours=1)) == 0
        store.detectors.enable("shop")
        assert schedules.fire(store, NOW + timedelta(hours=2)) == 1

    def test_what_is_gone_from_the_file_comes_no_more(self, store: Store, made: Made) -> None:
        project = made("schedule: {sync: every 1h}")
        schedules.reconcile(store, project, NOW)
        assert [s.kind for s in store.schedules.all()] == ["detect", "sync"]
        schedules.reconcile(store, made(), NOW, ["shop"])
        assert [s.kind for s in store.schedules.all()] == ["detect"]
        schedules.reconcile(store, project, NOW, ["gone"])
        assert len(store.schedules.all()) == 1
