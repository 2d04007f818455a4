"""Accepted catalogs: versions that are only ever added, each with who and why."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, insert, select

from instep.errors import InstepError, StalePlan
from instep.model import AcceptedVersion
from instep.schema.table import Catalog, catalog_from_dict, catalog_to_dict, fingerprint
from instep.store.connections import ensure
from instep.store.database import Database
from instep.store.tables import accepted

_VERSION = (accepted.c.connection, accepted.c.version, accepted.c.fingerprint, accepted.c.at, accepted.c.who)


class Accepted:
    def __init__(self, database: Database) -> None:
        self._db = database

    def add(self, connection: str, catalog: Catalog, *, who: str, why: str, base: str | None = None) -> AcceptedVersion:
        """The next version. An equal catalog adds nothing and answers the latest version. `base` is the fingerprint
        that the caller started from ("" for none yet): StalePlan if another version came in between."""
        with self._db.write() as transaction:
            ensure(transaction, connection, self._db.now())
            latest = _latest(transaction, connection)
            if base is not None and base != (latest.fingerprint if latest else ""):
                version_now = latest.version if latest else 0
                raise StalePlan(
                    f"connection {connection}: the accepted schema has moved to version {version_now}",
                    hint="run `instep plan` again",
                )
            digest = fingerprint(catalog)
            if latest and latest.fingerprint == digest:
                return latest
            number = latest.version + 1 if latest else 1
            version = AcceptedVersion(connection, number, digest, self._db.now(), who, why)
            transaction.execute(insert(accepted).values(**vars(version), catalog=catalog_to_dict(catalog)))
            return version

    def latest(self, connection: str) -> AcceptedVersion | None:
        with self._db.read() as transaction:
            return _latest(transaction, connection)

    def catalog(self, connection: str, version: int | None = None) -> Catalog:
        """The catalog of a version, by default the latest; empty before the first. InstepError if the version
        does not exist."""
        query = select(accepted.c.catalog).where(accepted.c.connection == connection)
        if version is None:
            query = query.order_by(accepted.c.version.desc()).limit(1)
        else:
            query = query.where(accepted.c.version == version)
        with self._db.read() as transaction:
            data = transaction.execute(query).scalar()
        if data is None and version is not None:
            raise InstepError(f"connection {connection} has no accepted version {version}", hint="see `instep history`")
        return catalog_from_dict(data) if data else Catalog()

    def history(self, connection: str) -> list[AcceptedVersion]:
        """All versions, newest first."""
        with self._db.read() as transaction:
            return [AcceptedVersion(**row) for row in transaction.execute(_versions(connection)).mappings()]


def _versions(connection: str) -> Select[Any]:
    query = select(*_VERSION, accepted.c.why).where(accepted.c.connection == connection)
    return query.order_by(accepted.c.version.desc())


def _latest(transaction: Connection, connection: str) -> AcceptedVersion | None:
    row = transaction.execute(_versions(connection).limit(1)).mappings().first()
    return AcceptedVersion(**row) if row else None
