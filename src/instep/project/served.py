"""A project of which the file says a part and a server keeps the rest: one connection is read without the others.

Names are unique over both. What the file says comes first, and refers to what the file says alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from instep.errors import ProjectError
from instep.model import ObjectKind
from instep.project.connector import ConnectorServer, reaching_out
from instep.project.documents import PLURALS, InvalidObject, section_of
from instep.project.models import Connection, ProjectFile
from instep.project.policies import PolicySection
from instep.project.project import Project, Settings
from instep.project.reference import Opens
from instep.project.tree import Path as TreePath
from instep.project.values import Section

_KINDS = {plural: kind for kind, plural in PLURALS.items()}


class Document(Protocol):
    """What is kept of an object: its section as JSON; `id` and `version` tell one writing of it from all others."""

    @property
    def id(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def spec(self) -> Mapping[str, Any]: ...


class Documents(Protocol):
    """Where a server keeps them."""

    def get(self, kind: ObjectKind, name: str) -> Document | None: ...

    def names(self, kind: ObjectKind) -> tuple[str, ...]: ...


class Sections(Mapping[str, Any]):
    """The sections of one kind, the file's first. Each is read and checked when it is asked for, and again when it was
    written since."""

    def __init__(self, kind: ObjectKind, file: Mapping[str, Section], documents: Documents) -> None:
        self._kind, self._file, self._documents = kind, file, documents
        self._read: dict[str, tuple[tuple[str, int], Section]] = {}

    def __getitem__(self, name: str) -> Section:
        if name in self._file:
            return self._file[name]
        found = self._documents.get(self._kind, name)
        if found is None:
            self._read.pop(name, None)
            raise KeyError(name)
        written, section = self._read.get(name, (None, None))
        if section is None or written != (found.id, found.version):
            section = section_of(self._kind, name, found.spec)
            self._read[name] = (found.id, found.version), section
        return section

    def __iter__(self) -> Iterator[str]:
        yield from self._file
        yield from (name for name in self._documents.names(self._kind) if name not in self._file)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in self._file or (isinstance(name, str) and self._documents.get(self._kind, name) is not None)


@dataclass(frozen=True)
class ServedProject(Project):
    """`model` has the sections of both; `own` is what the file says."""

    own: ProjectFile = field(default_factory=ProjectFile)

    def manages(self, plural: str, name: str) -> bool:
        """Whether the server keeps the section, not the file."""
        return name not in getattr(self.own, plural)

    def source(self, name: str) -> Settings:
        """Also looks again at where a connector that the server keeps is: folders and links may have moved since."""
        section = self.model.sources.get(name)
        wrong = [*reaching_out(section, self.root)] if isinstance(section, ConnectorServer) else []
        if wrong and self.manages("sources", name):
            raise InvalidObject("source", name, wrong)
        return super().source(name)

    def where(self, path: TreePath) -> str:
        if len(path) < 2 or path[0] not in _KINDS or not self.manages(str(path[0]), str(path[1])):
            return super().where(path)
        return ": ".join((f"{_KINDS[str(path[0])]} {path[1]}", *filter(None, [".".join(map(str, path[2:]))])))

    def of(self, connection: str) -> Project:
        """The connection with all that belongs to it as it is now; nobody's later writing changes it. ProjectError if
        something that it uses is gone: out of the file, which does not know who uses it."""
        section = self.connection(connection)
        source, destination = self.source_of(connection), self.destination_of(connection)
        channels = {notice.to: self._used(connection, "channels", notice.to) for notice in section.notify}
        found = {
            "connections": {connection: section},
            "sources": {source: self._used(connection, "sources", source)},
            "destinations": {destination: self._used(connection, "destinations", destination)},
            "policies": self._policy(section),
            "channels": channels,
        }
        return replace(self, model=self.model.model_copy(update=found))

    def _policy(self, section: Connection) -> dict[str, PolicySection]:
        """The one it names; the words of presets are none."""
        found = self.model.policies.get(section.policy)
        return {section.policy: found} if found else {}

    def _used(self, connection: str, plural: str, name: str) -> Any:
        found = getattr(self.model, plural).get(name)
        if found is None:
            kind = _KINDS[plural]
            hint = f"put it back into {self.file.name}, or give the connection another {kind}"
            raise ProjectError(f"connection {connection}: there is no {kind} {name!r}, which it uses", hint=hint)
        return found


def served(project: Project, documents: Documents, opens: Opens) -> ServedProject:
    """A project with what a server keeps beside its file."""
    model, own = project.model, project.model
    both = {plural: Sections(kind, getattr(own, plural), documents) for kind, plural in PLURALS.items()}
    environment = replace(project.environment, opens=opens)
    return ServedProject(project.file, model.model_copy(update=both), project.tree, environment, project.digest, own)
