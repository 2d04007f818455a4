"""Values of a column that was dropped and came back, for rows that were written in between: by key, from the snapshot
before the drop.

Values that were kept as JSON beside a table's rows, taken out into columns of their own.

A row gets a value where it has none, and loses the name from its object in the same commit: what is done once is not
found again, so that nothing has to be remembered between two attempts. Tasks of Spark, or this process for a smaller
table, write the files again; this process holds names of files and counts.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFileContent
from pyiceberg.table import FileScanTask
from pyiceberg.table import Table as IcebergTable

from instep.crash import crashpoint
from instep.destinations.base import HERE, Commit, FileWorkers, Ref
from instep.destinations.iceberg.backfill.fill import (
    FileExchange,
    FileFill,
    commit_batches,
    file_groups,
    files_spec,
    key_spans,
)
from instep.destinations.iceberg.backfill.fill_task import fill_part
from instep.destinations.iceberg.backfill.promote_task import PromoteTask, promote_part
from instep.destinations.iceberg.commit.row_reader import light, old_file
from instep.destinations.iceberg.commit.shard_table import planned
from instep.destinations.iceberg.evolve.undo import snapshot_before
from instep.destinations.iceberg.metadata.catalog import Lake, LakeFacet
from instep.destinations.iceberg.metadata.records import current_fields, load_state, read_pending, read_table
from instep.destinations.iceberg.write.load import load_ours
from instep.destinations.overflow import OverflowColumn, Promoted
from instep.destinations.parts import is_large, run_tasks
from instep.errors import DestinationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class IcebergRestoredValues(LakeFacet):
    """Values of dropped columns that come back."""

    def restore_dropped_values(self, ref: Ref, column: str, commit: Commit, workers: FileWorkers = HERE) -> int:
        """Write the values of an undropped column back; return the number of rows that got one.

        Rows that have a value keep it. It is a fill whose values are in the files of the snapshot before the drop.
        """
        table, metadata = load_ours(self.lake, ref)
        key = read_table(ref, metadata).key
        field = next(f.id for f in current_fields(metadata) if f.name == column)
        before = snapshot_before(table, metadata, field)
        if not key or before is None or load_state(metadata) is None:
            return 0
        then = list(table.scan(snapshot_id=before.snapshot_id).plan_files())
        files = planned(table)
        check_positional(ref, [*files, *then])
        tasks = [t for t in files if (t.file.null_value_counts or {}).get(field) != 0]
        session = _session(self.lake, [*tasks, *then], workers) if tasks and then else None
        spec = files_spec(self.lake, table, f"{commit.run}-restore-{uuid.uuid4().hex[:8]}", commit)
        values, span_of = tuple(old_file(n, t) for n, t in enumerate(then)), key_spans(table, key)
        spans = [span_of(t.file) for t in then]
        work = FileFill(self.lake, ref, commit, spec, table.schema(), {}, key, (column,), "", False, values, spans)
        by_path, rows = {t.file.file_path: t for t in tasks}, 0
        with work.new_files.removed_unless_landed(spec.location):
            for batch in commit_batches(work.parts(table, tasks), session):
                restored = run_tasks(session, fill_part, batch, "restore", workers.on_progress)
                if rewritten := [r for part in restored for r in part]:
                    table = work.exchange(table, rewritten, by_path)
                rows += sum(r.rows for r in rewritten)
        return rows


def check_positional(ref: Ref, files: Sequence[FileScanTask]) -> None:
    """Raise DestinationError for a table that has deletes by value."""
    if any(d.content != DataFileContent.POSITION_DELETES for t in files for d in t.delete_files):
        raise DestinationError(
            f"table {'.'.join(ref)} has deletes by value, which another program has written",
            hint="compact the table with that program",
        )


def _session(lake: Lake, files: Sequence[FileScanTask], workers: FileWorkers) -> SparkSession | None:
    rows, size = sum(t.file.record_count for t in files), sum(t.file.file_size_in_bytes for t in files)
    return workers.session() if is_large(rows, size, lake.config.upsert_rows) else None


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
        """Move overflow values into columns: tasks rewrite the files, in successive commits."""
        table, metadata = load_ours(self.lake, ref)
        if read_pending(ref, metadata) or table.metadata.current_snapshot() is None or load_state(metadata) is None:
            return Promoted()
        planned_files = planned(table)
        check_positional(ref, planned_files)
        tasks = [t for t in planned_files if _may_have(table, t, columns, extra)]
        session = _session(self.lake, tasks, workers) if tasks else None
        spec = files_spec(self.lake, table, f"{commit.run}-promote-{uuid.uuid4().hex[:8]}", commit)
        work = FileExchange(self.lake, ref, commit, spec, table.schema(), {})
        olds, light_table = [old_file(n, t) for n, t in enumerate(tasks)], light(table.metadata)
        parts = (
            PromoteTask(light_table, spec, columns, extra, tuple(group), self.lake.io()) for group in file_groups(olds)
        )
        files, done = {t.file.file_path: t for t in tasks}, Promoted()
        with work.new_files.removed_unless_landed(spec.location):
            for batch in commit_batches(parts, session):
                promoted = run_tasks(session, promote_part, batch, "promote", workers.on_progress)
                if rewritten := [r for part in promoted for r in part.rewritten]:
                    table = work.exchange(table, rewritten, files)
                    crashpoint("promote.committed")
                invalid_values = sum(part.invalid_values for part in promoted)
                done = Promoted(done.rows + sum(r.rows for r in rewritten), done.invalid_values + invalid_values)
        return done


def _may_have(table: IcebergTable, task: FileScanTask, columns: Mapping[str, OverflowColumn], extra: str) -> bool:
    """Return whether a file may have an object, and lack a value, by its metrics."""
    ids = {f.name: f.field_id for f in table.schema().fields}
    nulls = task.file.null_value_counts or {}
    return nulls.get(ids[extra]) != task.file.record_count and any(nulls.get(ids[name]) != 0 for name in columns)
