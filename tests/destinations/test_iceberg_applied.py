"""Metadata with updates: what pyiceberg's own function makes of them, without its copies."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, RemoveSnapshotsUpdate, TableUpdate, update_table_metadata
from pyiceberg.types import LongType, NestedField, StringType

from instep.destinations.iceberg.metadata.updates import (
    ExpectedUpdates,
    applied,
    creation,
    expected_result,
    no_metadata,
    set_branch,
    set_properties,
)

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "v", StringType(), required=False))


def snapshot(number: int) -> Snapshot:
    return Snapshot(
        snapshot_id=number,
        parent_snapshot_id=number - 1 or None,
        sequence_number=number,
        timestamp_ms=2_000_000_000_000 + number,
        manifest_list=f"/lake/{number}.avro",
        summary=Summary(Operation.APPEND),
        schema_id=0,
    )


@pytest.fixture
def base() -> TableMetadata:
    made = update_table_metadata(no_metadata(), creation(SCHEMA, "/lake/t", {}), enforce_validation=True)
    return update_table_metadata(made, (*added(1), *added(2)), metadata_location="/lake/t/metadata/1.json")


def added(number: int) -> tuple[TableUpdate, ...]:
    return (AddSnapshotUpdate(snapshot=snapshot(number)), set_branch("main", number))


@pytest.mark.parametrize(
    "updates",
    [
        (),
        (set_properties({"a": "b"}),),
        added(3),
        (*added(3), set_branch("main", 3), set_properties({"c": "d"})),
        (RemoveSnapshotsUpdate(snapshot_ids=[1]),),
    ],
    ids=["nothing", "properties", "a snapshot", "several", "a snapshot goes"],
)
@pytest.mark.parametrize("location", ["", "/lake/t/metadata/2.json"])
def test_the_result_is_pyicebergs(base: TableMetadata, updates: tuple[TableUpdate, ...], location: str) -> None:
    before = base.model_dump_json()
    ours = applied(base, updates, location)
    assert told(ours) == told(update_table_metadata(base, updates, metadata_location=location or None))
    assert base.model_dump_json() == before
    gone = any(isinstance(update, RemoveSnapshotsUpdate) for update in updates)
    assert gone or ours.snapshots[0] is base.snapshots[0]


def told(metadata: TableMetadata) -> dict[str, Any]:
    """All but when it was made."""
    return {key: value for key, value in metadata.model_dump().items() if key != "last-updated-ms"}


def test_a_new_table_is_what_pyiceberg_validates() -> None:
    updates = (*creation(SCHEMA, "/lake/t", {"a": "b"}), *added(1))
    empty = no_metadata()
    ours, theirs = applied(empty, updates), update_table_metadata(no_metadata(), updates, enforce_validation=True)
    assert type(ours) is type(theirs)
    assert told(ours) == told(theirs)
    assert empty.model_dump_json() == no_metadata().model_dump_json()


@pytest.mark.parametrize("location", ["/lake/t/metadata/2.json", ""])
def test_a_result_that_is_known_is_taken_for_its_base_alone(base: TableMetadata, location: str) -> None:
    updates = (*added(3), set_properties({"c": "d"}))
    expected = ExpectedUpdates.of(updates, base, applied(base, updates))
    found = expected_result(expected, base, location)
    assert found is not None
    assert told(found) == told(applied(base, updates, location or ""))
    assert expected_result(expected, base.model_copy(), location) is None
    assert expected_result(updates, base, location) is None
    assert tuple(expected) == updates
