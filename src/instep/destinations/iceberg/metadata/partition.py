"""Partition specs: what can be partitioned by, a table's spec for those who write its files, a file's place in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from instep.destinations.types import iceberg_primitive
from instep.errors import DestinationError
from instep.schema.catalog.layout import PartitionTerm
from instep.schema.catalog.types import Array, DataType, Struct

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableUpdate
    from pyiceberg.typedef import Record

    from instep.stage.partition import Partitioning
    from instep.stage.spec import StagedFile

Metadata = Mapping[str, Any]
VOID = "void"
FIRST_FIELD = 1000
_NUMBERS, _TIMES = ("int", "long", "decimal"), ("date", "timestamp", "timestamptz")
_TAKES = {
    "identity": ("boolean", *_NUMBERS, *_TIMES, "string"),
    "bucket": (*_NUMBERS, *_TIMES, "string", "binary", "uuid"),
    "truncate": (*_NUMBERS, "string"),
    "year": _TIMES,
    "month": _TIMES,
    "day": _TIMES,
    "hour": ("timestamp", "timestamptz"),
}


def partition_error(term: PartitionTerm, kind: DataType) -> str:
    """Return why a column of this type cannot be partitioned so; "" if it can."""
    if isinstance(kind, Array | Struct):
        return f"{kind} has no partitions"
    return "" if _takes(term.transform, iceberg_primitive(kind)) else f"{term.transform} does not take {kind}"


def _takes(transform: str, stored: object) -> bool:
    return isinstance(stored, str) and stored.split("(")[0] in _TAKES.get(transform, ())


def current_fields(metadata: Metadata) -> Sequence[Mapping[str, Any]]:
    """Return the fields of the current spec, void ones included."""
    at = metadata.get("default-spec-id", 0)
    spec = next((s for s in metadata.get("partition-specs", ()) if s["spec-id"] == at), None)
    return spec["fields"] if spec else ()


def terms(metadata: Metadata) -> tuple[PartitionTerm | None, ...]:
    """Return the terms of the current spec, None for a void field. A term that is not ours has the column ""."""
    return tuple(_terms(current_fields(metadata), {f["id"]: (f["name"], f["type"]) for f in _columns(metadata)}))


def _columns(metadata: Metadata) -> Sequence[Mapping[str, Any]]:
    schema = next(s for s in metadata["schemas"] if s.get("schema-id", 0) == metadata["current-schema-id"])
    columns: Sequence[Mapping[str, Any]] = schema["fields"]
    return columns


def sources(field: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the ids of the columns that a field of a spec or order comes from."""
    return tuple(field.get("source-ids") or (field["source-id"],))


def term_text(field: Mapping[str, Any], column: str) -> str:
    """Return a field of a spec or order, for people."""
    transform = field["transform"]
    if transform == "identity":
        return column
    name, _, size = transform.partition("[")
    return f"{name}({size.rstrip(']')}, {column})" if size else f"{name}({column})"


def _terms(
    fields: Sequence[Mapping[str, Any]], columns: Mapping[int, tuple[str, object]]
) -> Iterator[PartitionTerm | None]:
    for field in fields:
        transform, _, width = field["transform"].partition("[")
        source_ids = sources(field)
        name, stored = columns.get(source_ids[0], ("", None))
        able = len(source_ids) == 1 and _takes(transform, stored)
        term = PartitionTerm(transform, name if able else "", int(width.rstrip("]") or 0) if able else 0)
        yield None if transform == VOID else term


def why_not_loaded(metadata: Metadata) -> str:
    """Return why rows cannot be written; "" if they can."""
    partition_terms = terms(metadata)
    if all(term is None or term.column for term in partition_terms):
        return ""
    names = {f["id"]: f["name"] for f in _columns(metadata)}
    used = (f for f in current_fields(metadata) if f["transform"] != VOID)
    return f"it is partitioned by {', '.join(term_text(f, names.get(sources(f)[0], '?')) for f in used)}"


def check_loadable(name: str, metadata: Metadata) -> None:
    """Raise DestinationError for a table that somebody has partitioned in a way that we cannot."""
    if why := why_not_loaded(metadata):
        raise DestinationError(
            f"table {name} cannot be loaded: {why}, and no rows can be told apart by that",
            hint="take the fields out of its partition spec (update_spec().remove_field(...)) and sync again",
        )


def check_apart(name: str, metadata: TableMetadata, column: str) -> None:
    """Raise DestinationError unless each new file has the rows of one shard."""
    spec, field = metadata.spec(), metadata.schema().find_field(column).field_id
    if not any(f.source_id == field and str(f.transform) == "identity" for f in spec.fields):
        raise DestinationError(
            f"table {name} is shared and no longer partitioned by {column}: its shards cannot be told apart",
            hint=f"put it back: ALTER TABLE ... ADD PARTITION FIELD {column}",
        )


def partitioning(metadata: TableMetadata) -> Partitioning | None:
    """Return how rows are told apart under the current spec; None for a table without partitions. Raises
    DestinationError for a spec whose values we cannot make."""
    from instep.stage.partition import Partitioning

    spec = metadata.spec()
    columns = {f.field_id: (f.name, str(f.field_type)) for f in metadata.schema().fields}
    partition_terms = tuple(_terms([f.model_dump(by_alias=True) for f in spec.fields], columns))
    if any(term is not None and not term.column for term in partition_terms):
        check_loadable(metadata.location, json.loads(metadata.model_dump_json()))
    return Partitioning(spec.spec_id, partition_terms) if any(partition_terms) else None


def partitioned_by(metadata: TableMetadata, layout_terms: Sequence[PartitionTerm]) -> tuple[TableUpdate, ...]:
    """Return the updates for new files to be partitioned by these terms; a spec that the table has had is used
    again."""
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table.update import AddPartitionSpecUpdate, SetDefaultSpecUpdate

    specs, highest = metadata.partition_specs, metadata.last_partition_id or FIRST_FIELD - 1
    numbers = {(f.source_id, str(f.transform)): (f.field_id, f.name) for s in specs for f in s.fields}
    names, fields = {f.name for s in specs for f in s.fields}, []
    for term in layout_terms:
        source, transform = metadata.schema().find_field(term.column).field_id, _spelled(term)
        if (source, transform) not in numbers:
            highest += 1
            numbers[source, transform] = highest, _name(term, names, set(metadata.schema().column_names))
            names.add(numbers[source, transform][1])
        number, name = numbers[source, transform]
        fields.append({"source-id": source, "field-id": number, "transform": transform, "name": name})
    spec_id = max(s.spec_id for s in specs) + 1
    spec = PartitionSpec.model_validate({"spec-id": spec_id, "fields": fields})
    same = next((s.spec_id for s in specs if s.fields == spec.fields), None)
    chosen = SetDefaultSpecUpdate.model_validate({"spec-id": spec_id if same is None else same})
    return (chosen,) if same is not None else (AddPartitionSpecUpdate(spec=spec), chosen)


def same_partition_fields(metadata: TableMetadata) -> Any:
    """Return the requirement of a commit of another spec: nobody has added partition fields meanwhile."""
    from pyiceberg.table.update import AssertLastAssignedPartitionId

    return AssertLastAssignedPartitionId.model_validate({"last-assigned-partition-id": metadata.last_partition_id})


def _spelled(term: PartitionTerm) -> str:
    return f"{term.transform}[{term.width}]" if term.width else term.transform


def _name(term: PartitionTerm, used: set[str], columns: set[str]) -> str:
    """Return the name that Spark gives a partition field; an identity has its column's."""
    if term.transform == "identity":
        name = term.column
    else:
        name = f"{term.column}_{term.transform.replace('truncate', 'trunc')}{f'_{term.width}' if term.width else ''}"
        used = used | columns
    return name if name not in used else next(n for i in count(2) if (n := f"{name}_{i}") not in used | columns)


def record_of(file: StagedFile, metadata: TableMetadata) -> Record | None:
    """Return the partition of a staged file under the current spec; None if its rows were not told apart by it."""
    from pyiceberg.typedef import Record

    spec, own = metadata.spec(), file.partition
    if partitioning(metadata) is None:
        return Record(*[None] * len(spec.fields))
    return Record(*own.values) if own is not None and own.spec == spec.spec_id else None


def carried(spec: PartitionSpec, schema: Schema) -> bool:
    """Return whether the entries of files under this spec can be written into another manifest."""
    from pyiceberg.transforms import UnknownTransform

    ids = schema.field_ids
    used = (f for f in spec.fields if str(f.transform) != VOID)
    return all(f.source_id in ids and not isinstance(f.transform, UnknownTransform) for f in used)


def place_of(file: DataFile) -> tuple[int, tuple[Any, ...]]:
    """Return the spec and the partition of a file that a table lists."""
    return file.spec_id, tuple(file.partition[n] for n in range(len(file.partition)))
