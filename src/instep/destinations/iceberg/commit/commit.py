"""One commit to an Iceberg table: it lands whole, once, under a fence, or not at all.

A table that is made by the commit of its first files: see iceberg/commit/deferred_create.py.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError, ValidationException
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import AssertCreate, AssertTableUUID, TableUpdate
from pyiceberg.table.update.snapshot import _OverwriteFiles, _SnapshotProducer
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from instep.destinations.base import Ref
from instep.destinations.iceberg.commit.fence import fence_requirements, fenced
from instep.destinations.iceberg.commit.position_deletes import Deletes, RowDelta
from instep.destinations.iceberg.commit.shard_table import ShardTable, let_go
from instep.destinations.iceberg.commit.snapshots import Append, Producer, Replaced, ReplaceFiles
from instep.destinations.iceberg.metadata.layout import check_rows, check_writable
from instep.destinations.iceberg.metadata.partition import carried
from instep.destinations.iceberg.metadata.shards import SHARD, totals
from instep.destinations.iceberg.metadata.updates import (
    ExpectedUpdates,
    applied,
    creation,
    no_metadata,
    set_properties,
    spec_is,
)
from instep.errors import Conflict, DestinationError
from instep.stage.files.place import disk_hint
from instep.stage.files.pyiceberg_code import load_file_io


class _Staged(Transaction):
    """A transaction that keeps its metadata: pyiceberg makes it anew a dozen times a commit."""

    _made: tuple[int, TableMetadata] = (-1, None)  # type: ignore[assignment]

    @property
    def table_metadata(self) -> TableMetadata:
        if self._made[0] != len(self._updates):
            self._made = (len(self._updates), applied(self._table.metadata, self._updates))
        return self._made[1]


class TableCommit:
    """Updates and requirements of one commit. It is tried once: a retry would rebase what was meant for one base."""

    def __init__(self, table: Table, created_by: tuple[TableUpdate, ...] = ()) -> None:
        self._table = table
        self._created_by = table.created_by if isinstance(table, DeferredTable) else created_by
        self._staged = _Staged(table)
        self._needs: tuple[Any, ...] = ()

    @property
    def metadata(self) -> TableMetadata:
        """The table's metadata with what is staged so far."""
        return self._staged.table_metadata

    @property
    def table(self) -> Table:
        return self._table

    @property
    def updates(self) -> tuple[TableUpdate, ...]:
        """Metadata updates that create or change the table."""
        return (*self._created_by, *self._staged._updates)

    def update(self, *updates: TableUpdate) -> None:
        self._staged._updates += updates

    def properties(self, properties: Mapping[str, str]) -> None:
        self.update(set_properties(properties))

    def require(self, *requirements: Any) -> None:
        """Add requirements on the newest metadata, beside the fence; several of one kind are all checked."""
        self._needs += requirements

    def append(self, files: Iterable[DataFile], summary: Mapping[str, str]) -> int:
        """Add data files; returns the id of the new snapshot."""
        files = list(files)
        if files:
            check_writable(self._table, self.metadata)
        start = Append(
            Operation.APPEND, self._staged, self._table.io, snapshot_properties=self._summary_with_shard(summary)
        )
        return self._snapshot(start, files)

    def replace(self, files: Iterable[DataFile], summary: Mapping[str, str]) -> int:
        """Replace all data files (of the shard, if the table is seen by one); return the id of the new snapshot."""
        if self.metadata.current_snapshot() is None:
            return self.append(files, summary)
        if isinstance(self._table, ShardTable):
            return self.exchange(files, self._table.replaced(), summary)
        check_writable(self._table, self.metadata)
        return self._snapshot(_ReplaceAll(self._staged, self._table, summary), files)

    def _summary_with_shard(self, summary: Mapping[str, str]) -> dict[str, str]:
        """Return the summary, with the shard whose rows are changed."""
        return {**summary, **marked(self._table)}

    def delta(self, files: Iterable[DataFile], deletes: Deletes, summary: Mapping[str, str]) -> int:
        """Add data files and delete files; returns the id of the new snapshot."""
        check_rows(self._table, self.metadata)
        return self._snapshot(RowDelta(self._staged, self._table, deletes, self._summary_with_shard(summary)), files)

    def exchange(
        self,
        files: Iterable[DataFile],
        replaced: Replaced,
        summary: Mapping[str, str],
        kind: type[ReplaceFiles] = ReplaceFiles,
    ) -> int:
        """Replace data files by ones that hold the same rows; return the id of the new snapshot."""
        check_rows(self._table, self.metadata)
        return self._snapshot(kind(self._staged, self._table, replaced, self._summary_with_shard(summary)), files)

    def _snapshot(self, producer: _SnapshotProducer[Any], files: Iterable[DataFile]) -> int:
        if isinstance(self._table, ShardTable):  # another shard's settings may have changed it
            self.require(spec_is(self._table.metadata.default_spec_id))
        with let_go(self._table), producer:
            for file in files:
                producer.append_data_file(file)
        return producer.snapshot_id

    def land(self, fence: int) -> Table:
        """Commit; raises Fenced if a later run has claimed the table, Conflict if it moved otherwise."""
        if isinstance(self._table, DeferredTable):
            return self.land_new()
        self._count()
        identity = AssertTableUUID(uuid=self._table.metadata.table_uuid)
        needs = (*fence_requirements(self._table, fence), identity, *self._staged._requirements, *self._needs)
        return self._commit(self._changes, needs)

    def land_claim(self, fence: int) -> Table:
        """Commit a claim: it needs no claim before it, only that nobody later has one."""
        self._count()
        identity = AssertTableUUID(uuid=self._table.metadata.table_uuid)
        own = (fenced(self._table, fence),) if isinstance(self._table.catalog, MetastoreCatalog) else ()
        return self._commit(self._changes, (*own, identity, *self._needs))

    def totals(self) -> dict[str, int]:
        """Return files, bytes and records with what is staged so far: see `shards.totals`."""
        self._count()
        return totals(json.loads(self.metadata.model_dump_json()))

    def _count(self) -> None:
        """Record the shard's files: a snapshot's summary has those of all shards."""
        if isinstance(self._table, ShardTable) and (totals := self._table.totals_after(self.metadata)):
            self.properties(totals)

    def land_new(self) -> Table:
        """Commit the creation of a table; raises Conflict if it exists already."""
        if not isinstance(self._table, DeferredTable):
            return self._create()
        self._table.leave()  # created or refused: from now on the catalog tells
        created = self._create()
        self._table.created()
        return created

    def _create(self) -> Table:
        return self._commit(ExpectedUpdates.of(self.updates, None, self.metadata), (AssertCreate(),))

    @property
    def _changes(self) -> ExpectedUpdates:
        return ExpectedUpdates.of(self._staged._updates, self._table.metadata, self.metadata)

    def _commit(self, updates: tuple[TableUpdate, ...], requirements: Sequence[Any]) -> Table:
        name = ".".join(self._table.name())
        try:
            self._table._do_commit(updates, tuple(requirements))
        except (CommitFailedException, ValidationException, NoSuchTableError, TableAlreadyExistsError) as error:
            self._discard()
            raise Conflict(f"table {name} moved under this run: {error}", hint="run the sync again") from error
        except Conflict:
            self._discard()
            raise
        except (OSError, sqlite3.Error, SQLAlchemyError) as error:
            why = error.orig if isinstance(error, DBAPIError) else error
            place = self._table.metadata.location
            raise DestinationError(
                f"table {name}: its metadata cannot be written to {place}: {why}",
                hint=(why and disk_hint(why)) or "check the disk and the permissions",
            ) from error
        return self._table

    def _discard(self) -> None:
        """Delete the manifests of a commit that is known not to have landed."""
        for producer in self._staged._snapshot_producers:
            producer._clean_all_uncommitted()


def marked(table: Table) -> dict[str, str]:
    """Return the mark in the summaries of a shard's snapshots."""
    return {SHARD: table.shard_key[1]} if isinstance(table, ShardTable) else {}


class _ReplaceAll(Producer, _OverwriteFiles):
    """A snapshot of the added files only; everything of its parent, delete files included, leaves with it. Files in
    partitions by what is no column any more leave without a word: nothing can be said of them."""

    def __init__(self, staged: Transaction, table: Table, summary: Mapping[str, str]) -> None:
        super().__init__(Operation.OVERWRITE, staged, table.io, snapshot_properties=dict(summary))
        parent = staged.table_metadata.current_snapshot()
        manifests = parent.manifests(table.io) if parent else []
        self._gone = [e for m in manifests for e in m.fetch_manifest_entry(table.io, discard_deleted=True)]
        self._deleted_data_files = {entry.data_file for entry in self._gone}

    def _existing_manifests(self) -> list[ManifestFile]:
        return []

    def _deleted_entries(self) -> list[ManifestEntry]:
        metadata = self._transaction.table_metadata
        schema, specs = metadata.schema(), metadata.specs()
        return [
            ManifestEntry.from_args(
                status=ManifestEntryStatus.DELETED,
                snapshot_id=self._snapshot_id,
                sequence_number=entry.sequence_number,
                file_sequence_number=entry.file_sequence_number,
                data_file=entry.data_file,
            )
            for entry in self._gone
            if entry.data_file.content == DataFileContent.DATA and carried(specs[entry.data_file.spec_id], schema)
        ]


def new_table(catalog: Catalog, ref: Ref, schema: Schema, location: str, properties: Mapping[str, str]) -> TableCommit:
    """Return the creation of a table, to be landed by `land_new`, with its first files if they are there already."""
    updates = creation(schema, location, properties)
    metadata = applied(no_metadata(), updates)
    io = load_file_io(properties=catalog.properties, location=location)
    return TableCommit(Table(ref, metadata, f"{location}/metadata", io, catalog), updates)


Updates = tuple[TableUpdate, ...]
Hook = Callable[[], None]


class DeferredTable(Table):
    """A table that no catalog has yet. `created_by` is what its first commit begins with; `leave` is to be called
    before that commit, `created` after it."""

    def __init__(self, table: Table, metadata: TableMetadata, updates: Updates, leave: Hook, created: Hook) -> None:
        """Take the metadata to which `updates` of the table `table` lead."""
        super().__init__(table.name(), metadata, table.metadata_location, table.io, table.catalog)
        self.created_by, self.leave, self.created = updates, leave, created
