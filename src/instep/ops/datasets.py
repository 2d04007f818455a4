"""What tables are called for OpenLineage: by where they are, so that others' events about them meet ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from instep.errors import ProjectError
from instep.ops.openlineage import Dataset
from instep.project.project import Project, Settings

Ref = tuple[str, str]


def source_table(project: Project, source: str, ref: Ref) -> Dataset:
    kind = project.model.sources[source].type
    try:
        said = project.source(source)
    except ProjectError:  # a reference that this process has no value for
        return Dataset(f"{kind}:{source}", ".".join(filter(None, ref)))
    return _of(kind, source, said, ref)


def destination_table(project: Project, destination: str, ref: Ref) -> Dataset:
    kind = project.model.destinations[destination].type
    try:
        said = project.destination(destination)
    except ProjectError:
        return Dataset(f"{kind}:{destination}", ".".join(ref))
    return _of(kind, destination, said, ref)


def _of(kind: str, name: str, said: Settings | Mapping[str, Any], ref: Ref) -> Dataset:
    """Hosts, databases and paths: nothing that lets anybody in."""
    path = ".".join(filter(None, ref))
    match kind:
        case "postgres":
            return Dataset(f"postgres://{said['host']}:{said['port']}", f"{said['database']}.{path}")
        case "mysql" | "mariadb":
            return Dataset(f"mysql://{said['host']}:{said['port']}", path or str(said["database"]))
        case "sqlite" | "duckdb":
            return Dataset(f"{kind}:{said['path']}", path)
        case "files":
            return _place(str(said["path"]), ref[1:])
        case "iceberg" | "delta" if "://" in str(said["warehouse"]) or str(said["warehouse"]).startswith("/"):
            return _place(str(said["warehouse"]), ref)
    return Dataset(f"{kind}:{name}", path)


def _place(root: str, parts: tuple[str, ...]) -> Dataset:
    """Below a folder or a bucket."""
    found = urlsplit(root) if "://" in root else None
    if found is None:
        return Dataset("file", "/".join((root.rstrip("/"), *parts)))
    where = found.netloc.rpartition("@")[2]
    return Dataset(f"{found.scheme}://{where}", "/".join(filter(None, (found.path.strip("/"), *parts))))
