"""What the scheduled detector tells: real mails, Slack blocks, Teams cards and signed webhooks for the same events."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from detection_world import ALL_OFF, ALL_ON, Base, html, text
from standardwebhooks.webhooks import Webhook

from instep.control.pauses import resume
from receivers import Web, web

SECRET = "whsec_" + "c2VjcmV0LW9mLTMyLWJ5dGVzLWZvci10aGUtdGVzdHM="
GREEN, RED = "#1a7f37", "#cf222e"
CHANGES = """
    create table bag (id integer primary key);
    drop table box;
    alter table item add column vat integer;
    alter table customer drop column city;
    alter table customer rename column name to label;
"""


@pytest.fixture
def receiver() -> Iterator[Web]:
    with web() as running:
        yield running


def begun(base: Base, options: str = ALL_ON, more: str = "") -> None:
    """Synced once and told of it, more than a minute ago."""
    base.write(options, more)
    assert base.do("sync").error == ""
    base.turn()
    if base.post:
        base.mails()
    base.turn(seconds=61)


def rows(page: str) -> dict[str, str]:
    """Of an HTML mail: the color of each line, by what it says."""
    found = re.findall(r'<strong style="color:(#\w+)">. ([^<]+)</strong>(.*?)</td></tr></table>', page)
    return {what + re.sub("<[^>]+>", "", rest)[:60].split("source")[0]: color for color, what, rest in found}


def test_one_mail_says_what_was_propagated(told: Base) -> None:
    begun(told)
    told.sql(CHANGES)
    told.turn(hours=1)
    [mail] = told.mails()
    assert str(mail["Subject"]) == "[instep] shop: 5 notices (2 removed, 1 renamed, 2 new)"
    page = rows(html(mail))
    colors = {(said.split()[0], said.split()[1]): color for said, color in page.items()}
    assert colors[("table", "added")] == colors[("column", "added")] == GREEN
    assert colors[("table", "removed")] == colors[("column", "removed")] == RED
    assert any("name → label" in said for said in page)
    said = text(mail)
    for fact in (
        "+ table added public.bag, applied", "- table removed public.box, applied", "source: crm", "connection: shop",
        "+ column added public.item.vat", "- column removed public.customer.city",
        "→ column renamed public.customer.label (name → label), applied", "rule: option table_options",
        "https://instep.example.org/changes/c-",
    ):  # fmt: skip
        assert fact in said, said
    assert "tables: 1 new, 1 deleted, 2 updated, 0 unchanged" in said


@pytest.mark.slow
def test_one_a_minute_and_none_is_lost(told: Base) -> None:
    begun(told)
    for number, (seconds, mails) in enumerate(((1, 1), (10, 0), (30, 0), (18, 0), (2, 1), (30, 0), (30, 1))):
        told.sql(f"alter table item add column c{number} integer")
        told.detect()
        told.turn(seconds=seconds)
        assert len(found := told.mails()) == mails, number
        if number == 4:
            assert all(f"public.item.c{n}" in text(found[0]) for n in (1, 2, 3, 4))
            assert "public.item.c0" not in text(found[0])
        if number == 6:
            assert all(f"public.item.c{n}" in text(found[0]) for n in (5, 6))


def test_a_pause_does_not_wait_for_the_minute(told: Base) -> None:
    begun(told, ALL_OFF)
    told.sql("alter table item rename column price to cost")
    told.detect()
    told.turn()
    assert len(told.mails()) == 1
    told.sql("drop table box")
    told.detect()
    told.turn(seconds=5)
    [mail] = told.mails()
    said = text(mail)
    assert mail["Importance"] == "high"
    for fact in (
        "! paused because of table removed public.box", "option app_options.auto_unsync_deleted_tables",
        "! detection disabled itself", "next step: instep detector enable shop",
    ):  # fmt: skip
        assert fact in said, said


def test_it_is_told_once_however_often_it_is_looked_at(told: Base) -> None:
    begun(told, ALL_OFF)
    told.sql("drop table box")
    for _ in range(4):
        told.turn(hours=1)
    assert len([m for m in told.mails() if "paused" in text(m)]) == 1


@pytest.mark.slow
def test_a_failed_propagation_is_told(told: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(told)
    told.sql("create table bag (id integer primary key)")
    monkeypatch.setenv("INSTEP_CRASH", "apply.table.before=raise")
    for _ in range(6):
        told.turn(minutes=30)
    assert "propagating schema changes has failed" in told.paused()
    assert told.standing().state == "internal_disabled"
    said = "\n".join(map(text, told.mails()))
    for fact in ("! paused", "propagating schema changes has failed", "instep detector enable shop"):
        assert fact in said, said
    monkeypatch.delenv("INSTEP_CRASH")
    assert told.turn(hours=3) == []
    with told.app() as app:
        from instep.control.detector import switch_on

        resume(app.store, "shop", "ann")
        assert switch_on(app.store, "shop", "ann")
    told.turn(hours=1)
    assert told.lake()["bag"] == ["id"]


@pytest.mark.slow
def test_a_source_that_is_away_is_told_and_pauses_nothing(told: Base) -> None:
    routes = "notify: [{on: [failed, resumed], to: mail}]\n"
    begun(told, ALL_OFF, routes)
    told.write(ALL_OFF, routes)
    project = told.folder / "instep.yml"
    good = project.read_text()
    project.write_text(good.replace("host: 127.0.0.1, port:", "host: 127.0.0.1, connect_timeout: 2, port: 1 #", 1))
    project.write_text(re.sub(r"port: 1 #[^,]*", "port: 1", project.read_text()))
    for _ in range(4):
        told.turn(hours=1)
    said = "\n".join(map(text, told.mails()))
    assert "! detection failed" in said
    assert "! detect given up, after 3 attempts" in said
    assert (told.paused(), told.standing().internal_disabled) == ("", False)
    project.write_text(good)
    assert told.turn(hours=1)[0].kind == "detect"
    assert told.did[-1][1].error == ""


CHANNELS = """\
  chat: {type: slack, url: "${env:CHAT}"}
  team: {type: teams, url: "${env:TEAM}"}
  hook: {type: webhook, url: "${env:HOOK}", secret: "${env:HOOK_SECRET}"}
notify:
  - {on: [applied, paused], to: chat}
  - {on: [applied, paused], to: team}
  - {on: [applied, paused], to: hook}
  - {on: [applied, paused], to: mail}
"""


def test_every_channel_tells_the_same(told: Base, receiver: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    for name in ("chat", "team", "hook"):
        monkeypatch.setenv(name.upper(), f"http://127.0.0.1:{receiver.port}/{name}")
    begun(told, more=CHANNELS)
    receiver.got.clear()
    told.sql(CHANGES)
    told.turn(hours=1)
    assert len(told.mails()) == 1
    got = {path.rpartition("/")[2]: (headers, body.decode()) for path, headers, body in receiver.got}
    assert len(receiver.got) == 3
    chat = receiver.documents[[p for p, _, _ in receiver.got].index("/chat")]
    assert {block["type"] for block in chat["blocks"]} == {"section", "actions"}
    card = receiver.documents[[p for p, _, _ in receiver.got].index("/team")]["attachments"][0]["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    headers, body = got["hook"]
    event = Webhook(SECRET).verify(body, dict(headers))
    assert (event["type"], event["data"]["count"], event["data"]["more"]) == ("org.instep.notices.v1", 5, 0)
    for name, (_, said) in got.items():
        for fact in ("public.bag", "public.box", "vat", "city", "label"):
            assert fact in said, (name, fact)
