"""Values that were kept as JSON beside a table's rows, taken out into columns of their own: one commit.

Tasks of Spark, or this process for a smaller table, read the objects of some files each and write those again in which
a row gets a value. This process holds names of files and counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from instep.crash import crashpoint
from instep.destinations.base import HERE, Commit, FileWorkers, Ref
from instep.destinations.delta.change import DeltaCommit
from instep.destinations.delta.files import Writing, action, as_type, rows_in, write_files
from instep.destinations.delta.fill import may_lack
from instep.destinations.delta.protocol.snapshot import Action
from instep.destinations.delta.rewrite import check_rows
from instep.destinations.delta.rows import fields_by_name
from instep.destinations.delta.shape import DeltaField, arrow_type, limited
from instep.destinations.delta.table_state import DeltaTableState, require, select_files
from instep.destinations.delta.tasks import TASK_BYTES, TASK_ROWS, width
from instep.destinations.delta.warehouse import DeltaFacet
from instep.destinations.overflow import (
    ExtractedValues,
    FileExtraction,
    OverflowColumn,
    Promoted,
    extract_values,
    first_valid,
)
from instep.destinations.parts import grouped, is_large, run_tasks
from instep.stage.spec import StagedFile
from instep.stage.task import Report


@dataclass(frozen=True)
class DeltaPromoteTask:
    """The files in `state`, whose rows get values of these columns (by name) out of the objects in `extra`."""

    state: DeltaTableState
    columns: Mapping[str, OverflowColumn]
    extra: str
    writing: Writing

    def _fields(self) -> tuple[list[DeltaField], list[pa.Field]]:
        """Return the objects' column and those that get values; the latter as files have them, by name."""
        fields = fields_by_name(self.state, [self.extra, *self.columns])
        plain = pa.schema([pa.field(f.name, arrow_type(f.type)) for f in fields])
        return fields, list(limited(plain, [f.name for f in self.state.by]))[1:]

    def extract(self, file: Action) -> Iterator[ExtractedValues]:
        """Yield what becomes of a file's rows, batch by batch; only the objects and these columns are read."""
        fields, arrow_fields = self._fields()
        for batch in rows_in(self.state, file, fields):
            yield self._extract(batch.columns, arrow_fields)

    def _extract(self, columns: Sequence[pa.Array], fields: Sequence[pa.Field]) -> ExtractedValues:
        return extract_values(columns[0], [c.is_null() for c in columns[1:]], list(self.columns.values()), fields)

    def rows(self, file: Action, taking: FileExtraction) -> Iterator[pa.RecordBatch]:
        """Yield a file's rows with their values."""
        fields, arrow_fields = self._fields()
        start, names = 0, [f.physical for f in fields]
        for batch in rows_in(self.state, file, self.state.layout):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            own = [columns[name] for name in names]
            done = taking.extract(start, len(batch), partial(self._extract, own, arrow_fields))
            start += len(batch)
            if done is not None:
                columns[names[0]] = pc.if_else(done.gets, as_type(done.left, own[0].type), own[0])
                for name, old, new in zip(names[1:], own[1:], done.values, strict=True):
                    columns[name] = first_valid(old, as_type(new, old.type))
            yield pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)


@dataclass(frozen=True)
class PromotedFiles:
    """The files that were written again (`paths`), those in their place, and how many rows got a value."""

    paths: tuple[str, ...]
    files: tuple[Action, ...]
    rows: int
    invalid_values: int


def promote_files(part: DeltaPromoteTask, attempt: int, report: Report | None) -> PromotedFiles:
    """Write the files again in which a row gets a value."""
    state, takings = part.state, dict[int, FileExtraction]()

    def changed() -> Iterator[pa.RecordBatch]:
        for number, file in enumerate(state.files):
            takings[number] = taking = FileExtraction()
            if taking.changes(part.extract(file)):
                yield from part.rows(file, taking)

    batches, files = changed(), tuple[StagedFile, ...]()
    if (first := next(batches, None)) is not None:
        rows = chain([first], batches)
        files = write_files(state, state.layout, replace(part.writing, attempt=attempt), rows, state.by, report)
    numbers = [n for n, taking in takings.items() if taking.rows]
    check_rows(state, sum(f.rows for f in files), sum(state.counted(state.files[n]) for n in numbers))
    actions = tuple(action(state, state.layout, file, state.by) for file in files)
    row_count, invalid_values = (sum(getattr(t, what) for t in takings.values()) for what in ("rows", "invalid_values"))
    return PromotedFiles(tuple(state.paths[n] for n in numbers), actions, row_count, invalid_values)


def _candidates(state: DeltaTableState, columns: Sequence[str], extra: str) -> list[int]:
    """Return the files that may have an object and lack a value, by their statistics."""
    names = {f.name: f.physical for f in state.columns}
    return [
        number
        for number, file in enumerate(state.files)
        if _has_objects(file, names[extra]) and any(may_lack(file, names[c]) for c in columns)
    ]


def _has_objects(file: Action, column: str) -> bool:
    stats = json.loads(file.get("stats") or "{}")
    count = stats.get("numRecords")
    return count is None or bool(stats.get("nullCount", {}).get(column) != count)


class DeltaPromotes(DeltaFacet):
    """Kept values that come into their columns."""

    upsert_rows: int

    def promote(
        self,
        ref: Ref,
        columns: Mapping[str, OverflowColumn],
        extra: str,
        commit: Commit,
        workers: FileWorkers = HERE,
    ) -> Promoted:
        """Move overflow values into columns, in one commit."""
        table_state = require(self.warehouse, ref)
        table_state.record.check(commit.fence)
        state = table_state.state()
        if state is None or extra not in table_state.record.table.by_name:
            return Promoted()
        own = replace(commit, cursor=state.cursor, accepted=state.accepted)
        change = DeltaCommit(table_state, table_state.record.after_load(own, table_state.rows, new=0))
        done = _promoted(change, columns, extra, own, workers, self.upsert_rows)
        change.remove += [path for part in done for path in part.paths]
        change.add += [file for part in done for file in part.files]
        if change.remove:
            change.land("UPDATE", own, self.warehouse)
        crashpoint("promote.committed")
        return Promoted(sum(part.rows for part in done), sum(part.invalid_values for part in done))


def _promoted(
    change: DeltaCommit,
    columns: Mapping[str, OverflowColumn],
    extra: str,
    commit: Commit,
    workers: FileWorkers,
    limit: int,
) -> list[PromotedFiles]:
    state = change.state
    numbers = _candidates(state, list(columns), extra)
    sizes = [(state.counted(state.files[n]), int(state.files[n]["size"])) for n in numbers]
    large = is_large(sum(rows for rows, _ in sizes), sum(size for _, size in sizes), limit)
    session = workers.session() if large and numbers else None
    groups = grouped(sizes, TASK_ROWS, TASK_BYTES, width(session) if large else 1)
    tasks = [
        DeltaPromoteTask(select_files(state, [numbers[i] for i in group]), columns, extra, Writing(commit.run, n))
        for n, group in enumerate(groups)
    ]
    return run_tasks(session, promote_files, tasks, "promote", workers.on_progress)
