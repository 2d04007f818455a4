"""One message to one channel, before it takes the channel's form.

Names of others in messages: they may be anything, and must neither format nor link nor call anybody.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from instep.notify.lines import SEVERITIES, MessageLine, Severity
from instep.schema.changes.version import Counts
from instep.store.history.outbox import NotifiedEvent

T = TypeVar("T")
SHOWN = 10
"""Lines of a message in a chat."""
_COUNTED = {"added": "new", "removed": "removed", "renamed": "renamed", "changed": "changed"}


@dataclass(frozen=True)
class Message:
    """A message to a channel."""

    id: str
    """The same for every attempt to deliver it."""
    at: datetime
    """Time when its first attempt became due."""
    lines: tuple[MessageLine, ...]
    digest: bool = False
    counts: Mapping[str, Counts] = field(default_factory=dict)
    """Counts by connection."""
    notified: tuple[NotifiedEvent, ...] = ()
    """The events themselves, for receivers with a form of their own."""

    @property
    def severity(self) -> Severity:
        """The gravest of its lines."""
        return max((line.severity for line in self.lines), key=SEVERITIES.index, default="info")

    @property
    def connections(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(line.connection for line in self.lines if line.connection))

    @property
    def changes(self) -> tuple[str, ...]:
        """The ids of the changes that it is about, in order."""
        return tuple(dict.fromkeys(line.change for line in self.lines if line.change))

    @property
    def link(self) -> str:
        return next((line.link for line in self.lines if line.link), "")

    @property
    def title(self) -> str:
        """One line that says where and what; names are shown harmlessly."""
        where = ", ".join(self.connections[:3]) + (" and others" if len(self.connections) > 3 else "")
        title = headline(self.lines[0]) if len(self.lines) == 1 else summary(self.lines)
        return shown(f"{where}: {title}" if where else title)

    def first(self, most: int) -> tuple[Sequence[MessageLine], int]:
        """Return the lines that are shown, the gravest kept in, and how many are not."""
        if len(self.lines) <= most:
            return self.lines, 0
        ranked = sorted(self.lines, key=lambda line: -SEVERITIES.index(line.severity))
        shown = {id(line) for line in ranked[:most]}
        return [line for line in self.lines if id(line) in shown], len(self.lines) - most


def headline(line: MessageLine) -> str:
    """Return the text of one line, without reasons."""
    moved = f" ({line.old} → {line.new})" if line.old and line.new else ""
    text = " ".join(filter(None, (line.what, line.place)))
    return f"{text}{moved}{f', {line.status}' if line.status else ''}"


def summary(lines: Sequence[MessageLine]) -> str:
    """Return a summary such as `3 notices (1 new, 1 removed), 1 needs a review`."""
    counts = Counter(_COUNTED[line.tone] for line in lines if line.tone in _COUNTED)
    stopped = sum(line.tone == "stopped" for line in lines)
    waiting = sum(line.status == "needs a review" for line in lines)
    inside = ", ".join(f"{count} {word}" for word, count in counts.items())
    texts = [f"{len(lines)} {'notice' if len(lines) == 1 else 'notices'}{f' ({inside})' if inside else ''}"]
    texts += [f"{stopped} stopped"] if stopped else []
    texts += [f"{waiting} {'needs' if waiting == 1 else 'need'} a review"] if waiting else []
    return ", ".join(texts)


def details(line: MessageLine) -> list[tuple[str, str]]:
    """Return (name, value) of everything known of a line."""
    values = (
        ("source", line.source),
        ("connection", line.connection),
        ("table", line.table),
        ("column", line.column),
        ("change", line.change),
        ("run", line.run),
        ("rule", line.rule),
        ("why", line.why),
        ("next step", line.command),
    )
    return [(name, value) for name, value in values if value]


def fit_lines(build: Callable[[int], T], fits: Callable[[T], bool]) -> T:
    """Return what `build` makes of at most `SHOWN` lines: fewer of them where it would not fit, at least one."""
    for most in range(SHOWN, 1, -1):
        if fits(document := build(most)):
            return document
    return build(1)


_HIDDEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
LONGEST = 200


def shown(text: str, longest: int = LONGEST) -> str:
    r"""Return one line, cut in the middle, with control, direction and invisible characters escaped (`\x1b`)."""
    line = _HIDDEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
    if len(line) <= longest:
        return line
    half = (longest - 1) // 2
    return f"{line[:half]}…{line[-(longest - 1 - half) :]}"


def as_html(text: str, longest: int = LONGEST) -> str:
    return html.escape(shown(text, longest), quote=True)


def as_slack(text: str, longest: int = LONGEST) -> str:
    """Return text in which Slack finds no links, mentions, emphasis or emoji."""
    safe = shown(text, longest).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([*_~`:@#])", "\u200b\\1\u200b", safe)


def as_code(text: str, longest: int = LONGEST) -> str:
    """Return a name as Slack's inline code."""
    safe = shown(text, longest).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"`{safe.replace('`', chr(0x2CB))}`" if safe.strip() else "` `"


def as_markdown(text: str) -> str:
    """Return text in which Markdown, and HTML within it, finds nothing."""
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|~<>&:@$^=])", r"\\\1", shown(text, LONGEST))
