"""Views of ours in the catalog file of a local lake: metadata of the view format, version 1, and a row pointing to it.

pyiceberg reads and writes views of REST catalogs alone. What Spark's catalog over the same file reads is made here: one
representation in Spark's SQL, with the types that the table's columns have.
"""

from __future__ import annotations

import json
import sqlite3
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

from instep.destinations.base import Ref
from instep.destinations.iceberg.metadata.catalog import VIEW, Lake, LakeFacet, local_path
from instep.destinations.iceberg.metadata.records import FENCE, current_fields
from instep.destinations.iceberg.metadata.schema import IcebergField, Type, iceberg_type, schema_of
from instep.errors import Conflict, ConnectError, Fenced
from instep.schema.catalog.catalog import Table
from instep.schema.changes.describe import ColumnRenamed, TableRemoved
from instep.schema.planning.aliases import View, carried
from instep.schema.planning.naming import quote
from instep.schema.planning.step import Step

MOST_VERSIONS = 10
"""Number of versions that the metadata of a view remembers."""
_ALL = (
    "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables "
    "WHERE catalog_name = ? AND iceberg_type = 'VIEW'"
)
_INSERT = (
    "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type) "
    "VALUES (?, ?, ?, ?, 'VIEW')"
)
_SWAP = (
    "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ? "
    "WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? AND metadata_location = ?"
)
_DELETE = (
    "DELETE FROM iceberg_tables "
    "WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? AND metadata_location = ?"
)


def _own_views(lake: Lake) -> dict[Ref, tuple[str, Mapping[str, Any]]]:
    """Return where the metadata of each view of ours is, and the metadata."""
    if not (lake.holds_views and lake.exists()):
        return {}
    with lake.open_database() as db:
        rows = db.execute(_ALL, (lake.name,)).fetchall()
    views = {
        (namespace, name): (location, lake.parse(location))
        for namespace, name, location in rows
        if location.startswith(lake.warehouse)
    }
    return {ref: view for ref, view in views.items() if VIEW in view[1].get("properties", {})}


def _view(ref: Ref, metadata: Mapping[str, Any]) -> View:
    record = json.loads(metadata["properties"][VIEW])
    columns = tuple((name, column) for name, column in record["columns"])
    return View(ref, (record["table"][0], record["table"][1]), columns, record["owner"])


def _types(lake: Lake, table: Ref, fence: int) -> dict[str, Type] | None:
    """Return the columns of a table as they are; None without the table. Fenced if a later run has claimed it."""
    metadata = lake.metadata([table]).get(table)
    if metadata is None:
        return None
    if (current := int(metadata["properties"].get(FENCE, "0"))) > fence:
        name = ".".join(table)
        raise Fenced(f"table {name} was claimed by a later run (fence {current}, ours is {fence}): no view was changed")
    return {f.name: f.type for f in current_fields(metadata)}


def _put(lake: Lake, view: View, types: Mapping[str, Type]) -> None:
    """Create or replace the view; do nothing if it is already so."""
    columns = tuple((name, column) for name, column in view.columns if column in types)
    view = View(view.ref, view.table, columns, view.owner)
    location, before = _own_views(lake).get(view.ref, ("", {}))
    document = _metadata(before, view, types, lake.new_location((view.ref[0], f"{view.ref[1]}_view")))
    if not columns:
        return IcebergViews(lake).drop(view.ref)
    if document is before:
        return None
    number = len(document["version-log"])
    place = f"{document['location']}/metadata/{number:05d}-{uuid.uuid4()}.metadata.json"
    local_path(place).parent.mkdir(parents=True, exist_ok=True)
    local_path(place).write_text(json.dumps(document))
    row = (lake.name, *view.ref)
    try:
        with lake.open_database() as db, db:
            if location:
                done = db.execute(_SWAP, (place, location, *row, location)).rowcount
            else:
                done = db.execute(_INSERT, (*row, place)).rowcount
    except ConnectError as error:
        if isinstance(error.__cause__, sqlite3.IntegrityError):
            hint = "rename it, or do without the old name"
            raise Conflict(f"{'.'.join(view.ref)} exists and is not ours", hint=hint) from None
        raise
    if not done:
        raise Conflict(f"view {'.'.join(view.ref)} was changed meanwhile", hint="run this again")
    return None


def _metadata(before: Mapping[str, Any], view: View, types: Mapping[str, Type], location: str) -> Mapping[str, Any]:
    """Return a view's next metadata; `before` itself if nothing changes."""
    ids = count(1)
    numbered = [(next(ids), name, types[column]) for name, column in view.columns]
    fields = [IcebergField(number, name, _with_new_ids(kind, ids)) for number, name, kind in numbered]
    record = json.dumps({"table": view.table, "columns": view.columns, "owner": view.owner})
    last = before["versions"][-1]["version-id"] if before else 0
    schema = schema_of(fields, last)
    if before and before["properties"][VIEW] == record and before["schemas"][-1]["fields"] == schema["fields"]:
        return before
    now = time.time_ns() // 1_000_000
    version = {
        "version-id": last + 1,
        "schema-id": last,
        "timestamp-ms": now,
        "summary": {"engine-name": "instep"},
        "representations": [{"type": "sql", "sql": _sql(view), "dialect": "spark"}],
        "default-namespace": [view.ref[0]],
    }
    versions = [*before.get("versions", ()), version][-MOST_VERSIONS:]
    used = {v["schema-id"] for v in versions}
    return {
        "view-uuid": before.get("view-uuid", str(uuid.uuid4())),
        "format-version": 1,
        "location": before.get("location", location),
        "current-version-id": last + 1,
        "versions": versions,
        "schemas": [*(s for s in before.get("schemas", ()) if s["schema-id"] in used), schema],
        "version-log": [*before.get("version-log", ()), {"timestamp-ms": now, "version-id": last + 1}],
        "properties": {VIEW: record},
    }


def _with_new_ids(kind: Type, ids: Iterator[int]) -> Type:
    """Return a type with ids of its own: two columns of a view may come from one of the table."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "list":
        return {**kind, "element-id": next(ids), "element": _with_new_ids(kind["element"], ids)}
    if kind["type"] == "map":
        own = {"key-id": next(ids), "value-id": next(ids)}
        return {**kind, **own, "key": _with_new_ids(kind["key"], ids), "value": _with_new_ids(kind["value"], ids)}
    return {**kind, "fields": [{**f, "id": next(ids), "type": _with_new_ids(f["type"], ids)} for f in kind["fields"]]}


def _sql(view: View) -> str:
    shown = (quote(c, "spark") + (f" AS {quote(n, 'spark')}" if n != c else "") for n, c in view.columns)
    table = ".".join(quote(part, "spark") for part in view.table)
    return f"SELECT {', '.join(shown)} FROM {table}"  # noqa: S608 - names are quoted


_for_later = suppress(Conflict, ConnectError, OSError)
"""A view does not hold its table up: what fails here is tried again, and told, when the run looks at all old names."""


@contextmanager
def in_step(lake: Lake, ref: Ref, steps: Sequence[Step], after: Table | None, fence: int) -> Iterator[None]:
    """Keep views working around a commit that may change a table's columns or name. What would break a view leaves
    it before the commit, and a wider type is announced before it comes; new names and columns follow at once. A
    rename cannot be both."""
    views = IcebergViews(lake)
    table_views = [view for view in views.all().values() if view.table == ref]
    if table_views and any(isinstance(s.change, TableRemoved) for s in steps):
        for view in table_views:
            views.drop(view.ref)
        table_views = []
    if table_views and steps and after is not None:
        with _for_later:
            _narrow(lake, table_views, steps, after, fence)
    yield
    for view in table_views:
        moved = carried(view, steps)
        with _for_later:
            if moved is None:
                views.drop(view.ref)
            else:
                views.put(moved, fence)


def _narrow(lake: Lake, table_views: Sequence[View], steps: Sequence[Step], after: Table, fence: int) -> None:
    """Replace the views by ones without the columns that are dropped, with the types to come."""
    table = next(view.table for view in table_views)
    now = _types(lake, table, fence) or {}
    renamed = {s.change.before.name for s in steps if isinstance(s.change, ColumnRenamed)}
    then = {c.name: iceberg_type(c.type, count(1)) for c in after.columns}
    left = {n: kind if n in renamed else then[n] for n, kind in now.items() if n in renamed or n in then}
    for view in table_views:
        _put(lake, view, left)


class IcebergViews(LakeFacet):
    """Views of ours."""

    @property
    def why_none(self) -> str:
        """Return why the lake's catalog cannot hold views; "" if it can."""
        if self.lake.holds_views:
            return ""
        config = self.lake.config
        where = "a warehouse elsewhere" if self.lake.is_sqlite else f"a {config.catalog_type} catalog"
        return f"views are kept in the catalog file of a local lake, and {config.name} has {where}"

    def all(self) -> dict[Ref, View]:
        """Return all views that instep created."""
        return {ref: _view(ref, metadata) for ref, (_, metadata) in _own_views(self.lake).items()}

    def put(self, view: View, fence: int) -> None:
        """Make or change a view by its table's columns as they are now; Fenced if a later run has claimed the table."""
        if (types := _types(self.lake, view.table, fence)) is not None:
            _put(self.lake, view, types)

    def drop(self, ref: Ref) -> None:
        """Drop our view of this name; do nothing if there is none."""
        location, metadata = _own_views(self.lake).get(ref, ("", {}))
        if not location:
            return
        with self.lake.open_database() as db, db:
            db.execute(_DELETE, (self.lake.name, *ref, location))
        self.lake.remove_folder(metadata["location"])
