"""Loads without a change of single rows: claim, append and overwrite, by adopting the files that the tasks wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from instep.destinations.base import Commit, LoadOutcome, Ref, SparkStart
from instep.destinations.delta.change import DeltaCommit
from instep.destinations.delta.files import adopted, copied, path_of, remove_files, staged_path
from instep.destinations.delta.protocol.snapshot import Action, rows_of
from instep.destinations.delta.table_state import DeltaTableState, find, named, require, with_stored
from instep.destinations.delta.warehouse import DeltaFacet, Warehouse
from instep.errors import Conflict, DestinationError, Fenced
from instep.stage.spec import StagedFile

TRIES = 5
T = TypeVar("T")


def retry_commit(attempt: Callable[[], T]) -> T:
    """Try it on the table as it is by then, if somebody else was faster; never behind a later run's back."""
    for left in range(TRIES - 1, -1, -1):
        try:
            return attempt()
        except Fenced:
            raise
        except Conflict:
            if not left:
                raise
    raise AssertionError("the last try returns or raises")


def _claim(warehouse: Warehouse, ref: Ref, fence: int) -> None:
    state = find(warehouse, ref)
    if state is None or state.record.fence == fence:
        return
    state.record.check(fence)
    DeltaCommit(state, replace(state.record, fence=fence)).land("CLAIM", Commit("", fence), warehouse)


def replaced(ref: Ref) -> DestinationError:
    return DestinationError(f"table {named(ref)} was replaced: load it whole", hint="run `instep sync --full`")


def _append(warehouse: Warehouse, ref: Ref, files: Sequence[StagedFile], commit: Commit) -> LoadOutcome:
    state = require(warehouse, ref)
    state.record.check(commit.fence)
    if state.record.pending is not None:
        raise replaced(ref)
    loaded = state.record.loaded
    if files and loaded and loaded.last == tuple(sorted(f.path for f in files)):
        return LoadOutcome()
    added = adopted(state, state.fields, files, commit.run, state.by)
    count = sum(rows_of(a) for a in added)
    record = state.record.after_load(commit, state.rows + count, files, new=count)
    version = DeltaCommit(state, record, add=added, blind=bool(added)).land("WRITE", commit, warehouse)
    _clear(state, files, added)
    return LoadOutcome(inserted=count, version=str(version))


def _clear(state: DeltaTableState, files: Sequence[StagedFile], added: Sequence[Action]) -> None:
    """Delete staged files whose rows were rewritten."""
    new_paths = {path_of(state, a) for a in added}
    remove_files(state, (f for f in files if staged_path(state, f) not in new_paths))


def overwrite(
    warehouse: Warehouse, ref: Ref, files: Sequence[StagedFile], commit: Commit, *, copy: bool = False
) -> LoadOutcome:
    state = require(warehouse, ref)
    state.record.check(commit.fence)
    before = state.record.loaded.rows if state.record.loaded else 0
    pending = state.record.pending is not None
    fields, by, record = state.fields, state.next_by, replace(state.record, by=None)
    if record.pending is not None:
        fields = state.waiting
        fresh = replace(record, table=record.pending, pending=None, loaded=None, parked=(), fills=())
        record = with_stored(fresh, fields, {})
    added = (copied if copy else adopted)(state, fields, files, commit.run, by)
    rows = sum(rows_of(a) for a in added)
    record = record.after_load(commit, rows, files, new=rows, replaces_rows=True)
    change = DeltaCommit(state, record, fields if pending else None, added, [*state.paths], by=by)
    version = change.land("WRITE", commit, warehouse)
    if not copy:
        _clear(state, files, added)
    return LoadOutcome(inserted=rows, deleted=before, version=str(version))


class DeltaLoads(DeltaFacet):
    """Loads of whole files."""

    def claim(self, ref: Ref, fence: int) -> None:
        """Refuse commits with a lower fence from now on; a missing table is ignored."""
        if find(self.warehouse, ref) is not None:
            with self.warehouse.moving():
                retry_commit(lambda: _claim(self.warehouse, ref, fence))

    def append(
        self, ref: Ref, files: Sequence[StagedFile], commit: Commit, spark: SparkStart | None = None
    ) -> LoadOutcome:
        """Add the rows; files that the table has already are not added again."""
        return retry_commit(lambda: _append(self.warehouse, ref, files, commit))

    def overwrite(
        self, ref: Ref, files: Sequence[StagedFile], commit: Commit, spark: SparkStart | None = None
    ) -> LoadOutcome:
        """Return the staged rows in place of all that were, with the generation that waits, if one does."""
        return retry_commit(lambda: overwrite(self.warehouse, ref, files, commit))
