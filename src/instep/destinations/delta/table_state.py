"""A table as its log and our record in it say it is, and the next version of it.

The record (schema beside the source, last load, fence, what waits for an undo) is in a file that the log names, so it
changes with the very commit that changes rows and columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from operator import itemgetter

import pyarrow.parquet as pq

from instep.destinations.base import LoadState, Ref
from instep.destinations.delta.protocol.deletion_vectors import deleted_rows
from instep.destinations.delta.protocol.log import DeltaLog, place_of
from instep.destinations.delta.protocol.records import APP
from instep.destinations.delta.protocol.snapshot import ADD, NONE_GONE, Action, DeltaSnapshot, FileActions, rows_of
from instep.destinations.delta.shape import (
    DeltaField,
    bare,
    data_type,
    fields_of,
    from_json,
    next_fields,
    single_value_partition,
)
from instep.destinations.delta.warehouse import Warehouse
from instep.destinations.sql.records import Record, load
from instep.errors import DestinationError
from instep.schema.catalog.catalog import Column, Table
from instep.stage.files.object_store import AnyPath, opened
from instep.stage.partition import Partition

PART = f"{APP}.shard."
"""Beginning of the records of shards; their names follow."""
HIGHEST = "delta.columnMapping.maxColumnId"


def named(ref: Ref) -> str:
    return ".".join(ref)


def not_ours(ref: Ref) -> DestinationError:
    """Return the error for a folder that something else made."""
    return DestinationError(
        f"table {named(ref)} exists and is not ours: its log has no record of ours",
        hint="choose another namespace or table name",
    )


def missing(ref: Ref) -> DestinationError:
    return DestinationError(f"table {named(ref)} is not there", hint="plan again")


@dataclass(frozen=True)
class ParkedField:
    """A dropped column: how it was, and the last version that had it."""

    field: DeltaField
    version: int


@dataclass(frozen=True)
class DeltaTableState:
    """One table at one version, or one shard of it: then `record` is the shard's, `whole` the table's, and there are no
    files and columns but its own."""

    log: DeltaLog
    snapshot: DeltaSnapshot
    record: Record
    whole: Record | None = None

    @property
    def ref(self) -> Ref:
        return self.record.ref

    @property
    def folder(self) -> AnyPath:
        return self.log.table

    @cached_property
    def columns(self) -> tuple[DeltaField, ...]:
        """All columns of the table, those of other shards included."""
        return fields_of(self.snapshot.metadata)

    @cached_property
    def fields(self) -> tuple[DeltaField, ...]:
        if self.record.within is None:
            return self.columns
        by_name = {f.name: f for f in self.columns}
        return tuple(by_name[c.name] for c in self.record.table.columns if c.name in by_name)

    @cached_property
    def parked(self) -> Mapping[str, ParkedField]:
        """Dropped columns that wait, by physical name."""
        return {p.place: read_parked(self.record.stored[parked_key(p.place)]) for p in self.record.parked}

    @property
    def layout(self) -> tuple[DeltaField, ...]:
        """Columns of rewritten files: the table's, then those that wait for an undo."""
        waits = (replace(p.field, nullable=True) for p in self.parked.values())
        return (*self.columns, *waits)

    @cached_property
    def by(self) -> tuple[DeltaField, ...]:
        """The partition columns. DestinationError if the log names one that the table does not have."""
        by_name = {f.name: f for f in self.columns}
        names = self.snapshot.metadata.get("partitionColumns") or ()
        if odd := [n for n in names if n not in by_name]:
            raise DestinationError(
                f"the log of table {named(self.ref)} partitions it by {', '.join(odd)}, which is not a column of it",
                hint="restore the folder from a backup, or drop the table and load it again",
            )
        return tuple(by_name[n] for n in names)

    @property
    def next_by(self) -> tuple[DeltaField, ...]:
        """The partition columns that the next whole load brings."""
        by = self.record.by
        by_name = {f.name: f for f in (self.fields if self.record.pending is None else self.waiting)}
        return tuple(by_name[n] for n in ([f.name for f in self.by] if by is None else by) if n in by_name)

    @property
    def configuration(self) -> Mapping[str, str]:
        return self.snapshot.metadata.get("configuration") or {}

    @property
    def highest(self) -> int:
        """The highest id that a column has ever had."""
        return int(self.configuration.get(HIGHEST, 0))

    @property
    def waiting(self) -> tuple[DeltaField, ...]:
        """The columns of the generation that the next whole load brings."""
        assert self.record.pending is not None, "no replacement waits"
        return next_fields(self.record.pending, count(self.highest + 1), str(self.snapshot.metadata["id"]))

    @cached_property
    def own(self) -> FileActions:
        """The data files by path."""
        if self.record.within is None:
            return self.snapshot.files
        column, shard = self.record.within
        return self.snapshot.files.in_partition(next(f.physical for f in self.columns if f.name == column), shard)

    @cached_property
    def paths(self) -> list[str]:
        """The data files, in order."""
        return sorted(self.own)

    @cached_property
    def files(self) -> list[Action]:
        """The actions of the data files, in order of their paths."""
        return [file for _, file in sorted(zip(self.own, self.own.each(), strict=True), key=itemgetter(0))]

    @property
    def bytes(self) -> int:
        return self.own.bytes

    @property
    def area(self) -> str:
        """The folder of data files, below the table's; each shard has its own."""
        return "data" if self.record.within is None else f"data/{self.record.place}"

    @property
    def aside(self) -> str:
        """The folder of what is held in quarantine."""
        return "_quarantine" if self.record.within is None else f"_quarantine/{self.record.place}"

    @property
    def only_partition(self) -> Partition | None:
        """The one partition that all files of a shard are in."""
        within = self.record.within
        return single_value_partition(self.by, within[1]) if within and len(self.by) == 1 else None

    @cached_property
    def rows(self) -> int:
        counted, others = self.own.rows
        return counted + sum(self._in_footer(f) for f in others)

    def counted(self, file: Action) -> int:
        """Return how many rows a file has, by its footer if the log does not say it."""
        return rows_of(file) if file.get("stats") else self._in_footer(file)

    def _in_footer(self, file: Action) -> int:
        return int(pq.read_metadata(opened(place_of(self.folder, file))).num_rows) - deleted_rows(file)

    def state(self) -> LoadState | None:
        """Return the record of the last load, with files and bytes as they are now."""
        if self.record.state is None:
            return None
        number = str(self.snapshot.version)
        return replace(self.record.state, files=len(self.own), bytes=self.bytes, version=number)

    def table(self) -> Table:
        """Return the table as it is: what the log says wins."""
        record = self.record
        if record.pending is not None:
            return record.pending
        columns = tuple(self._column(f) for f in self.fields)
        return replace(record.table, columns=columns, comment=self.snapshot.metadata.get("description") or None)

    def _column(self, field: DeltaField) -> Column:
        """Return the column with its recorded type, or with its stored type if that is another one now."""
        recorded = next(
            (c for c in self.record.table.columns if self.record.stored.get(f"name:{c.name}") == field.physical), None
        )
        if recorded is None:
            return Column(field.name, data_type(field.type), nullable=field.nullable, comment=field.comment)
        kind, note = recorded.type, recorded.note
        if json.dumps(bare(field.type)) != self.record.stored.get(f"type:{field.physical}"):
            kind, note = data_type(field.type), ""
        return replace(
            recorded, name=field.name, type=kind, note=note, nullable=field.nullable, comment=field.comment or None
        )


def parked_key(place: str) -> str:
    return f"parked:{place}"


def parked_text(field: DeltaField, version: int) -> str:
    return json.dumps({"field": field.to_json(), "version": version}, ensure_ascii=False)


def read_parked(text: str) -> ParkedField:
    document = json.loads(text)
    return ParkedField(from_json(document["field"]), document["version"])


def find(warehouse: Warehouse, ref: Ref) -> DeltaTableState | None:
    """Return a table of ours, or a copy of one; None if nothing is there, or something else."""
    log = warehouse.log(ref)
    snapshot = log.snapshot()
    return state_at(log, ref, snapshot, warehouse.part) if snapshot and warehouse.is_at(snapshot, ref) else None


def state_at(
    log: DeltaLog, ref: Ref, snapshot: DeltaSnapshot | None, part: tuple[str, str] | None = None
) -> DeltaTableState | None:
    """Return the table at that version, if it was ours then; of `part` (shard column, shard), if it had the table."""
    text = snapshot.records.get(APP) if snapshot else None
    if snapshot is None or not text:
        return None
    document = json.loads(text)
    parts = ((name.removeprefix(PART), own) for name, own in snapshot.records.items() if name.startswith(PART))
    document["record"]["parts"] = {shard: json.loads(own) for shard, own in parts}
    record = load(ref, document["fence"], json.dumps(document["record"]))
    if part is None:
        return DeltaTableState(log, snapshot, record)
    shard_record = record.part(part[1], part[0])
    return DeltaTableState(log, snapshot, shard_record, record) if shard_record else None


def state_in(folder: AnyPath, ref: Ref) -> DeltaTableState:
    """Return the table in that folder, whatever it is called there."""
    log = DeltaLog(folder)
    state = state_at(log, ref, log.snapshot())
    if state is None:
        raise missing(ref)
    return state


def require(warehouse: Warehouse, ref: Ref) -> DeltaTableState:
    """Return a table of ours that may be written; DestinationError if it is not there, or somebody else's, or a
    copy."""
    state = find(warehouse, ref)
    if state is None or state.record.copy:
        raise not_ours(ref) if state or warehouse.is_taken(ref) else missing(ref)
    return state


def readable(warehouse: Warehouse, ref: Ref) -> DeltaTableState:
    """Return a table of ours, or a copy."""
    state = find(warehouse, ref)
    if state is None:
        raise not_ours(ref) if warehouse.is_taken(ref) else missing(ref)
    return state


def loaded(warehouse: Warehouse, ref: Ref) -> tuple[DeltaTableState, LoadState]:
    """Return a table whose rows can be changed; DestinationError while it has none."""
    table_state = require(warehouse, ref)
    if (state := table_state.state()) is None:
        raise DestinationError(f"table {named(ref)} has not been loaded yet", hint="sync it first")
    return table_state, state


def with_stored(record: Record, fields: Sequence[DeltaField], waits: Mapping[str, ParkedField]) -> Record:
    """Return the record with what the columns are in files: physical names by name, types by physical name."""
    stored = {f"name:{f.name}": f.physical for f in fields}
    stored |= {f"type:{f.physical}": json.dumps(bare(f.type)) for f in fields}
    stored |= {parked_key(place): parked_text(p.field, p.version) for place, p in waits.items()}
    return replace(record, stored=stored)


def select_files(state: DeltaTableState, numbers: Sequence[int]) -> DeltaTableState:
    """Return the table with these of its files, in their order, and no more of its log than reading them takes."""
    files = FileActions.listed(({**state.files[n], "stats": None} for n in numbers), ADD)
    snapshot = replace(state.snapshot, files=files, tombstones=NONE_GONE, domains={}, txns={}, known={})
    return replace(state, log=DeltaLog(state.folder), snapshot=snapshot, whole=None)
