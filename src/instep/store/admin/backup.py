"""Backups of the store in files: a copy of a SQLite database while it is in use, or lines of JSON of any store."""

from __future__ import annotations

import gzip
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO

from instep.errors import ConnectError, InstepError, ProjectError
from instep.store.admin.dump import check_version, dump, restore
from instep.store.engine import migrate
from instep.store.engine.database import Database
from instep.temporary import temporary

_SQLITE = b"SQLite format 3\0"
_COPIES = (".db", ".sqlite")
_PAGES = 1000


def back_up(database: Database, file: Path) -> None:
    """Write a backup that only its owner may read: a database for a name that ends with .db, else lines of JSON,
    compressed for one that ends with .gz. Neither stops those who write. InstepError if the file exists."""
    if file.exists():
        raise InstepError(f"{file} exists already", hint="name another file, or move it away")
    with _new(file) as unfinished:
        if file.suffix in _COPIES:
            _copy(database, unfinished)
        else:
            with _opened(unfinished, "wt", file.suffix == ".gz") as out:
                out.writelines(line + "\n" for line in dump(database))
                out.flush()


def bring_back(
    database: Database, file: Path, now: Callable[[], datetime], *, replace: bool = False
) -> Mapping[str, int]:
    """Restore the store from a backup. See `instep.store.admin.dump.restore` for what is refused."""
    begin = _begin(file)
    if begin != _SQLITE:
        with _opened(file, "rt", begin[:2] == b"\x1f\x8b") as lines:
            return _translate_errors(lambda: restore(database, lines, replace=replace), file)
    with temporary("restore") as folder:
        copy = Path(folder, "state.db")
        _translate_errors(lambda: _whole(file, copy), file)
        former = Database(f"sqlite:///{copy}", now)
        try:
            with former.read() as connection:
                check_version(migrate.version(connection))
            migrate.upgrade(former)
            return restore(database, dump(former), replace=replace)
        finally:
            former.close()


def upgrade(database: Database) -> tuple[str, str]:
    """(version before, version after). A SQLite file of another version is copied first, beside itself."""
    with database.read() as connection:
        before = migrate.version(connection)
    migrate.check(database, before)
    if before and before != migrate.HEAD and database.file:
        copy = database.file.with_name(f"{database.file.stem}.{before}.db")
        if not copy.exists():
            back_up(database, copy)
    migrate.upgrade(database)
    return before, migrate.HEAD


def _copy(database: Database, target: Path) -> None:
    """By SQLite's own online backup, which starts again when others write meanwhile."""
    if database.file is None:
        raise InstepError(
            f"the store {database.place} is a server, of which there is no database file",
            hint="name a file that ends with .jsonl or .jsonl.gz",
        )
    _whole(database.file, target)


def _whole(source: Path, target: Path) -> None:
    url = f"{source.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(url, uri=True)) as there, closing(sqlite3.connect(target)) as here:
        there.backup(here, pages=_PAGES)
        here.execute("PRAGMA journal_mode = DELETE")
        result = here.execute("PRAGMA integrity_check").fetchone()[0]
    if result != "ok":
        raise ConnectError(f"{source} is damaged: {result}", hint="restore an earlier backup")


def _translate_errors(work: Callable[[], Mapping[str, int] | None], file: Path) -> Mapping[str, int]:
    try:
        return work() or {}
    except (sqlite3.Error, EOFError, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise ProjectError(f"{file} is damaged: {error}", hint="use another backup; nothing was changed") from None


def _begin(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(len(_SQLITE))
    except OSError as error:
        raise ProjectError(f"{file} cannot be read: {error.strerror}", hint="name a backup that is there") from None


@contextmanager
def _new(file: Path) -> Iterator[Path]:
    """A file for its owner alone, which gets its name when it is complete."""
    unfinished = file.with_name(f"{file.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        yield unfinished
        with unfinished.open("rb") as written:
            os.fsync(written.fileno())
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def _opened(file: Path, mode: str, compressed: bool) -> IO[str]:
    if compressed:
        return gzip.open(file, mode, encoding="utf-8", newline="\n")  # type: ignore[return-value]
    return file.open(mode, encoding="utf-8", newline="\n")
