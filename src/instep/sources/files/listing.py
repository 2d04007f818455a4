"""Listing of files: which table each belongs to, and which are still being written."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from instep.errors import ConnectError, InstepError, ProjectError
from instep.sources.files.config import FilesConfig
from instep.stage.files.place import StorageFolder

FORMATS = {
    "parquet": "parquet",
    "pq": "parquet",
    "csv": "csv",
    "tsv": "csv",
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "json": "jsonl",
}
PACKED = {"gz": "gzip", "zst": "zstd", "bz2": "bz2"}


@dataclass(frozen=True)
class FileState:
    """One file at one moment. `name` is its path below the source's folder; `version` changes with its content as far
    as the listing tells."""

    name: str
    size: int
    version: str

    @property
    def suffixes(self) -> list[str]:
        return self.name.rpartition("/")[2].lower().split(".")[1:]

    @property
    def packed(self) -> str:
        """The compression of the file as a whole, "" without."""
        return PACKED.get(self.suffixes[-1], "") if self.suffixes else ""

    def format(self, setting: str) -> str:
        """Return parquet, csv or jsonl, by the file's name unless `setting` names it; "" if the name does not tell."""
        if setting != "auto":
            return setting
        suffixes = self.suffixes[:-1] if self.packed else self.suffixes
        return FORMATS.get(suffixes[-1], "") if suffixes else ""


@dataclass(frozen=True)
class FileListing:
    """Files by table in order of their names; `unsettled` are tables with files that are being written."""

    files: Mapping[str, tuple[FileState, ...]]
    unsettled: Mapping[str, tuple[FileState, ...]] = field(default_factory=dict)


def listing(config: FilesConfig, now: float | None = None) -> FileListing:
    """List the files that are there now; raises ConnectError."""
    place = config.folder
    latest = (time.time() if now is None else now) - config.settle if place.local is not None else float("inf")
    files: dict[str, list[FileState]] = {}
    unsettled: dict[str, list[FileState]] = {}
    for state, modified in sorted(_all(config, place), key=lambda found: found[0].name):
        table = table_of(config, state)
        if table is not None and config.is_selected(table):
            (files if modified <= latest else unsettled).setdefault(table, []).append(state)
    return FileListing({t: tuple(f) for t, f in files.items()}, {t: tuple(f) for t, f in unsettled.items()})


def _all(config: FilesConfig, place: StorageFolder) -> Iterable[tuple[FileState, float]]:
    """Yield files with the time of their last change in seconds; hidden ones and those of unfinished jobs are left
    out."""
    from pyarrow import fs

    with _reached(config):
        filesystem, root = place.resolve("")
        root = root.rstrip("/")
        _check_folder(config, filesystem, root)
        found = filesystem.get_file_info(fs.FileSelector(root, recursive=True))
        if place.local is not None:
            found = _named(config, Path(root), found)
        if place.local is not None and not config.links:
            _check_links(config, [info.path for info in found])
    for info in found:
        name = info.path.removeprefix(root).lstrip("/")
        if info.type == fs.FileType.File and not _is_hidden(name):
            yield FileState(name, int(info.size), str(info.mtime_ns)), (info.mtime_ns or 0) / 1e9


def _named(config: FilesConfig, folder: Path, found: Iterable[Any]) -> list[Any]:
    """Return the files whose names are text. Raises ConnectError for another one that belongs to a selected table: it
    cannot be opened by its name."""
    named, unnamed = [], 0
    for info in found:
        try:
            named += [info] if info.path else []
        except UnicodeDecodeError:
            unnamed += 1
    for path in folder.rglob("*") if unnamed else ():
        raw = os.fsencode(path.relative_to(folder))
        name = raw.decode("utf-8", "backslashreplace")
        table = table_of(config, FileState(name, 0, ""))
        if name.encode() != raw and table and config.is_selected(table) and not _is_hidden(name):
            hint = "rename it, or move it out of the folder"
            raise ConnectError(f"the name of {name} in {config.path} is no text in UTF-8", hint=hint)
    return named


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "_")) for part in name.split("/"))


def _check_links(config: FilesConfig, paths: Iterable[str]) -> None:
    """Raise ConnectError for what a link leads out of the folder to."""
    folder = os.path.realpath(config.path)
    for path in paths:
        if not os.path.realpath(path).startswith(f"{folder}/"):
            raise ConnectError(
                f"{path} leads out of {config.path}: a source that comes from an API reads its own folder alone",
                hint="take the link away, or describe the source in instep.yml",
            )


def _check_folder(config: FilesConfig, filesystem: Any, root: str) -> None:
    """Raise an error if the folder is not there or cannot be reached. An object store has no folders: any answer
    will do."""
    from pyarrow import fs

    found = filesystem.get_file_info(root)
    if config.folder.local is not None and found.type != fs.FileType.Directory:
        raise ConnectError(
            f"{config.path} is not a folder", hint="check `path`; relative paths start at the project folder"
        )


def check_reachable(config: FilesConfig) -> None:
    """Raise ConnectError if the folder has gone or its storage does not answer."""
    with _reached(config):
        filesystem, root = config.folder.resolve("")
        _check_folder(config, filesystem, root.rstrip("/"))


@contextmanager
def _reached(config: FilesConfig) -> Iterator[None]:
    try:
        yield
    except InstepError:
        raise
    except Exception as error:
        message = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConnectError(
            f"{config.path} cannot be listed: {message}", hint="check `path`, `properties` and the rights to read it"
        ) from None


def table_of(config: FilesConfig, file: FileState) -> str | None:
    """Return the table that a file belongs to, None if it belongs to none."""
    if config.tables:
        found = _compiled(config.tables).fullmatch(file.name)
        table = found["table"] if found else None
    else:
        folder, _, rest = file.name.partition("/")
        table = folder if rest else stem(file)
    return table if table and file.format(config.options_of(table).format) else None


def stem(file: FileState) -> str:
    """Return the name of a file without the endings that tell how it is written."""
    parts = file.name.rpartition("/")[2].split(".")
    while len(parts) > 1 and parts[-1].lower() in {*FORMATS, *PACKED}:
        parts.pop()
    return ".".join(parts)


@lru_cache(64)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern in which `*` and `?` stay within a folder and `**` crosses folders."""
    if pattern.count("{table}") != 1:
        raise ProjectError(
            f"tables: {pattern!r} does not say which part of a path is the table",
            hint='write {table} once, as in "{table}/*.csv" or "{table}-*.parquet"',
        )
    words: dict[str, Any] = {"{table}": "(?P<table>[^/]+?)", "**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\{table\}|\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(words.get(part) or re.escape(part) for part in parts))
