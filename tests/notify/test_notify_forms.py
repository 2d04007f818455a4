"""What a message looks like in every form: complete, within the limits, and harmless whatever names are in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from notify_world import HOSTILE, RENAMED, line, many, message

from instep.notify import chat_services, webhook
from instep.notify.apprise import markdown
from instep.notify.deliver import counts_of
from instep.notify.mail import as_mail, html_of, text_of
from instep.notify.message import LONGEST, Message, as_code, as_html, as_markdown, as_slack, shown, summary
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse

FACTS = ("shop", "db", "public.order", "total", "amount", "c-7f3a2b", "policy careful rule 2", "waits for a review")
NAMES = ("what", "status", "source", "table", "column", "old", "new", "rule", "why")


def texts(value: Any) -> Iterator[str]:
    """Every text of a document."""
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts(inner)


def forms(said: Message) -> dict[str, str]:
    mail = as_mail(said, "instep@example.org", ("data@example.org",))
    return {
        "text": text_of(said), "html": html_of(said), "mail": mail.as_bytes().decode(),
        "slack": "\n".join(texts(chat_services.slack_payload(said))),
        "teams": "\n".join(texts(chat_services.teams_payload(said))),
        "webhook": "\n".join(texts(webhook.payload(said))), "markdown": markdown(said),
    }  # fmt: skip


@pytest.mark.parametrize("form", ["text", "html", "slack", "teams", "webhook"])
def test_every_form_names_all_that_is_known(form: str) -> None:
    said = forms(message())[form]
    missing = [fact for fact in (*FACTS, RENAMED.link, RENAMED.command) if fact not in said]
    assert missing == []


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def tags(html: str) -> list[tuple[str, list[str]]]:
    parser = Tags()
    parser.feed(html)
    return [(tag, sorted(attrs)) for tag, attrs in parser.seen]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_name_adds_no_markup_anywhere(name: str) -> None:
    named = message(line(**dict.fromkeys(NAMES, name or " ")))
    plain = message(line(**dict.fromkeys(NAMES, "x")))
    said = forms(named)
    assert tags(said["html"]) == tags(forms(plain)["html"])
    for text in (said[form] for form in said if form != "webhook"):  # programs get names as they are
        assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200e\u200f\u202a-\u202e\ud800-\udfff]", text)
    assert "<!" not in said["slack"]
    assert "<@" not in said["slack"]
    assert "<http" not in said["slack"]
    assert len(said["teams"]) < 30_000


@pytest.mark.parametrize("name", ["a\r\nBcc: all@example.org", "a\nb"])
def test_a_name_adds_no_header_to_a_mail(name: str) -> None:
    mail = as_mail(message(line(table=name, connection=name)), "instep@example.org", ("data@example.org",))
    assert mail["Bcc"] is None
    assert "\n" not in str(mail["Subject"])


@pytest.mark.parametrize("count", [1, 2, 10, 11, 47, 300, 2_000])
@pytest.mark.parametrize("name", ["x", "`<&>`" * 400], ids=["short", "hostile"])
def test_no_form_is_beyond_its_limits(count: int, name: str) -> None:
    said = many(count, table=name, why=name)
    chat = chat_services.slack_payload(said)
    assert len(chat["blocks"]) <= 50
    assert all(len(b["text"]["text"]) <= 3_000 for b in chat["blocks"] if b["type"] == "section")
    assert len(json.dumps(chat, ensure_ascii=False)) <= 13_200
    assert len(json.dumps(chat_services.teams_payload(said))) <= 28_000
    assert len(json.dumps(webhook.payload(said), ensure_ascii=False).encode()) <= 20_000


def test_what_is_not_shown_is_counted() -> None:
    said = many(47)
    assert "…and 37 more" in forms(said)["slack"]
    assert "…and 37 more" in forms(said)["teams"]
    document = webhook.payload(said)["data"]
    assert len(document["notices"]) + document["more"] == document["count"] == 47
    assert (document["first_event"], document["last_event"]) == (0, 46)


def test_the_gravest_lines_are_shown_first_of_all() -> None:
    grave = line(change="c-grave", severity="error", column="the_key")
    said = message(*many(30, severity="info").lines, grave)
    assert "the_key" in forms(said)["slack"]


def test_colours_tell_new_removed_and_renamed() -> None:
    page = html_of(message(line(tone="added", old="", new="int64"), line(tone="removed", old="string", new=""), line()))
    for start in ('color:#1a7f37">+', 'color:#cf222e">-', 'color:#0550ae">→'):
        assert start in page
    assert re.search(r"<s [^>]*>amount</s> → <span [^>]*>total</span>", page)


def test_titles() -> None:
    assert message().title == "shop: column renamed public.order.total (amount → total), needs a review"
    two = (line(tone="added", status="applied"), replace(RENAMED, connection="billing"))
    assert message(*two).title == "shop, billing: 2 notices (1 new, 1 renamed), 1 needs a review"
    assert summary([line(tone="stopped", status="")]) == "1 notice, 1 stopped"


def test_mails_about_one_change_are_a_thread() -> None:
    first, second = (as_mail(message(id=f"m-{n}"), "instep@example.org", ("a@example.org",)) for n in (1, 2))
    assert first["Message-ID"] == "<m-1@example.org>" != second["Message-ID"]
    assert first["References"] == second["References"] == "<change.c-7f3a2b@example.org>" == second["In-Reply-To"]
    assert first["List-Id"] == "<shop.instep.example.org>"
    assert first.get_content_type() == "multipart/alternative"
    assert [part.get_content_type() for part in first.iter_parts()] == ["text/plain", "text/html"]
    other = as_mail(message(line(connection="Shop 1")), "instep@example.org", ("a@example.org",))
    assert re.fullmatch(r"<shop-1-[0-9a-f]{6}\.instep\.example\.org>", str(other["List-Id"]))


@given(st.text(max_size=2 * LONGEST))
def test_escaped_text_means_nothing(name: str) -> None:
    assert len(shown(name)) <= LONGEST
    assert not re.search(r"[<>\"']", as_html(name))
    assert not re.search(r"[<>]|&(?!amp;|lt;|gt;)", as_slack(name))
    assert as_code(name)[1:-1].count("`") == 0
    assert not re.search(r"(?<!\\)(?:\\\\)*[*_`\[\]<>]", as_markdown(name))


def test_a_mail_counts_what_is_new_deleted_updated_and_unchanged() -> None:
    columns = tuple(Column(name, parse("int64")) for name in ("id", "total", "note"))
    now = Catalog.of(Table("public", name, columns) for name in ("order", "fresh", "item", "stock"))
    told = [
        line(), line(kind="column.added", column="note"), line(kind="table.added", table="public.fresh", columns=3),
        line(kind="table.removed", table="public.old", columns=5),
        line(kind="key.removed", table="public.item", column=""),
    ]  # fmt: skip
    counts = counts_of(now, told)
    assert counts.to_dict() == {
        "schemas": {"new": 0, "deleted": 0, "updated": 1, "unchanged": 0},
        "tables": {"new": 1, "deleted": 1, "updated": 2, "unchanged": 1},
        "columns": {"new": 4, "deleted": 5, "updated": 1, "unchanged": 7},
    }
    said = replace(message(*told), counts={"shop": counts})
    for form in ("text", "html"):
        assert "tables: 1 new, 1 deleted, 2 updated, 1 unchanged" in forms(said)[form]
