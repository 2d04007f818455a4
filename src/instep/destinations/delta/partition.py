"""Partitions of Delta tables: which columns can be, how the log spells their values, where a file belongs.

The log has a file's values as texts, by physical name. An empty text is NULL there: no column's own empty texts can be
told from NULL, so that loads hold them back (stage/field_metadata.py), and nothing here writes one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from instep.destinations.delta.shape import DeltaField, arrow_type
from instep.destinations.types import delta_primitive
from instep.errors import StageError
from instep.schema.catalog.partition import PartitionTerm
from instep.schema.catalog.types import Array, DataType, Json, Struct
from instep.schema.planning.guard import LayoutGuard
from instep.stage.field_metadata import IN_PARTITIONS
from instep.stage.partition import Partition, Partitioning

if TYPE_CHECKING:
    from instep.destinations.delta.log import Action

_WHOLE = ("byte", "short", "integer", "long")
_TAKES = (*_WHOLE, "boolean", "date", "timestamp", "timestamp_ntz", "string")
_EPOCH = datetime(1970, 1, 1)
FREE = "take it out of `partition` in instep.yml and load the table whole: `instep sync --full`"


def fault(term: PartitionTerm, kind: DataType) -> str:
    """Why a column of this type cannot be partitioned so; "" if it can."""
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
    """Return which columns they are: a file that was told apart by others is not taken for one of these."""
    return zlib.crc32("\0".join(f.physical for f in by).encode())


def alone(by: Sequence[DeltaField], value: Any) -> Partition:
    """Return the partition of this one value."""
    return Partition(_number(by), (value,))


def is_one_of(partition: Partition | None, by: Sequence[DeltaField]) -> bool:
    """Return whether rows that were told apart so belong to one partition of these."""
    return not by or (partition is not None and partition.spec == _number(by))


def texts(partition: Partition | None, by: Sequence[DeltaField]) -> dict[str, str | None]:
    """Return a file's place as the log has it."""
    values = partition.values if partition is not None and by else ()
    return {f.physical: _text(f, value) for f, value in zip(by, values, strict=True)}


def _text(made: DeltaField, value: Any) -> str | None:
    """`value` as `stage.partition.Partition` has it: days and microseconds since 1970. StageError for one that would
    be read as another."""
    if value is None:
        return None
    if value == "" and made.type == "string":
        raise StageError(
            f"column {made.name}: an empty text cannot be told from NULL in a partition of a Delta table", hint=FREE
        )
    if made.type == "boolean":
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    return _time(made, value) if made.type in ("date", "timestamp", "timestamp_ntz") else str(value)


def _time(made: DeltaField, value: int) -> str:
    try:
        if made.type == "date":
            return (_EPOCH.date() + timedelta(days=value)).isoformat()
        at = _EPOCH + timedelta(microseconds=value)
    except OverflowError:
        why = f"column {made.name}: a time outside of the years 1 to 9999 in a partition of a Delta table"
        raise StageError(why, hint=FREE) from None
    return f"{at.isoformat(timespec='microseconds')}Z" if made.type == "timestamp" else at.isoformat(" ")


def values_of(file: Action, fields: Sequence[DeltaField]) -> dict[str, pa.Scalar]:
    """Return the values that the log has of a file's partition columns, by physical name."""
    texts: Mapping[str, str | None] = file.get("partitionValues") or {}
    return {f.physical: _value(f, texts[f.physical]) for f in fields if f.physical in texts}


def _value(made: DeltaField, text: str | None) -> pa.Scalar:
    kind = arrow_type(made.type)
    if not text:
        return pa.scalar(None, kind)
    if made.type == "boolean":
        return pa.scalar(text.casefold() == "true", kind)
    if made.type in _WHOLE:
        return pa.scalar(int(text), kind)
    if made.type == "date":
        return pa.scalar(date.fromisoformat(text), kind)
    if made.type in ("timestamp", "timestamp_ntz"):
        at = datetime.fromisoformat(text)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
        return pa.scalar(at if made.type == "timestamp" else at.replace(tzinfo=None), kind)
    return pa.scalar(Decimal(text) if pa.types.is_decimal(kind) else text, kind)


def place(file: Action) -> tuple[tuple[str, str | None], ...]:
    """Equal for files of one partition."""
    texts: Mapping[str, str | None] = file.get("partitionValues") or {}
    return tuple(sorted((name, text or None) for name, text in texts.items()))


def limited(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """Return what a task writes, whose values in these columns have to be told by texts."""
    found = set(names)
    return pa.schema([_marked(f) if f.name in found else f for f in schema])


def _marked(field: pa.Field) -> pa.Field:
    return field.with_metadata({**(field.metadata or {}), **IN_PARTITIONS})


def guards(by: Iterable[DeltaField]) -> dict[str, tuple[LayoutGuard, ...]]:
    """Return what stands on the partition columns."""
    columns = list({f.physical: f for f in by}.values())
    use = f"the table's partitions ({', '.join(f.name for f in columns)})"
    return {f.name: (LayoutGuard(use, FREE, goes=True),) for f in columns}
