"""Messages as Slack blocks, within its limits: 50 blocks, 3,000 characters a section, 13,200 a message.

Messages as an Adaptive Card for a Teams workflow. Names are text runs, which know no markdown.
"""

from __future__ import annotations

import json
from typing import Any

from instep.notify.lines import MessageLine
from instep.notify.message import Message, as_code, as_slack, details, fit_lines, shown

MAX_MESSAGE = 13_200
MAX_SECTION = 3_000
_MARKS = {"added": "🟢", "removed": "🔴", "renamed": "🔵", "changed": "🟡", "stopped": "⛔", "plain": "⚪"}
_CODED = ("source", "connection", "table", "column", "change", "run", "next step")


def slack_payload(message: Message) -> dict[str, Any]:
    """Return the document of a message; fewer lines where all would be too much for one message."""
    return fit_lines(
        lambda most: _slack_payload(message, most),
        lambda d: len(json.dumps(d, ensure_ascii=False)) <= MAX_MESSAGE,
    )


def _slack_payload(message: Message, most: int) -> dict[str, Any]:
    lines, more = message.first(most)
    title = as_slack(message.title, 150)
    blocks = [_section(f"*{title}*"), *(_section(_slack_text(line)) for line in lines)]
    if more:
        blocks.append(_section(f"…and {more} more"))
    links = {line.link: line for line in lines if line.link}
    if links:
        blocks.append({"type": "actions", "elements": [_button(url, line) for url, line in list(links.items())[:5]]})
    return {"text": title, "unfurl_links": False, "unfurl_media": False, "blocks": blocks}


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text[:MAX_SECTION]}}


def _slack_text(line: MessageLine) -> str:
    moved = " → ".join(as_code(side, 100) for side in (line.old, line.new) if side)
    head = f"{_MARKS[line.tone]} *{as_slack(line.what)}* {moved}{f' _{as_slack(line.status)}_' if line.status else ''}"
    facts = [f"{name}: {(as_code if name in _CODED else as_slack)(value)}" for name, value in details(line)]
    return "\n".join([head, *facts])


def _button(url: str, line: MessageLine) -> dict[str, Any]:
    words = "Review" if line.status == "needs a review" else "Open"
    text = f"{words} {line.change or line.run or line.connection}"[:75]
    return {"type": "button", "text": {"type": "plain_text", "text": text, "emoji": False}, "url": url[:3000]}


MAX_BYTES = 27_000
_COLORS = {"added": "Good", "removed": "Attention", "renamed": "Accent", "changed": "Warning", "stopped": "Attention"}


def teams_payload(message: Message) -> dict[str, Any]:
    """Return the document of a message; fewer lines where all would be too much for one card."""
    return fit_lines(lambda most: _teams_payload(message, most), lambda d: len(json.dumps(d)) <= MAX_BYTES)


def _teams_payload(message: Message, most: int) -> dict[str, Any]:
    lines, more = message.first(most)
    body = [_teams_text((message.title, {"weight": "Bolder", "size": "Medium"})), *(_line(line) for line in lines)]
    if more:
        body.append(_teams_text((f"…and {more} more", {"isSubtle": True})))
    links = {line.link: line for line in lines if line.link}
    card = {
        "type": "AdaptiveCard",
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": body,
        "actions": [
            {"type": "Action.OpenUrl", "title": f"Open {line.change or line.run or line.connection}", "url": url}
            for url, line in list(links.items())[:5]
        ],
    }
    kind = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": kind, "contentUrl": None, "content": card}]}


def _line(line: MessageLine) -> dict[str, Any]:
    color = {"color": _COLORS[line.tone]} if line.tone in _COLORS else {}
    moved = " → ".join(side for side in (line.old, line.new) if side)
    head = _teams_text(
        (f"{line.what} ", {"weight": "Bolder", **color}),
        (moved, {"fontType": "Monospace"}),
        (f"  {line.status}" if line.status else "", {"isSubtle": True}),
    )
    facts = (
        _teams_text((f"{name}: ", {"isSubtle": True, "size": "Small"}), (value, {"size": "Small"}), spacing="None")
        for name, value in details(line)
    )
    return {"type": "Container", "separator": True, "items": [head, *facts]}


def _teams_text(*runs: tuple[str, dict[str, Any]], **options: str) -> dict[str, Any]:
    inlines = [{"type": "TextRun", "text": shown(text), **style} for text, style in runs if text]
    return {"type": "RichTextBlock", "inlines": inlines, **options}
