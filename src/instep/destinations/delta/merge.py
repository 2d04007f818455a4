# ruff: noqa: S608 - columns are numbered, values are parameters
"""An upsert: what differs is found in DuckDB, the files that have such rows are rewritten, all in one commit.

A larger one is done in parts (merge_parts.py), which find it with the same statements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import duckdb
import numpy as np
import pyarrow as pa

from instep.destinations.base import Commit, LoadOutcome, Merge, MergePath, Ref, SparkStart
from instep.destinations.delta.change import DeltaCommit
from instep.destinations.delta.files import check_ids, read_footer
from instep.destinations.delta.load import DeltaLoads, overwrite, replaced, retry_commit
from instep.destinations.delta.merge_parts import upsert_by_tasks
from instep.destinations.delta.merge_work import (
    DeltaMergeWork,
    counts,
    join_by_key,
    load_both,
    marks,
    outcome,
    refuse,
    time_of_staged,
)
from instep.destinations.delta.rewrite import RowEdit, edited
from instep.destinations.delta.rows import (
    count,
    engine,
    places,
    staged_at,
    staged_rows,
    table_rows,
)
from instep.destinations.delta.table_state import DeltaTableState, named, require
from instep.destinations.delta.tasks import fits_in_process
from instep.destinations.delta.warehouse import Warehouse
from instep.destinations.equal_rows import WholeTableComparison, set_equal_aside
from instep.destinations.parts import is_large
from instep.destinations.types import duckdb_primitive
from instep.errors import DestinationError
from instep.schema.catalog.types import Uuid
from instep.stage.spec import StagedFile, SystemColumns


def _since(change: DeltaCommit, files: Sequence[StagedFile], how: Merge, commit: Commit) -> LoadOutcome:
    """Return the staged rows in place of those from a value on."""
    assert how.since is not None, "asked for by the caller"
    column, low = how.since
    state = change.state
    kind = state.record.table.by_name[column].type
    spelled = "VARCHAR" if isinstance(kind, Uuid) else duckdb_primitive(kind)
    names = [f.name for f in state.fields]
    with engine() as db:
        db.register("t", table_rows(state, [column]))
        arrays = db.execute(f"SELECT f, p FROM t WHERE c0 >= CAST(? AS {spelled})", [low]).fetchnumpy()
        gone = np.stack([arrays["f"].astype(np.int64), arrays["p"].astype(np.int64)], axis=1)
    edited(change, [RowEdit(gone)], staged_at(state, names, files), commit)
    return LoadOutcome(inserted=sum(f.rows for f in files), deleted=len(gone))


PASSING = 4
"""So many times as many rows may be compared here as may be joined, where rows that are alike are set aside."""


def _is_whole(how: Merge) -> bool:
    return how.complete and not how.keys


def _path(state: DeltaTableState, files: Sequence[StagedFile], how: Merge, limit: int) -> MergePath:
    """Return where the rows meet: no more than `limit` of them are joined in this process. Of a table whose other rows
    stay as they are, only those are joined whose key comes: the rest pass by."""
    coming = [*files, *how.keys]
    if state.record.pending is not None or how.since is not None or fits_in_process(state, coming, limit):
        return "process"
    if how.leaves_others and not is_large(sum(f.rows for f in files), state.bytes + sum(f.bytes for f in files), limit):
        return "process"
    return "alike" if _is_whole(how) and fits_in_process(state, coming, limit * PASSING) else "parts"


@dataclass(frozen=True)
class _ComparedFiles:
    """The staged rows of a compare."""

    state: DeltaTableState
    work: DeltaMergeWork
    staged: Sequence[StagedFile]

    @property
    def files(self) -> int:
        return len(self.staged)

    @property
    def rows(self) -> int:
        return sum(f.rows for f in self.staged)

    def read(self, files: Sequence[int] | None = None, *, keys: bool = False) -> pa.RecordBatchReader:
        chosen = self.staged if files is None else [self.staged[n] for n in files]
        return staged_rows(self.state, self.work.how.key if keys else self.work.names, chosen, self.work.compared_only)


@dataclass(frozen=True)
class _ComparedTable:
    """The rows of the table in a compare."""

    state: DeltaTableState
    work: DeltaMergeWork

    @property
    def files(self) -> int:
        return len(self.state.files)

    @property
    def rows(self) -> int:
        return self.state.rows

    def read(self, files: Sequence[int] | None = None, *, keys: bool = False) -> pa.RecordBatchReader:
        return table_rows(self.state, self.work.how.key if keys else self.work.compared, self.work.compared_only, files)


def _upsert(
    change: DeltaCommit, files: Sequence[StagedFile], work: DeltaMergeWork, commit: Commit, limit: int, path: MergePath
) -> LoadOutcome | None:
    """Merge in this process; None where that would take a join of more than `limit` rows."""
    if path == "parts":
        return None
    state, how = change.state, work.how
    with engine(streams=True) as db:
        keys = staged_rows(state, how.key, how.keys) if how.keys else None
        compare = WholeTableComparison(
            _ComparedFiles(state, work, files),
            _ComparedTable(state, work),
            len(how.key),
            len(work.names),
            bool(work.system.deleted),
        )
        if _is_whole(how) and set_equal_aside(db, compare):
            if count(db, "SELECT count(*) FROM (SELECT n FROM r UNION ALL SELECT p FROM t)") > limit:
                return None
        elif path == "process":
            load_both(db, compare.staged.read(), compare.table.read())
        else:
            return None
        refuse(state, *join_by_key(db, work, keys))
        found, absent = counts(db, work)
        by = state.next_by if how.complete and state.record.by is not None else None
        if found.keys() - {"returned"} or by is not None:
            edits, new = _edits(db, state, work, found, files)
            edited(change, edits, new, commit, by)
    return outcome(found, absent)


def _edits(
    db: duckdb.DuckDBPyConnection,
    state: DeltaTableState,
    work: DeltaMergeWork,
    numbers_of: dict[str, int],
    files: Sequence[StagedFile],
) -> tuple[list[RowEdit], Iterator[pa.RecordBatch]]:
    edits = list[RowEdit]()
    new: Iterator[pa.RecordBatch] = iter(())
    if "updated" in numbers_of:
        at = places(db, "SELECT f, p, n FROM met WHERE what = 'updated' ORDER BY n")
        rows = pa.Table.from_batches(staged_at(state, work.edits, files, at[:, 2]))
        edits.append(RowEdit(at[:, :2], rows))
    if "marked" in numbers_of:
        at = places(db, "SELECT f, p FROM met WHERE what = 'marked'")
        edits.append(RowEdit(at, marks(state, work, time_of_staged(state, work, files), len(at))))
    if "removed" in numbers_of:
        edits.append(RowEdit(places(db, "SELECT f, p FROM met WHERE what = 'removed'")))
    if "inserted" in numbers_of:
        [numbers] = places(db, "SELECT n FROM met WHERE what = 'inserted' ORDER BY n").T
        new = staged_at(state, [c.name for c in work.table.columns], files, numbers)
    return edits, new


class DeltaMerges(DeltaLoads):
    """Loads that change single rows."""

    def __init__(self, warehouse: Warehouse, prefix: str, upsert_rows: int) -> None:
        super().__init__(warehouse, prefix)
        self.upsert_rows = upsert_rows

    def is_large(self, ref: Ref, files: Sequence[StagedFile] = ()) -> bool:
        """Return whether the table and the files are for tasks."""
        return not fits_in_process(require(self.warehouse, ref), files, self.upsert_rows)

    def merge_path(self, ref: Ref, files: Sequence[StagedFile], how: Merge) -> MergePath:
        """Return where the rows of the table and those of the files meet."""
        return _path(require(self.warehouse, ref), files, how, self.upsert_rows)

    def merge(
        self, spark: SparkStart | None, ref: Ref, files: Sequence[StagedFile], how: Merge, commit: Commit
    ) -> LoadOutcome:
        """Merge what is too large to be joined at once in parts, by tasks of Spark or one after the other without it.

        StageError for staged rows without a key, or a table with twins.
        """
        table_state = require(self.warehouse, ref)
        table_state.record.check(commit.fence)
        if table_state.record.pending is not None:
            if not how.complete:
                raise replaced(ref)
            return retry_commit(lambda: overwrite(self.warehouse, ref, files, commit, copy=True))
        if not how.key and how.since is None:
            raise DestinationError(f"table {named(ref)} has no key to merge by", hint="name one in `key:`")
        change = DeltaCommit(table_state, table_state.record)
        for file in files:
            check_ids(table_state, file, read_footer(file), table_state.fields)
        work = DeltaMergeWork(table_state.record.table, how, SystemColumns.of(table_state.record.table, self.prefix))
        if how.since:
            done = _since(change, files, how, commit)
        else:
            path = _path(table_state, files, how, self.upsert_rows)
            load_outcome = _upsert(change, files, work, commit, self.upsert_rows, path)
            if load_outcome is None:
                load_outcome = upsert_by_tasks(spark() if spark else None, change, files, work, commit)
            done = load_outcome
        left = how.deletes == "soft" and how.since is None and done.deleted > 0
        deleted = left and bool(work.system.deleted)
        before = table_state.rows
        gone = 0 if deleted else done.deleted
        rows = before + done.inserted - gone
        record = table_state.record if change.by is None else replace(table_state.record, by=None)
        change.record = record.after_load(commit, rows, files, new=done.inserted, deleted=deleted)
        return replace(done, version=str(change.land("MERGE", commit, self.warehouse)))
