"""Parts of a read's queries that sources share.

Patterns of tables as sources match them: always the whole name, as a selection does.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from itertools import pairwise

from instep.errors import ProjectError, ReadError, SchemaError
from instep.schema.catalog.catalog import Catalog, Column
from instep.schema.planning.projection import TableRead
from instep.schema.selection.selection import Pattern


def source_columns(read: TableRead, columns: Sequence[str]) -> list[Column]:
    """Return the source columns of the accepted ones named here, of all if none is named; ReadError if nothing is
    left."""
    columns_left = [c.source for c in read.columns if c.source and (not columns or c.column.name in columns)]
    if not columns_left:
        raise ReadError(f"{read.source.path}: no column is left to read", hint="switch a column on, or the table off")
    return columns_left


def cursor_source(read: TableRead, column: str) -> Column:
    """Return the source column of the accepted one that is the cursor."""
    cursor = next((c.source for c in read.columns if c.column.name == column), None)
    if cursor is None:
        raise ReadError(f"{read.source.path} has no column {column} to be its cursor", hint="choose another cursor")
    return cursor


def filters(read: TableRead) -> list[str]:
    """Return the row filter, if there is one, as a condition."""
    return [read.condition] if read.where else []


def rows_where(select: str, conditions: Sequence[str]) -> str:
    """Return a query of the rows that meet all conditions."""
    return f"{select} WHERE {' AND '.join(conditions)}" if conditions else select


def ranges(key: str, bounds: Sequence[int]) -> list[list[str]]:
    """Return the conditions of each part of a table that is divided at these values of `key`; the first and the last
    part are open, so that rows that come meanwhile belong to one of them."""
    if not bounds:
        return [[]]
    inner = [[f"{key} >= {low}", f"{key} < {high}"] for low, high in pairwise(bounds)]
    return [[f"{key} < {bounds[0]}"], *inner, [f"{key} >= {bounds[-1]}"]]


def digest(parts: Sequence[object]) -> str:
    """Return the first 32 hex digits of the SHA-256 of what is to be equal while a catalog is unchanged."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def differing(expected: Catalog, catalog: Catalog) -> frozenset[tuple[str, str]]:
    """Return the tables of `expected` that `catalog` lacks or has otherwise, but for what only we know of a table."""
    bare = (replace(t, cursor=None, generation=0, alias="") for t in expected.tables)
    return frozenset(t.ref for t in bare if catalog.get(t.ref) != t)


def moved_back(after: str | None, lookback: float, column: str) -> str | None:
    """Return `after` less `lookback`: seconds for a date or time, units for a number. The form stays (`T` or a
    space, fraction digits, offset), as texts are compared letter by letter. Raises ReadError for other text."""
    if after is None or not lookback:
        return after
    try:
        return format(Decimal(after) - Decimal(str(lookback)), "f")
    except InvalidOperation:
        pass
    try:
        moment = datetime.fromisoformat(after)
    except ValueError:
        raise ReadError(
            f"cursor {column}: {after!r} is neither a number nor a date, so it cannot be moved back",
            hint="set the lookback of this table to 0",
        ) from None
    return _like(moment - timedelta(seconds=lookback), after)


def _like(moment: datetime, form: str) -> str:
    if len(form) == len("2024-01-01"):
        return moment.strftime("%Y-%m-%d")
    separator = form[10]
    zone = form.endswith("Z")
    clock = form[11:].rstrip("Z").split("+")[0].split("-")[0]
    digits = clock.partition(".")[2]
    precision = "minutes" if clock.count(":") == 1 else "microseconds" if digits else "seconds"
    shown = moment.replace(tzinfo=None).isoformat(separator, precision)
    shown = shown[: len(shown) - 6 + len(digits)] if 0 < len(digits) < 6 else shown
    offset = "Z" if zone else form[11 + len(clock) :]
    return shown + offset


_GLOB = re.compile(r"[*?\[]")


def selects(include: Sequence[str], exclude: Sequence[str]) -> Callable[[str, str], bool]:
    """Return a test whether a table (schema, name) is included (by no pattern: all are) and not excluded. A pattern
    is about the name alone or behind its schema. Raises ProjectError for a bad regular expression."""
    included_by, excluded_by = ([_pattern(text) for text in texts] for texts in (include, exclude))

    def selected(schema: str, name: str) -> bool:
        paths = (name, f"{schema}.{name}")
        included = not included_by or any(p.matches(path) for p in included_by for path in paths)
        return included and not any(p.matches(path) for p in excluded_by for path in paths)

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
