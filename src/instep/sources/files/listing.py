"""Listing of files: which table each belongs to, and which are still being written."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from instep.errors import ConnectError, InstepError
from instep.sources.files.config import FilesConfig
from instep.sources.files.table_glob import FileGlob
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
UNREAD_DATA = re.compile(
    "7z|arrow|avro|br|bson|dbf|feather|h5|hdf5|ipc|lz4|lzma|msgpack|orc|pb|rar|sas7bdat|snappy|sqlite|sz|tar|tgz|"
    "xls[bmx]?|xml|xz|z|zip"
)
"""Endings of files that have data for sure, and that no reader takes."""


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
    unread: Mapping[str, tuple[FileState, ...]] = field(default_factory=dict)
    """Files that no reader takes and no setting leaves out, by the table that they would belong to; "" for those beside
    the folders of tables that hold no data by their endings."""


def listing(config: FilesConfig, now: float | None = None) -> FileListing:
    """List the files that are there now; raises ConnectError."""
    place = config.folder
    latest = (time.time() if now is None else now) - config.settle if place.local is not None else float("inf")
    files: dict[str, list[FileState]] = {}
    unsettled: dict[str, list[FileState]] = {}
    unread: dict[str, list[FileState]] = {}
    for state, modified in sorted(_all(config, place), key=lambda entry: entry[0].name):
        table = table_of(config, state)
        if table is None:
            if (name := _unread_table(config, state)) is not None and config.is_selected(name):
                unread.setdefault(name, []).append(state)
        elif config.is_selected(table):
            (files if modified <= latest else unsettled).setdefault(table, []).append(state)
    return FileListing(*({t: tuple(f) for t, f in lists.items()} for lists in (files, unsettled, unread)))


def _unread_table(config: FilesConfig, file: FileState) -> str | None:
    """Return the table that a file without a reader would belong to; None for one that a setting leaves out."""
    table = _place_of(config, file)
    if table is not None and not config.tables and "/" not in file.name:
        name, _, ending = file.name.rpartition(".")
        is_data = bool(name) and UNREAD_DATA.fullmatch(ending.lower()) is not None
        return None if config.skips(name or table, file.name) else name if is_data else ""
    return None if table is None or config.skips(table, file.name) else table


def unread_text(files: Sequence[FileState]) -> str:
    """Return why files are not read: how many of each ending, and the first by name."""
    endings = Counter(f".{f.suffixes[-1]}" if f.suffixes else "no ending" for f in files)
    shown = ", ".join(f"{ending} {count:,}" for ending, count in endings.most_common(5))
    shown += f", {len(endings) - 5} more" if len(endings) > 5 else ""
    what = "1 file is" if len(files) == 1 else f"{len(files):,} files are"
    return (
        f"{what} not read, for no reader takes the format ({shown}; {files[0].name}): convert them to Parquet, CSV or "
        "JSON lines, or leave them out with `skip` in the source's options"
    )


def _all(config: FilesConfig, place: StorageFolder) -> Iterable[tuple[FileState, float]]:
    """Yield files with the time of their last change in seconds; hidden ones and those of unfinished jobs are left
    out."""
    with _reached(config):
        filesystem, root = place.resolve("")
        root = root.rstrip("/")
        _check_folder(config, filesystem, root)
        files = _stored_files(filesystem, root) if place.local is None else _local_files(config, root)
    for name, size, modified in files:
        if not _is_hidden(name):
            yield FileState(name, size, str(modified)), (modified or 0) / 1e9


_Found = tuple[str, int, int | None]
"""Path of a file below the folder, its size, and the time of its last change in nanoseconds."""


def _stored_files(filesystem: Any, root: str) -> list[_Found]:
    from pyarrow import fs

    infos = filesystem.get_file_info(fs.FileSelector(root, recursive=True))
    return [
        (info.path.removeprefix(root).lstrip("/"), int(info.size), info.mtime_ns)
        for info in infos
        if info.type == fs.FileType.File
    ]


def _local_files(config: FilesConfig, root: str) -> list[_Found]:
    """Return the files of a folder of this machine. A folder that several links lead to, or a link within itself, is
    read once, under its own name if that is below the root."""
    files, linked, seen = list[_Found](), deque[str](), set[tuple[int, int]]()
    waiting = deque([root])
    while waiting or linked:
        folder = (waiting or linked).popleft()
        if (place := _identity(folder)) is None or place in seen:
            continue
        seen.add(place)
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if not config.links:
                _check_link(config, entry.path)
            if (state := _state(entry)) is None:
                continue
            if stat.S_ISDIR(state.st_mode):
                (linked if entry.is_symlink() else waiting).append(entry.path)
            elif stat.S_ISREG(state.st_mode) and _has_name(config, root, entry.path):
                files.append((entry.path.removeprefix(root).lstrip("/"), state.st_size, state.st_mtime_ns))
    return files


def _identity(folder: str) -> tuple[int, int] | None:
    """Return the identity of a folder; None if it no longer exists."""
    try:
        state = Path(folder).stat()
    except FileNotFoundError:
        return None
    return state.st_dev, state.st_ino


def _state(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Return the state of what is there, links followed; None for what is gone, and for a link to nothing or itself."""
    try:
        return entry.stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return None
        raise


def _has_name(config: FilesConfig, root: str, path: str) -> bool:
    """Return whether a file's name is text. Raises ConnectError for another one that belongs to a selected table: it
    cannot be opened by its name."""
    raw = os.fsencode(path.removeprefix(root).lstrip("/"))
    name = raw.decode("utf-8", "backslashreplace")
    if name.encode() == raw:
        return True
    table = table_of(config, FileState(name, 0, ""))
    if table and config.is_selected(table) and not _is_hidden(name):
        hint = "rename it, or move it out of the folder"
        raise ConnectError(f"the name of {name} in {config.path} is not UTF-8 text", hint=hint)
    return False


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "_")) for part in name.split("/"))


def _check_link(config: FilesConfig, path: str) -> None:
    """Raise ConnectError for a link that leads out of the folder."""
    folder = os.path.realpath(config.path)
    if not os.path.realpath(path).startswith(f"{folder}/"):
        raise ConnectError(
            f"{path} leads out of {config.path}: a source that comes from an API reads its own folder alone",
            hint="take the link away, or describe the source in instep.yml",
        )


def _check_folder(config: FilesConfig, filesystem: Any, root: str) -> None:
    """Raise an error if the folder is not there or cannot be reached. An object store has no folders: any answer
    will do."""
    from pyarrow import fs

    info = filesystem.get_file_info(root)
    if config.folder.local is not None and info.type != fs.FileType.Directory:
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
    table = _place_of(config, file)
    if not table or not file.format(config.options_of(table).format) or config.skips(table, file.name):
        return None
    return table


def _place_of(config: FilesConfig, file: FileState) -> str | None:
    """Return the table of a file by its path alone, None if the glob of `tables` leaves it out."""
    if config.tables:
        return _glob(config.tables).table_of(file.name)
    folder, _, remainder = file.name.partition("/")
    return folder if remainder else stem(file)


def stem(file: FileState) -> str:
    """Return the name of a file without the endings that name its format and compression."""
    parts = file.name.rpartition("/")[2].split(".")
    while len(parts) > 1 and parts[-1].lower() in {*FORMATS, *PACKED}:
        parts.pop()
    return ".".join(parts)


@lru_cache(64)
def _glob(text: str) -> FileGlob:
    return FileGlob(text)
