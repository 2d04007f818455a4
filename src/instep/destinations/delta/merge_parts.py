"""A merge or a fill by tasks, of Spark or one after the other in this process: what differs is found and written by
them, and lands in one commit. This process holds names of files and counts.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from instep.crash import crashpoint
from instep.destinations.base import Commit, LoadOutcome
from instep.destinations.delta.change import DeltaCommit
from instep.destinations.delta.files import io_of
from instep.destinations.delta.merge_task import (
    Dealt,
    DealTask,
    JoinedRows,
    JoinTask,
    MergeJob,
    RewriteTask,
    Side,
    deal,
    fill_rows,
    join_rows,
    rewrite_files,
)
from instep.destinations.delta.merge_work import DeltaMergeWork, FillWork, outcome, refuse
from instep.destinations.delta.protocol.snapshot import Action, rows_of
from instep.destinations.delta.rewrite import check_rows
from instep.destinations.delta.rows import in_order
from instep.destinations.delta.shape import DeltaField
from instep.destinations.delta.table_state import portion
from instep.destinations.delta.tasks import TASK_BYTES, TASK_ROWS, width
from instep.destinations.parts import grouped, run_tasks
from instep.stage.files.place import keep_only
from instep.stage.spec import StagedFile
from instep.stage.task import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOIN_ROWS = 1_000_000
"""About the most rows that one task joins."""
WRITE_ROWS, WRITE_BYTES = 1_000_000, 256 << 20
"""Limits of the files that one task writes again, if it is more than one."""
FEW_ROWS = 2_000_000
"""Staged rows whose keys every task may hold, to leave out rows of the table that none of them has."""


def upsert_by_tasks(
    session: SparkSession | None,
    change: DeltaCommit,
    files: Sequence[StagedFile],
    work: DeltaMergeWork,
    commit: Commit,
) -> LoadOutcome:
    """Add the result of the merge to the change."""
    how = work.how
    by = tuple(change.state.next_by) if how.complete and change.state.record.by is not None else None
    with _parted(session, change, work, commit, by) as parts:
        met = parts.joined(join_rows, files, how.keys, whole=how.complete or bool(how.keys))
        refuse(change.state, sum(m.nulls for m in met), sum(m.twins for m in met))
        crashpoint("merge.staged")
        found = {what: sum(m.found.get(what, 0) for m in met) for what in {w for m in met for w in m.found}}
        parts.rewrite(met, found)
    return outcome(found, sum(m.absent for m in met))


def fill_by_tasks(session: SparkSession | None, change: DeltaCommit, work: FillWork, commit: Commit) -> int:
    """Add the files with the values to the change; return how many rows get one."""
    with _parted(session, change, work, commit) as parts:
        met = parts.joined(fill_rows, work.how.values)
        parts.rewrite(met, {})
    return sum(m.found["updated"] for m in met)


@contextmanager
def _parted(
    session: SparkSession | None,
    change: DeltaCommit,
    work: DeltaMergeWork | FillWork,
    commit: Commit,
    by: tuple[DeltaField, ...] | None = None,
) -> Iterator[_PartedChange]:
    """Yield the steps of a change, and delete the files between its tasks afterwards."""
    state = change.state
    folder = (state.folder / state.area / f"{commit.run}-merge-{uuid.uuid4().hex[:8]}").as_uri()
    try:
        yield _PartedChange(session, change, MergeJob(portion(state, ()), work, commit.run, folder, 1), by)
    finally:
        keep_only(folder, io_of(state), [])


class _PartedChange:
    """The steps of one change. `by`: the partition columns that the table gets."""

    def __init__(
        self, session: SparkSession | None, change: DeltaCommit, job: MergeJob, by: tuple[DeltaField, ...] | None
    ) -> None:
        self.session, self.change, self.job, self.by = session, change, job, by
        self.state, self.wide = change.state, width(session)
        self.sizes = [(self.state.counted(f), int(f["size"])) for f in self.state.files]
        self.groups = grouped(self.sizes, WRITE_ROWS, WRITE_BYTES, self.wide)

    def joined(
        self,
        join: Callable[[JoinTask, int, Report | None], JoinedRows],
        files: Sequence[StagedFile],
        keys: Sequence[StagedFile] = (),
        *,
        whole: bool = False,
    ) -> list[JoinedRows]:
        """Return the edits of rows; with `whole` those of rows without a staged key, too."""
        rows = sum(f.rows for f in (*files, *keys))
        parts = -(-(max(rows, sum(r for r, _ in self.sizes)) if whole else rows) // JOIN_ROWS)
        self.job = replace(self.job, parts=max(parts, 1))
        among = () if whole or rows > FEW_ROWS else tuple(replace(f, footer=b"") for f in in_order(files))
        tasks = [*self._staged("staged", files), *self._staged("keys", keys), *self._table(among)]
        dealt: dict[Side, list[Dealt]] = {"staged": [], "keys": [], "table": []}
        for task, one in zip(tasks, run_tasks(self.session, deal, tasks, "merge: deal"), strict=True):
            if one is not None:
                dealt[task.side].append(one)
        return self._join(join, dealt)

    def _staged(self, side: Side, files: Sequence[StagedFile]) -> Iterator[DealTask]:
        ordered = in_order(files)
        starts = np.cumsum([0, *(f.rows for f in ordered)]).tolist()
        for number, some in enumerate(grouped([(f.rows, f.bytes) for f in ordered], TASK_ROWS, TASK_BYTES, self.wide)):
            staged = tuple((starts[i], replace(ordered[i], footer=b"")) for i in some)
            yield DealTask(self.job, number, side, self.job.state, staged=staged)

    def _table(self, among: tuple[StagedFile, ...]) -> Iterator[DealTask]:
        for number, some in enumerate(grouped(self.sizes, TASK_ROWS, TASK_BYTES, self.wide)):
            yield DealTask(self.job, number, "table", portion(self.state, some), tuple(some), among=among)

    def _join(
        self, join: Callable[[JoinTask, int, Report | None], JoinedRows], dealt: dict[Side, list[Dealt]]
    ) -> list[JoinedRows]:
        starts = np.array([g.start for g in self.groups], dtype=np.int64)

        def own(side: Side, part: int) -> tuple[Dealt, ...]:
            found = (replace(d, groups={part: d.groups[part]}) for d in dealt[side] if part in d.groups)
            return tuple(found)

        tasks = [
            JoinTask(self.job, part, own("table", part), own("staged", part), own("keys", part), starts, self.by)
            for part in range(self.job.parts)
        ]
        found: list[JoinedRows] = run_tasks(self.session, join, tasks, "merge: join")
        return found

    def rewrite(self, met: Sequence[JoinedRows], found: dict[str, int]) -> None:
        """Write the files again that have rows of which something becomes. `found`: how many of each kind."""
        touched = {n for m in met for n in m.touched}
        if self.by is not None:
            touched, self.change.by = set(range(len(self.sizes))), self.by
        tasks = list[RewriteTask]()
        times = [m.at for m in met if m.at is not None]
        for group, members in enumerate(self.groups):
            if numbers := tuple(n for n in members if n in touched):
                edits = {
                    what: tuple(
                        replace(m.edits[what], groups={group: m.edits[what].groups[group]})
                        for m in met
                        if what in m.edits and group in m.edits[what].groups
                    )
                    for what in ("updated", "marked", "removed")
                }
                own = portion(self.state, numbers)
                tasks.append(RewriteTask(self.job, group, own, numbers, edits, max(times, default=None), self.by))
        written: list[list[Action]] = run_tasks(self.session, rewrite_files, tasks, "merge: write")
        self.change.add += [*(a for m in met for a in m.added), *(a for some in written for a in some)]
        self.change.remove += [self.state.paths[n] for n in sorted(touched)]
        self._check(touched, found)

    def _check(self, touched: set[int], found: dict[str, int]) -> None:
        expected = sum(self.sizes[n][0] for n in touched) + found.get("inserted", 0) - found.get("removed", 0)
        check_rows(self.state, sum(map(rows_of, self.change.add)), expected)
