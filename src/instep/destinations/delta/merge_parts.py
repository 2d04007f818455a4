"""A merge or a fill by tasks, of Spark or one after the other in this process: what differs is found and written by
them, and lands in one commit. This process holds names of files and counts.

Of a merge, keys, places and hashes are dealt out and joined; then tasks read the rows that differ, and no others.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from instep.crash import crashpoint
from instep.destinations.base import Commit, LoadOutcome
from instep.destinations.delta.change import DeltaCommit
from instep.destinations.delta.files import io_of
from instep.destinations.delta.merge_task import (
    DealTask,
    JoinedRows,
    JoinTask,
    MergeJob,
    PartedFile,
    PickedRows,
    PickTask,
    RewriteTask,
    Side,
    deal,
    fill_rows,
    join_rows,
    pick_rows,
    rewrite_files,
)
from instep.destinations.delta.merge_work import (
    DeltaMergeWork,
    FillWork,
    HashedMergeWork,
    outcome,
    refuse,
    time_of_staged,
)
from instep.destinations.delta.protocol.snapshot import Action, rows_of
from instep.destinations.delta.rewrite import check_rows
from instep.destinations.delta.rows import in_order
from instep.destinations.delta.shape import DeltaField
from instep.destinations.delta.table_state import DeltaTableState, select_files
from instep.destinations.delta.tasks import TASK_BYTES, TASK_ROWS, width
from instep.destinations.parts import grouped, run_tasks
from instep.stage.files.place import keep_only
from instep.stage.spec import StagedFile
from instep.stage.task import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOIN_ROWS = 1_000_000
"""About the most rows of a side that one task joins."""
WRITE_ROWS, WRITE_BYTES = 1_000_000, 256 << 20
"""Limits of the files that one task writes again, if it is more than one."""
FEW_ROWS = 2_000_000
"""Staged rows whose keys every task may hold, to leave out rows of the table that none of them has."""


def upsert_by_tasks(
    session: SparkSession | None,
    change: DeltaCommit,
    files: Sequence[StagedFile],
    merge: DeltaMergeWork,
    commit: Commit,
) -> LoadOutcome:
    """Put what the merge makes of the table into the change."""
    work = HashedMergeWork(merge.table, merge.how, merge.system)
    how, state = work.how, change.state
    by = tuple(state.next_by) if how.complete and state.record.by is not None else None
    with _parted(session, change, work, commit, by) as parts:
        rows, whole = sum(f.rows for f in (*files, *how.keys)), how.complete or bool(how.keys)
        among = () if whole or rows > FEW_ROWS else tuple(replace(f, footer=b"") for f in in_order(files))
        parts.choose_parts(max(rows, state.rows) if whole else rows)
        tasks = [*parts.staged("staged", files), *parts.staged("keys", how.keys), *parts.table(among=among)]
        met = parts.joined(join_rows, tasks)
        refuse(state, sum(m.nulls for m in met), sum(m.duplicates for m in met))
        crashpoint("merge.staged")
        counts = {what: sum(m.counts.get(what, 0) for m in met) for what in {w for m in met for w in m.counts}}
        edits = [*(m.edits for m in met), *parts.picked(met)]
        at = time_of_staged(state, work, files) if "marked" in counts else None
        parts.rewrite(met, edits, counts, at)
    return outcome(counts, sum(m.absent for m in met))


def fill_by_tasks(
    session: SparkSession | None,
    change: DeltaCommit,
    work: FillWork,
    values: Sequence[StagedFile] | EarlierValues,
    commit: Commit,
) -> int:
    """Put the files with the values into the change; returns how many rows get one."""
    with _parted(session, change, work, commit) as parts:
        if isinstance(values, EarlierValues):
            parts.choose_parts(values.state.rows)
            tasks = [*parts.deal_tasks(values), *parts.table(values.files)]
        else:
            parts.choose_parts(sum(f.rows for f in values))
            tasks = [*parts.staged("staged", values), *parts.table()]
        met = parts.joined(fill_rows, tasks)
        parts.rewrite(met, [m.edits for m in met], {})
    return sum(m.counts["updated"] for m in met)


@dataclass(frozen=True)
class EarlierValues:
    """The values that columns, called `names` then, had in an earlier version (`state`). `files`: the numbers of those
    of the table that may lack one."""

    state: DeltaTableState
    names: tuple[str, ...]
    files: frozenset[int]


@contextmanager
def _parted(
    session: SparkSession | None,
    change: DeltaCommit,
    work: HashedMergeWork | FillWork,
    commit: Commit,
    by: tuple[DeltaField, ...] | None = None,
) -> Iterator[_PartedChange]:
    """Yield the steps of a change, and delete the files between its tasks afterwards."""
    state = change.state
    folder = (state.folder / state.area / f"{commit.run}-merge-{uuid.uuid4().hex[:8]}").as_uri()
    try:
        yield _PartedChange(session, change, MergeJob(select_files(state, ()), work, commit.run, folder, 1), by)
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
        self.starts = np.array([g.start for g in self.groups], dtype=np.int64)
        self.staged_groups: list[DealTask] = []

    def choose_parts(self, rows: int) -> None:
        """Settle on the parts for so many rows, before tasks are made."""
        self.job = replace(self.job, parts=max(-(-rows // JOIN_ROWS), 1))

    def staged(self, side: Side, files: Sequence[StagedFile]) -> list[DealTask]:
        """Return the tasks that distribute staged rows."""
        ordered = in_order(files)
        starts = np.cumsum([0, *(f.rows for f in ordered)]).tolist()
        tasks = list[DealTask]()
        for number, some in enumerate(grouped([(f.rows, f.bytes) for f in ordered], TASK_ROWS, TASK_BYTES, self.wide)):
            staged = tuple((starts[i], replace(ordered[i], footer=b"")) for i in some)
            tasks.append(DealTask(self.job, number, side, self.job.state, staged=staged))
        return tasks

    def deal_tasks(self, values: EarlierValues) -> list[DealTask]:
        """Return the tasks that distribute the rows of an earlier version."""
        then = values.state
        sizes = [(then.counted(f), int(f["size"])) for f in then.files]
        groups = grouped(sizes, TASK_ROWS, TASK_BYTES, self.wide)
        return [
            DealTask(self.job, number, "staged", select_files(then, some), before=values.names)
            for number, some in enumerate(groups)
        ]

    def table(self, files: frozenset[int] | None = None, among: tuple[StagedFile, ...] = ()) -> Iterator[DealTask]:
        """Yield the tasks that distribute the table's rows: those of these files (None: of all)."""
        for number, some in enumerate(grouped(self.sizes, TASK_ROWS, TASK_BYTES, self.wide)):
            if own := tuple(n for n in some if files is None or n in files):
                yield DealTask(self.job, number, "table", select_files(self.state, own), own, among=among)

    def joined(
        self, join: Callable[[JoinTask, int, Report | None], JoinedRows], tasks: Sequence[DealTask]
    ) -> list[JoinedRows]:
        """Return what becomes of the rows that these tasks deal out."""
        self.staged_groups = [t for t in tasks if t.side == "staged"]
        dealt: dict[Side, list[PartedFile]] = {"staged": [], "keys": [], "table": []}
        for task, dealt_part in zip(tasks, run_tasks(self.session, deal, tasks, "merge: deal"), strict=True):
            if dealt_part is not None:
                dealt[task.side].append(dealt_part)
        staged_starts = np.array([t.staged[0][0] for t in self.staged_groups if t.staged], dtype=np.int64)
        joins = [
            JoinTask(
                self.job,
                part,
                _own(dealt["table"], part),
                _own(dealt["staged"], part),
                _own(dealt["keys"], part),
                self.starts,
                staged_starts,
            )
            for part in range(self.job.parts)
        ]
        joined_rows: list[JoinedRows] = run_tasks(self.session, join, joins, "merge: join")
        return joined_rows

    def picked(self, met: Sequence[JoinedRows]) -> list[Mapping[str, PartedFile]]:
        """Read the staged rows that come: new ones are put into the change, the others are returned."""
        come = [m.come for m in met if m.come is not None]
        tasks = [
            PickTask(self.job, group, task.staged, own, self.starts, self.by)
            for group, task in enumerate(self.staged_groups)
            if (own := _own(come, group))
        ]
        picked_rows: list[PickedRows] = run_tasks(self.session, pick_rows, tasks, "merge: read")
        self.change.add += [action for picked_part in picked_rows for action in picked_part.added]
        return [{"updated": picked_part.updated} for picked_part in picked_rows if picked_part.updated is not None]

    def rewrite(
        self,
        met: Sequence[JoinedRows],
        edits: Sequence[Mapping[str, PartedFile]],
        counts: Mapping[str, int],
        at: int | None = None,
    ) -> None:
        """Write the files again that have rows of which something becomes. `counts`: how many of each kind; `at`: the
        time of those that leave."""
        touched = {n for m in met for n in m.touched}
        if self.by is not None:
            touched, self.change.by = set(range(len(self.sizes))), self.by
        tasks = list[RewriteTask]()
        for group, members in enumerate(self.groups):
            if numbers := tuple(n for n in members if n in touched):
                own = {
                    what: _own([e[what] for e in edits if what in e], group)
                    for what in ("updated", "marked", "removed")
                }
                state = select_files(self.state, numbers)
                tasks.append(RewriteTask(self.job, group, state, numbers, own, at, self.by))
        written: list[list[Action]] = run_tasks(self.session, rewrite_files, tasks, "merge: write")
        self.change.add += [a for some in written for a in some]
        self.change.remove += [self.state.paths[n] for n in sorted(touched)]
        self._check(touched, counts)

    def _check(self, touched: set[int], counts: Mapping[str, int]) -> None:
        expected = sum(self.sizes[n][0] for n in touched) + counts.get("inserted", 0) - counts.get("removed", 0)
        check_rows(self.state, sum(map(rows_of, self.change.add)), expected)


def _own(files: Sequence[PartedFile], part: int) -> tuple[PartedFile, ...]:
    """Return the files that have rows of a part, with no more than its row groups."""
    return tuple(replace(d, groups={part: d.groups[part]}) for d in files if part in d.groups)
