"""What a connection is called in the words of the compatible API: its service, its schema, its group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from instep.project.project import Project
from instep.store.store import Store

SERVICES: Mapping[str, str] = {
    "postgres": "postgres",
    "mysql": "mysql",
    "mariadb": "maria",
    "sqlite": "sqlite",
    "files": "files",
    "jdbc": "jdbc",
    "connector": "connector_sdk",
}
"""Type of a source to service."""


@dataclass(frozen=True)
class Identity:
    """`namespace` is the schema at the destination, `group` the destination. All of it is "" once it is gone."""

    service: str = ""
    namespace: str = ""
    group: str = ""


def identity(project: Project, store: Store, connection: str) -> Identity:
    """Return the identity of a connection with a source, or of one whose service is not supported."""
    if connection in project.model.connections:
        type = project.model.sources[project.source_of(connection)].type
        return Identity(SERVICES.get(type, type), project.namespace_of(connection), project.destination_of(connection))
    if (found := store.objects.get("foreign", connection)) is None:
        return Identity()
    config = found.spec.get("config")
    schema = config.get("schema") if isinstance(config, Mapping) else None
    return Identity(str(found.spec.get("service", "")), str(schema or connection), str(found.spec.get("group_id", "")))
