"""Globs that people write for names: `*`, `?`, `[a-z]`, `[!a-z]`; with case.

The standard library looks for the end of each `[` as far as the text goes, so that a text of many of them takes hours.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase, translate
from functools import lru_cache


def glob_regex(glob: str) -> re.Pattern[str]:
    """Return the expression that matches whole names as the glob does."""
    return re.compile(translate(_closed(glob)))


def fits_glob(name: str, glob: str) -> bool:
    """Return whether a whole name is as the glob says."""
    return fnmatchcase(name, _closed(glob))


@lru_cache(1000)
def _closed(glob: str) -> str:
    """Return the same glob, in which each `[` that nothing ends is a set of one character."""
    parts, at, last = list[str](), 0, glob.rfind("]")
    while (begin := glob.find("[", at)) >= 0:
        first = begin + 1 + (glob[begin + 1 : begin + 2] == "!")
        first += glob[first : first + 1] == "]"  # as the first character it is one of the set
        end = glob.index("]", first) + 1 if first <= last else begin + 1
        parts += [glob[at:begin], glob[begin:end] if first <= last else "[[]"]
        at = end
    return "".join([*parts, glob[at:]])
