"""A Fivetran account as a project: the answers of its management API as sources, destinations and connections."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from instep.errors import ProjectError
from instep.project.files.imported import ColumnNode, SchemaConfigDocument, SchemaNode, TableNode, imported_keys
from instep.project.imports.databases import DatabaseServer, ServerType, cron_of, interval_of
from instep.project.imports.documents import ExportDocument, list_at, mapping_at, text_at
from instep.project.imports.imported_project import ImportedProject, checked, project_name
from instep.project.sections.names import exact

_DELETES: Mapping[str, dict[str, Any]] = {
    "SOFT_DELETE": {"deletes": "soft"},
    "LIVE": {"deletes": "hard"},
    "HISTORY": {"history": True},
}
"""The sync mode of a table as settings."""
_LOG_METHODS = frozenset({"WAL_PGOUTPUT", "WAL", "TELEPORT_PGOUTPUT", "BINLOG"})
_DAY = 1440
_GENERIC = re.compile(
    r"schemas?|config(uration)?s?|connect(ion|or)s?|fivetran|exports?|answers?|responses?|documents?|get|api|id|of|v1"
)
"""Words in the name of a file that name no connection."""


@dataclass
class FivetranExport:
    """All that the documents say, by id. A group and its destination have the same id."""

    groups: dict[str, str] = field(default_factory=dict)
    destinations: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    connections: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    schemas: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    """The file that has an object."""
    notes: list[str] = field(default_factory=list)
    unclaimed: list[tuple[str, str, str]] = field(default_factory=list)
    """Schema configs that are not taken over, each with the reason and the next step."""


def import_fivetran(documents: Sequence[ExportDocument], warehouse: str = "") -> ImportedProject:
    """Return the project of an export, checked. ProjectError if nothing of it can be taken over."""
    return checked(translate_fivetran(read_export(documents), warehouse))


def read_export(documents: Sequence[ExportDocument]) -> FivetranExport:
    """Read all documents of an export. ProjectError if they have no connection and no destination."""
    export = FivetranExport()
    late: list[tuple[ExportDocument, Mapping[str, Any]]] = []
    for document in documents:
        _sort_objects(export, document, document.data, late)
    for document, tree in late:
        owners = _owners(export, document.name)
        if len(owners) == 1:
            export.schemas[owners[0]] = tree
        else:
            reason = (
                "it is not clear which connection it is of" if owners else "its file's name has no id of the export"
            )
            step = "put the connection's id into the file's name, and export that connection, too"
            export.unclaimed.append((f"schema config {document.file}", reason, step))
    for id in export.schemas.keys() - export.connections.keys():
        reason, step = f"connection {id} is not in the export", f"export GET /connections/{id}, too"
        export.unclaimed.append((f"schema config of connection {id}", reason, step))
    if not (export.connections or export.destinations):
        files = ", ".join(document.file for document in documents)
        raise ProjectError(
            f"{files}: no connection or destination of Fivetran's",
            hint="export the answers of its API as docs/guides/other-products.md describes",
        )
    return export


def _owners(export: FivetranExport, name: str) -> list[str]:
    """Return the connections of which a file with this name may have the schema config: those whose ids are in it, or
    all if it names none at all."""
    low = name.lower()
    named = [id for id in export.connections if re.search(rf"(?<![a-z0-9]){re.escape(id.lower())}(?![a-z0-9])", low)]
    words = (word for word in re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z])\d+", "", low)) if not word.isdecimal())
    return named or ([] if any(word and not _GENERIC.fullmatch(word) for word in words) else list(export.connections))


def _sort_objects(
    export: FivetranExport, document: ExportDocument, data: Any, late: list[tuple[ExportDocument, Mapping[str, Any]]]
) -> None:
    """Sort the objects of a document by their form; a schema config does not name its connection, and comes late."""
    if isinstance(data, list):
        for entry in data:
            _sort_objects(export, document, entry, late)
    elif not isinstance(data, Mapping):
        return
    elif "schema_change_handling" in data:
        late.append((document, data))
    elif "service" in data and ("sync_frequency" in data or "schema" in data):
        export.connections[text_at(data, "id")] = data
        export.files[text_at(data, "id")] = document.file
    elif "service" in data:
        export.destinations[text_at(data, "group_id", "id")] = data
        export.files.setdefault(text_at(data, "group_id", "id"), document.file)
    elif set(data) >= {"id", "name"}:
        export.groups[text_at(data, "id")] = text_at(data, "name")
    else:
        _take_parts(export, document, data, late)


def _take_parts(
    export: FivetranExport,
    document: ExportDocument,
    data: Mapping[str, Any],
    late: list[tuple[ExportDocument, Mapping[str, Any]]],
) -> None:
    if text_at(data, "next_cursor"):
        export.notes.append(f"{document.file} is one page of a longer list: export the next ones, too")
    for name in ("data", "items", "groups", "destinations", "connections"):
        if name in data:
            _sort_objects(export, document, data[name], late)
    trees = data.get("schemas")
    if isinstance(trees, Mapping):
        for id, tree in trees.items():
            inner = mapping_at(tree, "data") or tree
            if isinstance(inner, Mapping):
                export.schemas[str(id)] = inner


def translate_fivetran(export: FivetranExport, warehouse: str) -> ImportedProject:
    """Return the project of an export before it is checked."""
    project = ImportedProject("fivetran")
    for note in export.notes:
        project.note(note)
    for object, reason, step in sorted(export.unclaimed):
        project.leave_out(object, reason, step)
    destinations = _destinations(export, project, warehouse)
    for id, connection in export.connections.items():
        label = text_at(connection, "schema") or id
        group = text_at(connection, "group_id")
        if group not in destinations:
            reason = f"its destination {export.groups.get(group, group)} is not taken over, or not in the export"
            project.leave_out(f"connection {label}", reason, "see there, or export GET /destinations")
            continue
        tree = _schema_config(export, id, label, project)
        name = project_name(label, project.sections["connections"], "connection")
        if section := _source(connection, name, label, tree, project, export.files[id]):
            project.sections["sources"][name] = section
            parts = {"source": name, "destination": destinations[group]}
            project.sections["connections"][name] = {**parts, **_connection(connection, name, label, tree, project)}
    return project


def _schema_config(
    export: FivetranExport, id: str, label: str, project: ImportedProject
) -> SchemaConfigDocument | None:
    if id not in export.schemas:
        project.note(
            f"connection {label}: without its schema config all tables are read: export GET /connections/{id}/schemas"
        )
        return None
    try:
        return SchemaConfigDocument.model_validate(_known(SchemaConfigDocument, export.schemas[id]))
    except ValidationError as error:
        place = ".".join(map(str, error.errors(include_url=False, include_input=False)[0]["loc"]))
        project.leave_out(
            f"schema config of connection {label}", f"{place} is not as the API has it", "export it again"
        )
        return None


_BELOW: Mapping[type[BaseModel], tuple[str, type[BaseModel]]] = {
    SchemaConfigDocument: ("schemas", SchemaNode),
    SchemaNode: ("tables", TableNode),
    TableNode: ("columns", ColumnNode),
}


def _known(model: type[BaseModel], data: Any) -> Any:
    """Return a document with the keys that are read alone: the API has more of them from time to time."""
    if not isinstance(data, Mapping):
        return data
    known = {name: value for name, value in data.items() if name in model.model_fields and value is not None}
    key, below = _BELOW.get(model, ("", model))
    if isinstance(inner := known.get(key), Mapping):
        known[key] = {name: _known(below, entry) for name, entry in inner.items()}
    return known


def _source(
    connection: Mapping[str, Any],
    name: str,
    label: str,
    tree: SchemaConfigDocument | None,
    project: ImportedProject,
    file: str,
) -> dict[str, Any]:
    """Return the section of a connection's source; empty if there is none for its service."""
    service, config = text_at(connection, "service"), mapping_at(connection, "config")
    where = f"{file}, connection {label}"
    if not (type := _server_type(service)):
        if service == "connector_sdk":
            step = "copy its folder, and write a source `type: connector` with its `path:` (docs/guides/connectors.md)"
            project.leave_out(f"connection {label}", "its code is not in the export", step)
        else:
            step = f"write a source `type: airbyte`, or a connector of your own, for {service}"
            project.leave_out(f"connection {label}", f"instep has no source for the service {service}", step)
        return {}
    database = text_at(config, "database")
    if type != "postgres" and not database:
        databases = [schema for schema, node in tree.schemas.items() if node.enabled] if tree else []
        if len(databases) != 1:
            reason = f"it reads {len(databases) or 'unknown'} databases: a source of instep reads one"
            project.leave_out(f"connection {label}", reason, "write a source and a connection for each of them")
            return {}
        database = databases[0]
    method = text_at(connection, "networking_method", "connection_type") or text_at(config, "connection_type")
    if re.sub(r"[^a-z]", "", method.lower()) not in ("", "directly", "sshtunnel"):
        project.note(f"source {name}: it was reached by {method}: instep connects directly, or through SSH")
    if slot := text_at(config, "replication_slot"):
        project.note(
            f"source {name}: instep makes its own replication slot; drop slot {slot} once Fivetran no longer "
            f"reads it, because the server keeps its log for it"
        )
    if text_at(config, "tunnel_host"):
        project.note(
            f"source {name}: Fivetran's SSH key stays with it: make a key pair, and admit it at the SSH server"
        )
    return _server(config, type, database).section(project, f"source {name}", where)


def _server_type(service: str) -> ServerType | None:
    """Return the type of a source or destination by its service, such as postgres_rds."""
    if "postgres" in service:
        return "postgres"
    if "maria" in service:
        return "mariadb"
    return "mysql" if "mysql" in service or service == "aurora" else None


def _server(config: Mapping[str, Any], type: ServerType, database: str) -> DatabaseServer:
    """Return the server of a configuration."""
    encrypted = str(config.get("always_encrypted", "")).lower() == "true"
    return DatabaseServer(
        type,
        {
            "host": text_at(config, "host"),
            "port": text_at(config, "port"),
            "database": database,
            "user": text_at(config, "user"),
        },
        config.get("password", ""),
        "require" if encrypted else "",
        ssh_host=text_at(config, "tunnel_host"),
        ssh_port=text_at(config, "tunnel_port"),
        ssh_user=text_at(config, "tunnel_user"),
        ssh_key="" if text_at(config, "tunnel_host") else None,
    )


def _connection(
    connection: Mapping[str, Any], name: str, label: str, tree: SchemaConfigDocument | None, project: ImportedProject
) -> dict[str, Any]:
    """Return the section of a connection beside its source and destination."""
    config = mapping_at(connection, "config")
    section: dict[str, Any] = {"schema_change_handling": "ALLOW_ALL"}
    if tree is not None:
        section = _selection(tree, name, project)
    prefix = text_at(config, "schema_prefix") or label
    schemas = [schema for schema, node in tree.schemas.items() if node.enabled] if tree else []
    namespace = f"{prefix}_{schemas[0]}" if text_at(config, "schema_prefix") and len(schemas) == 1 else prefix
    section["namespace"] = namespace
    if len(schemas) > 1:
        project.note(f"connection {name}: its {len(schemas)} schemas go into one namespace, {namespace}")
    if text_at(config, "update_method").upper() in _LOG_METHODS:
        section["mode"] = "cdc"
    if schedule := _schedule(connection, name, project):
        section["schedule"] = schedule
    return section


def _selection(tree: SchemaConfigDocument, name: str, project: ImportedProject) -> dict[str, Any]:
    """Return the keys of the schema config, with the sync mode of each table."""
    primary = {
        f"{schema}.{table}": tuple(column for column, c in node.columns.items() if c.is_primary_key)
        for schema, above in tree.schemas.items()
        for table, node in above.tables.items()
    }
    keys = imported_keys(tree, primary)
    section = dict(keys.keys)
    if "salt" in section:
        section["salt"] = project.salt()
    for note in keys.notes:
        if "INSTEP_SALT" not in note:
            project.note(f"connection {name}: {note}")
    tables = {path: dict(settings) for path, settings in section.get("tables", {}).items()}
    places: dict[str, list[tuple[str, str]]] = {}
    for schema, above in tree.schemas.items():
        for table, node in above.tables.items():
            path = exact(f"{schema}.{table}")
            if path in tables and node.enabled:
                tables[path] |= _DELETES.get(node.sync_mode.upper(), {})
                places.setdefault(table, []).append((schema, path))
    for table, same_name in places.items():
        for schema, path in same_name if len(same_name) > 1 else ():  # a namespace cannot have two tables of one name
            tables[path]["name"] = f"{schema}_{table}"
    if tables:
        section["tables"] = tables
    return section


def _schedule(connection: Mapping[str, Any], name: str, project: ImportedProject) -> dict[str, Any]:
    """Return when the connection syncs; nothing for one that is paused or synced by hand."""
    newer = mapping_at(connection, "schedule")
    kind = (text_at(newer, "schedule_type") or text_at(connection, "schedule_type") or "auto").upper()
    if kind == "MANUAL":
        return {}
    minutes = text_at(newer, "interval") or text_at(connection, "sync_frequency")
    daily = re.fullmatch(
        r"([01]?\d|2[0-3]):([0-5]\d)", text_at(newer, "time_of_day") or text_at(connection, "daily_sync_time")
    )
    line = ""
    if kind == "CRON":
        line, _, why = cron_of(text_at(newer, "cron"))
        if why:
            project.leave_out(f"schedule of connection {name}", why, "write `schedule: {sync: ...}`")
    elif daily and (kind == "TIME_OF_DAY" or minutes == str(_DAY)):
        days = ",".join(str(day)[:3].lower() for day in list_at(newer, "days_of_week")) or "*"
        line = f"{int(daily[2])} {int(daily[1])} * * {days}"
    elif re.fullmatch(r"\d{1,5}", minutes):
        line, note = interval_of(int(minutes))
        if note:
            project.note(f"connection {name}: {note}")
    if line and connection.get("paused") is True:
        project.note(f"connection {name}: it is paused in Fivetran: its schedule is left out (sync: {line})")
        return {}
    return {"sync": line} if line else {}


def _destinations(export: FivetranExport, project: ImportedProject, warehouse: str) -> dict[str, str]:
    """Return the names of the destinations by their group."""
    names: dict[str, str] = {}
    for group, destination in export.destinations.items():
        label, service = export.groups.get(group) or group, text_at(destination, "service")
        name = project_name(label, project.sections["destinations"], "destination")
        where = f"{export.files[group]}, {label}"
        section = _destination(mapping_at(destination, "config"), service, name, project, where)
        if not section and warehouse:
            section = {"type": "iceberg", "warehouse": warehouse}
            project.note(f"destination {name}: {service} became an Iceberg warehouse")
        if section:
            project.sections["destinations"][name], names[group] = section, name
        else:
            step = "import again with --warehouse PLACE: its connections then write into an Iceberg warehouse there"
            project.leave_out(f"destination {label}", f"instep has no destination for the service {service}", step)
    return names


def _destination(
    config: Mapping[str, Any], service: str, name: str, project: ImportedProject, where: str
) -> dict[str, Any]:
    if _server_type(service) == "postgres":
        section = _server(config, "postgres", text_at(config, "database")).section(
            project, f"destination {name}", where
        )
        if section.pop("ssh", None):
            project.note(
                f"destination {name}: instep opens no SSH tunnel to a destination: reach the server another way"
            )
        return section
    bucket = text_at(config, "bucket", "bucket_name")
    if service not in ("new_s3_datalake", "managed_data_lake") or not bucket:
        return {}
    place = "/".join(filter(None, (f"s3://{bucket}", text_at(config, "prefix_path").strip("/"))))
    place = project.literal(f"destination {name}", "warehouse", place, where)
    region = text_at(config, "region")
    properties = (
        {"properties": {"s3.region": project.literal(f"destination {name}", "s3.region", region, where)}}
        if region
        else {}
    )
    if "DELTA" in text_at(config, "table_format").upper():
        return {"type": "delta", "warehouse": place, **properties}
    if str(config.get("should_maintain_tables_in_glue", "")).lower() != "true":
        return {}
    return {"type": "iceberg", "warehouse": place, "catalog": "glue", **properties}
