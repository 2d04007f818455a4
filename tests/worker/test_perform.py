"""What each kind of job does, and the scheduled detector's options over a real source and destination."""

from __future__ import annotations

import pytest
from worker_world import Shop

from instep.control import detector
from instep.control.pauses import resume
from instep.control.reviews import answer
from instep.worker.perform import JobEnd

ALL_ON = (
    "app_options: {propagate_table_creations: true, unsync_deleted_tables: true}, "
    "table_options: {'*.*': {propagate_column_creations: true, unsync_deleted_columns: true}}"
)
OFF = "app_options: {enable: true}"


def tables(shop: Shop) -> list[str]:
    return sorted({table for table, _ in columns_of(shop)})


def columns(shop: Shop, table: str) -> set[str]:
    return {column for of, column in columns_of(shop) if of == table}


def columns_of(shop: Shop) -> list[tuple[str, str]]:
    """(table, column), without those of the product."""
    rows = shop.rows("select table_name, column_name from information_schema.columns where table_schema = 'shop'")
    return [(str(t), str(c)) for t, c in rows if not str(t).startswith("_") and not str(c).startswith("_")]


def events(shop: Shop) -> list[str]:
    with shop.store() as store:
        return [e.type for e in store.events.after(connection="shop")]


def loaded(shop: Shop, options: str) -> None:
    shop.write(options)
    assert shop.perform("sync").error == ""


class TestKinds:
    def test_sync_and_backfill(self, shop: Shop) -> None:
        ended = shop.perform("sync")
        assert (ended.error, ended.result["status"], ended.result["tables"]) == ("", "done", 2)
        assert ended.run == ended.result["run"] != ""
        assert shop.count("count(*)") == (2,)
        assert shop.perform("backfill", table="main.item").result["tables"] == 1

    def test_detect_counts_per_level(self, shop: Shop) -> None:
        counts = shop.perform("detect").result["counts"]
        assert counts["tables"] == {"new": 2, "deleted": 0, "updated": 0, "unchanged": 0}
        assert "detection.finished" in events(shop)
        shop.perform("sync")
        assert shop.perform("refresh").result["counts"]["columns"]["unchanged"] == 4

    def test_maintain_and_tests(self, shop: Shop) -> None:
        shop.perform("sync")
        assert shop.perform("maintain").error == ""
        assert [t["equal"] for t in shop.perform("verify").result["tables"]] == [True, True]
        for options in ({}, {"source": "shop_db"}, {"destination": "shop_lake"}):
            assert shop.perform("test_connection", **options).result["ok"] is True

    def test_what_no_attempt_mends_and_what_one_may(self, shop: Shop) -> None:
        assert shop.perform("sync", tables=["main.nothing"]).transient is False
        (shop.folder / "shop.db").rename(shop.folder / "away.db")
        ended = shop.perform("sync")
        assert (ended.transient, "shop.db" in ended.error) == (True, True)

    def test_an_interrupt_is_told_apart(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(*_: object) -> JobEnd:
            raise KeyboardInterrupt

        monkeypatch.setattr("instep.worker.perform._carried_out", interrupted)
        assert shop.perform("sync").interrupted


class TestDetector:
    def test_it_propagates_new_tables_and_columns(self, shop: Shop) -> None:
        loaded(shop, ALL_ON)
        shop.sql("create table bag (id integer primary key); alter table item add column price int;")
        ended = shop.perform("detect", apply=True)
        assert ended.result["counts"]["tables"]["new"] == 1
        assert ended.result["version"] == 2
        assert tables(shop) == ["bag", "box", "item"]
        assert columns(shop, "item") == {"id", "name", "price"}

    def test_new_ones_are_listed_off_by_default(self, shop: Shop) -> None:
        loaded(shop, OFF)
        shop.sql("create table bag (id integer primary key); alter table item add column price int;")
        shop.perform("detect", apply=True)
        assert tables(shop) == ["box", "item"]
        assert columns(shop, "item") == {"id", "name"}

    def test_deleted_ones_go_where_that_is_on(self, shop: Shop) -> None:
        loaded(shop, ALL_ON)
        shop.sql("drop table box; alter table item drop column name;")
        for _ in range(2):  # a removal is believed when it is seen twice
            assert shop.perform("detect", apply=True).error == ""
        assert tables(shop) == ["box", "item"]  # what was loaded stays
        assert columns(shop, "item") == {"id"}
        with shop.store() as store:
            assert store.pauses.connection("shop") is None
            assert [t.name for t in store.accepted.catalog("shop").tables if not t.retained] == ["item"]

    def test_deleted_ones_pause_where_it_is_off_until_a_person_resolves_it(self, shop: Shop) -> None:
        loaded(shop, OFF)
        shop.sql("drop table box;")
        shop.perform("detect", apply=True)
        with shop.app() as app:
            now = detector.detector_status(app.store, app.project, "shop")
            assert (now.state, now.internal_disabled, "box" in now.reason) == ("internal_disabled", True, True)
            assert app.store.pauses.connection("shop") is not None
            answer(app.store, app.store.reviews.find("shop", ("open",)), "rejected", "ann")
            resume(app.store, "shop", "ann")
            assert detector.switch_on(app.store, "shop", "ann")
        assert shop.perform("detect", apply=True).error == ""
        with shop.app() as app:
            assert not detector.detector_status(app.store, app.project, "shop").internal_disabled
        assert [t for t in events(shop) if t.startswith("detector")] == ["detector.disabled", "detector.enabled"]

    def test_one_made_before_it_was_switched_off_ends_by_itself(self, shop: Shop) -> None:
        shop.write("app_options: {enable: false}")
        assert shop.perform("detect").result == {"skipped": "detection is switched off"}
        assert shop.perform("detect", asked=True).result["counts"]["tables"]["new"] == 2

    def test_a_sync_that_fails_sets_off_one(self, shop: Shop) -> None:
        (shop.folder / "shop.db").rename(shop.folder / "away.db")
        for _ in range(3):
            shop.perform("sync")
        with shop.store() as store:
            (job,) = store.jobs.find(kind="detect")
            assert job.options["triggered_by_error"] is True

    def test_one_that_cannot_look_changes_nothing(self, shop: Shop) -> None:
        (shop.folder / "shop.db").rename(shop.folder / "away.db")
        assert shop.perform("detect", apply=True, attempts=1).transient
        with shop.store() as store:
            assert store.pauses.connection("shop") is None
            (said,) = store.events.latest(types=("detection.finished",))
            assert said.data["status"] == "failed"

    @pytest.mark.sampled
    @pytest.mark.parametrize(("attempts", "paused"), [(1, True), (3, False)])
    def test_a_propagation_that_fails_for_good_pauses(
        self, shop: Shop, monkeypatch: pytest.MonkeyPatch, attempts: int, paused: bool
    ) -> None:
        loaded(shop, ALL_ON)
        shop.sql("alter table item add column price int;")
        monkeypatch.setenv("INSTEP_CRASH", "apply.table.before=raise")
        assert "crash point" in shop.perform("detect", apply=True, attempts=attempts).error
        with shop.app() as app:
            assert detector.detector_status(app.store, app.project, "shop").internal_disabled is paused
            assert (app.store.pauses.connection("shop") is not None) is paused
