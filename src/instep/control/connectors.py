"""Delete what a connector's runs left beside the tables, when its connection is deleted."""

from __future__ import annotations

import shutil

from instep.errors import InstepError
from instep.project.project import Project
from instep.project.sections.connector import segments_folder
from instep.store.store import Store


def forget_operations(project: Project, store: Store, connection: str) -> None:
    """Delete the connector's state and its pending operations, and their folder. Outside of a transaction: files do
    not come back. Raises InstepError if the folder cannot be deleted."""
    store.connectors.forget(connection)
    store.connector_versions.forget(connection)
    folder = segments_folder(project.root, connection)
    if not folder.is_dir():
        return
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise InstepError(
            f"connection {connection}: the operations in {folder} cannot be removed: {error.strerror}",
            hint="delete this folder: rows of its tables are in there",
        ) from error
