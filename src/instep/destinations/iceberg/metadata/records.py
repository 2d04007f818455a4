"""Table properties and metadata that instep records: the columns' source identity, the last load, our mark.

Reads table metadata as the JSON that it is, so that 200 tables are inspected without pyiceberg.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from instep.destinations.base import Commit, LoadState, Ref, TableSize
from instep.destinations.iceberg.metadata.schema import IcebergField, data_type, fields_of, is_stored_as
from instep.destinations.iceberg.metadata.shards import SHARD, as_stored, own_name, shard_key_of, shards_of, totals
from instep.errors import DestinationError
from instep.schema.catalog.catalog import (
    Column,
    Table,
    column_from_dict,
    column_to_dict,
    table_from_dict,
    table_to_dict,
)

FENCE = "instep.fence"
RUN = "instep.run"
CURSOR = "instep.cursor"
TABLE = "instep.table"
COLUMNS = "instep.columns"
ACCEPTED = "instep.accepted"
CHANGES = "instep.changes"
STATE = "instep.state"
PENDING = "instep.pending"
COPY = "instep.copy-of"

Metadata = Mapping[str, Any]
MOST_CHANGES = 200


@dataclass(frozen=True)
class PendingReplacement:
    """A replacement that the next overwrite puts in place of the table: its shape and the change that asks."""

    table: Table
    change: str


def table_properties(table: Table, fields: Iterable[IcebergField]) -> dict[str, str]:
    """Return the properties that record `table`, whose columns are `fields` by name."""
    columns = {str(f.id): _record(table.by_name[f.name]) for f in fields}
    facts = {k: v for k, v in table_to_dict(table).items() if k not in ("schema", "name", "columns", "comment")}
    return {TABLE: _dump(facts), COLUMNS: _dump(columns), "comment": table.comment or ""}


def _record(column: Column) -> dict[str, Any]:
    """Return what a column's record adds to Iceberg's own."""
    return {k: v for k, v in column_to_dict(column).items() if k not in ("name", "nullable", "comment")}


def read_table(ref: Ref, metadata: Metadata) -> Table:
    """Return the table as it is: what Iceberg says, with the recorded identity of each column beside it."""
    if pending := read_pending(ref, metadata):
        return pending.table
    properties = owned_properties(ref, metadata)
    records = json.loads(properties[COLUMNS])
    columns = tuple(_column(field, records.get(str(field.id), {})) for field in current_fields(metadata))
    facts = {**json.loads(properties[TABLE]), "schema": ref[0], "name": ref[1], "columns": []}
    table = replace(table_from_dict(facts), columns=columns, comment=properties.get("comment") or None)
    return as_stored(table, properties)


def _column(field: IcebergField, record: Mapping[str, Any]) -> Column:
    """Return the column with its recorded type, or with Iceberg's if it is stored as another one now."""
    kind = record.get("type") or str(data_type(field.type))
    own = {"name": field.name, "nullable": not field.required, "comment": field.doc}
    column = column_from_dict({**record, "type": kind, **own})
    if not is_stored_as(field.type, column.type):
        return replace(column, type=data_type(field.type), note="")
    return column


def read_pending(ref: Ref, metadata: Metadata) -> PendingReplacement | None:
    """Return the replacement that waits for its rows, if any."""
    text = owned_properties(ref, metadata).get(PENDING)
    if not text:
        return None
    record = json.loads(text)
    return PendingReplacement(table_from_dict({**record["table"], "schema": ref[0], "name": ref[1]}), record["change"])


def pending_property(pending: PendingReplacement) -> dict[str, str]:
    return {PENDING: _dump({"table": table_to_dict(pending.table), "change": pending.change})}


def is_ours(metadata: Metadata) -> bool:
    return TABLE in (properties := metadata.get("properties", {})) and COLUMNS in properties


def is_copy(metadata: Metadata) -> bool:
    """Return whether it is what a table was before something took its place: read, never written."""
    return COPY in metadata.get("properties", {})


def owned_properties(ref: Ref, metadata: Metadata) -> Mapping[str, str]:
    """Return the table's properties; DestinationError if the table was not made or adopted by us."""
    properties: Mapping[str, str] = metadata.get("properties", {})
    if not is_ours(metadata):
        raise not_ours(ref)
    return properties


def not_ours(ref: Ref) -> DestinationError:
    """Return the error for a table that something else made."""
    return DestinationError(
        f"table {'.'.join(ref)} exists and is not ours: it carries no {TABLE} property",
        hint="choose another namespace or table name, or adopt the table first",
    )


def current_fields(metadata: Metadata) -> tuple[IcebergField, ...]:
    """Return the columns of the current schema, system columns included."""
    current = metadata["current-schema-id"]
    return fields_of(next(s for s in metadata["schemas"] if s.get("schema-id", 0) == current))


def changes_done(metadata: Metadata) -> tuple[str, ...]:
    """Return the ids of the schema changes that the table has been through, the latest last."""
    return tuple(json.loads(metadata.get("properties", {}).get(CHANGES, "[]")))


def state_record(commit: Commit, snapshot: int, rows: int | None, *, deleted: bool) -> dict[str, str]:
    """Return the property that repeats what the snapshot's summary says: snapshots expire, the cursor must not.

    `rows` is counted: Iceberg's own totals count a delete as often as delete files repeat it."""
    document = {"run": commit.run, "fence": commit.fence, "cursor": commit.cursor, "accepted": commit.accepted}
    record = document | {"snapshot": snapshot, "rows": rows, "deleted": deleted}
    return {STATE: _dump(record), RUN: commit.run, ACCEPTED: commit.accepted}


def version_of(snapshot: int | None, schema: int) -> str:
    return f"{snapshot}/{schema}"


def load_state(metadata: Metadata) -> LoadState | None:
    """Return the record of the last data commit; after a rollback by hand, that of the snapshot rolled back to."""
    main = _snapshot(metadata, metadata.get("current-snapshot-id"))
    saved = json.loads(metadata["properties"].get(STATE, "null"))
    if main is not None and saved is not None and _rolled_back(metadata, saved["snapshot"]):
        saved = _summarised(metadata)
    if main is None or saved is None:
        return None
    total = totals(metadata)
    about = max(total.get("records", 0) - total.get("position-deletes", 0), 0)
    rows = about if saved["rows"] is None else saved["rows"]
    size, files = total.get("files-size", 0), total.get("data-files", 0)
    values = (saved["run"], saved["fence"], saved["cursor"], saved["accepted"])
    version = version_of(metadata["current-snapshot-id"], metadata["current-schema-id"])
    return LoadState(*values, rows, size, files, saved["deleted"], version)


def table_size(metadata: Metadata) -> TableSize:
    """Return the size that loads have counted, or the snapshots' sums for a table that something else has written."""
    state, total = load_state(metadata), totals(metadata)
    if state is not None:
        return TableSize(state.rows, state.bytes)
    if not total.get("data-files") or shard_key_of(metadata["properties"]):  # a catalog may want a snapshot of nothing
        return TableSize()
    return TableSize(max(total.get("records", 0) - total.get("position-deletes", 0), 0), total.get("files-size", 0))


def loaded_at(metadata: Metadata) -> set[int]:
    """Return the snapshots that the last loads of a shared table's shards recorded."""
    properties = metadata["properties"]
    states = (json.loads(properties.get(own_name(name, STATE), "null")) for name in shards_of(properties))
    return {saved["snapshot"] for saved in states if saved}


def is_rolled_back(metadata: Metadata, shard: str) -> bool:
    """Return whether somebody has put a shared table back to before a shard's last load."""
    return load_is_gone(metadata, own_name(shard, STATE))


def load_is_gone(metadata: Metadata, state: str = STATE) -> bool:
    """Return whether the load that the property `state` records was rolled back."""
    saved = json.loads(metadata["properties"].get(state, "null"))
    return saved is not None and _rolled_back(metadata, saved["snapshot"])


def exact_rows(metadata: Metadata, snapshot: int) -> int | None:
    """Return the table's rows at `snapshot`, if a load of ours counted them there; what other shards commit changes
    none of a shard's."""
    saved = json.loads(metadata["properties"].get(STATE, "null"))
    if not saved or saved["rows"] is None:
        return None
    shared = shard_key_of(metadata["properties"]) and not _rolled_back(metadata, saved["snapshot"])
    return int(saved["rows"]) if shared or saved["snapshot"] == snapshot else None


def _rolled_back(metadata: Metadata, snapshot: int) -> bool:
    """Return whether `snapshot` is still known and `main` no longer stands on it. Where what lies between has expired,
    it was looked at before (see expire.py): `main` then begins with a later one, whose parent pyiceberg has
    forgotten."""
    saved = _snapshot(metadata, snapshot)
    if saved is None:
        return False
    line = list(_ancestors(metadata))
    if any(s["snapshot-id"] == snapshot for s in line):
        return False
    return not line or saved.get("sequence-number", 0) >= line[-1].get("sequence-number", 0)


def _summarised(metadata: Metadata) -> dict[str, Any] | None:
    within = shard_key_of(metadata["properties"])
    shard = within[1] if within else None
    for snapshot in _ancestors(metadata):
        if (run := (summary := snapshot["summary"]).get(RUN)) and summary.get(SHARD) == shard:
            record = {"run": run, "fence": int(summary[FENCE]), "cursor": summary.get(CURSOR, "")}
            return {**record, "accepted": summary.get(ACCEPTED, ""), "rows": None, "deleted": True}
    return None


def _ancestors(metadata: Metadata) -> Iterable[Mapping[str, Any]]:
    at = metadata.get("current-snapshot-id")
    while (snapshot := _snapshot(metadata, at)) is not None:
        yield snapshot
        at = snapshot.get("parent-snapshot-id")


def _snapshot(metadata: Metadata, at: int | None) -> Mapping[str, Any] | None:
    return next((s for s in metadata.get("snapshots", ()) if s["snapshot-id"] == at), None)


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
