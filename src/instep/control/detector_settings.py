"""Options of a scheduled detector: read from a connection's document, and changed in it."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from instep.errors import InstepError
from instep.project.detector import SHORT, AppOptions, ColumnOptions

_OF_APP, _OF_TABLE = frozenset(AppOptions.model_fields), frozenset(ColumnOptions.model_fields)


def option(name: str, *, of_table: bool) -> str:
    """The long name of an option; InstepError for what is none of a source, or of a table."""
    known = _OF_TABLE if of_table else _OF_APP
    whole = next((long for long, short in SHORT.items() if name in (long, short)), "")
    if whole in known:
        return whole
    if whole:
        hint = "name a table: --table schema.table" if not of_table else "leave --table out"
        raise InstepError(f"{name} is an option of {'a source' if of_table else 'tables'}", hint=hint)
    names = [n for long in known for n in (long, SHORT[long])]
    near = get_close_matches(name, names, 1)
    raise InstepError(
        f"there is no option {name!r}",
        hint=f"did you mean {near[0]}?" if near else f"one of: {', '.join(sorted(SHORT[n] for n in known))}",
    )


def patch(spec: Mapping[str, Any], options: Mapping[str, Any], table: str = "") -> dict[str, Any]:
    """The merge patch (RFC 7396) of a connection's document that sets these options by their long names, of a table's
    pattern or of the source as a whole; None takes one away. An option keeps the name that the document has for it."""
    section = "table_options" if table else "app_options"
    there = spec.get(section) or {}
    if table:
        there = there.get(table) or {}
    changed = {SHORT[name] if SHORT[name] in there else name: value for name, value in options.items()}
    return {section: {table: changed} if table else changed}
