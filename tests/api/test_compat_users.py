"""Users of the compatible API: the key that asks, and those who were invited."""

from __future__ import annotations

from typing import Any

import pytest
from compat_world import Compat

from instep.control.resources import api_keys

BOB = {"email": "bob@example.com", "given_name": "Bob", "family_name": "Stone", "role": "Account Reviewer"}


def test_the_key_that_asks_is_a_user(compat: Compat) -> None:
    [me] = compat.data("GET", "/users")["items"]
    assert (me["id"], me["role"]) == (compat.pair[0], "Account Administrator")
    assert compat.data("GET", f"/users/{compat.pair[0]}") == me
    for method, body in (("PATCH", {"given_name": "x"}), ("DELETE", None)):
        assert "changed as a key" in compat.ask(method, f"/users/{compat.pair[0]}", body, 409)["message"]


def test_who_is_invited_comes_in_with_a_key_of_that_name(compat: Compat) -> None:
    made = compat.ask("POST", "/users", BOB, 201)
    assert made["message"] == "User has been invited to the account"
    bob = made["data"]
    assert bob | {"id": "", "created_at": ""} == BOB | {
        "id": "", "created_at": "", "verified": False, "invited": True, "active": False, "picture": None,
        "phone": None, "logged_in_at": None,
    }  # fmt: skip
    issued = api_keys.create(compat.store, "bob@example.com", "viewer", "ann")
    assert compat.data("GET", f"/users/{bob['id']}")["active"] is True
    compat.ask("GET", "/users", auth=(issued.key.id, issued.secret))
    came = compat.data("GET", f"/users/{bob['id']}")
    assert (came["invited"], came["verified"], came["logged_in_at"] is None) == (False, True, False)
    api_keys.revoke(compat.store, issued.key.id, "ann")
    assert compat.data("GET", f"/users/{bob['id']}")["active"] is False


def test_users_are_changed_and_deleted(compat: Compat) -> None:
    id = compat.data("POST", "/users", BOB, 201)["id"]
    assert compat.data("PATCH", f"/users/{id}", {"family_name": "Wood", "role": None})["family_name"] == "Wood"
    assert compat.ask("POST", "/users", BOB | {"email": "BOB@example.com"}, 409)["code"] == "Conflict"
    assert len(compat.data("GET", "/users")["items"]) == 2
    first = compat.data("GET", "/users?limit=1")
    second = compat.data("GET", f"/users?limit=1&cursor={first['next_cursor']}")
    assert {one["id"] for page in (first, second) for one in page["items"]} == {id, compat.pair[0]}
    assert second["next_cursor"] is None
    assert compat.ask("DELETE", f"/users/{id}")["code"] == "Success"
    for method, body in (("GET", None), ("DELETE", None), ("PATCH", {"given_name": "x"})):
        assert compat.ask(method, f"/users/{id}", body, 404)["code"] == "NotFound_User"


def test_users_of_a_group(compat: Compat) -> None:
    bob = compat.data("POST", "/users", BOB, 201)["id"]
    member = {"email": "bob@example.com", "role": "Destination Analyst"}
    assert compat.ask("POST", "/groups/lake/users", member)["code"] == "Success"
    found = compat.data("GET", "/groups/lake/users")["items"]
    assert {one["id"]: one["role"] for one in found} == {
        bob: "Destination Analyst", compat.pair[0]: "Account Administrator",
    }  # fmt: skip
    unknown = member | {"email": "eve@example.com"}
    assert compat.ask("POST", "/groups/lake/users", unknown, 404)["code"] == "NotFound_User"
    assert compat.ask("POST", "/groups/pond/users", member, 404)["code"] == "NotFound_Group"
    assert compat.ask("DELETE", f"/groups/lake/users/{bob}")["code"] == "Success"
    assert compat.ask("DELETE", f"/groups/lake/users/{bob}", status=404)["code"] == "NotFound_User"
    assert [one["id"] for one in compat.data("GET", "/groups/lake/users")["items"]] == [compat.pair[0]]


WRONG: list[dict[str, Any]] = [
    {"email": "bob"}, {"email": None}, {"given_name": ""}, {"role": "King"}, {"family_name": 3}, {"email": "a@b\nc"},
]  # fmt: skip


def test_invitations_that_make_no_sense(compat: Compat) -> None:
    for wrong in WRONG:
        assert compat.ask("POST", "/users", BOB | wrong, 400)["code"] == "InvalidInput", wrong
    assert len(compat.data("GET", "/users")["items"]) == 1


def test_others_see_themselves_alone(compat: Compat) -> None:
    bob = compat.data("POST", "/users", BOB, 201)["id"]
    member = {"email": "a@b", "role": "x"}
    asked: list[tuple[str, str, Any]] = [
        ("GET", f"/users/{bob}", None), ("POST", "/users", BOB), ("DELETE", f"/users/{bob}", None),
        ("POST", "/groups/lake/users", member),
    ]  # fmt: skip
    for role in ("viewer", "operator", "approver"):
        auth = compat.key(role)
        assert len(compat.data("GET", "/users", auth=auth)["items"]) == 1
        for method, path, body in asked:
            assert compat.ask(method, path, body, 403, auth=auth)["code"] == "Forbidden"


LISTS = [
    ("/teams", 200), ("/new-things", 200), ("/connections/shop/new-things", 200), ("/groups/lake/teams", 200),
    ("/destinations/lake/fingerprints", 200), ("/connections/nope/certificates", 404), ("/Teams", 404),
    ("/groups/nope/teams", 404), ("/nope", 404), ("/teams/x/members", 404), ("/users/nope/groups", 404),
    ("/connections/shop/sync", 405),
]  # fmt: skip


def test_lists_that_nothing_here_knows(compat: Compat) -> None:
    empty = {"items": [], "next_cursor": None, "nextCursor": None}
    for path, status in LISTS:
        found = compat.ask("GET", path, status=status)
        assert found.get("data") == (empty if status == 200 else None), path


def test_there_are_no_connect_cards(compat: Compat) -> None:
    refused = compat.ask("POST", "/connections/shop/connect-card", {"connect_card_config": {}}, 405)
    assert "PATCH /v1/connections/shop" in refused["hint"]
    assert compat.ask("POST", "/connections/nope/connect-card", {}, 404)["code"] == "NotFound_Connection"


WHOLE = [
    ("GET", "/users/{user}", None),
    ("PATCH", "/users/{user}", {"given_name": "x"}),
    ("DELETE", "/users/{user}", None),
    ("POST", "/users", {**BOB, "email": "eve@example.com"}),
    ("GET", "/webhooks", None),
    ("POST", "/webhooks/account", {"url": "https://example.com/h", "events": ["sync_end"], "active": False}),
    ("POST", "/groups", {"name": "mine"}),
    ("DELETE", "/groups/lake", None),
    ("PATCH", "/destinations/lake", {"config": {"path": "other.db"}}),
    ("DELETE", "/destinations/lake", None),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("method", "path", "body"), WHOLE, ids=[f"{m} {p}" for m, p, _ in WHOLE])
def test_an_administrator_of_some_groups_is_not_one_of_the_server(
    compat: Compat, method: str, path: str, body: Any
) -> None:
    user = compat.data("POST", "/users", BOB, 201)["id"]
    said = compat.ask(method, path.format(user=user), body, 403, auth=compat.key("admin", "lake"))
    assert "takes an administrator of all" in said["message"]
    assert compat.data("GET", f"/users/{user}")["given_name"] == "Bob"


def test_hooks_and_members_of_a_group_take_an_administrator_of_all(compat: Compat) -> None:
    hook = {"url": "https://example.com/h", "events": ["sync_end"], "active": False}
    own = compat.data("POST", "/webhooks/group/lake", hook)["id"]
    user = compat.data("POST", "/users", BOB, 201)["id"]
    as_, member = compat.key("admin", "lake"), {"email": BOB["email"], "role": "Destination Analyst"}
    for method, path, body in (
        ("GET", f"/webhooks/{own}", None), ("POST", "/webhooks/group/lake", hook), ("DELETE", f"/webhooks/{own}", None),
        ("POST", "/groups/lake/users", member), ("DELETE", f"/groups/lake/users/{user}", None),
    ):  # fmt: skip
        assert "takes an administrator of all" in compat.ask(method, path, body, 403, auth=as_)["message"]
    compat.ask("POST", "/groups/lake/users", member)
    compat.ask("DELETE", f"/groups/lake/users/{user}")
    compat.ask("DELETE", f"/groups/lake/users/{user}", None, 404)
