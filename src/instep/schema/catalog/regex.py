"""Refuses regular expressions that could take long on some name: before they run, not while they run.

Python's engine backtracks, so its time grows with the number of repeats of variable length, and exponentially
when they are nested. Names are short: a few repeats that are not nested end within milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from instep.errors import SchemaError

MAX_LENGTH = 200
MAX_REPEATS = 4
MAX_COUNT = 100

_HINT = "a glob such as public.log_* is enough for most"
_TOKEN = re.compile(
    r"(?P<back>\\[1-9])|(?P<escape>\\.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<special>\(\?[^:])"
    r"|(?P<open>\((?:\?:)?)|(?P<close>\))|(?P<repeat>(?:[*+?]|\{\d*,?\d*\})[?+]?)|(?P<either>\|)|(?P<other>.)",
    re.DOTALL,
)


def check_regex(text: str) -> None:
    """Raise SchemaError, saying why, for an expression that is not valid or not surely quick.

    Refused: more than 200 characters, more than 4 repeats of variable length, `{n}` above 100, a repeat of a group
    that itself repeats or has alternatives, look-around, back references. `(?i)` at the start is allowed.
    """
    if why := _slow(text):
        raise SchemaError(f"the regular expression {text!r} {why}", hint=_HINT)
    try:
        re.compile(text)
    except re.error as error:
        raise SchemaError(f"the regular expression {text!r} is not valid: {error}", hint=_HINT) from error


def _slow(text: str) -> str:
    if len(text) > MAX_LENGTH:
        return f"is longer than {MAX_LENGTH} characters"
    variable = 0
    for kind, token, inner in _walk(text.removeprefix("(?i)")):
        if kind in ("back", "special"):
            return f"uses {token}, which may be slow"
        if kind == "repeat" and inner and token[0] != "?":
            return "repeats a group that itself repeats or has alternatives"
        if kind == "repeat" and any(int(n) > MAX_COUNT for n in re.findall(r"\d+", token)):
            return f"repeats more than {MAX_COUNT} times"
        variable += kind == "repeat" and not re.fullmatch(r"\{\d+\}[?+]?", token)
    return f"has more than {MAX_REPEATS} repeats of variable length" if variable > MAX_REPEATS else ""


def _walk(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield (kind, token, whether the part that the token follows holds a repeat or alternatives)."""
    groups, last = [False], False
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "other"
        yield kind, match[0], last
        if kind == "open":
            groups.append(False)
        elif kind == "close" and len(groups) > 1:
            last = groups.pop()
            groups[-1] |= last
            continue
        elif kind in ("repeat", "either"):
            groups[-1] = True
        last = False
