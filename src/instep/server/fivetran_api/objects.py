"""The objects of a server as the router asks for them: sections of the file, what the server keeps, and documents that
only this API knows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import merge
from itertools import islice
from typing import Any, TypeGuard

from instep.control.compat import CompatDocuments, Identity, identity
from instep.control.compat import Kind as StoredKind
from instep.control.connectors import forget_operations
from instep.control.resources.resources import Managed, Resources
from instep.errors import Conflict, RunInProgress
from instep.events import ConnectionCreated, ConnectionDeleted, ConnectionEdited
from instep.operations.values import ObjectKind
from instep.project.project import Project
from instep.server.fivetran_api.http.ports import Item, Kind, nothing
from instep.store.server.resources import Link, StoredObject
from instep.store.store import Store

_BEFORE = datetime(2000, 1, 1, tzinfo=UTC)
"""The creation time of the sections of a file, which is not known."""


@dataclass(frozen=True)
class ServedObjects:
    """Objects of the server (`now` returns them by the current project file) together with those that only this API
    knows."""

    now: Callable[[], Resources]

    @property
    def objects(self) -> Resources:
        return self.now()

    @property
    def _store(self) -> Store:
        return self.objects.store

    @property
    def _project(self) -> Project:
        return self.objects.project

    @property
    def _documents(self) -> CompatDocuments:
        return CompatDocuments(self._store)

    def connections(
        self, *, after: str = "", limit: int, group: str = "", namespace: str = "", groups: frozenset[str] = frozenset()
    ) -> Sequence[Item]:
        """Return connections; `groups`: those into one of these destinations, or with one of these tags."""
        links: list[Link] = [("destination", group)] if group else []
        any_of: list[Link] = [link for name in groups for link in _scope(name)]
        ours = self._managed(after, limit, links, any_of, namespace)
        both = merge(ours, self._foreign(after, limit, links, any_of, namespace), key=lambda item: item.name)
        return list(islice((item for item in both if namespace in ("", item.namespace)), limit))

    def _managed(
        self, after: str, at_once: int, links: list[Link], any_of: list[Link], namespace: str
    ) -> Iterator[Item]:
        common: dict[str, str] = {}
        while True:
            page = self.objects.page(
                "connection", after=after, limit=at_once, links=links, any_of=any_of, namespace=namespace
            )
            yield from (self._connection(one, common) for one in page)
            if len(page) < at_once:
                return
            after = page[-1].name

    def _foreign(
        self, after: str, at_once: int, links: list[Link], any_of: list[Link], namespace: str
    ) -> Iterator[Item]:
        while True:
            page = self._documents.page(
                "foreign", after=after, limit=at_once, links=links, any_of=any_of, namespace=namespace
            )
            yield from map(_stored_item, page)
            if len(page) < at_once:
                return
            after = page[-1].name

    def page(self, kind: Kind, *, after: str = "", limit: int) -> Sequence[Item]:
        if _is_stored(kind):
            return [_stored_item(one) for one in self._documents.page(kind, after=after, limit=limit)]
        assert _is_managed(kind)
        return [self._item(one) for one in self.objects.page(kind, after=after, limit=limit)]

    def get(self, kind: Kind, name: str) -> Item | None:
        if _is_stored(kind):
            stored = self._documents.get(kind, name)
            return _stored_item(stored) if stored else None
        assert _is_managed(kind)
        item = self.objects.find(kind, name)
        return self._item(item) if item else None

    def sources(self, names: Collection[str]) -> Mapping[str, Item]:
        return {source.name: _item(source) for source in self.objects.get_many("source", names)}

    def create(self, kind: Kind, name: str, spec: Mapping[str, Any], who: str, since: Item | None = None) -> Item:
        if _is_stored(kind):
            if kind == "group" and self.objects.find("destination", name):
                raise Conflict(f"there is a destination {name} already", hint="use another name")
            return self._put(kind, name, spec, who, new=True, since=since)
        assert _is_managed(kind)
        made = _made(since)
        return self._item(self.objects.put(kind, name, spec, who=who, expected=0, since=made))

    def change(self, kind: Kind, name: str, patch: Mapping[str, Any], who: str) -> Item:
        """Return one after the other: what two clients patch at a time is both in it."""
        with self._store.transaction():
            if _is_stored(kind):
                if (stored := self._documents.get(kind, name)) is None:
                    what = "connection without a source" if kind == "foreign" else kind
                    raise Conflict(f"{what} {name} no longer exists", hint="read it again, then repeat the change")
                return self._put(kind, name, merged(stored.spec, patch), who)
            assert _is_managed(kind)
            spec = merged(self.objects.get(kind, name).spec, patch)
            return self._item(self.objects.put(kind, name, spec, who=who))

    def _put(
        self,
        kind: StoredKind,
        name: str,
        spec: Mapping[str, Any],
        who: str,
        *,
        new: bool = False,
        since: Item | None = None,
    ) -> Item:
        with self._store.transaction():
            made = self._documents.put(kind, name, spec, who=who, new=new, links=_links(kind, spec), since=_made(since))
            if kind == "foreign":
                self._store.events.add(ConnectionCreated(name, who) if new else ConnectionEdited(name, who))
        return _stored_item(made)

    def delete(self, kind: Kind, name: str, who: str, along: Callable[[], None] = nothing) -> None:
        """Delete an object. A connection goes with its jobs, its records, and its source, if nobody else uses that;
        its tables at the destination stay. `along` is done in the same transaction."""
        was = self._project if kind == "connection" else None
        with self._store.transaction():
            if _is_stored(kind):
                self._delete_stored(kind, name, who)
            elif kind == "connection":
                self._delete_connection(name, who)
            else:
                assert _is_managed(kind)
                self.objects.delete(kind, name)
            along()
        if was is not None:
            forget_operations(was, self._store, name)

    def _delete_stored(self, kind: StoredKind, name: str, who: str) -> None:
        with self._store.transaction():
            if kind == "foreign":
                self._store.events.add(_deleted(name, who, 0, identity(self._project, self._store, name)))
            self._documents.delete(kind, name)

    def _delete_connection(self, name: str, who: str) -> None:
        store = self._store
        with store.transaction():
            source, was = self._project.source_of(name), identity(self._project, store, name)
            if self._project.follows_log(name):
                hint = f"run `instep connection delete {name}`, which takes the slot away"
                raise Conflict(f"connection {name} has a log at its source, which would fill the disk there", hint=hint)
            self.objects.delete("connection", name)
            for job in store.jobs.unfinished([name]):
                if job.status == "running":
                    raise RunInProgress(f"connection {name}: job {job.id} is running", hint="stop it first")
                store.jobs.cancel(job.id, who)
            users = store.objects.users("source", source)
            if not users and (stored := self.objects.find("source", source)) and stored.by == "server":
                self.objects.delete("source", source)
            tables = len(store.names.of(name))
            store.connections.forget(name)
            store.events.add(_deleted(name, who, tables, was))

    def _item(self, managed: Managed) -> Item:
        if managed.kind == "connection":
            return self._connection(managed, {})
        return _item(managed)

    def _connection(self, managed: Managed, common: dict[str, str]) -> Item:
        """Return a connection for the API; `common` has the namespaces of destinations that are known already."""
        if managed.by == "file":
            group, namespace = self._project.destination_of(managed.name), self._project.namespace_of(managed.name)
        else:
            group = str(managed.spec["destination"])
            if group not in common:
                destination = self.objects.find("destination", group)
                common[group] = str(destination.spec.get("namespace") or "") if destination else ""
            namespace = str(managed.spec.get("namespace") or common[group] or managed.name)
        return _item(managed, group, namespace)


def _deleted(name: str, who: str, tables: int, was: Identity) -> ConnectionDeleted:
    return ConnectionDeleted(name, who, tables, "kept", "", (), was.service, was.group, was.namespace)


def _item(managed: Managed, group: str = "", namespace: str = "") -> Item:
    assert managed.kind in ("source", "destination", "connection")
    return Item(
        managed.kind,
        managed.name,
        managed.spec,
        managed.created or _BEFORE,
        managed.created_by,
        group,
        namespace,
        in_file=managed.by == "file",
        tags=frozenset(managed.tags),
    )


def _stored_item(stored_object: StoredObject) -> Item:
    kind, group = stored_object.kind, str(stored_object.spec.get("group_id", ""))
    assert _is_stored(kind)
    config = stored_object.spec.get("config")
    namespace = str(config.get("schema") or stored_object.name) if isinstance(config, Mapping) else stored_object.name
    return Item(
        kind, stored_object.name, stored_object.spec, stored_object.created, stored_object.created_by, group, namespace
    )


def _is_stored(kind: str) -> TypeGuard[StoredKind]:
    return kind in ("foreign", "group", "webhook", "user")


def _is_managed(kind: str) -> TypeGuard[ObjectKind]:
    return kind in ("source", "destination", "connection")


def _made(item: Item | None) -> tuple[datetime, str] | None:
    """Return when and by whom the item was made that another one replaces."""
    return (item.created, item.created_by) if item else None


def _links(kind: Kind, spec: Mapping[str, Any]) -> list[Link]:
    """Return the links by which a document is found: the group of a foreign connection."""
    return [("destination", str(spec.get("group_id", "")))] if kind == "foreign" else []


def _scope(name: str) -> tuple[Link, Link]:
    return ("destination", name), ("tag", name)


def merged(old: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a JSON merge patch (RFC 7396)."""
    out = dict(old)
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
        elif isinstance(value, Mapping):
            before = out.get(name)
            out[name] = merged(before if isinstance(before, Mapping) else {}, value)
        else:
            out[name] = value
    return out
