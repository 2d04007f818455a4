"""Values in messages."""

from __future__ import annotations

CUT = "…"
"""Stands at the end of what was cut: whoever takes secrets out of the message looks for half a one before it."""


def shown(value: object, most: int) -> str:
    """Return a value as Python writes it, cut to so many characters and marked as such."""
    return cut(repr(value), most)


def cut(text: str, most: int) -> str:
    """Return the text, cut to so many characters and marked as such."""
    return text if len(text) <= most else f"{text[:most]}{CUT}"
