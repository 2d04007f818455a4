"""Suggest similar names in messages about an unknown name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

LIKE = 0.6
"""How much of two names has to be the same, from 0 to 1."""


def closest(name: str, known: Iterable[str], most: int = 1, *, like: float = LIKE) -> list[str]:
    """Return up to `most` of the known names that are like `name`, the closest first."""
    return get_close_matches(name, list(known), most, like)


def did_you_mean(
    name: str,
    known: Iterable[str],
    otherwise: str = "",
    *,
    form: str = "did you mean {}?",
    most: int = 1,
    like: float = LIKE,
) -> str:
    """Return the question with the closest known names in place of `{}`; if no name is close, return `otherwise`."""
    near = closest(name, known, most, like=like)
    return form.format(" or ".join(near)) if near else otherwise
