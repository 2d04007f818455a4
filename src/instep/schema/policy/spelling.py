"""How alike two names are, as people shorten, join and reorder words: a number, symmetric, 1 for equal names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")
SHORTENED = 0.9
"""A word and its abbreviation."""


@lru_cache(maxsize=4096)
def alike(a: str, b: str) -> float:
    """0 to 1; case, separators and the order of words count little, abbreviations (`cust_nm`, `dob`) nearly nothing."""
    if a == b:
        return 1.0
    left, right = words(a), words(b)
    if left == right:
        return 0.99
    if _initials(left, right) or _initials(right, left):
        return SHORTENED
    return round(max(_ratio("".join(left), "".join(right)), _by_words(left, right)), 4)


def words(name: str) -> tuple[str, ...]:
    """`customerName`, `CUSTOMER_NAME` and `customer name` as (customer, name)."""
    return tuple(w.casefold() for w in _WORDS.findall(name)) or (name.casefold(),)


def _by_words(left: Sequence[str], right: Sequence[str]) -> float:
    """Return each word with the one that is most like it on the other side."""
    there = [max(_word(a, b) for b in right) for a in left]
    back = [max(_word(b, a) for a in left) for b in right]
    return sum([*there, *back]) / (len(there) + len(back))


def _word(a: str, b: str) -> float:
    if a == b:
        return 1.0
    short, long = sorted((a, b), key=lambda w: (len(w), w))
    return max(_ratio(a, b), SHORTENED if _shortens(short, long) else 0.0)


def _shortens(short: str, long: str) -> bool:
    """Begin alike and leave letters out: `cust` or `cstmr` for `customer`, `qty` for `quantity`."""
    if len(short) < 2 or short[0] != long[0] or not short.isalpha() or len(short) == len(long):
        return False
    if long.startswith(short):
        return True
    rest = iter(long)
    return short[-1] == long[-1] and all(letter in rest for letter in short)


def _initials(short: Sequence[str], long: Sequence[str]) -> bool:
    return len(short) == 1 and len(long) > 1 and short[0] == "".join(w[0] for w in long)


def _ratio(a: str, b: str) -> float:
    """difflib's ratio depends on the order of its arguments."""
    return max(SequenceMatcher(None, a, b).ratio(), SequenceMatcher(None, b, a).ratio())
