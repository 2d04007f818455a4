"""Links between objects: which they use, and whether these are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from instep.control.resources.log_names import log_problems
from instep.operations.values import ObjectKind
from instep.project.documents import InvalidObject
from instep.project.load import connection_links
from instep.project.project import Project
from instep.project.sections.models import ConnectionSection
from instep.project.sections.values import Section
from instep.project.text.tree import Path
from instep.store.server.resources import Link
from instep.store.store import Store

_USED = ("sources", "destinations", "policies", "channels")


def links_of(project: Project, section: Section) -> tuple[Link, ...]:
    """Return what an object of the project is found by: what it uses, its tags, its place as a shard."""
    if not isinstance(section, ConnectionSection):
        return ()
    return tuple(dict.fromkeys(_connection_links(project, section)))


def _connection_links(project: Project, section: ConnectionSection) -> Iterator[Link]:
    yield "source", section.source or next(iter(project.model.sources), "")
    yield "destination", _destination(project, section)
    if section.policy and section.policy in project.model.policies:
        yield "policy", section.policy
    yield from (("channel", notice.to) for notice in section.notify)
    yield from (("tag", tag) for tag in section.tags)
    if section.shard:
        yield "shard", _shard(project, section)


def check_links(
    project: Project, store: Store, kind: ObjectKind, name: str, document: Mapping[str, Any], section: Section
) -> None:
    """Raise InvalidObject if a connection names what is not there, or is a shard or has a log that there is already."""
    if not isinstance(section, ConnectionSection):
        return
    names = {plural: dict.fromkeys(getattr(project.model, plural), True) for plural in _USED}
    problems = [(path, message) for message, path in _required(document)]
    problems += [
        (path, message) for message, path in connection_links(names, document) if (path, message) not in problems
    ]
    problems += [] if problems or not section.shard else list(_shard_problems(project, store, name, section))
    problems += [] if problems else list(log_problems(project, store, name, section.source, section))
    if problems:
        raise InvalidObject(kind, name, problems)


def _required(document: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
    """Yield the problem of an end that is not named: a second source would leave open which one was meant."""
    for field in ("source", "destination"):
        if not document.get(field):
            yield "is required", (field,)


def _shard_problems(
    project: Project, store: Store, name: str, section: ConnectionSection
) -> Iterator[tuple[Path, str]]:
    namespace = _namespace(project, section)
    if not namespace:
        yield ("shard",), "needs a `namespace`, which it shares with the other shards"
        return
    place = _shard(project, section)
    connections = [user for kind, user in store.objects.users("shard", place) if kind == "connection"]
    own = [n for n, s in _of_file(project).items() if s.shard and _shard(project, s) == place]
    if others := [user for user in (*own, *connections) if user != name]:
        yield ("shard",), f"connection {others[0]} is shard {section.shard!r} of {namespace} already"


def _of_file(project: Project) -> Mapping[str, ConnectionSection]:
    own = getattr(project, "own", project.model)
    sections: Mapping[str, ConnectionSection] = own.connections
    return sections


def _destination(project: Project, section: ConnectionSection) -> str:
    return section.destination or next(iter(project.model.destinations), "")


def _namespace(project: Project, section: ConnectionSection) -> str:
    common = project.model.destinations.get(_destination(project, section))
    return section.namespace or str(common.namespace if common else "")


def _shard(project: Project, section: ConnectionSection) -> str:
    return "/".join((_destination(project, section), _namespace(project, section), section.shard))
