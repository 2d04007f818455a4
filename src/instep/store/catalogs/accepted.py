"""Accepted catalogs: versions that are only ever added, each with who and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, func, insert, select

from instep.errors import InstepError, StalePlan
from instep.model import AcceptedVersion
from instep.schema.catalog.catalog import Catalog, catalog_from_dict, catalog_to_dict, fingerprint
from instep.schema.changes.version import Label, next_label
from instep.store.catalogs.connections import ensure
from instep.store.engine.database import Database
from instep.store.tables.catalogs import accepted

_VERSION = tuple(accepted.c[name] for name in AcceptedVersion.__dataclass_fields__)


class Accepted:
    def __init__(self, database: Database) -> None:
        self._db = database

    def add(
        self, connection: str, catalog: Catalog, *, who: str, why: str, base: str | None = None, run: str = ""
    ) -> AcceptedVersion:
        """Return the next version. An equal catalog adds nothing and answers the latest version. `base` is the
        fingerprint that the caller started from ("" for none yet): StalePlan if another version came in between."""
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
            major, minor = _label(transaction, latest, catalog)
            version = AcceptedVersion(connection, number, digest, self._db.now(), who, why, major, minor, run)
            transaction.execute(insert(accepted).values(**vars(version), catalog=catalog_to_dict(catalog)))
            return version

    def latest(self, connection: str) -> AcceptedVersion | None:
        with self._db.read() as transaction:
            return _latest(transaction, connection)

    def latest_of(self, names: Sequence[str]) -> dict[str, tuple[AcceptedVersion, Catalog]]:
        """Return the latest version of each of these connections that has one."""
        c = accepted.c
        newest = (
            select(c.connection, func.max(c.version).label("version"))
            .where(c.connection.in_(names))
            .group_by(c.connection)
            .subquery()
        )
        same = (newest.c.connection == c.connection) & (newest.c.version == c.version)
        with self._db.read() as transaction:
            rows = transaction.execute(select(*_VERSION, c.catalog).join(newest, same)).mappings().all()
        return {
            row["connection"]: (
                AcceptedVersion(**{k: v for k, v in row.items() if k != "catalog"}),
                catalog_from_dict(row["catalog"]),
            )
            for row in rows
        }

    def catalog(self, connection: str, version: int | None = None) -> Catalog:
        """Return the catalog of a version, by default the latest; empty before the first. InstepError if the version
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
        """Return all versions, newest first."""
        with self._db.read() as transaction:
            return [AcceptedVersion(**row) for row in transaction.execute(_versions(connection)).mappings()]


def _versions(connection: str) -> Select[Any]:
    query = select(*_VERSION).where(accepted.c.connection == connection)
    return query.order_by(accepted.c.version.desc())


def _latest(transaction: Connection, connection: str) -> AcceptedVersion | None:
    row = transaction.execute(_versions(connection).limit(1)).mappings().first()
    return AcceptedVersion(**row) if row else None


def _label(transaction: Connection, latest: AcceptedVersion | None, catalog: Catalog) -> Label:
    if latest is None:
        return next_label(None, Catalog(), catalog)
    where = (accepted.c.connection == latest.connection, accepted.c.version == latest.version)
    before = transaction.execute(select(accepted.c.catalog).where(*where)).scalar_one()
    return next_label((latest.major, latest.minor), catalog_from_dict(before), catalog)
