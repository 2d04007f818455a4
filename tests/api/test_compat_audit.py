"""Writes over `/v1`: each is one transaction with an entry in the audit log that names what was changed; what was
refused has changed nothing, and has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from compat_world import Compat, compatible
from test_compat_access import path_of

from instep.control.resources import api_keys
from instep.model import Review
from instep.server.fivetran_api.http.request_body import MAX_FIELDS, fields_of
from instep.server.fivetran_api.http.route import NEEDS
from instep.store.catalogs.reviews import DetectedChange
from instep.store.server.audit import Audit, AuditEntry
from receivers import web

SHOP, ITEM = "/connections/shop", "/connections/shop/schemas/main/tables/item"
SECRET = "hunter2-is-secret"
TABLES = "create table item (id integer primary key, name text, note text); insert into item values (1, 'a', 'b')"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[Compat, str]]:
    """With the address of a receiver of webhooks."""
    with web() as receiver, compatible(tmp_path, file="egress: {allow: [127.0.0.1]}\n") as made:
        made.sql(TABLES)
        made.sync()
        yield made, receiver.url


def new(compat: Compat, act: Callable[[], Any]) -> list[AuditEntry]:
    """The entries that this has made, the oldest first."""
    before = {entry.number for entry in compat.store.audit.page()}
    act()
    return [entry for entry in compat.store.audit.page() if entry.number not in before][::-1]


def steps(url: str) -> list[tuple[str, str, Any, Mapping[str, Any] | None]]:
    """(route, path, body, what its entry says; None: any), in an order in which all of them work."""
    config = {"schema": "mine", "path": "shop.db"}
    user = {"email": "bo@example.org", "given_name": "Bo", "family_name": "B"}
    hook = {"url": url, "events": ["sync_end"], "secret": SECRET}
    fields = {"fields": ["config.path", "config.schema", "group_id", "paused", "run_setup_tests", "service"]}
    column = "schemas.main.tables.item.columns.note.enabled"
    off = {"schemas": {"main": {"tables": {"item": {"columns": {"note": {"enabled": False}}}}}}}
    drop = {"schemas": {"main": {"tables": {"item": {"columns": ["note"]}}}}}
    service = {"group_id": "lake", "service": "sqlite", "config": config, "paused": True, "run_setup_tests": False}
    return [
        ("POST /groups", "/groups", {"name": "pond"}, {"id": "pond", "fields": ["name"]}),
        ("PATCH /groups/{id}", "/groups/pond", {"name": "Pond"}, {"fields": ["name"]}),
        ("POST /destinations", "/destinations",
         {"group_id": "pond", "service": "duckdb", "config": {"path": "p.db"}, "run_setup_tests": False},
         {"id": "pond", "fields": ["config.path", "group_id", "run_setup_tests", "service"]}),
        ("PATCH /destinations/{id}", "/destinations/pond", {"region": "EU"}, {"fields": ["region"]}),
        ("POST /destinations/{id}/test", "/destinations/pond/test", {}, None),
        ("DELETE /destinations/{id}", "/destinations/pond", None, {}),
        ("DELETE /groups/{id}", "/groups/pond", None, {}),
        ("POST /connections", "/connections", service, {"id": "mine", **fields}),
        ("POST /connections/{id}/schemas", "/connections/mine/schemas", off, {"fields": [column]}),
        ("DELETE /connections/{id}", "/connections/mine", None, {}),
        ("PATCH /connections/{id}", SHOP, {"sync_frequency": 60, "config": {"path": "shop.db"}},
         {"fields": ["config.path", "sync_frequency"]}),
        ("POST /connections/{id}/sync", f"{SHOP}/sync", {}, None),
        ("POST /connections/{id}/force", f"{SHOP}/force", {}, None),
        ("POST /connections/{id}/resync", f"{SHOP}/resync", {}, {"tables": "all"}),
        ("POST /connections/{id}/test", f"{SHOP}/test", {}, None),
        ("POST /connections/{id}/schemas/tables/resync", f"{SHOP}/schemas/tables/resync", {"main": ["item"]},
         {"tables": ["main.item"]}),
        (f"POST {path_of('x /connections/{id}/schemas/{schema}/tables/{table}')}/resync", f"{ITEM}/resync", {},
         {"tables": ["main.item"]}),
        ("PATCH /connections/{id}/schemas", f"{SHOP}/schemas", off, {"fields": [column]}),
        ("PATCH /connections/{id}/schemas/{schema}", f"{SHOP}/schemas/main", {"enabled": True},
         {"fields": ["enabled"]}),
        ("PATCH /connections/{id}/schemas/{schema}/tables/{table}", ITEM, {"enabled": True}, {"fields": ["enabled"]}),
        ("PATCH /connections/{id}/schemas/{schema}/tables/{table}/columns/{column}", f"{ITEM}/columns/name",
         {"enabled": False}, {"fields": ["enabled"]}),
        ("POST /connections/{id}/schemas/drop-columns", f"{SHOP}/schemas/drop-columns", drop, None),
        ("DELETE /connections/{id}/schemas/{schema}/tables/{table}/columns/{column}", f"{ITEM}/columns/name", None,
         None),
        ("POST /connections/{id}/schemas/reload", f"{SHOP}/schemas/reload", {}, None),
        ("POST /users", "/users", user, {"fields": ["email", "family_name", "given_name"]}),
        ("PATCH /users/{id}", "/users/USER", {"given_name": "Bob"}, {"fields": ["given_name"]}),
        ("POST /groups/{id}/users", "/groups/lake/users",
         {"email": "bo@example.org", "role": "Destination Analyst"}, {"fields": ["email", "role"]}),
        ("DELETE /groups/{id}/users/{user}", "/groups/lake/users/USER", None, {}),
        ("DELETE /users/{id}", "/users/USER", None, {}),
        ("POST /webhooks/group/{group}", "/webhooks/group/lake", hook, {"fields": ["events", "secret", "url"]}),
        ("POST /webhooks/account", "/webhooks/account", hook, {"fields": ["events", "secret", "url"]}),
        ("PATCH /webhooks/{id}", "/webhooks/HOOK", {"active": False}, {"fields": ["active"]}),
        ("POST /webhooks/{id}/test", "/webhooks/HOOK/test", {"event": "sync_end"},
         {"event": "sync_end", "succeed": True}),
        ("DELETE /webhooks/{id}", "/webhooks/HOOK", None, {}),
    ]  # fmt: skip


NOTHING = {"POST /connections/{id}/connect-card", "PATCH /connections/{id}/state"}
"""What is always refused, and what takes another source (see the test of states)."""


def test_each_write_has_one_entry_that_names_what_it_changed(world: tuple[Compat, str]) -> None:
    compat, url = world
    known, ids = {path_of(route) for route in NEEDS if not route.startswith("GET ")}, {"USER": "", "HOOK": ""}
    done = set(NOTHING)
    for route, said, body, detail in steps(url):
        path = said.replace("USER", ids["USER"]).replace("HOOK", ids["HOOK"])
        answer: dict[str, Any] = {}
        [entry] = new(compat, lambda route=route, path=path, body=body, answer=answer: answer.update(  # type: ignore[misc]
            compat.client.request(route.split()[0], f"/v1{path}", **({} if body is None else {"json": body})).json()
        ))  # fmt: skip
        assert answer["code"] == "Success", (route, answer)
        method = route.split()[0].lower()
        assert (entry.actor, entry.action, entry.target) == (compat.who, f"v1.{method}", f"/v1{path}")
        made = answer.get("data") or {}
        ids |= {name: made["id"] for name, of in (("USER", "/users"), ("HOOK", "/webhooks/account")) if path == of}
        told = {**entry.detail}
        if "id" in told and "id" not in (detail or {}):
            assert told.pop("id") in ids.values() or "/group" in path
        assert told == detail or (detail is None and "job" in told), (route, entry.detail)
        compat.worker.idle()
        done.add(route)
    assert known == {path_of(route) for route in done} | {f"{ITEM}/resync"}
    assert SECRET not in str([entry.detail for entry in compat.store.audit.page(limit=500)])
    assert compat.store.audit.check().broken == ""


REFUSED: list[tuple[str, str, Any, int]] = [
    ("PATCH", "/connections/none", {"paused": True}, 404),
    ("PATCH", SHOP, {}, 400),
    ("PATCH", SHOP, {"sync_frequency": 7}, 400),
    ("PATCH", SHOP, {"sync_frequency": "often"}, 400),
    ("DELETE", "/connections/none", None, 404),
    ("POST", "/connections", {"group_id": "none", "service": "sqlite"}, 404),
    ("POST", f"{SHOP}/connect-card", {}, 405),
    ("POST", f"{SHOP}/resync", {"scope": {"main": ["none"]}}, 404),
    ("POST", f"{SHOP}/schemas", {"schemas": {}}, 409),
    ("PATCH", f"{SHOP}/schemas", {"schemas": {"main": {"tables": {"none": {"enabled": True}}}}}, 404),
    ("DELETE", f"{ITEM}/columns/name", None, 409),
    ("DELETE", f"{ITEM}/columns/none", None, 404),
    ("PATCH", f"{SHOP}/state", {"state": {}}, 405),
    ("DELETE", "/groups/lake", None, 409),
    ("DELETE", "/destinations/lake", None, 409),
    ("PATCH", "/users/none", {"given_name": "x"}, 404),
    ("DELETE", "/groups/lake/users/none", None, 404),
    ("POST", "/webhooks/account", {"url": "http://10.0.0.1/", "events": ["none"]}, 400),
    ("DELETE", "/webhooks/none", None, 404),
]


def test_what_was_refused_has_none(world: tuple[Compat, str]) -> None:
    compat, _ = world
    for method, path, body, status in REFUSED:
        assert new(compat, lambda m=method, p=path, b=body, s=status: compat.ask(m, p, b, s)) == [], path  # type: ignore[misc]
    raw = {"content": b"{", "headers": {"content-type": "application/json"}}
    assert new(compat, lambda: compat.client.patch(f"/v1{SHOP}", **raw)) == []  # type: ignore[arg-type]


def test_without_its_entry_nothing_is_done(compat: Compat, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(Audit, "add", fails)
    for method, path, body in (("PATCH", SHOP, {"paused": True}), ("POST", "/groups", {"name": "pond"})):
        assert compat.ask(method, path, body, 500)["code"] == "InternalError"
    monkeypatch.undo()
    assert compat.store.pauses.active("shop") == []
    assert compat.data("GET", "/groups")["items"][0]["id"] == "lake"


def stopped_by(compat: Compat) -> Review:
    """A change that keeps the connection paused."""
    found = DetectedChange("k", "column.removed", ("main", "item"), "note", "note is gone", {"kind": "column.removed"},
                    "pause_connection", "policy", "x")  # fmt: skip
    [review] = compat.store.reviews.record("shop", [found], "f")
    compat.store.pauses.pause("shop", "a change", change=review.id)
    return review


def test_a_change_that_is_refused_at_its_end_is_not_half_done(compat: Compat) -> None:
    compat.sync()
    stopped_by(compat)
    body = {"config": {"path": "other.db"}, "sync_frequency": 60, "schedule_type": "auto", "paused": False}
    kinds = ("source", "connection", "noted")
    before = [(one.kind, one.name, one.spec) for kind in kinds for one in compat.store.objects.page(kind, limit=99)]
    said = new(compat, lambda: compat.ask("PATCH", SHOP, body, 409))
    assert said == []
    after = [(one.kind, one.name, one.spec) for kind in kinds for one in compat.store.objects.page(kind, limit=99)]
    assert after == before
    assert compat.data("GET", SHOP)["config"] == {"path": "shop.db"}


def test_names_of_fields_and_never_values() -> None:
    body = {"a": {"b": {"c": SECRET}, "d": None}, "e": [SECRET], "f": {}, "g": None}
    assert fields_of(body) == ["a.b", "e", "f"]
    assert fields_of(body, 3) == ["a.b.c", "e", "f"]
    assert fields_of([SECRET]) == fields_of({}) == []
    many = fields_of({f"k{n:04}" + "x" * 500: n for n in range(MAX_FIELDS + 5)})
    assert (len(many), many[-1], max(map(len, many))) == (MAX_FIELDS + 1, "and 5 more", 100)


@pytest.fixture
def eyes(tmp_path: Path) -> Iterator[Compat]:
    with compatible(tmp_path, file="four_eyes: true\n") as made:
        made.sql(TABLES)
        made.sync()
        made.ask("PATCH", f"{ITEM}/columns/note", {"enabled": False})
        yield made


def loaded(compat: Compat) -> list[str]:
    compat.worker.idle()
    [table] = compat.store.accepted.catalog("shop").tables
    return [column.name for column in table.columns]


@pytest.mark.parametrize("by", ["DELETE", "POST"])
def test_dropping_a_column_takes_two_people(eyes: Compat, by: str) -> None:
    drop = {"schemas": {"main": {"tables": {"item": {"columns": ["note"]}}}}}
    asked = ("DELETE", f"{ITEM}/columns/note") if by == "DELETE" else ("POST", f"{SHOP}/schemas/drop-columns", drop)
    for _ in range(2):
        [entry] = new(eyes, lambda: eyes.ask(*asked, status=409))
        assert entry.detail == {"asked": "drop columns", "what": "main.item.note"}
    said = eyes.ask(*asked, status=409)
    assert said["code"] == "Conflict"
    assert "drop columns: main.item.note: with four_eyes this takes two people, and only ann" in said["message"]
    assert "within 7 days" in said["hint"]
    assert loaded(eyes) == ["id", "name", "note"]
    other = api_keys.create(eyes.store, "bob", "approver", "test")
    [entry] = new(eyes, lambda: eyes.ask(*asked, auth=(other.key.id, other.secret)))
    assert entry.detail["drop_columns"] == ["main.item.note"]
    assert loaded(eyes) == ["id", "name"]
    [change] = [r for r in eyes.store.reviews.find("shop", ("applied",)) if r.kind == "column.removed"]
    assert (change.column, "bob" in change.decided_by) == ("note", True)


def test_a_queued_drop_cannot_get_around_it(eyes: Compat) -> None:
    eyes.store.jobs.enqueue("shop", "sync", options={"drop_columns": ["main.item.note"]}, who="mallory")
    assert loaded(eyes) == ["id", "name", "note"]
    assert "only mallory has asked for it" in eyes.worker.ended[-1][1].error
