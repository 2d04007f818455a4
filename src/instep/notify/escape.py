"""Names of others in messages: they may be anything, and must neither format nor link nor call anybody."""

from __future__ import annotations

import html
import re

_HIDDEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
LONGEST = 200


def shown(text: str, longest: int = LONGEST) -> str:
    """One line without control, direction or invisible characters (they become `\\x1b`), cut in the middle."""
    line = _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    if len(line) <= longest:
        return line
    half = (longest - 1) // 2
    return f"{line[:half]}…{line[-(longest - 1 - half) :]}"


def as_html(text: str, longest: int = LONGEST) -> str:
    return html.escape(shown(text, longest), quote=True)


def as_slack(text: str, longest: int = LONGEST) -> str:
    """Text in which nothing means anything to Slack: neither links nor mentions nor emphasis nor emoji."""
    safe = shown(text, longest).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([*_~`:@#])", "\u200b\\1\u200b", safe)


def as_code(text: str, longest: int = LONGEST) -> str:
    """Return a name as Slack's inline code."""
    safe = shown(text, longest).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"`{safe.replace('`', chr(0x2CB))}`" if safe.strip() else "` `"


def as_markdown(text: str, longest: int = LONGEST) -> str:
    """Text in which nothing means anything to Markdown, or to HTML within it."""
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|~<>&:@$^=])", r"\\\1", shown(text, longest))
