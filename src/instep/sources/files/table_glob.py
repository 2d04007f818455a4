"""The glob that tells the table of a file: `*` and `?` stay within a folder, `**` crosses folders, `{table}` is the
table's name.

Python's expressions try each way through a path, and so forever where there are many wildcards. With more than three
the same ways are tried in the same order, and none from one place twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from instep.errors import ProjectError

MOST_TRIES = 1_000_000
"""The ways through a path that Python's engine may have to try."""
_TABLE, _FOLDERS = "{table}", "**/"
_WORDS = {_TABLE: "(?P<table>[^/]+?)", _FOLDERS: "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@dataclass(frozen=True)
class FileGlob:
    """Raises ProjectError for a glob that does not say where the table is."""

    text: str

    def __post_init__(self) -> None:
        if self.text.count(_TABLE) != 1:
            raise ProjectError(
                f"tables: {self.text!r} does not say which part of a path is the table",
                hint='write {table} once, as in "{table}/*.csv" or "{table}-*.parquet"',
            )

    def table_of(self, name: str) -> str | None:
        """Return the table of a path, None if the glob does not fit it."""
        wild = sum(part in _WORDS and part != "?" for part in self._parts)
        if wild <= 3 or len(name) ** wild <= MOST_TRIES:
            match = self._expression.fullmatch(name)
            return match["table"] if match else None
        return self._walked(name)

    @cached_property
    def _parts(self) -> list[str]:
        text = re.sub(r"(\*\*/)+", _FOLDERS, self.text)  # any number of folders, of which each may be none
        return [part for part in re.split(r"(\{table\}|\*\*/|\*\*|\*|\?)", text) if part]

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        return re.compile("".join(_WORDS.get(part) or re.escape(part) for part in self._parts), re.DOTALL)

    def _walked(self, name: str) -> str | None:
        """Return the table as the expression finds it. `endings`: where each part that fits so far may end."""
        endings: list[Iterator[int]] = [self._ends(0, name, 0)]
        places, tried = [0], set[tuple[int, int]]()
        while endings:
            end = next(endings[-1], None)
            if end is None:
                endings.pop()
                places.pop()
            elif len(endings) == len(self._parts):
                if end == len(name):
                    at = self._parts.index(_TABLE)
                    return name[places[at] : (*places, end)[at + 1]]
            elif (len(endings), end) not in tried:
                tried.add((len(endings), end))
                places.append(end)
                endings.append(self._ends(len(endings), name, end))
        return None

    def _ends(self, number: int, name: str, at: int) -> Iterator[int]:
        """Yield the places where a part that begins at `at` may end: for a table early ones first, else late ones."""
        part, folder = self._parts[number], name.find("/", at)
        until = len(name) if folder < 0 else folder
        if part == _TABLE:
            yield from range(at + 1, until + 1)
        elif part == _FOLDERS:
            yield from (end + 1 for end in range(len(name) - 1, at - 1, -1) if name[end] == "/")
            yield at
        elif part in ("*", "**"):
            yield from range(until if part == "*" else len(name), at - 1, -1)
        elif part == "?":
            yield from (at + 1,) if at < until else ()
        elif name.startswith(part, at):
            yield at + len(part)
