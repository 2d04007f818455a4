"""Identifiers of objects and secrets."""

from __future__ import annotations

import secrets as random

_ID_CHARACTERS = "abcdefghijkmnpqrstuvwxyz23456789"
_ID_LENGTH = 20  # 100 bits


def new_id() -> str:
    """Return an identifier that nobody can guess, of lower-case letters and digits; it begins with a letter."""
    characters = (random.choice(_ID_CHARACTERS) for _ in range(_ID_LENGTH - 1))
    return random.choice(_ID_CHARACTERS[:24]) + "".join(characters)
