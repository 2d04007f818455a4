"""Import of project file sections into the store, and their export.

Secrets of a file are references. They are resolved and sealed when they are taken in, and stand as references in what
is written: as those that they came from, else as variables that are named after their place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from instep.control.resources.resources import Resources
from instep.operations.values import ObjectKind
from instep.project.documents import PLURALS, pointer, replaced, secrets_in, texts, value_at, written
from instep.project.project import Project
from instep.project.text import tree as yaml_tree
from instep.project.text.references import Reference
from instep.project.text.tree import Path
from instep.store.server.resources import StoredObject

Named = tuple[ObjectKind, str]


@dataclass
class ImportReport:
    """Result of an import per section."""

    created: list[Named] = field(default_factory=list)
    changed: list[Named] = field(default_factory=list)
    unchanged: list[Named] = field(default_factory=list)


def export_text(objects: Resources) -> str:
    """Return all that the server keeps, as the text of a project file."""
    return yaml_tree.dump(exported(objects))


def exported(objects: Resources) -> dict[str, Any]:
    """Return all that the server keeps, as the sections of a project file; references are text."""
    document: dict[str, Any] = {"version": 1}
    variables: set[str] = set()
    for kind, plural in PLURALS.items():
        names = objects.store.objects.names(kind)
        stored = [one for name in names if (one := objects.store.objects.get(kind, name))]
        if stored:
            document[plural] = {one.name: _with_references(objects, one, variables) for one in stored}
    return document


def _with_references(objects: Resources, stored: StoredObject, variables: set[str]) -> dict[str, Any]:
    origins = {record.id: record.origin for record in objects.store.secrets.of(stored.kind, stored.name)}
    sealed = secrets_in(stored.spec)
    return replaced(stored.spec, {p: origins.get(id) or _variable(stored, p, variables) for p, id in sealed.items()})


def _variable(stored: StoredObject, path: Path, taken: set[str]) -> str:
    """Return a variable's name that no other secret has."""
    parts = [str(part) for part in (stored.kind, stored.name, *path) if part != "properties"]
    base = re.sub(r"\W", "_", "_".join(parts), flags=re.ASCII).upper()
    name, number = base, 2
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    taken.add(name)
    return f"${{env:{name}}}"


class _DryRunEnd(Exception):
    """Ends a transaction that was only tried."""


def import_project(
    objects: Resources, given: Project, *, who: str, replace: bool = False, dry_run: bool = False
) -> ImportReport:
    """Take in all sections of a project file, or none. What is there already is a Conflict, unless it is the same or
    `replace`. Tags of connections come with them; other settings of the file are the server's own business. Under
    `dry_run` all of it is tried, and nothing stays."""
    done = ImportReport()
    with suppress(_DryRunEnd), objects.store.transaction():
        for kind, name, spec, origins in _sections(given):
            before = objects.store.objects.get(kind, name)
            if before and _same(objects, before, spec, origins):
                done.unchanged.append((kind, name))
                continue
            objects.put(kind, name, spec, who=who, expected=None if replace else 0, origins=origins)
            (done.changed if before else done.created).append((kind, name))
        if dry_run:
            raise _DryRunEnd
    return done


def _sections(given: Project) -> Iterator[tuple[ObjectKind, str, dict[str, Any], dict[Path, str]]]:
    """Yield (kind, name, document with its values, the references that they came from), in the order in which they
    link to each other."""
    for kind, plural in PLURALS.items():
        for name in getattr(given.model, plural):
            section = value_at(given.tree.data, (plural, name)) or {}
            origins = {p: text for p, text in texts(section) if isinstance(value_at(section, p), Reference)}
            spec = replaced(
                written(section), {p: _resolved(given, text, (plural, name, *p)) for p, text in origins.items()}
            )
            if kind == "connection":
                spec = {"source": given.source_of(name), "destination": given.destination_of(name), **spec}
            yield kind, name, spec, origins


def _resolved(given: Project, text: str, path: Path) -> str:
    return given.environment.resolve(Reference(text), given.location_of(path), path)


def _same(objects: Resources, before: StoredObject, spec: Mapping[str, Any], origins: Mapping[Path, str]) -> bool:
    """Return whether a document says what is kept, secrets and the references that they came from included."""
    sealed = secrets_in(before.spec)
    values = {
        path: objects.store.secrets.open(id, before.kind, before.name, pointer(path)) for path, id in sealed.items()
    }
    known = {record.id: record.origin for record in objects.store.secrets.of(before.kind, before.name)}
    same_origins = all(known[id] == origins.get(path, "") for path, id in sealed.items())
    return same_origins and replaced(before.spec, values) == spec
