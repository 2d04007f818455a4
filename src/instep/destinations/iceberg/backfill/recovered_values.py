# ruff: noqa: S608 - columns are numbered, values are not part of the text
"""Values of a column that was dropped and came back, for rows that were written in between: by key, from the snapshot
before the drop.

Values that were kept as JSON beside a table's rows, taken out into columns of their own.

A row gets a value where it has none, and loses the name from its object in the same commit: what is done once is not
found again, so that nothing has to be remembered between two attempts. Tasks of Spark, or this process for a smaller
table, write the files again; this process holds names of files and counts.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace

import duckdb
import pyarrow as pa
from pyiceberg.expressions import IsNull, NotNull, Reference
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import FileScanTask
from pyiceberg.table import Table as IcebergTable

from instep.crash import crashpoint
from instep.destinations.base import HERE, Commit, FileWorkers, Ref, RowUpdate
from instep.destinations.iceberg.backfill.fill import FileExchange, commit_batches, file_groups, files_spec
from instep.destinations.iceberg.backfill.promote_task import PromoteTask, promote_part
from instep.destinations.iceberg.commit.row_reader import light, old_file
from instep.destinations.iceberg.commit.shard_table import planned
from instep.destinations.iceberg.evolve.undo import snapshot_before
from instep.destinations.iceberg.metadata.catalog import LakeFacet
from instep.destinations.iceberg.metadata.records import current_fields, load_state, read_pending, read_table
from instep.destinations.iceberg.write.load import load_ours
from instep.destinations.iceberg.write.row_edits import IcebergRowEdits
from instep.destinations.iceberg.write.upsert import MEMORY
from instep.destinations.overflow import OverflowColumn, Promoted
from instep.destinations.parts import is_large, run_tasks
from instep.errors import DestinationError

OLD = "instep_old_value"


def _lost(table: IcebergTable, key: tuple[str, ...], column: str, snapshot: int) -> pa.Table:
    """Return the keys of rows without a value that had one in the snapshot, with that value under the name `OLD`."""
    now = table.scan(row_filter=IsNull(term=Reference(column)), selected_fields=key).to_arrow()
    at = table.metadata.snapshot_by_id(snapshot)
    name = _names_in(table, at.schema_id if at else None, (column,))[0]
    names = _names_in(table, at.schema_id if at else None, key)
    old = table.scan(
        row_filter=NotNull(term=Reference(name)), snapshot_id=snapshot, selected_fields=(*names, name)
    ).to_arrow()
    old = old.select([*names, name]).rename_columns([*key, OLD])
    number = pa.array(range(len(old)))
    with duckdb.connect(":memory:", config={"memory_limit": MEMORY}) as db:
        keys = [f"k{i}" for i in range(len(key))]
        db.register("now", now.select(list(key)).rename_columns(keys))
        db.register("old", old.select(list(key)).rename_columns(keys).append_column("n", number))
        found = db.execute(f"SELECT n FROM old JOIN now USING ({', '.join(keys)}) ORDER BY n").fetchnumpy()
    return old.take(pa.array(found["n"]))


def _names_in(table: IcebergTable, schema: int | None, columns: tuple[str, ...]) -> list[str]:
    """Return what columns were called in an older schema of the table."""
    then = table.schemas().get(schema, table.schema()) if schema is not None else table.schema()
    return [then.find_column_name(table.schema().find_field(c).field_id) or c for c in columns]


def _with(rows: pa.Table, column: str, values: pa.ChunkedArray) -> pa.Table:
    place = rows.column_names.index(column)
    field = rows.schema.field(place)
    return rows.set_column(place, field, values.cast(field.type) if values.type != field.type else values)


class IcebergRestoredValues(IcebergRowEdits):
    """Values of dropped columns that come back."""

    def restore_dropped_values(self, ref: Ref, column: str, commit: Commit) -> int:
        """Write the values of an undropped column back in one commit; return the number of rows that got one.

        Rows that have a value keep it. Keys and the column are read.
        """
        table, metadata = load_ours(self.lake, ref)
        key = read_table(ref, metadata).key
        field = next(f.id for f in current_fields(metadata) if f.name == column)
        before = snapshot_before(table, metadata, field)
        state = load_state(metadata)
        if not key or before is None or state is None:
            return 0
        found = _lost(table, key, column, before.snapshot_id)
        if not found.num_rows:
            return 0
        met = self.lookup_rows(ref, found.select(list(key)))
        updated = _with(met.rows, column, found.column(OLD).take(pa.array(met.numbers)))
        change = RowUpdate(range(len(met.rows)), updated, updated.slice(0, 0))
        self.update_rows(ref, met, change, replace(commit, cursor=state.cursor, accepted=state.accepted))
        return len(met.rows)


class IcebergPromotes(LakeFacet):
    """Kept values that come into their columns."""

    def promote(
        self,
        ref: Ref,
        columns: Mapping[str, OverflowColumn],
        extra: str,
        commit: Commit,
        workers: FileWorkers = HERE,
    ) -> Promoted:
        """Bring kept values into columns: tasks write the files again, in commits that follow one another."""
        table, metadata = load_ours(self.lake, ref)
        if read_pending(ref, metadata) or table.metadata.current_snapshot() is None or load_state(metadata) is None:
            return Promoted()
        planned_files = planned(table)
        if any(d.content != DataFileContent.POSITION_DELETES for t in planned_files for d in t.delete_files):
            raise DestinationError(
                f"table {'.'.join(ref)} has deletes by value, which another program has written",
                hint="compact the table with that program",
            )
        tasks = [t for t in planned_files if _may_have(table, t, columns, extra)]
        rows, size = sum(t.file.record_count for t in tasks), sum(t.file.file_size_in_bytes for t in tasks)
        session = workers.session() if tasks and is_large(rows, size, self.lake.config.upsert_rows) else None
        spec = files_spec(self.lake, table, f"{commit.run}-promote-{uuid.uuid4().hex[:8]}", commit)
        work = FileExchange(self.lake, ref, commit, spec, table.schema(), {})
        olds, light_table = [old_file(n, t) for n, t in enumerate(tasks)], light(table.metadata)
        parts = (
            PromoteTask(light_table, spec, columns, extra, tuple(group), self.lake.io()) for group in file_groups(olds)
        )
        files, done = {t.file.file_path: t for t in tasks}, Promoted()
        with work.new_files.removed_unless_landed(spec.location):
            for batch in commit_batches(parts, session):
                made = run_tasks(session, promote_part, batch, "promote", workers.on_progress)
                if rewritten := [r for one in made for r in one.rewritten]:
                    table = work.exchange(table, rewritten, files)
                    crashpoint("promote.committed")
                invalid_values = sum(one.invalid_values for one in made)
                done = Promoted(done.rows + sum(r.rows for r in rewritten), done.invalid_values + invalid_values)
        return done


def _may_have(table: IcebergTable, task: FileScanTask, columns: Mapping[str, OverflowColumn], extra: str) -> bool:
    """Return whether a file may have an object, and lack a value, by its metrics."""
    ids = {f.name: f.field_id for f in table.schema().fields}
    nulls = task.file.null_value_counts or {}
    return nulls.get(ids[extra]) != task.file.record_count and any(nulls.get(ids[name]) != 0 for name in columns)
