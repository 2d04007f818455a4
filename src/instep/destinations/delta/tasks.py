"""Work on files of a table in parts: by tasks of Spark, or one after the other in this process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from instep.destinations.delta.files import Writing, rows_in, write
from instep.destinations.delta.protocol.snapshot import Action
from instep.destinations.delta.table_state import DeltaTableState
from instep.destinations.parts import is_large
from instep.stage.spec import StagedFile
from instep.stage.task import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_ROWS, TASK_BYTES = 4_000_000, 1 << 30
"""Limits of what a task reads, if it is more than one file."""
TASKS_PER_CORE = 2


def fits_in_process(state: DeltaTableState, files: Sequence[StagedFile], rows: int) -> bool:
    """Return whether a table's rows and staged ones may meet in this process: no more than `rows` of both."""
    return not is_large(state.rows + sum(f.rows for f in files), state.bytes + sum(f.bytes for f in files), rows)


def width(session: SparkSession | None) -> int:
    """Return how many tasks a step has at least, if there is work for them."""
    if session is None:
        return TASKS_PER_CORE * (os.cpu_count() or 1)
    from instep.spark.extract import cores

    return TASKS_PER_CORE * cores(session)


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
