"""The database file: who has it open, and transactions over it.

One process at a time may write a DuckDB file, and nobody reads it meanwhile. So it is open only while something is
done with it, for reading alone where that is enough; within a process all share one instance, and writers queue.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from instep.destinations.duckdb.session import DuckDbSession
from instep.destinations.sql.merge import text_literal
from instep.errors import Conflict, ConnectError, DestinationError
from instep.redaction import error_line

_LOCKED = re.compile(r"Conflicting lock is held in (?P<program>\S+).*?\(PID (?P<pid>\d+)\)")
_WILD = re.compile(r"([*?\[])")
_REFUSED = re.compile("Permission denied|Read-only file system")
_RIGHTS = "give this user the right to write the file and its folder, or mount the disk for writing"
_POLL = 0.05
_CONFIG: dict[str, Any] = {
    "arrow_lossless_conversion": "true",
    "arrow_large_buffer_size": "true",
    "autoinstall_known_extensions": "false",
    "preserve_insertion_order": "true",
    # what a load has freed goes back to the system behind it, and does not wait for the next one
    "allocator_flush_threshold": "8MB",
    "allocator_bulk_deallocation_flush_threshold": "8MB",
}


@dataclass
class _Instance:
    """The file as this process has it open; `users` is how many are at work with it, `ours` the tables of records
    that were found in it since it was opened: nobody else can write it meanwhile."""

    base: duckdb.DuckDBPyConnection | None = None
    folders: frozenset[str] = frozenset()
    """Folders of files that may be read; `opened` are those with which the file was opened: a view that somebody
    planted in it reaches no other file."""
    opened: frozenset[str] = frozenset()
    catalog: str = ""
    ours: frozenset[str] = frozenset()
    read_only: bool = False
    epoch: str = ""
    users: int = 0
    keepers: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)
    writer: threading.Lock = field(default_factory=threading.Lock)


_instances: dict[Path, _Instance] = {}
_known = threading.Lock()


_HEADERS = 3 * 4096
"""Bytes at the begin of a file, which are other ones after each checkpoint: it is numbered there."""


@dataclass(frozen=True)
class Epoch:
    """A time in which nobody but us has written the file at `path`. What the file looked like when we closed it last is
    noted beside it: with another look a new epoch begins, as it does after a crash."""

    path: Path

    @property
    def _note(self) -> Path:
        return self.path.with_name(f"{self.path.name}.files") / "epoch.json"

    def now(self) -> str:
        """Return the name of the epoch of a file that is not open."""
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
            if note["look"] == self._file_state():
                return str(note["epoch"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return uuid.uuid4().hex

    def save(self, epoch: str) -> None:
        """Note the look of a file that was closed."""
        with suppress(OSError):
            self._note.parent.mkdir(parents=True, exist_ok=True)
            new = self._note.with_suffix(f".{uuid.uuid4().hex}")
            new.write_text(json.dumps({"epoch": epoch, "look": self._file_state()}), encoding="utf-8")
            new.replace(self._note)

    def _file_state(self) -> list[Any]:
        with self.path.open("rb") as file:
            headers = hashlib.sha256(file.read(_HEADERS)).hexdigest()
        log = self.path.with_name(f"{self.path.name}.wal")
        return [headers, *(_stat(path) for path in (self.path, log) if path.exists())]


def _stat(path: Path) -> list[int]:
    file_stat = path.stat()
    return [file_stat.st_dev, file_stat.st_ino, file_stat.st_size, file_stat.st_ctime_ns]


class DatabaseFile:
    """The file at `path`, for which one waits `lock_timeout` seconds while another has it. `part`: see `DuckDbSession`.
    Statements may read files in `folders`, and no others."""

    def __init__(
        self, path: Path, lock_timeout: float = 10, part: tuple[str, str] | None = None, folders: Iterable[Path] = ()
    ) -> None:
        self.path, self.lock_timeout, self.part = path.absolute(), lock_timeout, part
        with _known:
            self._instance = _instances.setdefault(self.path.resolve(), _Instance())
            self._instance.folders |= {str(folder.absolute()) for folder in folders}

    def exists(self) -> bool:
        return self.path.exists()

    @contextmanager
    def reading(self) -> Iterator[DuckDbSession]:
        """Open a read-only session, on an empty database if there is no file yet. Raises Conflict if another process
        holds the file."""
        if not self.exists():
            with duckdb.connect() as empty:
                yield DuckDbSession(empty, "memory", set(), self.part)
            return
        with self._opened(write=False) as session:
            yield session
            self._instance.ours |= session.ours

    @contextmanager
    def writing(self) -> Iterator[DuckDbSession]:
        """Open a transaction: all of it is committed or, if anything is raised, nothing. The file is created if it
        does not exist."""
        with self._instance.writer, self._opened(write=True) as session:
            session.db.begin()
            try:
                yield session
                session.db.commit()
                self._instance.ours |= session.ours
            except duckdb.Error as error:
                _rollback(session)
                raise self.clear(error) from error
            except BaseException:
                _rollback(session)
                raise

    def bytes(self) -> int:
        """Return the size of the file and of its write-ahead log."""
        log = self.path.with_name(f"{self.path.name}.wal")
        return sum(file.stat().st_size for file in (self.path, log) if file.exists())

    def checkpoint(self) -> None:
        """Write the log into the file, and cut off the free space at its end."""
        with self._instance.writer, self._opened(write=True) as session:
            session.run("CHECKPOINT")

    @contextmanager
    def _opened(self, *, write: bool) -> Iterator[DuckDbSession]:
        base = self._enter(write)
        try:
            with base.cursor() as cursor:
                instance = self._instance
                yield DuckDbSession(cursor, instance.catalog, set(instance.ours), self.part, instance.epoch)
        except duckdb.Error as error:
            raise self.clear(error) from error
        finally:
            instance = self._instance
            with instance.changed:
                instance.users -= 1
                self._close_unused()

    def _enter(self, write: bool) -> duckdb.DuckDBPyConnection:
        instance, until = self._instance, time.monotonic() + self.lock_timeout
        with instance.changed:
            write = write or instance.keepers > 0
            error: Conflict | None = None
            while instance.base is None or (write and instance.read_only) or not instance.folders <= instance.opened:
                if instance.base is None or not instance.users:
                    self._close()
                    error = self._open(write)
                    if error is None:
                        break
                else:
                    error = Conflict(f"{self.path} is being read by this process", hint="end that read first")
                if error is not None and time.monotonic() >= until:
                    raise error
                instance.changed.wait(_POLL)
            instance.users += 1
            assert instance.base is not None, "an open file has a connection"
            return instance.base

    def _open(self, write: bool) -> Conflict | None:
        """Open the file, or say who holds it."""
        if "?" in str(self.path):
            raise ConnectError(
                f"{self.path} cannot be opened: DuckDB takes what follows a ? for options", hint="rename it"
            )
        try:
            if write:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            epoch = Epoch(self.path).now()
            base = duckdb.connect(str(self.path), read_only=not write, config=_CONFIG)
            base.execute("SET GLOBAL timezone = 'UTC'")
            folders = self._instance.folders
            readable = ", ".join(map(text_literal, sorted(folders | set(map(escaped_glob, folders)))))
            base.execute(f"SET allowed_directories = [{readable}]")
            base.execute("SET enable_external_access = false")
            [(catalog,)] = base.execute("SELECT current_database()").fetchall()
            self._instance.base, self._instance.catalog, self._instance.opened = base, str(catalog), folders
            self._instance.epoch = epoch
        except OSError as error:
            raise ConnectError(f"{self.path}: {error.strerror}", hint="check the path and its rights") from error
        except duckdb.Error as error:
            if write and _REFUSED.search(str(error)):
                raise self._refused(error) from error
            if (holder := _holder(str(error))) is None:
                hint = "check that it is a DuckDB file of a version that this one reads, and its rights"
                raise ConnectError(f"{self.path} cannot be opened: {_first(error)}", hint=hint) from error
            hint = "one process at a time may write a DuckDB file: close it there, then run this again"
            return Conflict(f"{self.path} is open in {holder}", hint=hint)
        self._instance.read_only = not write
        return None

    @contextmanager
    def session(self) -> Iterator[None]:
        """Open the file once for the whole block, from its first use on and for writing, so that no thread waits for
        another one's read: opening costs more than loading a small table."""
        instance = self._instance
        with instance.changed:
            instance.keepers += 1
        try:
            yield
        finally:
            with instance.changed:
                instance.keepers -= 1
                self._close_unused()

    def _close_unused(self) -> None:
        if not self._instance.users and not self._instance.keepers:
            self._close()
        self._instance.changed.notify_all()

    def _close(self) -> None:
        if self._instance.base is not None:
            self._instance.base.close()
            self._instance.base, self._instance.ours = None, frozenset()
            if not self._instance.read_only:
                Epoch(self.path).save(self._instance.epoch)

    def clear(self, error: duckdb.Error) -> Exception:
        """Return a database error as one of ours."""
        if _REFUSED.search(str(error)) and str(self.path) in str(error):
            return self._refused(error)
        if isinstance(error, duckdb.TransactionException) and "conflict" in str(error).lower():
            return Conflict(f"{self.path.name}: {_first(error)}", hint="another run was faster: run this again")
        if isinstance(error, duckdb.OutOfMemoryException | duckdb.IOException):
            return DestinationError(
                f"{self.path}: {_first(error)}", hint="free memory or disk space, then run it again"
            )
        if isinstance(error, duckdb.TransactionException) and "Could not write file" in str(error):
            return DestinationError(
                f"{self.path}: {_first(error)}: nothing was written", hint="free disk space, then run it again"
            )
        return DestinationError(f"{self.path.name}: {error_line(error)}")

    def _refused(self, error: duckdb.Error) -> ConnectError:
        return ConnectError(f"{self.path} cannot be written: {_first(error)}", hint=_RIGHTS)


def escaped_glob(path: str) -> str:
    """Return the path as a pattern that nothing else matches. Files to read are named by such, and rights to them as
    well."""
    return _WILD.sub(r"[\1]", path)


def _holder(text: str) -> str | None:
    """Return the program that has the file open."""
    if match := _LOCKED.search(text):
        return f"another process: {match['program'].rsplit('/', 1)[-1]}, PID {match['pid']}"
    if "different configuration" in text:
        return "this process, in another way"
    return "another process" if "Could not set lock" in text else None


def _first(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def _rollback(session: DuckDbSession) -> None:
    try:
        session.db.rollback()
    except duckdb.Error:  # a commit that failed has ended the transaction
        return
