"""Fences: the latest claim of a table, recorded in its metadata and checked by each commit.

Catalogs that pyiceberg commits to itself (SQLite and other databases, Glue, Hive) validate our own requirement
on the newest metadata, then swap it in. A REST server knows only its own requirements: there the claim is also
a tag that the holder's commits need and the next claim takes away.
"""

from __future__ import annotations

from typing import Any, Literal

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate, ValidatableTableRequirement

from instep.destinations.iceberg.metadata.records import FENCE
from instep.destinations.iceberg.metadata.shards import own_name, shape_of, shard_key_of
from instep.destinations.iceberg.metadata.updates import ref_is, remove_ref, set_properties, set_tag
from instep.destinations.shared import ShardSchemaChanged
from instep.errors import Fenced

TAG = "instep-fence-"


def claimed_fence(metadata: TableMetadata, shard: str = "") -> int:
    """Return the fence of the latest claim, of one `shard` of a whole table if it is named; 0 for a table that was
    never claimed."""
    return int(metadata.properties.get(own_name(shard, FENCE) if shard else FENCE, "0"))


def check_fence(metadata: TableMetadata, fence: int, table: str, shard: str = "") -> None:
    """Raise Fenced if a later run holds the table."""
    if (current := claimed_fence(metadata, shard)) > fence:
        raise Fenced(
            f"table {table} was claimed by a later run (fence {current}, ours is {fence}): nothing was written"
        )


class AssertFence(ValidatableTableRequirement):
    """Requirement that no later run has claimed the table. Raises Fenced, which no retry loop swallows."""

    type: Literal["assert-instep-fence"] = "assert-instep-fence"
    fence: int
    table: str
    shard: str = ""

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        if base_metadata is not None:
            check_fence(base_metadata, self.fence, self.table, self.shard)


def fence_requirements(table: Table, fence: int) -> tuple[Any, ...]:
    """Return the requirements of a commit under `fence` on the newest metadata."""
    name = ".".join(table.name())
    check_fence(table.metadata, fence, name)
    if isinstance(table.catalog, MetastoreCatalog):
        return (fenced(table, fence),)
    tag = f"{TAG}{fence}"
    if reference := table.metadata.refs.get(tag):
        return (ref_is(tag, reference.snapshot_id),)
    if any(ref.startswith(TAG) for ref in table.metadata.refs):
        raise Fenced(f"table {name} is claimed by another run: its claim is a tag of the table")
    return ()


def fenced(table: Table, fence: int) -> AssertFence:
    """Require that no later run has claimed the table, or the shard by which it is seen."""
    within = shard_key_of(table.metadata.properties)
    return AssertFence(fence=fence, table=".".join(table.name()), shard=within[1] if within else "")


class AssertShape(ValidatableTableRequirement):
    """Requirement that no shard has changed the schema of a shared table since the plan was made."""

    type: Literal["assert-instep-shape"] = "assert-instep-shape"
    shape: int
    table: str

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        if base_metadata is not None and shape_of(base_metadata.properties) != self.shape:
            raise ShardSchemaChanged(self.table)


def claim_updates(table: Table, now: TableMetadata, fence: int) -> tuple[list[TableUpdate], list[Any]]:
    """Return the claim itself; `now` is the metadata that it makes. Of two that claim at once one lands, the other
    finds its requirement broken."""
    updates: list[TableUpdate] = [set_properties({FENCE: str(fence)})]
    if isinstance(table.catalog, MetastoreCatalog):
        return updates, []
    needs: list[Any] = []
    for ref, reference in table.metadata.refs.items():
        if ref.startswith(TAG) and ref != f"{TAG}{fence}":
            updates.append(remove_ref(ref))
            needs.append(ref_is(ref, reference.snapshot_id))
    if (snapshot := now.current_snapshot()) and f"{TAG}{fence}" not in table.metadata.refs:
        updates.append(set_tag(f"{TAG}{fence}", snapshot.snapshot_id))
        needs.append(ref_is(f"{TAG}{fence}", None))
    return updates, needs
