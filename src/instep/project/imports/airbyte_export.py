"""Exports of an Airbyte configuration, in all their forms: the answers of the public API and of the configuration API,
or a Terraform state of its provider."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from instep.errors import ProjectError, quoted
from instep.project.imports.documents import (
    ExportDocument,
    TerraformResource,
    is_terraform,
    json_attribute,
    list_at,
    mapping_at,
    mappings_of,
    paths_of,
    terraform_resources,
    text_at,
    words_of,
)

FieldPath = tuple[str, ...]
Side = Literal["source", "destination"]
StreamRef = tuple[str, str]
"""(namespace, name)."""

_DEFINITIONS = {
    "decd338e-5647-4c0b-adf4-da0e75f5a750": "source-postgres",
    "435bb9a5-7887-4809-aa58-28c27df0d7ad": "source-mysql",
    "b5ea17b1-f170-46dc-bc31-cc744ca984c1": "source-mssql",
    "dfd88b22-b603-4c3d-aad7-3701784586b1": "source-faker",
    "25c5221d-dce2-4163-ade9-739ef790f503": "destination-postgres",
    "716ca874-520b-4902-9f80-9fad66754b89": "destination-s3-data-lake",
}
"""Connectors by the id of their definition, where an export has no name."""
_MODES = {
    ("full_refresh", "overwrite"): "full_refresh_overwrite",
    ("full_refresh", "append"): "full_refresh_append",
    ("full_refresh", "overwrite_dedup"): "full_refresh_overwrite_deduped",
    ("full_refresh", "append_dedup"): "full_refresh_overwrite_deduped",
    ("full_refresh", "update"): "full_refresh_update",
    ("full_refresh", "soft_delete"): "full_refresh_soft_delete",
    ("incremental", "append"): "incremental_append",
    ("incremental", "append_dedup"): "incremental_deduped_history",
    ("incremental", "update"): "incremental_update",
    ("incremental", "soft_delete"): "incremental_soft_delete",
}
_MINUTES = {"minute": 1, "hour": 60, "day": 1440, "week": 10_080, "month": 43_200}
_EVERY = re.compile(r"every\s+(\d{1,5})\s*(minute|hour|day|week|month)s?", re.IGNORECASE)


@dataclass(frozen=True)
class AirbyteActor:
    """A source or a destination."""

    id: str
    name: str
    connector: str
    """Such as `source-postgres`; "" if the export does not name it."""
    version: str
    configuration: Mapping[str, Any] = field(repr=False)
    sensitive: frozenset[FieldPath]
    where: str
    """The place in the export."""


@dataclass(frozen=True)
class AirbyteMapper:
    """A mapper of a stream; `settings` is its configuration."""

    kind: str
    settings: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class AirbyteStream:
    """A configured stream. `fields`: the fields that are read, None for all."""

    ref: StreamRef
    mode: str = ""
    cursor: FieldPath = ()
    key: tuple[FieldPath, ...] = ()
    fields: tuple[FieldPath, ...] | None = None
    mappers: tuple[AirbyteMapper, ...] = ()
    table: str = ""
    """Its name at the destination, where that is chosen."""


@dataclass(frozen=True)
class DiscoveredStream:
    """A stream that the source has."""

    ref: StreamRef
    fields: tuple[str, ...] = ()
    own_key: bool = False
    own_cursor: bool = False


@dataclass(frozen=True)
class AirbyteSchedule:
    """Schedule of a connection."""

    cron: str = ""
    """Cron line as Airbyte has it; else an interval in `minutes`, or neither: manual."""
    timezone: str = ""
    minutes: int = 0


@dataclass(frozen=True)
class AirbyteConnection:
    """A connection. `changes`: the setting for changes that break nothing."""

    id: str
    name: str
    source: str
    destination: str
    status: str
    schedule: AirbyteSchedule
    namespace: str
    """source, destination or custom_format"""
    namespace_format: str
    prefix: str
    changes: str
    backfill: str
    notify: bool | None
    tags: tuple[str, ...]
    streams: tuple[AirbyteStream, ...]


@dataclass
class AirbyteExport:
    """All that the documents say. `discovered` is by source, `catalogs` and `states` are by connection."""

    sources: dict[str, AirbyteActor] = field(default_factory=dict)
    destinations: dict[str, AirbyteActor] = field(default_factory=dict)
    connections: dict[str, AirbyteConnection] = field(default_factory=dict)
    discovered: dict[str, tuple[DiscoveredStream, ...]] = field(default_factory=dict)
    catalogs: dict[str, dict[str, Any]] = field(default_factory=dict)
    states: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_export(documents: Sequence[ExportDocument]) -> AirbyteExport:
    """Read all documents of an export. ProjectError if they have no object of Airbyte's."""
    export = AirbyteExport()
    late: list[tuple[ExportDocument, str, Any]] = []
    for document in documents:
        if is_terraform(document.data):
            for resource in terraform_resources(document):
                _take_resource(export, document, resource)
            continue
        _sort_objects(export, document, document.data, "", late)
    for document, id, item in late:
        _take_late(export, document, id, item)
    if not (export.sources or export.destinations or export.connections):
        files = ", ".join(document.file for document in documents)
        raise ProjectError(
            f"{files}: no source, destination or connection of Airbyte's",
            hint="export them as docs/guides/other-products.md describes, or name a Terraform state",
        )
    return export


def _sort_objects(
    export: AirbyteExport, document: ExportDocument, data: Any, id: str, late: list[tuple[ExportDocument, str, Any]]
) -> None:
    """Sort the objects of a document by their form; streams and states need to know the sources: they come late."""
    if isinstance(data, list):
        if data and all(isinstance(item, Mapping) and ("streamName" in item or "type" in item) for item in data):
            late.append((document, id, data))
            return
        for item in data:
            _sort_objects(export, document, item, id, late)
    elif not isinstance(data, Mapping):
        return
    elif "sourceId" in data and "destinationId" in data:
        _add_connection(export, data)
    elif ("sourceId" in data or "destinationId" in data) and _has_configuration(data):
        side: Side = "source" if "sourceId" in data else "destination"
        actor = _api_actor(data, side, document)
        (export.sources if side == "source" else export.destinations)[actor.id] = actor
    elif "stateType" in data:
        late.append((document, text_at(data, "connectionId") or id, data))
    else:
        _take_parts(export, document, data, late)


def _has_configuration(data: Mapping[str, Any]) -> bool:
    return "configuration" in data or "connectionConfiguration" in data


def _take_parts(
    export: AirbyteExport,
    document: ExportDocument,
    data: Mapping[str, Any],
    late: list[tuple[ExportDocument, str, Any]],
) -> None:
    """Take a page of a list, or a document of several lists; streams and states may be below the id of their owner."""
    if "data" in data:
        if text_at(data, "next"):
            export.notes.append(f"{document.file} is one page of a longer list: export the next ones, too")
        _sort_objects(export, document, data["data"], "", late)
    for name in ("sources", "destinations", "connections"):
        if name in data:
            _sort_objects(export, document, data[name], "", late)
    for name in ("streams", "states"):
        part = data.get(name)
        if isinstance(part, Mapping) and "data" not in part:
            late += [(document, str(id), item) for id, item in part.items()]
        elif part is not None:
            _sort_objects(export, document, part, "", late)


def _take_late(export: AirbyteExport, document: ExportDocument, id: str, item: Any) -> None:
    """Take the streams of a source, or the state of a connection. A file may be named after its owner's id or name."""
    items = mappings_of(list_at(item, "data") if isinstance(item, Mapping) and "data" in item else item)
    if any("streamName" in i for i in items):
        if owner := _owner(export, document, id, export.sources, "streams", "source"):
            export.discovered[owner] = tuple(_api_discovered(i) for i in items)
        return
    messages = items if any("type" in i for i in items) else state_messages(item)
    if messages and (owner := _owner(export, document, id, export.connections, "state", "connection")):
        export.states[owner] = [dict(message) for message in messages if text_at(message, "type")]


def _owner(
    export: AirbyteExport,
    document: ExportDocument,
    id: str,
    owners: Mapping[str, AirbyteActor | AirbyteConnection],
    what: str,
    kind: str,
) -> str:
    """Return the id of the object that streams or a state are of; "" with a note if that is not known. What names an
    object that is not in the export is never another one's: a connection would read on from a foreign state."""
    if id:
        matches = [key for key in owners if key == id] or [key for key, actor in owners.items() if actor.name == id]
        if len(matches) == 1:
            return matches[0]
        export.notes.append(
            f"{document.file}: the {what} of {kind} {quoted(id, 100)} {'are' if what == 'streams' else 'is'} left out: "
            f"{f'several {kind}s have that name' if matches else f'the export has no such {kind}'}"
        )
        return ""
    if owner := _owner_by_file(owners, document.name):
        return owner
    verb = "these are" if what == "streams" else "this is"
    export.notes.append(
        f"{document.file}: whose {what} {verb} is not clear: put the id of the {kind} into the file's name"
    )
    return ""


def _owner_by_file(owners: Mapping[str, AirbyteActor | AirbyteConnection], file: str) -> str:
    """Return the id of the object whose id or name is in the name of a file, or of the only one."""
    named = [id for id, o in owners.items() if id in file or (o.name and o.name in file)]
    matches = named or list(owners)
    return matches[0] if len(matches) == 1 else ""


def _api_actor(data: Mapping[str, Any], side: Side, document: ExportDocument) -> AirbyteActor:
    kind = text_at(data, f"{side}Type") or text_at(data, f"{side}Name")
    name = text_at(data, "name")
    return AirbyteActor(
        text_at(data, f"{side}Id"),
        name,
        _connector(kind, side, text_at(data, "definitionId", f"{side}DefinitionId")),
        text_at(data, "dockerImageTag", "connectorVersion"),
        mapping_at(data, "configuration", "connectionConfiguration"),
        frozenset(),
        f"{document.file}, {side} {name}",
    )


def _connector(kind: str, side: Side, definition: str) -> str:
    """Return the connector's name, such as `source-google-sheets` of `google-sheets` or `Google Sheets`."""
    words = re.sub(r"[^a-z0-9]+", "-", kind.strip().lower()).strip("-").removeprefix("airbyte-")
    if words in ("", "custom", "source", "destination"):
        return _DEFINITIONS.get(definition.lower(), "")
    return words if words.startswith(f"{side}-") else f"{side}-{words}"


def _api_discovered(data: Mapping[str, Any]) -> DiscoveredStream:
    fields = tuple(path[0] for path in paths_of(data.get("propertyFields")))
    return DiscoveredStream(
        (text_at(data, "streamnamespace", "streamNamespace", "namespace"), text_at(data, "streamName")),
        tuple(dict.fromkeys(fields)),
        bool(paths_of(data.get("sourceDefinedPrimaryKey"))),
        data.get("sourceDefinedCursorField") is True,
    )


def _add_connection(export: AirbyteExport, data: Mapping[str, Any]) -> None:
    streams = tuple(_stream(s) for s in mappings_of(list_at(mapping_at(data, "configurations"), "streams")))
    id = text_at(data, "connectionId", "id")
    catalog = mappings_of(list_at(mapping_at(data, "syncCatalog"), "streams"))
    if catalog:
        streams = tuple(_catalog_stream(s) for s in catalog if mapping_at(s, "config").get("selected") is not False)
        export.catalogs[id] = {"streams": [_configured(s) for s in catalog if _is_selected(s)]}
        export.discovered.setdefault(text_at(data, "sourceId"), tuple(_catalog_discovered(s) for s in catalog))
    notify = data.get("notifySchemaChanges")
    export.connections[id] = AirbyteConnection(
        id,
        text_at(data, "name"),
        text_at(data, "sourceId"),
        text_at(data, "destinationId"),
        text_at(data, "status") or "active",
        _schedule(data),
        text_at(data, "namespaceDefinition").replace("customformat", "custom_format") or "destination",
        text_at(data, "namespaceFormat"),
        text_at(data, "prefix"),
        text_at(data, "nonBreakingSchemaUpdatesBehavior", "nonBreakingChangesPreference"),
        text_at(data, "backfillPreference"),
        notify if isinstance(notify, bool) else None,
        tuple(text_at(tag, "name") for tag in mappings_of(list_at(data, "tags"))),
        streams,
    )


def _schedule(data: Mapping[str, Any]) -> AirbyteSchedule:
    schedule = mapping_at(data, "schedule")
    kind = (text_at(schedule, "scheduleType") or text_at(data, "scheduleType")).lower()
    cron = mapping_at(mapping_at(data, "scheduleData"), "cron")
    if expression := text_at(schedule, "cronExpression") or text_at(cron, "cronExpression"):
        return AirbyteSchedule(expression, text_at(cron, "cronTimeZone")) if kind != "manual" else AirbyteSchedule()
    basic = mapping_at(mapping_at(data, "scheduleData"), "basicSchedule") or schedule
    unit, units = text_at(basic, "timeUnit").lower().rstrip("s"), text_at(basic, "units")
    if match := _EVERY.search(text_at(schedule, "basicTiming")):
        units, unit = match[1], match[2].lower()
    if kind == "manual" or unit not in _MINUTES or not re.fullmatch(r"\d{1,5}", units):
        return AirbyteSchedule()
    return AirbyteSchedule(minutes=int(units) * _MINUTES[unit])


def _stream(data: Mapping[str, Any]) -> AirbyteStream:
    """Read the configuration of a stream as the public API has it."""
    selected = mappings_of(list_at(data, "selectedFields"))
    fields = tuple(words_of(field.get("fieldPath")) for field in selected)
    return AirbyteStream(
        (text_at(data, "namespace"), text_at(data, "name")),
        text_at(data, "syncMode"),
        words_of(data.get("cursorField")),
        paths_of(data.get("primaryKey")),
        tuple(path for path in fields if path) or None,
        tuple(_mappers(data)),
        text_at(data, "destinationObjectName"),
    )


def _mappers(data: Mapping[str, Any]) -> Iterator[AirbyteMapper]:
    for mapper in mappings_of(list_at(data, "mappers")):
        yield AirbyteMapper(text_at(mapper, "type"), mapping_at(mapper, "mapperConfiguration"))
    for mapper in mappings_of(list_at(data, "hashedFields")):
        yield AirbyteMapper("hashing", {"targetField": ".".join(words_of(mapper.get("fieldPath")))})


def _is_selected(entry: Mapping[str, Any]) -> bool:
    return mapping_at(entry, "config").get("selected") is not False


def _catalog_stream(entry: Mapping[str, Any]) -> AirbyteStream:
    """Read an entry of a catalog as the configuration API has it."""
    stream, config = mapping_at(entry, "stream"), mapping_at(entry, "config")
    chosen = config if config.get("fieldSelectionEnabled") is True else {}
    mode = (text_at(config, "syncMode"), text_at(config, "destinationSyncMode"))
    names = {"name": text_at(stream, "name"), "namespace": text_at(stream, "namespace")}
    fields = {"selectedFields": list_at(chosen, "selectedFields")}
    return replace(_stream({**config, **names, **fields}), mode=_MODES.get(mode, ""))


def _catalog_discovered(entry: Mapping[str, Any]) -> DiscoveredStream:
    stream = mapping_at(entry, "stream")
    return DiscoveredStream(
        (text_at(stream, "namespace"), text_at(stream, "name")),
        tuple(map(str, mapping_at(mapping_at(stream, "jsonSchema"), "properties"))),
        bool(paths_of(stream.get("sourceDefinedPrimaryKey"))),
        stream.get("sourceDefinedCursor") is True,
    )


def _configured(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of a catalog as the protocol's configured catalog has it."""
    stream, config = mapping_at(entry, "stream"), mapping_at(entry, "config")
    own_cursor = stream.get("sourceDefinedCursor")
    own = {
        "name": text_at(stream, "name"),
        "namespace": text_at(stream, "namespace") or None,
        "json_schema": mapping_at(stream, "jsonSchema"),
        "supported_sync_modes": list(words_of(list_at(stream, "supportedSyncModes"))),
        "source_defined_cursor": own_cursor if isinstance(own_cursor, bool) else None,
        "default_cursor_field": list(words_of(list_at(stream, "defaultCursorField"))),
        "source_defined_primary_key": [list(path) for path in paths_of(list_at(stream, "sourceDefinedPrimaryKey"))],
    }
    return {
        "stream": {name: value for name, value in own.items() if value not in (None, [])},
        "sync_mode": text_at(config, "syncMode"),
        "destination_sync_mode": text_at(config, "destinationSyncMode"),
        "cursor_field": list_at(config, "cursorField"),
        "primary_key": list_at(config, "primaryKey"),
    }


def state_messages(data: Any) -> list[dict[str, Any]]:
    """Return the state that the configuration API answers as the messages of a connector's state file."""
    kind = text_at(data, "stateType").lower()
    if kind == "stream":
        return [{"type": "STREAM", "stream": stream_state} for stream_state in _stream_states(data, "streamState")]
    if kind == "global":
        inner = mapping_at(data, "globalState")
        shared = inner.get("shared_state", inner.get("sharedState"))
        streams = list(_stream_states(inner, "streamStates", "stream_states"))
        return [{"type": "GLOBAL", "global": {"shared_state": shared, "stream_states": streams}}]
    if kind == "legacy" and isinstance(data.get("state"), Mapping):
        return [{"type": "LEGACY", "data": data["state"]}]
    return []


def _stream_states(data: Any, *names: str) -> Iterator[dict[str, Any]]:
    for entry in mappings_of(list_at(data, *names)):
        named = mapping_at(entry, "streamDescriptor", "stream_descriptor")
        descriptor = {"name": text_at(named, "name"), "namespace": text_at(named, "namespace") or None}
        state = entry.get("streamState", entry.get("stream_state"))
        yield {
            "stream_descriptor": {name: value for name, value in descriptor.items() if value},
            "stream_state": state,
        }


def adopted_state(
    messages: Sequence[Mapping[str, Any]] | None, catalog: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the state of a connection as the store keeps it, of the messages of a state file (None: it begins with
    the first record), with the catalog that was accepted before. ProjectError if they are of several types, or
    none."""
    accepted = {"catalog": catalog} if catalog else {}
    if messages is None:
        return {"airbyte": 1, "type": "", "streams": [], "generations": [], **accepted}
    kinds = {text_at(message, "type") or "LEGACY" for message in messages}
    if len(kinds) != 1 or not kinds <= {"STREAM", "GLOBAL", "LEGACY"}:
        raise ProjectError(
            "the state is not one of Airbyte's", hint="it is a list of STREAM, GLOBAL or LEGACY messages"
        )
    kind = kinds.pop()
    inner = mapping_at(messages[-1], "global")
    parts = [mapping_at(s, "stream") for s in messages]
    streams = mappings_of(list_at(inner, "stream_states")) if kind == "GLOBAL" else parts if kind == "STREAM" else []
    descriptors = [mapping_at(stream, "stream_descriptor") for stream in streams]
    state: dict[str, Any] = {"airbyte": 1, "type": kind, "generations": [], **accepted}
    state["streams"] = [
        {"namespace": text_at(d, "namespace"), "name": text_at(d, "name"), "state": s.get("stream_state")}
        for d, s in zip(descriptors, streams, strict=True)
        if s.get("stream_state") is not None
    ]
    if kind == "GLOBAL":
        state["shared"] = inner.get("shared_state")
    if kind == "LEGACY":
        state["legacy"] = messages[-1].get("data")
    return state


def _take_resource(export: AirbyteExport, document: ExportDocument, resource: TerraformResource) -> None:
    """Take a resource of the Terraform provider: an actor, whose type may be its own or the general one, or a
    connection."""
    where = f"{document.file}, {resource.address}"
    attributes = resource.attributes
    if resource.type == "airbyte_connection":
        _add_connection(export, camel({name: value for name, value in attributes.items() if value is not None}))
        return
    match = re.fullmatch(r"airbyte_(source|destination)(?:_(\w+))?", resource.type)
    if match is None:
        return
    side: Side = "source" if match[1] == "source" else "destination"
    name = "configuration" if "configuration" in attributes else "connection_configuration"
    configuration = json_attribute(attributes.get(name), where)
    named = match[2] if match[2] not in (None, "custom") else text_at(attributes, f"{side}_type")
    inner = [path[1:] for path in resource.sensitive if path[:1] == (name,) and len(path) > 1]
    places = frozenset((*inner, *(path[:1] + path[2:] for path in inner if len(path) > 2)))  # without the form's name
    actor = AirbyteActor(
        text_at(attributes, f"{side}_id", "id"),
        text_at(attributes, "name") or resource.address,
        _connector(named or "", side, text_at(attributes, "definition_id", f"{side}_definition_id")),
        "",
        chosen_forms(configuration),
        places if configuration is attributes.get(name) else frozenset(),
        where,
    )
    (export.sources if side == "source" else export.destinations)[actor.id] = actor


def camel(value: Any) -> Any:
    """Return a document of the provider with the names that the API has. A mapper's configuration is below the name
    of its kind."""
    if isinstance(value, list):
        return [camel(entry) for entry in value]
    if not isinstance(value, Mapping):
        return value
    converted = {re.sub(r"_([a-z0-9])", lambda m: m[1].upper(), str(k)): camel(v) for k, v in value.items()}
    if isinstance(inner := converted.get("mapperConfiguration"), Mapping):
        converted["mapperConfiguration"] = _chosen(inner)
    if isinstance(inner := converted.get("conditions"), Mapping) and not text_at(inner, "type"):
        kind = next((name for name, entry in inner.items() if isinstance(entry, Mapping)), "")
        converted["conditions"] = {"type": kind.upper(), **_chosen(inner)}
    return converted


def _chosen(forms: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the one form of several that is present, or the mapping itself."""
    present = [form for form in forms.values() if form is not None]
    return present[0] if len(present) == 1 and isinstance(present[0], Mapping) else forms


FORMS = ("ssl_mode", "tunnel_method", "replication_method", "replication", "catalog_type", "encryption")
"""Keys of database connectors below which the provider has each form under its name."""


def chosen_forms(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration of the provider in which the form that was chosen stands in place of all forms. What the
    form's name says is below `form`, because the provider leaves out its constant."""
    chosen = dict(configuration)
    for name, value in configuration.items():
        if not isinstance(value, Mapping):
            continue
        present = {form: v for form, v in value.items() if v is not None}
        forms = [(form, v) for form, v in present.items() if isinstance(v, Mapping)]
        if len(forms) == 1 == len(present) and (name in FORMS or len(value) > 1):
            form, inner = forms[0]
            chosen[name] = {"form": form, **{key: v for key, v in inner.items() if v is not None}}
    return chosen
