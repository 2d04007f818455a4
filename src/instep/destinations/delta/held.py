"""A table as its log and our record in it say it is, and the next version of it.

The record (schema beside the source, last load, fence, what waits for an undo) is a metadata domain of the log, so it
is written in the same commit as rows and columns.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from instep.crash import crashpoint
from instep.destinations.base import Commit, LoadState, Ref
from instep.destinations.delta.log import EVERY, WRITABLE, Action, Log, Snapshot, place_of, rows_of
from instep.destinations.delta.shape import (
    DeltaField,
    bare,
    data_type,
    features,
    fields_of,
    first_fields,
    from_json,
    schema_string,
)
from instep.destinations.delta.warehouse import Warehouse, now_ms
from instep.destinations.sql.records import Record, dump, load
from instep.errors import Conflict, DestinationError, InstepError
from instep.schema.table import Column, Table
from instep.stage.objects import AnyPath, opened

DOMAIN = "instep"
HIGHEST = "delta.columnMapping.maxColumnId"
WIDENING = "delta.enableTypeWidening"
ENGINE = "instep"
OWN_FILES = "-rewrite-"
"""What names of files contain that this process wrote for a commit, not a task for a load."""
TOMBSTONE_DAYS = 30
"""How much longer than what can be undone checkpoints name files that were removed."""


def named(ref: Ref) -> str:
    return ".".join(ref)


def not_ours(ref: Ref) -> DestinationError:
    """What is said of a folder that something else made."""
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
class Held:
    """One table at one version."""

    log: Log
    snapshot: Snapshot
    record: Record

    @property
    def ref(self) -> Ref:
        return self.record.ref

    @property
    def folder(self) -> AnyPath:
        return self.log.table

    @cached_property
    def fields(self) -> tuple[DeltaField, ...]:
        return fields_of(self.snapshot.metadata)

    @cached_property
    def parked(self) -> Mapping[str, ParkedField]:
        """Dropped columns that wait, by physical name."""
        return {p.place: read_parked(self.record.stored[parked_key(p.place)]) for p in self.record.parked}

    @property
    def layout(self) -> tuple[DeltaField, ...]:
        """What files that are written again have: the columns, then those that wait for an undo."""
        waits = (replace(p.field, nullable=True) for p in self.parked.values())
        return (*self.fields, *waits)

    @cached_property
    def by(self) -> tuple[DeltaField, ...]:
        """The partition columns. DestinationError if the log names one that the table does not have."""
        known = {f.name: f for f in self.fields}
        names = self.snapshot.metadata.get("partitionColumns") or ()
        if odd := [n for n in names if n not in known]:
            raise DestinationError(
                f"the log of table {named(self.ref)} partitions it by {', '.join(odd)}, which is no column of it",
                hint="restore the folder from a backup, or drop the table and load it again",
            )
        return tuple(known[n] for n in names)

    @property
    def next_by(self) -> tuple[DeltaField, ...]:
        """The partition columns that the next whole load brings."""
        said = self.record.by
        known = {f.name: f for f in (self.fields if self.record.pending is None else self.waiting)}
        return tuple(known[n] for n in ([f.name for f in self.by] if said is None else said) if n in known)

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
        return first_fields(self.record.pending, count(self.highest + 1))

    @cached_property
    def files(self) -> list[Action]:
        return [self.snapshot.files[path] for path in sorted(self.snapshot.files)]

    @cached_property
    def rows(self) -> int:
        return sum(rows_of(f) if f.get("stats") else self._counted(f) for f in self.files)

    def _counted(self, file: Action) -> int:
        return int(pq.read_metadata(opened(place_of(self.folder, file))).num_rows)

    def state(self) -> LoadState | None:
        """What the last load recorded; files and bytes as they are now."""
        if self.record.state is None:
            return None
        return replace(self.record.state, files=len(self.snapshot.files), bytes=self.snapshot.bytes)

    def table(self) -> Table:
        """The table as it is: what the log says wins."""
        record = self.record
        if record.pending is not None:
            return record.pending
        columns = tuple(self._column(f) for f in self.fields)
        return replace(record.table, columns=columns, comment=self.snapshot.metadata.get("description") or None)

    def _column(self, made: DeltaField) -> Column:
        """A recorded type holds only while the column is still stored as it."""
        known = next(
            (c for c in self.record.table.columns if self.record.stored.get(f"name:{c.name}") == made.physical), None
        )
        if known is None:
            return Column(made.name, data_type(made.type), nullable=made.nullable, comment=made.comment)
        kind, note = known.type, known.note
        if json.dumps(bare(made.type)) != self.record.stored.get(f"type:{made.physical}"):
            kind, note = data_type(made.type), ""
        return replace(
            known, name=made.name, type=kind, note=note, nullable=made.nullable, comment=made.comment or None
        )


def parked_key(place: str) -> str:
    return f"parked:{place}"


def parked_text(made: DeltaField, version: int) -> str:
    return json.dumps({"field": made.to_json(), "version": version}, ensure_ascii=False)


def read_parked(text: str) -> ParkedField:
    said = json.loads(text)
    return ParkedField(from_json(said["field"]), said["version"])


def find(warehouse: Warehouse, ref: Ref) -> Held | None:
    """A table of ours, or a copy of one; None if nothing is there, or something else."""
    log = warehouse.log(ref)
    snapshot = log.snapshot()
    return held_at(log, ref, snapshot) if snapshot and warehouse.is_at(snapshot, ref) else None


def held_at(log: Log, ref: Ref, snapshot: Snapshot | None) -> Held | None:
    """The table at that version, if it was ours then."""
    text = snapshot.domains.get(DOMAIN) if snapshot else None
    if snapshot is None or not text:
        return None
    said = json.loads(text)
    return Held(log, snapshot, load(ref, said["fence"], json.dumps(said["record"])))


def held_in(folder: AnyPath, ref: Ref) -> Held:
    """The table in that folder, whatever it is called there."""
    log = Log(folder)
    held = held_at(log, ref, log.snapshot())
    if held is None:
        raise missing(ref)
    return held


def require(warehouse: Warehouse, ref: Ref) -> Held:
    """A table of ours that may be written; DestinationError if it is not there, or somebody else's, or a copy."""
    held = find(warehouse, ref)
    if held is None or held.record.copy:
        raise not_ours(ref) if held or warehouse.is_taken(ref) else missing(ref)
    return held


def readable(warehouse: Warehouse, ref: Ref) -> Held:
    """A table of ours, or a copy."""
    held = find(warehouse, ref)
    if held is None:
        raise not_ours(ref) if warehouse.is_taken(ref) else missing(ref)
    return held


def loaded(warehouse: Warehouse, ref: Ref) -> tuple[Held, LoadState]:
    """A table whose rows can be changed; DestinationError while it has none."""
    held = require(warehouse, ref)
    if (state := held.state()) is None:
        raise DestinationError(f"table {named(ref)} has not been loaded yet", hint="sync it first")
    return held, state


def check_writable(held: Held) -> None:
    """DestinationError if another program has asked writers for what this one does not do."""
    odd = sorted(set(held.snapshot.protocol.get("writerFeatures") or ()) - WRITABLE)
    if held.configuration.get("delta.appendOnly", "").casefold() == "true":
        odd.append("appendOnly")
    if "delta.invariants" in held.snapshot.metadata["schemaString"]:
        odd.append("invariants")
    if odd:
        raise DestinationError(
            f"table {named(held.ref)} asks its writers for {', '.join(odd)}, which this version does not do",
            hint="another program has switched it on: switch it off there, then run this again",
        )


@dataclass
class Change:
    """The next version of a table. `fields`: its columns, if they change; `add` are actions, `remove` paths.
    `keeps_rows`: they hold the same rows. `domains`: more metadata of ours, by domain. `by`: its partition columns, if
    they become other ones."""

    held: Held
    record: Record
    fields: Sequence[DeltaField] | None = None
    add: list[Action] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    keeps_rows: bool = False
    domains: dict[str, str] = field(default_factory=dict)
    by: Sequence[DeltaField] | None = None

    def land(self, operation: str, commit: Commit, warehouse: Warehouse) -> int:
        """Writes it, or raises, and takes the files away that were written for it: Fenced if a later run has the table,
        Conflict if anything else has changed it."""
        try:
            return self._land(operation, commit, warehouse)
        except Conflict:
            self._undone()
            raise

    def _undone(self) -> None:
        known = self.held.snapshot
        for file in self.add:
            path = unquote(file["path"])
            if OWN_FILES in path and path not in known.files and path not in known.gone:
                with suppress(OSError, InstepError):
                    (self.held.folder / path).unlink(missing_ok=True)

    def _land(self, operation: str, commit: Commit, warehouse: Warehouse) -> int:
        self.held.record.check(commit.fence)
        check_writable(self.held)
        version = self.held.snapshot.version + 1
        actions = [*self._actions(operation, commit, version)]
        crashpoint("delta.commit.before")
        if not self.held.log.put(version, actions):
            now = held_at(self.held.log, self.held.ref, self.held.log.snapshot())
            if now is not None:
                now.record.check(commit.fence)
            raise Conflict(
                f"table {named(self.held.ref)} was changed by somebody else meanwhile", hint="run this again"
            )
        if version and version % EVERY == 0:
            self._checkpoint(version, warehouse)
        return version

    def _actions(self, operation: str, commit: Commit, version: int) -> Iterator[Action]:
        at, before = now_ms(), self.held.snapshot
        yield {"commitInfo": self._info(operation, commit, at)}
        metadata = next_metadata(before.metadata, self.record, self.fields, self.by)
        protocol = next_protocol(before.protocol, fields_of(metadata))
        if protocol != before.protocol:
            yield {"protocol": protocol}
        if metadata != before.metadata:
            yield {"metaData": metadata}
        yield domain(DOMAIN, recorded(self.record))
        for name, said in self.domains.items():
            yield domain(name, said)
        if (self.add or self.remove) and not self.keeps_rows:
            yield {"txn": {"appId": f"instep-{self.record.place}", "version": commit.fence, "lastUpdated": at}}
        for path in self.remove:
            old = before.files[path]
            yield {
                "remove": {
                    "path": old["path"], "deletionTimestamp": at, "dataChange": not self.keeps_rows,
                    "extendedFileMetadata": True, "partitionValues": old.get("partitionValues") or {},
                    "size": old["size"],
                }
            }  # fmt: skip
        for file in self.add:
            yield {"add": file}

    def _info(self, operation: str, commit: Commit, at: int) -> Action:
        said: dict[str, object] = {"run": commit.run, "fence": commit.fence, "cursor": commit.cursor}
        said |= {"accepted": commit.accepted, "data": bool(self.add or self.remove) and not self.keeps_rows}
        return {
            "timestamp": at, "operation": operation, "operationParameters": {}, "engineInfo": ENGINE,
            "isBlindAppend": bool(self.add) and not self.remove,
            "userMetadata": json.dumps(said),
        }  # fmt: skip

    def _checkpoint(self, version: int, warehouse: Warehouse) -> None:
        """Readers begin there; a table without it is as right."""
        snapshot = self.held.log.snapshot(version)
        assert snapshot is not None, "the version was written"
        with suppress(OSError, InstepError):  # the commit is there, whatever the disk says to this
            self.held.log.checkpoint(snapshot, now_ms() - int((warehouse.days + TOMBSTONE_DAYS) * 86_400_000))


def recorded(record: Record) -> str:
    """Our record as the log has it."""
    return f'{{"fence":{record.fence},"record":{dump(record)}}}'


def domain(name: str, said: str) -> Action:
    return {"domainMetadata": {"domain": name, "configuration": said, "removed": False}}


def next_metadata(
    before: Action, record: Record, fields: Sequence[DeltaField] | None, by: Sequence[DeltaField] | None = None
) -> Action:
    """The table's metadata with these columns and the comment of the record; partitions follow their columns."""
    out = {**before, "name": record.table.name}
    if by is not None:
        out["partitionColumns"] = [f.name for f in by]
    elif fields is not None:
        was, now = {f.name: f.physical for f in fields_of(before)}, {f.physical: f.name for f in fields}
        out["partitionColumns"] = [now[was[name]] for name in before.get("partitionColumns") or ()]
    if fields is not None:
        known = dict(before.get("configuration") or {})
        highest = max([int(known.get(HIGHEST, 0)), *(_highest(f) for f in fields)])
        widened = {WIDENING: "true"} if "typeWidening" in features(fields) else {}
        out |= {"schemaString": schema_string(fields), "configuration": {**known, **widened, HIGHEST: str(highest)}}
        out.pop("description", None)
        if record.table.comment:
            out["description"] = record.table.comment
    return out


def _highest(made: DeltaField) -> int:
    return max(made.id, _inner(made.type))


def _inner(stored: Any) -> int:
    if isinstance(stored, str):
        return 0
    if stored["type"] == "array":
        return _inner(stored["elementType"])
    return max((_highest(from_json(f)) for f in stored.get("fields", ())), default=0)


def next_protocol(before: Action, fields: Sequence[DeltaField]) -> Action:
    """A feature is switched on when it is first needed and never off."""
    needed = features(fields)
    readers = [*before.get("readerFeatures", ())]
    writers = [*before.get("writerFeatures", ())]
    readers += [f for f in needed if f not in readers]
    writers += [f for f in (*needed, "domainMetadata") if f not in writers]
    return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": readers, "writerFeatures": writers}


def begin(
    warehouse: Warehouse,
    record: Record,
    fields: Sequence[DeltaField],
    commit: Commit,
    by: Sequence[DeltaField],
    files: Sequence[Action] = (),
) -> bool:
    """Makes a table, partitioned by some of its columns; False if one is there."""
    days = max(int(warehouse.days), 1)
    metadata = {
        "id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
        "createdTime": now_ms(),
        "configuration": {
            "delta.columnMapping.mode": "name",
            "delta.deletedFileRetentionDuration": f"interval {days} days",
            HIGHEST: "0",
        },
    }  # fmt: skip
    empty = Snapshot(-1, {**metadata, "schemaString": '{"type":"struct","fields":[]}'}, {}, {}, {}, {}, {})
    log = warehouse.make(record.ref)
    change = Change(Held(log, empty, replace(record, fence=0)), record, fields, [*files], by=by)
    change.domains |= warehouse.said(record.ref)
    if log.snapshot() is not None:
        return False
    try:
        change.land("CREATE TABLE", commit, warehouse)
    except Conflict:
        return False
    return True


def with_stored(record: Record, fields: Sequence[DeltaField], waits: Mapping[str, ParkedField]) -> Record:
    """The record with what the columns are in files: physical names by name, types by physical name."""
    stored = {f"name:{f.name}": f.physical for f in fields}
    stored |= {f"type:{f.physical}": json.dumps(bare(f.type)) for f in fields}
    stored |= {parked_key(place): parked_text(p.field, p.version) for place, p in waits.items()}
    used = {**record.numbers, **{f.physical: f.id for f in fields}}
    return replace(record, stored=stored, numbers=used)
