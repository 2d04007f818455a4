"""The streams of a connector as tables: which columns and keys they have, and how each of them is read. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from instep.errors import ProjectError, ReadError
from instep.schema.catalog.catalog import ROW_ID, Table
from instep.schema.catalog.types import DataType
from instep.sources.airbyte.json_schema import column_type, is_object, properties, required
from instep.sources.connector.segment import RESERVED

if TYPE_CHECKING:
    from instep.project.sections.tables import TableSettings

Ref = tuple[str, str]
ColumnPath = tuple[str, ...]
SyncMode = Literal["full_refresh", "incremental"]
DELETED_AT = "_ab_cdc_deleted_at"
"""The property of a source that reads a log: a record in which it has a value is a delete."""


@dataclass(frozen=True)
class StreamTable:
    """A stream and how it is read. `columns` are by name; those in `paths` are inside of objects that are taken apart,
    and `key_values` tells where parts of the key are that lie in objects. `overwrite`: its rows are all that there is,
    once it is complete. `deletes`: records may be deletes. `lost` is what it was read by and does not have any more, so
    that it is not read until somebody has decided about that; "" for nothing."""

    stream: Mapping[str, Any]
    sync_mode: SyncMode
    overwrite: bool
    """Its rows are all that there is, once it is complete."""
    deletes: bool
    """Records may be deletes."""
    key: tuple[str, ...]
    key_paths: tuple[ColumnPath, ...]
    cursor: tuple[str, ...]
    columns: Mapping[str, DataType]
    """By name; those in `paths` are inside of objects that are taken apart, and `key_values` tells where parts of
    the key are that lie in objects."""
    paths: Mapping[str, ColumnPath]
    key_values: Mapping[str, ColumnPath]
    required: frozenset[str]
    lost: str = ""
    """What it was read by and does not have any more, so that it is not read until somebody has decided about that;
    "" for nothing."""
    cursor_column: str = ""
    """The column that `cursor` is, or is in, where the connector leaves it to us; "" if there is none."""

    @property
    def ref(self) -> Ref:
        return str(self.stream.get("namespace") or ""), str(self.stream["name"])

    @property
    def path(self) -> str:
        return ".".join(filter(None, self.ref))

    def document(self) -> dict[str, Any]:
        """Return the table as a declaration of a connector has it."""
        return {
            "schema": self.ref[0],
            "table": self.ref[1],
            "declared": True,
            "key": list(self.key),
            "cursor": self.cursor_column,
            "columns": {name: str(kind) for name, kind in self.columns.items()},
        }

    def configured(self, generation: int, sync: int) -> dict[str, Any]:
        """Return the stream as the configured catalog has it."""
        keyed = bool(self.key)
        mode = "overwrite" if self.overwrite else "append_dedup" if keyed else "append"
        return {
            "stream": dict(self.stream),
            "sync_mode": self.sync_mode,
            "destination_sync_mode": mode,
            "cursor_field": list(self.cursor),
            "primary_key": [list(path) for path in self.key_paths],
            "generation_id": generation,
            "minimum_generation_id": generation if self.overwrite else 0,
            "sync_id": sync,
        }


def stream_tables(
    name: str,
    streams: Sequence[Mapping[str, Any]],
    settings: Callable[[Ref], TableSettings],
    flattened: Callable[[str], bool],
    accepted: Mapping[Ref, Table],
) -> tuple[StreamTable, ...]:
    """Return the tables of a catalog; `name` is that of the connector. Raises ReadError for a catalog that is none,
    ProjectError for settings that a stream cannot follow and never could: what an `accepted` table has lost is a change
    to decide."""
    if not streams:
        raise ReadError(
            f"connector {name}: it offers no stream", hint="look what its configuration selects: no table is removed"
        )
    tables: dict[Ref, StreamTable] = {}
    for stream in streams:
        ref = (str(stream.get("namespace") or ""), str(stream["name"]))
        path = ".".join(filter(None, ref))
        if not ref[1].strip() or "\0" in path:
            raise ReadError(f"connector {name}: it offers a stream without a name", hint=_REPORT)
        if ref in tables:
            raise ReadError(f"connector {name}: it offers the stream {path} twice", hint=_REPORT)
        before = accepted.get(ref)
        known = before if before is not None and not before.retained else None
        tables[ref] = _table(stream, path, settings(ref), known, flatten=flattened(path))
    return tuple(tables.values())


_REPORT = "report it to who maintains the connector, or use another version"


def _table(
    stream: Mapping[str, Any], path: str, settings: TableSettings, accepted: Table | None, *, flatten: bool
) -> StreamTable:
    schema = stream.get("json_schema") or {}
    columns, paths = _columns(schema, flatten=flatten)
    modes = stream.get("supported_sync_modes") or ["full_refresh"]
    cursor = _cursor(stream, path, settings, accepted)
    can_follow = "incremental" in modes and bool(cursor or stream.get("source_defined_cursor"))
    sync_mode: SyncMode = "incremental" if can_follow and settings.mode != "full_refresh" else "full_refresh"
    if settings.mode == "full_refresh" and "full_refresh" not in modes:
        raise _cannot(path, "be read as a whole: it sends changes alone", "leave `mode` out")
    if settings.mode == "cdc":
        raise _cannot(path, "be read by `cdc`", "leave `mode` out: it is incremental where the connector supports that")
    overwrite = settings.mode == "full_refresh" or (settings.mode == "auto" and sync_mode == "full_refresh")
    key_paths = () if settings.mode == "append" else _key(stream, path, settings, accepted)
    cursor_column = _cursor_column(stream, settings, accepted, columns)
    lost = _lost(stream, settings, accepted, key_paths, columns, cursor_column)
    if settings.mode == "upsert" and not key_paths and not lost:
        raise _cannot(path, "be synced by upsert: it has no primary key", "name columns: `key: [...]`")
    key = _key_columns(key_paths, columns, paths)
    return StreamTable(
        stream=stream,
        sync_mode=sync_mode,
        overwrite=overwrite,
        deletes=bool(key) and not overwrite and DELETED_AT in columns,
        key=tuple(key),
        key_paths=key_paths,
        cursor=cursor,
        columns=columns,
        paths=paths,
        key_values={name: path for name, path in key.items() if name not in columns},
        required=required(schema) & columns.keys(),
        lost=lost,
        cursor_column=cursor_column,
    )


def _key_columns(
    key: Sequence[ColumnPath], columns: Collection[str], paths: Mapping[str, ColumnPath]
) -> dict[str, ColumnPath]:
    """Return the parts of the key by their columns: a nested one gets a name that no other property has."""
    key_columns: dict[str, ColumnPath] = {}
    for path in dict.fromkeys(key):
        name = "_".join(path)
        while name in key_columns or (name in columns and paths.get(name, (name,)) != path):
            name += "_"
        key_columns[name] = path
    return key_columns


def _lost(
    stream: Mapping[str, Any],
    settings: TableSettings,
    accepted: Table | None,
    key: Sequence[ColumnPath],
    columns: Collection[str],
    cursor_column: str,
) -> str:
    """Return the accepted cursor or key by which the stream cannot be read any more, "" if there is none."""
    if accepted is None:
        return ""
    there = properties(stream.get("json_schema"))
    cursor = accepted.cursor
    if cursor and not stream.get("source_defined_cursor") and settings.mode != "full_refresh":
        is_nested = not settings.cursor and is_object(there.get(cursor, {}))
        if not (cursor_column if is_nested else cursor in there or cursor in columns):
            return f"its cursor {cursor}"
    named = set(settings.key) & set(accepted.key)
    if gone := [name for name in accepted.key if name in named and name not in there]:
        return f"{', '.join(gone)} of its primary key"
    if settings.mode == "upsert" and not key and accepted.key != (ROW_ID,):
        return f"its primary key ({', '.join(accepted.key)})"
    return ""


def _cannot(path: str, what: str, hint: str) -> ProjectError:
    return ProjectError(f"stream {path} cannot {what}", hint=f"{hint}, in `tables:` of the connection")


def _columns(schema: Any, *, flatten: bool) -> tuple[dict[str, DataType], dict[str, ColumnPath]]:
    """Return (types by name, paths of the columns that are inside of objects). An object stays whole if a column of it
    would have the name of another one."""
    columns: dict[str, DataType] = {}
    paths: dict[str, ColumnPath] = {}
    there = properties(schema)
    flat = {name: list(_inner(one, (name,), schema)) for name, one in there.items() if flatten and is_object(one)}
    names = Counter((*there, *RESERVED, *("_".join(path) for inner in flat.values() for path, _ in inner)))
    for name, one in there.items():
        if not name.strip() or name in RESERVED:
            raise ReadError(f"a stream has a property that cannot be a column: {name!r}", hint=_REPORT)
        inner = flat.get(name, [])
        if inner and all(names["_".join(path)] == 1 for path, _ in inner):
            columns |= {"_".join(path): kind for path, kind in inner}
            paths |= {"_".join(path): path for path, _ in inner}
        elif (own := column_type(one, schema)) is not None:
            columns[name] = own
    return columns, paths


def _inner(schema: Any, path: ColumnPath, root: Any) -> Iterable[tuple[ColumnPath, DataType]]:
    for name, one in properties(schema).items():
        if is_object(one):
            yield from _inner(one, (*path, name), root)
        elif (kind := column_type(one, root)) is not None:
            yield (*path, name), kind


def _cursor(stream: Mapping[str, Any], path: str, settings: TableSettings, accepted: Table | None) -> tuple[str, ...]:
    """Return the cursor; one that the settings name and an accepted table does not have any more counts for nothing.
    Without one in the settings, a stream is read by what was accepted as long as that is there: another default is a
    change to decide."""
    default, there = _default_cursor(stream), properties(stream.get("json_schema"))
    if stream.get("source_defined_cursor"):
        return default
    if not settings.cursor:
        before = accepted.cursor if accepted is not None else None
        has_other = before in there and before not in default[:1] and not is_object(there[before])
        return (str(before),) if has_other else default
    if settings.cursor not in there:
        if accepted is not None:
            return default
        raise _cannot(path, f"be read by the cursor {settings.cursor}: it has no such property", "correct `cursor`")
    return (settings.cursor,)


def _default_cursor(stream: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(map(str, stream.get("default_cursor_field") or ()))


def _cursor_column(
    stream: Mapping[str, Any], settings: TableSettings, accepted: Table | None, columns: Collection[str]
) -> str:
    """Return the column that the default cursor is, or is in, if the stream is read by it; "" if there is none."""
    if settings.mode == "full_refresh":
        return ""
    before = (accepted.cursor if accepted is not None else None) or ""
    if stream.get("source_defined_cursor") or "incremental" not in (stream.get("supported_sync_modes") or ()):
        return before if before in columns else ""
    default = _default_cursor(stream)
    inside = stream.get("json_schema")
    for name in default:
        if name not in (there := properties(inside)):
            return ""
        inside = there[name]
    return next((name for name in ("_".join(default), *default[:1]) if name in columns), "")


def _key(
    stream: Mapping[str, Any], path: str, settings: TableSettings, accepted: Table | None
) -> tuple[ColumnPath, ...]:
    """Return the primary key: a source that defines one is right, whatever the project says. One that an accepted table
    does not have any more counts for nothing."""
    if defined := stream.get("source_defined_primary_key"):
        return tuple(tuple(map(str, one)) for one in defined if one)
    paths = {name: _path_of(name, stream.get("json_schema")) for name in settings.key}
    missing = [name for name, one in paths.items() if not one]
    if missing and accepted is not None:
        return ()
    if missing:
        raise _cannot(path, f"have the key {', '.join(missing)}: it has no such property", "correct `key`")
    return tuple(paths.values())


def _path_of(name: str, schema: Any) -> ColumnPath:
    """Return the path of a property, whose name has dots if it is in objects; () if there is none."""
    if name in properties(schema):
        return (name,)
    first, _, rest = name.partition(".")
    inner = _path_of(rest, properties(schema).get(first)) if rest else ()
    return (first, *inner) if inner else ()
