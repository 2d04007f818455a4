"""Retention of dropped columns and tables in a lake, and what of them can be restored.

A column's drop is remembered in the table: its field id, when, and the tag on the snapshot from before. A dropped
table waits in its own namespace with the time of its drop in a property.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import Table as IcebergTable

from instep.destinations.base import Ref, UndropReport
from instep.destinations.iceberg.metadata.catalog import Lake
from instep.destinations.iceberg.metadata.files import arrow_schema, iceberg_schema
from instep.destinations.iceberg.metadata.records import TABLE, Metadata, current_fields
from instep.destinations.iceberg.metadata.schema import IcebergField, fields_of
from instep.schema.catalog.types import DataType

UNDO = "instep-undo-"
COPY_TAG = "instep-copy-"
DROPPED = "instep.dropped"
DROPPED_COLUMNS = "instep.dropped-columns"
DAY_MS = 86_400_000
_INNER = re.compile(r'"(?:element-|key-|value-)?id": (\d+)')
"""The ids of fields within a type: metrics of files are about the innermost ones."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _records(metadata: Metadata) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = json.loads(metadata["properties"].get(DROPPED_COLUMNS, "[]"))
    return records


def _is_old(at: int, days: float) -> bool:
    return now_ms() - at > days * DAY_MS


def remember(metadata: Metadata, dropped: Iterable[tuple[IcebergField, str]], days: float) -> dict[str, str]:
    """Return the property that says what was dropped when: what is new, without that whose time is over."""
    recent = [r for r in _records(metadata) if not _is_old(r["at"], days)]
    now = [{"field": f.id, "name": f.name, "tag": f"{UNDO}{step}", "at": now_ms()} for f, step in dropped]
    if not now and len(recent) == len(_records(metadata)):
        return {}
    again = {r["field"] for r in now}
    return {DROPPED_COLUMNS: json.dumps([*(r for r in recent if r["field"] not in again), *now])}


def remember_tag(metadata: Metadata, tag: str, number: int) -> dict[str, str]:
    """Return the property that says what was dropped when, with a tag that is of no column; `number` tells it from
    others."""
    now = {"field": -number, "name": "", "tag": tag, "at": now_ms()}
    return {DROPPED_COLUMNS: json.dumps([*_records(metadata), now])}


def expired(metadata: Metadata, days: float) -> tuple[str, ...]:
    """Return the tags whose time is over."""
    tags = {r["tag"] for r in _records(metadata) if not _is_old(r["at"], days)}
    return tuple(sorted({r["tag"] for r in _records(metadata)} - tags))


def undoable(metadata: Metadata, days: float) -> frozenset[int]:
    """Return the field ids of columns whose drop may still be taken back."""
    now = {f.id for f in current_fields(metadata)}
    return frozenset(r["field"] for r in _records(metadata) if not _is_old(r["at"], days)) - now


def dropped_fields(metadata: Metadata) -> dict[str, IcebergField]:
    """Return the columns that the table once had and has no more, by name; of two of one name the one dropped last."""
    now = {f.id for f in current_fields(metadata)}
    schemas = sorted(metadata["schemas"], key=lambda s: int(s.get("schema-id", 0)))
    return {f.name: f for s in schemas for f in fields_of(s) if f.id not in now}


def undrop_report(lake: Lake, ref: Ref, column: str) -> UndropReport:
    """Report what of a dropped column can be restored. Rows written since the drop have no value of it; those of
    files rewritten since have lost theirs."""
    table = lake.load(ref)
    if table is None:
        return UndropReport(f"table {'.'.join(ref)} is not there")
    metadata = json.loads(table.metadata.model_dump_json())
    field = dropped_fields(metadata).get(column)
    if field is None:
        back = any(f.name == column for f in current_fields(metadata))
        return UndropReport() if back else UndropReport(f"no schema that is kept has had a column {column!r}")
    before = snapshot_before(table, metadata, field.id)
    now, then = _files(table, table.metadata.current_snapshot()), _files(table, before)
    properties = before.summary.additional_properties if before is not None and before.summary else {}
    written, rewritten = _lost(field, now, then, int(properties.get("total-position-deletes", 0)))
    return UndropReport(snapshot=before is not None, written=written, rewritten=rewritten)


def _lost(
    field: IcebergField, now: Mapping[str, DataFile], then: Mapping[str, DataFile], deleted: int
) -> tuple[int, int]:
    """Estimate how many rows came since without a value in the column, and how many lost theirs to a rewritten file,
    of which `deleted` had been deleted. Compacted files still have the column."""
    ids = {field.id, *map(int, _INNER.findall(json.dumps(field.type)))}
    new = [file for path, file in now.items() if path not in then]
    gone = [file for path, file in then.items() if path not in now]
    carried = [file for file in new if ids & (file.value_counts or {}).keys()]
    lacking = [file for file in new if not ids & (file.value_counts or {}).keys()]
    empty = sum(_nulls(f, field.id) for f in carried) - sum(_nulls(f, field.id) for f in gone)
    written, rewritten = sum(f.record_count for f in lacking), sum(f.record_count for f in gone)
    if carried:
        rewritten = min(max(rewritten - deleted - sum(f.record_count for f in carried), 0), written)
    return written + max(empty, 0), rewritten


def _nulls(file: DataFile, field: int) -> int:
    return (file.null_value_counts or {}).get(field, 0)


def snapshot_before(table: IcebergTable, metadata: Metadata, field: int) -> Any:
    """Return the snapshot from before the drop, if its tag is still there."""
    tag = next((r["tag"] for r in _records(metadata) if r["field"] == field), "")
    reference = table.metadata.refs.get(tag)
    return table.metadata.snapshot_by_id(reference.snapshot_id) if reference else None


def _files(table: IcebergTable, snapshot: Any) -> dict[str, DataFile]:
    """Return the data files of a snapshot."""
    manifests = snapshot.manifests(table.io) if snapshot else []
    entries = (e for m in manifests for e in m.fetch_manifest_entry(table.io, discard_deleted=True))
    return {e.data_file.file_path: e.data_file for e in entries if e.data_file.content == DataFileContent.DATA}


def arrow_type(kind: DataType, name: str) -> pa.DataType:
    """Return the Arrow type of a type's values in files."""
    from instep.destinations.iceberg.evolve.schema_update import first_fields
    from instep.schema.catalog.catalog import Column, Table

    fields = first_fields(Table("", "", (Column(name, kind),)))
    return arrow_schema(iceberg_schema(fields)).field(0).type


def _parked(lake: Lake) -> list[tuple[Ref, Metadata]]:
    refs = [(lake.dropped, name) for name in lake.names(lake.dropped)]
    dropped = [(ref, metadata) for ref, metadata in lake.metadata(refs).items() if DROPPED in metadata["properties"]]
    return sorted(dropped, key=lambda pair: _dropped_at(pair[1]), reverse=True)


def _dropped_at(metadata: Metadata) -> int:
    record: Mapping[str, Any] = json.loads(metadata["properties"][DROPPED])
    return int(record.get("at", metadata.get("last-updated-ms", 0)))


def parked(lake: Lake, ref: Ref, source_id: str | None) -> Ref | None:
    """Return where the table waits that was dropped last under this name and had this source id."""
    for place, metadata in _parked(lake):
        record = json.loads(metadata["properties"][DROPPED])
        was = json.loads(metadata["properties"][TABLE])
        if tuple(record["table"]) == ref and was.get("id") == source_id:
            return place
    return None


def purge(lake: Lake) -> Sequence[Ref]:
    """Delete the dropped tables whose time is over, files and all, unless a copy still needs them; returns where they
    waited."""
    gone = [
        ref
        for ref, metadata in _parked(lake)
        if _is_old(_dropped_at(metadata), lake.config.undo_days)
        and not any(name.startswith(COPY_TAG) for name in metadata.get("refs", {}))
    ]
    for ref in gone:
        lake.drop_table(ref)
    return gone
