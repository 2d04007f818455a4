"""Import another product's configuration: an export becomes a project, with a list of the manual steps that remain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from instep.control.immediate.context import WriteContext
from instep.errors import InstepError, ProjectError
from instep.operations.immediate.imports import ImportConfigurationRequest
from instep.operations.spec import ImmediateWork
from instep.operations.values import ImportedProduct
from instep.project.imports.airbyte import PACKAGE, ImportOptions, import_airbyte
from instep.project.imports.airbyte_export import adopted_state
from instep.project.imports.documents import ExportDocument, documents_of
from instep.project.imports.fivetran import import_fivetran
from instep.project.imports.imported_project import (
    ImportedProject,
    LeftOut,
    SecretToSet,
    files_of,
    project_text,
    write_files,
)
from instep.project.project import Project
from instep.store.catalogs.airbyte_states import state_problem
from instep.store.store import Store


@dataclass(frozen=True)
class ImportedConfiguration:
    """A project made of another product's configuration."""

    product: ImportedProduct
    """Product that the export comes from."""
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
    """Settings that do not mean quite the same here."""
    left_out: tuple[LeftOut, ...]
    """Settings that are not taken over, with the reason and the next step."""
    states_adopted: tuple[str, ...] = ()
    """Connections whose next sync reads on from the state of the export."""
    catalogs_adopted: tuple[str, ...] = ()
    """Connections whose source is compared first with the catalog of the export."""


def translated(
    product: ImportedProduct, documents: Sequence[ExportDocument], packages: Sequence[str] = (), warehouse: str = ""
) -> ImportedProject:
    """Return the project of an export. `packages`: versions of connectors, as `source-faker==7.2.1`.

    ProjectError for documents that are no export, or of which nothing can be taken over.
    """
    try:
        if product == "fivetran":
            return import_fivetran(documents, warehouse)
        return import_airbyte(documents, ImportOptions(_versions(packages), warehouse))
    except RecursionError:
        raise ProjectError("the export is nested too deeply", hint="name the files of an export") from None


def shown(imported: ImportedProject) -> ImportedConfiguration:
    """Return the record of an import."""
    names = {name: tuple(imported.sections[name]) for name in imported.sections}
    return ImportedConfiguration(
        imported.product,
        names["sources"],
        names["destinations"],
        names["connections"],
        project_text(imported),
        tuple(imported.secrets),
        tuple(imported.notes),
        tuple(imported.left_out),
    )


@dataclass(frozen=True)
class ImportedFiles:
    """Files of an import."""

    configuration: ImportedConfiguration
    """Configuration that was imported."""
    files: tuple[Path, ...]
    """All files of the project."""
    new: tuple[Path, ...]
    """Files that are new; the others had the same text already."""
    has_memory: bool = False
    """True if the export has states or catalogs, which a store can take."""


def import_files(
    request: ImportConfigurationRequest, folder: Path, *, into: Path | None = None, dry_run: bool = False
) -> ImportedFiles:
    """Write the project of an export into a folder, or into a new file. With `dry_run` nothing is written.

    ProjectError if a file is there already with another text; nothing is written then.
    """
    imported = _translated(request)
    texts = files_of(imported, folder, into)
    new = write_files(texts, dry_run=dry_run)
    return ImportedFiles(shown(imported), tuple(texts), tuple(new), bool(imported.states or imported.catalogs))


class ConfigurationImport(ImmediateWork):
    """Make the project of an export, and let connections that are here remember what they did at the other product."""

    def prepare(self, context: WriteContext, request: ImportConfigurationRequest) -> ImportedProject:
        """Translate the export."""
        return _translated(request)

    def execute(
        self, context: WriteContext, request: ImportConfigurationRequest, prepared: ImportedProject
    ) -> ImportedConfiguration:
        """Save states and catalogs for the connections of these names that have none yet."""
        states, catalogs = list[str](), list[str]()
        for name in dict.fromkeys((*prepared.states, *prepared.catalogs)):
            if not _takes(context.project, context.store, name):
                continue
            messages, catalog = prepared.states.get(name), prepared.catalogs.get(name)
            context.store.connectors.save(name, adopted_state(messages, catalog))
            states += [name] if messages else []
            catalogs += [name] if catalog else []
        return replace(shown(prepared), states_adopted=tuple(states), catalogs_adopted=tuple(catalogs))

    def detail(self, request: ImportConfigurationRequest, result: ImportedConfiguration) -> Mapping[str, Any]:
        """Return the connections whose states and catalogs were adopted."""
        return {"states_adopted": list(result.states_adopted), "catalogs_adopted": list(result.catalogs_adopted)}


def _translated(request: ImportConfigurationRequest) -> ImportedProject:
    found = translated(request.product, documents_of(request.files), request.connectors, request.warehouse)
    for name, messages in found.states.items():
        if problem := state_problem(adopted_state(messages)):
            raise ProjectError(
                f"the state of connection {name} is not one of Airbyte's: {problem}",
                hint="export it again, or leave it out of the export: the connection begins with the first record then",
            )
    return found


def _takes(project: Project, store: Store, name: str) -> bool:
    """Return whether a connection is here, of an Airbyte connector, and has neither a state nor an accepted catalog."""
    if name not in project.connections or project.model.sources[project.source_of(name)].type != "airbyte":
        return False
    return not store.connectors.get(name).state and store.accepted.latest(name) is None


def _versions(packages: Sequence[str]) -> dict[str, str]:
    by_connector = {}
    for text in packages:
        match = PACKAGE.fullmatch(text)
        if match is None:
            raise InstepError(f"{text!r} is not a version of a connector", hint="write it as source-faker==7.2.1")
        by_connector[match[1]] = match[2]
    return by_connector
