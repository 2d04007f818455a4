"""Messages as Slack blocks, within its limits: 50 blocks, 3,000 characters a section, 13,200 a message."""

from __future__ import annotations

import json
from typing import Any

from instep.notify.escape import as_code, as_slack
from instep.notify.lines import MessageLine
from instep.notify.message import Message, details, fewer

MAX_MESSAGE = 13_200
MAX_SECTION = 3_000
_MARKS = {"added": "🟢", "removed": "🔴", "renamed": "🔵", "changed": "🟡", "stopped": "⛔", "plain": "⚪"}
_CODED = ("source", "connection", "table", "column", "change", "run", "next step")


def payload(message: Message) -> dict[str, Any]:
    """Return the document of a message; fewer lines where all would be too much for one message."""
    return fewer(
        lambda most: _payload(message, most), lambda made: len(json.dumps(made, ensure_ascii=False)) <= MAX_MESSAGE
    )


def _payload(message: Message, most: int) -> dict[str, Any]:
    lines, more = message.first(most)
    title = as_slack(message.title, 150)
    blocks = [_section(f"*{title}*"), *(_section(_text(line)) for line in lines)]
    if more:
        blocks.append(_section(f"…and {more} more"))
    links = {line.link: line for line in lines if line.link}
    if links:
        blocks.append({"type": "actions", "elements": [_button(url, line) for url, line in list(links.items())[:5]]})
    return {"text": title, "unfurl_links": False, "unfurl_media": False, "blocks": blocks}


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text[:MAX_SECTION]}}


def _text(line: MessageLine) -> str:
    moved = " → ".join(as_code(side, 100) for side in (line.old, line.new) if side)
    head = f"{_MARKS[line.tone]} *{as_slack(line.what)}* {moved}{f' _{as_slack(line.status)}_' if line.status else ''}"
    facts = [f"{name}: {(as_code if name in _CODED else as_slack)(value)}" for name, value in details(line)]
    return "\n".join([head, *facts])


def _button(url: str, line: MessageLine) -> dict[str, Any]:
    words = "Review" if line.status == "needs a review" else "Open"
    text = f"{words} {line.change or line.run or line.connection}"[:75]
    return {"type": "button", "text": {"type": "plain_text", "text": text, "emoji": False}, "url": url[:3000]}
