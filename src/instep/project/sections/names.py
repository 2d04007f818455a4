"""Names and expressions of tables and columns as the patterns of a selection or a rule.

A name without a schema stands for tables of that name in every schema. An expression is compared with the whole
name, a table's with its schema where the expression has an escaped dot.
"""

from __future__ import annotations

import re

from instep.errors import SchemaError

_WILD = re.compile(r"[*?\[]")
_PART = re.compile(r"(?P<any>\*)|(?P<one>\?)|(?P<set>\[!?\]?[^\]]*\])|(?P<other>.)", re.DOTALL)
_ANCHOR = re.compile(r"(?:\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\\[])*?(?P<anchor>[\^$])", re.DOTALL)


def exact(name: str) -> str:
    """Return a whole name as a pattern that matches nothing else."""
    return _WILD.sub(lambda match: f"[{match[0]}]", name)


def table_pattern(name: str) -> str:
    """Return an exact table name as a pattern."""
    return exact(name) if "." in name else f"*.{exact(name)}"


def table_regex(text: str) -> str:
    """Return an expression for table names as a pattern. SchemaError if it is wrong or may be slow."""
    flags, bare = _bare(text)
    return f"re:{flags}{bare}" if r"\." in bare else f"re:{flags}[^.]+\\.(?:{bare})"


def column_pattern(table: str, name: str) -> str:
    """Return an exact column name in the tables of a pattern, as a pattern."""
    if table.startswith("re:"):
        return f"{_table(table)}\\.{re.escape(name)}"
    return f"{table}.{exact(name)}"


def column_regex(table: str, text: str) -> str:
    """Return an expression for column names in the tables of a pattern, as a pattern. SchemaError as `table_regex`."""
    flags, bare = _bare(text)
    return f"{_table(table, flags)}\\.(?:{bare})"


def table_match(table: str) -> tuple[str, ...]:
    """Return the pattern of a rule about tables: none for all of them. A glob is written out, because the globs of
    rules are also compared with columns, and `*.note` would mean every column of that name."""
    if table in ("*", "*.*"):
        return ()
    if not _WILD.search(table) or table.startswith("re:"):
        return (f"re:^(?:{table[3:]})$",) if table.startswith("re:") else (table,)
    return (f"re:^{_glob(table, '[^.]*' if '.' in table else '.*')}$",)


def _table(table: str, flags: str = "") -> str:
    if table.startswith("re:"):
        return f"re:{flags}(?:{table[3:]})"
    return f"re:{flags}{_glob(table, '.*') if _WILD.search(table) else re.escape(table)}"


def _glob(text: str, many: str) -> str:
    """Return a glob as an expression; `many` stands for `*`."""
    parts = []
    for match in _PART.finditer(text):
        if match.lastgroup == "set":
            parts.append(f"[{'^' * (match[0][1] == '!')}{match[0].removeprefix('[').removeprefix('!')}")
        else:
            parts.append({"any": many, "one": "."}.get(match.lastgroup or "") or re.escape(match[0]))
    return "".join(parts)


def _bare(text: str) -> tuple[str, str]:
    """Return (flags, the expression without anchors): the whole name is compared anyway."""
    flags = "(?i)" if text.startswith("(?i)") else ""
    bare = text.removeprefix(flags).removeprefix("^")
    if bare.endswith("$") and not bare.endswith(r"\$"):
        bare = bare[:-1]
    if (match := _ANCHOR.match(bare)) and match["anchor"]:
        raise SchemaError(
            f"the regular expression {text!r} has {match['anchor']} inside",
            hint="the whole name is compared: leave it out",
        )
    return flags, bare
