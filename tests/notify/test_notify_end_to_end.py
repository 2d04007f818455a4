"""From a change at a source to what arrives: a sync's own command tells web, mail and chat."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from standardwebhooks.webhooks import Webhook

from cli.cli_world import CHANGED, TABLES, Shop
from receivers import Post, Web, post_office, web

SECRET = "whsec_" + "c2VjcmV0LW9mLTMyLWJ5dGVzLWZvci10aGUtdGVzdHM="
PROJECT = """\
version: 1
project: shop
engine: local
sources:
  db: {type: sqlite, path: shop.db}
destinations:
  lake: {type: duckdb, path: lake.duckdb}
policies:
  careful:
    preset: allow_all
    rules:
      - {on: [column.removed], decide: review}
connections:
  shop: {source: db, destination: lake, policy: careful, tags: [daily]}
channels:
  hook: {type: webhook, url: "${env:HOOK_URL}", secret: "${env:HOOK_SECRET}"}
  chat: {type: slack, url: "${env:CHAT_URL}"}
  mail: {type: email, host: 127.0.0.1, port: PORT, tls: none, to: [data@example.org], sender: instep@example.org}
notify:
  - {on: [detected, applied, paused, failed], to: hook, tags: [daily]}
  - {on: [review_needed], to: chat}
  - {on: [detected, review_needed, applied], to: mail, groups: [lake]}
egress: {allow: [127.0.0.0/8]}
server_url: https://instep.example.org
"""


@pytest.fixture
def hook() -> Iterator[Web]:
    with web() as running:
        yield running


@pytest.fixture
def mail() -> Iterator[Post]:
    with post_office() as running:
        yield running


@pytest.fixture
def shop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, hook: Web, mail: Post
) -> Shop:
    monkeypatch.setenv("HOOK_URL", hook.url)
    monkeypatch.setenv("CHAT_URL", hook.url.replace("/hook/", "/chat/"))
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    made = Shop(tmp_path, capsys)
    made.write(text=PROJECT.replace("PORT", str(mail.port)))
    made.sql(TABLES)
    return made


def test_a_sync_tells_what_changed(shop: Shop, hook: Web, mail: Post) -> None:
    shop.ok("sync")
    with shop.store() as store:
        first = len(store.outbox.log())
    assert len(mail.mails) == 1
    assert "3 new" in str(mail.mails[0]["Subject"])
    shop.sql(CHANGED)
    hook.got.clear()
    mail.mails.clear()
    shop.ok("sync")
    with shop.store() as store:
        assert sum(store.outbox.waiting().values()) > 0
        assert store.outbox.log()[0].status == "sent"
        assert len(store.outbox.log()) == first + 1  # the chat was not told anything within the last 60 seconds
    [chat] = hook.documents
    text = chat["blocks"][1]["text"]["text"]
    for fact in ("`db`", "`shop`", "`main.customer`", "`city`", "policy careful", "needs a review", "changes show"):
        assert fact in text, text
    assert chat["blocks"][-1]["elements"][0]["url"].startswith("https://instep.example.org/changes/c-")


def test_what_waited_is_sent_with_the_next_command_after_a_minute(shop: Shop, hook: Web, mail: Post) -> None:
    shop.ok("sync")
    shop.sql(CHANGED)
    shop.ok("sync")
    hook.got.clear()
    mail.mails.clear()
    assert "0 sent" in shop.ok("notify", "send").out
    with shop.store() as store, store._db.write() as connection:
        connection.exec_driver_sql("update deliveries set created = datetime(created, '-61 seconds')")
    assert "2 sent, 0 failed, 0 notifications pending" in shop.ok("notify", "send").out
    [(_, headers, body)] = hook.got
    event = Webhook(SECRET).verify(body, headers)
    assert (event["specversion"], event["source"], event["id"]) == ("1.0", "/connections/shop", headers["webhook-id"])
    assert event["type"] == "org.instep.notices.v1"
    kinds = {notice["kind"]: notice for notice in event["data"]["notices"]}
    assert kinds["column.removed"]["old"] == "string"
    assert (kinds["column.added"]["table"], kinds["column.added"]["status"][:7]) == ("main.order", "applied")
    [sent] = mail.mails
    html = sent.get_body(("html",))
    assert html is not None
    assert "#cf222e" in html.get_content()
    assert sent["References"]


def test_a_pause_is_told_at_once(shop: Shop, hook: Web) -> None:
    shop.ok("sync")
    hook.got.clear()
    shop.ok("pause", "shop", "--reason", "a <b>look</b>")
    [event] = hook.documents
    assert event["type"] == "org.instep.connection.paused.v1"
    assert event["data"]["why"] == "a <b>look</b>"


def test_a_receiver_that_is_down_fails_no_command_and_is_tried_again(shop: Shop, hook: Web) -> None:
    hook.answers += [(503, {"Retry-After": "600"})]
    said = shop.ok("pause", "shop", "--reason", "why")
    assert "channel hook cannot be reached: the receiver answered 503. Run `instep notify log`." in said.err
    [delivery] = shop.json("notify", "log")["deliveries"]
    assert (delivery["status"], delivery["attempt"]) == ("waiting", 1)
    assert shop.json("notify", "log", "--delivery", str(delivery["number"]))["attempts"][0]["code"] == 503
    for text in (said.err, str(shop.json("notify", "log")), str(shop.json("notify", "list"))):
        assert "path-is-secret" not in text
        assert SECRET[6:] not in text
        assert "nobody should repeat" not in text


def test_a_receiver_that_is_gone_closes_its_channel_until_it_is_opened(shop: Shop, hook: Web) -> None:
    hook.answers += [(410, {})]
    shop.ok("pause", "shop", "--reason", "why")
    [*_, entry] = [c for c in shop.json("notify", "list")["channels"] if c["channel"] == "hook"]
    assert entry["closed"] == "the receiver answered 410 (gone)"
    shop.ok("resume", "shop")
    shop.ok("pause", "shop", "--reason", "again")
    assert len(hook.got) == 1
    assert "opened" in shop.ok("notify", "open", "hook").out
    assert [d["data"]["why"] for d in hook.documents[1:]] == ["again"]


def test_channels_can_be_tried(shop: Shop, hook: Web, mail: Post) -> None:
    assert "sent to hook (200)" in shop.ok("notify", "test", "hook").out
    assert "sent to mail (250)" in shop.ok("notify", "test", "mail").out
    assert "sent to chat (200)" in shop.ok("notify", "test", "chat").out
    assert str(mail.mails[0]["Subject"]) == "[instep] test: test of channel mail, it works"
    hook.answers += [(302, {"Location": "http://127.0.0.1/elsewhere"})]
    said = shop.run("notify", "test", "hook")
    assert said.code == 4
    assert "redirects are not followed" in said.err
    assert "did you mean 'hook'" in shop.run("notify", "test", "hok").err


def test_a_sync_that_fails_is_told_at_once(shop: Shop, hook: Web, tmp_path: Path) -> None:
    shop.ok("sync")
    hook.got.clear()
    shop.sql("drop table customer")
    shop.sql("create view customer as select * from missing")
    said = shop.run("sync")
    assert said.code
    [told] = [n for e in hook.documents for n in e["data"].get("notices", [e["data"]]) if n["type"] == "run.ended"]
    assert told["what"].startswith("sync ")
    assert told["severity"] == "error"
    assert told["run"].startswith("r-")
