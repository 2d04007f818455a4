"""Deletes by key at destinations whose merges take no keys: the rows are met, and marked in a commit of their own."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from instep.destinations.base import Amendment, Commit
from instep.errors import DestinationError
from instep.stage.spec import StagedFile, StageSpec
from instep.sync.pipe import Pipe
from instep.sync.rows.loads import Load
from instep.sync.rows.meeting import as_plain, as_stored, plain_type, staged_rows


def mark_removed(pipe: Pipe, load: Load, keys: Sequence[StagedFile], spec: StageSpec, commit: Commit) -> int:
    """Marks the rows that have one of these keys; returns how many. Cursor and accepted fingerprint stay."""
    if load.choice.deletes == "hard" or load.table.history:
        what = "a table that keeps its history" if load.table.history else "`deletes: hard`"
        raise DestinationError(
            f"{load.table.path}: {pipe.destination.kind} cannot delete single rows for {what}",
            hint="use `deletes: soft`, or another destination",
        )
    names = [load.table.by_name[k].alias or k for k in load.table.key]
    state = pipe.destination.state(load.ref)
    assert state is not None, "a table with rows has been loaded"
    own = Commit(commit.run, commit.fence, state.cursor, state.accepted)
    marked = 0
    for batch in staged_rows(keys, spec, names):
        met = pipe.destination.meet(load.ref, pa.Table.from_batches([batch.rename_columns(names)]))
        standing = pc.invert(pc.fill_null(met.rows.column(spec.system.deleted), False))
        places = pc.indices_nonzero(standing).to_pylist()
        if places:
            change = Amendment(places, _marked(met.rows.take(pa.array(places)), spec), met.rows.slice(0, 0))
            pipe.destination.amend(load.ref, met, change, own)
            marked += len(places)
    return marked


def _marked(rows: pa.Table, spec: StageSpec) -> pa.Table:
    moment = pa.scalar(spec.synced, pa.timestamp("us", "UTC"))
    values = {spec.system.deleted: pa.repeat(True, len(rows)), spec.system.synced: pa.repeat(moment, len(rows))}
    columns = [
        as_stored(as_plain(values[f.name], plain_type(f.type)), f.type) if f.name in values else rows.column(f.name)
        for f in rows.schema
    ]
    return pa.table(columns, schema=rows.schema)
