"""The source's and the destination's schemas as they were: versions that are only ever added."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Select, insert, select

from instep.errors import InstepError
from instep.schema.catalog.catalog import Catalog, catalog_from_dict, catalog_to_dict, fingerprint
from instep.store.catalogs.connections import ensure
from instep.store.engine.database import Database
from instep.store.tables.catalogs import schemas

CatalogSide = Literal["source", "destination"]


@dataclass(frozen=True)
class SchemaVersion:
    """`version` counts from 1 for each connection and side. `accepted` is the accepted version at that time (0 before
    the first), `run` the run that saw or made it ("" for a plan), `identity` the server whose ids are in it."""

    connection: str
    side: CatalogSide
    version: int
    fingerprint: str
    at: datetime
    run: str
    accepted: int
    identity: str


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
        """Keep the next version; False if the last one is equal."""
        digest = fingerprint(catalog)
        with self._db.write() as transaction:
            ensure(transaction, connection, self._db.now())
            last = transaction.execute(_versions(connection, side).limit(1)).first()
            if last and (last.fingerprint, last.identity) == (digest, identity):
                return False
            made = SchemaVersion(
                connection, side, last.version + 1 if last else 1, digest, self._db.now(), run, accepted, identity
            )
            transaction.execute(insert(schemas).values(**vars(made), catalog=catalog_to_dict(catalog)))
            return True

    def history(self, connection: str, side: CatalogSide) -> list[SchemaVersion]:
        """Return all versions, newest first."""
        with self._db.read() as transaction:
            return [SchemaVersion(**row) for row in transaction.execute(_versions(connection, side)).mappings()]

    def latest(self, connection: str, side: CatalogSide) -> Catalog | None:
        """Return the newest version's catalog; None before the first."""
        c = schemas.c
        query = select(c.catalog).where(c.connection == connection, c.side == side).order_by(c.version.desc()).limit(1)
        with self._db.read() as transaction:
            data = transaction.execute(query).scalar()
        return None if data is None else catalog_from_dict(data)

    def catalog(self, connection: str, side: CatalogSide, version: int) -> Catalog:
        """InstepError if there is no such version."""
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


def _versions(connection: str, side: str) -> Select[Any]:
    where = (schemas.c.connection == connection, schemas.c.side == side)
    return select(*_COLUMNS).where(*where).order_by(schemas.c.version.desc())
