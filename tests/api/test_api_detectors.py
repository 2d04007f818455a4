"""The scheduled detector over the API: how it stands, why it is off, and on again by a person who has resolved it."""

from __future__ import annotations

from api_world import Api

from instep.control import detector


def test_how_it_stands(api: Api) -> None:
    found = api.get("/connections/eu/detector", "viewer")
    assert (found["state"], found["enabled"], found["frequency"]) == ("scheduled", True, 3600)
    assert (found["current"], found["last"], found["internal_disabled_detect_schema_changes"]) == (None, None, False)
    with_store = api.store
    asked = detector.ask(with_store, api.app.project, "eu", "ann")
    assert api.get("/connections/eu/detector")["state"] == "queued"
    job = with_store.jobs.claim("w")
    assert job is not None
    found = api.get("/connections/eu/detector")
    assert (found["state"], found["current"]["job"]) == ("processing", asked.job.id)
    counts = {"tables": {"new": 1, "deleted": 0, "updated": 2, "unchanged": 3}}
    with_store.jobs.finish(job, result={"counts": counts})
    last = api.get("/connections/eu/detector")["last"]
    assert (last["status"], last["counts"], last["triggered_by_error"]) == ("done", counts, False)


def test_switching_it_on_again(api: Api) -> None:
    detector.switch_off(api.store, "eu", "table removed main.box (c-1)")
    api.store.pauses.pause("eu", "table removed main.box (c-1)")
    found = api.get("/connections/eu/detector")
    assert (found["state"], found["reason"]) == ("internal_disabled", "table removed main.box (c-1)")
    path = "/connections/eu/detector/enable"
    refused = api.call("POST", path, "operator", {})
    assert refused.status_code == 409
    assert "detection is off and the connection is paused" in refused.json()["title"] + refused.json()["detail"]
    assert api.call("POST", path, "viewer", {}).status_code == 403
    api.store.pauses.resume("eu", who="ann")
    assert api.call("POST", f"{path}?dry_run=true", "operator", {}).json()["dry_run"] is True
    assert api.store.detectors.get("eu").disabled
    done = api.call("POST", path, "operator", {"why": "the table is not needed"})
    assert (done.status_code, done.json()["changed"], done.json()["detector"]["state"]) == (200, True, "scheduled")
    assert api.call("POST", path, "operator", {}).json()["changed"] is False
    assert [e.type for e in api.store.events.latest(types=("detector.enabled",))] == ["detector.enabled"]
