"""Shell patterns of names as servers match them: LIKE and regular expressions."""

from __future__ import annotations

import re

_GLOB = re.compile(r"[*?\[]")


def is_glob(pattern: str) -> bool:
    return _GLOB.search(pattern) is not None


def glob_to_like(pattern: str) -> str:
    """A shell pattern without classes."""
    escaped = re.sub(r"([\\%_])", r"\\\1", pattern)
    return escaped.replace("*", "%").replace("?", "_")


def glob_to_regex(pattern: str) -> str:
    """A shell pattern with classes as a regular expression over the whole text."""
    parts = re.findall(r"\[!?\]?[^\]]*\]|.", pattern, re.DOTALL)
    return "^" + "".join(map(_part, parts)) + "$"


def _part(part: str) -> str:
    if part in ("*", "?"):
        return ".*" if part == "*" else "."
    return _class(part[1:-1]) if len(part) > 1 else re.escape(part)


def _class(body: str) -> str:
    """The inside of `[...]`: only `!` negates there."""
    negated, members = body.startswith("!"), body.removeprefix("!").replace("\\", "\\\\")
    escaped = "\\" + members if members.startswith("^") else members
    return f"[{'^' * negated}{escaped}]"
