"""Messages as an Adaptive Card for a Teams workflow. Names are text runs, which know no markdown."""

from __future__ import annotations

import json
from typing import Any

from instep.notify.escape import shown
from instep.notify.lines import MessageLine
from instep.notify.message import Message, details, fewer

MAX_BYTES = 27_000
_COLORS = {"added": "Good", "removed": "Attention", "renamed": "Accent", "changed": "Warning", "stopped": "Attention"}


def payload(message: Message) -> dict[str, Any]:
    """Return the document of a message; fewer lines where all would be too much for one card."""
    return fewer(lambda most: _payload(message, most), lambda made: len(json.dumps(made)) <= MAX_BYTES)


def _payload(message: Message, most: int) -> dict[str, Any]:
    lines, more = message.first(most)
    body = [_text((message.title, {"weight": "Bolder", "size": "Medium"})), *(_line(line) for line in lines)]
    if more:
        body.append(_text((f"…and {more} more", {"isSubtle": True})))
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
    head = _text(
        (f"{line.what} ", {"weight": "Bolder", **color}),
        (moved, {"fontType": "Monospace"}),
        (f"  {line.status}" if line.status else "", {"isSubtle": True}),
    )
    facts = (
        _text((f"{name}: ", {"isSubtle": True, "size": "Small"}), (value, {"size": "Small"}), spacing="None")
        for name, value in details(line)
    )
    return {"type": "Container", "separator": True, "items": [head, *facts]}


def _text(*runs: tuple[str, dict[str, Any]], **options: str) -> dict[str, Any]:
    inlines = [{"type": "TextRun", "text": shown(text), **style} for text, style in runs if text]
    return {"type": "RichTextBlock", "inlines": inlines, **options}
