"""What is said about a folder of files: where it is, which files are which table, and how they are written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from instep.schema.catalog.types import DataType, Int, String
from instep.schema.selection.selection import Pattern, patterns

SCHEMA = "files"
FILE, LINE, NUMBER = "_file", "_line", "_file_number"
METADATA: Mapping[str, DataType] = {FILE: String(), LINE: Int(64), NUMBER: Int(64)}
_VERSION = 1  # of what is inferred: a new one makes every file be looked at again

Format = Literal["auto", "parquet", "csv", "jsonl"]


@dataclass(frozen=True)
class FileOptions:
    """Format of a table's files. `nulls` are texts of a CSV file that stand for NULL unless they are quoted.
    `types` are declared types (text forms) by column, `key` the columns of which the newest row counts."""

    format: Format = "auto"
    delimiter: str = ","
    quote: str = '"'
    escape: str = ""
    header: bool = True
    encoding: str = "utf-8"
    nulls: tuple[str, ...] = ("",)
    types: Mapping[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Equal for options under which a file has the same columns."""
        said = {**asdict(self), "types": {}, "key": ()}
        return hashlib.sha256(json.dumps([_VERSION, said], sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class FilesConfig:
    """A folder (a path or a URI) and the properties that reach it, which may hold credentials.

    `name` is what the store keeps the folder's files under. `tables` is a glob below the folder in which `{table}`
    stands for the table's name, "" for: a folder is a table, and so is a file beside it. `include` and `exclude` are
    patterns for `table` or `files.table`. `metadata` names columns about the file that each row is in. Local files that
    changed less than `settle` seconds ago are left to the next read. `by_table` are options by pattern. Without
    `links` no file is read that a link leads to, outside of the folder.
    """

    path: str
    name: str = "files"
    tables: str = ""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()
    settle: float = 5.0
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: FileOptions = field(default_factory=FileOptions)
    by_table: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    links: bool = True

    def options_of(self, table: str) -> FileOptions:
        """Return those of a table: of several patterns the first that sets an option decides it."""
        said: dict[str, Any] = {}
        for pattern, more in self.by_table.items():
            if _named((Pattern(pattern),), table):
                said = {**more, **said}
        return replace(self.options, **said)

    def is_selected(self, table: str) -> bool:
        include, exclude = patterns(self.include), patterns(self.exclude)
        return (not include or _named(include, table)) and not _named(exclude, table)


def _named(wanted: tuple[Pattern, ...], table: str) -> bool:
    return any(p.matches(table) or p.matches(f"{SCHEMA}.{table}") for p in wanted)
