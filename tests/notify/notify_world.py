"""Lines, messages and names that try something."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from instep.notify.lines import MessageLine
from instep.notify.message import Message

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
RENAMED = MessageLine(
    AT, (7,), "change.review_needed", "warning", "renamed", "column renamed", "needs a review", "shop", source="db",
    table="public.order", column="total", old="amount", new="total", kind="column.renamed", change="c-7f3a2b",
    rule="policy careful rule 2", why="waits for a review", link="https://instep.example.org/connections/shop",
    command="instep changes show c-7f3a2b",
)  # fmt: skip
HOSTILE = (
    "<script>alert(1)</script>", "<!channel>", "<@U024BE7LH>", "<https://evil.example|click>", "@everyone", "*bold*",
    "_it_", "~gone~", "`code`", "```", ":bomb:", "[a](https://evil.example)", "![x](https://evil.example/x.png)",
    "a\r\nBcc: all@example.org", "a\n\n# head", "\x1b[31mred", "\u202egnp.exe", "\u200bhidden", '" onload="alert(1)',
    "&lt;b&gt;", "'; drop table x; --", "{{7*7}}", "${env:PATH}", "x" * 5_000, "🐘 äöü", "\ud800", "| a | b |", "",
)  # fmt: skip
"""Names that a database lets somebody give to a table."""


def line(**fields: Any) -> MessageLine:
    return replace(RENAMED, **fields)


def message(*lines: MessageLine, id: str = "m-0123456789abcdef") -> Message:
    return Message(id, AT, lines or (RENAMED,))


def many(count: int, **fields: Any) -> Message:
    """So many changes of so many columns."""
    return message(*(line(change=f"c-{n:06}", column=f"column_{n}", numbers=(n,), **fields) for n in range(count)))
