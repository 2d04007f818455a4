"""Syncs and detections asked for over the API: whose job is answered, what stands in its way, its end by request."""

from __future__ import annotations

from typing import Any

import pytest
from api_world import Api

from instep.control.resources.api_keys import ROLES
from instep.model import Job, JobKind
from instep.operations.registry import policy_of, specs
from instep.server.access import NEEDS


def ask(api: Api, kind: str, body: dict[str, Any] | None = None, name: str = "eu", **more: Any) -> Any:
    return api.call("POST", f"/connections/{name}/{kind}", "operator", body or {}, **more)


def begun(api: Api) -> Job:
    job = api.store.jobs.claim("w")
    assert job is not None
    return job


# what is asked for, how far it gets, what is asked for then; the answer's status, whether it is the job of before
AGAIN: list[tuple[str, dict[str, Any], str, str, dict[str, Any], int, bool]] = [
    ("sync", {}, "queued", "sync", {}, 200, True),
    ("sync", {}, "queued", "sync", {"full": False, "tables": []}, 200, True),
    ("sync", {}, "queued", "sync", {"full": True}, 202, False),
    ("sync", {}, "queued", "sync", {"why": "another word"}, 200, True),
    ("sync", {"tables": ["main.a"]}, "queued", "sync", {"tables": ["main.b"]}, 202, False),
    ("sync", {"tables": ["main.a"], "full": True}, "running", "sync", {"full": True, "tables": ["main.a"]}, 200, True),
    ("sync", {}, "running", "sync", {}, 200, True),
    ("sync", {}, "running", "sync", {"tables": ["main.a"]}, 202, False),
    ("sync", {}, "stopping", "sync", {}, 202, False),
    ("sync", {}, "done", "sync", {}, 202, False),
    ("sync", {}, "failed", "sync", {}, 202, False),
    ("sync", {}, "running", "detect", {}, 202, False),
    ("detect", {}, "queued", "detect", {"why": "now"}, 200, True),
    ("detect", {}, "running", "detect", {}, 200, True),
    ("detect", {}, "stopping", "detect", {}, 200, True),
    ("detect", {}, "done", "detect", {}, 202, False),
    ("detect", {}, "queued", "sync", {}, 202, False),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("kind", "body", "gets", "then", "second", "status", "same"), AGAIN)
def test_the_same_work_is_not_done_twice(
    api: Api, kind: str, body: dict[str, Any], gets: str, then: str, second: dict[str, Any], status: int, same: bool
) -> None:
    first = ask(api, kind, body)
    assert (first.status_code, first.json()["fresh"]) == (202, True)
    if gets != "queued":
        job = begun(api)
        if gets == "stopping":
            api.store.jobs.cancel(job.id, "bo")
        elif gets != "running":
            api.store.jobs.finish(job, gets)  # type: ignore[arg-type]
    found = ask(api, then, second)
    assert (found.status_code, found.json()["fresh"]) == (status, not same), found.text
    assert (found.json()["id"] == first.json()["id"]) == same
    assert found.headers["location"] == f"/api/v1/jobs/{found.json()['id']}"
    assert ask(api, kind, body, name="us").status_code == 202, "another connection's is another one"


def test_the_note_says_that_nobody_is_there(api: Api) -> None:
    def note() -> str:
        return str(ask(api, "sync").json()["note"])

    assert "no worker is running" in note()
    worker = api.store.workers.register(1)
    assert note() == ""
    api.store.workers.beat(worker, stopping=True)
    assert "no worker is running" in note(), "one that is about to end begins nothing"
    api.store.workers.beat(worker)
    begun(api)
    api.store.workers.leave(worker)
    assert note() == "", "it is under way"
    assert "no worker is running" in ask(api, "detect").json()["note"]


def test_a_job_ends_and_begins_again_by_request(api: Api) -> None:
    job = ask(api, "sync").json()["id"]
    at = f"/queue/{job}"
    assert api.call("POST", f"{at}/retry", "operator").status_code == 409, "pending"
    rehearsed = api.call("POST", f"{at}/cancel", "operator", params={"dry_run": "true"})
    assert (rehearsed.json()["job"]["status"], api.get(at)["status"]) == ("cancelled", "queued")
    assert api.call("POST", f"{at}/cancel", "viewer").status_code == 403
    done = api.call("POST", f"{at}/cancel", "operator").json()["job"]
    assert done["status"] == "cancelled"
    assert done["error"].startswith("cancelled by operator (k-")
    assert api.call("POST", f"{at}/cancel", "operator").status_code == 409
    assert api.call("POST", f"{at}/retry", "operator").json()["job"]["status"] == "queued"
    claimed = begun(api)
    assert claimed.id == job
    stopping = api.call("POST", f"{at}/cancel", "operator").json()["job"]
    assert (stopping["status"], stopping["stop"].startswith("operator (k-")) == ("running", True)
    waits = ask(api, "sync").json()["id"]
    api.store.jobs.finish(claimed, "cancelled")
    again = api.call("POST", f"{at}/retry", "operator").json()["job"]
    assert again["id"] == waits, "the one that waits already does it"
    assert [entry.action for entry in api.store.audit.page() if entry.action.startswith("job.")] == [
        "job.retry", "job.cancel", "job.retry", "job.cancel",
    ]  # fmt: skip
    for verb in ("cancel", "retry"):
        assert api.call("POST", f"/queue/j-none/{verb}").status_code == 404


def failed(api: Api, kind: JobKind, **more: Any) -> Job:
    job, _ = api.store.jobs.enqueue("eu", kind, **more)
    api.store.jobs.cancel(job.id, "bo")
    return api.store.jobs.get(job.id)


AGAIN_TAKES: list[tuple[JobKind, dict[str, Any], str]] = [
    *((name, {}, spec.role) for name, spec in specs().items()),
    ("sync", {"drop_columns": ["main.a.b"]}, "approver"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("kind", "options", "role"), AGAIN_TAKES)
def test_trying_again_takes_what_asking_takes(api: Api, kind: JobKind, options: dict[str, Any], role: str) -> None:
    """Whoever may do it, and did not ask for it, is refused where a word counts for one person alone."""
    job = failed(api, kind, options=options, who="eve (k-1)")
    at = f"/queue/{job.id}/retry"
    for less in ROLES[1 : ROLES.index(role)]:  # type: ignore[arg-type]
        said = api.call("POST", at, less)
        assert (said.status_code, said.json()["code"]) == (403, "forbidden")
        entry = next(iter(api.store.audit.page()))
        assert (entry.action, entry.detail) == ("access.refused", {"role": less, "needed": role})
    assert api.store.jobs.get(job.id).status == "cancelled"
    said = api.call("POST", at, role)
    command = policy_of(kind).retry_command
    assert said.status_code == (409 if command else 200), said.text
    if command:
        assert "was requested by eve (k-1)" in said.json()["detail"]
        assert command in said.json()["hint"]


def test_whoever_asked_may_try_again(api: Api) -> None:
    asked = api.call("POST", "/connections/eu/quarantine/discard", "approver", {"ids": ["a" * 16]})
    assert asked.status_code == 202, asked.text
    job = asked.json()["id"]
    api.store.jobs.cancel(job, "bo")
    assert api.call("POST", f"/queue/{job}/retry", "admin").status_code == 409
    assert api.call("POST", f"/queue/{job}/retry", "approver").json()["job"]["status"] == "queued"


def test_every_operation_has_its_route_and_its_role() -> None:
    assert {spec.route: spec.role for spec in specs().values()}.items() <= NEEDS.items()


def test_what_a_job_has_answered_is_in_the_job_alone(api: Api) -> None:
    ask(api, "sync")
    job = begun(api)
    api.store.jobs.finish(job, result={"lines": ["long"] * 1000})
    [listed] = api.get("/queue")["items"]
    assert ("result" in listed, listed["id"]) == (False, job.id)
    assert len(api.get(f"/queue/{job.id}")["result"]["lines"]) == 1000


def test_pages_counts_and_whose_they_are(api: Api) -> None:
    ids = [ask(api, kind, name=name).json()["id"] for name in ("eu", "us") for kind in ("sync", "detect")]
    api.store.workers.register(2)
    seen, cursor = [], None
    while True:
        page = api.get("/queue", params={"limit": 1, **({"cursor": cursor} if cursor else {})})
        seen += [one["id"] for one in page["items"]]
        assert (page["counts"], len(page["workers"])) == ({"queued": 4}, 1)
        if (cursor := page["next_cursor"]) is None:
            break
    assert seen == ids[::-1], "newest first"
    only = api.get("/queue", params={"connection": "us", "status": "queued"})["items"]
    assert {one["connection"] for one in only} == {"us"}
    assert api.get("/queue", params={"status": "running"})["items"] == []
    scoped = api.client.get("/api/v1/queue", headers=api.key("operator", "europe")).json()
    assert {one["id"] for one in scoped["items"]} == set(ids[:2])
    assert (scoped["counts"], scoped["workers"]) == ({}, []), "what others have is not told"


# a key's group, a route with a job of the connection eu, its answer
SCOPED: list[tuple[str, str, str, int]] = [
    ("europe", "GET", "/queue/{job}", 200), ("america", "GET", "/queue/{job}", 404),
    ("europe", "GET", "/jobs/{job}", 200), ("america", "GET", "/jobs/{job}", 404),
    ("europe", "POST", "/queue/{job}/cancel", 200), ("america", "POST", "/queue/{job}/cancel", 404),
    ("america", "POST", "/queue/{job}/retry", 404), ("america", "POST", "/connections/eu/sync", 404),
    ("europe", "POST", "/connections/eu/sync", 200), ("america", "POST", "/connections/us/detect", 202),
    ("lake", "POST", "/connections/eu/detect", 202), ("america", "GET", "/queue?connection=eu", 404),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("group", "method", "path", "status"), SCOPED)
def test_keys_for_groups(api: Api, group: str, method: str, path: str, status: int) -> None:
    job = ask(api, "sync").json()["id"]
    body = {} if "connections" in path else None
    url = f"/api/v1{path.replace('{job}', job)}"
    found = api.client.request(method, url, json=body, headers=api.key("operator", group))
    assert found.status_code == status, found.text
    if status == 404:
        assert api.store.jobs.get(job).status == "queued"
