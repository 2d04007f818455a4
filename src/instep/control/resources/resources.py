"""Managed resources: the sections of the project file, which the file alone changes, and the objects of the server.

Secrets come in as plain values, are sealed, and never go out again: whoever reads an object sees stars, and whoever
sends the stars back keeps what is there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Any, Literal

from instep.control.compat import CompatDocuments, noted_of
from instep.control.resources.links import check_links, links_of
from instep.errors import Blocked, Conflict, InstepError
from instep.events import ConnectionCreated, ConnectionEdited, Event
from instep.model import StoredKind
from instep.operations.values import ObjectKind
from instep.project.allowed.keys import addresses, refusals
from instep.project.documents import (
    MASK,
    MOVED,
    NO_REFERENCE,
    PLURALS,
    InvalidObject,
    check_name,
    check_storable,
    masked,
    masked_arguments,
    masked_but,
    parent_of,
    plain_secrets,
    plain_section_of,
    pointer,
    replaced,
    secret,
    secret_id,
    secrets_in,
    section_of,
    texts,
    value_at,
    written,
)
from instep.project.project import Project
from instep.project.sections.airbyte import AirbyteServer
from instep.project.sections.models import ConnectionSection
from instep.project.sections.values import Section, listed
from instep.project.served import ServedProject
from instep.project.text import tree as yaml_tree
from instep.project.text.problems import dotted, suggestion
from instep.project.text.references import Reference, is_bare_reference, is_reference
from instep.project.text.tree import Path
from instep.store.server.resources import KINDS, Called, Link, StoredObject
from instep.store.store import Store
from instep.suggest import first_of

TO_WRITE = "write it there:"
"""Beginning of the hint before the lines for the project file."""
_PENDING = "pending"
_REFERENCE = re.compile(r"\$\{(env|file|secret):[^}]*\}")
_NO_TEXT = 'must be text; put it in quotes ("...")'


@dataclass(frozen=True)
class Managed:
    """An object as it may be shown."""

    kind: ObjectKind
    name: str
    id: str
    spec: Mapping[str, Any]
    by: Literal["file", "server"]
    """Manager of the object: the project file, or the server. An object of the file has version 0 and no times; its
    id is always the same."""
    version: int = 0
    tags: tuple[str, ...] = ()
    created: datetime | None = None
    created_by: str = ""
    updated: datetime | None = None
    updated_by: str = ""


class Resources:
    """Use cases over one project and its store. Kinds are source, destination, connection, policy and channel."""

    def __init__(self, project: Project, store: Store) -> None:
        self.project, self.store = project, store
        self._own = project.own if isinstance(project, ServedProject) else project.model

    def get(self, kind: ObjectKind, name: str) -> Managed:
        """Return the object; InstepError if there is none."""
        resource = self.find(kind, name)
        if resource is None:
            raise InstepError(f"there is no {kind} {name!r}", hint=f"see the list of {PLURALS[kind]}")
        return resource

    def find(self, kind: ObjectKind, name: str) -> Managed | None:
        if name in self._sections(kind):
            return self._of_file(kind, name)
        stored = self.store.objects.get(kind, name)
        return _of_server(stored) if stored else None

    def get_many(self, kind: ObjectKind, names: Collection[str]) -> list[Managed]:
        """Return those of these objects that there are, in one query."""
        own = [self._of_file(kind, name) for name in names if name in self._sections(kind)]
        known = {resource.name for resource in own}
        others = self.store.objects.get_many(kind, [name for name in names if name not in known])
        return own + list(map(_of_server, others))

    def by_id(self, id: str) -> Managed | None:
        """Return the object of any kind with that id."""
        if stored := self.store.objects.by_id(id):
            return _of_server(stored)
        named = ((kind, name) for kind in KINDS for name in self._sections(kind))
        return next((self._of_file(kind, name) for kind, name in named if _file_id(kind, name) == id), None)

    def page(
        self,
        kind: ObjectKind,
        *,
        after: str = "",
        limit: int = 100,
        name: str = "",
        links: Iterable[Link] = (),
        any_of: Iterable[Link] = (),
        namespace: str = "",
    ) -> list[Managed]:
        """Return objects in the order of names, from the first one behind `after`. `name`: a part of it; `links`: what
        all of them have, such as ("destination", "lake") for the group lake, or ("tag", "eu"); `any_of`: what each has
        one of, if it is not empty; `namespace`: connections that may load into it."""
        required, one = tuple(links), frozenset(any_of)
        ours = self._own_page(kind, after, name, required, one)
        called = None
        if namespace:
            ours = (resource for resource in ours if self.project.namespace_of(resource.name) == namespace)
            named = self.project.model.destinations
            shared = tuple(n for n in named if self.project.common_namespace(n) == namespace)
            called = Called(namespace, ("namespace",), shared)
        stored = self.store.objects.page(
            kind, after=after, limit=limit, name=name, links=required, any_of=one, called=called
        )
        theirs = map(_of_server, stored)
        return list(islice(merge(ours, theirs, key=lambda resource: resource.name), limit))

    def names(self, kind: ObjectKind, any_of: Iterable[Link]) -> set[str]:
        """Return the names of all objects that have one of these links."""
        one = frozenset(any_of)
        sections = self._sections(kind)
        mine = {name for name, section in sections.items() if one.intersection(links_of(self.project, section))}
        return mine | {name for name in self.store.objects.linked(kind, one) if name not in sections}

    def count(self, kind: ObjectKind, *, name: str = "", links: Iterable[Link] = ()) -> int:
        required = tuple(links)
        own = sum(1 for _ in self._own_page(kind, "", name, required))
        return own + self.store.objects.count(kind, name=name, links=required)

    def _own_page(
        self, kind: ObjectKind, after: str, part: str, required: tuple[Link, ...], one: frozenset[Link] = frozenset()
    ) -> Iterator[Managed]:
        for name in sorted(self._sections(kind)):
            if name <= after or part.lower() not in name.lower():
                continue
            links = frozenset(links_of(self.project, self._sections(kind)[name]) if required or one else ())
            if links.issuperset(required) and (not one or links & one):
                yield self._of_file(kind, name)

    def put(
        self,
        kind: ObjectKind,
        name: str,
        spec: Mapping[str, Any],
        *,
        who: str,
        tags: Iterable[str] | None = None,
        expected: int | None = None,
        origins: Mapping[Path, str] | None = None,
        since: tuple[datetime, str] | None = None,
        dry_run: bool = False,
    ) -> Managed:
        """Write an object and answer it as it may be shown. Tags of a connection stand in its document; those of
        others are `tags` (None: as they are). `expected`: the version it must have, 0 for a new one. `origins`:
        references that secrets came from, by place. `since`: when and by whom it was made, for one that was known
        before by another kind, and about whom all is told.

        InvalidObject for what is wrong with it, Conflict for another version or an object of the file. Under
        `dry_run` nothing is written: what is answered has the id and version of before."""
        check_name(kind, name)
        given_tags = None if tags is None else list(tags)
        check_storable(kind, name, {**spec, **({"tags": given_tags} if given_tags and kind != "connection" else {})})
        self._not_of_file(kind, name, spec)
        with self.store.transaction():
            self.store.objects.check(kind, name, expected)
            before = self.store.objects.get(kind, name)
            plain = self._with_secrets(kind, name, spec, before)
            places = _to_seal(kind, name, plain, origins or {})
            _no_others(kind, name, plain, places, before)
            document = replaced(plain, {path: secret(_PENDING).text for path in places})
            section = section_of(kind, name, document)
            self._check_reach(kind, name, section, plain)
            _check_addresses(kind, name, section, plain, before)
            check_links(self.project, self.store, kind, name, document, section)
            given = _tags(section.tags if isinstance(section, ConnectionSection) else given_tags, before)
            links = links_of(self.project, section)
            if dry_run:
                return _previewed(kind, name, document, given, before)
            sealed = self._sealed(kind, name, plain, places, who, origins or {})
            document = replaced(document, {path: secret(id).text for path, id in sealed.items()})
            self.store.secrets.delete_others(kind, name, set(secrets_in(document).values()))
            made = self.store.objects.put(
                kind, name, document, who=who, tags=given, links=links, expected=expected, since=since
            )
            if since is None:
                self.store.events.add(*self._events(kind, name, who, new=before is None))
        return _of_server(made)

    def check_seen(self, kind: ObjectKind, name: str, spec: Mapping[str, Any]) -> None:
        """Raise Blocked, with what to write into instep.yml, where the store's object would not be seen: by a project
        that is read from its file alone. Conflict for a name that the file has."""
        if isinstance(self.project, ServedProject):
            return
        check_name(kind, name)
        check_storable(kind, name, spec)
        self._not_of_file(kind, name, spec)
        raise Blocked(
            f"{kind} {name} would be kept by a server, and this project is read from {self.project.file.name} alone",
            hint=f"{TO_WRITE}\n{self._as_yaml(kind, name, spec)}",
        )

    def check_deletable(self, kind: ObjectKind, name: str) -> None:
        """Raise Conflict, with the lines to take out, for an object of the project file."""
        self._not_of_file(kind, name, None)

    def _as_yaml(self, kind: ObjectKind, name: str, spec: Mapping[str, Any]) -> str:
        """Return the section of an object, with places for its secrets: those that the file has stay as they are.
        InvalidObject for what is wrong with it."""
        plural = PLURALS[kind]
        own = dict(texts(written(value_at(self.project.tree.data, (plural, name)) or {})))
        secrets = {
            path: own[path] if is_bare_reference(own.get(path, "")) else suggestion((plural, name, *path))
            for path in (*plain_secrets(kind, name, spec), *(path for path, text in texts(spec) if text == MASK))
        }
        document = replaced(spec, secrets)
        section_of(kind, name, document)  # what it does not know might be a secret: it is not shown
        return yaml_tree.dump({plural: {name: document}})

    def _events(self, kind: ObjectKind, name: str, who: str, *, new: bool) -> list[Event]:
        """Return what happened to connections: what is written of a source is an edit of those that read it."""
        if kind == "connection":
            return [ConnectionCreated(name, who) if new else ConnectionEdited(name, who)]
        if kind != "source" or new:
            return []
        users = self.store.objects.users("source", name)
        return [ConnectionEdited(user, who) for kind, user in users if kind == "connection"]

    def delete(self, kind: ObjectKind, name: str, *, expected: int | None = None, dry_run: bool = False) -> None:
        """Delete an object and its secrets. Blocked while others use it; of a connection, what was loaded and what is
        recorded of it stay, as `instep connection delete` explains."""
        self._not_of_file(kind, name, None)
        with self.store.transaction():
            self.get(kind, name)
            self.store.objects.check(kind, name, expected)
            users = self.store.objects.users(kind, name) if kind != "connection" else []
            if users:
                named = first_of([f"{what} {user}" for what, user in users], 5)
                raise Blocked(f"{kind} {name} is used by {named}", hint="delete these first, or change them")
            if not dry_run:
                self.store.secrets.delete_others(kind, name, ())
                self.store.objects.delete(kind, name, expected=expected)
                CompatDocuments(self.store).delete("noted", noted_of(kind, name))
                if kind == "destination":
                    self.store.setups.forget(name)

    def _sections(self, kind: ObjectKind) -> Mapping[str, Any]:
        sections: Mapping[str, Any] = getattr(self._own, PLURALS[kind])
        return sections

    def _of_file(self, kind: ObjectKind, name: str) -> Managed:
        data = value_at(self.project.tree.data, (PLURALS[kind], name)) or {}
        section = self._sections(kind)[name]
        shown = self.store.open_fields.of(name, section.program) if isinstance(section, AirbyteServer) else ()
        document = _readable(kind, written(data), shown)
        tags = tuple(getattr(section, "tags", ()))
        return Managed(kind, name, _file_id(kind, name), document, "file", tags=tags)

    def _not_of_file(self, kind: ObjectKind, name: str, spec: Mapping[str, Any] | None) -> None:
        if name not in self._sections(kind):
            return
        where = self.project.location_of((PLURALS[kind], name)).rpartition(": ")[0]
        message = f"{kind} {name} is managed by {where}"
        if spec is None:
            lines = yaml_tree.dump({PLURALS[kind]: {name: self._of_file(kind, name).spec}})
            raise Conflict(message, hint=f"take these lines out of it:\n{lines}")
        raise Conflict(message, hint=f"{TO_WRITE}\n{self._as_yaml(kind, name, spec)}")

    def _with_secrets(
        self, kind: ObjectKind, name: str, spec: Mapping[str, Any], before: StoredObject | None
    ) -> dict[str, Any]:
        """Return the document with what it had before in the place of stars: references of secrets, and values that
        nobody reads."""
        stars = [path for path, text in texts(spec) if text == MASK]
        read = dict(texts(_of_server(before).spec)) if before else {}
        if unknown := [path for path in stars if read.get(path) != MASK]:
            message = f"{MASK} keeps the secret that is there, and there is none: write its value"
            raise InvalidObject(kind, name, [(path, message) for path in unknown])
        return replaced(spec, {path: value_at(before.spec, path) for path in stars} if before else {})

    def _check_reach(self, kind: ObjectKind, name: str, section: Section, plain: Mapping[str, Any]) -> None:
        """Raise InvalidObject for what leads to code, files or accounts of this machine that an API does not reach."""
        wrong = [(path, NO_REFERENCE) for path, text in texts(_fields(section)) if not secret_id(text)]
        known = secrets_in(plain)
        values = {p: self.store.secrets.open(id, kind, name, pointer(p)) for p, id in known.items()}
        wrong += refusals(plain_section_of(kind, name, replaced(plain, values)), self.project.shelves)
        if wrong:
            raise InvalidObject(kind, name, wrong)

    def _sealed(
        self,
        kind: ObjectKind,
        name: str,
        plain: Mapping[str, Any],
        places: Iterable[Path],
        who: str,
        origins: Mapping[Path, str],
    ) -> dict[Path, str]:
        """Return the ids of secrets by place."""
        return {
            path: self.store.secrets.put(
                kind, name, pointer(path), str(value_at(plain, path)), who=who, origin=origins.get(path, "")
            )
            for path in places
        }


def _to_seal(kind: ObjectKind, name: str, plain: dict[str, Any], origins: Mapping[Path, str]) -> list[Path]:
    """Return the places of plain secrets. Those without a value are taken out of `plain`."""
    paths = [path for path in plain_secrets(kind, name, plain) if not secret_id(value_at(plain, path))]
    wrong = [(path, _NO_TEXT) for path in paths if not isinstance(value_at(plain, path), str)]
    wrong += [(p, NO_REFERENCE) for p in paths if p not in origins and _REFERENCE.fullmatch(str(value_at(plain, p)))]
    if wrong:
        raise InvalidObject(kind, name, wrong)
    for path in (empty := {p for p in paths if value_at(plain, p) == ""}):
        del parent_of(plain, path)[path[-1]]
    return [path for path in paths if path not in empty]


def _no_others(
    kind: ObjectKind, name: str, plain: Mapping[str, Any], sealed: Collection[Path], before: StoredObject | None
) -> None:
    """Refuse references of an object of the server to anything but its own secrets, as environment or files."""
    known = secrets_in(before.spec) if before else {}
    mine = {path for path, id in secrets_in(plain).items() if known.get(path) == id}.union(sealed)
    wrong = [path for path, text in texts(plain) if is_reference(text) and path not in mine]
    if wrong:
        raise InvalidObject(kind, name, [(path, NO_REFERENCE) for path in wrong])


def _check_addresses(
    kind: ObjectKind, name: str, section: Section, plain: Mapping[str, Any], before: StoredObject | None
) -> None:
    """Raise InvalidObject if secrets that were sealed for one server would be sent to another: whoever may write an
    object may not thereby read its secrets."""
    known = secrets_in(before.spec) if before else {}
    unchanged = [path for path, id in secrets_in(plain).items() if known.get(path) == id]
    if not before or not unchanged:
        return
    try:
        former = dict(addresses(section_of(kind, name, before.spec)))
    except InvalidObject:  # of another version: what it named is not known
        former = {}
    if moved := sorted({path for path, _ in dict(addresses(section)).items() ^ former.items()}, key=str):
        raise InvalidObject(kind, name, [(p, MOVED.format(dotted(moved[0]))) for p in unchanged if p not in moved])


def _fields(value: Any) -> Any:
    """Return the references in a section, and in sections within it, by the keys that they are read as."""
    if isinstance(value, Section):
        return {name: _fields(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, dict):
        return {name: _fields(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_fields(item) for item in value]
    return value if isinstance(value, Reference) else None


def _tags(tags: Any, before: StoredObject | None) -> tuple[str, ...]:
    if tags is None:
        return before.tags if before else ()
    return tuple(dict.fromkeys([tags] if isinstance(tags, str) else map(str, tags)))


def _previewed(
    kind: ObjectKind, name: str, document: Mapping[str, Any], tags: tuple[str, ...], before: StoredObject | None
) -> Managed:
    spec = _readable(kind, document)
    if before is None:
        return Managed(kind, name, "", spec, "server", tags=tags)
    return replace(_of_server(before), spec=spec, tags=tags)


def _of_server(stored_object: StoredObject) -> Managed:
    spec = _readable(stored_object.kind, stored_object.spec)
    return Managed(**{**vars(stored_object), "spec": spec}, by="server")


def _readable(kind: StoredKind, spec: Mapping[str, Any], shown: Collection[Path] = ()) -> dict[str, Any]:
    """Return the document for reading. What a connector is given means what its code says: but for the fields `shown`
    of its configuration, no value of it is read."""
    document = masked(spec)
    if kind != "source" or document.get("type") not in ("connector", "airbyte"):
        return document
    places = {"configuration": shown, "environment": ()}
    given = {key: masked_but(document[key], open_ones) for key, open_ones in places.items() if key in document}
    if "command" in document:
        given["command"] = masked_arguments(listed(document["command"]))
    return {**document, **given}


def _file_id(kind: ObjectKind, name: str) -> str:
    """Return the same at every start, and none that the server makes: those begin with a letter."""
    return "0" + hashlib.sha256(f"{kind}/{name}".encode()).hexdigest()[:19]


def merged(document: Any, patch: Any) -> Any:
    """Return a JSON merge patch (RFC 7396): null takes a key away, objects are merged, all else is replaced."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(document) if isinstance(document, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
