"""The process that opens a project for `spark.read.format("instep")`, and holds the snapshot that tasks read."""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instep.errors import InstepError

if TYPE_CHECKING:
    from instep.spark.data_source import ReadRequest
    from instep.sync.context import SyncContext

_POLL = 1.0
_UNSEEN = 3600.0
"""Seconds that a snapshot stays open at least where tasks on other machines cannot show that they read."""


def main() -> None:
    """Answer the request on standard input, then hold the snapshot until nobody reads it any more."""
    from instep.spark.data_source import ReadRequest

    answered = False

    def answer(kind: str, found: Any) -> None:
        nonlocal answered
        answered = True
        with os.fdopen(os.dup(1), "wb") as out:
            pickle.dump((kind, found), out)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 1)  # the reader of the answer waits until nobody can write any more

    try:
        serve(ReadRequest(**json.load(sys.stdin)), lambda found: answer("found", found))
    except InstepError as error:
        if not answered:
            answer("error", (type(error).__name__, error.message, error.hint))
    except Exception as error:
        if not answered:
            answer("error", ("InstepError", f"the read failed: {type(error).__name__}", "look into the project"))


def serve(request: ReadRequest, answer: Callable[[Any], None]) -> None:
    """Answer the table's columns, or the parts to read; return once the snapshot of these is closed."""
    from instep.bootstrap.app import open_project
    from instep.sync.read_source import readable_columns

    with open_project(Path(request.project)) as app:
        app.looks_only = True
        context = app.sync_context(app.connection(request.connection))
        if request.columns is None:
            answer([(c.alias or c.name, str(c.type)) for c in readable_columns(context, request.table)])
            return
        _hold(request, context, answer)


def _hold(request: ReadRequest, context: SyncContext, answer: Callable[[Any], None]) -> None:
    from instep.sync.read_source import plan_read, readable_columns
    from instep.temporary import temporary

    assert request.columns is not None
    readable_columns(context, request.table)  # before anything is opened
    with context.source.snapshot() as snapshot, temporary("read") as folder:
        made = plan_read(context, snapshot, request.table, request.columns, request.on_invalid_value)  # type: ignore[arg-type]
        answer((folder, _parts(snapshot.reader, *made)))
        _wait(Path(folder), request)


def _parts(reader: Any, spec: Any, chunks: Any) -> list[bytes]:
    """Return the work of each task: a chunk each, unless the source allows fewer connections or they share a view."""
    from instep.spark.payload import packed
    from instep.stage.spec import limits_of, pack
    from instep.stage.task import task_count

    limits = limits_of(reader)
    parts = pack(chunks, task_count(limits, max(1, len(chunks)), max(1, len(chunks))))
    share = limits.rows_per_second / max(1, len(parts))
    return [packed((reader, spec, part, share)) for part in parts]


def _wait(folder: Path, request: ReadRequest) -> None:
    """Return when Spark has ended, or no task has read for as long as the request says."""
    begun = last = folder.stat().st_mtime
    while _runs(request.spark):
        time.sleep(_POLL)
        last = max([last, folder.stat().st_mtime, *(_time(file) for file in folder.iterdir())])
        seconds = request.snapshot_seconds if last > begun else max(request.snapshot_seconds, _UNSEEN)
        if time.time() - last > seconds:
            return


def _time(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:  # the task has ended
        return 0.0


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
