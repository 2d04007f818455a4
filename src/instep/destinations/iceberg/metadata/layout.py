"""Partition specs, sort orders and identifier fields of tables, set by settings or manually, and guarded.

New files are written under the current spec; those that are there stay under their own. A table with a spec whose
values we do not know how to make is not loaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from instep.destinations.iceberg.metadata.partition import carried, check_loadable, sources, term_text
from instep.destinations.iceberg.metadata.schema import IcebergField
from instep.destinations.iceberg.metadata.table_layout import own_sort, recorded
from instep.errors import DestinationError
from instep.schema.planning.guard import LayoutGuard

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.metadata import TableMetadata

Metadata = Mapping[str, Any]
_WIDEN = ("identity", "bucket[", "truncate[")
"""Transforms that give the same value for a promoted int, float or decimal."""
_CLEAN = "`instep maintain` writes its files again, and forgets it once the snapshots from before that may go"


def guards(metadata: Metadata) -> dict[str, tuple[LayoutGuard, ...]]:
    """Return the top-level columns that partition specs (earlier ones too, which files may still have), the sort order
    and the identifier fields use."""
    found: dict[str, list[LayoutGuard]] = {}
    laid = (*metadata.get("partition-specs", ()), *metadata.get("sort-orders", ()))
    if not any(layout["fields"] for layout in laid) and not identifiers(metadata):
        return {}
    names = dict(_names(metadata))
    for field_id, guard in (*_partitions(metadata, names), *_sorting(metadata, names), *_identifiers(metadata)):
        if column := names.get(field_id, "").split(".")[0]:
            found.setdefault(column, []).append(guard)
    return {column: tuple(dict.fromkeys(uses)) for column, uses in found.items()}


def identifiers(metadata: Metadata) -> tuple[int, ...]:
    """Return the identifier field ids of the current schema."""
    return tuple(_schema(metadata).get("identifier-field-ids") or ())


def _schema(metadata: Metadata) -> Metadata:
    at = metadata["current-schema-id"]
    found: Metadata = next(s for s in metadata["schemas"] if s.get("schema-id", 0) == at)
    return found


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
    """Who has put up a partition can take it down."""
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
            f"table {'.'.join(table.name())} has files in partitions by what is no column of it any more: rows cannot "
            "be taken out of them",
            hint="load the whole table again with `instep sync --full` or rewrite its files",
        )


def check_writable(table: IcebergTable, metadata: TableMetadata) -> None:
    """Raise DestinationError if new files would have to be partitioned in a way that we cannot."""
    if not metadata.spec().is_unpartitioned():
        check_loadable(".".join(table.name()), json.loads(metadata.model_dump_json()))
