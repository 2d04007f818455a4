"""Opening a SQLite file for reading, and its errors in words."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from instep.errors import ConnectError, InstepError, ReadError
from instep.project.sections.sources import SqliteSourceSection
from instep.temporary import TemporaryFolder, remove_abandoned

MINIMUM = (3, 37, 0)


@contextmanager
def connect(config: SqliteSourceSection) -> Iterator[sqlite3.Connection]:
    """Open a read-only connection without a transaction; raises ConnectError."""
    _check(config.path)
    with describing(config.path, ConnectError):
        uri = f"{Path(config.path).absolute().as_uri()}?mode=ro"
        connection = sqlite3.connect(
            uri, uri=True, timeout=config.timeout, isolation_level=None, check_same_thread=False
        )
    try:
        with describing(config.path, ConnectError):
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        yield connection
    finally:
        connection.close()


@contextmanager
def transaction(config: SqliteSourceSection) -> Iterator[sqlite3.Connection]:
    """Open a read transaction: what it sees does not change until the context ends."""
    with connect(config) as connection:
        begin(connection, config.path)
        yield connection


def begin(connection: sqlite3.Connection, path: str) -> None:
    """Begin a read transaction that sees the state of now. Raises ConnectError."""
    with describing(path, ConnectError):
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()


def _check(path: str) -> None:
    if sqlite3.sqlite_version_info < MINIMUM:
        raise ConnectError(
            f"this Python has SQLite {sqlite3.sqlite_version}, the SQLite source needs 3.37 or later",
            hint="run instep with a Python whose sqlite3 module is newer",
        )
    try:
        state = Path(path).stat()
    except FileNotFoundError:
        raise ConnectError(
            f"SQLite file {path} does not exist", hint="check `path`; relative paths start at the project folder"
        ) from None
    except OSError as error:
        raise ConnectError(f"SQLite file {path} cannot be reached: {error.strerror}", hint="check the path") from None
    if not Path(path).is_file():
        raise ConnectError(f"{path} is not a file", hint="name the database file itself")
    if not os.access(path, os.R_OK):
        raise ConnectError(f"SQLite file {path} cannot be read", hint="give this user read permission on the file")
    if not state.st_size:
        raise ConnectError(f"SQLite file {path} is empty", hint="check that this is the right file")


@contextmanager
def describing(path: str, kind: type[InstepError], what: str = "") -> Iterator[None]:
    """Turn SQLite's errors into `kind`, which names the file, the cause and the next step."""
    try:
        yield
    except sqlite3.Error as error:
        place = f"SQLite file {path}" + (f", {what}" if what else "")
        text, _, _ = str(error).partition(" with text ")  # a value that is not UTF-8
        raise kind(f"{place}: {text}", hint=_hint(error)) from None


_NO_ROOM = "free space there, name a larger disk by TMPDIR, or switch the file to WAL mode"


def _hint(error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    hints = {
        sqlite3.SQLITE_NOTADB: "this file is not a SQLite database, or it is encrypted",
        sqlite3.SQLITE_BUSY: "another program holds a lock: sync when it is done, or switch it to WAL mode",
        sqlite3.SQLITE_LOCKED: "another program holds a lock: sync when it is done, or switch it to WAL mode",
        sqlite3.SQLITE_CORRUPT: "the file is damaged: run `PRAGMA integrity_check` on it",
        sqlite3.SQLITE_CANTOPEN: "in WAL mode the folder must hold the -wal and -shm files, or be writable",
        sqlite3.SQLITE_FULL: _NO_ROOM,
        sqlite3.SQLITE_IOERR: f"if the disk works: {_NO_ROOM}",
        sqlite3.SQLITE_READONLY: "a crashed write must be rolled back first: open the file once with its own program",
    }
    return hints.get(code, "sync again; if it stays, try the query in the sqlite3 shell")


def in_wal_mode(connection: sqlite3.Connection, path: str) -> bool:
    """Return whether programs that write to the file need not wait for those that read it."""
    with describing(path, ReadError):
        return bool(connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal")


@dataclass(frozen=True)
class DatabaseFileState:
    """State by which a replaced file or an altered table is recognised.

    Found by `stat`, never by opening the file: closing a second descriptor would drop this process's locks.
    """

    schema_version: int
    inode: int


def file_state(connection: sqlite3.Connection, path: str) -> DatabaseFileState:
    """Return the state of the open transaction's database."""
    with describing(path, ReadError):
        version = int(connection.execute("PRAGMA schema_version").fetchone()[0])
        return DatabaseFileState(version, Path(path).stat().st_ino)


SETTLED = 3.0
"""Seconds after a write in which another one may get the same time: file systems keep times by the tick, some by two
seconds."""
LOCAL = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"})
"""File systems of this machine. Others may have the clock of another one, or answer `stat` from a cache."""
BOOT = Path("/proc/sys/kernel/random/boot_id")
MOUNTS = Path("/proc/self/mountinfo")


def written_at(path: str) -> str:
    """Return a mark that any write to the database changes, "" as long as that is uncertain. Read it before the
    rows: then it is not newer than they are. The kernel sets the change time of a file, and no program can: a
    restored copy has the time of the restore, whatever modification time it brings along, and a clock that was put
    back does not meet the same nanosecond again. Found by `stat`, as `DatabaseFileState` is. A crash of the machine
    may lose writes that were read before, so that the mark includes the start of the kernel, too."""
    real = os.path.realpath(path)  # SQLite has its -wal beside the file that a link leads to
    try:
        start, kind = BOOT.read_text().strip(), _file_system(real)
    except OSError:
        return ""
    marks, now = [start], time.time()
    if kind not in LOCAL:
        return ""
    for file in (real, f"{real}-wal"):
        try:
            state = Path(file).stat()
        except FileNotFoundError:
            continue
        if not state.st_size:  # a reader may have made it
            continue
        if now - state.st_ctime < SETTLED:
            return ""
        marks.append(repr((state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)))
    return "/".join(marks)


def _file_system(path: str) -> str:
    """Return the kind of file system that a file is on: that of the last mount over the nearest folder."""
    nearest, kind = "", ""
    for line in MOUNTS.read_text().splitlines():
        about, _, suffix = line.partition(" - ")
        place = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), about.split()[4])
        if len(place) >= len(nearest) and (path == place or path.startswith(f"{place.rstrip('/')}/")):
            nearest, kind = place, suffix.split()[0]
    return kind


STEP = 64 << 20
"""Bytes copied while the file is locked: about a tenth of a second."""
RESTARTS = 3


class _Restarted(Exception):
    """The file was written while it was copied, as often as is put up with."""


@contextmanager
def copied(config: SqliteSourceSection, parent: str = "") -> Iterator[str]:
    """Yield the path of a copy in a folder below `parent`, or the system's for temporary files; it is deleted
    afterwards."""
    if parent:
        Path(parent).mkdir(parents=True, exist_ok=True)
        remove_abandoned(parent)
    folder = TemporaryFolder("sqlite", parent)
    try:
        path = Path(folder.path, "copy.db")
        with describing(config.path, ReadError, f"copying it to {folder.path}"):
            try:
                _copy(config, path, STEP)
            except _Restarted:
                path.unlink()
                _copy(config, path, 0)
        yield str(path)
    finally:
        folder.close()


def _copy(config: SqliteSourceSection, path: Path, step: int) -> None:
    """Copy `step` bytes at a time, or everything in one transaction."""
    with connect(config) as source, closing(sqlite3.connect(path, isolation_level=None)) as target:
        target.execute("PRAGMA synchronous = OFF")
        target.execute("PRAGMA journal_mode = OFF")
        size = int(source.execute("PRAGMA page_size").fetchone()[0])
        if not step:
            begin(source, config.path)
        source.backup(target, pages=max(1, step // size) if step else -1, progress=_Steps().on_progress)


class _Steps:
    """Progress of a copy."""

    def __init__(self) -> None:
        self._left, self._restarts = 0, 0

    def on_progress(self, status: int, left: int, total: int) -> None:
        if status in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = status
            raise error
        self._restarts += bool(self._left) and left >= self._left
        self._left = left
        if self._restarts > RESTARTS:
            raise _Restarted
