"""An Airbyte configuration as a project: sources, destinations, connections with their tables, and states."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from instep.errors import SchemaError
from instep.project.imports.airbyte_export import (
    AirbyteActor,
    AirbyteConnection,
    AirbyteExport,
    AirbyteMapper,
    AirbyteStream,
    DiscoveredStream,
    StreamRef,
    read_export,
)
from instep.project.imports.databases import INCLUDED, DatabaseServer, cron_of, include_of, interval_of
from instep.project.imports.documents import ExportDocument, list_at, mapping_at, text_at, words_of
from instep.project.imports.imported_project import ImportedProject, checked, project_name
from instep.project.sections.names import exact
from instep.schema.policy.presets import preset_named

_NO_PACKAGE = frozenset({
    "bigquery", "clickhouse", "cockroachdb", "db2", "dynamodb", "elasticsearch", "kafka", "mongodb", "mongodb-v2",
    "oracle-enterprise", "redshift", "sap-hana-enterprise", "singlestore", "snowflake", "teradata", "tidb",
    "yugabytedb",
})  # fmt: skip
"""Sources that are Java programs, so that there is no Python package of them."""
_MODES = {
    "full_refresh_overwrite": "full_refresh",
    "full_refresh_append": "full_refresh",
    "full_refresh_overwrite_deduped": "full_refresh",
    "full_refresh_update": "upsert",
    "full_refresh_soft_delete": "upsert",
    "incremental_append": "append",
    "incremental_deduped_history": "upsert",
    "incremental_update": "upsert",
    "incremental_soft_delete": "upsert",
}
PACKAGE = re.compile(r"(?:airbyte-)?(source-[a-z0-9-]{1,80})==([A-Za-z0-9.!+_-]{1,40})")
"""A version of a connector, as the option names it."""


@dataclass(frozen=True)
class ImportOptions:
    """Options of an import from Airbyte."""

    versions: Mapping[str, str] = field(default_factory=dict)
    """Connectors to the version of their package."""
    warehouse: str = ""
    """An Iceberg warehouse for the connections whose destination has no counterpart; "": they are left out."""


def import_airbyte(documents: Sequence[ExportDocument], options: ImportOptions) -> ImportedProject:
    """Return the project of an export, checked. ProjectError if nothing of it can be taken over."""
    return checked(translate_airbyte(read_export(documents), options))


def translate_airbyte(export: AirbyteExport, options: ImportOptions) -> ImportedProject:
    """Return the project of an export before it is checked."""
    imported = ImportedProject("airbyte")
    for note in export.notes:
        imported.note(note)
    destinations = _destinations(export, imported, options)
    sources: dict[str, str] = {}
    for actor in export.sources.values():
        name = project_name(actor.name, imported.sections["sources"], "source")
        if section := _source(actor, name, imported, options):
            imported.sections["sources"][name], sources[actor.id] = section, name
    for connection in export.connections.values():
        if connection.status == "deprecated":
            continue
        parts = {"source": sources.get(connection.source), "destination": destinations.get(connection.destination)}
        if missing := [side for side, name in parts.items() if name is None]:
            reason = (
                f"its {' and '.join(missing)} {'are' if missing[1:] else 'is'} not taken over, or not in the export"
            )
            imported.leave_out(
                f"connection {connection.name}", reason, "see there, or export all sources and destinations"
            )
            continue
        name = project_name(connection.name, imported.sections["connections"], "connection")
        imported.sections["connections"][name] = _Connection(export, connection, imported, name, parts).section()
    return imported


def _source(actor: AirbyteActor, name: str, imported: ImportedProject, options: ImportOptions) -> dict[str, Any]:
    """Return the section of a source; empty if there is none for it."""
    kind = actor.connector.removeprefix("source-")
    if kind in ("postgres", "alloydb", "mysql"):
        return _database(actor, name, imported)
    if kind in ("mssql", "oracle"):
        return _jdbc_source(actor, name, imported)
    if not kind or kind in _NO_PACKAGE:
        reason = f"{actor.connector} has no Python package" if kind else "the export does not name its connector"
        step = f"write it into instep.yml as `type: airbyte` with a `command:` that runs connector {kind or '...'}"
        imported.leave_out(f"source {actor.name}", reason, step)
        return {}
    version = options.versions.get(actor.connector) or actor.version
    if not re.fullmatch(r"\d[A-Za-z0-9.!+_-]*", version):
        step = f"import again with --connector {actor.connector}==VERSION, of the package airbyte-{actor.connector}"
        imported.leave_out(f"source {actor.name}", "the export does not tell the version of its connector", step)
        return {}
    values = dict(actor.configuration)
    for key, value in values.items():
        if isinstance(value, Mapping) and "form" in value:
            values[key] = {inner: entry for inner, entry in value.items() if inner != "form"}
            form = value["form"]
            imported.note(f"source {name}: Terraform leaves out which form of `{key}` it is ({form}): add its constant")
    section = {"type": "airbyte", "package": f"airbyte-{actor.connector}=={version}"}
    return {**section, "configuration": imported.configuration(f"source {name}", values, actor.where, actor.sensitive)}


def _database(actor: AirbyteActor, name: str, imported: ImportedProject) -> dict[str, Any]:
    configuration = actor.configuration
    server = database_server(configuration, "mysql" if actor.connector == "source-mysql" else "postgres")
    tunnel = mapping_at(configuration, "tunnel_method")
    if _form(tunnel, "tunnel_method") in ("ssh_password_auth", "password_authentication"):
        imported.note(f"source {name}: its SSH tunnel logged in with a password: instep takes a key or the ssh-agent")
    if parameters := text_at(configuration, "jdbc_url_params"):
        names = ", ".join(re.findall(r"(?:^|&)([A-Za-z_.]+)=", parameters))
        imported.note(f"source {name}: its JDBC parameters are left out ({names})")
    method = mapping_at(configuration, "replication_method", "replication")
    if slot := text_at(method, "replication_slot"):
        imported.note(
            f"source {name}: instep makes its own replication slot; drop slot {slot} once Airbyte no longer "
            f"reads it, because the server keeps its log for it"
        )
    return server.section(imported, f"source {name}", actor.where)


def database_server(configuration: Mapping[str, Any], kind: str) -> DatabaseServer:
    """Return the server that the configuration of a PostgreSQL or MySQL connector names."""
    tls, tunnel = mapping_at(configuration, "ssl_mode"), mapping_at(configuration, "tunnel_method")
    form = _form(tls, "mode")
    plain = "require" if configuration.get("ssl") is True and not tls else ""
    through = _form(tunnel, "tunnel_method") not in ("", "no_tunnel")
    key = next((tunnel[name] for name in ("ssh_key", "tunnel_private_key") if tunnel.get(name)), None)
    return DatabaseServer(
        "mysql" if kind == "mysql" else "postgres",
        {
            "host": text_at(configuration, "host"),
            "port": text_at(configuration, "port"),
            "database": text_at(configuration, "database"),
            "user": text_at(configuration, "username", "user"),
        },
        configuration.get("password"),
        form or plain,
        {"ca": tls.get("ca_certificate"), "cert": tls.get("client_certificate"), "key": tls.get("client_key")},
        text_at(tunnel, "tunnel_host") if through else "",
        text_at(tunnel, "tunnel_port"),
        text_at(tunnel, "tunnel_user"),
        key if through else None,
        words_of(list_at(configuration, "schemas")),
    )


_FORM = re.compile(
    r"(allow|disable|preferred|prefer|required|require|verify_ca|verify_full|verify_identity"
    r"|no_tunnel|ssh_key_authentication|password_authentication)$"
)


def _form(value: Mapping[str, Any], key: str) -> str:
    """Return the form of a union, by its constant or by Terraform's name for it."""
    constant = re.sub(r"[^a-z]+", "_", text_at(value, key).lower())
    match = _FORM.search(text_at(value, "form"))
    return constant or (match[1] if match else "")


def _is_cdc(actor: AirbyteActor) -> bool:
    method = mapping_at(actor.configuration, "replication_method", "replication")
    return "cdc" in f"{text_at(method, 'method')} {text_at(method, 'form')}".lower()


def _jdbc_source(actor: AirbyteActor, name: str, imported: ImportedProject) -> dict[str, Any]:
    configuration, subprotocol = actor.configuration, "sqlserver" if actor.connector == "source-mssql" else "oracle"
    service = mapping_at(configuration, "connection_data")
    plain = {
        "host": text_at(configuration, "host"),
        "port": text_at(configuration, "port"),
        "database": text_at(configuration, "database", "sid") or text_at(service, "service_name", "sid"),
        "user": text_at(configuration, "username"),
    }
    section: dict[str, Any] = {"type": "jdbc", "subprotocol": subprotocol}
    for key, text in plain.items():
        if text:
            value = imported.literal(f"source {name}", key, text, actor.where)
            section[key] = int(value) if key == "port" and value.isdecimal() else value
    section["password"] = imported.reference(f"source {name}", "password", configuration.get("password"), actor.where)
    if schemas := words_of(list_at(configuration, "schemas")):
        section["schemas"] = list(schemas)
    imported.note(
        f"source {name}: name the driver's jar (`jars:`), and its TLS and tunnel settings, see docs/guides/jdbc.md"
    )
    return section


def _destinations(export: AirbyteExport, imported: ImportedProject, options: ImportOptions) -> dict[str, str]:
    """Return the names of the destinations by their ids."""
    names: dict[str, str] = {}
    for actor in export.destinations.values():
        name = project_name(actor.name, imported.sections["destinations"], "destination")
        section = _destination(actor, name, imported)
        if not section and options.warehouse:
            section = {"type": "iceberg", "warehouse": options.warehouse}
            imported.note(f"destination {name}: {actor.connector or 'its connector'} became an Iceberg warehouse")
        if section:
            imported.sections["destinations"][name], names[actor.id] = section, name
        else:
            reason = f"there is no destination for {actor.connector or 'a connector that the export does not name'}"
            step = "import again with --warehouse PLACE: its connections then write into an Iceberg warehouse there"
            imported.leave_out(f"destination {actor.name}", reason, step)
    return names


def _destination(actor: AirbyteActor, name: str, imported: ImportedProject) -> dict[str, Any]:
    configuration, kind = actor.configuration, actor.connector.removeprefix("destination-")
    if kind == "postgres":
        section = database_server(configuration, "postgres").section(imported, f"destination {name}", actor.where)
        unsupported = [key for key in ("ssh", "include") if section.pop(key, None)]
        if "ssh" in unsupported:
            imported.note(
                f"destination {name}: instep opens no SSH tunnel to a destination: reach the server another way"
            )
        return section
    if kind in ("duckdb", "motherduck"):
        path = text_at(configuration, "destination_path")
        file = PurePosixPath(path).name
        if not file or path.startswith("md:"):
            return {}
        if file != path:
            imported.note(f"destination {name}: {path} was a path of Airbyte's; the file is {file} beside instep.yml")
        return {"type": "duckdb", "path": imported.literal(f"destination {name}", "path", file, actor.where)}
    if kind in ("s3-data-lake", "iceberg"):
        return _iceberg(actor, name, imported)
    return {}


_WAREHOUSE = re.compile(r"(s3a?|gs|abfss?)://\S+|[A-Za-z0-9][A-Za-z0-9_-]*")
"""A place in an object store, or the name that a catalog has for one; no path of this machine."""
_CATALOGS = {"rest": "rest", "polaris": "rest", "nessie": "rest", "glue": "glue"}


def _iceberg(actor: AirbyteActor, name: str, imported: ImportedProject) -> dict[str, Any]:
    """Return an Iceberg destination over the same catalog and bucket."""
    configuration = actor.configuration
    catalog = mapping_at(configuration, "catalog_type", "catalog_config")
    kind = re.sub(r"[^a-z]", "", text_at(catalog, "catalog_type", "form").lower())
    place = text_at(configuration, "warehouse_location") or text_at(catalog, "warehouse")
    if kind not in _CATALOGS or (place and not _WAREHOUSE.fullmatch(place)):
        return {}
    section: dict[str, Any] = {"type": "iceberg"}
    if place:
        section["warehouse"] = imported.literal(f"destination {name}", "warehouse", place, actor.where)
    uri = text_at(catalog, "server_uri", "rest_uri")
    if kind == "nessie":
        uri = re.sub(r"/api/v\d+/?$", "/iceberg", uri)
        imported.note(f"destination {name}: check the address of Nessie's Iceberg REST catalog ({uri})")
    section["catalog"] = (
        imported.literal(f"destination {name}", "catalog", uri, actor.where) if uri else _CATALOGS[kind]
    )
    storage = {
        "s3.endpoint": text_at(configuration, "s3_endpoint"),
        "s3.region": text_at(configuration, "s3_bucket_region"),
        "s3.access-key-id": configuration.get("access_key_id"),
        "s3.secret-access-key": configuration.get("secret_access_key"),
        "token": catalog.get("access_token"),
        "credential": catalog.get("client_secret"),
    }
    properties = {key: value for key, value in storage.items() if isinstance(value, str) and value}
    for key in ("s3.access-key-id", "s3.secret-access-key", "token", "credential"):
        if key in properties:
            properties[key] = imported.reference(f"destination {name}", key, properties[key], actor.where)
    if "credential" in properties:
        imported.note(f"destination {name}: the catalog's credential is CLIENT_ID:CLIENT_SECRET, as one text")
    branch = text_at(configuration, "main_branch_name")
    if branch not in ("", "main"):
        imported.note(f"destination {name}: instep writes the branch main, not {branch}")
    section["properties"] = {
        key: imported.literal(f"destination {name}", key, value, actor.where) for key, value in properties.items()
    }
    return section


class _Connection:
    """The translation of one connection."""

    def __init__(
        self,
        export: AirbyteExport,
        connection: AirbyteConnection,
        imported: ImportedProject,
        name: str,
        parts: Mapping[str, str | None],
    ) -> None:
        self._export, self._given, self._found, self._name = export, connection, imported, name
        self._source = export.sources[connection.source]
        self._destination = export.destinations[connection.destination]
        self._parts = parts
        self._type = str(imported.sections["sources"][str(parts["source"])]["type"])
        self._discovered = {stream.ref: stream for stream in export.discovered.get(connection.source, ())}
        self._cdc = self._type in ("postgres", "mysql") and _is_cdc(self._source)
        self._tables: dict[str, dict[str, Any]] = {}
        self._hashed: list[str] = []
        self._hidden: list[str] = []

    def section(self) -> dict[str, Any]:
        """Return the connection's section of instep.yml."""
        section: dict[str, Any] = dict(self._parts)
        section |= self._changes()
        for stream in self._given.streams:
            self._tables[self._path(stream.ref)] = self._table(stream)
        section |= self._naming()
        section |= self._selection()
        if self._cdc:
            section["mode"] = "cdc"
        if tags := [tag for tag in self._given.tags if tag]:
            section["tags"] = tags
        section["tables"] = {exact(path): {"enabled": True, **table} for path, table in self._tables.items()}
        for path in self._tables:
            if exact(path) != path and section["tables"][exact(path)].pop("name", None):
                self._note(f"{path}: a table whose name has * ? or [ keeps its name")
        if schedule := self._schedule():
            section["schedule"] = schedule
        self._take_state()
        return section

    def _note(self, text: str) -> None:
        self._found.note(f"connection {self._name}: {text}")

    def _path(self, ref: StreamRef) -> str:
        """Return the table of a stream. Streams of MySQL without a namespace are those of its database."""
        namespace = ref[0] or (text_at(self._source.configuration, "database") if self._type == "mysql" else "")
        return ".".join(filter(None, (namespace or ("public" if self._type == "postgres" else ""), ref[1])))

    def _changes(self) -> dict[str, Any]:
        """Return the policy and what belongs to it. Without a setting the API's default counts, which is `ignore`."""
        word = self._given.changes or "ignore"
        try:
            keys: dict[str, Any] = {"policy": preset_named(word)}
        except SchemaError:
            self._note(f"its setting for changes, {word}, is not known: changes wait for a review")
            keys = {"policy": "approve"}
        if self._given.backfill in ("enabled", "disabled"):
            keys["backfill"] = self._given.backfill
        if self._given.notify is not None:
            keys["notify_schema_changes"] = self._given.notify
        return keys

    def _table(self, stream: AirbyteStream) -> dict[str, Any]:
        """Return the settings of a stream's table."""
        path, discovered = self._path(stream.ref), self._discovered.get(stream.ref)
        mode = _MODES.get(stream.mode, "")
        table: dict[str, Any] = {"mode": mode} if mode else {}
        if stream.mode and not mode:
            self._note(f"{path}: the sync mode {stream.mode} is not known: key and cursor choose")
        if stream.mode == "full_refresh_append":
            self._note(f"{path}: each sync appended all rows; now each replaces them (`history: true` keeps versions)")
        cursor = ".".join(stream.cursor)
        if self._cdc and mode in ("upsert", "append"):
            table = {"mode": "cdc"} | ({"history": True} if mode == "append" else {})
            soft = text_at(self._destination.configuration, "cdc_deletion_mode").lower().startswith("soft")
            table["deletes"] = "soft" if soft or "soft_delete" in stream.mode else "hard"
        elif mode in ("upsert", "append") and cursor and not cursor.startswith("_ab_"):
            if self._type != "airbyte" or not (discovered and discovered.own_cursor):
                table["cursor"] = cursor
        elif mode == "append" and self._type != "airbyte":
            table["mode"] = "auto"
            self._note(f"{path}: it has no cursor to append by: its rows are compared by key")
        if stream.key and not (discovered and discovered.own_key):
            nested = [field for field in stream.key if len(field) > 1]
            table["key"] = [".".join(field) for field in stream.key]
            if nested:
                self._note(f"{path}: its key has nested fields ({', '.join('.'.join(field) for field in nested)})")
        if stream.table:
            table["name"] = stream.table
        self._columns(stream, path, discovered)
        columns = _MappedColumns()
        for mapper in stream.mappers:
            self._map(mapper, path, table, columns)
        if columns.renamed:
            table["columns"] = columns.renamed
        return table

    def _columns(self, stream: AirbyteStream, path: str, discovered: DiscoveredStream | None) -> None:
        """Exclude the fields that are not selected: they are known if the export has the source's streams."""
        if stream.fields is None:
            return
        chosen = {field[0] for field in stream.fields}
        if any(len(field) > 1 for field in stream.fields):
            self._note(f"{path}: nested fields are selected with the whole column")
        if discovered is None or not discovered.fields:
            step = "export the source's streams (GET /streams), or write the others to `exclude: {columns: [...]}`"
            names = ", ".join(sorted(chosen))
            reason = f"{path} reads {len(chosen)} fields only ({names}); the export has not the others"
            self._found.leave_out(f"connection {self._name}", reason, step)
            return
        self._hidden += [exact(f"{path}.{field}") for field in discovered.fields if field not in chosen]

    def _map(self, mapper: AirbyteMapper, path: str, table: dict[str, Any], columns: _MappedColumns) -> None:
        settings = mapper.settings
        target = text_at(settings, "targetField")
        column = columns.source_of(target)
        match mapper.kind.replace("_", "-"):
            case "hashing" if target:
                self._hashed.append(exact(f"{path}.{column}"))
                columns.hash(target, text_at(settings, "fieldNameSuffix"))
                self._note(f"{path}.{column} is hashed with instep's own salted SHA-256, under its own name")
            case "field-filtering" if target:
                self._hidden.append(exact(f"{path}.{column}"))
                columns.renamed.pop(column, None)
            case "encryption" if target:
                self._hidden.append(exact(f"{path}.{column}"))
                columns.renamed.pop(column, None)
                step = "the column is left out: `hash:` it instead, or take it out of `exclude:` to load it as it is"
                self._found.leave_out(f"mapper encryption of {path}.{column}", "instep encrypts no columns", step)
            case "field-renaming" if text_at(settings, "originalFieldName") and text_at(settings, "newFieldName"):
                columns.rename(text_at(settings, "originalFieldName"), text_at(settings, "newFieldName"))
            case "row-filtering" if filter := _row_filter(mapping_at(settings, "conditions"), self._type, columns):
                before = table.get("filter")
                table["filter"] = f"{before} AND {filter}" if before else filter
            case kind:
                object = f"mapper {kind} of {path}{f'.{target}' if target else ''}"
                step = "`hash:`, `exclude:` or `filter:` of the connection may do; else leave the column out"
                self._found.leave_out(object, "instep has no such mapper", step)

    def _naming(self) -> dict[str, Any]:
        """Return the namespace, and put prefixes into the names of tables."""
        schemas = list(dict.fromkeys(stream.ref[0] for stream in self._given.streams if stream.ref[0]))
        only = schemas[0] if len(schemas) == 1 else ""
        configured = text_at(self._destination.configuration, "schema", "database_schema", "default_namespace")
        custom = self._given.namespace_format
        namespace = {
            "source": only or configured,
            "custom_format": custom.replace("${SOURCE_NAMESPACE}", only) if only or "${" not in custom else "",
        }.get(self._given.namespace, configured)
        if len(schemas) > 1 and self._given.namespace != "destination":
            self._note(f"its tables come from {len(schemas)} schemas and go into one namespace, its name")
        if "${" in namespace:
            self._note(f"its namespace {namespace} depends on values that only Airbyte has: its name is used instead")
            namespace = ""
        prefix = self._given.prefix
        bare = Counter(path.rpartition(".")[2] for path in self._tables)
        for path, table in self._tables.items():
            schema, _, name = path.rpartition(".")
            twice = bare[name] > 1 and schema
            if (prefix or twice) and "name" not in table:
                table["name"] = f"{prefix}{f'{schema}_' if twice else ''}{name}"
        if prefix:
            self._note(
                f"its prefix {prefix} is in the names of the tables that are there; a new table comes without it"
            )
        return {"namespace": namespace} if namespace else {}

    def _selection(self) -> dict[str, Any]:
        """Return the selection, hashed columns included. With the source's streams in the export, those that are not
        selected are switched off; otherwise only the selected ones are read."""
        everything = self._given.changes == "propagate_fully"
        paths = list(self._tables)
        section = include_of(paths, everything=everything and bool(self._discovered))
        if section:
            self._note(INCLUDED)
        else:
            for ref in self._discovered:
                if (path := self._path(ref)) not in self._tables:
                    self._tables[path] = {"enabled": False}
        if hidden := list(dict.fromkeys(self._hidden)):
            section["exclude"] = {"columns": hidden}
        if hashed := list(dict.fromkeys(self._hashed)):
            section |= {"hash": hashed, "salt": self._found.salt()}
        return section

    def _schedule(self) -> dict[str, Any]:
        schedule = self._given.schedule
        if schedule.cron:
            line, zone, why = cron_of(schedule.cron)
            if why:
                step = "write `schedule: {sync: ...}`, a cron line of five fields"
                self._found.leave_out(f"schedule of connection {self._name}", why, step)
            zone = schedule.timezone or zone
            section = {"sync": line, **({"timezone": zone} if zone not in ("", "UTC") else {})} if line else {}
        else:
            line, note = interval_of(schedule.minutes)
            section = {"sync": line} if line else {}
            if note:
                self._note(note)
        if section and self._given.status != "active":
            self._note(f"it is {self._given.status} in Airbyte: its schedule is left out (sync: {section['sync']})")
            return {}
        return section

    def _take_state(self) -> None:
        """Adopt state and catalog of a connector that goes on reading. instep reads databases itself, so that a
        position of Airbyte's means nothing to it."""
        state, catalog = self._export.states.get(self._given.id), self._export.catalogs.get(self._given.id)
        if self._type == "airbyte":
            if state:
                self._found.states[self._name] = state
            if catalog:
                self._found.catalogs[self._name] = catalog
        elif state:
            reason = "instep reads this database itself, and loads each table once before it follows changes"
            self._found.leave_out(f"state of connection {self._name}", reason, "run `instep plan`, then `instep sync`")


class _MappedColumns:
    """Columns of a stream as its mappers leave them: each one names them as those before it have called them."""

    def __init__(self) -> None:
        self.renamed: dict[str, str] = {}
        """New names by the source's."""
        self._sources: dict[str, str] = {}
        self._hashed: set[str] = set()

    def source_of(self, name: str) -> str:
        """Return what the source calls a column."""
        return self._sources.get(name, name)

    def is_hashed(self, name: str) -> bool:
        return self.source_of(name) in self._hashed

    def rename(self, old: str, new: str) -> None:
        self._sources[new] = source = self._sources.pop(old, old)
        self.renamed[source] = new

    def hash(self, name: str, suffix: str) -> None:
        """Note a hashed column: later mappers know it with the suffix, the destination without."""
        source = self._sources.pop(name, name)
        self._sources[name + suffix] = source
        self._hashed.add(source)


def _row_filter(conditions: Mapping[str, Any], type: str, columns: _MappedColumns) -> str:
    """Return a filter in the source's SQL; "" for conditions or values that cannot be written for sure, and for
    hashes, which the source does not have."""
    kind = text_at(conditions, "type").upper()
    if kind == "NOT":
        inner = next(iter(_condition_parts(conditions)), {})
        column, value = _column_and_value(inner, type, columns)
        return f"({column} IS NULL OR {column} <> {value})" if column else ""
    column, value = _column_and_value(conditions, type, columns) if kind == "EQUAL" else ("", "")
    return f"{column} = {value}" if column else ""


def _condition_parts(conditions: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    inner = conditions.get("conditions")
    parts = inner if isinstance(inner, list) else [inner]
    if len(parts) == 1 and isinstance(parts[0], Mapping):
        condition = parts[0].get("equal", parts[0])
        yield condition if isinstance(condition, Mapping) else {}


def _column_and_value(condition: Mapping[str, Any], type: str, columns: _MappedColumns) -> tuple[str, str]:
    """Return a quoted column and a literal; ("", "") for a source without SQL, or characters that may end either."""
    field, value = text_at(condition, "fieldName"), condition.get("comparisonValue")
    column = "" if columns.is_hashed(field) else columns.source_of(field)
    mark = {"postgres": '"', "mysql": "`", "jdbc": '"'}.get(type)
    text = value if isinstance(value, str) else ""
    if mark is None or not column or not isinstance(value, str) or not (column + text).isprintable():
        return "", ""
    if mark in column or "\\" in column + text or "${" in column + text:
        return "", ""
    return f"{mark}{column}{mark}", "'" + text.replace("'", "''") + "'"
