"""Configuration of a folder of files: where it is, which files are which table, and how they are written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Literal

from instep.project.sections.file_settings import FileOptions
from instep.project.sections.sources import FilesSourceSection
from instep.project.sections.values import as_text
from instep.schema.catalog.globs import fits_glob
from instep.schema.catalog.types import DataType, Int, String
from instep.schema.selection.selection import Pattern, patterns
from instep.stage.files.place import StorageFolder

SCHEMA = "files"
FILE, LINE, NUMBER = "_file", "_line", "_file_number"
METADATA: Mapping[str, DataType] = {FILE: String(), LINE: Int(64), NUMBER: Int(64)}
_VERSION = 1  # of what is inferred: a new one makes every file be looked at again


def options_digest(options: FileOptions) -> str:
    """Return a digest that is equal for options under which a file has the same columns."""
    values = {**options.model_dump(exclude={"skip"}), "types": {}, "key": ()}
    return hashlib.sha256(json.dumps([_VERSION, values], sort_keys=True).encode()).hexdigest()[:16]


class FilesConfig(FilesSourceSection):
    """A folder, and how its files are written."""

    type: Literal["files"] = "files"
    name: str = "files"
    """What the store keeps the folder's files under. Patterns are for `table` or `files.table`."""
    links: bool = True
    """Without `links` no file is read that a link leads to, outside of the folder."""

    @property
    def folder(self) -> StorageFolder:
        return StorageFolder(self.path, as_text(self.properties))

    def options_of(self, table: str) -> FileOptions:
        """Return the options of a table: of several patterns, the first that sets an option decides it."""
        values = self.set_options()
        for pattern, more in reversed(self.options.items()):
            if _named((Pattern(pattern),), table):
                values |= more.set_options()
        return FileOptions.model_construct(**values)

    def skips(self, table: str, path: str) -> bool:
        """Return whether the options of a table leave a file out: `path` is that below the source's folder."""
        name = path.rpartition("/")[2]
        return any(
            fits_glob((path if "/" in pattern else name).lower(), pattern.lower())
            for pattern in self.options_of(table).skip
        )

    def is_selected(self, table: str) -> bool:
        include, exclude = patterns(self.include), patterns(self.exclude)
        return (not include or _named(include, table)) and not _named(exclude, table)


def _named(listed: tuple[Pattern, ...], table: str) -> bool:
    return any(p.matches(table) or p.matches(f"{SCHEMA}.{table}") for p in listed)
