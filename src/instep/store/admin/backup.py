"""Backups of the store in files: a copy of a SQLite database while it is in use, or lines of JSON of any store.

The whole store as lines of JSON, for backups and for the way from SQLite to PostgreSQL.

First a line about the dump, then for each table a line with its columns and one for each row, last a line with the
counts, the numbers that were given out, and a digest of all lines before it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from sqlalchemy import JSON, Column, Connection, DateTime, MetaData, Table, func, insert, inspect, null, select, text

from instep.errors import Blocked, Conflict, ConnectError, InstepError, ProjectError
from instep.store.engine import migrate
from instep.store.engine.database import Database
from instep.store.tables.all import metadata
from instep.store.tables.catalogs import events, pauses, runs
from instep.store.tables.queue import deliveries, jobs, outbox
from instep.store.tables.server import api_keys, objects
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
            # by SQLite's own online backup, which starts again when others write meanwhile
            if database.file is None:
                raise InstepError(
                    f"the store {database.place} is a server and has no database file",
                    hint="name a file that ends with .jsonl or .jsonl.gz",
                )
            _whole(database.file, unfinished)
        else:
            with _opened(unfinished, "wt", file.suffix == ".gz") as out:
                out.writelines(line + "\n" for line in dump(database))
                out.flush()


def bring_back(
    database: Database, file: Path, now: Callable[[], datetime], *, replace: bool = False
) -> Mapping[str, int]:
    """Restore the store from a backup. See `instep.store.admin.backup.restore` for what is refused."""
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
    """Upgrade the store; return (version before, version after). A SQLite file of another version is copied first,
    beside itself."""
    with database.read() as connection:
        before = migrate.version(connection)
    migrate.check(database, before)
    if before and before != migrate.HEAD and database.file:
        copy = database.file.with_name(f"{database.file.stem}.{before}.db")
        if not copy.exists():
            back_up(database, copy)
    migrate.upgrade(database)
    return before, migrate.HEAD


def _whole(source: Path, target: Path) -> None:
    url = f"{source.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(url, uri=True)) as original, closing(sqlite3.connect(target)) as copy:
        original.backup(copy, pages=_PAGES)
        copy.execute("PRAGMA journal_mode = DELETE")
        result = copy.execute("PRAGMA integrity_check").fetchone()[0]
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
    """Yield a file for its owner alone, which gets its name when it is complete."""
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


FORMAT = "instep-dump"
IN_USE = (objects, runs, pauses, api_keys, events, outbox, deliveries)
"""A store with a row in one of these holds what nobody wants to lose unasked."""
BATCH = 500
_AGAIN = "use another backup; nothing was changed"


def dump(database: Database) -> Iterator[str]:
    """Yield the lines, without line ends, of the store as of one moment. Secrets in it are sealed, and the master
    keys are not in it."""
    digest, counts = hashlib.sha256(), dict[str, int]()

    def line(data: Any) -> str:
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        digest.update(text.encode() + b"\n")
        return text

    with database.snapshot() as connection:
        yield line({"format": FORMAT, "version": migrate.version(connection), "at": database.now().isoformat()})
        for table in metadata.sorted_tables:
            yield line({"table": table.name, "columns": [column.name for column in table.columns]})
            counts[table.name] = 0
            for row in connection.execute(select(table).order_by(*table.primary_key.columns)):
                counts[table.name] += 1
                yield line([(value.isoformat() if isinstance(value, datetime) else value) for value in row])
        end = {"rows": counts, "numbers": _numbers(connection)}
    yield json.dumps({"end": end, "sha256": digest.hexdigest()})


def restore(database: Database, lines: Iterable[str], *, replace: bool = False) -> Mapping[str, int]:
    """Make the store what the lines say, in one transaction; answers the rows of each table. A dump of an older
    version is brought to this one's.

    ProjectError if the dump is damaged or of a newer version; Conflict if the store is in use, unless `replace`;
    Blocked while something runs in it."""
    remaining = iter(lines)
    with database.write() as connection:
        _check_free(database, connection, replace)
        reader = _DumpReader(connection)
        head = reader.json(next(remaining, ""))
        if not isinstance(head, dict) or head.get("format") != FORMAT:
            raise ProjectError("this is not a backup of a store", hint="name a file that `instep db backup` has made")
        _build(connection, str(head["version"]))
        end = reader.tables(remaining)
        if reader.counts != end["end"]["rows"]:
            raise ProjectError("the backup is damaged: rows are missing", hint=_AGAIN)
        for table, number in end["end"]["numbers"].items():
            if table in _numbered():
                _set_number(connection, table, number)
        migrate.run(connection, migrate.HEAD)
    return reader.counts


def _set_number(connection: Connection, table: str, number: int) -> None:
    """Set the last number that was given to a row of a table."""
    if connection.dialect.name != "sqlite":
        connection.execute(select(func.setval(func.pg_get_serial_sequence(table, "number"), number)))
        return
    values = {"table": table, "number": number}
    connection.execute(text("DELETE FROM sqlite_sequence WHERE name = :table"), values)
    connection.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES (:table, :number)"), values)


def _check_free(database: Database, connection: Connection, replace: bool) -> None:
    version = migrate.version(connection)
    if not version:
        return
    migrate.check(database, version)
    existing = set(inspect(connection).get_table_names())
    for table in (runs, jobs):
        alive = select(func.count()).where(table.c.status == "running", table.c.lease_until > database.now())
        if table.name in existing and connection.execute(alive).scalar():
            raise Blocked(
                f"the store {database.place} has {table.name} under way",
                hint="wait for them, or stop server and workers",
            )
    tables = [table for table in IN_USE if table.name in existing]  # it may be of an older version
    used = any(connection.execute(select(func.count()).select_from(table)).scalar() for table in tables)
    if used and not replace:
        raise Conflict(f"the store {database.place} is in use", hint="make a backup of it, then restore with --replace")


def check_version(version: str) -> None:
    """Raise ProjectError if this code cannot restore a backup of a store of that version."""
    if maker := migrate.unknown_maker(version):
        newer = version > migrate.HEAD
        raise ProjectError(
            f"the backup was made by {maker} (version {version} of the store, this one knows {migrate.HEAD})",
            hint="update instep, then restore it" if newer else "use a backup made by a released instep",
        )


def _build(connection: Connection, version: str) -> None:
    """Create empty tables of that version."""
    check_version(version)
    if migrate.version(connection):
        migrate.run(connection, "base")
    migrate.run(connection, version)


@dataclass
class _DumpReader:
    """Puts rows into the tables that there are in the database, whatever this version of the code knows of them."""

    connection: Connection
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._digest = hashlib.sha256()

    def json(self, line: str) -> Any:
        try:
            value = json.loads(line)
        except ValueError:
            raise ProjectError("the backup is damaged: a line is not JSON", hint=_AGAIN) from None
        self._digest.update(line.rstrip("\n").encode() + b"\n")
        return value

    def tables(self, lines: Iterator[str]) -> Mapping[str, Any]:
        """Read all rows; answers the last line."""
        existing = MetaData()
        existing.reflect(self.connection)
        table, columns, rows = None, list[Column[Any]](), list[dict[str, Any]]()
        for line in lines:
            before = self._digest.hexdigest()
            entry = self.json(line)
            if isinstance(entry, list):
                rows.append({c.name: _read(c, value) for c, value in zip(columns, entry, strict=True)})
            if isinstance(entry, dict) or len(rows) == BATCH:
                self._insert(table, rows)
                rows = []
            if isinstance(entry, dict) and "end" in entry:
                if entry.get("sha256") != before:
                    raise ProjectError("the backup is damaged: its digest is another one", hint=_AGAIN)
                return entry
            if isinstance(entry, dict):
                table, columns = _table(existing, entry)
                self.counts[table.name] = 0
        raise ProjectError("the backup is damaged: its end is missing", hint=_AGAIN)

    def _insert(self, table: Table | None, rows: list[dict[str, Any]]) -> None:
        if rows and table is not None:
            self.connection.execute(insert(table), rows)
            self.counts[table.name] += len(rows)


def _table(existing: MetaData, entry: Mapping[str, Any]) -> tuple[Table, list[Column[Any]]]:
    table = existing.tables.get(str(entry.get("table")))
    names = entry.get("columns", [])
    if table is None or not set(names) <= set(table.columns.keys()):
        raise ProjectError("the backup is damaged: it has other tables than its version", hint=_AGAIN)
    return table, [table.columns[name] for name in names]


def _read(column: Column[Any], value: Any) -> Any:
    if isinstance(column.type, DateTime) and value is not None:
        at = datetime.fromisoformat(value)
        return at if column.type.timezone else at.astimezone(UTC).replace(tzinfo=None)
    if isinstance(column.type, JSON) and value is None and column.nullable:
        return null()
    return value


def _numbered() -> list[str]:
    return [t.name for t in metadata.sorted_tables if t.dialect_options["sqlite"]["autoincrement"]]


def _numbers(connection: Connection) -> dict[str, int]:
    """Return the last number that each table has given out, to a row that may be gone."""
    if connection.dialect.name == "sqlite":
        sequences = connection.execute(text("SELECT name, seq FROM sqlite_sequence")).all()
        return {name: int(number) for name, number in sequences if name in _numbered()}
    return {name: number for name in _numbered() if (number := _last(connection, name))}


def _last(connection: Connection, table: str) -> int:
    sequence = connection.execute(select(func.pg_get_serial_sequence(table, "number"))).scalar()
    row = connection.execute(text(f"SELECT last_value, is_called FROM {sequence}")).one()  # noqa: S608
    return int(row.last_value) if row.is_called else 0
