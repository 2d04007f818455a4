"""Import another product's configuration: an export becomes a project, with a list of the manual steps that remain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instep.errors import InstepError
from instep.project.imports.airbyte import PACKAGE, ImportOptions, import_airbyte
from instep.project.imports.airbyte_export import adopted_state
from instep.project.imports.documents import ExportDocument, read_documents
from instep.project.imports.fivetran import import_fivetran
from instep.project.imports.imported_project import (
    ImportedProject,
    LeftOut,
    Product,
    SecretToSet,
    files_of,
    project_text,
    write_files,
)
from instep.store.store import Store


@dataclass(frozen=True)
class ImportedConfiguration:
    """A project made of another product's configuration."""

    product: str
    """airbyte or fivetran"""
    sources: tuple[str, ...]
    """Names of its sources."""
    destinations: tuple[str, ...]
    """Names of its destinations."""
    connections: tuple[str, ...]
    """Names of its connections."""
    text: str
    """The project file."""
    secrets: tuple[SecretToSet, ...]
    """Variables to set before the project is used."""
    notes: tuple[str, ...]
    """What is not quite as it was."""
    left_out: tuple[LeftOut, ...]
    """What is not taken over, with the reason and the next step."""
    states: Mapping[str, Sequence[Mapping[str, Any]]]
    """State messages of Airbyte connectors, by connection."""
    catalogs: Mapping[str, Mapping[str, Any]]
    """Configured catalogs of Airbyte connectors, by connection."""


def translated(
    product: Product, documents: Sequence[ExportDocument], packages: Sequence[str] = (), warehouse: str = ""
) -> ImportedProject:
    """Return the project of an export. `packages`: versions of connectors, as `source-faker==7.2.1`.

    ProjectError for documents that are no export, or of which nothing can be taken over.
    """
    if product == "fivetran":
        return import_fivetran(documents, warehouse)
    return import_airbyte(documents, ImportOptions(_versions(packages), warehouse))


def shown(found: ImportedProject) -> ImportedConfiguration:
    """Return the record of an import."""
    names = {name: tuple(found.sections[name]) for name in found.sections}
    return ImportedConfiguration(
        found.product,
        names["sources"],
        names["destinations"],
        names["connections"],
        project_text(found),
        tuple(found.secrets),
        tuple(found.notes),
        tuple(found.left_out),
        found.states,
        found.catalogs,
    )


@dataclass(frozen=True)
class ImportedFiles:
    """The files of an import."""

    configuration: ImportedConfiguration
    files: tuple[Path, ...]
    """Of an import, and which of them are new: the others have the same text already."""
    new: tuple[Path, ...]


def import_files(
    product: Product,
    files: Sequence[Path],
    folder: Path,
    *,
    into: Path | None = None,
    packages: Sequence[str] = (),
    warehouse: str = "",
    dry_run: bool = False,
) -> ImportedFiles:
    """Write the project of an export into a folder, or into a new file. With `dry_run` nothing is written.

    ProjectError if a file is there already with another text; nothing is written then.
    """
    found = translated(product, read_documents(files), packages, warehouse)
    texts = files_of(found, folder, into)
    new = write_files(texts, dry_run=dry_run)
    return ImportedFiles(shown(found), tuple(texts), tuple(new))


def adopt_states(store: Store, states: Mapping[str, Sequence[Mapping[str, Any]]]) -> tuple[str, ...]:
    """Save imported states as those of their connections, whose next syncs read on from there; return the connections.

    A connection that has a state already keeps it.
    """
    new = {name: messages for name, messages in states.items() if not store.connectors.get(name).state}
    adopted = {name: adopted_state(messages) for name, messages in new.items()}
    for name, state in adopted.items():
        store.connectors.save(name, state)
    return tuple(adopted)


def _versions(packages: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in packages:
        match = PACKAGE.fullmatch(text)
        if match is None:
            raise InstepError(f"{text!r} is no version of a connector", hint="write it as source-faker==7.2.1")
        found[match[1]] = match[2]
    return found
