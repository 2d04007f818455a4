"""People who sign in to the page, and objects that are taken out: from the command line."""

from __future__ import annotations

import io
import re

import pytest
from cli_world import Shop

from instep.bootstrap import open_server
from instep.control.resources import sign_in

PASSWORD = "correct horse battery"


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Let standard input be a text."""
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_a_password_is_read_from_the_input_and_told_nowhere(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    key = shop.json("keys", "create", "ada", "--role", "viewer")["key"]["id"]
    typed(monkeypatch, f"{PASSWORD}\n")
    said = shop.ok("keys", "password", key)
    assert "ada" in said.out
    assert PASSWORD not in said.out + said.err
    with shop.store() as store:
        assert sign_in.with_password(store, "ada", PASSWORD) is not None
    assert PASSWORD not in str(shop.json("audit", "list"))


@pytest.mark.parametrize(("text", "why"), [("short\n", "characters"), ("", "characters")])
def test_a_password_that_is_none_is_refused(shop: Shop, monkeypatch: pytest.MonkeyPatch, text: str, why: str) -> None:
    key = shop.json("keys", "create", "ada", "--role", "viewer")["key"]["id"]
    typed(monkeypatch, text)
    said = shop.run("keys", "password", key)
    assert said.code == 1
    assert why in said.err
    typed(monkeypatch, f"{PASSWORD}\n{PASSWORD} again\n")
    assert "no API key is used here" in shop.run("keys", "password").err


def test_a_link_signs_in_once(shop: Shop) -> None:
    key = shop.json("keys", "create", "ada", "--role", "viewer")["key"]["id"]
    path = shop.json("keys", "link", key)["path"]
    assert re.fullmatch(r"/sign-in/once/[\w-]{43}", path)
    with shop.store() as store:
        assert sign_in.with_link(store, path.rpartition("/")[2]) is not None
        assert sign_in.with_link(store, path.rpartition("/")[2]) is None


def test_an_object_of_the_server_is_removed(shop: Shop) -> None:
    with open_server(shop.folder, insecure_dev=True) as app:
        app.objects.put("policy", "mine", {"preset": "approve"}, who="ann")
    assert "would be deleted" in shop.ok("remove", "policy", "mine", "--dry-run").out
    assert "deleted: policy mine" in shop.ok("remove", "policy", "mine").out
    assert "mine" in shop.run("remove", "policy", "mine").err
    said = shop.run("remove", "connection", "shop")
    assert said.code == 64
    assert "is not one of source" in said.err


def test_only_tables_that_match_are_listed(shop: Shop) -> None:
    found = [one["name"] for one in shop.json("source", "discover", "--match", "*.cust*")["tables"]]
    assert found == ["customer"]
    assert "the regular expression" in shop.run("source", "discover", "--match", "re:(").err
