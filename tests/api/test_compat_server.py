"""The compatible API over a server's own objects, keys and queue: what is kept, sealed, seen and taken along."""

from __future__ import annotations

from typing import Any

import pytest
from compat_world import Compat

from instep.control.compat import CompatDocuments
from instep.server.fivetran_api.objects import merged

FOREIGN: list[tuple[str, Any, Any]] = [
    ("token", "t-canary", "******"), ("apiKey", 12345678, "******"), ("passwords", ["p-canary"], ["******"]),
    ("auth", {"client_secret": "s-canary"}, {"client_secret": "******"}), ("secret", "", ""), ("token", None, None),
    ("url", "https://u:p-canary@host/", "******"), ("host", "db", "db"), ("is_secret", True, True),
    ("host", "${secret:abc}", "******"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "shown"), FOREIGN)
def test_secrets_of_services_that_nothing_reads_are_sealed(compat: Compat, key: str, value: Any, shown: Any) -> None:
    body = {"group_id": "lake", "service": "zendesk", "config": {"schema": "desk", key: value}}
    made = compat.data("POST", "/connections", body, 201)
    assert made["config"].get(key) == shown
    kept = CompatDocuments(compat.store)
    before = kept.opened("foreign", "desk")["config"].get(key)
    assert str(before) == str(value), "a number comes back as a text"
    compat.ask("PATCH", "/connections/desk", {"config": {key: shown, "other": "x"}})
    assert kept.opened("foreign", "desk")["config"] == {**({key: before} if before is not None else {}),
                                                       "schema": "desk", "other": "x"}  # fmt: skip
    stored = b"".join(f.read_bytes() for f in (compat.folder / ".instep").iterdir() if f.is_file())
    assert b"-canary" not in stored
    compat.ask("DELETE", "/connections/desk")
    assert compat.store.secrets.of("foreign", "desk") == []


def test_a_deleted_connection_takes_its_source_jobs_and_records_along(compat: Compat) -> None:
    compat.sql("create table t (id integer primary key)", "second.db")
    body = {"group_id": "lake", "service": "sqlite", "config": {"path": "second.db", "schema": "second"},
            "run_setup_tests": False}  # fmt: skip
    compat.data("POST", "/connections", body, 201)
    compat.sync("second")
    assert compat.store.runs.history("second", limit=9)
    compat.worker.held.clear()
    compat.ask("POST", "/connections/second/sync")
    compat.ask("DELETE", "/connections/second")
    assert compat.store.objects.get("source", "second") is None
    assert compat.store.jobs.unfinished(["second"]) == []
    assert compat.store.runs.history("second", limit=9) == []
    assert compat.app.destination("lake").schema.inspect([("second", "t")]).tables, "its tables stay"
    assert compat.store.objects.get("source", "shop") is not None


def test_a_source_that_others_use_stays(compat: Compat) -> None:
    compat.keep("connections: {twin: {source: shop, destination: lake}}")
    compat.ask("DELETE", "/connections/shop")
    assert compat.store.objects.get("source", "shop") is not None
    compat.ask("DELETE", "/connections/twin")
    assert compat.store.objects.get("source", "shop") is None


def test_a_connection_is_not_deleted_under_a_running_job(compat: Compat) -> None:
    compat.worker.held.clear()
    compat.ask("POST", "/connections/shop/sync")
    job = compat.store.jobs.claim("w")
    assert job is not None
    assert "is running" in compat.ask("DELETE", "/connections/shop", status=409)["message"]
    compat.store.jobs.finish(job)
    assert compat.ask("DELETE", "/connections/shop")["code"] == "Success"


@pytest.mark.sampled
@pytest.mark.parametrize(("group", "seen"), [("lake", ["shop", "twin"]), ("eu", ["twin"]), ("pond", [])])
def test_a_key_is_for_a_destination_or_a_tag_in_both_apis(compat: Compat, group: str, seen: list[str]) -> None:
    compat.keep("connections: {twin: {source: shop, destination: lake, tags: [eu]}}")
    key, secret = compat.key("viewer", group)
    listed = compat.data("GET", "/connections", auth=(key, secret))["items"]
    bearer = {"Authorization": f"Bearer {secret}"}
    ours = compat.client.get("/api/v1/connections", headers=bearer, auth=None).json()["items"]
    assert [c["id"] for c in listed] == sorted(c["name"] for c in ours) == seen
    assert compat.client.get("/v1/connections", headers=bearer, auth=None).json()["data"]["items"] == listed
    for name in ("shop", "twin"):
        compat.ask("GET", f"/connections/{name}", status=200 if name in seen else 404, auth=(key, secret))


def test_a_key_for_a_group_makes_and_changes_no_source(compat: Compat) -> None:
    compat.keep("connections: {twin: {source: shop, destination: lake, tags: [eu]}}")
    patch, admin = {"config": {"path": "other.db"}}, compat.key("admin", "eu", "lake")
    made = {"group_id": "lake", "service": "sqlite", "config": {"schema": "mine", "path": "/etc/passwd"}}
    for method, path, body in (("PATCH", "/connections/twin", patch), ("POST", "/connections", made)):
        said = compat.ask(method, path, body, 403, auth=admin)["message"]
        assert said == "Your key is for some groups; this takes an administrator of all."
    bearer = {"Authorization": f"Bearer {admin[1]}"}
    ours = compat.client.post("/api/v1/sources", json={"name": "x", "spec": {}}, headers=bearer, auth=None)
    assert ours.status_code == 403
    assert compat.store.objects.names("source") == ("shop",)
    assert compat.data("PATCH", "/connections/twin", patch)["config"] == {"path": "other.db"}


def test_writes_are_in_the_audit_log_and_reads_are_not(compat: Compat) -> None:
    compat.ask("GET", "/connections")
    compat.ask("PATCH", "/connections/shop", {"paused": True})
    [entry] = compat.store.audit.page()
    assert (entry.actor, entry.action, entry.target) == (compat.who, "v1.patch", "/v1/connections/shop")


def test_what_the_guard_refuses_is_said_in_the_envelope(compat: Compat) -> None:
    answer = compat.client.get("/v1/connections/%2e%2e/x")
    assert (answer.status_code, answer.json()["code"]) == (400, "InvalidInput")
    assert compat.client.get("/api/v1/connections/a%2Fb").json()["code"] == "unreadable"


def test_wrong_keys_from_one_address_are_counted(compat: Compat) -> None:
    wrong = ("k-1", "instep_sk_" + "x" * 43)
    answers = [compat.client.get("/v1/users", auth=wrong).status_code for _ in range(32)]
    assert answers == [401] * 30 + [429] * 2
    assert compat.ask("GET", "/users")["code"] == "Success", "a right key is let in"


MERGES: list[tuple[Any, Any, Any]] = [
    ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}), ({"a": 1}, {"a": None}, {}), ({}, {"a": None}, {}),
    ({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}),
    ({"a": 1}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
    ({"a": [1]}, {"a": [2]}, {"a": [2]}), ({"a": {"b": 1}}, {"a": 3}, {"a": 3}),
]  # fmt: skip


@pytest.mark.parametrize(("before", "patch", "after"), MERGES)
def test_merge_patches(before: Any, patch: Any, after: Any) -> None:
    assert merged(before, patch) == after
    assert merged(after, patch) == after
