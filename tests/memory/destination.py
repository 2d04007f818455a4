"""Tables in this process as a destination: see `instep.destinations.base`. Only staged files and quarantine are on
the disk, for they are the contract between stage and destination."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from instep.crash import crashpoint
from instep.destinations.base import (
    HERE,
    BackfillResult,
    CastSample,
    Commit,
    FileWorkers,
    Fill,
    FillSize,
    InvalidValueCount,
    LoadOutcome,
    LoadState,
    Merge,
    MergePath,
    Ref,
    RowLookup,
    RowUpdate,
    SparkStart,
    StagingTarget,
    TableSize,
    UndropReport,
)
from instep.destinations.overflow import OverflowColumn, Promoted
from instep.destinations.rows import tried
from instep.errors import Conflict, DestinationError, StageError
from instep.model import Check
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.catalog.types import DataType
from instep.schema.changes.describe import TableAdded, TableRemoved, TableRenamed, TableReplaced
from instep.schema.planning.aliases import View, carried
from instep.schema.planning.guard import Guards
from instep.schema.planning.step import Step
from instep.stage.files.place import children, keep_only, remove
from instep.stage.spec import StagedFile
from memory.arrow import arrow_type
from memory.held import CAPABILITIES, Change, Held, Row, evolved, invalid_values_of, new_table
from memory.merge import Meeting, filled, null_keys, replaced_since

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class MemoryDestination:
    """`others` are tables of somebody else. Every commit puts a new value in the place of the table's old one."""

    folder: Path
    held: dict[Ref, Held] = field(default_factory=dict)
    parked: list[tuple[Ref, Held]] = field(default_factory=list)
    others: set[Ref] = field(default_factory=set)
    shown: dict[Ref, View] = field(default_factory=dict)

    kind = "memory"
    why_none = ""
    maintenance = sharing = shard = layouts = session = vacuum = clones = savepoints = None
    capabilities = CAPABILITIES
    quarantine_days = 30

    def __post_init__(self) -> None:
        self._lock, self._places = threading.Lock(), itertools.count(1)

    @property
    def schema(self) -> MemoryDestination:
        """This, as all of its facets."""
        return self

    write = lifecycle = views = schema

    def spark_catalog(self) -> Mapping[str, str]:
        return {}

    def spark_table(self, ref: Ref) -> None: ...

    def test(self) -> list[Check]:
        return [Check(name, True) for name in ("open", "create", "write", "alter", "drop")]

    def check_writable(self) -> None: ...

    def has_space(self) -> bool:
        return True

    def deferred_create(self) -> AbstractContextManager[None]:
        return nullcontext()

    def shared_storage(self) -> None: ...

    def guards(self, refs: Iterable[Ref]) -> Mapping[Ref, Guards]:
        return {}

    def render_ddl(self, steps: Sequence[Step]) -> list[str]:
        return []

    def purge_expired(self, refs: Iterable[Ref], fence: int) -> list[str]:
        return []

    def promote(
        self,
        ref: Ref,
        columns: Mapping[str, OverflowColumn],
        extra: str,
        commit: Commit,
        workers: FileWorkers = HERE,
    ) -> Promoted:
        return Promoted()

    def is_large(self, ref: Ref, files: Sequence[StagedFile] = ()) -> bool:
        return False

    def scan(self, ref: Ref, names: Sequence[str]) -> None: ...

    # what is there

    def tables(self) -> list[Ref]:
        return sorted(self.held)

    def inspect(self, refs: Iterable[Ref]) -> Catalog:
        wanted = [*refs]
        for ref in self.foreign(wanted):
            raise DestinationError(f"table {'.'.join(ref)} is not ours")
        found = (held for ref in wanted if (held := self.held.get(ref)) is not None)
        return Catalog.of(held.pending or held.table for held in found)

    def foreign(self, refs: Iterable[Ref]) -> Mapping[Ref, str]:
        return {ref: f"table {'.'.join(ref)} is not ours" for ref in refs if ref in self.others}

    def state(self, ref: Ref, *, version: bool = False) -> LoadState | None:
        held = self.held.get(ref)
        return None if held is None or held.pending is not None else held.state

    def target(self, ref: Ref) -> StagingTarget:
        held = self._get(ref)
        shape = held.waiting if held.pending is not None else held
        place = f"file://{self.folder / held.place}"
        return StagingTarget(shape.schema, f"{place}/data", f"{place}/quarantine")

    def sample_cast(self, ref: Ref, column: str, kind: DataType, key: Sequence[str], limit: int) -> CastSample:
        held = self._get(ref)
        sample = held.arrow(held.rows, (column, *key)).slice(0, limit)
        return tried(sample, column, key, held.table.by_name[column].type, kind, arrow_type(kind))

    def read(self, ref: Ref, names: Sequence[str] = (), filters: object = ()) -> pa.RecordBatchReader:
        held = self._get(ref)
        return held.arrow(held.rows, names).to_reader()

    def sizes(self, refs: Iterable[Ref]) -> Mapping[Ref, TableSize]:
        found = {ref: held for ref in refs if (held := self.held.get(ref)) is not None}
        return {ref: TableSize(len(h.rows), h.state.bytes) if h.state else TableSize() for ref, h in found.items()}

    def first_rows(self, ref: Ref, limit: int) -> pa.Table:
        return self.read(ref).read_all().slice(0, limit)

    def _get(self, ref: Ref) -> Held:
        if ref not in self.held:
            raise DestinationError(f"table {'.'.join(ref)} is not there")
        return self.held[ref]

    def _commit(self, ref: Ref, commit: Commit, change: Change) -> None:
        """One step from the table's value to the next; Fenced if a later run has claimed it."""
        with self._lock:
            held = self._get(ref)
            held.check(commit.fence)
            self.held[ref] = change(held)

    # runs

    def claim(self, ref: Ref, fence: int) -> None:
        if ref in self.held:
            self._commit(ref, Commit("", fence), lambda held: replace(held, fence=fence))

    def remove_uncommitted_files(self, ref: Ref, runs: Mapping[str, int]) -> None:
        """Rows are held here: no file of a run that is over is needed, but what committed runs have held back."""
        held = self.held.get(ref)
        if held is None:
            return
        place = f"file://{self.folder / held.place}"
        for name in children(f"{place}/data", {}):
            if any(name == run or name.startswith(f"{run}-") for run in runs):
                remove(f"{place}/data/{name}", {})
        gone = tuple(f"{run}-" for run in runs if run not in held.runs)
        names = children(f"{place}/quarantine", {})
        if gone and any(n.startswith(gone) for n in names):
            keep_only(f"{place}/quarantine", {}, [n for n in names if not n.startswith(gone)])

    # schema

    def execute(
        self, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit, workers: FileWorkers = HERE
    ) -> None:
        held = self.held.get(ref)
        if held is not None and after is not None and (held.pending or held.table) == after:
            return
        match steps[0].change:
            case TableAdded(after=table):
                self._create(ref, after or table, commit)
            case TableRemoved():
                self._park(ref, commit)
            case TableReplaced(after=table):
                self._commit(ref, commit, lambda h: replace(h, pending=after or table, version=h.version + 1))
            case _:
                self._alter(ref, steps, after, commit)
        for view in [v for v in self.shown.values() if v.table == ref]:
            del self.shown[view.ref]
            if (moved := carried(view, steps)) is not None:
                self.put(moved, commit.fence)

    # views

    def all(self) -> Mapping[Ref, View]:
        return dict(self.shown)

    def put(self, view: View, fence: int) -> None:
        if view.ref in self.held or view.ref in self.others:
            raise Conflict(f"{'.'.join(view.ref)} exists and is not ours")
        if (held := self.held.get(view.table)) is not None:
            held.check(fence)
            columns = tuple((name, column) for name, column in view.columns if column in held.table.by_name)
            self.shown[view.ref] = View(view.ref, view.table, columns, view.owner)

    def drop(self, ref: Ref) -> None:
        self.shown.pop(ref, None)

    def _alter(self, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit) -> None:
        renamed = next((s.change.after for s in steps if isinstance(s.change, TableRenamed)), None)
        if renamed is not None and renamed.ref in self.held:
            if ref in self.held:
                raise Conflict(f"table {'.'.join(ref)} cannot be renamed: {'.'.join(renamed.ref)} exists")
            return
        wanted = after or renamed
        if wanted is None:
            raise DestinationError(f"the steps for table {'.'.join(ref)} come without the table that they lead to")
        self._commit(ref, commit, lambda h: evolved(h, steps, wanted, commit))
        if renamed is not None:
            self.held[renamed.ref] = self.held.pop(ref)

    def _create(self, ref: Ref, table: Table, commit: Commit) -> None:
        with self._lock:
            if ref in self.held or ref in self.others:
                raise Conflict(f"table {'.'.join(ref)} exists")
            self.held[ref] = new_table(table, commit, f"t{next(self._places)}")

    def _park(self, ref: Ref, commit: Commit) -> None:
        if ref in self.held:
            self._commit(ref, commit, lambda held: held)
            self.parked.insert(0, (ref, self.held.pop(ref)))

    # undo

    def undrop_table(self, ref: Ref, table: Table, commit: Commit) -> None:
        there = self.held.get(ref)
        if there is None:
            place = next((n for n, (was, h) in enumerate(self.parked) if was == ref and h.table.id == table.id), None)
            if place is None:
                raise DestinationError(f"table {'.'.join(ref)} is no longer retained")
            self.held[ref] = replace(self.parked.pop(place)[1], fence=commit.fence)
        elif there.table.id != table.id:
            raise DestinationError(f"another table is now called {'.'.join(ref)}")

    def dropped(self, ref: Ref, source_id: str | None) -> bool:
        return ref in self.held or any(was == ref and h.table.id == source_id for was, h in self.parked)

    def undrop_report(self, ref: Ref, column: str) -> UndropReport:
        held = self.held.get(ref)
        if held is None:
            return UndropReport(f"table {'.'.join(ref)} is not there")
        old = next((d for d in reversed(held.dropped) if d.column.name == column), None)
        if old is None:
            return UndropReport() if column in held.ids else UndropReport(f"there never was a column {column}")
        kept = sum(old.field in row for row in held.rows)
        return UndropReport("", len(held.rows) - kept, max(len(old.rows) - kept, 0), snapshot=True)

    def restore_dropped_values(self, ref: Ref, column: str, commit: Commit, workers: FileWorkers = HERE) -> int:
        held = self._get(ref)
        field, key = held.ids[column], [held.ids[k] for k in held.table.key]
        old = next((d for d in reversed(held.dropped) if d.field == field), None)
        if not key or old is None or held.state is None:
            return 0
        values = {tuple(r.get(k) for k in key): v for r in old.rows if (v := r.get(field)) is not None}
        rows = [
            {**row, field: values[at]} if row.get(field) is None and at in values else row
            for row in held.rows
            for at in [tuple(row.get(k) for k in key)]
        ]
        filled = sum(now is not row for now, row in zip(rows, held.rows, strict=True))
        if filled:
            self._load(ref, held, rows, replace(commit, cursor=held.state.cursor, accepted=held.state.accepted), ())
        return filled

    def count_invalid_values(self, ref: Ref, column: str, kind: DataType) -> InvalidValueCount:
        return invalid_values_of(self._get(ref), column, kind)

    # rows

    def append(
        self, ref: Ref, files: Sequence[StagedFile], commit: Commit, spark: SparkStart | None = None
    ) -> LoadOutcome:
        held, names = self._get(ref), tuple(sorted(f.path for f in files))
        if held.pending is not None:
            raise DestinationError(f"table {'.'.join(ref)} was replaced: load it whole")
        if names in held.added:
            return LoadOutcome()
        rows = _read(held, files)
        self._load(ref, replace(held, added=held.added | {names}), [*held.rows, *rows], commit, files)
        return LoadOutcome(inserted=len(rows))

    def overwrite(
        self, ref: Ref, files: Sequence[StagedFile], commit: Commit, spark: SparkStart | None = None
    ) -> LoadOutcome:
        held = self._get(ref)
        before, shape = held.state.rows if held.state else 0, held.waiting if held.pending is not None else held
        rows = _read(shape, files)
        size, count = sum(f.bytes for f in files), len(files)
        self._put(ref, held, shape.with_rows(rows, commit, bytes=size, files=count, deleted=False), commit)
        return LoadOutcome(inserted=len(rows), deleted=before)

    def merge_path(self, ref: Ref, files: Sequence[StagedFile], how: Merge) -> MergePath:
        return "process"

    def merge(
        self, spark: SparkSession | None, ref: Ref, files: Sequence[StagedFile], how: Merge, commit: Commit
    ) -> LoadOutcome:
        held = self._get(ref)
        held.check(commit.fence)
        if held.pending is not None:
            if not how.complete:
                raise DestinationError(f"table {'.'.join(ref)} was replaced: load it whole")
            return self.overwrite(ref, files, commit)
        if not how.key and how.since is None:
            raise DestinationError(f"table {'.'.join(ref)} has no key to merge by")
        staged, keys = _read(held, files), _read(held, how.keys) if how.keys else None
        asked = _read(held, how.requested) if how.requested else None
        if nulls := null_keys(held, [*staged, *(keys or ()), *(asked or ())], how.key):
            raise StageError(f"table {'.'.join(ref)}: {nulls} staged rows have NULL in their key")
        if how.since is not None:
            rows, outcome = replaced_since(held, staged, how.since)
        else:
            rows, outcome = Meeting(held, staged, keys, how, asked).run()
        marks = how.deletes == "soft" and how.since is None and outcome.deleted > 0
        self._load(ref, held, rows, commit, files, marks=marks)
        return outcome

    def fill_size(self, ref: Ref, columns: Mapping[str, int]) -> FillSize:
        held = self._get(ref)
        if held.pending is not None or held.state is None:
            return FillSize(why_not="it has not been loaded yet")
        if absent := [name for name in columns if name not in held.ids]:
            return FillSize(why_not=f"somebody has dropped {absent[0]}")
        todo = any(row.get(held.ids[name]) is None for name in columns for row in held.rows)
        return FillSize(int(todo), len(held.rows) if todo else 0, held.state.bytes if todo else 0, 1)

    def fill(
        self, session: SparkSession | None, ref: Ref, work: Fill, commit: Commit,
        on_progress: Callable[[int, int], None], go_on: Callable[[], bool],
    ) -> BackfillResult:  # fmt: skip
        held = self._get(ref)
        held.check(commit.fence)
        if held.state is None:
            raise DestinationError(f"table {'.'.join(ref)} has not been loaded yet")
        rows, count = filled(held, _read(held, work.values), work)
        crashpoint("fill.rewritten")
        if any(now is not row for now, row in zip(rows, held.rows, strict=True)):
            said = replace(commit, cursor=held.state.cursor, accepted=held.state.accepted)
            self._load(ref, held, rows, said, ())
        crashpoint("fill.committed")
        on_progress(count, 0)
        return BackfillResult(count, int(count > 0))

    def _load(
        self, ref: Ref, held: Held, rows: Sequence[Row], commit: Commit, files: Sequence[StagedFile], *,
        marks: bool = False,
    ) -> None:  # fmt: skip
        """The rows that the table as `held` becomes; Conflict if it is not that any more."""
        was = held.state
        deleted = bool(was and was.deleted) or (marks and "_instep_deleted" in held.ids)
        size, count = sum(f.bytes for f in files) + (was.bytes if was else 0), len(files) + (was.files if was else 0)
        after = held.with_rows(rows, commit, bytes=size, files=count, deleted=deleted)
        self._put(ref, held, after, commit)

    def _put(self, ref: Ref, held: Held, after: Held, commit: Commit) -> None:
        def change(now: Held) -> Held:
            if now.version != held.version:
                raise Conflict(f"table {now.table.path} has moved")
            return replace(after, fence=now.fence)

        self._commit(ref, commit, change)

    def lookup_rows(self, ref: Ref, keys: pa.Table) -> RowLookup:
        held = self._get(ref)
        if held.pending is not None or held.state is None:
            raise DestinationError(f"table {'.'.join(ref)} has not been loaded yet")
        wanted = {tuple(row.values()): n for n, row in enumerate(keys.to_pylist())}
        fields = [held.ids[name] for name in keys.column_names]
        found = [(n, tuple(row.get(f) for f in fields)) for n, row in enumerate(held.rows)]
        places = [n for n, key in found if key in wanted]
        numbers = [wanted[key] for _, key in found if key in wanted]
        return RowLookup(held.arrow(held.rows[n] for n in places), numbers, (held.version, places))

    def update_rows(self, ref: Ref, lookup: RowLookup, change: RowUpdate, commit: Commit) -> LoadOutcome:
        held = self._get(ref)
        assert isinstance(lookup.places, tuple)
        version, places = lookup.places
        if held.version != version or held.state is None:
            raise Conflict(f"table {'.'.join(ref)} moved while its rows were looked at")
        rows = list(held.rows)
        for at, row in zip(change.rows, held.plain(change.updated), strict=True):
            rows[places[at]] = row
        inserted = held.plain(change.inserted)
        self._load(ref, held, [*rows, *inserted], commit, ())
        return LoadOutcome(len(inserted), len(change.rows), 0)


def _read(held: Held, files: Sequence[StagedFile]) -> list[Row]:
    """The rows of staged files in the order of their chunks."""
    ordered = sorted(files, key=lambda f: (f.chunk, f.path))
    return [row for f in ordered for row in held.plain(pq.ParquetFile(f.path.removeprefix("file://")).read())]
