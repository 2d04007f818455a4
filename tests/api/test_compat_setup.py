"""`setup_state`: whether what a connection was set up with works, and what clears it; two syncs asked for at once."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from compat_world import Compat, compatible

from instep.errors import Conflict
from instep.server.fivetran_api.app import ports_of
from instep.server.fivetran_api.objects import ServedObjects
from instep.store.server.connection_tests import Setups

SHOP = "/connections/shop"


def state(compat: Compat) -> tuple[str, list[str]]:
    status = compat.data("GET", SHOP)["status"]
    return status["setup_state"], [task["code"] for task in status["tasks"]]


def away(compat: Compat) -> Path:
    return (compat.folder / "shop.db").rename(compat.folder / "away.db")


def back(compat: Compat) -> None:
    (compat.folder / "away.db").rename(compat.folder / "shop.db")


@pytest.mark.sampled
@pytest.mark.parametrize("by", ["sync", "test", "reload"])
def test_what_cannot_be_reached_is_broken_until_it_works_again(compat: Compat, by: str) -> None:
    assert state(compat) == ("connected", [])
    away(compat)
    if by == "sync":
        compat.sync()
    elif by == "test":
        tests = compat.data("POST", f"{SHOP}/test", {})
        assert tests["status"]["setup_state"] == "broken"
        assert "FAILED" in {test["status"] for test in tests["setup_tests"]}
    else:
        compat.ask("POST", f"{SHOP}/schemas/reload", {}, 400)
    assert state(compat) == ("broken", ["reconnect"])
    [task] = compat.data("GET", SHOP)["status"]["tasks"]
    assert "shop.db" in task["message"]
    back(compat)
    if by == "test":
        assert compat.data("POST", f"{SHOP}/test", {})["status"]["setup_state"] == "connected"
    else:
        compat.sync()
    assert state(compat) == ("connected", [])


def test_a_table_that_fails_breaks_no_set_up(compat: Compat) -> None:
    compat.sync()
    with closing(sqlite3.connect(compat.folder / "shop.db")) as connection:
        connection.executescript("create view broken as select * from nowhere")
    compat.sync()
    assert state(compat) == ("connected", ["table_failed"])


def test_the_states_of_a_set_up(setups: Setups) -> None:
    assert setups.broken(["shop"]) == {}
    setups.record_result("shop", "")
    setups.record_result("shop", "no route")
    setups.record_result("shop", "no route, still")
    assert setups.broken(["shop", "other"]) == {"shop": "no route"}
    setups.tested("shop", "no login")
    assert setups.broken(["shop"]) == {"shop": "no login"}
    setups.record_result("shop", "")
    assert setups.broken(["shop"]) == {}


@pytest.fixture
def setups(compat: Compat) -> Setups:
    return compat.store.setups


def test_of_syncs_asked_for_at_once_one_is_begun(compat: Compat) -> None:
    compat.worker.held.clear()
    with ThreadPoolExecutor(8) as pool:
        asked = list(pool.map(lambda _: compat.client.post(f"/v1{SHOP}/sync", json={}).status_code, range(8)))
    assert sorted(asked) == [200] + [409] * 7
    assert len(compat.store.jobs.unfinished(["shop"])) == 1


def test_a_sync_that_somebody_else_runs_is_told_too(compat: Compat) -> None:
    run = compat.store.runs.claim("shop", "sync")
    assert compat.ask("POST", f"{SHOP}/sync", {}, 409)["code"] == "Conflict"
    assert compat.ask("POST", f"{SHOP}/force")["code"] == "Success"
    compat.store.runs.finish(run, "done")
    assert compat.ask("POST", f"{SHOP}/sync", {})["code"] == "Success"


def test_of_settings_that_come_twice_at_once_both_are_taken(compat: Compat) -> None:
    body = {"group_id": "lake", "service": "sqlite", "config": {"schema": "later"}}
    compat.data("POST", "/connections", body, 201)
    patches = 4 * [{"config": {"path": "shop.db"}}, {"config": {"path": "shop.db"}, "sync_frequency": 60}]
    with ThreadPoolExecutor(8) as pool:
        asked = list(pool.map(lambda patch: compat.client.patch("/v1/connections/later", json=patch), patches))
    assert [answer.status_code for answer in asked] == 8 * [200], [answer.text for answer in asked]
    assert compat.data("GET", "/connections/later")["sync_frequency"] == 60
    assert [c["id"] for c in compat.data("GET", "/connections")["items"]] == ["later", "shop"]


def test_what_is_no_longer_kept_is_not_made_again(compat: Compat) -> None:
    """As for a sync that was asked for before the settings came."""
    body = {"group_id": "lake", "service": "sqlite", "config": {"schema": "later"}}
    compat.data("POST", "/connections", body, 201)
    objects = ports_of(compat.app, compat.rates).objects
    compat.data("PATCH", "/connections/later", {"config": {"path": "shop.db"}})
    with pytest.raises(Conflict, match="connection without a source later no longer exists"):
        objects.change("foreign", "later", {"failed_at": "2026-01-01T00:00:00+00:00"}, "ann")
    assert [c["id"] for c in compat.data("GET", "/connections")["items"]] == ["later", "shop"]


POND = {"group_id": "pond", "service": "duckdb", "time_zone_offset": "-5", "config": {"path": "pond.duckdb"}}


def passed(made: Any) -> bool:
    return {test["status"] for test in made["setup_tests"]} == {"PASSED"}


def test_a_destination_is_tested_when_it_is_made_changed_and_asked_for(compat: Compat) -> None:
    group = compat.data("POST", "/groups", {"name": "pond"}, 201)
    made = compat.data("POST", "/destinations", {**POND, "region": "EU"}, 201)
    assert compat.data("GET", "/groups/pond") == group, "it is as old as it was"
    assert (passed(made), made["setup_status"]) == (True, "connected")
    assert (made["time_zone_offset"], made["region"]) == ("-5", "EU")
    compat.folder.joinpath("ruin.duckdb").write_text("this is no database")
    ruin = {"config": {"path": "ruin.duckdb"}, "time_zone_offset": "+3"}
    changed = compat.data("PATCH", "/destinations/pond", ruin)
    assert (changed["setup_status"], changed["time_zone_offset"], changed["region"]) == ("broken", "+3", "EU")
    assert {test["status"] for test in changed["setup_tests"]} & {"FAILED", "JOB_FAILED"}
    assert compat.data("GET", "/destinations/pond")["setup_status"] == "broken"
    back = {"config": POND["config"], "run_setup_tests": False}
    unsure = compat.data("PATCH", "/destinations/pond", back)
    assert (unsure["setup_tests"], unsure["setup_status"]) == ([], "broken")
    answer = compat.ask("POST", "/destinations/pond/test")
    assert (answer["code"], answer["message"]) == ("Success", "Setup tests have been completed")
    assert (passed(answer["data"]), answer["data"]["setup_status"]) == (True, "connected")
    assert {d["id"]: d["setup_status"] for d in compat.data("GET", "/destinations")["items"]} == {
        "lake": "connected", "pond": "connected"}  # fmt: skip
    assert "setup_tests" in compat.data("PATCH", "/destinations/pond", {"run_setup_tests": "true"})


def test_a_destination_that_was_not_tested_is_incomplete_until_a_sync_has_reached_it(compat: Compat) -> None:
    compat.data("POST", "/groups", {"name": "pond"}, 201)
    made = compat.data("POST", "/destinations", {**POND, "run_setup_tests": False}, 201)
    assert (made["setup_tests"], made["setup_status"]) == ([], "incomplete")
    compat.keep("connections: {twin: {source: shop, destination: pond}}")
    compat.sync("twin")
    assert compat.data("GET", "/destinations/pond")["setup_status"] == "connected"


def test_what_is_noted_of_a_destination_goes_with_it(compat: Compat) -> None:
    plain = {**POND, "run_setup_tests": False}
    for body, offset in ((plain, "-5"), ({k: v for k, v in plain.items() if k != "time_zone_offset"}, "0")):
        compat.data("POST", "/groups", {"name": "pond"}, 201)
        compat.data("POST", "/destinations", body, 201)
        assert compat.data("GET", "/destinations/pond")["time_zone_offset"] == offset
        compat.ask("DELETE", "/destinations/pond")
        assert compat.store.setups.destinations(["pond"]) == {}
        compat.ask("DELETE", "/groups/pond")


def test_who_may_test_a_destination_and_what_is_answered_without_a_worker(compat: Compat) -> None:
    path = "/destinations/lake/test"
    assert compat.ask("POST", path, {}, 403, auth=compat.key("viewer"))["code"] == "Forbidden"
    assert compat.ask("POST", path, {}, 404, auth=compat.key("operator", "pond"))["code"] == "NotFound_Destination"
    assert passed(compat.data("POST", path, {}, auth=compat.key("operator", "lake")))
    compat.ask("POST", "/groups", {"name": "pond"}, 201)
    assert compat.ask("POST", "/destinations/pond/test", {}, 404)["code"] == "NotFound_Destination"
    compat.worker.leave()
    assert compat.ask("POST", path, {}, 503)["code"] == "ServiceUnavailable"
    made = compat.data("POST", "/destinations", POND, 201)
    assert ([t["status"] for t in made["setup_tests"]], made["setup_status"]) == (["SKIPPED"], "incomplete")
    method = {**POND, "networking_method": "PrivateLink"}
    assert "reached directly" in compat.ask("POST", "/destinations", method, 400)["message"]


def test_a_sync_that_waits_for_its_next_attempt_is_asked_for_once(compat: Compat) -> None:
    compat.worker.held.clear()
    compat.store.jobs.enqueue("shop", "sync", due=datetime.now(UTC) + timedelta(hours=1), why="schedule")
    compat.ask("POST", f"{SHOP}/sync", {})
    [job] = compat.store.jobs.unfinished(["shop"])
    assert (job.who, job.due <= datetime.now(UTC)) == (f"schedule, {compat.who}", True)
    assert [e.data["who"] for e in compat.store.events.after(0, types=("sync.requested",))] == [compat.who]


def test_a_key_that_was_switched_off_before_anybody_knew_is_hashed(compat: Compat) -> None:
    columns = {"id": {"enabled": False}}
    body = {"schemas": {"main": {"enabled": True, "tables": {"item": {"enabled": True, "columns": columns}}}}}
    compat.ask("POST", f"{SHOP}/schemas", body)
    compat.sync()
    assert state(compat) == ("connected", [])
    rows = compat.app.destination("lake").write.read(("shop", "item")).read_all().to_pylist()
    assert {len(row["id"]) for row in rows} == {64}


def test_every_failure_has_its_reason(tmp_path: Path) -> None:
    """A connection that a file manages gets no salt by itself; a table fails, then the whole sync, then none."""
    file = (
        "sources: {shop: {type: sqlite, path: shop.db}}\ndestinations: {lake: {type: iceberg}}\n"
        "connections: {shop: {source: shop, destination: lake}}\n"
    )
    with compatible(tmp_path, "{}", file=file) as compat:
        compat.sql("create table item (id integer primary key, name text); insert into item values (1, 'a')")
        columns = {"id": {"enabled": False}}
        tables = {"item": {"enabled": True, "columns": columns}}
        compat.ask("POST", f"{SHOP}/schemas", {"schemas": {"main": {"enabled": True, "tables": tables}}})
        compat.sync()
        assert state(compat) == ("connected", ["table_failed"])
        [task] = compat.data("GET", SHOP)["status"]["tasks"]
        assert task["message"].startswith("Table main.item was not loaded: ")
        assert "salt" in task["details"]
        [listed] = compat.data("GET", "/connections")["items"]
        assert listed["status"]["tasks"] == [task]
        compat.ask("PATCH", f"{SHOP}/schemas/main/tables/item/columns/id", {"enabled": True})
        compat.sync()
        assert state(compat) == ("connected", [])
        compat.sql("drop table item; create table item (id integer primary key, name text, other text)")
        compat.sync()
        assert state(compat)[0] == "connected"


def test_a_connection_that_gets_its_source_while_it_is_looked_for_is_found(
    compat: Compat, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"group_id": "lake", "service": "sqlite", "config": {"schema": "later"}}
    compat.data("POST", "/connections", body, 201)
    get = ServedObjects.get

    def meanwhile(objects: ServedObjects, kind: Any, name: str) -> Any:
        if kind == "foreign" and name == "later":
            monkeypatch.setattr(ServedObjects, "get", get)
            compat.data("PATCH", "/connections/later", {"config": {"path": "shop.db"}})
        return get(objects, kind, name)

    monkeypatch.setattr(ServedObjects, "get", meanwhile)
    assert compat.data("GET", "/connections/later")["service"] == "sqlite"
