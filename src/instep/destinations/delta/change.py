"""The next version of a table: one commit of its log, with our record in it."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from instep.crash import crashpoint
from instep.destinations.base import Commit
from instep.destinations.delta.protocol import records as record_files
from instep.destinations.delta.protocol.log import EVERY
from instep.destinations.delta.protocol.records import APP
from instep.destinations.delta.protocol.snapshot import READABLE, Action, DeltaSnapshot
from instep.destinations.delta.shape import DeltaField, features, fields_of, from_json, schema_string
from instep.destinations.delta.table_state import HIGHEST, PART, DeltaTableState, named, state_at
from instep.destinations.delta.warehouse import Warehouse, now_ms
from instep.destinations.parts import RewriteArea
from instep.destinations.sql.records import Parked, Record, dump
from instep.errors import Conflict, DestinationError, InstepError
from instep.schema.maintenance import DAY_MS

WRITABLE = READABLE | {"domainMetadata", "appendOnly", "invariants", "inCommitTimestamp"}
WIDENING = "delta.enableTypeWidening"
FILES_STAY = "delta.deletedFileRetentionDuration"
_UNITS = {"millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": DAY_MS, "week": 7 * DAY_MS}
_PART = re.compile(r"(\d+)\s+(" + "|".join(_UNITS) + r")s?(?:\s+|$)")
ENGINE = "instep"
OWN_FILES = "-rewrite-"
"""Text after the run in the names of files that were written for a commit of it, not staged for a load."""
TOMBSTONE_DAYS = 30
"""The time for which checkpoints name removed files after these may be deleted."""
MOST_FILES = 32
"""Files that the records of a table lie in, until a commit writes all of them into one."""


def check_writable(state: DeltaTableState) -> None:
    """Raise DestinationError if another program has asked writers for what this one does not do."""
    odd = sorted(set(state.snapshot.protocol.get("writerFeatures") or ()) - WRITABLE)
    if state.configuration.get("delta.appendOnly", "").casefold() == "true":
        odd.append("appendOnly")
    if "delta.invariants" in state.snapshot.metadata["schemaString"]:
        odd.append("invariants")
    if "delta.setTransactionRetentionDuration" in state.configuration:  # the log would forget where our records are
        odd.append("setTransactionRetentionDuration")
    if odd:
        raise DestinationError(
            f"table {named(state.ref)} asks its writers for {', '.join(odd)}, which this version does not do",
            hint="another program has switched it on: switch it off there, then run this again",
        )


def file_days(warehouse: Warehouse) -> str:
    """Return how long other programs have to leave files that were removed."""
    return f"interval {max(int(warehouse.days), 1)} days"


def retention(state: DeltaTableState, name: str, ours: str = "") -> int:
    """Return the milliseconds that somebody has set as a property of the table; 0 for what we have set ourselves.
    DestinationError for what is no interval: nothing is deleted before its time."""
    text = state.configuration.get(name, ours)
    if text == ours:
        return 0
    parts = re.sub(r"^interval\s+", "", text.strip().casefold())
    if not parts or _PART.sub("", parts):
        raise DestinationError(
            f"table {named(state.ref)}: its property {name} is {text!r}, which is not an interval",
            hint="set it to one such as `interval 1 week 2 days`",
        )
    return sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(parts))


def files_stay(warehouse: Warehouse, state: DeltaTableState) -> int:
    """Return how many milliseconds removed files are retained."""
    return max(int(warehouse.days * DAY_MS), retention(state, FILES_STAY, file_days(warehouse)))


@dataclass
class DeltaCommit:
    """The next version of a table. `fields`: its columns, if they change; `add` are actions, `remove` paths.
    `keeps_rows`: they hold the same rows. `records`: more records of ours, by name. `by`: its partition columns, if
    they become other ones. `blind`: the rows that come do not depend on those that are there. `parts`: where files were
    rewritten in parts."""

    state: DeltaTableState
    record: Record
    fields: Sequence[DeltaField] | None = None
    add: list[Action] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    keeps_rows: bool = False
    records: dict[str, str] = field(default_factory=dict)
    by: Sequence[DeltaField] | None = None
    blind: bool = False
    parts: RewriteArea | None = None

    def land(self, operation: str, commit: Commit, warehouse: Warehouse) -> int:
        """Write it, or raises, and takes the files away that were written for it: Fenced if a later run has the table,
        Conflict if anything else has changed it."""
        try:
            version = self._land(operation, commit, warehouse)
        except Conflict:
            with suppress(OSError, InstepError):
                if (newest := self.state.log.snapshot()) is not None:
                    self._remove_added(commit.run, self.state.snapshot, newest)
            raise
        if self.parts is not None:
            self.parts.clear([file["path"] for file in self.add])
        return version

    def _remove_added(self, run: str, *snapshots: DeltaSnapshot) -> None:
        """Delete the files that this run has written for a version, except those that the log knows: a store's client
        that has lost an answer asks again, and is refused for what it has made itself."""
        referenced = {path for s in snapshots for path in (*s.files, *s.tombstones)}
        for path in (unquote(file["path"]) for file in self.add):
            if path.rpartition("/")[2].startswith(f"{run}{OWN_FILES}") and path not in referenced:
                with suppress(OSError, InstepError):
                    (self.state.folder / path).unlink(missing_ok=True)

    def _land(self, operation: str, commit: Commit, warehouse: Warehouse) -> int:
        self.state.record.check(commit.fence)
        check_writable(self.state)
        crashpoint("delta.commit.before")
        while True:
            log, changed = self.state.log, self._changed_records()
            number = record_files.write(log.table, changed) if changed else 0
            crashpoint("delta.recorded")
            if log.put(
                version := self.state.snapshot.version + 1, [*self._actions(operation, commit, changed, number)]
            ):
                break
            # what others have committed meanwhile comes first, if it leaves this shard as it was; else Conflict
            was = self.state
            now = state_at(log, was.ref, log.snapshot(), was.record.within)
            if now is not None:
                now.record.check(commit.fence)
            if now is None or not _is_beside(was, now):
                raise Conflict(f"table {named(was.ref)} was changed by somebody else meanwhile", hint="run this again")
            self.state, self.record = now, replace(self.record, parked=_counted(self.record, was.record, now.record))
        # the commit is there, whatever the disk, or what others have written, says to this
        with suppress(OSError, InstepError, ValueError, TypeError, pa.ArrowException):
            self._checkpoint(version, warehouse)
        return version

    def _changed_records(self) -> dict[str, str]:
        """Return the records that the commit changes, by name; all of them once they lie in many files."""
        before, numbers = self.state.snapshot.records, {*self.state.snapshot.record_numbers.values()}
        changed = {n: text for n, text in {**self._recorded(), **self.records}.items() if before.get(n) != text}
        return {**before, **changed} if changed and len(numbers) >= MOST_FILES else changed

    def _actions(self, operation: str, commit: Commit, changed: Iterable[str], number: int) -> Iterator[Action]:
        at, before = now_ms(), self.state.snapshot
        yield {"commitInfo": {**self._time(at), **self._info(operation, commit, at)}}
        metadata = next_metadata(before.metadata, self.record, self.fields, self.by)
        protocol = next_protocol(before.protocol, fields_of(metadata))
        if protocol != before.protocol:
            yield {"protocol": protocol}
        if metadata != before.metadata:
            yield {"metaData": metadata}
        for name in changed:
            yield {"txn": {"appId": name, "version": number, "lastUpdated": at}}
        for old in before.files.of_paths(self.remove):
            yield {
                "remove": {
                    "path": old["path"],
                    "deletionTimestamp": at,
                    "dataChange": not self.keeps_rows,
                    "extendedFileMetadata": True,
                    "partitionValues": old.get("partitionValues") or {},
                    "size": old["size"],
                    **{name: old[name] for name in ("tags", "deletionVector") if name in old},
                }
            }
        for file in self.add:
            yield {"add": file}

    def _recorded(self) -> dict[str, str]:
        whole = self.state.whole
        if whole is None:
            return recorded(self.record)
        return recorded(replace(whole.merge_shard(self.record), version=whole.version))

    def _time(self, at: int) -> Action:
        """Return the time of the commit (milliseconds since 1970), where the log has to say it: later than the last
        one."""
        if self.state.configuration.get("delta.enableInCommitTimestamps", "").casefold() != "true":
            return {}
        last = 0
        with suppress(FileNotFoundError):
            for action in self.state.log.actions(self.state.snapshot.version):
                last = max(last, int((action.get("commitInfo") or {}).get("inCommitTimestamp", 0)))
        return {"inCommitTimestamp": max(at, last + 1)}

    def _info(self, operation: str, commit: Commit, at: int) -> Action:
        info: dict[str, object] = {"run": commit.run, "fence": commit.fence, "cursor": commit.cursor}
        info |= {"accepted": commit.accepted, "data": bool(self.add or self.remove) and not self.keeps_rows}
        return {
            "timestamp": at,
            "operation": operation,
            "operationParameters": {},
            "engineInfo": ENGINE,
            "isBlindAppend": self.blind,
            "userMetadata": json.dumps(info),
        }

    def _checkpoint(self, version: int, warehouse: Warehouse) -> None:
        """Write a checkpoint where one is due. Readers start from it; a table without it is correct as well."""
        every = max(int(self.state.configuration.get("delta.checkpointInterval", EVERY)), 1)
        if version and version % every == 0 and (snapshot := self.state.log.snapshot(version)):
            now = replace(self.state, snapshot=snapshot)
            self.state.log.checkpoint(snapshot, now_ms() - files_stay(warehouse, now) - TOMBSTONE_DAYS * DAY_MS)


def _is_beside(was: DeltaTableState, now: DeltaTableState) -> bool:
    """Return whether only other shards have changed a table."""
    same = (was.snapshot.metadata, was.snapshot.protocol) == (now.snapshot.metadata, now.snapshot.protocol)
    record = replace(was.record, parked=()) == replace(now.record, parked=())
    return was.whole is not None and same and record and was.own.ids == now.own.ids


def _counted(own: Record, was: Record, now: Record) -> tuple[Parked, ...]:
    """Return the dropped columns as they are now, with the rows that this commit adds to those without a value."""
    before = {p.place: p.written for p in was.parked}
    added = {p.place: p.written - before.get(p.place, 0) for p in own.parked}
    return tuple(replace(p, written=p.written + added.get(p.place, 0)) for p in now.parked)


def recorded(record: Record) -> dict[str, str]:
    """Return our records by name. Each shard has its own, so that a commit states only what is new."""
    parts = json.loads(dump(record))["parts"] if record.parts else {}
    texts = {f"{PART}{name}": json.dumps(p, separators=(",", ":"), ensure_ascii=False) for name, p in parts.items()}
    return {APP: f'{{"fence":{record.fence},"record":{dump(replace(record, parts={}))}}}', **texts}


def next_metadata(
    before: Action, record: Record, fields: Sequence[DeltaField] | None, by: Sequence[DeltaField] | None = None
) -> Action:
    """Return the table's metadata with these columns and the comment of the record; partitions follow their columns."""
    out = {**before, "name": record.table.name}
    if by is not None:
        out["partitionColumns"] = [f.name for f in by]
    elif fields is not None:
        was, now = {f.name: f.physical for f in fields_of(before)}, {f.physical: f.name for f in fields}
        out["partitionColumns"] = [now[was[name]] for name in before.get("partitionColumns") or ()]
    if fields is not None:
        config = dict(before.get("configuration") or {})
        highest = max([int(config.get(HIGHEST, 0)), *(_highest(f) for f in fields)])
        widened = {WIDENING: "true"} if "typeWidening" in features(fields) else {}
        out |= {"schemaString": schema_string(fields), "configuration": {**config, **widened, HIGHEST: str(highest)}}
        out.pop("description", None)
        if record.table.comment:
            out["description"] = record.table.comment
    return out


def _highest(column: DeltaField) -> int:
    return max(column.id, _inner(column.type))


def _inner(stored: Any) -> int:
    if isinstance(stored, str):
        return 0
    if stored["type"] == "array":
        return _inner(stored["elementType"])
    return max((_highest(from_json(f)) for f in stored.get("fields", ())), default=0)


def next_protocol(before: Action, fields: Sequence[DeltaField]) -> Action:
    """Return the protocol with every feature that the fields need; features are switched on when first needed, and
    never off."""
    needed = features(fields)
    readers = [*before.get("readerFeatures", ())]
    writers = [*before.get("writerFeatures", ())]
    readers += [f for f in needed if f not in readers]
    writers += [f for f in needed if f not in writers]
    return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": readers, "writerFeatures": writers}


def begin(
    warehouse: Warehouse,
    record: Record,
    fields: Sequence[DeltaField],
    commit: Commit,
    by: Sequence[DeltaField],
    files: Sequence[Action] = (),
) -> bool:
    """Make a table, partitioned by some of its columns; False if one is there."""
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "partitionColumns": [],
        "createdTime": now_ms(),
        "configuration": {
            "delta.columnMapping.mode": "name",
            FILES_STAY: file_days(warehouse),
            HIGHEST: "0",
        },
    }
    empty = DeltaSnapshot(-1, {**metadata, "schemaString": '{"type":"struct","fields":[]}'}, {})
    log = warehouse.make(record.ref)
    change = DeltaCommit(DeltaTableState(log, empty, replace(record, fence=0)), record, fields, [*files], by=by)
    change.records |= warehouse.name_record(record.ref)
    if log.snapshot() is not None:
        return False
    try:
        change.land("CREATE TABLE", commit, warehouse)
    except Conflict:
        return False
    return True
