"""Partition specs, sort orders and identifier fields of tables, set by settings or manually, and guarded.

New files are written under the current spec; those that are there stay under their own. A table with a spec whose
values we do not know how to make is not loaded.

What the settings ask of a table beside its columns, and which of the properties and orders it has are theirs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from instep.destinations.base import PartChange
from instep.destinations.iceberg.metadata.partition import (
    carried,
    check_loadable,
    partitioned_by,
    same_partition_fields,
    sources,
    term_text,
    terms,
)
from instep.destinations.iceberg.metadata.schema import IcebergField
from instep.destinations.iceberg.metadata.shards import own_name, shard_key_of, shards_of
from instep.errors import DestinationError
from instep.schema.catalog.layout import PartitionTerm, TableLayout, layout_from_dict, layout_to_dict
from instep.schema.planning.guard import LayoutGuard
from instep.schema.planning.step import SetLayout, Step

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableUpdate

    from instep.destinations.iceberg.commit.commit import TableCommit


Metadata = Mapping[str, Any]
_WIDEN = ("identity", "bucket[", "truncate[")
"""Transforms that give the same value for a promoted int, float or decimal."""
_CLEAN = "`instep maintain` writes its files again, and forgets it once the snapshots from before that may go"


def guards(metadata: Metadata) -> dict[str, tuple[LayoutGuard, ...]]:
    """Return the top-level columns that partition specs (earlier ones too, which files may still have), the sort order
    and the identifier fields use."""
    layout_guards: dict[str, list[LayoutGuard]] = {}
    laid = (*metadata.get("partition-specs", ()), *metadata.get("sort-orders", ()))
    if not any(layout["fields"] for layout in laid) and not identifiers(metadata):
        return {}
    names = dict(_names(metadata))
    for field_id, guard in (*_partitions(metadata, names), *_sorting(metadata, names), *_identifiers(metadata)):
        if column := names.get(field_id, "").split(".")[0]:
            layout_guards.setdefault(column, []).append(guard)
    return {column: tuple(dict.fromkeys(uses)) for column, uses in layout_guards.items()}


def identifiers(metadata: Metadata) -> tuple[int, ...]:
    """Return the identifier field ids of the current schema."""
    return tuple(_schema(metadata).get("identifier-field-ids") or ())


def _schema(metadata: Metadata) -> Metadata:
    at = metadata["current-schema-id"]
    schema: Metadata = next(s for s in metadata["schemas"] if s.get("schema-id", 0) == at)
    return schema


def _names(metadata: Metadata) -> Iterator[tuple[int, str]]:
    for field in _schema(metadata)["fields"]:
        yield from _nested(field, "")


def _nested(field: Mapping[str, Any], above: str) -> Iterator[tuple[int, str]]:
    name = f"{above}{field['name']}"
    yield field["id"], name
    kind = field["type"]
    if isinstance(kind, Mapping) and kind["type"] == "struct":
        for inner in kind["fields"]:
            yield from _nested(inner, f"{name}.")


def _partitions(metadata: Metadata, names: Mapping[int, str]) -> Iterator[tuple[int, LayoutGuard]]:
    current = metadata.get("default-spec-id", 0)
    for spec in metadata.get("partition-specs", ()):
        for field in _used(spec):
            which = "the partition spec" if spec["spec-id"] == current else "an earlier partition spec"
            free = _free(metadata, field) if spec["spec-id"] == current else _CLEAN
            for source in sources(field):
                use = f"{which} ({term_text(field, names.get(source, '?'))})"
                yield source, LayoutGuard(use, free, widens=field["transform"].startswith(_WIDEN))


def _free(metadata: Metadata, field: Mapping[str, Any]) -> str:
    """Return how to remove a partition field: in the settings if they set it, else in Iceberg."""
    if recorded(metadata).partition:
        return "take it out of `partition` in instep.yml"
    return f"update_spec().remove_field('{field['name']}')"


def _sorting(metadata: Metadata, names: Mapping[int, str]) -> Iterator[tuple[int, LayoutGuard]]:
    if own_sort(metadata):
        return  # it follows the columns: see laid_out.py
    current = metadata.get("default-sort-order-id", 0)
    for order in metadata.get("sort-orders", ()):
        for field in _used(order) if order["order-id"] == current else ():
            for source in sources(field):
                use = f"the sort order ({term_text(field, names.get(source, '?'))})"
                yield source, LayoutGuard(use, "ALTER TABLE ... WRITE UNORDERED in Spark")


def _identifiers(metadata: Metadata) -> Iterator[tuple[int, LayoutGuard]]:
    for field_id in identifiers(metadata):
        yield (
            field_id,
            LayoutGuard("the set of identifier fields", "ALTER TABLE ... DROP IDENTIFIER FIELDS", required=True),
        )


def _used(layout: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [f for f in layout["fields"] if f["transform"] != "void"]


def remaining_identifiers(metadata: Metadata, fields: Sequence[IcebergField]) -> list[int]:
    """Return the identifier fields that go on: those that are still there and still take no NULL."""
    required = {f.id for f in fields if f.required}
    inner = {i for f in fields for i, _ in _nested({"id": f.id, "name": f.name, "type": f.type}, "") if i != f.id}
    return [i for i in identifiers(metadata) if i in required | inner]


def check_rows(table: IcebergTable, metadata: TableMetadata) -> None:
    """Raise DestinationError for files of the current snapshot that cannot be replaced or have rows taken out of
    them: those of a spec whose values cannot be written down again."""
    check_writable(table, metadata)
    specs, schema = metadata.specs(), metadata.schema()
    snapshot = metadata.current_snapshot()
    if snapshot is None or all(carried(s, schema) for s in specs.values()):
        return
    if any(not carried(specs[m.partition_spec_id], schema) for m in snapshot.manifests(table.io)):
        raise DestinationError(
            f"table {'.'.join(table.name())} has files in partitions by a column that no longer exists: rows cannot "
            "be taken out of them",
            hint="load the whole table again with `instep sync --full` or rewrite its files",
        )


def check_writable(table: IcebergTable, metadata: TableMetadata) -> None:
    """Raise DestinationError if new files would have to be partitioned in a way that we cannot."""
    if not metadata.spec().is_unpartitioned():
        check_loadable(".".join(table.name()), json.loads(metadata.model_dump_json()))


LAYOUT = "instep.layout"
"""The property that records what was set because the settings said so."""
_OPEN = frozenset(
    (
        "write.metadata.previous-versions-max",
        "write.metadata.delete-after-commit.enabled",
        "write.parquet.compression-codec",
    )
)
_OURS = (
    "instep.", "comment", "format-version", "write.data.path", "write.metadata.path", "write.object-storage.",
    "write.location-provider.", "write.folder-storage.", "write.format.default", "write.wap.", "write.py-", "py-",
)  # fmt: skip

_VOID = PartitionTerm("void", "")


def recorded(metadata: Metadata) -> TableLayout:
    """Return the layout as it was set last."""
    text = metadata.get("properties", {}).get(LAYOUT)
    return layout_from_dict(json.loads(text)) if text else TableLayout()


def own_sort(metadata: Metadata) -> tuple[int, ...]:
    """Return the field ids of the table's sort order, if it was set because the settings said so."""
    return tuple(f["source-id"] for f in _order(metadata)) if recorded(metadata).sort else ()


def layout_of(metadata: Metadata) -> TableLayout:
    """Return the current layout: the table's values of those properties and orders that settings manage. Of a table as
    one shard has it, what that shard said last: others may have said something else since."""
    record, properties = recorded(metadata), metadata.get("properties", {})
    if shard_key_of(properties):
        return record
    current = {name: properties[name] for name, _ in record.properties if name in properties}
    apart = 1 if shards_of(properties) else 0
    partition = [t or _VOID for t in terms(metadata)][apart:] if record.partition else ()
    return TableLayout.of(current, list(_terms(metadata)) if record.sort else (), partition)


def _order(metadata: Metadata) -> Sequence[Mapping[str, Any]]:
    at = metadata.get("default-sort-order-id", 0)
    order = next((o for o in metadata.get("sort-orders", ()) if o["order-id"] == at), None)
    return order["fields"] if order else ()


def _terms(metadata: Metadata) -> Iterator[tuple[str, str]]:
    schema = next(s for s in metadata["schemas"] if s.get("schema-id", 0) == metadata["current-schema-id"])
    names = {field["id"]: field["name"] for field in schema["fields"]}
    for field in _order(metadata):
        yield names.get(field["source-id"], ""), field["direction"]


def property_fault(name: str) -> str:
    """Return why a property cannot be set; "" if it can."""
    from instep.destinations.iceberg.metadata.updates import PROPERTIES

    if (name in PROPERTIES and name not in _OPEN) or name.startswith(_OURS):
        return f"the property {name} is kept by instep itself"
    return ""


def lay_out(change: TableCommit, steps: Sequence[Step], part: PartChange | None = None) -> None:
    """Add the layout steps to a commit whose columns are already those of the steps. `part`: of a table that is
    partitioned by its shards first."""
    from instep.destinations.iceberg.metadata.updates import PROPERTIES, remove_properties

    for requested in (s.change for s in steps if isinstance(s.change, SetLayout)):
        new = dict(requested.after.properties)
        gone = [name for name, _ in requested.before.properties if name not in new]
        change.properties({name: PROPERTIES[name] for name in gone if name in PROPERTIES})
        if absent := [name for name in gone if name not in PROPERTIES and name in change.metadata.properties]:
            change.update(remove_properties(*absent))
        change.properties({**new, LAYOUT: json.dumps(layout_to_dict(requested.after))})
        if requested.before.sort != requested.after.sort:
            schema = change.metadata.schema()
            fields = [
                {
                    "source-id": schema.find_field(name).field_id,
                    "transform": "identity",
                    "direction": direction,
                    "null-order": "nulls-first" if direction == "asc" else "nulls-last",
                }
                for name, direction in requested.after.sort
            ]
            change.update(*_order_updates(change, fields))
        if requested.before.partition != requested.after.partition:
            change.require(same_partition_fields(change.metadata))
            first = [PartitionTerm("identity", part.column)] if part else []
            change.update(*partitioned_by(change.metadata, [*first, *requested.after.partition]))
        if part:
            change.properties({own_name(part.shard, LAYOUT): json.dumps(layout_to_dict(requested.after))})


def _order_updates(change: TableCommit, fields: Sequence[Mapping[str, Any]]) -> tuple[TableUpdate, ...]:
    """Return the updates that set the sort order; an order that the table has had is used again."""
    from pyiceberg.table.sorting import SortOrder
    from pyiceberg.table.update import AddSortOrderUpdate, SetDefaultSortOrderUpdate

    orders = change.metadata.sort_orders
    number = max((o.order_id for o in orders), default=0) + 1 if fields else 0
    order = SortOrder.model_validate({"order-id": number, "fields": list(fields)})
    same = next((o.order_id for o in orders if o.fields == order.fields), None)
    chosen = number if same is None else same
    update = SetDefaultSortOrderUpdate.model_validate({"sort-order-id": chosen})
    added = AddSortOrderUpdate.model_validate({"sort-order": order})
    return (update,) if same is not None else (added, update)


def unsorted_without(change: TableCommit, metadata: Metadata, remaining: set[int]) -> None:
    """End our own sort order if a field of it goes: the next plan puts up the order that is wanted by then."""
    sort_columns = own_sort(metadata)
    if sort_columns and not set(sort_columns) <= remaining:
        record = recorded(metadata)
        change.update(*_order_updates(change, ()))
        change.properties({LAYOUT: json.dumps(layout_to_dict(TableLayout(record.properties, (), record.partition)))})


def is_done(metadata: Metadata, steps: Sequence[Step]) -> bool:
    """Return whether the table has the layout that the steps lead to."""
    return all(layout_of(metadata) == s.change.after for s in steps if isinstance(s.change, SetLayout))
