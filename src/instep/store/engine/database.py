"""The engine of the control database: pragmas, transactions, and driver errors in plain words.

SQLite runs in WAL mode with foreign keys; every write starts with BEGIN IMMEDIATE, so a reader never has to
become a writer half-way. On PostgreSQL advisory locks give the same order to writes of the same connection, and to
those of rows that belong to none (docs/adr/0040-locks-by-connection.md).
"""

from __future__ import annotations

import re
import shutil
import threading
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, Table, create_engine, event, text, tuple_
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError

from instep.errors import Conflict, ConnectError, InstepError, ProjectError
from instep.private import make_own_folder, make_private
from instep.sqlite_wal import use_wal

BUSY_SECONDS = 30.0
LEAST_FREE = 256 << 10
"""Bytes that SQLite needs on the store's disk to begin: below this, an error of the disk is one of a full disk."""
_LOCKS = 0x696E7374  # the class of the advisory locks: "inst" in ASCII; that of connections is the next number
_ALL = "*"
"""Stands for all rows among the names of connections."""
_OLD = "it was made by a development version of instep ({})"
START_OVER = "move this store away or name another one; the next command creates a new one, and syncs start over"
_HOST = re.compile(r"[\w.:%/-]*")
_CAUSES = (
    ("disk is full", "the disk is full", "free some space and run the command again; nothing was changed"),
    ("disk i/o error", "the disk cannot be read or written", "free some space or check the disk, then run again"),
    ("readonly database", "it cannot be written", "check who owns the file and its folder"),
    ("unable to open", "it cannot be opened", "check who owns the file, and that its folder exists and may be written"),
    ("not a database", "it is not a SQLite database", "restore a backup, or move the file away to start afresh"),
    ("malformed", "the file is damaged", "restore a backup, or move the file away to start afresh"),
)


class Database:
    """Transactions over one engine; `now` is the clock of everything that is written."""

    def __init__(self, url: str, now: Callable[[], datetime], busy: float = BUSY_SECONDS) -> None:
        self.url = _parse(url)
        self.now = now
        self.place = self.url.database or "memory" if self._sqlite else self.url.render_as_string(hide_password=True)
        self._local = threading.local()
        with self._plain_errors():
            self.engine = self._engine(busy)

    @property
    def _sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    @property
    def file(self) -> Path | None:
        """The database's file, None for a server."""
        return Path(self.url.database) if self._sqlite and self.url.database else None

    def _engine(self, busy: float) -> Engine:
        if not self._sqlite:
            return create_engine(self.url, pool_pre_ping=True)
        if not self.file or self.url.database == ":memory:":
            raise ProjectError("store: a SQLite store needs a file", hint="write sqlite:///.instep/state.db")
        try:
            make_own_folder(self.file.parent)
        except OSError as error:
            raise self._error(f"its folder cannot be made ({error.strerror})", "check the folder's owner") from error
        make_private(self.file)
        engine = create_engine(self.url, connect_args={"timeout": busy, "isolation_level": None})
        event.listen(engine, "connect", partial(_set_pragmas, busy))
        event.listen(engine, "begin", _begin)
        return engine

    @contextmanager
    def write(self, connection_name: str = "", *, common: bool = False) -> Iterator[Connection]:
        """Open a write transaction, or a savepoint in the one that this thread has open. With a connection's name it
        reads and writes rows of that connection only, and does not wait for writers of others. `common`: it writes
        only rows that belong to no connection, as those of the queue and of the outbox, and nobody waits for it who
        has not come to such rows. The order of the locks is that of docs/adr/0040-locks-by-connection.md: nothing
        locks a connection's rows after the common ones."""
        outer: Connection | None = getattr(self._local, "connection", None)
        if outer is not None:
            calls, locked = len(self._local.after), set(self._local.locked)
            try:
                with self._plain_errors(), outer.begin_nested():
                    self._lock(outer, connection_name, common)
                    yield outer
            except BaseException:
                del self._local.after[calls:]
                self._local.locked = locked  # the server has let go of the locks of a savepoint that it rolled back
                raise
            return
        after: list[Callable[[], None]] = []
        with self._plain_errors(), self.engine.connect() as connection:
            connection = connection.execution_options(instep_write=True)
            with connection.begin():
                self._local.locked = set()
                self._lock(connection, connection_name, common)
                self._local.connection, self._local.after = connection, after
                try:
                    yield connection
                finally:
                    self._local.connection = None
        for call in after:
            call()

    def _lock(self, transaction: Connection, name: str, common: bool) -> None:
        """Lock the rows of a connection, or those of none: all rows at the beginning of a transaction, those that are
        common to connections later, or if it writes no others."""
        locked: set[str] = self._local.locked
        if self._sqlite or name in locked or _ALL in locked:
            return
        row = {
            "kind": _LOCKS,
            "all": 0,
            "common": 1,
            "connections": _LOCKS + 1,
            "one": zlib.crc32(name.encode()) - 2**31,
        }
        if not locked and common:
            locks = "pg_advisory_xact_lock_shared(:kind, :all), pg_advisory_xact_lock(:kind, :common)"
        elif not locked and not name:
            name, locks = _ALL, "pg_advisory_xact_lock(:kind, :all)"
        elif not locked:
            locks = "pg_advisory_xact_lock_shared(:kind, :all), pg_advisory_xact_lock(:connections, :one)"
        else:
            locks = "pg_advisory_xact_lock(:connections, :one)" if name else "pg_advisory_xact_lock(:kind, :common)"
        query = text(f"SELECT {locks}")
        transaction.execute(query, {k: v for k, v in row.items() if f":{k}" in locks})
        locked.add(name)

    def after_commit(self, call: Callable[[], None]) -> None:
        """Register `call` inside `write`: it runs after the commit, and not after a rollback."""
        self._local.after.append(call)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a consistent view: the open write transaction of this thread, else a read transaction."""
        outer: Connection | None = getattr(self._local, "connection", None)
        if outer is not None:
            with self._plain_errors():
                yield outer
            return
        with self._plain_errors(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Open a view of all tables as of one moment, for however long."""
        with self._plain_errors(), self.engine.connect() as connection:
            if not self._sqlite:
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise  # a mistake in this program, not of the database
        except (DBAPIError, NoSuchModuleError) as error:
            raise self._translate(error) from error
        except ImportError as error:
            raise self._error(f"its driver is not installed ({error.name})", "install the driver's package") from error

    def _translate(self, error: DBAPIError | NoSuchModuleError) -> InstepError:
        message = str(error.orig) if isinstance(error, DBAPIError) else str(error)
        if "database is locked" in message:
            hint = "another instep process is writing; try again when it is done"
            return Conflict(f"the store {self.place} stayed locked for {BUSY_SECONDS:.0f} s", hint=hint)
        if "no such column" in message or type(getattr(error, "orig", None)).__name__ == "UndefinedColumn":
            return self._error(_OLD.format(message.strip().splitlines()[0]), START_OVER)
        if "disk i/o error" in message.lower() and (full := self._full_disk()) is not None:
            return full
        for fragment, cause, hint in _CAUSES:
            if fragment in message.lower():
                return self._error(cause, hint)
        return self._error(message.strip().splitlines()[0], "run `instep doctor`")

    def _full_disk(self) -> InstepError | None:
        """Return the error for a disk without room for SQLite's own files beside the store, None if it has some."""
        try:
            free = shutil.disk_usage(self.file.parent).free if self.file else LEAST_FREE
        except OSError:
            return None
        if free >= LEAST_FREE:
            return None
        hint = f"free some space at {self.file}, then run the command again; everything committed before is intact"
        return self._error(f"the disk is full ({free:,} bytes are free)", hint)

    def _error(self, cause: str, hint: str) -> ConnectError:
        return ConnectError(f"the store {self.place} cannot be used: {cause}", hint=hint)


def _parse(url: str) -> URL:
    """Return the parts of a URL. ProjectError, which repeats nothing of it, for one that is none, or whose host or
    database has characters of a password that was not percent-encoded: they would be shown as where the store is."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ProjectError("store: this is not a database URL", hint="write sqlite:///.instep/state.db") from None
    if parsed.get_backend_name() == "sqlite":
        return parsed
    if parsed.drivername == "postgres":
        raise ProjectError("store: `postgres` names no kind of database", hint="write postgresql://user@host/database")
    if not _HOST.fullmatch(parsed.host or "") or "@" in (parsed.database or ""):
        hint = "percent-encode its password: @ is %40, / is %2F, : is %3A, a space is %20"
        raise ProjectError("store: the URL does not name a host and a database", hint=hint)
    return parsed


def _set_pragmas(busy: float, connection: object, _record: object) -> None:
    cursor = connection.cursor()  # type: ignore[attr-defined]
    use_wal(cursor.execute, busy)
    for pragma in ("synchronous = FULL", "foreign_keys = ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: Connection) -> None:
    write = connection.get_execution_options().get("instep_write")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


T = TypeVar("T")
CHUNK = 500
"""Tables that one statement names: databases limit the values of a statement."""


def by_connection(names: Sequence[str], pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    """Return the findings of each connection, in order; an empty list where there are none."""
    out: dict[str, list[T]] = {name: [] for name in names}
    for name, value in pairs:
        out[name].append(value)
    return out


def of_tables(rows: Table, tables: Collection[tuple[str, str]]) -> Iterator[ColumnElement[bool]]:
    """Yield conditions that together hold for the rows of these tables; each is for a statement of its own."""
    refs = sorted(set(tables))
    for start in range(0, len(refs), CHUNK):
        yield tuple_(rows.c.table_schema, rows.c.table_name).in_(refs[start : start + CHUNK])
