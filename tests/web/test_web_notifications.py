"""Notifications in the page: channels, the true message before it is sent, routes, and what became of deliveries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from govern_world import PROJECT, check_pages, send, server_site
from web_world import Site, needs_browser, served, tab

from instep.events import Paused
from receivers import Web, web

HOOK = "/hook/path-is-secret"
MORE = """\
egress: {allow: [127.0.0.1]}
channels:
  chat: {type: slack, url: '${env:CHAT_URL}'}
  mail: {type: email, to: [a@example.org], sender: b@example.org, digest: "17:30", quiet: "22:00-07:00"}
notify:
  - {on: [paused, failed], to: chat, tags: [europe]}
"""


@pytest.fixture
def receiver() -> Iterator[Web]:
    with web() as found:
        yield found


@pytest.fixture
def shop(tmp_path: Path, receiver: Web, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server with two channels, of which one has a receiver."""
    monkeypatch.setenv("CHAT_URL", receiver.url)
    with server_site(tmp_path, PROJECT + MORE) as page:
        yield page


def test_the_list_has_digest_quiet_hours_and_state(shop: Site) -> None:
    shop.store.outbox.close("chat", "it is gone (410)")
    text = shop.get("/notifications/channels")
    for one in ("17:30", "22:00-07:00", "at once", "✗ closed", "it is gone (410)", "Reopen"):
        assert one in text
    assert shop.client().get("/notifications").headers["location"] == "/notifications/channels"


def test_the_message_is_shown_before_it_is_sent(shop: Site, receiver: Web) -> None:
    text = unescape(shop.get("/notifications/channels/chat?test=1"))
    assert receiver.got == []
    card = text.partition("<h2>The message that a test sends</h2>")[2]
    shown = json.loads(card.partition('tabindex="0">')[2].partition("</pre>")[0])
    done = shop.post("/do/test_channel", name="chat", back="/notifications/channels/chat", button="do")
    assert done.status_code == 200
    [document] = receiver.documents
    assert document["blocks"][0] == shown["blocks"][0]
    assert document.keys() == shown.keys()
    assert HOOK not in text + done.text
    mail = unescape(shop.get("/notifications/channels/mail?test=1"))
    assert "Subject: [instep] test: test of channel mail" in mail
    assert "To: a@example.org" in mail


def test_a_receiver_that_refuses_is_told(shop: Site, receiver: Web) -> None:
    receiver.answers = [(500, {})]
    done = shop.post("/do/test_channel", name="chat", button="do")
    assert "the receiver answered 500" in done.text
    assert HOOK not in done.text


def test_routes_are_those_of_the_project_and_of_connections(shop: Site) -> None:
    text = shop.get("/notifications/routes")
    assert "paused, failed" in text
    assert "tags: europe" in text


def test_a_channel_is_made_edited_and_keeps_its_secret(shop: Site, receiver: Web) -> None:
    made = send(shop, "/notifications/channels/~new", {"type": "slack", "name": "ops", "url": receiver.url})
    assert made.headers["location"] == "/notifications/channels/ops"
    pages = [shop.get(f"/notifications/channels/ops{one}") for one in ("", "/edit")]
    assert not any(HOOK in one for one in pages)
    assert "url: ${env:OPS_URL}" in pages[0]
    edited = send(shop, "/notifications/channels/ops/edit", {"url": "", "digest": "daily"})
    assert edited.status_code == 303, edited.text
    shop.app.refresh()
    found = shop.app.project.channel("ops")
    assert (found.digest, found.url) == ("daily", receiver.url)  # type: ignore[union-attr]
    wrong = send(shop, "/notifications/channels/ops/edit", {"url": "", "digest": "noon"})
    assert wrong.status_code == 422
    assert "noon" in wrong.text
    moved = shop.get("/notifications/channels/ops/edit")
    shop.app.objects.put("channel", "ops", {"type": "slack", "url": receiver.url}, who="bob", expected=2)
    tag = unescape(moved).partition('name="etag" value="')[2].partition('">')[0]
    stale = send(shop, "/notifications/channels/ops/edit", {"url": "", "etag": tag})
    assert stale.status_code == 412


def test_a_channel_of_the_file_is_edited_there(shop: Site) -> None:
    text = shop.get("/notifications/channels/mail")
    assert "It is edited in instep.yml" in text
    assert "/notifications/channels/mail/edit" not in text


def test_a_dead_delivery_is_tried_again(shop: Site, receiver: Web) -> None:
    receiver.answers = [(404, {})] * 50
    shop.store.pauses.pause("eu", "a test")
    shop.store.events.add(Paused("eu", "a test"))
    shop.app.sender().send()
    [one] = shop.store.outbox.log()
    with shop.store._db.write() as transaction:
        transaction.exec_driver_sql("update deliveries set status = 'dead'")
    text = shop.get("/notifications/deliveries?status=dead")
    assert "Retry" in text
    assert "the receiver answered 404" in text
    assert "the receiver answered 404" in shop.get(f"/notifications/deliveries/{one.number}")
    shop.post("/do/retry_delivery", delivery=str(one.number), back="/notifications/deliveries", button="do")
    assert shop.store.outbox.get(one.number).status == "waiting"
    assert "No deliveries that are dead" in shop.get("/notifications/deliveries?status=dead")
    assert shop.client().get("/notifications/deliveries?channel=nobody").status_code == 404


def test_who_may_not_is_told_why(shop: Site) -> None:
    assert "New channel <span" in shop.get("/notifications/channels", "viewer")
    fields = {"type": "slack", "name": "x", "url": "https://a.example"}
    refused = send(shop, "/notifications/channels/~new", fields, "viewer")
    assert refused.status_code == 403
    text = shop.get("/notifications/channels/chat?test=1", "viewer")
    assert "Test (needs the role operator)" in text
    assert "The message that a test sends" not in text


@needs_browser
@pytest.mark.server
def test_a_test_is_sent_in_a_browser(shop: Site, receiver: Web, browser: Any) -> None:
    with served(shop.app) as base, tab(browser, base, shop.token("operator")) as opened:
        shown = opened.open("/notifications")
        shown.click("tr:has-text('chat') >> text=Test…")
        shown.wait_for_selector("text=The message that a test sends")
        assert not opened.violations()
        assert receiver.got == []
        shown.click("button:has-text('Send it to chat')")
        shown.wait_for_selector("h2:has-text('Done')")
        assert not opened.violations()
    assert len(receiver.got) == 1


@needs_browser
@pytest.mark.server
def test_its_pages_are_accessible_in_both_themes(shop: Site, browser: Any) -> None:
    forms = [f"/notifications/channels/~new?type={one}" for one in ("email", "webhook")]
    check_pages(
        shop,
        browser,
        "/notifications/channels",
        "/notifications/channels/mail?test=1",
        "/notifications/routes",
        "/notifications/deliveries",
        *forms,
    )
