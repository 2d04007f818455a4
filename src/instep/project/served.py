"""A project of which the file says a part and a server keeps the rest: one connection is read without the others.

Names are unique over both. What the file says comes first, and refers to what the file says alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from instep.errors import ProjectError
from instep.operations.values import ObjectKind
from instep.project.allowed.keys import refusals
from instep.project.documents import NO_REFERENCE, PLURALS, InvalidObject, secret_id, section_of
from instep.project.project import Project, SectionT
from instep.project.sections.models import ConnectionSection, ProjectFile
from instep.project.sections.policies import PolicySection
from instep.project.sections.values import Section
from instep.project.text.references import Opens, Reference
from instep.project.text.tree import Path as TreePath

REMEMBERED = 256
"""Number of parsed sections of a kind that are cached: a server may have any number, and outlives many."""
_KINDS = {plural: kind for kind, plural in PLURALS.items()}


class StoredSection(Protocol):
    """Stored object: its section as JSON; `id` and `version` identify one version of it."""

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def spec(self) -> Mapping[str, Any]: ...


class Documents(Protocol):
    """Store of a server's documents."""

    def get(self, kind: ObjectKind, name: str) -> StoredSection | None: ...

    def get_many(self, kind: ObjectKind, names: Collection[str]) -> Sequence[StoredSection]: ...

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
        document = self._documents.get(self._kind, name)
        if document is None:
            raise KeyError(name)
        return self._section(name, document)

    def _section(self, name: str, stored_section: StoredSection) -> Section:
        written, section = self._read.pop(name, (None, None))
        if section is None or written != (stored_section.id, stored_section.version):
            section = section_of(self._kind, name, stored_section.spec)
        self._read[name] = (stored_section.id, stored_section.version), section
        while len(self._read) > REMEMBERED:  # the one that was asked for longest ago; another thread may be first
            self._read.pop(next(iter(list(self._read))), None)
        return section

    def get_many(self, names: Collection[str]) -> dict[str, Section]:
        """Return the sections of these names that there are, by one statement."""
        own = {name: self._file[name] for name in names if name in self._file}
        stored = self._documents.get_many(self._kind, [name for name in names if name not in own])
        return own | {document.name: self._section(document.name, document) for document in stored}

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
        """Return whether the server keeps the section, not the file."""
        return name not in getattr(self.own, plural)

    def _plain(self, section: SectionT, path: TreePath) -> SectionT:
        """Check the paths of a section again that the server keeps.

        Folders and links may have moved since, and it may have been written when more was allowed.
        """
        plain = super()._plain(section, path)
        if self._is_served(path):
            self._refuse(path, refusals(plain, self.shelves))
        return plain

    def _resolved(self, value: Any, path: TreePath) -> Any:
        """Return the value with its reference resolved: the server's objects may refer to the server's own secrets
        alone."""
        if isinstance(value, Reference) and self._is_served(path) and not secret_id(value):
            self._refuse(path, [(path[2:], NO_REFERENCE)])
        return super()._resolved(value, path)

    def may_follow_links(self, source: str) -> bool:
        """Return whether the file says the source, and not the server."""
        return not self.manages("sources", source)

    def may_read_local_files(self, destination: str) -> bool:
        """Return whether the file says the destination, or it is a lake in a folder of this machine."""
        section = self.destination(destination)
        elsewhere = section.type == "iceberg" and (section.catalog != "sqlite" or "://" in section.warehouse)
        return not (elsewhere and self.manages("destinations", destination))

    def _is_served(self, path: TreePath) -> bool:
        return len(path) > 1 and path[0] in _KINDS and self.manages(str(path[0]), str(path[1]))

    def _refuse(self, path: TreePath, wrong: Iterable[tuple[TreePath, str]]) -> None:
        if problems := list(wrong):
            raise InvalidObject(_KINDS[str(path[0])], str(path[1]), problems)

    def location_of(self, path: TreePath) -> str:
        if len(path) < 2 or path[0] not in _KINDS or not self.manages(str(path[0]), str(path[1])):
            return super().location_of(path)
        return ": ".join((f"{_KINDS[str(path[0])]} {path[1]}", *filter(None, [".".join(map(str, path[2:]))])))

    def of(self, connection: str) -> Project:
        """Return the connection with all that belongs to it as it is now; nobody's later writing changes it.
        ProjectError if something that it uses is gone: out of the file, which does not know who uses it."""
        section = self.connection(connection)
        if self.manages("connections", connection):
            self._refuse(("connections", connection), refusals(section, self.shelves))
        source, destination = self.source_of(connection), self.destination_of(connection)
        channels = {notice.to: self._used(connection, "channels", notice.to) for notice in section.notify}
        sections_used = {
            "connections": {connection: section},
            "sources": {source: self._used(connection, "sources", source)},
            "destinations": {destination: self._used(connection, "destinations", destination)},
            "policies": self._policy(section),
            "channels": channels,
        }
        return replace(self, model=self.model.model_copy(update=sections_used))

    def for_connections(self, connections: Collection[str]) -> Project:
        """Return some connections with what they use, read by one statement per kind."""
        used: dict[str, dict[str, Any]] = {"connections": self._read("connections", connections)}
        sections = used["connections"].values()
        for plural in ("sources", "destinations"):
            named = {
                getattr(section, plural[:-1]) or next(iter(getattr(self.model, plural)), "") for section in sections
            }
            used[plural] = self._read(plural, named)
        used["policies"] = self._read("policies", {section.policy for section in sections})
        return replace(self, model=self.model.model_copy(update=used))

    def _read(self, plural: str, names: Collection[str]) -> dict[str, Any]:
        sections = getattr(self.model, plural)
        return sections.get_many(names) if isinstance(sections, Sections) else dict(sections)

    def _policy(self, section: ConnectionSection) -> dict[str, PolicySection]:
        """Return the policy that it names; a preset's word is none."""
        policy = self.model.policies.get(section.policy)
        return {section.policy: policy} if policy else {}

    def _used(self, connection: str, plural: str, name: str) -> Any:
        section = getattr(self.model, plural).get(name)
        if section is None:
            kind = _KINDS[plural]
            hint = f"put it back into {self.file.name}, or give the connection another {kind}"
            raise ProjectError(f"connection {connection}: there is no {kind} {name!r}, which it uses", hint=hint)
        return section


def served(project: Project, documents: Documents, opens: Opens) -> ServedProject:
    """Return a project with what a server keeps beside its file."""
    model, own = project.model, project.model
    both = {plural: Sections(kind, getattr(own, plural), documents) for kind, plural in PLURALS.items()}
    environment = replace(project.environment, opens=opens)
    return ServedProject(project.file, model.model_copy(update=both), project.tree, environment, project.digest, own)
