"""What every write has: one transaction with its audit entry, rehearsals, the same answer again, checks of what was
read; and that secrets are told once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from api_world import Api, recorded
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from instep.server.access import NEEDS, PREFIX
from instep.server.app import ROUTES
from instep.server.writes import write
from instep.store.server.audit import Audit

CANARY = "instep_sk_"


def actions(api: Api) -> list[str]:
    return [e.action for e in api.store.audit.page()][::-1]


def one_change(api: Api, connection: str = "eu") -> str:
    return recorded(api.store, connection, "note")[0].id


class TestAnswers:
    @pytest.mark.parametrize(
        ("verb", "status", "event"),
        [
            ("approve", "approved", "change.approved"),
            ("reject", "rejected", "change.rejected"),
            ("ignore", "rejected", "change.ignored"),
        ],
    )
    def test_one_change(self, api: Api, verb: str, status: str, event: str) -> None:
        change = one_change(api)
        found = api.call("POST", f"/changes/{change}/{verb}", "approver")
        assert found.status_code == 200
        assert found.json()["change"]["status"] == status
        assert found.json()["change"]["decided_by"].startswith("approver (k-")
        assert [e.type for e in api.store.events.after()] == [event]
        [entry] = api.store.audit.page()
        assert (entry.target, entry.detail["connection"]) == (change, "eu")
        assert entry.actor.startswith("approver (k-")

    def test_by_its_whole_id_only(self, api: Api) -> None:
        change = one_change(api)
        for other in (change[:-1], change.removeprefix("c-"), "c-%25"):
            assert api.call("POST", f"/changes/{other}/approve").status_code == 404
        assert actions(api) == []

    def test_what_is_done_is_a_conflict(self, api: Api) -> None:
        change = one_change(api)
        api.store.reviews.applied([change])
        found = api.call("POST", f"/changes/{change}/reject")
        assert (found.status_code, found.json()["code"]) == (409, "conflict")
        assert "already applied" in found.json()["detail"]
        assert actions(api) == []

    def test_snooze(self, api: Api) -> None:
        change = one_change(api)
        done = api.call("POST", f"/changes/{change}/snooze", "approver", {"duration": "3d"})
        assert done.json()["change"]["snoozed_until"] is not None
        for body in (
            {},
            {"duration": "soon"},
            {"until": "2020-01-01"},
            {"duration": "3d", "until": "2099-01-01"},
            {"until": "9999-12-31T23:59-14:00"},
        ):
            assert api.call("POST", f"/changes/{change}/snooze", "approver", body).status_code == 422

    def test_many_with_a_result_each(self, api: Api) -> None:
        reviews = recorded(api.store, "eu", *"abc")
        api.store.reviews.applied([reviews[0].id])
        body = {"answer": "approved", "ids": [r.id for r in reviews], "kinds": ["column.added"]}
        preview = api.call("POST", "/changes/answers", "approver", body, params={"dry_run": True}).json()
        assert (preview["answered"], preview["refused"], preview["dry_run"]) == (2, 1, True)
        assert {r.status for r in api.store.reviews.find("eu")} == {"open", "applied"}
        found = api.call("POST", "/changes/answers", "approver", body).json()
        assert (found["answered"], found["refused"]) == (2, 1)
        assert [one["ok"] for one in found["items"]] == [False, True, True]
        assert [one["change"] and one["change"]["status"] for one in found["items"]] == [None, "approved", "approved"]
        assert {r.status for r in api.store.reviews.find("eu")} == {"approved", "applied"}
        assert sorted(api.store.audit.page()[0].detail["changes"]) == sorted(r.id for r in reviews[1:])

    def test_many_that_nobody_named(self, api: Api) -> None:
        one_change(api)
        for body in ({"answer": "approved"}, {"answer": "approved", "connection": "eu"}):
            assert api.call("POST", "/changes/answers", "approver", body).status_code == 422


class TestPauses:
    def test_pause_and_resume(self, api: Api) -> None:
        assert api.call("POST", "/connections/eu/pause", body={"reason": "x"}).json()["paused"]
        assert api.get("/connections/eu")["status"] == "paused"
        assert not api.call("POST", "/connections/eu/resume", body={}).json()["paused"]
        table = {"reason": "x", "table": ["main", "item"]}
        pauses = api.call("POST", "/connections/eu/pause", body=table).json()["pauses"]
        assert [p["table"] for p in pauses] == ["main.item"]
        assert actions(api) == ["connection.pause", "connection.resume", "connection.pause"]

    def test_not_while_a_change_stops_it(self, api: Api) -> None:
        recorded(api.store, "eu", "note", action="pause_connection")
        found = api.call("POST", "/connections/eu/resume", body={})
        assert (found.status_code, found.json()["code"]) == (409, "blocked")


class TestWork:
    def test_new_work_is_202_and_what_is_under_way_200(self, api: Api) -> None:
        first = api.call("POST", "/connections/eu/detect", "operator", {"why": "a look"})
        again = api.call("POST", "/connections/eu/detect", "operator", {})
        assert (first.status_code, again.status_code) == (202, 200)
        assert first.json()["id"] == again.json()["id"]
        assert (first.json()["fresh"], again.json()["fresh"]) == (True, False)
        assert api.get(f"/jobs/{first.json()['id']}")["kind"] == "detect"
        assert api.call("GET", "/jobs/j-9").status_code == 404
        sync = api.call("POST", "/connections/eu/sync", "operator", {"tables": ["main.item"], "full": True})
        assert sync.status_code == 202
        assert api.store.audit.page()[0].detail["tables"] == ["main.item"]

    def test_it_is_in_the_queue_and_says_whether_anybody_will_do_it(self, api: Api) -> None:
        found = api.call("POST", "/connections/eu/sync", body={"full": True}).json()
        assert "no worker is running" in found["note"]
        [job] = api.store.jobs.unfinished(["eu"])
        assert (job.id, job.kind, job.options, job.status) == (found["id"], "sync", {"full": True}, "queued")
        api.store.workers.register(1)
        assert api.get(f"/jobs/{job.id}")["note"] == ""
        claimed = api.store.jobs.claim("w")
        same, other = ({"full": full} for full in (True, False))
        assert claimed is not None
        assert api.call("POST", "/connections/eu/sync", body=same).json()["id"] == job.id
        assert api.call("POST", "/connections/eu/sync", body=other).json()["id"] != job.id, "that is other work"
        api.store.jobs.finish(claimed)
        assert api.get(f"/jobs/{job.id}")["status"] == "done"

    def test_a_job_is_known_by_its_whole_id(self, api: Api) -> None:
        found = api.call("POST", "/connections/eu/sync", body={}).json()["id"]
        assert api.call("GET", f"/jobs/{found[:-1]}").status_code == 404


class TestRehearsals:
    def test_nothing_is_kept(self, api: Api, tmp_path: Path) -> None:
        change = one_change(api)
        dry = {"params": {"dry_run": True}}
        for path, body in (
            (f"/changes/{change}/approve", None), ("/connections/eu/pause", {"reason": "x"}),
            ("/keys", {"name": "ci", "role": "viewer"}),
        ):  # fmt: skip
            found = api.call("POST", path, body=body, **dry)
            assert found.status_code == 200
            assert found.json()["dry_run"] is True
        assert api.store.reviews.get(change).status == "open"
        assert api.store.pauses.active("eu") == []
        assert api.store.events.after() == []
        assert [k.name for k in api.store.api_keys.page()] == ["admin"]
        assert actions(api) == []

    def test_a_rehearsed_key_has_no_secret(self, api: Api) -> None:
        found = api.call("POST", "/keys", body={"name": "ci", "role": "viewer"}, params={"dry_run": True})
        assert found.json()["secret"] is None

    def test_it_is_refused_as_the_real_one_is(self, api: Api) -> None:
        recorded(api.store, "eu", "note", action="pause_connection")
        assert api.call("POST", "/connections/eu/resume", body={}, params={"dry_run": True}).status_code == 409


class TestRepeated:
    def test_the_same_request_is_done_once(self, api: Api) -> None:
        headers = {"Idempotency-Key": "t-1"}
        first = api.call("POST", "/connections/eu/pause", body={"reason": "x"}, headers=headers)
        api.call("POST", "/connections/eu/resume", body={})
        again = api.call("POST", "/connections/eu/pause", body={"reason": "x"}, headers=headers)
        assert again.json() == first.json()
        assert again.headers["idempotent-replayed"] == "true"
        assert api.store.pauses.active("eu") == []
        assert actions(api) == ["connection.pause", "connection.resume"]

    def test_sent_by_many_at_once_it_is_done_once(self, api: Api) -> None:
        headers = {**api.key("operator"), "Idempotency-Key": "t-1"}

        def send(_: int) -> tuple[int, str]:
            found = api.client.post(f"{PREFIX}/connections/eu/detect", json={}, headers=headers)
            return found.status_code, found.json()["id"]

        with ThreadPoolExecutor(8) as pool:
            answers = set(pool.map(send, range(24)))
        assert answers == {(202, job.id) for job in api.store.jobs.find()}
        assert len(answers) == 1
        assert actions(api) == ["connection.detect"]

    def test_another_request_with_its_token_is_refused(self, api: Api) -> None:
        headers = {"Idempotency-Key": "t-1"}
        api.call("POST", "/connections/eu/pause", body={"reason": "x"}, headers=headers)
        for path, body in (("/connections/us/pause", {"reason": "x"}), ("/connections/eu/pause", {"reason": "y"})):
            found = api.call("POST", path, body=body, headers=headers)
            assert (found.status_code, found.json()["code"]) == (422, "repeated_differently")

    def test_tokens_are_of_their_key(self, api: Api) -> None:
        headers = {"Idempotency-Key": "t-1"}
        api.call("POST", "/connections/eu/pause", "admin", {"reason": "x"}, headers=headers)
        other = api.call("POST", "/connections/us/pause", "operator", {"reason": "x"}, headers=headers)
        assert other.status_code == 200

    def test_a_request_that_failed_may_be_tried_again(self, api: Api) -> None:
        [review] = recorded(api.store, "eu", "note", action="pause_connection")
        headers = {"Idempotency-Key": "t-1"}
        assert api.call("POST", "/connections/eu/resume", body={}, headers=headers).status_code == 409
        api.store.reviews.applied([review.id])
        assert api.call("POST", "/connections/eu/resume", body={}, headers=headers).status_code == 200

    def test_a_secret_is_not_told_again(self, api: Api, tmp_path: Path) -> None:
        headers, body = {"Idempotency-Key": "t-1"}, {"name": "ci", "role": "viewer"}
        first = api.call("POST", "/keys", body=body, headers=headers)
        again = api.call("POST", "/keys", body=body, headers=headers)
        assert first.status_code == again.status_code == 201
        assert first.json()["secret"].startswith(CANARY)
        assert again.json() == {**first.json(), "secret": None}
        api.store.close()
        secret = first.json()["secret"][14:].encode()
        assert all(secret not in file.read_bytes() for file in (tmp_path / ".instep").iterdir())

    @pytest.mark.parametrize("token", ["", "x" * 256, "a b"])
    def test_what_is_no_token(self, api: Api, token: str) -> None:
        found = api.call("POST", "/connections/eu/resume", body={}, headers={"Idempotency-Key": token})
        assert found.status_code == 422


class TestWhatWasRead:
    def test_a_write_on_what_has_moved_is_refused(self, api: Api) -> None:
        change = one_change(api)
        read = api.call("GET", f"/changes/{change}").headers["etag"]
        assert api.call("GET", f"/changes/{change}", headers={"If-None-Match": read}).status_code == 304
        assert api.call("POST", f"/changes/{change}/approve", headers={"If-Match": read}).status_code == 200
        found = api.call("POST", f"/changes/{change}/reject", headers={"If-Match": read})
        assert (found.status_code, found.json()["code"]) == (412, "precondition_failed")
        assert api.store.reviews.get(change).status == "approved"
        now = api.call("GET", f"/changes/{change}").headers["etag"]
        for match in (f'"other", {now}', "*"):
            done = api.call("POST", f"/changes/{change}/reject", headers={"If-Match": match})
            assert done.status_code == 200

    def test_of_a_connection_and_of_a_key(self, api: Api) -> None:
        read = api.call("GET", "/connections/eu").headers["etag"]
        api.store.pauses.pause("eu", "manually")
        stale = {"headers": {"If-Match": read}}
        assert api.call("POST", "/connections/eu/resume", body={}, **stale).status_code == 412
        key = api.call("POST", "/keys", body={"name": "ci", "role": "viewer"}).json()["key"]["id"]
        read = api.call("GET", f"/keys/{key}").headers["etag"]
        api.call("POST", f"/keys/{key}/rotate", body={})
        assert api.call("DELETE", f"/keys/{key}", headers={"If-Match": read}).status_code == 412


class TestKeys:
    def test_the_life_of_a_key(self, api: Api) -> None:
        made = api.call("POST", "/keys", body={"name": "ci", "role": "viewer", "groups": ["europe"], "days": 30}).json()
        key, old = made["key"]["id"], made["secret"]
        new = api.call("POST", f"/keys/{key}/rotate", body={"overlap_hours": 1}).json()["secret"]
        for secret in (old, new):
            me = api.client.get(f"{PREFIX}/me", headers={"Authorization": f"Bearer {secret}"}).json()
            assert (me["name"], me["groups"]) == ("ci", ["europe"])
        assert api.call("POST", f"/keys/{key}/rotate", body={}).status_code == 409
        newest = api.call("POST", f"/keys/{key}/rotate", body={"overlap_hours": 0}).json()["secret"]
        for secret, status in ((old, 401), (new, 401), (newest, 200)):
            found = api.client.get(f"{PREFIX}/me", headers={"Authorization": f"Bearer {secret}"})
            assert found.status_code == status
        assert api.call("DELETE", f"/keys/{key}").json()["key"]["ended"] is not None
        assert actions(api) == ["key.create", *["key.rotate"] * 2, "key.revoke"]
        assert api.get("/audit/check")["broken"] == ""

    def test_the_last_admin_stays(self, api: Api) -> None:
        me = api.get("/me")["id"]
        assert api.call("DELETE", f"/keys/{me}").status_code == 409
        other = api.call("POST", "/keys", body={"name": "other", "role": "admin"}).json()["key"]["id"]
        assert api.call("DELETE", f"/keys/{me}").status_code == 200
        assert api.store.api_keys.get(other).ended is None

    @pytest.mark.parametrize(
        "body",
        [{}, {"name": "", "role": "viewer"}, {"name": "a\tb", "role": "viewer"}, {"name": "x", "role": "root"},
         {"name": "x", "role": "viewer", "days": 0}, {"name": "x", "role": "viewer", "secret": "mine"}],
    )  # fmt: skip
    def test_what_is_no_key(self, api: Api, body: dict[str, Any]) -> None:
        assert api.call("POST", "/keys", body=body).status_code == 422

    def test_a_name_that_is_taken(self, api: Api) -> None:
        assert api.call("POST", "/keys", body={"name": "admin", "role": "viewer"}).status_code == 409


def test_a_write_without_its_audit_entry_does_not_happen(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the disk is gone")

    change = one_change(api)
    api.key("admin")
    monkeypatch.setattr(Audit, "add", fail)
    assert api.call("POST", f"/changes/{change}/approve").status_code == 500
    assert api.store.reviews.get(change).status == "open"
    assert api.store.events.after() == []


def test_what_is_wrong_is_told_without_its_value(api: Api) -> None:
    found = api.call("POST", "/keys", body={"name": {"x": "canary"}, "role": "canary", "canary": 1})
    assert found.status_code == 422
    assert {e["at"] for e in found.json()["errors"]} == {"body.name", "body.role", "body.canary"}
    assert found.text.count("canary") == found.text.count("body.canary")


def _asked_of(needs: Dependant) -> Iterator[object]:
    """All that a route depends on, at any depth."""
    for one in needs.dependencies:
        yield one.call
        yield from _asked_of(one)


READS = {
    f"POST /connections/{{connection}}/{what}" for what in ("policy/simulation", "policy/test", "quarantine/matches")
}
"""What is asked with a document and changes nothing."""


def test_every_write_goes_the_way_of_writes() -> None:
    """Its audit entry, rehearsal, repetition and If-Match are those of server/writes.py, whatever its method is."""
    here = [route for room in ROUTES for route in room.routes if isinstance(route, APIRoute)]
    routes = {f"{m} {route.path.removeprefix(PREFIX)}": route.dependant for route in here for m in route.methods}
    writing = {route for route in routes if not route.startswith("GET ")} - READS
    assert {route for route, needs in routes.items() if write in _asked_of(needs)} == writing
    assert writing == {route for route in NEEDS if not route.startswith("GET ")} - READS
    assert {route.split(" ")[0] for route in writing} == {"POST", "PUT", "PATCH", "DELETE"}
