"""Documents that the server manages: sources, destinations, connections, policies and channels.

A document has the very shape of its section in instep.yml. `links` are what it is found by: the names of other
objects that it uses, and its tags.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, delete, func, insert, or_, select, update

from instep.errors import Conflict
from instep.model import StoredKind
from instep.operations.values import ObjectKind
from instep.store.engine.database import Database
from instep.store.server.ids import new_id
from instep.store.server.sealed_configuration import opened_specs, sealed_spec
from instep.store.server.secrets import Secrets
from instep.store.tables.server import object_links as links
from instep.store.tables.server import objects

LinkKind = Literal["source", "destination", "policy", "channel", "tag", "shard"]
Link = tuple[LinkKind, str]
KINDS: tuple[ObjectKind, ...] = get_args(ObjectKind)


@dataclass(frozen=True)
class StoredObject:
    """An object of the server's configuration."""

    kind: StoredKind
    name: str
    id: str
    """Never used again."""
    spec: Mapping[str, Any]
    """Secrets in `spec` are references `${secret:ID}`."""
    version: int
    """Number of writes of the object, from 1."""
    tags: tuple[str, ...]
    created: datetime
    created_by: str
    updated: datetime
    updated_by: str


@dataclass(frozen=True)
class Called:
    """Object with a name that has to be unique at its destination: by its own document, at `path`, by its name, or as
    all of these destinations are."""

    name: str
    path: tuple[str, ...]
    destinations: tuple[str, ...] = ()


class StoredResources:
    def __init__(self, database: Database, secrets: Secrets) -> None:
        self._db, self._secrets = database, secrets

    def put(
        self,
        kind: StoredKind,
        name: str,
        spec: Mapping[str, Any],
        *,
        who: str,
        tags: Sequence[str] = (),
        links: Iterable[Link] = (),
        expected: int | None = None,
        since: tuple[datetime, str] | None = None,
    ) -> StoredObject:
        """Write an object. `expected` is the version that it must have, 0 for one that must not exist, None for
        any; Conflict if it has another. `since`: when and by whom it was made, for a new one that takes the place of
        another."""
        with self._db.write() as transaction:
            self.check(kind, name, expected)
            old, now = _row(transaction, kind, name), self._db.now()
            sealed = sealed_spec(self._secrets, kind, name, spec, who)
            values = {"spec": sealed, "tags": list(tags), "updated": now, "updated_by": who}
            if old is None:
                created, by = since or (now, who)
                first = {"kind": kind, "name": name, "id": new_id(), "version": 1, "created": created, "created_by": by}
                transaction.execute(insert(objects).values(**first, **values))
            else:
                transaction.execute(update(objects).where(*_is(kind, name)).values(version=old.version + 1, **values))
            _link(transaction, kind, name, [*links, *(("tag", tag) for tag in tags)])
            row = _row(transaction, kind, name)
            assert row is not None
        return self._objects([row])[0]

    def check(self, kind: StoredKind, name: str, expected: int | None) -> None:
        """Raise Conflict if the object does not have the expected version; see `put`."""
        stored = self.get(kind, name) if expected is not None else None
        version = stored.version if stored else 0
        if expected is None or version == expected:
            return
        if stored is None:
            raise Conflict(f"{kind} {name} no longer exists", hint="read the list again")
        if expected == 0:
            raise Conflict(f"{kind} {name} exists already", hint="choose another name, or change the one there is")
        raise Conflict(
            f"{kind} {name} was changed meanwhile by {stored.updated_by or 'somebody'}: it is at version {version}, "
            f"this change was made from version {expected}",
            hint="read it again and repeat the change",
        )

    def get(self, kind: StoredKind, name: str) -> StoredObject | None:
        with self._db.read() as transaction:
            row = _row(transaction, kind, name)
        return self._objects([row])[0] if row else None

    def get_many(self, kind: StoredKind, names: Collection[str]) -> list[StoredObject]:
        """Return those of these objects that exist, by name."""
        query = select(objects).where(objects.c.kind == kind, objects.c.name.in_(names)).order_by(objects.c.name)
        with self._db.read() as transaction:
            rows = transaction.execute(query).all()
        return self._objects(rows)

    def by_id(self, id: str) -> StoredObject | None:
        with self._db.read() as transaction:
            row = transaction.execute(select(objects).where(objects.c.id == id)).first()
        return self._objects([row])[0] if row else None

    def names(self, kind: StoredKind) -> tuple[str, ...]:
        """Return all names in their order."""
        query = select(objects.c.name).where(objects.c.kind == kind)
        with self._db.read() as transaction:
            return tuple(sorted(transaction.execute(query).scalars()))

    def mark(self) -> tuple[object, ...]:
        """Return a mark that changes with each write of any object; cheaper than `versions`."""
        query = select(func.count(), func.sum(objects.c.version), func.max(objects.c.updated))
        with self._db.read() as transaction:
            return tuple(transaction.execute(query).one())

    def versions(self, *kinds: ObjectKind) -> dict[tuple[ObjectKind, str], tuple[str, int]]:
        """Return (id, version) of every object of these kinds by (kind, name)."""
        c = objects.c
        query = select(c.kind, c.name, c.id, c.version).where(c.kind.in_(kinds))
        with self._db.read() as transaction:
            return {(row.kind, row.name): (row.id, row.version) for row in transaction.execute(query)}

    def page(
        self,
        kind: StoredKind,
        *,
        after: str = "",
        limit: int = 100,
        name: str = "",
        links: Iterable[Link] = (),
        any_of: Iterable[Link] = (),
        called: Called | None = None,
    ) -> list[StoredObject]:
        """Return a page in the order of names, from the first one behind `after`. `name`: a part of it, in any case;
        `links`: it has all of these; `any_of`: it has one of these, if there are any."""
        query = _with_one(_filtered(select(objects), kind, name, links), kind, any_of)
        if called is not None:
            query = query.where(_is_called(kind, called))
        query = query.where(objects.c.name > after).order_by(objects.c.name).limit(limit)
        with self._db.read() as transaction:
            rows = transaction.execute(query).all()
        return self._objects(rows)

    def count(self, kind: StoredKind, *, name: str = "", links: Iterable[Link] = ()) -> int:
        with self._db.read() as transaction:
            query = _filtered(select(func.count()).select_from(objects), kind, name, links)
            return int(transaction.execute(query).scalar_one())

    def users(self, kind: LinkKind, name: str) -> list[tuple[ObjectKind, str]]:
        """Return (kind, name) of the objects that use an object, or have a tag."""
        query = select(links.c.kind, links.c.name).where(links.c.what == kind, links.c.value == name)
        with self._db.read() as transaction:
            return sorted((row.kind, row.name) for row in transaction.execute(query))

    def linked(self, kind: StoredKind, any_of: Iterable[Link]) -> set[str]:
        """Return the names of all objects that have one of these links."""
        query = _with_one(select(objects.c.name).where(objects.c.kind == kind), kind, any_of)
        with self._db.read() as transaction:
            return set(transaction.execute(query).scalars())

    def delete(self, kind: StoredKind, name: str, *, expected: int | None = None) -> StoredObject | None:
        """Delete an object and answer its row, None if there was none; Conflict as `put`."""
        with self._db.write() as transaction:
            self.check(kind, name, expected)
            row = _row(transaction, kind, name)
            _link(transaction, kind, name, ())
            transaction.execute(delete(objects).where(*_is(kind, name)))
        return _object(row, row.spec) if row else None

    def _objects(self, rows: Sequence[Row[Any]]) -> list[StoredObject]:
        specs = opened_specs(self._secrets, [(row.kind, row.name, row.spec) for row in rows])
        return [_object(row, spec) for row, spec in zip(rows, specs, strict=True)]


def _is(kind: StoredKind, name: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return objects.c.kind == kind, objects.c.name == name


def _row(transaction: Connection, kind: StoredKind, name: str) -> Row[Any] | None:
    return transaction.execute(select(objects).where(*_is(kind, name))).first()


def _object(row: Row[Any], spec: Mapping[str, Any]) -> StoredObject:
    return StoredObject(**{**row._mapping, "spec": spec, "tags": tuple(row.tags)})


def _link(transaction: Connection, kind: StoredKind, name: str, required: Iterable[Link]) -> None:
    transaction.execute(delete(links).where(links.c.kind == kind, links.c.name == name))
    rows = [{"kind": kind, "name": name, "what": what, "value": value} for what, value in dict.fromkeys(required)]
    if rows:
        transaction.execute(insert(links), rows)


def _filtered(query: Select[Any], kind: StoredKind, name: str, required: Iterable[Link]) -> Select[Any]:
    query = query.where(objects.c.kind == kind)
    if name:
        query = query.where(objects.c.name.icontains(name, autoescape=True))
    for what, value in required:
        has = select(links.c.name).where(links.c.kind == kind, links.c.what == what, links.c.value == value)
        query = query.where(objects.c.name.in_(has))
    return query


def _with_one(query: Select[Any], kind: StoredKind, required: Iterable[Link]) -> Select[Any]:
    fitting = [and_(links.c.what == what, links.c.value == value) for what, value in required]
    if not fitting:
        return query
    return query.where(objects.c.name.in_(select(links.c.name).where(links.c.kind == kind, or_(*fitting))))


def _is_called(kind: StoredKind, called: Called) -> ColumnElement[bool]:
    uses_destination = (links.c.kind == kind, links.c.what == "destination", links.c.value.in_(called.destinations))
    name = objects.c.spec[called.path].as_string() == called.name
    return or_(objects.c.name == called.name, name, objects.c.name.in_(select(links.c.name).where(*uses_destination)))
