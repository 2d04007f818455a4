"""Rollouts over the API: the table before, the wishes that workers carry out, who may and who sees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_world import Api, project, serve

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.store.catalogs.discoveries import CachedDiscovery

NAMES = [f"c{n:02}" for n in range(12)]
PROJECT = """\
sources: {{db: {{type: sqlite, path: shop.db}}}}
destinations: {{lake: {{type: iceberg}}}}
connections:
{}"""
ON = {"selection": [{"verb": "on", "object": "main.refunds"}]}
EVERY = {"group": {"matching": ["*"]}, **ON}


def table(name: str) -> Table:
    return Table("main", name, (Column("id", parse("int64"), nullable=False, key=1),))


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    lines = "".join(f"  {n}: {{tags: [{'even' if int(n[1:]) % 2 == 0 else 'odd'}]}}\n" for n in NAMES)
    with project(tmp_path, PROJECT.format(lines)) as app:
        for name in NAMES:
            app.store.accepted.add(name, Catalog.of([table("orders")]), who="test", why="first")
            seen = [table("orders"), *([table("refunds")] if name != "c11" else [])]
            app.store.discoveries.save(name, CachedDiscovery(Catalog.of(seen), "f"))
        yield serve(app)


def made(api: Api, **body: Any) -> str:
    found = api.call("POST", "/rollouts", "approver", {**EVERY, **body})
    assert found.status_code == 201, found.text
    return str(found.json()["rollout"]["id"])


def test_a_dry_run_is_the_compatibility_table(api: Api) -> None:
    found = api.call("POST", "/rollouts", "approver", EVERY, params={"dry_run": "true"})
    assert found.status_code == 200
    body = found.json()
    assert (body["dry_run"], body["fits"]) == (True, {"applies": 11, "conflict": 1})
    lines = {c["connection"]: (c["wave"], c["fit"], c["status"]) for c in body["connections"]}
    for name, wave in (("c00", 1), ("c02", 2), ("c03", 3)):
        assert lines[name] == (wave, "applies", "waiting")
    assert lines["c11"] == (3, "conflict", "blocked")
    assert api.get("/rollouts")["items"] == []


def test_one_is_made_listed_and_read_by_pages(api: Api) -> None:
    id = made(api)
    assert [(r["id"], r["status"], r["of"]) for r in api.get("/rollouts", "viewer")["items"]] == [(id, "ready", 3)]
    assert api.get("/rollouts", params={"status": "done"})["items"] == []
    found = api.get(f"/rollouts/{id}", "viewer")
    assert (found["text"], found["counts"], found["job"]) == ("main.refunds on", {"waiting": 11, "blocked": 1}, None)
    assert found["waves"][2] == {"wave": 3, "counts": {"waiting": 8, "blocked": 1}}
    names, cursor = list[str](), None
    while cursor is not None or not names:
        page = api.get(f"/rollouts/{id}/connections", params={"limit": "5", **({"cursor": cursor} if cursor else {})})
        names, cursor = [*names, *(c["connection"] for c in page["items"])], page["next_cursor"]
    assert names == NAMES
    [blocked] = api.get(f"/rollouts/{id}/connections", params={"status": "blocked"})["items"]
    assert "refunds" in blocked["why"]


def test_lists_go_on_behind_a_page(api: Api) -> None:
    ids = sorted((made(api) for _ in range(3)), reverse=True)
    first = api.get("/rollouts", params={"limit": "2"})
    rest = api.get("/rollouts", params={"limit": "2", "cursor": first["next_cursor"]})
    assert [r["id"] for r in (*first["items"], *rest["items"])] == ids
    assert rest["next_cursor"] is None


def test_advance_is_asked_for_once(api: Api) -> None:
    id = made(api)
    found = api.call("POST", f"/rollouts/{id}/advance", "approver", {"every": True}, headers={"Idempotency-Key": "a"})
    assert (found.status_code, found.json()["fresh"]) == (202, True)
    again = api.call("POST", f"/rollouts/{id}/advance", "approver", {"every": True}, headers={"Idempotency-Key": "a"})
    assert (again.json(), again.headers["Idempotent-Replayed"]) == (found.json(), "true")
    other = api.call("POST", f"/rollouts/{id}/advance", "approver", {})
    assert (other.status_code, other.json()["job"], other.json()["fresh"]) == (200, found.json()["job"], False)
    [job] = api.store.jobs.find()
    assert (job.kind, job.key, job.options["upto"]) == ("rollout", id, 3)
    assert job.who.startswith("approver (k-")
    assert api.get(f"/rollouts/{id}")["job"] == job.id
    for verb in ("resume", "rollback"):
        assert api.call("POST", f"/rollouts/{id}/{verb}", "approver", {}).status_code in (409, 422), verb


def test_a_rehearsal_asks_for_nothing(api: Api) -> None:
    id = made(api)
    for verb, body in (("advance", {}), ("stop", {}), ("skip", {"connections": ["c03"], "reason": "moved"})):
        found = api.call("POST", f"/rollouts/{id}/{verb}", "approver", body, params={"dry_run": "true"})
        assert (found.status_code, found.json()["dry_run"]) == (200, True), found.text
    assert (api.store.jobs.find(), api.get(f"/rollouts/{id}")["status"]) == ([], "ready")
    assert [e.action for e in api.store.audit.page()] == ["rollout.create"]


def test_stop_skip_resume(api: Api) -> None:
    id = made(api)
    skipped = api.call("POST", f"/rollouts/{id}/skip", "operator", {"connections": ["c03", "c11"], "reason": "moved"})
    assert skipped.json()["rollout"]["counts"] == {"waiting": 10, "skipped": 2}
    again = api.call("POST", f"/rollouts/{id}/skip", "operator", {"connections": ["c03"], "reason": "moved"})
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    stopped = api.call("POST", f"/rollouts/{id}/stop", "operator", {"reason": "lunch"})
    assert (stopped.json()["rollout"]["status"], stopped.status_code) == ("stopped", 200)
    assert "lunch" in stopped.json()["rollout"]["why"]
    refused = api.call("POST", f"/rollouts/{id}/advance", "approver", {})
    assert (refused.status_code, "stopped" in refused.json()["detail"]) == (409, True)
    resumed = api.call("POST", f"/rollouts/{id}/resume", "approver", {"every": True})
    assert (resumed.status_code, resumed.json()["rollout"]["status"]) == (202, "ready")
    assert [e.action for e in api.store.audit.page()][::-1] == [
        "rollout.create", "rollout.skip", "rollout.stop", "rollout.resume",
    ]  # fmt: skip


def test_what_was_read_may_have_moved(api: Api) -> None:
    id = made(api)
    tag = api.call("GET", f"/rollouts/{id}").headers["ETag"]
    assert api.call("GET", f"/rollouts/{id}", headers={"If-None-Match": tag}).status_code == 304
    assert api.call("POST", f"/rollouts/{id}/stop", body={}, headers={"If-Match": tag}).status_code == 200
    found = api.call("POST", f"/rollouts/{id}/resume", body={}, headers={"If-Match": tag})
    assert (found.status_code, found.json()["code"]) == (412, "precondition_failed")


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({"group": {}, **ON}, 422, "which connections"),
        ({"group": {"tags": ["none"]}, **ON}, 422, "no connection fits"),
        ({"group": {"connections": ["nobody"]}, **ON}, 404, "nobody"),
        ({"group": {"matching": ["*"]}}, 422, "rolls out one thing"),
        ({**EVERY, "preset": "approve"}, 422, "rolls out one thing"),
        ({"group": {"matching": ["*"]}, "preset": "none"}, 422, "none"),
        ({"group": {"matching": ["*"]}, "change": {"change": "c-1", "verdict": "approved"}}, 422, "c-1"),
        ({**EVERY, "sizes": ["0"]}, 422, "not a size"),
        ({**EVERY, "gates": ["speed=1"]}, 422, "not a gate"),
        ({**EVERY, "canary": ["nobody"]}, 422, "not in the group"),
        ({**EVERY, "waves": 1}, 422, "waves"),
        (
            {"group": {"matching": ["*"]}, "selection": [{"verb": "on", "object": "main.orders"}]},
            422,
            "have it already",
        ),
    ],
)
def test_what_is_refused(api: Api, body: dict[str, Any], status: int, detail: str) -> None:
    found = api.call("POST", "/rollouts", "approver", body)
    assert (found.status_code, detail in found.json()["detail"]) == (status, True), found.text
    assert api.store.rollouts.find() == []


def test_policies_of_the_file_are_changed_there(api: Api) -> None:
    body = {"group": {"connections": ["c01"]}, "preset": "approve"}
    [line] = api.call("POST", "/rollouts", "approver", body, params={"dry_run": "true"}).json()["connections"]
    assert (line["fit"], "policy: approve" in line["why"], "instep.yml" in line["why"]) == ("conflict", True, True)


def test_a_key_sees_and_makes_rollouts_of_its_own_groups(api: Api) -> None:
    whole = made(api)
    key = api.key("approver", "even")

    def call(method: str, path: str, body: Any = None) -> Any:
        return api.client.request(method, f"/api/v1{path}", json=body, headers=key)

    assert call("GET", "/rollouts").json()["items"] == []
    for method, path in (("GET", ""), ("GET", "/connections"), ("POST", "/advance"), ("POST", "/stop")):
        assert call(method, f"/rollouts/{whole}{path}", {} if method == "POST" else None).status_code == 404, path
    own = call("POST", "/rollouts", EVERY).json()
    assert {c["connection"] for c in own["connections"]} == set(NAMES[::2])
    assert [r["id"] for r in call("GET", "/rollouts").json()["items"]] == [own["rollout"]["id"]]
    assert call("POST", "/rollouts", {"group": {"connections": ["c01"]}, **ON}).status_code == 404
    assert call("POST", f"/rollouts/{own['rollout']['id']}/advance", {}).status_code == 202
