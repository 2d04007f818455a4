"""Names at a source that two connections cannot share: the slot of its log, which each reads and moves on, and drops
when it ends, and the publication that goes with it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from instep.errors import ProjectError
from instep.project.project import Project
from instep.project.sections.models import ConnectionSection
from instep.project.served import ServedProject
from instep.project.text.tree import Path
from instep.store.store import Store

_HINT = "give it a name of its own, or leave it out: then it has one"


def check_log_names(project: Project, store: Store, connection: str) -> None:
    """Raise ProjectError for a slot or publication that another connection of the same source has."""
    section = project.connection(connection)
    for path, why in log_problems(project, store, connection, project.source_of(connection), section):
        place = project.location_of(("connections", connection, *path))
        raise ProjectError(f"{place}: {why}, so {connection} cannot have it", hint=_HINT)


def log_problems(
    project: Project, store: Store, name: str, source: str, section: ConnectionSection
) -> Iterator[tuple[Path, str]]:
    """Yield (place, why) of what a connection's section calls its log by, and another connection of the source has."""
    names = {field: given for field in ("slot", "publication") if (given := getattr(section.log, field))}
    others = sorted(_of_source(project, store, source) - {name}) if names else []
    reading = reads_slot(project, store, name, source, names["slot"], others) if "slot" in names else ""
    if reading:
        yield ("log", "slot"), f"connection {reading} of source {source} reads the slot {names['slot']!r}"
    own, logs = store.installation.known(), _logs(project, store, others)
    for field, given in names.items():
        for other in () if reading and field == "slot" else others:
            if given in _called(project, other, logs.get(other, {}), field, own):
                yield ("log", field), f"connection {other} of source {source} has the {field} {given!r}"
                break


def reads_slot(
    project: Project, store: Store, name: str, source: str, slot: str, others: Collection[str] | None = None
) -> str:
    """Return another connection of the source whose cursors are in this slot, "" for none."""
    readers = store.cursors.reading(slot) - {name}
    if not readers:
        return ""
    return min(readers.intersection(_of_source(project, store, source) if others is None else others), default="")


def _of_source(project: Project, store: Store, source: str) -> set[str]:
    """Return the connections of a source: those of the file, and those that the server keeps."""
    first = next(iter(project.model.sources), "")
    names = {name for name, section in _of_file(project).items() if (section.source or first) == source}
    return names.union(name for kind, name in store.objects.users("source", source) if kind == "connection")


def _of_file(project: Project) -> Mapping[str, ConnectionSection]:
    own = project.own if isinstance(project, ServedProject) else project.model
    sections: Mapping[str, ConnectionSection] = own.connections
    return sections


def _logs(project: Project, store: Store, names: Collection[str]) -> dict[str, Mapping[str, Any]]:
    """Return what these connections say of their logs."""
    own = _of_file(project)
    stored = store.objects.get_many("connection", [name for name in names if name not in own])
    logs: dict[str, Mapping[str, Any]] = {name: vars(own[name].log) for name in names if name in own}
    return logs | {one.name: log for one in stored if isinstance(log := one.spec.get("log"), dict)}


def _called(project: Project, name: str, log: Mapping[str, Any], field: str, own: str) -> set[str]:
    """Return the names that a connection's slot or publication may have: its own name depends on when it was made."""
    log_name = str(log.get(field) or "")
    return {log_name} if log_name else {project.own_log_name(name), project.own_log_name(name, own)}
