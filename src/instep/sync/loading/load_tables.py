"""Moves the rows of many tables: one extract over all chunks, one fenced commit a table, beside the reading of others.

A table is committed once all of its rows are staged and counted and its schema, looked at again, is what it was. Tables
that are ready together are looked at together, for a look may cost as much as reading the source's whole catalog.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

from instep.crash import crashpoint
from instep.errors import ConnectError, Fenced, InstepError, ReadError
from instep.model import Run
from instep.schema.catalog.catalog import Catalog
from instep.sources.base import BatchLookup, Snapshot
from instep.spans import in_current_span, span
from instep.stage.spec import Chunk, ChunkResult, StageSpec, limits_of
from instep.sync.context import Ref, SyncContext
from instep.sync.housekeeping import discard
from instep.sync.loading.engine import Engine
from instep.sync.loading.load_table import (
    Staged,
    TableResult,
    clear,
    commit,
    failed,
    placed,
    result_of,
    specs_of,
    verify,
)
from instep.sync.loading.table_load import Load
from instep.sync.loading.task_specs import chunks_of
from instep.sync.progress import Progress, reading

LOOKS = 8
"""The most times that the source's schema is looked at again while rows are read."""


@dataclass
class Loading:
    """The loads of one pass."""

    context: SyncContext
    engine: Engine
    loads: Sequence[Load]
    run: Run
    progress: Progress
    loaded: Callable[[TableResult], None]
    """Callback for the result of each, also where the pass as a whole fails later."""
    done: list[TableResult] = field(default_factory=list)
    set_aside: list[Load] = field(default_factory=list)
    """Loads whose schema has changed since they were read."""
    _specs: dict[int, list[StageSpec]] = field(default_factory=dict)
    _chunks: list[Chunk] = field(default_factory=list)
    _planned: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    _results: dict[str, dict[int, ChunkResult]] = field(default_factory=lambda: defaultdict(dict))
    _staged: dict[int, Staged | InstepError] = field(default_factory=dict)
    _running: dict[Future[TableResult], Load] = field(default_factory=dict)
    _begun: set[int] = field(default_factory=set)

    def read(self, snapshot: Snapshot) -> None:
        """Run the one extract of what was planned. What is complete before its end may be committed meanwhile."""
        chunks = self._chunks
        self.engine.ready(chunks, self.progress.step)
        self.progress.step("reading rows")
        specs = [spec for own in self._specs.values() for spec in own]
        with span("extract", tables=len(self.loads), chunks=len(chunks)), self._pool() as pool:
            try:
                results = self.engine.extract(
                    snapshot.reader,
                    specs,
                    chunks,
                    reading(self.progress, {s: load.table.path for load in self.loads for s in load.specs}),
                    lambda fresh: self._commit_complete(fresh, snapshot, pool),
                )
                self._wait()
                crashpoint("sync.staged")
                self._keep_last(results)
            finally:
                self._wait()
        for load in self.open:
            self._staged[load.number] = self._verified(load)
        crashpoint("sync.verified")
        self._set_aside_changed(snapshot, self.open)

    def commit(self) -> None:
        """Commit the loads that were not committed during the reading."""
        with self._pool() as pool, self.context.destination_open():
            for load in self.open:
                self._begin(load, pool)
            self._wait()
        self.done.sort(key=lambda result: result.load.number)

    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max_workers=2 * (os.cpu_count() or 1), thread_name_prefix="commit")

    @property
    def open(self) -> list[Load]:
        """Return the loads that were not started yet."""
        return [load for load in self.loads if load.number not in self._begun]

    def plan(self, snapshot: Snapshot) -> None:
        """Choose what tasks read, and where they write."""
        synced = int(self.run.started.timestamp() * 1_000_000)
        if isinstance(snapshot, BatchLookup):
            snapshot.look_up([load.read.source.ref for load in self.loads if load.changed is None or load.keys])
        for load in self.loads:
            try:
                stage_specs = specs_of(self.context, load, snapshot, self.run.id, synced)
                self._chunks += chunks_of(load, snapshot)
                self._specs[load.number] = stage_specs
            except InstepError as error:
                self._staged[load.number] = error
        for chunk in self._chunks:
            self._planned[chunk.table].add(chunk.number)

    def _add_results(self, results: Iterable[ChunkResult]) -> None:
        for result in results:
            self._results[result.table][result.chunk] = result

    def _keep_last(self, results: Sequence[ChunkResult]) -> None:
        """Record all results as they are in the end. A task that died may have been run again: what it then staged
        of a committed table is deleted, as the commit has read all that was staged before."""
        files = {file.path for result in results for file in result.files}
        for load in (load for load in self.loads if load.number in self._begun):
            staged = self._staged[load.number]
            if isinstance(staged, Staged) and any(file.path not in files for file in staged.every):
                clear(load, staged)
        self._add_results(results)

    def _commit_complete(self, fresh: Sequence[ChunkResult], snapshot: Snapshot, pool: ThreadPoolExecutor) -> None:
        """Commit the tables that are complete, if there are enough of them and others are still being read. A
        destination that has to be opened for it would be closed to its readers meanwhile."""
        self._add_results(fresh)
        if self.context.destination.lifecycle.session or limits_of(snapshot.reader).connections:
            return
        open_ = self.open
        ready = [load for load in open_ if self._is_complete(load)]
        if len(ready) * LOOKS < len(self.loads) or len(ready) == len(open_):
            return
        for load in ready:
            self._staged[load.number] = self._verified(load)
        self._set_aside_changed(snapshot, ready)
        if self._is_ours():
            for load in ready:
                if load.number not in self._begun:
                    self._begin(load, pool)

    def _is_complete(self, load: Load) -> bool:
        return load.number in self._specs and all(
            self._planned[spec] == self._results[spec].keys() for spec in load.specs
        )

    def _is_ours(self) -> bool:
        """Return whether no later run has taken over; the end of the pass says so to whoever asked for it."""
        try:
            self.context.store.runs.check(self.run)
        except Fenced:
            return False
        return True

    def _verified(self, load: Load) -> Staged | InstepError:
        if staged := self._staged.get(load.number):
            return staged
        results = {spec: [*self._results[spec].values()] for spec in load.specs}
        return placed(verify(load, self._planned, results), self._specs[load.number][0])

    def _set_aside_changed(self, snapshot: Snapshot, loads: Sequence[Load]) -> None:
        """Set those aside whose schema has moved, or that others wanted for themselves. Where nobody can look, because
        the source has gone meanwhile, each has failed by its name."""
        moved: Set[Ref] = frozenset()
        try:
            moved = snapshot.changed_tables(Catalog.of(load.read.source for load in loads)) if loads else moved
        except (ReadError, ConnectError) as error:
            for load in loads:
                if not isinstance(self._staged[load.number], InstepError):
                    text = f"table {load.table.path}: its schema cannot be checked behind its rows: {error.message}"
                    self._staged[load.number] = type(error)(text, hint=error.hint)
        for load in loads:
            if load.read.source.ref in moved or self._gave_way(load):
                self._begun.add(load.number)
                self.set_aside.append(load)

    def _gave_way(self, load: Load) -> bool:
        return any(result.again for spec in load.specs for result in self._results[spec].values())

    def _begin(self, load: Load, pool: ThreadPoolExecutor) -> None:
        self._begun.add(load.number)
        files = self._staged[load.number]
        if isinstance(files, InstepError):
            discard(self.context, [load])
            self._end(failed(load, self.run, files))
            return
        self.progress.table(load.table.path, step="committing")
        does = in_current_span(commit, self.context, self.engine, load, files, self.run, self.progress)
        self._running[pool.submit(does)] = load

    def _wait(self) -> None:
        """Wait for the commits that are under way; one that fails leaves the others alone."""
        for future in as_completed(list(self._running)):
            load = self._running.pop(future)
            self._end(result_of(self.context, load, future, self.run))
            self.progress.table(load.table.path, step=self.done[-1].result.status)

    def _end(self, result: TableResult) -> None:
        self.done.append(result)
        self.loaded(result)
