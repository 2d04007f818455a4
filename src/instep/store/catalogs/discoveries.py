"""Records of detections: the last source catalog of each connection, and the log of detections.

Which files a source has shown, in the order in which they were first seen, and what is in each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Row, func, insert, select, update

from instep.schema.catalog.catalog import Catalog, catalog_from_dict, catalog_to_dict
from instep.store.catalogs.connections import ensure
from instep.store.catalogs.schemas import Schemas
from instep.store.engine.database import Database
from instep.store.tables.catalogs import accepted, discoveries, source_files


@dataclass(frozen=True)
class CachedDiscovery:
    """The last discovery of a source. `stats` gives estimated (rows, bytes) by table; `denied`, `broken`, `unread`,
    `identity` and `proves_absence` are those of the discovery. `at` is set by the store."""

    catalog: Catalog
    fingerprint: str
    stats: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    denied: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    identity: str = ""
    proves_absence: bool = False
    at: datetime | None = None
    broken: frozenset[tuple[str, ...]] = frozenset()
    unread: Mapping[tuple[str, str], str] = field(default_factory=dict)


class Discoveries:
    def __init__(self, database: Database) -> None:
        self._db = database
        self._schemas = Schemas(database)

    def save(self, connection: str, seen: CachedDiscovery, *, run: str = "") -> None:
        """Store the last discovery, and its catalog as a version of the source's schema if it differs from the one
        before."""
        values: dict[str, Any] = {
            "fingerprint": seen.fingerprint,
            "identity": seen.identity,
            "proves_absence": seen.proves_absence,
            "stats": [[*table, *numbers] for table, numbers in sorted(seen.stats.items())],
            "denied": [
                *([list(path), why, path in seen.broken] for path, why in sorted(seen.denied.items())),
                *([list(ref), why, _UNREAD] for ref, why in sorted(seen.unread.items())),
            ],
            "catalog": catalog_to_dict(seen.catalog),
            "at": self._db.now(),
        }
        with self._db.write(connection) as transaction:
            ensure(transaction, connection, self._db.now())
            transaction.execute(discoveries.delete().where(discoveries.c.connection == connection))
            transaction.execute(insert(discoveries).values(connection=connection, **values))
            newest = select(func.max(accepted.c.version)).where(accepted.c.connection == connection)
            self._schemas.add(
                connection,
                "source",
                seen.catalog,
                run=run,
                identity=seen.identity,
                accepted=transaction.execute(newest).scalar() or 0,
            )

    def get(self, connection: str) -> CachedDiscovery | None:
        return self.get_many([connection]).get(connection)

    def get_many(self, names: Sequence[str]) -> dict[str, CachedDiscovery]:
        """Return `get` of several connections, without those that were never detected."""
        query = select(discoveries).where(discoveries.c.connection.in_(names))
        with self._db.read() as transaction:
            return {
                row.connection: _discovery(row, catalog_from_dict(row.catalog)) for row in transaction.execute(query)
            }

    def unread(self, names: Sequence[str]) -> dict[str, dict[tuple[str, str], str]]:
        """Return what is not read of the sources of these connections, and why; without those of which all is read."""
        query = select(discoveries.c.connection, discoveries.c.denied).where(discoveries.c.connection.in_(names))
        with self._db.read() as transaction:
            return {row.connection: unread for row in transaction.execute(query) if (unread := _unread(row.denied))}

    def document(self, connection: str) -> Mapping[str, Any]:
        """Return the last catalog as `catalog_from_dict` reads it; empty without one."""
        query = select(discoveries.c.catalog).where(discoveries.c.connection == connection)
        with self._db.read() as transaction:
            return transaction.execute(query).scalar() or {}

    def without_catalog(self, connection: str) -> CachedDiscovery | None:
        """Return the last discovery without its tables."""
        columns = [column for column in discoveries.c if column.name != "catalog"]
        with self._db.read() as transaction:
            row = transaction.execute(select(*columns).where(discoveries.c.connection == connection)).first()
        return None if row is None else _discovery(row, Catalog())

    def fingerprint(self, connection: str) -> str:
        """Return the fingerprint of the last discovery, "" without one; the catalog is not read."""
        query = select(discoveries.c.fingerprint).where(discoveries.c.connection == connection)
        with self._db.read() as transaction:
            return transaction.execute(query).scalar() or ""

    def age(self, connection: str) -> float | None:
        """Return the seconds since the source was last looked at; None if it never was."""
        query = select(discoveries.c.at).where(discoveries.c.connection == connection)
        with self._db.read() as transaction:
            at = transaction.execute(query).scalar()
        return None if at is None else float((self._db.now() - at).total_seconds())

    def touch(self, connection: str) -> None:
        """Record that the source was looked at again and is unchanged."""
        where = discoveries.c.connection == connection
        with self._db.write(connection) as transaction:
            transaction.execute(discoveries.update().where(where).values(at=self._db.now()))


_UNREAD = "unread"
"""Marks what is not read among what is denied."""


def _unread(denied: Sequence[Any]) -> dict[tuple[str, str], str]:
    return {(path[0], path[1]): why for path, why, *marks in denied if marks == [_UNREAD]}


def _discovery(row: Row[Any], catalog: Catalog) -> CachedDiscovery:
    return CachedDiscovery(
        catalog=catalog,
        fingerprint=row.fingerprint,
        stats={(schema, name): (rows, size) for schema, name, rows, size in row.stats},
        denied={tuple(path): why for path, why, *marks in row.denied if marks != [_UNREAD]},
        broken=frozenset(tuple(path) for path, _, *marks in row.denied if marks == [True]),
        unread=_unread(row.denied),
        identity=row.identity,
        proves_absence=row.proves_absence,
        at=row.at,
    )


@dataclass(frozen=True)
class SeenFile:
    """One version of a file, whose `path` is below its source's folder."""

    path: str
    size: int
    version: str
    number: int
    """Grows with each version that is seen (microseconds since 1970 UTC at that time, or more)."""
    options: str = ""
    shape: Mapping[str, Any] = field(default_factory=dict)
    """Shape that was found, under the options with the digest `options`."""


class SourceFiles:
    def __init__(self, database: Database) -> None:
        self._db = database

    def of(self, source: str) -> list[SeenFile]:
        """Return every version of every file, in order of their numbers."""
        c = source_files.c
        query = select(source_files).where(c.source == source).order_by(c.number)
        with self._db.read() as transaction:
            return [
                SeenFile(row.path, row.size, row.version, row.number, row.options, row.shape)
                for row in transaction.execute(query)
            ]

    def add(self, source: str, seen_files: Sequence[SeenFile]) -> dict[str, SeenFile]:
        """Add versions of files; return the recorded versions with their numbers by path. One that is the newest of its
        file already keeps its number."""
        with self._db.write() as transaction:
            newest = {seen.path: seen for seen in self.of(source)}
            last = transaction.execute(
                select(func.max(source_files.c.number)).where(source_files.c.source == source)
            ).scalar()
            number = max(int(self._db.now().timestamp() * 1_000_000), last or 0)
            rows, done = [], {}
            for file in seen_files:
                last_seen = newest.get(file.path)
                if last_seen is not None and (last_seen.size, last_seen.version) == (file.size, file.version):
                    done[file.path] = self._again(transaction, source, last_seen, file)
                    continue
                number += 1
                done[file.path] = SeenFile(file.path, file.size, file.version, number, file.options, file.shape)
                rows.append({"source": source, **vars(done[file.path]), "at": self._db.now()})
            if rows:
                transaction.execute(insert(source_files), rows)
        return done

    def _again(self, transaction: Any, source: str, seen: SeenFile, now: SeenFile) -> SeenFile:
        """Return the same version, inspected under other options."""
        c = source_files.c
        where = (c.source == source, c.number == seen.number)
        transaction.execute(update(source_files).where(*where).values(options=now.options, shape=now.shape))
        return SeenFile(seen.path, seen.size, seen.version, seen.number, now.options, now.shape)
