"""The rows of data files as Arrow batches, and staged files as files of a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from instep.destinations.delta.protocol.deletion_vectors import NO_PLACES, Places, deleted_places
from instep.destinations.delta.protocol.log import encoded, place_of
from instep.destinations.delta.protocol.snapshot import Action
from instep.destinations.delta.pruning import groups
from instep.destinations.delta.shape import (
    FIELD_ID,
    DeltaField,
    arrow_type,
    file_schema,
    is_one_of,
    partitioning,
    texts,
    values_of,
)
from instep.destinations.delta.table_state import DeltaTableState
from instep.destinations.delta.warehouse import now_ms
from instep.destinations.filters import ColumnFilter
from instep.errors import DestinationError, InstepError, StageError
from instep.stage.files.object_store import AnyPath, ObjectPath, opened
from instep.stage.files.partitioned import writer_for
from instep.stage.files.place import local
from instep.stage.files.writer import assert_written
from instep.stage.spec import StagedFile, StageSpec, SystemColumns
from instep.stage.task import ChunkProgress, Report

BATCH = 1 << 16
_TEXT = 32
"""Longer texts are told in statistics by how they begin."""
_LAST = "\U0010ffff"
"""The character that sorts after all others, in all readers."""
_COUNTED = (pa.types.is_integer, pa.types.is_date, pa.types.is_decimal, pa.types.is_timestamp, pa.types.is_large_string)


def path_of(state: DeltaTableState, file: Action) -> AnyPath:
    """Return the path of a table's data file."""
    return place_of(state.folder, file)


def rows_in(
    state: DeltaTableState,
    file: Action,
    fields: Sequence[DeltaField],
    filters: Sequence[ColumnFilter] = (),
    at: range | None = None,
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a table's data file as `batches` has them. Files of other programs lack the partition
    columns."""
    place, names = values_of(file, state.by), {f.name: f.physical for f in state.columns}
    own_filters = [replace(f, column=names[f.column]) for f in filters if names[f.column] not in place]
    deleted = deleted_places(state.folder, file.get("deletionVector"))
    return batches(path_of(state, file), fields, partition_values=place, deleted=deleted, filters=own_filters, at=at)


def batches(
    path: AnyPath,
    fields: Sequence[DeltaField],
    *,
    by_id: bool = False,
    partition_values: Mapping[str, pa.Scalar] | None = None,
    deleted: Places = NO_PLACES,
    filters: Sequence[ColumnFilter] = (),
    at: range | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows in order, as the table has these columns, under their physical names; what the file lacks is
    NULL, or what is `partition_values` by physical name. Rows at `deleted` places are left out. `by_id`: columns are
    found by field id, whatever they are called there. `filters`: row groups that have no row that passes them, whose
    columns have their physical names, are left out. `at`: only the rows at these
    positions of a file, of which none is deleted."""
    schema, start = file_schema(fields), 0
    try:
        with pq.ParquetFile(opened(path), coerce_int96_timestamp_unit="us") as file:
            names_in_file = {_known_by(f, by_id=by_id): f.name for f in file.schema_arrow}
            names = [names_in_file.get(str(f.id) if by_id else f.physical) for f in fields]
            columns = [n for n in names if n is not None]
            read = {*groups(file.metadata, filters)}
            for group in range(file.num_row_groups):  # a batch over several could be as large as the file
                rows = file.metadata.row_group(group).num_rows
                if group not in read or (at is not None and (start >= at.stop or start + rows <= at.start)):
                    start += rows
                    continue
                for batch in file.iter_batches(BATCH, row_groups=[group], columns=columns):
                    low, high = np.searchsorted(deleted, [start, start + len(batch)])
                    deleted_rows, first, start = deleted[low:high] - start, start, start + len(batch)
                    if len(deleted_rows):
                        batch = batch.take(pa.array(np.delete(np.arange(len(batch)), deleted_rows)))
                    if at is not None:
                        skip = max(at.start - first, 0)
                        batch = batch.slice(skip, max(min(at.stop, start) - first - skip, 0))
                    yield _as(batch, names, schema, partition_values or {})
    except FileNotFoundError as error:
        hint = "the table has lost it: load it whole with `instep sync --full`"
        raise DestinationError(f"the file {path} is not there", hint=hint) from error


def _known_by(field: pa.Field, *, by_id: bool) -> str:
    return (field.metadata or {}).get(FIELD_ID.encode(), b"").decode() if by_id else str(field.name)


def _as(
    batch: pa.RecordBatch, names: Sequence[str | None], schema: pa.Schema, partition_values: Mapping[str, pa.Scalar]
) -> pa.RecordBatch:
    columns = [
        pa.repeat(partition_values.get(field.name, pa.scalar(None, field.type)), len(batch))
        if name is None
        else as_type(batch.column(name), field.type)
        for name, field in zip(names, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def as_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else values.cast(kind)


def rows_of_files(
    state: DeltaTableState, fields: Sequence[DeltaField], files: Sequence[int] | None = None
) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Yield (number of the file, position of the first row in it, rows) of the files with these numbers, or of the
    whole table."""
    for number in range(len(state.files)) if files is None else files:
        start = 0
        for batch in rows_in(state, state.files[number], fields):
            yield number, start, batch
            start += len(batch)


def spec(
    state: DeltaTableState, fields: Sequence[DeltaField], run: str, by: Sequence[DeltaField] = (), place: str = ""
) -> StageSpec:
    """Return how files of a table are written by ourselves; each holds rows of one partition. `place`: the folder that
    they go to, if not that of the table's data."""
    return StageSpec(
        table=".".join(state.ref),
        columns=(),
        system=SystemColumns(),
        schema=file_schema(fields),
        location=place or (state.folder / state.area).as_uri(),
        quarantine="",
        run=f"{run}-rewrite",
        synced=0,
        io=io_of(state),
        partition=None if state.only_partition else partitioning(by, [f.physical for f in by]),
    )


@dataclass(frozen=True)
class Writing:
    """The writer of files: a run, and one of its tasks."""

    run: str
    task: int = 0
    attempt: int = 0
    place: str = ""
    """The folder that they go to, if not that of the table's data."""


def write(
    state: DeltaTableState,
    fields: Sequence[DeltaField],
    writing: Writing,
    rows: Iterable[pa.RecordBatch],
    by: Sequence[DeltaField] | None = None,
) -> list[Action]:
    """Write new files with these rows and return their actions; the columns are the fields by physical name. `by`:
    partition columns, if they change."""
    by = state.by if by is None else by
    files = write_files(state, fields, writing, rows, by)
    try:
        return [action(state, fields, file, by) for file in files]
    except BaseException:
        remove_files(state, files)
        raise


def write_files(
    state: DeltaTableState,
    fields: Sequence[DeltaField],
    writing: Writing,
    rows: Iterable[pa.RecordBatch],
    by: Sequence[DeltaField],
    report: Report | None = None,
) -> tuple[StagedFile, ...]:
    """Write new files with these rows and return them."""
    stage_spec = spec(state, fields, writing.run, by, writing.place)
    writer, count = writer_for(stage_spec, writing.task, writing.attempt), 0
    try:
        for batch in rows:
            writer.write(batch)
            count += len(batch)
            if report is not None:
                report(ChunkProgress(stage_spec.table, count, writer.bytes))
        files = writer.close()
    except BaseException:
        writer.abort()
        remove_files(state, writer.files)
        raise
    if report is not None:
        report(ChunkProgress(stage_spec.table, count, sum(f.bytes for f in files), 1))
    return files


def io_of(state: DeltaTableState) -> Mapping[str, str]:
    """Return the settings by which the table's files are reached."""
    return state.folder.io if isinstance(state.folder, ObjectPath) else {}


def staged_path(state: DeltaTableState, file: StagedFile) -> AnyPath:
    """Return the path of a table's staged file."""
    return ObjectPath(file.path, state.folder.io) if isinstance(state.folder, ObjectPath) else local(file.path)


def remove_files(state: DeltaTableState, files: Iterable[StagedFile]) -> None:
    for file in files:
        with suppress(OSError, InstepError):
            staged_path(state, file).unlink(missing_ok=True)


def adopted(
    state: DeltaTableState,
    fields: Sequence[DeltaField],
    files: Sequence[StagedFile],
    run: str,
    by: Sequence[DeltaField],
) -> list[Action]:
    """Return the staged files as files of the table. Those whose columns bear other names than the table's files have,
    or whose rows were not told apart by its partition columns, are rewritten. StageError for one that is not what
    the table needs."""
    out = []
    for file in files:
        if not file.rows:
            continue
        footer = read_footer(file)
        names = [f.name for f in footer.schema.to_arrow_schema()]
        same = names == [f.physical for f in fields] and not _widened(state, footer, fields)
        if same and is_one_of(state.only_partition or file.partition, by):
            assert_written(footer, spec(state, fields, run))
            out.append(action(state, fields, file, by, footer))
        else:
            out += copied(state, fields, [file], run, by)
    return out


def copied(
    state: DeltaTableState,
    fields: Sequence[DeltaField],
    files: Sequence[StagedFile],
    run: str,
    by: Sequence[DeltaField],
) -> list[Action]:
    """Return files of the table with the rows of the staged ones, which stay as they are."""
    out = []
    for file in files:
        if file.rows:
            check_ids(state, file, read_footer(file), fields)
            out += write(state, fields, Writing(run), batches(staged_path(state, file), fields, by_id=True), by)
    return out


def read_footer(file: StagedFile) -> pq.FileMetaData:
    try:
        footer = pq.read_metadata(pa.BufferReader(file.footer))
    except (pa.ArrowInvalid, OSError) as error:
        raise StageError(f"staged file {file.path}: its footer cannot be read: {error}") from error
    if footer.num_rows != file.rows:
        raise StageError(
            f"staged file {file.path} has {footer.num_rows} rows in its footer but {file.rows} were reported"
        )
    return footer


def staged_name(file: StagedFile, field: DeltaField) -> str:
    """Return what a staged file calls a column; "" if it has none."""
    names = {_known_by(f, by_id=True): str(f.name) for f in read_footer(file).schema.to_arrow_schema()}
    return names.get(str(field.id), "")


def _widened(state: DeltaTableState, footer: pq.FileMetaData, fields: Sequence[DeltaField]) -> bool:
    """Return whether another shard has widened a column since the file was staged."""
    if state.record.within is None:
        return False
    types = {f.name: f.type for f in footer.schema.to_arrow_schema()}
    return any(f.physical in types and _is_widening(types[f.physical], arrow_type(f.type)) for f in fields)


def check_ids(state: DeltaTableState, file: StagedFile, footer: pq.FileMetaData, fields: Sequence[DeltaField]) -> None:
    """Raise StageError unless the file has these columns, by id, in these types; of a shard narrower ones will do,
    for others may have widened them since."""
    types = {_known_by(f, by_id=True): f.type for f in footer.schema.to_arrow_schema()}
    shared = state.record.within is not None
    for field in fields:
        kind, own = types.get(str(field.id)), arrow_type(field.type)
        if kind is None or not (_alike(kind, own) or (shared and _is_widening(kind, own))):
            raise StageError(
                f"staged file {file.path} does not have the column {field.name!r} as the table needs it",
                hint="nothing was committed; the destination table changed during the run: sync again",
            )


def _is_widening(before: pa.DataType, after: pa.DataType) -> bool:
    """Return whether one type widens to the other without changing a value."""
    if pa.types.is_decimal(before) and pa.types.is_decimal(after):
        more = after.scale >= before.scale and after.precision - after.scale >= before.precision - before.scale
        return bool(before != after and more)
    both = (pa.types.is_integer, pa.types.is_floating)
    return any(is_one(before) and is_one(after) for is_one in both) and before.bit_width < after.bit_width


def _alike(a: pa.DataType, b: pa.DataType) -> bool:
    if pa.types.is_nested(a) or pa.types.is_nested(b):
        return bool(pa.types.is_nested(a) and pa.types.is_nested(b))
    return str(a).removeprefix("large_") == str(b).removeprefix("large_")


def action(
    state: DeltaTableState,
    fields: Sequence[DeltaField],
    file: StagedFile,
    by: Sequence[DeltaField],
    footer: pq.FileMetaData | None = None,
) -> Action:
    """Return the `add` action of a file that lies below the table. Nobody looks for partition columns in statistics."""
    place = texts(state.only_partition or file.partition, by)
    path = staged_path(state, file)
    try:
        below = path.relative_to(str(state.folder))
    except ValueError:
        raise StageError(f"staged file {file.path} is not in the folder of its table") from None
    return {
        "path": encoded(below.as_posix()),
        "partitionValues": place,
        "size": file.bytes,
        "modificationTime": _written(path),
        "dataChange": True,
        "stats": json.dumps(
            statistics(footer or read_footer(file), [f for f in _indexed(state, fields) if f.physical not in place]),
            separators=(",", ":"),
        ),
    }


def _indexed(state: DeltaTableState, fields: Sequence[DeltaField]) -> Sequence[DeltaField]:
    """Return the columns that have statistics: all, unless somebody has set properties of the table."""
    if names := state.configuration.get("delta.dataSkippingStatsColumns"):
        indexed = {name.strip().strip("`").casefold() for name in names.split(",")}
        return [f for f in fields if f.name.casefold() in indexed]
    count = state.configuration.get("delta.dataSkippingNumIndexedCols", "")
    return fields[: int(count)] if count.isdecimal() else fields


def _written(path: AnyPath) -> int:
    """Return milliseconds since 1970; for an object, now: its time is not worth another request."""
    return now_ms() if isinstance(path, ObjectPath) else int(path.stat().st_mtime * 1000)


def statistics(footer: pq.FileMetaData, fields: Sequence[DeltaField]) -> dict[str, Any]:
    """Return the row count and, by physical name, the NULL counts and, for types that all readers compare alike, the
    smallest and largest values."""
    kinds = {f.physical: arrow_type(f.type) for f in fields}
    nulls, low, high = dict[str, int](), dict[str, Any](), dict[str, Any]()
    for place, name in _columns(footer):
        if name not in kinds or pa.types.is_nested(kinds[name]):
            continue
        parts = [footer.row_group(g).column(place).statistics for g in range(footer.num_row_groups)]
        if any(p is None or not p.has_null_count for p in parts):
            continue
        nulls[name] = sum(p.null_count for p in parts)
        if any(check(kinds[name]) for check in _COUNTED) and all(p.has_min_max for p in parts):
            ends = [v for p in parts for v in (p.min, p.max)]
            if ends:
                least, most = _stat_value(min(ends)), _stat_value(max(ends), up=True)
                if least is not None and most is not None:
                    low[name], high[name] = least, most
    return {"numRecords": footer.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def _columns(footer: pq.FileMetaData) -> Iterator[tuple[int, str]]:
    """Yield the index of each plain column in the file: by its path, a field of a struct may look like one."""
    place = 0
    for column in footer.schema.to_arrow_schema():
        if not pa.types.is_nested(column.type):
            yield place, column.name
        place += _leaves(column.type)


def _leaves(kind: pa.DataType) -> int:
    if not pa.types.is_nested(kind):
        return 1
    return max(sum(_leaves(kind.field(i).type) for i in range(kind.num_fields)), int(kind.num_fields == 0))


def _stat_value(value: Any, *, up: bool = False) -> Any:
    """Return a value as the log spells it: times in milliseconds, long texts by how they begin, the greatest rounded
    up. None for a number that JSON has no exact form for, and for what nothing follows that can be told."""
    match value:
        case str() if len(value) > _TEXT:
            if not up:
                return value[:_TEXT]
            return None if value[_TEXT] == _LAST else value[:_TEXT] + _LAST
        case datetime():
            plain = (value.astimezone(UTC) if value.tzinfo else value).replace(tzinfo=None)
            text = _milliseconds(plain, up=up)
            return text and f"{text}{'Z' if value.tzinfo else ''}"
        case date():
            return value.isoformat()
        case Decimal():
            return number if Decimal(repr(number := float(value))) == value else None
    return value


def _milliseconds(value: datetime, *, up: bool) -> str | None:
    whole = value.replace(microsecond=value.microsecond // 1000 * 1000)
    if up and whole != value:
        try:
            whole += timedelta(milliseconds=1)
        except OverflowError:
            return None
    return whole.isoformat(timespec="milliseconds")
