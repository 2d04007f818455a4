"""Executes the steps of one table: one commit for its columns, a rename for its name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table as IcebergTable

from instep.destinations.base import Commit, FileWorkers, Ref
from instep.destinations.iceberg.commit.commit import TableCommit, new_table
from instep.destinations.iceberg.commit.deferred_create import create_deferred, deferred_location, wait_for_rows
from instep.destinations.iceberg.commit.fence import AssertFence, AssertShape, check_fence
from instep.destinations.iceberg.evolve.rewrite_column import rewritten
from instep.destinations.iceberg.evolve.schema_update import as_stored, check_equal, evolve, first_fields
from instep.destinations.iceberg.evolve.undo import (
    DROPPED,
    UNDO,
    dropped_fields,
    expired,
    now_ms,
    parked,
    purge,
    remember,
    remember_tag,
)
from instep.destinations.iceberg.metadata.catalog import Lake
from instep.destinations.iceberg.metadata.files import iceberg_schema
from instep.destinations.iceberg.metadata.layout import (
    guards,
    is_done,
    lay_out,
    remaining_identifiers,
    unsorted_without,
)
from instep.destinations.iceberg.metadata.partition import partitioned_by
from instep.destinations.iceberg.metadata.records import (
    ACCEPTED,
    CHANGES,
    FENCE,
    MOST_CHANGES,
    RUN,
    PendingReplacement,
    changes_done,
    current_fields,
    pending_property,
    read_pending,
    read_table,
    table_properties,
)
from instep.destinations.iceberg.metadata.schema import IcebergField, highest_id, is_stored_as
from instep.destinations.iceberg.metadata.shards import part_properties, shape_of, shards_of
from instep.destinations.iceberg.metadata.updates import (
    FORMAT_VERSION,
    MAIN,
    PROPERTIES,
    ref_is,
    remove_properties,
    remove_ref,
    schema_is,
    set_current_schema,
    set_schema,
    set_tag,
)
from instep.destinations.shared import ShardSchemaChanged, retry_commit
from instep.errors import Conflict, DestinationError, IllegalChange
from instep.schema.catalog.catalog import Table
from instep.schema.catalog.layout import PartitionTerm
from instep.schema.changes.describe import TableAdded, TableRemoved, TableRenamed, TableReplaced
from instep.schema.planning.guard import first_violation, free, uses
from instep.schema.planning.step import Step

if TYPE_CHECKING:
    from instep.destinations.iceberg.metadata.records import Metadata


def execute(
    lake: Lake, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit, workers: FileWorkers
) -> None:
    """Execute all steps of one table; steps that a crashed run has done already are skipped."""
    if commit.part is None:
        return _execute(lake, ref, steps, after, commit, workers)
    return retry_commit(lambda: _execute(lake, ref, steps, after, commit, workers))


def _execute(
    lake: Lake, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit, workers: FileWorkers
) -> None:
    metadata = lake.metadata([ref]).get(ref)
    if commit.part and commit.part.seen != (shape_of(metadata["properties"]) if metadata else 0):
        raise ShardSchemaChanged(".".join(ref))
    if metadata is not None and after is not None and read_table(ref, metadata) == after and is_done(metadata, steps):
        return _take_part(lake, ref, steps, commit, workers) if commit.part else None
    for step in steps:
        match step.change:
            case TableAdded(after=table):
                return _create(lake, ref, after or table, steps, commit)
            case TableRemoved():
                return _park(lake, ref, step, commit)
            case TableReplaced(after=table):
                return _replace(lake, ref, step, after or table, steps, commit)
    renamed = next((s.change.after for s in steps if isinstance(s.change, TableRenamed)), None)
    if renamed is not None and metadata is None and lake.load(renamed.ref) is not None:
        return None
    if renamed is None:
        return _alter(lake, ref, steps, _target(after, ref), commit, workers)
    _alter(lake, ref, steps, _target(after or renamed, renamed.ref), commit, workers)
    return _rename(lake, ref, renamed.ref)


def _target(after: Table | None, ref: Ref) -> Table:
    if after is None:
        raise DestinationError(f"the steps for table {'.'.join(ref)} come without the table that they lead to")
    return after


def _facts(table: Table, fields: Sequence[IcebergField], done: Sequence[str], commit: Commit) -> dict[str, str]:
    changes = json.dumps(list(dict.fromkeys(done))[-MOST_CHANGES:])
    recorded = {FENCE: str(commit.fence), RUN: commit.run, CHANGES: changes}
    return table_properties(table, fields) | recorded | ({ACCEPTED: commit.accepted} if commit.accepted else {})


def _create(lake: Lake, ref: Ref, table: Table, steps: Sequence[Step], commit: Commit) -> None:
    lake.ensure_namespace(ref[0])
    fields = first_fields(table)
    properties = _facts(table, fields, [s.id for s in steps], commit)
    waits = lake.deferred_creates.open and commit.part is None and isinstance(lake.catalog, MetastoreCatalog)
    place = deferred_location(lake, ref) if waits else lake.new_location(ref)
    change = new_table(lake.catalog, ref, iceberg_schema(fields), place, properties)
    if commit.part:
        change.update(*partitioned_by(change.metadata, [PartitionTerm("identity", commit.part.column)]))
        change.properties(part_properties({}, commit.part))
    lay_out(change, steps, commit.part)
    if waits:
        return wait_for_rows(lake, ref, change)
    if not isinstance(lake.catalog, MetastoreCatalog):
        change.append([], {})
    try:
        change.land_new()
    except Conflict:
        landed = lake.metadata([ref]).get(ref)
        if commit.part or landed is None or read_table(ref, landed) != as_stored(table, fields):
            raise


def adopt(lake: Lake, ref: Ref, table: Table, commit: Commit) -> None:
    """Make a table of somebody else ours: `table` says what its columns are. No row and no column is touched."""
    loaded, metadata = _load(lake, ref)
    if metadata["format-version"] != FORMAT_VERSION or not loaded.spec().is_unpartitioned():
        raise DestinationError(
            f"table {'.'.join(ref)} cannot be adopted: only unpartitioned tables of format version 2 can",
            hint="load it into a new table instead",
        )
    fields = current_fields(metadata)
    kinds = {f.name: f.type for f in fields}
    odd = [c.name for c in table.columns if c.name not in kinds or not is_stored_as(kinds[c.name], c.type)]
    if odd or len(table.columns) != len(fields):
        name = odd[0] if odd else next(n for n in kinds if n not in table.by_name)
        raise DestinationError(
            f"table {'.'.join(ref)} is not as described: column {name!r}", hint="describe it as it is"
        )
    change = TableCommit(loaded)
    change.properties({**PROPERTIES, **_facts(table, fields, (), commit)})
    change.land(commit.fence)


def _load(lake: Lake, ref: Ref) -> tuple[IcebergTable, Metadata]:
    table = lake.load(ref)
    if table is None:
        raise DestinationError(f"table {'.'.join(ref)} is not there", hint="plan again")
    return table, json.loads(table.metadata.model_dump_json())


def _alter(lake: Lake, ref: Ref, steps: Sequence[Step], after: Table, commit: Commit, workers: FileWorkers) -> None:
    table, metadata = _load(lake, ref)
    read_table(ref, metadata)
    if read_pending(ref, metadata):
        return _replace(lake, ref, steps[-1], after, steps, commit)
    _check_layout(ref, steps, metadata)
    evolution = evolve(current_fields(metadata), metadata["last-column-id"], steps, after, dropped_fields(metadata))
    change = TableCommit(table)
    _tag(change, [step for _, step in evolution.dropped])
    dropped = remember(metadata, evolution.dropped, lake.config.undo_days)
    # the time for undoing these drops is over
    change.update(*(remove_ref(tag) for tag in expired(metadata, lake.config.undo_days) if tag in change.metadata.refs))
    unsorted_without(change, metadata, {f.id for f in evolution.fields})
    _set_fields(change, metadata, evolution.fields)
    done = [*changes_done(metadata), *(s.id for s in steps)]
    facts = _facts(after, evolution.fields, done, commit)
    change.properties({**facts, **dropped})
    lay_out(change, steps, commit.part)
    _record_part(change, ref, commit)
    with rewritten(lake, table, change, evolution.rewrites, commit, workers):
        change.land(commit.fence)
    check_equal(_read_back(lake, ref), replace(as_stored(after, evolution.fields), schema=ref[0], name=ref[1]))
    return None


def _take_part(lake: Lake, ref: Ref, steps: Sequence[Step], commit: Commit, workers: FileWorkers) -> None:
    """Record a shard's change that leaves the columns of the whole table as they are."""
    table, metadata = _load(lake, ref)
    done = json.dumps([*changes_done(metadata), *(s.id for s in steps)][-MOST_CHANGES:])
    change = TableCommit(table)
    change.properties({CHANGES: done, RUN: commit.run})
    lay_out(change, steps, commit.part)
    _record_part(change, ref, commit)
    if commit.part and commit.part.moves and (main := table.metadata.current_snapshot()) is not None:
        change.require(ref_is(MAIN, main.snapshot_id))
    with rewritten(lake, table, change, (), commit, workers):
        change.land(commit.fence)


def _record_part(change: TableCommit, ref: Ref, commit: Commit) -> None:
    """Record the shard's change in the commit that changes the table's columns."""
    if (part := commit.part) is None:
        return
    name = ".".join(ref)
    check_fence(change.metadata, part.fence, name, part.shard)
    change.require(
        AssertShape(shape=part.seen, table=name), AssertFence(fence=part.fence, table=name, shard=part.shard)
    )
    change.properties(part_properties(change.metadata.properties, part))


def _check_layout(ref: Ref, steps: Sequence[Step], metadata: Metadata) -> None:
    """Raise IllegalChange for a step that partition spec, sort order or identifier fields do not allow."""
    if why := first_violation(ref, [s.change for s in steps], guards(metadata)):
        raise IllegalChange(f"table {'.'.join(ref)}: {why}")


def _read_back(lake: Lake, ref: Ref) -> Table:
    return read_table(ref, lake.metadata([ref])[ref])


def _set_fields(change: TableCommit, metadata: Mapping[str, Any], fields: Sequence[IcebergField]) -> None:
    """Set the current schema, unless nothing in it changes; one that the table had before becomes current again, since
    catalogs do not add it twice."""
    if tuple(fields) == current_fields(metadata):
        return
    number = max(s.get("schema-id", 0) for s in metadata["schemas"]) + 1
    schema = iceberg_schema(fields, number, remaining_identifiers(metadata, fields))
    earlier = next((old.schema_id for old in change.metadata.schemas if old == schema), None)
    change.update(*(set_schema(schema) if earlier is None else [set_current_schema(earlier)]))
    change.require(*schema_is(metadata["current-schema-id"], metadata["last-column-id"]))


def _tag(change: TableCommit, names: Sequence[str]) -> None:
    """Tag the snapshot from before a drop: with it, the values can be restored whatever happens to files."""
    main = change.metadata.current_snapshot()
    if main is not None and names:
        change.update(*(set_tag(f"{UNDO}{name}", main.snapshot_id) for name in names))
        change.require(ref_is(MAIN, main.snapshot_id))


def _replace(lake: Lake, ref: Ref, step: Step, table: Table, steps: Sequence[Step], commit: Commit) -> None:
    """Prepare the new generation beside the old one, which readers keep until the first load swaps it in."""
    loaded, metadata = _load(lake, ref)
    _check_layout(ref, [step], metadata)
    done = json.dumps([*changes_done(metadata), *(s.id for s in steps)][-MOST_CHANGES:])
    named = replace(table, schema=ref[0], name=ref[1])  # a rename comes after it
    target = as_stored(named, first_fields(table))
    change = TableCommit(loaded)
    change.properties(pending_property(PendingReplacement(target, step.id)) | {CHANGES: done, RUN: commit.run})
    change.land(commit.fence)
    check_equal(_read_back(lake, ref), target)


def swap_in(
    change: TableCommit, pending: PendingReplacement, metadata: Metadata, commit: Commit
) -> tuple[IcebergField, ...]:
    """Make the waiting generation's columns the table's, all with new field ids; returns them."""
    if guarded := guards(metadata):
        raise DestinationError(
            f"table {pending.table.path} cannot get its new generation: {uses(guarded)}", hint=free(guarded)
        )
    fields = pending_fields(pending, metadata)
    _tag(change, [pending.change])
    unsorted_without(change, metadata, {f.id for f in fields})
    change.properties(remember_tag(metadata, f"{UNDO}{pending.change}", commit.fence))
    _set_fields(change, metadata, fields)
    change.properties(_facts(pending.table, fields, changes_done(metadata), commit))
    return fields


def pending_fields(pending: PendingReplacement, metadata: Metadata) -> tuple[IcebergField, ...]:
    """Return the columns of the waiting generation: no value of the old one can ever be read as one of the new."""
    return first_fields(pending.table, max(metadata["last-column-id"], highest_id(current_fields(metadata))))


def _rename(lake: Lake, ref: Ref, new: Ref) -> None:
    create_deferred(lake, ref)
    lake.ensure_namespace(new[0])
    try:
        lake.catalog.rename_table(ref, new)
    except TableAlreadyExistsError as error:
        raise Conflict(f"table {'.'.join(ref)} cannot be renamed: {'.'.join(new)} exists", hint="plan again") from error
    except NoSuchTableError as error:
        raise Conflict(f"table {'.'.join(ref)} is gone", hint="plan again") from error


def _park(lake: Lake, ref: Ref, step: Step, commit: Commit) -> None:
    """Move a dropped table out of sight with all its files; it is purged when its undo period ends."""
    table = lake.load(ref)
    if table is None:
        return
    metadata = json.loads(table.metadata.model_dump_json())
    read_table(ref, metadata)
    check_fence(table.metadata, commit.fence, ".".join(ref))
    if len(shards := shards_of(metadata["properties"])) > 1:
        raise Conflict(f"table {'.'.join(ref)} now has rows of {' and '.join(shards)}", hint="plan again")
    change = TableCommit(table)
    if shards:
        change.require(AssertShape(shape=shape_of(metadata["properties"]), table=".".join(ref)))
    record = json.dumps({"table": list(ref), "step": step.id, "run": commit.run, "at": now_ms()})
    change.properties({DROPPED: record})
    change.land(commit.fence)
    names = set(lake.names(lake.dropped))
    name = f"{ref[0]}.{ref[1]}.{step.id}"
    _rename(lake, ref, (lake.dropped, f"{name}.{commit.run}" if name in names else name))
    purge(lake)


def unpark(lake: Lake, ref: Ref, table: Table, commit: Commit) -> None:
    """Bring back the dropped table of this name and source id with all its rows; do nothing if it is back already.
    Raises DestinationError if it was purged, or if another table has its name."""
    if (dropped := lake.load(ref)) is None:
        old = parked(lake, ref, table.id)
        if old is None:
            raise DestinationError(
                f"table {'.'.join(ref)} is no longer retained", hint="its time for undoing is over: restore a backup"
            )
        _rename(lake, old, ref)
        dropped, _ = _load(lake, ref)
    metadata = json.loads(dropped.metadata.model_dump_json())
    if DROPPED not in metadata["properties"] and read_table(ref, metadata).id != table.id:
        raise DestinationError(f"another table is now called {'.'.join(ref)}", hint="rename or drop that one first")
    if DROPPED in metadata["properties"]:
        change = TableCommit(dropped)
        change.update(remove_properties(DROPPED))
        change.properties({FENCE: str(commit.fence), RUN: commit.run})
        change.land(commit.fence)
