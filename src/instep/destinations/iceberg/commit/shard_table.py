"""An Iceberg table as one shard has it: its files, its records, its fence. Its commits touch nothing of the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate

from instep.destinations.iceberg.commit.snapshots import Replaced
from instep.destinations.iceberg.metadata.files import iceberg_schema
from instep.destinations.iceberg.metadata.partition import check_apart
from instep.destinations.iceberg.metadata.records import current_fields, load_is_gone, read_table
from instep.destinations.iceberg.metadata.shards import (
    PLACE,
    TOTALS,
    ShardKey,
    as_shard,
    grown,
    own_name,
    totals,
)
from instep.destinations.shared import TRIES, wait
from instep.errors import Conflict, DestinationError, Fenced

if TYPE_CHECKING:
    pass


T = TypeVar("T")


class ShardTable(Table):
    """`shard_key`: the shard column and the shard. Metadata is the whole table's, with the shard's own properties under
    the names that they have in any table."""

    def __init__(self, table: Table, key: ShardKey) -> None:
        super().__init__(
            table._identifier, table.metadata, table.metadata_location, table.io, table.catalog, table.config
        )
        self.shard_key = key
        self._project()

    def _project(self) -> None:
        properties = as_shard(self.metadata.properties, self.shard_key)
        if properties is None:
            raise DestinationError(f"table {'.'.join(self.name())} has no shard {self.shard_key[1]}", hint="plan again")
        check_apart(".".join(self.name()), self.metadata, self.shard_key[0])
        self.metadata = self.metadata.model_copy(update={"properties": properties})

    def refresh(self) -> Table:
        super().refresh()
        self._project()
        return self

    def _do_commit(self, updates: tuple[TableUpdate, ...], requirements: tuple[Any, ...]) -> None:
        recorded = tuple(self._recorded(update) for update in updates)
        response = self.catalog.commit_table(self, requirements, recorded)
        old = self.metadata
        self._check_uuid(old, response.metadata)
        self.metadata, self.metadata_location = response.metadata, response.metadata_location
        self._project()
        self._forget(old)

    def _forget(self, old: TableMetadata) -> None:
        """Delete metadata files that the table lists no more; another shard's commit may have done so."""
        if self.metadata.properties.get("write.metadata.delete-after-commit.enabled") != "true":
            return
        for file in {e.metadata_file for e in old.metadata_log} - {e.metadata_file for e in self.metadata.metadata_log}:
            with suppress(OSError):
                self.io.delete(file)

    def _recorded(self, update: TableUpdate) -> TableUpdate:
        """Return the update with the shard's own properties under the names that they have in the table's metadata."""
        shard = self.shard_key[1]
        if isinstance(update, SetPropertiesUpdate):
            return SetPropertiesUpdate(updates={own_name(shard, k): v for k, v in update.updates.items()})
        if isinstance(update, RemovePropertiesUpdate):
            return RemovePropertiesUpdate(removals=[own_name(shard, k) for k in update.removals])
        return update

    def scan(self, row_filter: str | BooleanExpression = AlwaysTrue(), *args: Any, **options: Any) -> DataScan:  # noqa: B008
        """Return rows of the shard only, from files of its partitions only."""
        assert not isinstance(row_filter, str), "filters of ours are expressions"
        column, shard = self.shard_key
        in_shard = EqualTo(term=Reference(column), value=literal(shard))
        return super().scan(And(in_shard, row_filter), *args, **options)

    def tasks(self) -> list[FileScanTask]:
        """Return the shard's files; DestinationError if one of them may have rows of others."""
        with let_go(self):
            own_tasks = _plan(self)
        if odd := next((t.file.file_path for t in own_tasks if not self.has(t.file)), ""):
            raise DestinationError(
                f"table {'.'.join(self.name())} has a file with rows of several shards, which another program has "
                f"written: {odd}",
                hint="write its files again by the partition spec of the table",
            )
        return own_tasks

    def as_it_was(self) -> ShardTable:
        """Return the table as it is now; Conflict unless the shard has the files and the columns that it had."""
        now = ShardTable(self.catalog.load_table(self._identifier), self.shard_key)
        if now.own_schema().fields != self.own_schema().fields or _listed(now) != _listed(self):
            raise Conflict(f"table {'.'.join(self.name())} moved under this run", hint="run the sync again")
        return now

    def replaced(self) -> Replaced:
        """Return all of the shard's files, with the delete files that are about no others."""
        tasks = self.tasks()
        deletes = {d.file_path: d for t in tasks for d in t.delete_files if self.has(d)}
        return Replaced([t.file for t in tasks], list(deletes.values()))

    def has(self, file: DataFile) -> bool:
        """Return whether a file, or delete file, belongs to the shard."""
        return shard_of(file, self.metadata, self.shard_key[0]) == self.shard_key[1]

    def own_schema(self) -> Schema:
        """Return the schema of the shard's staged files: its own columns, as they are stored."""
        metadata = json.loads(self.metadata.model_dump_json())
        fields = {f.name: f for f in current_fields(metadata)}
        own = read_table((self._identifier[0], self._identifier[-1]), metadata)
        return iceberg_schema([fields[c.name] for c in own.columns], self.metadata.current_schema_id)

    def totals_after(self, staged: TableMetadata) -> dict[str, str]:
        """Return the record of the shard's files in a commit that leads to `staged`; nothing if it makes no
        snapshot."""
        now, before = staged.current_snapshot(), self.metadata.current_snapshot()
        if now is None or (before is not None and now.snapshot_id == before.snapshot_id):
            return {}
        summaries, at = [], staged.current_snapshot()
        while at is not None and (before is None or at.snapshot_id != before.snapshot_id):
            summaries.append(at.summary.additional_properties if at.summary else {})
            parent = at.parent_snapshot_id
            at = staged.snapshot_by_id(parent) if parent is not None else None
        return {TOTALS: json.dumps(grown(self._totals(), summaries))}

    def _totals(self) -> dict[str, int]:
        """Return the shard's totals now: counted where somebody has restored the table to before its last load."""
        metadata = json.loads(self.metadata.model_dump_json())
        if not load_is_gone(metadata):
            return totals(metadata)
        tasks = self.tasks()
        files = {f.file_path: f for t in tasks for f in (t.file, *t.delete_files)}.values()
        gone = [f for f in files if f.content != DataFileContent.DATA]
        return {
            "records": sum(t.file.record_count for t in tasks),
            "data-files": len(tasks),
            "files-size": sum(f.file_size_in_bytes for f in files),
            "delete-files": len(gone),
            "position-deletes": sum(f.record_count for f in gone),
        }


@contextmanager
def let_go(table: Table) -> Iterator[None]:
    """Raise Conflict where another shard's maintenance has let go of the snapshot that is looked at."""
    try:
        yield
    except FileNotFoundError as error:
        if not isinstance(table, ShardTable):
            raise
        raise Conflict(f"table {'.'.join(table.name())} moved under this run", hint="run the sync again") from error


def _listed(table: ShardTable) -> set[tuple[str, ...]]:
    return {(t.file.file_path, *sorted(d.file_path for d in t.delete_files)) for t in table.tasks()}


def land(table: Table, commit: Callable[[Table], T]) -> T:
    """Commit and return the result. A shard's commit is repeated on top of others' commits, as long as its own files
    are unchanged."""
    for number in range(1, TRIES + 1):
        try:
            return commit(table)
        except Conflict as error:
            if number == TRIES or isinstance(error, Fenced) or not isinstance(table, ShardTable):
                raise
        wait(number)
        table = table.as_it_was()
    raise AssertionError("the last attempt answers or raises")


def shard_of(file: DataFile, metadata: TableMetadata, column: str) -> str | None:
    """Return the shard that all rows of a file are of; None if its partition does not tell."""
    spec, source = metadata.specs()[file.spec_id], metadata.schema().find_field(column).field_id
    at = next((n for n, f in enumerate(spec.fields) if f.source_id == source), None)
    return None if at is None else str(file.partition[at])


def own_data(table: Table) -> str:
    """Return where files of a table, or of the shard that it is seen by, are written."""
    place = table.metadata.properties.get(PLACE)
    return f"{table.location()}/data/{place}" if place else f"{table.location()}/data"


def own_quarantine(table: Table) -> str:
    """Return where held values of a table are written, or of the shard that it is seen by."""
    place = table.metadata.properties.get(PLACE)
    return f"{table.location()}/quarantine/{place}" if place else f"{table.location()}/quarantine"


def staged_schema(table: Table) -> Schema | None:
    """Return the schema of staged files; None for all of the table's columns."""
    return table.own_schema() if isinstance(table, ShardTable) else None


def planned(table: Table) -> Sequence[FileScanTask]:
    """Return the files of the table, or of the shard that it is seen by."""
    return table.tasks() if isinstance(table, ShardTable) else _plan(table)


def _plan(table: Table) -> list[FileScanTask]:
    try:
        return list(table.scan().plan_files())
    except (ValueError, NotImplementedError) as error:
        if "equality deletes" not in str(error):
            raise
        raise DestinationError(
            f"table {'.'.join(table.name())} has deletes by value (equality deletes), which another program has "
            "written and which cannot be read here",
            hint="have that program apply them (in Spark: CALL system.rewrite_data_files), then run this again",
        ) from error
