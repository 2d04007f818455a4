"""A merge by tasks, of Spark or one after the other in this process: what differs is found and written by them, and
lands in one commit. This process holds names of files and counts.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from instep.crash import crashpoint
from instep.destinations.base import Commit, LoadOutcome
from instep.destinations.delta.change import DeltaCommit
from instep.destinations.delta.files import io_of
from instep.destinations.delta.merge import DeltaMergeWork, outcome, refuse
from instep.destinations.delta.merge_task import (
    Dealt,
    DealTask,
    MeetTask,
    MergeJob,
    Met,
    RewriteTask,
    Side,
    deal,
    meet_rows,
    rewrite_files,
)
from instep.destinations.delta.rows import in_order
from instep.destinations.delta.snapshot import Action, rows_of
from instep.destinations.delta.table_state import named
from instep.destinations.delta.tasks import TASK_BYTES, TASK_ROWS, grouped, portion, run_tasks, width
from instep.errors import DestinationError
from instep.stage.files.place import keep_only
from instep.stage.spec import StagedFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEET_ROWS = 1_000_000
"""About how many rows meet in one task."""
WRITE_ROWS, WRITE_BYTES = 1_000_000, 256 << 20
"""Of the files that one task writes again, if it is more than one."""
FEW_ROWS = 2_000_000
"""Staged rows whose keys every task may hold, to leave out rows of the table that none of them has."""


def upsert_by_tasks(
    session: SparkSession | None,
    change: DeltaCommit,
    files: Sequence[StagedFile],
    work: DeltaMergeWork,
    commit: Commit,
) -> LoadOutcome:
    """Put what the merge makes of the table into the change."""
    state = change.state
    folder = (state.folder / state.area / f"{commit.run}-merge-{uuid.uuid4().hex[:8]}").as_uri()
    try:
        return _PartedMerge(session, change, work, commit, folder).done(files)
    finally:
        keep_only(folder, io_of(state), [])


class _PartedMerge:
    """The steps of one merge."""

    def __init__(
        self, session: SparkSession | None, change: DeltaCommit, work: DeltaMergeWork, commit: Commit, folder: str
    ) -> None:
        self.session, self.change, self.work = session, change, work
        self.state, self.wide = change.state, width(session)
        self.by = self.state.next_by if work.how.complete and self.state.record.by is not None else None
        self.job = MergeJob(portion(self.state, ()), work, commit.run, folder, 1)
        self.sizes = [(rows_of(f), int(f["size"])) for f in self.state.files]

    def done(self, files: Sequence[StagedFile]) -> LoadOutcome:
        """Run them."""
        how = self.work.how
        rows = sum(f.rows for f in (*files, *how.keys))
        whole = how.complete or bool(how.keys)
        parts = -(-(max(rows, sum(r for r, _ in self.sizes)) if whole else rows) // MEET_ROWS)
        self.job = replace(self.job, parts=max(parts, 1))
        among = () if whole or rows > FEW_ROWS else tuple(replace(f, footer=b"") for f in in_order(files))
        tasks = [*self._staged("staged", files), *self._staged("keys", how.keys), *self._table(among)]
        dealt: dict[Side, list[Dealt]] = {"staged": [], "keys": [], "table": []}
        for task, one in zip(tasks, run_tasks(self.session, deal, tasks, "merge: deal"), strict=True):
            if one is not None:
                dealt[task.side].append(one)
        groups = grouped(self.sizes, WRITE_ROWS, WRITE_BYTES, self.wide)
        met = self._meet(dealt, groups)
        refuse(self.state, sum(m.nulls for m in met), sum(m.twins for m in met))
        crashpoint("merge.staged")
        found = {what: sum(m.found.get(what, 0) for m in met) for what in {w for m in met for w in m.found}}
        self._rewrite(met, groups, found)
        return outcome(found, sum(m.absent for m in met))

    def _staged(self, side: Side, files: Sequence[StagedFile]) -> Iterator[DealTask]:
        ordered = in_order(files)
        starts = np.cumsum([0, *(f.rows for f in ordered)]).tolist()
        for number, some in enumerate(grouped([(f.rows, f.bytes) for f in ordered], TASK_ROWS, TASK_BYTES, self.wide)):
            staged = tuple((starts[i], replace(ordered[i], footer=b"")) for i in some)
            yield DealTask(self.job, number, side, self.job.state, staged=staged)

    def _table(self, among: tuple[StagedFile, ...]) -> Iterator[DealTask]:
        for number, some in enumerate(grouped(self.sizes, TASK_ROWS, TASK_BYTES, self.wide)):
            yield DealTask(self.job, number, "table", portion(self.state, some), tuple(some), among=among)

    def _meet(self, dealt: dict[Side, list[Dealt]], groups: Sequence[range]) -> list[Met]:
        of = np.repeat(np.arange(len(groups)), [len(g) for g in groups]) if groups else np.zeros(0, dtype=np.int64)
        by = None if self.by is None else tuple(self.by)

        def own(side: Side, part: int) -> tuple[Dealt, ...]:
            found = (replace(d, groups={part: d.groups[part]}) for d in dealt[side] if part in d.groups)
            return tuple(found)

        tasks = [
            MeetTask(self.job, part, own("table", part), own("staged", part), own("keys", part), of, by)
            for part in range(self.job.parts)
        ]
        found: list[Met] = run_tasks(self.session, meet_rows, tasks, "merge: meet")
        return found

    def _rewrite(self, met: Sequence[Met], groups: Sequence[range], found: dict[str, int]) -> None:
        touched = {n for m in met for n in m.touched}
        if self.by is not None:
            touched, self.change.by = set(range(len(self.sizes))), self.by
        tasks = list[RewriteTask]()
        times = [m.at for m in met if m.at is not None]
        for group, members in enumerate(groups):
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
                by = None if self.by is None else tuple(self.by)
                tasks.append(RewriteTask(self.job, group, own, numbers, edits, max(times, default=None), by))
        written: list[list[Action]] = run_tasks(self.session, rewrite_files, tasks, "merge: write")
        self.change.add += [*(a for m in met for a in m.added), *(a for some in written for a in some)]
        self.change.remove += [self.state.paths[n] for n in sorted(touched)]
        self._check(touched, found)

    def _check(self, touched: set[int], found: dict[str, int]) -> None:
        """Raise DestinationError before rows could be lost."""
        sizes = [self.sizes[n][0] for n in touched]
        wanted = sum(sizes) + found.get("inserted", 0) - found.get("removed", 0)
        rows = sum(map(rows_of, self.change.add))
        if rows != wanted and all(sizes):
            raise DestinationError(
                f"table {named(self.state.ref)}: {rows:,} rows were written where {wanted:,} should be",
                hint="nothing was committed; check the files with `instep verify`",
            )
