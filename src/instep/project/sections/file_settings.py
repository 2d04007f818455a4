"""Folders that paths may lead to which come through an API; links are followed before a path is judged.

How the files of a source of files are written: for all of its tables, and by pattern for some.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from instep.errors import SchemaError
from instep.project.sections.values import Section, Words
from instep.schema.catalog.types import parse

SHELVES = ("data", "lakes")
"""Below the project's folder, unless the project file names others."""
CONNECTORS, DRIVERS = "connectors", "drivers"
"""Below the project's folder: code that a server may run for whoever writes sources over it."""
_PRIVATE = (".instep", ".env", "instep.yml", CONNECTORS, DRIVERS)
_SQLITE = "sqlite:///"
_ESCAPES = frozenset("%?#")
"""Characters that a library that takes paths as addresses reads as something else."""


@dataclass(frozen=True)
class Shelves:
    """Places that an API reaches. `folders` and `private` are real paths below or beside `root`: what is `private` is
    on no shelf, wherever it is. `hosts` are the inner networks and hosts that may be sent something."""

    root: Path
    named: tuple[str, ...]
    folders: tuple[Path, ...]
    private: tuple[Path, ...]
    hosts: tuple[str, ...] = ()

    @classmethod
    def of(cls, root: Path, named: Iterable[str], store_url: str, hosts: tuple[str, ...] = ()) -> Shelves:
        """Return the shelves of a project in `root`, whose control store is at `store_url`."""
        names, real = tuple(named), root.resolve()
        folders = tuple(resolved for name in names if (resolved := real_path(real, name)))
        store = [Path(store_url.removeprefix(_SQLITE))] if store_url.startswith(_SQLITE) else []
        own = (*map(Path, _PRIVATE), *store)
        private = tuple(real_path(real, str(path)) or path for path in own)
        return cls(real, names, folders, private, hosts)

    def refusal(self, setting: str) -> str:
        """Say why a path is refused, "" if it is on a shelf."""
        path = real_path(self.root, setting)
        if path is None or set(setting) & _ESCAPES:
            return f"must be a path without % ? #, {self._where}"
        if not any(_is_inside(path, folder) for folder in self.folders):
            return f"must be {self._where}, links followed: an API reaches no other files"
        if any(_is_inside(path, own) or _is_inside(own, path) for own in self.private):
            return "holds, or is a part of, what is the project's own (.instep, its store, its code, its settings)"
        return ""

    def code_refusal(self, setting: str, folder: str, what: str) -> str:
        """Say why a path is refused that must be below `folder` of the project, "" if it is."""
        shelf, path = real_path(self.root, folder), real_path(self.root, setting)
        if shelf is not None and path is not None and shelf in path.parents:
            return ""
        return f"must be a {what} below {folder}/ of the project: what the server keeps runs no other code"

    @property
    def _where(self) -> str:
        folders = ", ".join(f"{name.rstrip('/')}/" for name in self.named) or "no folder"
        return f"below {folders} (`shelves` of instep.yml)"


def real_path(root: Path, setting: str) -> Path | None:
    """Return where a path of the project leads, all links followed; None if it is an address, or its links lead round
    in a circle."""
    if "://" in setting:
        return None
    try:
        path = Path(os.path.realpath(root / Path(setting).expanduser(), strict=False))
    except (OSError, RuntimeError, ValueError):
        return None
    return None if any(map(os.path.islink, (path, *path.parents))) else path


def _is_inside(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents


FileFormat = Literal["auto", "parquet", "csv", "jsonl"]
FileColumn = Literal["_file", "_line", "_file_number"]


def _type(text: str) -> str:
    try:
        return str(parse(text))
    except SchemaError as error:
        raise PydanticCustomError("type", "{why}", {"why": f"{error.message}; {error.hint}"}) from None


def _encoding(text: str) -> str:
    try:
        "".encode(text)  # a codec of bytes, such as base64, is looked up as well, and refused here
    except (LookupError, ValueError):
        raise PydanticCustomError("encoding", "unknown encoding: write utf-8, latin-1, cp1252, ...") from None
    return text


def _glob(text: str) -> str:
    if text and text.count("{table}") != 1:
        why = 'must hold {table} once, as in "{table}/*.csv"'
        raise PydanticCustomError("tables", "{why}", {"why": why})
    return text


TableGlob = Annotated[str, AfterValidator(_glob)]
Character = Annotated[str, Field(max_length=1)]


class FileOptions(Section):
    """Options of files; a key that is not set for a pattern is inherited from the source."""

    format: FileFormat = "auto"
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    quote: Character = '"'
    escape: Character = ""
    header: bool = True
    encoding: Annotated[str, AfterValidator(_encoding)] = "utf-8"
    nulls: tuple[str, ...] = ("",)
    types: dict[str, Annotated[str, AfterValidator(_type)]] = Field(default_factory=dict)
    key: Words = ()
    skip: Words = ()
    """Globs of files that are left out without a word: of their names, or with a "/" of their paths."""

    def set_options(self) -> dict[str, Any]:
        """Return the options that are set."""
        names = FileOptions.model_fields.keys() & self.model_fields_set
        return {name: getattr(self, name) for name in FileOptions.model_fields if name in names}
