"""Texts of others, shown harmlessly: what a server says must neither move the cursor nor pass for what we say."""

from __future__ import annotations

import re

HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """Control characters as escapes (`\\x1b`); line breaks and tabs stay."""
    return HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """As `visible`, with line breaks and tabs as escapes, too: one name, one line."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def quoted(text: str, most: int = 500) -> str:
    """As `one_line`, and what is longer than `most` characters is cut."""
    return one_line(text if len(text) <= most else f"{text[:most]} ... ({len(text):,} characters)")
