"""Sealed secrets of what the server manages. A secret has an id, which stands as `${secret:ID}` in its document."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, delete, func, insert, select, update

from instep.crash import crashpoint
from instep.errors import InstepError, ProjectError
from instep.store.engine.database import Database
from instep.store.engine.keyring import Keyring, Sealed, SecretPlace, rewrap, seal, unseal
from instep.store.server.ids import new_id
from instep.store.tables.server import secrets

BATCH = 100


@dataclass(frozen=True)
class SecretRecord:
    """Record of a secret without its value."""

    id: str
    place: SecretPlace
    key: str
    origin: str
    """The reference that it came from, "" if none."""
    at: datetime
    who: str
    sealed: Sealed = field(repr=False)


class Secrets:
    def __init__(self, database: Database, keys: Callable[[], Keyring | None]) -> None:
        self._db, self._keys = database, keys

    @property
    def keys(self) -> Keyring:
        """ProjectError if this process has none."""
        if (keys := self._keys()) is None:
            raise ProjectError(
                "this command has no master keys to open secrets with",
                hint="set INSTEP_KEYS, or use the key file of the server",
            )
        return keys

    def put(self, kind: str, name: str, field: str, value: str, *, who: str, origin: str = "") -> str:
        """Seal a secret of a field of an object, and return its id. Earlier ones stay until `delete_others`."""
        with self._db.write() as transaction:
            last = select(func.max(secrets.c.version)).where(*_of(kind, name), secrets.c.field == field)
            place = SecretPlace(kind, name, field, (transaction.execute(last).scalar() or 0) + 1)
            sealed, id = seal(self.keys, place, value), new_id()
            row = {"id": id, **vars(place), "key": sealed.key, "wrapped": sealed.wrapped, "sealed": sealed.value}
            transaction.execute(insert(secrets).values(**row, origin=origin, at=self._db.now(), who=who))
            return id

    def open(self, id: str, kind: str, name: str, field: str) -> str:
        """Return the value, for the field of the object that it was sealed for and for no other. InstepError
        otherwise."""
        return self.unsealed(self.get(id), id, kind, name, field)

    def unsealed(self, record: SecretRecord | None, id: str, kind: str, name: str, field: str) -> str:
        """Return the value of a record, as `open` does."""
        if record is None or (record.place.kind, record.place.name, record.place.field) != (kind, name, field):
            raise InstepError(
                f"{kind} {name}: {field}: there is no secret {id!r} of this field", hint="write the secret again"
            )
        return unseal(self.keys, record.place, record.sealed)

    def get(self, id: str) -> SecretRecord | None:
        with self._db.read() as transaction:
            row = transaction.execute(select(secrets).where(secrets.c.id == id)).first()
        return _record(row) if row else None

    def get_many(self, ids: Collection[str]) -> dict[str, SecretRecord]:
        """Return those of these secrets that there are, by id."""
        if not ids:
            return {}
        with self._db.read() as transaction:
            rows = transaction.execute(select(secrets).where(secrets.c.id.in_(list(ids))))
            return {row.id: _record(row) for row in rows}

    def of(self, kind: str, name: str) -> list[SecretRecord]:
        """Return the secrets of an object, by field."""
        query = select(secrets).where(*_of(kind, name)).order_by(secrets.c.field, secrets.c.version)
        with self._db.read() as transaction:
            return [_record(row) for row in transaction.execute(query)]

    def delete_others(self, kind: str, name: str, ids: Collection[str]) -> int:
        """Delete all secrets of an object but these; return how many."""
        with self._db.write() as transaction:
            gone = delete(secrets).where(*_of(kind, name), secrets.c.id.not_in(list(ids)))
            return transaction.execute(gone).rowcount

    def by_key(self) -> Mapping[str, int]:
        """Return how many secrets each master key has sealed."""
        query = select(secrets.c.key, func.count()).group_by(secrets.c.key).order_by(secrets.c.key)
        with self._db.read() as transaction:
            return {row[0]: row[1] for row in transaction.execute(query)}

    def rotate(self, batch: int = BATCH) -> int:
        """Wrap every data key with the current master key; answers how many were not yet. Stopped at any place, it
        goes on where it was: each secret opens with the old key or with the new one."""
        done = 0
        while count := self._rotate(batch):
            done += count
        return done

    def _rotate(self, batch: int) -> int:
        keys = self.keys
        query = select(secrets).where(secrets.c.key != keys.current).order_by(secrets.c.id).limit(batch)
        with self._db.write() as transaction:
            records = [_record(row) for row in transaction.execute(query)]
            for record in records:
                sealed = rewrap(keys, record.place, record.sealed)
                crashpoint("secrets.rotate.row")
                values = {"key": sealed.key, "wrapped": sealed.wrapped}
                transaction.execute(update(secrets).where(secrets.c.id == record.id).values(**values))
        crashpoint("secrets.rotate.batch")
        return len(records)


def _of(kind: str, name: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return secrets.c.kind == kind, secrets.c.name == name


def _record(row: Row[Any]) -> SecretRecord:
    place = SecretPlace(row.kind, row.name, row.field, row.version)
    return SecretRecord(row.id, place, row.key, row.origin, row.at, row.who, Sealed(row.key, row.wrapped, row.sealed))
