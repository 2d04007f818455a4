"""Work on files of a table in parts: by tasks of Spark, or one after the other in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from instep.destinations.delta.files import Writing, rows_in, write
from instep.destinations.delta.protocol.log import DeltaLog
from instep.destinations.delta.protocol.snapshot import ADD, NONE_GONE, Action, FileActions
from instep.destinations.delta.table_state import DeltaTableState
from instep.stage.spec import StagedFile
from instep.stage.task import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_ROWS, TASK_BYTES = 4_000_000, 1 << 30
"""Limits of what a task reads, if it is more than one file."""
TASKS_PER_CORE = 2
HERE_BYTES = 512 << 20
"""The most bytes that are joined in this process."""


def fits(state: DeltaTableState, files: Sequence[StagedFile], rows: int) -> bool:
    """Return whether a table's rows and staged ones may meet in this process: no more than `rows` of both."""
    weight = state.bytes + sum(f.bytes for f in files)
    return state.rows + sum(f.rows for f in files) <= rows and weight <= HERE_BYTES


def run_tasks(session: SparkSession | None, work: Callable[..., Any], tasks: Sequence[Any], what: str) -> list[Any]:
    """Return the results in the order of the tasks, which run in Spark, or here without a session."""
    if session is None:
        return [work(task, 0, None) for task in tasks]
    from instep.spark.extract import run_parts

    return run_parts(session, work, tasks, what=what)


def width(session: SparkSession | None) -> int:
    """Return how many tasks a step has at least, if there is work for them."""
    if session is None:
        return TASKS_PER_CORE * (os.cpu_count() or 1)
    from instep.spark.extract import cores

    return TASKS_PER_CORE * cores(session)


def portion(state: DeltaTableState, numbers: Sequence[int]) -> DeltaTableState:
    """Return the table with these of its files, in their order, and no more of its log than reading them takes."""
    files = FileActions.listed(({**state.files[n], "stats": None} for n in numbers), ADD)
    snapshot = replace(state.snapshot, files=files, gone=NONE_GONE, domains={}, txns={}, known={})
    return replace(state, log=DeltaLog(state.folder), snapshot=snapshot, whole=None)


def grouped(sizes: Sequence[tuple[int, int]], rows: int, size: int, wide: int = 1) -> list[range]:
    """Return runs of neighbours whose (rows, bytes) add up to no more than these, and to no more than a share if there
    are to be `wide` of them."""
    rows = min(rows, max(-(-sum(r for r, _ in sizes) // wide), 1)) if wide > 1 else rows
    found, start, own = list[range](), 0, (0, 0)
    for at, (count, weight) in enumerate(sizes):
        if at > start and (own[0] + count > rows or own[1] + weight > size):
            found.append(range(start, at))
            start, own = at, (0, 0)
        own = own[0] + count, own[1] + weight
    return [*found, range(start, len(sizes))] if sizes else []


@dataclass(frozen=True)
class PackTask:
    """Files, by their paths in `state` and in the order of their rows, that become one."""

    number: int
    state: DeltaTableState
    paths: tuple[str, ...]
    run: str


def pack(part: PackTask, attempt: int, report: Report | None) -> list[Action]:
    """Write the files' rows as they are."""
    state = part.state
    rows = (batch for path in part.paths for batch in rows_in(state, state.own[path], state.layout))
    return write(state, state.layout, Writing(part.run, part.number, attempt), rows)
