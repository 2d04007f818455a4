"""Slack, Teams and webhooks against a real server; signatures are judged by the standard's own library."""

from __future__ import annotations

import base64
import json
import secrets
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from notify_world import AT, HOSTILE, line, message
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from instep.control.immediate.govern import trial, try_channel
from instep.egress.guard import EgressGuard
from instep.errors import ProjectError
from instep.notify import chat_services
from instep.notify.apprise import AppriseChannel
from instep.notify.channel import NotDelivered, PostChannel
from instep.notify.webhook import WebhookChannel, signature, signing_key
from instep.project.sections.channels import AppriseChannelSection, PostChannelSection, WebhookChannelSection
from receivers import web

LOOPBACK = EgressGuard(("127.0.0.0/8",))


def secret() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


def test_the_library_verifies_what_is_sent_and_nothing_else() -> None:
    mine, former = secret(), secret()
    with web() as receiver:
        hook = WebhookChannel(
            WebhookChannelSection.resolved(type="webhook", url=receiver.url, secret=mine, former_secret=former),
            LOOPBACK,
        )
        assert hook.send(message()) == 200
    [(path, headers, body)] = receiver.got
    assert path == "/hook/path-is-secret"
    assert headers["Content-Type"] == "application/cloudevents+json"
    for one in (mine, former):
        assert Webhook(one).verify(body, dict(headers)) == json.loads(body)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret()).verify(body, dict(headers))
    for changed in ({**headers, "webhook-id": "m-other"}, {**headers, "webhook-timestamp": "1"}):
        with pytest.raises(WebhookVerificationError):
            Webhook(mine).verify(body, changed)
    with pytest.raises(WebhookVerificationError):
        Webhook(mine).verify(body + b" ", dict(headers))


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_programs_get_names_as_they_are(name: str) -> None:
    mine = secret()
    with web() as receiver:
        WebhookChannel(WebhookChannelSection.resolved(type="webhook", url=receiver.url, secret=mine), LOOPBACK).send(
            message(line(table=name))
        )
    [(_, headers, body)] = receiver.got
    event = Webhook(mine).verify(body, dict(headers))
    assert event["data"].get("table", "") == name[:250]
    assert (event["type"], event["subject"]) == ("org.instep.change.review_needed.v1", "c-7f3a2b")


@given(st.binary(min_size=24, max_size=64), st.text(), st.integers(0, 2**40), st.binary())
def test_signatures_are_those_of_the_library(key: bytes, id: str, at: int, body: bytes) -> None:
    from datetime import UTC, datetime

    text, name = body.decode("latin-1"), id.encode("utf-8", "ignore").decode()
    at %= 2**31
    made = Webhook(base64.b64encode(key).decode()).sign(name, datetime.fromtimestamp(at, UTC), text)
    assert signature(key, name, at, text.encode()) == made


@pytest.mark.parametrize("text", ["", "whsec_", "whsec_c2hvcnQ=", "canary not base64 ä", "whsec_" + "A" * 200])
def test_what_is_no_secret_is_not_repeated(text: str) -> None:
    with pytest.raises(ProjectError) as wrong:
        signing_key(text)
    assert "canary" not in str(wrong.value)


@pytest.mark.parametrize("kind", ["slack", "teams", "webhook"])
@pytest.mark.parametrize(
    ("status", "headers", "after", "gone"),
    [(500, {}, 0, False), (429, {"Retry-After": "30"}, 30, False), (410, {}, 0, True), (404, {}, 0, False),
     (503, {"Retry-After": "soon"}, 0, False), (301, {"Location": "/x"}, 0, False),
     (503, {"Date": "Sun, 01 Mar 2026 12:00:00 GMT", "Retry-After": "Sun, 01 Mar 2026 12:01:00 GMT"}, 60, False)],
)  # fmt: skip
def test_what_a_receiver_refuses(kind: str, status: int, headers: dict[str, str], after: int, gone: bool) -> None:
    with web() as receiver:
        receiver.answers = [(status, headers)]
        channel = {
            "slack": PostChannel(
                PostChannelSection.resolved(type="slack", url=receiver.url), LOOPBACK, chat_services.slack_payload
            ),
            "teams": PostChannel(
                PostChannelSection.resolved(type="slack", url=receiver.url), LOOPBACK, chat_services.teams_payload
            ),
            "webhook": WebhookChannel(
                WebhookChannelSection.resolved(type="webhook", url=receiver.url, secret=secret()), LOOPBACK
            ),
        }[kind]
        with pytest.raises(NotDelivered) as refused:
            channel.send(message())
    assert (refused.value.code, refused.value.gone) == (status, gone)
    if "Date" not in headers:
        assert refused.value.after == after
    assert "secret" not in str(refused.value)
    assert "nobody" not in str(refused.value)
    assert len(receiver.got) == 1


def test_urls_are_hidden() -> None:
    url = "https://hooks.example/canary"
    for config in (
        PostChannelSection.resolved(type="slack", url=url),
        WebhookChannelSection.resolved(type="webhook", url=url, secret="canary"),
        AppriseChannelSection.resolved(type="apprise", url=url),
    ):
        assert "canary" not in repr(config)


def test_a_card_and_blocks_arrive() -> None:
    with web() as receiver:
        assert (
            try_channel(
                PostChannel(
                    PostChannelSection.resolved(type="slack", url=receiver.url), LOOPBACK, chat_services.slack_payload
                ),
                trial("ops", AT),
            )
            == 200
        )
        assert (
            try_channel(
                PostChannel(
                    PostChannelSection.resolved(type="slack", url=receiver.url), LOOPBACK, chat_services.teams_payload
                ),
                trial("ops", AT),
            )
            == 200
        )
    blocks, card = receiver.documents
    assert blocks["blocks"][0]["type"] == "section"
    assert card["attachments"][0]["content"]["type"] == "AdaptiveCard"


@pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")
def test_apprise_reaches_other_services() -> None:
    pytest.importorskip("apprise")
    with web() as receiver:
        url = f"json://127.0.0.1:{receiver.port}/hook"
        assert AppriseChannel(AppriseChannelSection.resolved(type="apprise", url=url), LOOPBACK).send(message()) == 0
        receiver.answers = [(500, {})]
        with pytest.raises(NotDelivered, match="did not take"):
            AppriseChannel(AppriseChannelSection.resolved(type="apprise", url=url), LOOPBACK).send(message())
    assert "amount" in receiver.documents[0]["message"]
    with pytest.raises(NotDelivered, match="does not know"):
        AppriseChannel(AppriseChannelSection.resolved(type="apprise", url="nonsense"), LOOPBACK).send(message())


@pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")
@pytest.mark.parametrize(
    "url", ["json://10.0.0.1/TOKEN123/x", "jsons://TOKEN123.invalid/x", "json://127.0.0.1/TOKEN123"]
)
def test_an_inner_host_of_apprise_is_refused_without_its_url(url: str) -> None:
    pytest.importorskip("apprise")
    with pytest.raises(NotDelivered, match=r"host of the jsons? URL") as refused:
        AppriseChannel(AppriseChannelSection.resolved(type="apprise", url=url), EgressGuard()).send(message())
    assert "TOKEN123" not in f"{refused.value} {refused.value.hint} {refused.value.__cause__}"


@pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")
def test_what_stands_for_a_host_is_a_token_of_services_with_one_host() -> None:
    pytest.importorskip("apprise")
    looked_up: list[str] = []

    class Watched(EgressGuard):
        def target(self, host: str, port: int, *rest: Any) -> Any:
            looked_up.append(host)
            raise AssertionError(host)

    for url in ("discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js", "pagerduty://INTEGRATION@ROUTING"):
        AppriseChannel(AppriseChannelSection.resolved(type="apprise", url=url), Watched())._judge("ROUTING", 443)
    assert looked_up == []
