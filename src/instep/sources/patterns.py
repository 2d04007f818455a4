"""Patterns of tables as sources match them: always the whole name, as a selection does."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from instep.errors import ProjectError, SchemaError
from instep.schema.selection.selection import Pattern

_GLOB = re.compile(r"[*?\[]")


def selects(include: Sequence[str], exclude: Sequence[str]) -> Callable[[str, str], bool]:
    """Tell of a schema and a name whether the table is included (by no pattern: all are) and not excluded. A pattern
    is about the name alone or behind its schema. Raises ProjectError for a bad regular expression."""
    wanted, unwanted = ([_pattern(text) for text in texts] for texts in (include, exclude))

    def selected(schema: str, name: str) -> bool:
        paths = (name, f"{schema}.{name}")
        included = not wanted or any(p.matches(path) for p in wanted for path in paths)
        return included and not any(p.matches(path) for p in unwanted for path in paths)

    return selected


def _pattern(text: str) -> Pattern:
    try:
        return Pattern(text)
    except SchemaError as error:
        raise ProjectError(f"pattern {text!r}: {error.message}", hint="correct `include` or `exclude`") from None


def is_regex(pattern: str) -> bool:
    return pattern.startswith("re:")


def whole_regex(pattern: str) -> str:
    """Return the regular expression behind `re:` for servers, which look for it anywhere in a text; `(?i)` stays in
    front."""
    text = pattern.removeprefix("re:")
    flags = "(?i)" if text.startswith("(?i)") else ""
    return f"{flags}^(?:{text.removeprefix(flags)})$"


def is_glob(pattern: str) -> bool:
    return _GLOB.search(pattern) is not None


def glob_to_like(pattern: str) -> str:
    """Return a shell pattern without classes."""
    escaped = re.sub(r"([\\%_])", r"\\\1", pattern)
    return escaped.replace("*", "%").replace("?", "_")


def glob_to_regex(pattern: str) -> str:
    """Return a shell pattern with classes as a regular expression over the whole text."""
    parts = re.findall(r"\[!?\]?[^\]]*\]|.", pattern, re.DOTALL)
    return "^" + "".join(map(_part, parts)) + "$"


def _part(part: str) -> str:
    if part in ("*", "?"):
        return ".*" if part == "*" else "."
    return _class(part[1:-1]) if len(part) > 1 else re.escape(part)


def _class(body: str) -> str:
    """Return the inside of `[...]`: only `!` negates there."""
    negated, members = body.startswith("!"), body.removeprefix("!").replace("\\", "\\\\")
    escaped = "\\" + members if members.startswith("^") else members
    return f"[{'^' * negated}{escaped}]"
