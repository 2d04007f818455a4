"""Documents that only the compatible API knows: connections of services without a source, groups that wait for a
destination, webhooks, users, and what it notes of objects that have settings of their own (`noted`). What their keys
call a secret is sealed on its way in, and stars on its way out.

What a connection is called in the words of the compatible API: its service, its schema, its group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from instep.errors import Conflict, InstepError
from instep.operations.values import ObjectKind
from instep.project.allowed.keys import is_address
from instep.project.documents import (
    MASK,
    MOVED,
    InvalidObject,
    masked,
    pointer,
    replaced,
    secret,
    secret_id,
    secrets_in,
    texts,
    value_at,
)
from instep.project.project import Project
from instep.project.sections.values import looks_secret
from instep.project.text.problems import dotted
from instep.project.text.tree import Path
from instep.redaction import SECRET_NAME
from instep.store.server.resources import Called, Link, StoredObject
from instep.store.store import Store

Kind = Literal["foreign", "group", "webhook", "user", "noted"]


def noted_of(kind: ObjectKind, name: str) -> str:
    """Return the name of the document of what is noted of an object."""
    return f"{kind}/{name}"


class CompatDocuments:
    """Use cases over one store, which needs master keys for secrets. What is answered is masked."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, kind: Kind, name: str) -> StoredObject | None:
        stored = self._store.objects.get(kind, name)
        return _shown(stored) if stored else None

    def page(
        self,
        kind: Kind,
        *,
        after: str = "",
        limit: int = 100,
        links: Iterable[Link] = (),
        any_of: Iterable[Link] = (),
        namespace: str = "",
    ) -> list[StoredObject]:
        """Return a page of documents by name, behind `after`; links as `Objects.page` has them. `namespace`:
        those that say so, or are called so."""
        called = Called(namespace, ("config", "schema")) if namespace else None
        stored = self._store.objects.page(kind, after=after, limit=limit, links=links, any_of=any_of, called=called)
        return [_shown(one) for one in stored]

    def put(
        self,
        kind: Kind,
        name: str,
        spec: Mapping[str, Any],
        *,
        who: str,
        new: bool = False,
        links: Iterable[Link] = (),
        since: tuple[datetime, str] | None = None,
    ) -> StoredObject:
        """Write a document; stars keep the secret that is there. Conflict if it must be `new` and is not. `since`:
        when and by whom what it takes the place of was made."""
        with self._store.transaction():
            before = self._store.objects.get(kind, name)
            if new and before is not None:
                raise Conflict(f"there is a {kind} {name} already", hint="use another name")
            document = self._sealed(kind, name, spec, before, who)
            self._store.secrets.delete_others(kind, name, set(secrets_in(document).values()))
            made = self._store.objects.put(kind, name, document, who=who, links=links, since=since)
            return _shown(made)

    def delete(self, kind: Kind, name: str) -> None:
        with self._store.transaction():
            self._store.secrets.delete_others(kind, name, ())
            self._store.objects.delete(kind, name)

    def opened(self, kind: Kind, name: str) -> dict[str, Any]:
        """Return the document with its secrets in plain text, for whoever uses them. InstepError if there is none."""
        stored = self._store.objects.get(kind, name)
        if stored is None:
            raise InstepError(f"there is no {kind} {name!r}", hint="it was deleted meanwhile")
        ids = secrets_in(stored.spec)
        plain = {path: self._store.secrets.open(id, kind, name, pointer(path)) for path, id in ids.items()}
        return replaced(stored.spec, plain)

    def _sealed(
        self, kind: Kind, name: str, spec: Mapping[str, Any], before: StoredObject | None, who: str
    ) -> dict[str, Any]:
        known = secrets_in(before.spec) if before else {}
        as_before = {path: known[path] for path, text in texts(spec) if text == MASK and path in known}
        if kind == "foreign" and before is not None and as_before:
            _check_addresses(name, spec, before.spec, as_before)
        given = {path: str(value_at(spec, path)) for path in _secret_places(spec) if path not in as_before}
        new = {
            path: self._store.secrets.put(kind, name, pointer(path), value, who=who)
            for path, value in given.items()
            if value not in ("", MASK)
        }
        return replaced(spec, {path: secret(id).text for path, id in {**as_before, **new}.items()})


def _check_addresses(name: str, spec: Mapping[str, Any], before: Mapping[str, Any], stored: Iterable[Path]) -> None:
    """Raise InvalidObject for secrets of a connection that would be sent to another server once it has its source.
    One that has named no server yet may name its first."""
    now, then = (
        {path: text for path, text in _scalars(one) if is_address(str(path[-1]), text)} for one in (spec, before)
    )
    places = {path for path, text in now.items() ^ then.items() if text != MASK and not secret_id(text)}
    if then and (moved := sorted(places, key=str)):
        raise InvalidObject("connection", name, [(path, MOVED.format(dotted(moved[0]))) for path in stored])


def _scalars(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    if isinstance(value, Mapping | list | tuple):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _scalars(item, (*path, key))
    elif path:
        yield path, str(value)


def _shown(stored_object: StoredObject) -> StoredObject:
    return replace(stored_object, spec=masked(stored_object.spec))


def _secret_places(value: Any, path: Path = (), within: bool = False) -> Iterator[Path]:
    """Yield the places of values whose key calls them secret, at any depth, or that contain the password of a URL. What
    looks like a reference is one, too: no document refers to what it has not sealed."""
    if isinstance(value, Mapping | list | tuple):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            named = isinstance(key, str) and SECRET_NAME.search(key) is not None
            yield from _secret_places(item, (*path, key), within or named)
    elif value is None or isinstance(value, bool):
        return
    elif within or (isinstance(value, str) and (looks_secret(value) or secret_id(value))):
        yield path


SERVICES: Mapping[str, str] = {
    "postgres": "postgres",
    "mysql": "mysql",
    "mariadb": "maria",
    "sqlite": "sqlite",
    "files": "files",
    "jdbc": "jdbc",
    "connector": "connector_sdk",
}
"""Type of a source to service."""


@dataclass(frozen=True)
class Identity:
    """`namespace` is the schema at the destination, `group` the destination. All of it is "" once it is gone."""

    service: str = ""
    namespace: str = ""
    group: str = ""


def identity(project: Project, store: Store, connection: str) -> Identity:
    """Return the identity of a connection with a source, or of one whose service is not supported."""
    if connection in project.model.connections:
        type = project.model.sources[project.source_of(connection)].type
        return Identity(SERVICES.get(type, type), project.namespace_of(connection), project.destination_of(connection))
    if (stored := store.objects.get("foreign", connection)) is None:
        return Identity()
    config = stored.spec.get("config")
    schema = config.get("schema") if isinstance(config, Mapping) else None
    return Identity(
        str(stored.spec.get("service", "")), str(schema or connection), str(stored.spec.get("group_id", ""))
    )
