"""A message as text, and as HTML for mail: one table, styles inline, what is new green and what is removed red."""

from __future__ import annotations

from collections.abc import Iterator

from instep.notify.escape import as_html, shown
from instep.notify.lines import MessageLine, Tone
from instep.notify.message import Message, details, headline

SHOWN = 200
_SIGNS: dict[Tone, str] = {
    "added": "+",
    "removed": "-",
    "renamed": "→",
    "changed": "~",
    "stopped": "!",
    "plain": "·",
}
_COLORS: dict[Tone, str] = {
    "added": "#1a7f37",
    "removed": "#cf222e",
    "renamed": "#0550ae",
    "changed": "#9a6700",
    "stopped": "#cf222e",
    "plain": "#57606a",
}
_FONT = "font-family:-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif"
_MONO = "font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"
_WHY = 1_000


def text_of(message: Message) -> str:
    """Plain text, a paragraph a line."""
    lines, more = message.first(SHOWN)
    parts = [message.title, *("\n".join(_text(line)) for line in lines)]
    rest = [f"…and {more} more"] if more else []
    return "\n\n".join([*parts, *rest, *map("\n".join, _counts(message)), "-- \ninstep"]) + "\n"


def _counts(message: Message) -> Iterator[list[str]]:
    """The counts of each connection, a line a level."""
    for name, counts in message.counts.items():
        yield [f"{shown(name)}:", *(f"    {line}" for line in counts.lines())]


def _text(line: MessageLine) -> Iterator[str]:
    yield f"{_SIGNS[line.tone]} {shown(headline(line), _WHY)}"
    for name, value in details(line):
        yield f"    {name}: {shown(value, _WHY)}"
    if line.link:
        yield f"    {line.link}"


def html_of(message: Message) -> str:
    """Return a document of at most 600 pixels, without anything that is loaded from elsewhere."""
    lines, more = message.first(SHOWN)
    rows = "".join(map(_row, lines)) + "".join(map(_counted, _counts(message)))
    rest = f'<tr><td style="padding:12px 24px;color:#57606a">…and {more} more</td></tr>' if more else ""
    title = as_html(message.title)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
        f'<body style="margin:0;padding:24px 0;background:#f6f8fa;{_FONT};font-size:14px;color:#1f2328">'
        '<table role="presentation" cellpadding="0" cellspacing="0" width="600" align="center" '
        'style="max-width:600px;width:100%;background:#ffffff;border:1px solid #d0d7de;border-collapse:collapse">'
        f'<tr><td style="padding:16px 24px"><h1 style="margin:0;font-size:18px">{title}</h1></td></tr>'
        f"{rows}{rest}</table></body></html>\n"
    )


def _counted(lines: list[str]) -> str:
    style = "padding:12px 24px;border-top:1px solid #d0d7de;color:#57606a;font-size:13px"
    return f'<tr><td style="{style}">{"<br>".join(as_html(line.strip()) for line in lines)}</td></tr>'


def _row(line: MessageLine) -> str:
    color = _COLORS[line.tone]
    head = f'<strong style="color:{color}">{_SIGNS[line.tone]} {as_html(line.what)}</strong>'
    status = f' <span style="color:#57606a">{as_html(line.status)}</span>' if line.status else ""
    facts = "".join(
        f'<tr><td style="padding:1px 12px 1px 0;color:#57606a;white-space:nowrap;vertical-align:top">{name}</td>'
        f'<td style="padding:1px 0;{_MONO};font-size:13px;word-break:break-word">{as_html(value, _WHY)}</td></tr>'
        for name, value in details(line)
    )
    return (
        f'<tr><td style="padding:12px 24px;border-top:1px solid #d0d7de;border-left:4px solid {color}">'
        f"{head}{_moved(line)}{status}"
        f'<table role="presentation" cellpadding="0" cellspacing="0" style="margin-top:6px">{facts}</table>'
        f"{_link(line)}</td></tr>"
    )


def _moved(line: MessageLine) -> str:
    """Old and new: what was is struck through."""
    old = f'<s style="color:#cf222e;{_MONO}">{as_html(line.old)}</s>' if line.old else ""
    new = f'<span style="color:#1a7f37;{_MONO}">{as_html(line.new)}</span>' if line.new else ""
    return f" {' → '.join(filter(None, (old, new)))}" if old or new else ""


def _link(line: MessageLine) -> str:
    if not line.link:
        return ""
    words = "Review" if line.status == "needs a review" else "Open"
    return f'<p style="margin:8px 0 0"><a href="{as_html(line.link, 2_000)}" style="color:#0550ae">{words}</a></p>'
