"""The updates and requirements that our commits are made of, spelled once.

Metadata with updates, as pyiceberg makes them, without its copy of every snapshot of the table.

The copy takes 0.1 ms a snapshot, several times a commit. Metadata are never changed in place: what two have in common
they can share. These are private parts of pyiceberg; tests/destinations/test_iceberg_applied.py compares the result.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSortOrderUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertRefSnapshotId,
    AssignUUIDUpdate,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
    UpgradeFormatVersionUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
)
from pyiceberg.utils.datetime import datetime_to_millis

MAIN = MAIN_BRANCH
FORMAT_VERSION = 2
PROPERTIES: Mapping[str, str] = {
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    "write.delete.granularity": "file",
    "write.distribution-mode": "none",
    "write.delete.distribution-mode": "none",
    "write.update.distribution-mode": "none",
    "write.merge.distribution-mode": "none",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.parquet.compression-codec": "zstd",
    "commit.manifest-merge.enabled": "true",
    "commit.retry.num-retries": "0",
    "gc.enabled": "true",
}
"""Of every table of ours. Partition-granular delete files grow with every MERGE: never. Retries belong to us."""


def set_branch(name: str, snapshot: int) -> TableUpdate:
    return _set_ref(name, snapshot, SnapshotRefType.BRANCH)


def set_tag(name: str, snapshot: int) -> TableUpdate:
    return _set_ref(name, snapshot, SnapshotRefType.TAG)


def _set_ref(name: str, snapshot: int, kind: SnapshotRefType) -> TableUpdate:
    return SetSnapshotRefUpdate.model_validate({"ref-name": name, "snapshot-id": snapshot, "type": kind})


def remove_ref(name: str) -> TableUpdate:
    return RemoveSnapshotRefUpdate.model_validate({"ref-name": name})


def set_properties(properties: Mapping[str, str]) -> TableUpdate:
    return SetPropertiesUpdate(updates=dict(properties))


def remove_properties(*names: str) -> TableUpdate:
    return RemovePropertiesUpdate(removals=list(names))


def set_schema(schema: Schema) -> tuple[TableUpdate, ...]:
    """Add a schema that the table never had, and make it the current one."""
    return AddSchemaUpdate(schema=schema), set_current_schema(-1)


def set_current_schema(id: int) -> TableUpdate:
    """Make a schema of the table the current one; -1: the one that was added last."""
    return SetCurrentSchemaUpdate.model_validate({"schema-id": id})


def ref_is(name: str, snapshot: int | None) -> AssertRefSnapshotId:
    """Return the branch or tag stands on this snapshot; None: it is not there."""
    return AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": snapshot})


def schema_is(schema_id: int, last_column_id: int) -> tuple[AssertCurrentSchemaId, AssertLastAssignedFieldId]:
    """Require that no other schema change has been committed."""
    return (
        AssertCurrentSchemaId.model_validate({"current-schema-id": schema_id}),
        AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": last_column_id}),
    )


def spec_is(spec_id: int) -> AssertDefaultSpecId:
    """Require that new files still belong under this partition spec."""
    return AssertDefaultSpecId.model_validate({"default-spec-id": spec_id})


def creation(schema: Schema, location: str, properties: Mapping[str, str]) -> tuple[TableUpdate, ...]:
    """Return a table from nothing, with the field ids of `schema`: pyiceberg's own way would number them again."""
    return (
        AssignUUIDUpdate(uuid=uuid.uuid4()),
        UpgradeFormatVersionUpdate.model_validate({"format-version": FORMAT_VERSION}),
        *set_schema(schema),
        AddPartitionSpecUpdate(spec=UNPARTITIONED_PARTITION_SPEC),
        SetDefaultSpecUpdate.model_validate({"spec-id": -1}),
        AddSortOrderUpdate.model_validate({"sort-order": UNSORTED_SORT_ORDER}),
        SetDefaultSortOrderUpdate.model_validate({"sort-order-id": -1}),
        SetLocationUpdate(location=location),
        set_properties({**PROPERTIES, **properties}),
    )


def no_metadata() -> TableMetadata:
    """Return the metadata from which a table's creation starts. pyiceberg makes it each time, at a tenth of the cost
    of a table."""
    return _no_metadata().model_copy(deep=True)


@cache
def _no_metadata() -> TableMetadata:
    return MetastoreCatalog._empty_table_metadata()


class ExpectedUpdates(tuple[TableUpdate, ...]):
    """Updates whose `result` is known if they are applied to the metadata `base`, or to none."""

    base: TableMetadata | None
    result: TableMetadata

    @classmethod
    def of(cls, updates: Iterable[TableUpdate], base: TableMetadata | None, result: TableMetadata) -> ExpectedUpdates:
        expected = cls(updates)
        expected.base, expected.result = base, result
        return expected


def expected_result(updates: Iterable[TableUpdate], base: TableMetadata | None, location: str) -> TableMetadata | None:
    """Return what `applied` would make of these updates, if that is known of this very base."""
    if not isinstance(updates, ExpectedUpdates) or updates.base is not base:
        return None
    if base is None or updates.result is base or not location:
        return updates.result
    return _update_table_metadata_log(updates.result, location, base.last_updated_ms)


def applied(base: TableMetadata, updates: Iterable[TableUpdate], location: str = "") -> TableMetadata:
    """Return the metadata with these updates; `location` is the file of `base`, for their log of earlier files."""
    context, result = _TableMetadataUpdateContext(), base
    for update in updates:
        result = _apply_table_update(update, result, context)
    if context.has_changes():
        if location:
            result = _update_table_metadata_log(result, location, base.last_updated_ms)
        if result.last_updated_ms == base.last_updated_ms:
            result = result.model_copy(update={"last_updated_ms": datetime_to_millis(datetime.now(UTC))})
    result.spec().check_compatible(result.schema())
    result.sort_order().check_compatible(result.schema())
    return result
