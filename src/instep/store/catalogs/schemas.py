"""Accepted catalogs: versions that are only ever added, each with who and why.

The source's and the destination's schemas as they were: versions that are only ever added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection, Select, func, insert, select

from instep.errors import InstepError, StalePlan
from instep.model import AcceptedVersion
from instep.schema.catalog.catalog import Catalog, catalog_from_dict, catalog_to_dict, fingerprint
from instep.schema.changes.version import Label, next_label
from instep.store.catalogs.connections import ensure
from instep.store.catalogs.freshness import keep_only
from instep.store.engine.database import Database
from instep.store.tables.catalogs import accepted, schemas

_VERSION = tuple(accepted.c[name] for name in AcceptedVersion.__dataclass_fields__)


class AcceptedCatalogs:
    def __init__(self, database: Database) -> None:
        self._db = database

    def add(
        self, connection: str, catalog: Catalog, *, who: str, why: str, base: str | None = None, run: str = ""
    ) -> AcceptedVersion:
        """Return the next version. An equal catalog adds nothing and answers the latest version. `base` is the
        fingerprint that the caller started from ("" for none yet): StalePlan if another version came in between."""
        with self._db.write(connection) as transaction:
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
            keep_only(transaction, connection, [table.ref for table in catalog.tables if not table.retained])
            return version

    def latest(self, connection: str) -> AcceptedVersion | None:
        with self._db.read() as transaction:
            return _latest(transaction, connection)

    def latest_of(self, names: Sequence[str]) -> dict[str, tuple[AcceptedVersion, Mapping[str, Any]]]:
        """Return the latest version of each of these connections that has one, with its catalog as `catalog_from_dict`
        reads it."""
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
                row["catalog"],
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

    def document(self, connection: str, version: int) -> Mapping[str, Any]:
        """Return the catalog of a version as `catalog_from_dict` reads it; empty if there is none."""
        query = select(accepted.c.catalog).where(accepted.c.connection == connection, accepted.c.version == version)
        with self._db.read() as transaction:
            return transaction.execute(query).scalar() or {}

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


CatalogSide = Literal["source", "destination"]


@dataclass(frozen=True)
class SchemaVersion:
    """A version of a schema."""

    connection: str
    side: CatalogSide
    version: int
    """Number from 1 for each connection and side."""
    fingerprint: str
    at: datetime
    run: str
    """The run that saw or made it ("" for a plan)."""
    accepted: int
    """The accepted version at that time (0 before the first)."""
    identity: str
    """The server whose ids are in it."""


_COLUMNS = tuple(schemas.c[name] for name in SchemaVersion.__dataclass_fields__)


class Schemas:
    def __init__(self, database: Database) -> None:
        self._db = database

    def add(
        self,
        connection: str,
        side: CatalogSide,
        catalog: Catalog,
        *,
        run: str = "",
        accepted: int = 0,
        identity: str = "",
    ) -> bool:
        """Store the next version; return False if the last one is equal."""
        digest = fingerprint(catalog)
        with self._db.write(connection) as transaction:
            ensure(transaction, connection, self._db.now())
            last = transaction.execute(_side_versions(connection, side).limit(1)).first()
            if last and (last.fingerprint, last.identity) == (digest, identity):
                return False
            version = SchemaVersion(
                connection, side, last.version + 1 if last else 1, digest, self._db.now(), run, accepted, identity
            )
            transaction.execute(insert(schemas).values(**vars(version), catalog=catalog_to_dict(catalog)))
            return True

    def history(self, connection: str, side: CatalogSide) -> list[SchemaVersion]:
        """Return all versions, newest first."""
        with self._db.read() as transaction:
            return [SchemaVersion(**row) for row in transaction.execute(_side_versions(connection, side)).mappings()]

    def latest(self, connection: str, side: CatalogSide) -> Catalog | None:
        """Return the newest version's catalog; None before the first."""
        c = schemas.c
        query = select(c.catalog).where(c.connection == connection, c.side == side).order_by(c.version.desc()).limit(1)
        with self._db.read() as transaction:
            data = transaction.execute(query).scalar()
        return None if data is None else catalog_from_dict(data)

    def document(self, connection: str, side: CatalogSide, version: int) -> Mapping[str, Any]:
        """Return the catalog of a version as `catalog_from_dict` reads it; empty if there is none."""
        c = schemas.c
        query = select(c.catalog).where(c.connection == connection, c.side == side, c.version == version)
        with self._db.read() as transaction:
            return transaction.execute(query).scalar() or {}

    def catalog(self, connection: str, side: CatalogSide, version: int) -> Catalog:
        """Raise InstepError if there is no such version."""
        c = schemas.c
        query = select(c.catalog).where(c.connection == connection, c.side == side, c.version == version)
        with self._db.read() as transaction:
            data = transaction.execute(query).scalar()
        if data is None:
            raise InstepError(
                f"connection {connection}: no version {version} of the {side} schema is kept",
                hint="see `instep history`",
            )
        return catalog_from_dict(data)


def _side_versions(connection: str, side: str) -> Select[Any]:
    where = (schemas.c.connection == connection, schemas.c.side == side)
    return select(*_COLUMNS).where(*where).order_by(schemas.c.version.desc())
