"""The columns of a Delta table: as its schema spells them, as our records do, and as Arrow and Parquet hold them.

A column is known in files by its physical name, which never changes and is never used again; what it is called, and
where it stands, is metadata alone.

Partitions of Delta tables: which columns can be, how the log spells their values, where a file belongs.

The log has a file's values as texts, by physical name. An empty text is NULL there: no column's own empty texts can be
told from NULL, so that loads hold them back (stage/field_metadata.py), and nothing here writes one.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from instep.destinations.types import delta_primitive, from_delta_primitive
from instep.errors import IllegalChange, SchemaError, StageError
from instep.schema.catalog.catalog import Column, Table, fold_case
from instep.schema.catalog.layout import PartitionTerm
from instep.schema.catalog.types import Array, DataType, Field, Json, Struct, parse
from instep.schema.planning.guard import LayoutGuard
from instep.stage.field_metadata import IN_PARTITIONS
from instep.stage.files.names import STORED
from instep.stage.partition import Partition, Partitioning

if TYPE_CHECKING:
    from instep.destinations.delta.protocol.snapshot import Action


ID, PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"
CHANGES = "delta.typeChanges"
BEFORE = "instep.before"
"""In the metadata of a column that was dropped and came back: the last version from before the drop."""
FIELD_ID = "PARQUET:field_id"
Type = Any
"""A primitive's name, or a dict with type array, struct or map."""


@dataclass(frozen=True)
class DeltaField:
    """A top-level column."""

    id: int
    physical: str
    name: str
    type: Type
    nullable: bool = True
    comment: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The rest of its metadata."""

    def to_json(self) -> dict[str, Any]:
        metadata = {**self.facts, ID: self.id, PHYSICAL: self.physical}
        if self.comment:
            metadata["comment"] = self.comment
        return {"name": self.name, "type": self.type, "nullable": self.nullable, "metadata": metadata}


def from_json(data: Mapping[str, Any]) -> DeltaField:
    facts = dict(data.get("metadata") or {})
    number, physical, comment = facts.pop(ID, 0), facts.pop(PHYSICAL, data["name"]), facts.pop("comment", None)
    return DeltaField(number, physical, data["name"], data["type"], data.get("nullable", True), comment, facts)


def fields_of(metadata: Mapping[str, Any]) -> tuple[DeltaField, ...]:
    """Return the columns of a table, in order."""
    return tuple(from_json(f) for f in json.loads(metadata["schemaString"])["fields"])


def schema_string(fields: Sequence[DeltaField]) -> str:
    """Refuse names that some reader of the table could not tell apart."""
    _check_names([f.name for f in fields], "the table")
    data = {"type": "struct", "fields": [f.to_json() for f in fields]}
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)


def _check_names(names: Sequence[str], where: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if not name:
            raise SchemaError(f"a column of {where} has no name", hint="give it an alias")
        if (twin := seen.setdefault(fold_case(name), name)) is not name:
            raise SchemaError(
                f"columns {twin!r} and {name!r} of {where} differ in case only",
                hint="give one of them an alias: Delta holds them for one name",
            )


def stored_type(kind: DataType, ids: Iterator[int]) -> Type:
    """Return how a type is spelled in the schema; fields of structs get ids and physical names of their own."""
    if isinstance(kind, Array):
        return {"type": "array", "elementType": stored_type(kind.element, ids), "containsNull": True}
    if isinstance(kind, Struct):
        _check_names([f.name for f in kind.fields], str(kind))
        fields = [DeltaField(next(ids), f.name, f.name, stored_type(f.type, ids)) for f in kind.fields]
        return {"type": "struct", "fields": [f.to_json() for f in fields]}
    return delta_primitive(kind)


def data_type(stored: Type) -> DataType:
    """Return the type that a stored form is read as; what we have no type for is json."""
    if isinstance(stored, str):
        form = from_delta_primitive(stored)
        return Json() if form is None else parse(form)
    if stored["type"] == "array":
        return Array(data_type(stored["elementType"]))
    if stored["type"] == "struct":
        return Struct(tuple(Field(f["name"], data_type(f["type"])) for f in stored["fields"]))
    return Json()


def bare(stored: Type) -> Type:
    """Return a stored form without ids and physical names: equal for equal types."""
    if isinstance(stored, str):
        return stored
    if stored["type"] == "array":
        return {"type": "array", "of": bare(stored["elementType"])}
    if stored["type"] == "struct":
        return {"type": "struct", "of": [[f["name"], bare(f["type"])] for f in stored["fields"]]}
    return stored


_ARROW: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.large_string(),
    "binary": pa.large_binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def arrow_type(stored: Type) -> pa.DataType:
    """Return the Arrow type of a stored type's values in files."""
    if isinstance(stored, str):
        if stored.startswith("decimal("):
            precision, scale = (int(part) for part in stored[8:-1].split(","))
            return pa.decimal128(precision, scale)
        if stored not in _ARROW:
            raise SchemaError(f"a column has the type {stored}, which this version does not read")
        return _ARROW[stored]
    if stored["type"] == "array":
        return pa.large_list(pa.field("element", arrow_type(stored["elementType"])))
    if stored["type"] == "map":
        return pa.map_(arrow_type(stored["keyType"]), arrow_type(stored["valueType"]))
    return pa.struct([_nested(from_json(f)) for f in stored["fields"]])


def _nested(inner: DeltaField) -> pa.Field:
    return pa.field(inner.physical, arrow_type(inner.type), inner.nullable, {FIELD_ID: str(inner.id)})


def arrow_of(kind: DataType) -> pa.DataType:
    """Return the Arrow type of a type's values when they are read."""
    return arrow_type(stored_type(kind, iter(range(1, 1_000_000))))


def arrow_field(column: DeltaField) -> pa.Field:
    """Return a column as tasks write it: under its own name, with its id and, if that is not the one it has in files,
    that."""
    metadata = {FIELD_ID: str(column.id)} | ({STORED: column.physical} if column.physical != column.name else {})
    return pa.field(column.name, arrow_type(column.type), column.nullable, metadata)


def arrow_schema(fields: Sequence[DeltaField]) -> pa.Schema:
    return pa.schema([arrow_field(f) for f in fields])


def file_schema(fields: Sequence[DeltaField]) -> pa.Schema:
    """Return columns as files have them: physical names and ids."""
    return pa.schema([pa.field(f.physical, arrow_type(f.type), f.nullable, {FIELD_ID: str(f.id)}) for f in fields])


def first_fields(table: Table, ids: Iterator[int]) -> tuple[DeltaField, ...]:
    """Return the columns of a table that is made; files of it have them under their own names."""
    return tuple(replace(new_field(c, ids, nullable=c.nullable), physical=c.name) for c in table.columns)


def next_fields(table: Table, ids: Iterator[int], log: str = "") -> tuple[DeltaField, ...]:
    """Return the columns of a table that takes the place of another one in the same log. With the id of the `log` they
    have the same physical names each time, so that files which are staged for them fit."""
    return tuple(new_field(c, ids, nullable=c.nullable, log=log) for c in table.columns)


def new_field(column: Column, ids: Iterator[int], *, nullable: bool = True, log: str = "") -> DeltaField:
    """Return a column that no file has yet, under a physical name that no other column has ever had: it is random, or
    made of its id, which is given once, and the id of the log."""
    number, kind = next(ids), stored_type(column.type, ids)
    name = uuid.uuid5(uuid.NAMESPACE_OID, f"{log}/{number}") if log else uuid.uuid4()
    return DeltaField(number, f"col-{name}", column.name, kind, nullable, column.comment or None)


_RANK = {name: rank for rank, name in enumerate(("byte", "short", "integer", "long"))}


def promoted(column: DeltaField, kind: DataType) -> DeltaField:
    """Return the column widened to hold `kind`; raises IllegalChange where Delta's readers have no such widening."""
    target = stored_type(kind, iter(range(1, 1_000_000)))
    if bare(column.type) == bare(target):
        return column
    if not (isinstance(column.type, str) and isinstance(target, str) and _widens(column.type, target)):
        raise IllegalChange(
            f"column {column.name!r}: Delta cannot turn {data_type(column.type)} into {kind} in place",
            hint="the column has to be rewritten: add a new column, fill it, drop the old one",
        )
    changes = [*column.facts.get(CHANGES, ()), {"fromType": column.type, "toType": target}]
    return replace(column, type=target, facts={**column.facts, CHANGES: changes})


def _widens(before: str, after: str) -> bool:
    """True if the protocol lets a type become another one while files of the old one stay."""
    if before in _RANK and after in _RANK:
        return _RANK[before] < _RANK[after]
    if (before, after) == ("float", "double"):
        return True
    if not (before.startswith("decimal(") and after.startswith("decimal(")):
        return False
    (p1, s1), (p2, s2) = (map(int, form[8:-1].split(",")) for form in (before, after))
    return s2 >= s1 and p2 - s2 >= p1 - s1


def features(fields: Sequence[DeltaField]) -> list[str]:
    """Return the features that a reader needs for these columns."""
    names = ["columnMapping"]
    if any("timestamp_ntz" in json.dumps(f.type) for f in fields):
        names.append("timestampNtz")
    if any(CHANGES in f.facts for f in fields):
        names.append("typeWidening")
    return names


_WHOLE = ("byte", "short", "integer", "long")
_TAKES = (*_WHOLE, "boolean", "date", "timestamp", "timestamp_ntz", "string")
_EPOCH = datetime(1970, 1, 1)
FREE = "take it out of `partition` in instep.yml and load the table whole: `instep sync --full`"


def partition_error(term: PartitionTerm, kind: DataType) -> str:
    """Return why a column of this type cannot be partitioned so; "" if it can."""
    if term.transform != "identity":
        return f"Delta has partitions by columns alone, none by {term.transform}"
    if isinstance(kind, Array | Struct | Json):
        return f"{kind} has no partitions"
    stored = delta_primitive(kind)
    return "" if stored in _TAKES or stored.startswith("decimal(") else f"identity does not take {kind}"


def terms(names: Iterable[str]) -> tuple[PartitionTerm, ...]:
    return tuple(PartitionTerm("identity", name) for name in names)


def partitioning(by: Sequence[DeltaField], names: Sequence[str]) -> Partitioning | None:
    """Return how rows are told apart whose columns bear these names; None for a table without partitions."""
    return Partitioning(_number(by), terms(names)) if by else None


def _number(by: Sequence[DeltaField]) -> int:
    """Return a number of these columns, so that a file partitioned by others is not taken for one of these."""
    return zlib.crc32("\0".join(f.physical for f in by).encode())


def single_value_partition(by: Sequence[DeltaField], value: Any) -> Partition:
    """Return the partition of this one value."""
    return Partition(_number(by), (value,))


def is_one_of(partition: Partition | None, by: Sequence[DeltaField]) -> bool:
    """Return whether rows that were told apart so belong to one partition of these."""
    return not by or (partition is not None and partition.spec == _number(by))


def texts(partition: Partition | None, by: Sequence[DeltaField]) -> dict[str, str | None]:
    """Return a file's place as the log has it."""
    values = partition.values if partition is not None and by else ()
    return {f.physical: _text(f, value) for f, value in zip(by, values, strict=True)}


def _text(column: DeltaField, value: Any) -> str | None:
    """Return a partition value as the log has it, from `stage.partition.Partition`'s form (days and microseconds
    since 1970). Raises StageError for a value that would be read as another."""
    if value is None:
        return None
    if value == "" and column.type == "string":
        raise StageError(
            f"column {column.name}: an empty text cannot be told from NULL in a partition of a Delta table", hint=FREE
        )
    if column.type == "boolean":
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    return _time(column, value) if column.type in ("date", "timestamp", "timestamp_ntz") else str(value)


def _time(column: DeltaField, value: int) -> str:
    try:
        if column.type == "date":
            return (_EPOCH.date() + timedelta(days=value)).isoformat()
        at = _EPOCH + timedelta(microseconds=value)
    except OverflowError:
        why = f"column {column.name}: a time outside of the years 1 to 9999 in a partition of a Delta table"
        raise StageError(why, hint=FREE) from None
    return f"{at.isoformat(timespec='microseconds')}Z" if column.type == "timestamp" else at.isoformat(" ")


def values_of(file: Action, fields: Sequence[DeltaField]) -> dict[str, pa.Scalar]:
    """Return the values that the log has of a file's partition columns, by physical name."""
    texts: Mapping[str, str | None] = file.get("partitionValues") or {}
    return {f.physical: _value(f, texts[f.physical]) for f in fields if f.physical in texts}


def _value(column: DeltaField, text: str | None) -> pa.Scalar:
    kind = arrow_type(column.type)
    if not text:
        return pa.scalar(None, kind)
    if column.type == "boolean":
        return pa.scalar(text.casefold() == "true", kind)
    if column.type in _WHOLE:
        return pa.scalar(int(text), kind)
    if column.type == "date":
        return pa.scalar(date.fromisoformat(text), kind)
    if column.type in ("timestamp", "timestamp_ntz"):
        at = datetime.fromisoformat(text)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
        return pa.scalar(at if column.type == "timestamp" else at.replace(tzinfo=None), kind)
    return pa.scalar(Decimal(text) if pa.types.is_decimal(kind) else text, kind)


def place(file: Action) -> tuple[tuple[str, str | None], ...]:
    """Return the partition of a file; equal for files of one partition."""
    texts: Mapping[str, str | None] = file.get("partitionValues") or {}
    return tuple(sorted((name, text or None) for name, text in texts.items()))


def limited(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """Return the schema that tasks write, with the columns marked whose partition values are texts."""
    limited_names = set(names)
    return pa.schema([_marked(f) if f.name in limited_names else f for f in schema])


def _marked(field: pa.Field) -> pa.Field:
    return field.with_metadata({**(field.metadata or {}), **IN_PARTITIONS})


def guards(by: Iterable[DeltaField]) -> dict[str, tuple[LayoutGuard, ...]]:
    """Return the guards of the partition columns."""
    columns = list({f.physical: f for f in by}.values())
    use = f"the table's partitions ({', '.join(f.name for f in columns)})"
    return {f.name: (LayoutGuard(use, FREE, goes=True),) for f in columns}
