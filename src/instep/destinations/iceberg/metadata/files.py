"""Staged Parquet files as Iceberg data files, from the footers that the tasks sent: no file is opened again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from instep.destinations.iceberg.metadata.partition import record_of
from instep.destinations.iceberg.metadata.schema import IcebergField, schema_of
from instep.destinations.iceberg.metadata.shards import SHAPE
from instep.errors import Conflict, StageError
from instep.stage.spec import StagedFile

FIELD_ID = b"PARQUET:field_id"


def iceberg_schema(fields: Sequence[IcebergField], schema_id: int = 0, identifiers: Sequence[int] = ()) -> Schema:
    return Schema.model_validate(schema_of(fields, schema_id, identifiers))


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema that files of the table must have: names, order, types, units and `PARQUET:field_id`."""
    return pa.schema([_bare(f) for f in schema_to_pyarrow(schema)])


def _bare(field: pa.Field) -> pa.Field:
    """Remove the column's comment, which is no part of a file."""
    metadata = field.metadata or {}
    return field.with_metadata({FIELD_ID: metadata[FIELD_ID]} if FIELD_ID in metadata else None)


def merge_compression(location: str) -> str:
    """Return how files at `location` are compressed that a merge reads once: beside the process, by what takes less CPU
    and twice the space."""
    return "lz4" if location.startswith("file:") else "zstd"


def data_files(files: Sequence[StagedFile], metadata: TableMetadata, schema: Schema | None = None) -> list[DataFile]:
    """Return the data files of those that hold rows, each in its partition. Raises StageError for a file that is not
    what the table needs, Conflict for one whose rows were not told apart by the table's current spec.

    Spark would read other units, scales or swapped field ids without a word, as other values."""
    return _data_files(files, metadata, schema, adopted=True)


def readable_files(
    files: Sequence[StagedFile], metadata: TableMetadata, schema: Schema | None = None
) -> list[DataFile]:
    """Return data files that are read and not adopted: they belong to no partition."""
    return _data_files(files, metadata, schema, adopted=False)


def _data_files(
    files: Sequence[StagedFile], metadata: TableMetadata, schema: Schema | None, *, adopted: bool
) -> list[DataFile]:
    shared, schema = SHAPE in metadata.properties, schema or metadata.schema()
    expected, plan = arrow_schema(schema), compute_statistics_plan(schema, metadata.properties)
    ids = parquet_path_to_id_mapping(schema)
    entries = []
    for file in files:
        footer = _checked_footer(file, expected, narrower=shared)
        if not footer.num_rows:
            continue
        statistics = data_file_statistics_from_parquet_metadata(footer, plan, ids)
        entry = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=file.path,
            file_format=FileFormat.PARQUET,
            partition=_partition(file, metadata) if adopted else Record(*[None] * len(metadata.spec().fields)),
            file_size_in_bytes=file.bytes,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
        entry.spec_id = metadata.default_spec_id
        entries.append(entry)
    return entries


def _partition(file: StagedFile, metadata: TableMetadata) -> Record:
    record = record_of(file, metadata)
    if record is None:
        raise Conflict(
            "the partition spec of the table is another one than its new files were written for",
            hint="run the sync again",
        )
    return record


def _checked_footer(file: StagedFile, expected: pa.Schema, *, narrower: bool = False) -> pq.FileMetaData:
    """Return the footer of a file that has the expected columns; with `narrower`, of a column that another shard may
    have widened since."""
    try:
        footer = pq.read_metadata(pa.BufferReader(file.footer))
    except (pa.ArrowInvalid, OSError) as error:
        raise StageError(f"staged file {file.path}: its footer cannot be read: {error}") from error
    if footer.num_rows != file.rows:
        raise StageError(
            f"staged file {file.path} has {footer.num_rows} rows in its footer but {file.rows} were reported"
        )
    schema = footer.schema.to_arrow_schema()
    problem = schema_problem(expected, _promoted(schema, expected) if narrower else schema) or unit_problem(footer)
    if problem:
        raise StageError(f"staged file {file.path} does not have the table's schema: {problem}")
    return footer


def _promoted(schema: pa.Schema, expected: pa.Schema) -> pa.Schema:
    """Return a file's schema with the types that readers make of its own where the table's have become wider since."""
    wider = {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}
    names = set(expected.names)
    pairs = ((f, expected.field(f.name) if f.name in names else f) for f in schema)
    return pa.schema([f.with_type(e.type) if (f.type, e.type) in wider else f for f, e in pairs])


def null_keys(files: Sequence[StagedFile], key: Sequence[str]) -> int:
    """Return how many rows of the files have NULL in a key column, from the footers' statistics."""
    return sum(
        chunk.statistics.null_count
        for file in files
        for chunk in _chunks(pq.read_metadata(pa.BufferReader(file.footer)))
        if chunk.path_in_schema in key and chunk.statistics is not None and chunk.statistics.has_null_count
    )


def _chunks(footer: pq.FileMetaData) -> list[Any]:
    return [footer.row_group(g).column(c) for g in range(footer.num_row_groups) for c in range(footer.num_columns)]


def schema_problem(expected: pa.Schema, actual: pa.Schema) -> str:
    """Return how `actual` differs from `expected`, "" if it does not. Large and small string types are the same."""
    if expected.names != actual.names:
        return f"columns {actual.names} instead of {expected.names}"
    return next((p for e, a in zip(expected, actual, strict=True) if (p := _field_problem(e, a))), "")


def _field_problem(expected: pa.Field, actual: pa.Field) -> str:
    needed, actual_id = _field_id(expected), _field_id(actual)
    if needed != actual_id:
        return f"column {expected.name!r} has field id {actual_id} instead of {needed}"
    if actual.nullable and not expected.nullable:
        return f"column {expected.name!r} may hold NULL"
    return _type_problem(expected, expected.type, actual.type)


def _type_problem(field: pa.Field, expected: pa.DataType, actual: pa.DataType) -> str:
    if pa.types.is_struct(expected) and pa.types.is_struct(actual):
        return schema_problem(pa.schema(list(expected)), pa.schema(list(actual)))
    if _is_list(expected) and _is_list(actual):
        return _field_problem(
            expected.value_field.with_name("element"), actual.value_field.with_name("element").with_nullable(True)
        )
    return "" if _plain(expected) == _plain(actual) else f"column {field.name!r} is {actual} instead of {expected}"


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    return pa.uuid() if kind == pa.binary(16) else kind


def _field_id(field: pa.Field) -> str:
    return bytes((field.metadata or {}).get(FIELD_ID, b"none")).decode()


def unit_problem(footer: pq.FileMetaData) -> str:
    """Return which timestamps are not in microseconds ("" if none): Spark reads those as times near 1970."""
    for number in range(footer.num_columns):
        column = footer.schema.column(number)
        logical = json.loads(column.logical_type.to_json())
        if logical.get("Type") == "Timestamp" and logical.get("timeUnit") != "microseconds":
            return f"column {column.path!r} is kept in {logical.get('timeUnit')} instead of microseconds"
        if column.physical_type == "INT96":
            return f"column {column.path!r} is kept as INT96 instead of microseconds"
    return ""
