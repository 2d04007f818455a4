"""Backfill columns of an Iceberg table: tasks rewrite data files, fenced commits replace them.

The files that a backfill has been through tell it themselves: the folder that they were written into ends with the
backfill's number. A fill that was interrupted goes on with the others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import DecimalType, PrimitiveType

from instep.crash import crashpoint
from instep.destinations.base import BackfillResult, Commit, Fill, FillSize, Ref
from instep.destinations.iceberg.backfill.fill_task import FillTask, Rewritten, fill_part
from instep.destinations.iceberg.backfill.promote_task import PromoteTask
from instep.destinations.iceberg.commit.commit import TableCommit
from instep.destinations.iceberg.commit.new_files import NewFiles
from instep.destinations.iceberg.commit.position_deletes import is_of_one_file
from instep.destinations.iceberg.commit.row_reader import ExistingFile, light, old_file
from instep.destinations.iceberg.commit.shard_table import ShardTable, land, own_data, planned, staged_schema
from instep.destinations.iceberg.commit.snapshots import Replaced
from instep.destinations.iceberg.metadata.catalog import Lake, LakeFacet
from instep.destinations.iceberg.metadata.files import arrow_schema, data_files, readable_files
from instep.destinations.iceberg.metadata.partition import partitioning
from instep.destinations.iceberg.metadata.records import exact_rows, load_state, read_pending, state_record
from instep.destinations.iceberg.metadata.updates import MAIN, ref_is
from instep.destinations.iceberg.write.load import load_ours, summary
from instep.errors import DestinationError
from instep.stage.spec import StageSpec, SystemColumns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILLS = "instep.fills"
PARTS_PER_CORE = 2
PART_ROWS, PART_BYTES = 4_000_000, 1 << 30
"""What one task takes on at most, if it is more than one file; a commit exchanges what two tasks a core took on."""
Span = tuple[Any, Any] | None
"""The least and the greatest key of a file."""
_FOLDER = re.compile(r"/[^/]*-fill((?:-\d+)+)/[^/]*$")


def folder_name(run: str, numbers: Sequence[int]) -> str:
    """Return where a run writes the files that these backfills have been through."""
    return f"{run}-fill-{'-'.join(str(n) for n in sorted(numbers))}"


def been_through(path: str) -> frozenset[int]:
    """Return the backfills that have been through a data file."""
    match = _FOLDER.search(path)
    return frozenset(int(n) for n in match[1].split("-")[1:]) if match else frozenset()


def _candidates(table: Table, tasks: Sequence[FileScanTask], columns: Mapping[str, int]) -> list[FileScanTask]:
    """Return the files that may have rows without a value, except those that all of these backfills have covered."""
    ids = {table.schema().find_field(name).field_id: number for name, number in columns.items()}

    def lacks(file: DataFile) -> bool:
        done, nulls = been_through(file.file_path), file.null_value_counts or {}
        return any(number not in done and nulls.get(field) != 0 for field, number in ids.items())

    return [t for t in tasks if lacks(t.file)]


def _from(
    done: BackfillResult, on_progress: Callable[[int, int], None]
) -> Callable[[Mapping[str, tuple[int, int]]], None]:
    return lambda counts: on_progress(
        done.rows + sum(c[0] for c in counts.values()), sum(c[1] for c in counts.values())
    )


def run_parts(
    session: SparkSession | None,
    parts: Sequence[FillTask],
    on_progress: Callable[[Mapping[str, tuple[int, int]]], None],
) -> list[list[Rewritten]]:
    """Run the parts as Spark tasks, or in this process without a session."""
    if session is None:
        return [fill_part(part, 0, None) for part in parts]
    from instep.spark.extract import run_parts as run_on_spark

    return run_on_spark(session, fill_part, parts, on_progress)


def files_spec(lake: Lake, table: Table, folder: str, commit: Commit) -> StageSpec:
    """Return how the files are written that replace a table's, below its data in this folder."""
    return StageSpec(
        table=".".join(table.name()),
        columns=(),
        system=SystemColumns(),
        schema=arrow_schema(table.schema()),
        location=f"{own_data(table)}/{folder}",
        quarantine="",
        run=commit.run,
        synced=0,
        io=lake.io(),
        partition=partitioning(table.metadata),
    )


@dataclass
class FileExchange:
    """Data files that take the place of others with the same rows, in fenced commits that follow one another."""

    lake: Lake
    ref: Ref
    commit: Commit
    spec: StageSpec
    schema: Schema
    properties: Mapping[str, str]
    """Go into the summaries of the snapshots."""

    def __post_init__(self) -> None:
        self.new_files = NewFiles(self.lake.io())

    def exchange(self, table: Table, rewritten: Sequence[Rewritten], tasks: Mapping[str, FileScanTask]) -> Table:
        """Return one fenced commit onto the snapshot that was read."""
        with self.new_files.landing([f.path for r in rewritten for f in r.files]):
            return land(table, lambda now: self._exchange(now, rewritten, tasks))

    def _exchange(self, table: Table, rewritten: Sequence[Rewritten], tasks: Mapping[str, FileScanTask]) -> Table:
        metadata = load_ours(self.lake, self.ref)[1]
        base, state = table.metadata.current_snapshot(), load_state(metadata)
        assert base is not None, "a table without rows has no file to exchange"
        assert state is not None, "a table without a load has no file to exchange"
        old = [tasks[r.path] for r in rewritten]
        files = [f for r in rewritten for f in r.files]
        change = TableCommit(table if isinstance(table, ShardTable) else load_ours(self.lake, self.ref)[0])
        change.require(ref_is(MAIN, base.snapshot_id))
        own = replace(self.commit, cursor=state.cursor, accepted=state.accepted)
        deletes = {d.file_path: d for t in old for d in t.delete_files if is_of_one_file(d)}
        replaced = Replaced([t.file for t in old], list(deletes.values()))
        new = data_files(files, change.metadata, self.schema)
        snapshot = change.exchange(new, replaced, summary(own) | dict(self.properties))
        rows = exact_rows(metadata, base.snapshot_id)
        change.properties(state_record(own, snapshot, rows, deleted=state.deleted))
        return change.land(self.commit.fence).refresh()


@dataclass
class FileFill(FileExchange):
    """Rows with NULL in one of the `columns` get its value from the files `values`, by key; `spans` are the keys of
    these files. See `FillTask`."""

    key: tuple[str, ...]
    columns: tuple[str, ...]
    meta: str
    holds: bool
    values: tuple[ExistingFile, ...]
    spans: Sequence[Span]

    def parts(self, table: Table, tasks: Sequence[FileScanTask]) -> Iterator[FillTask]:
        """Yield tasks of neighbouring keys, so that each needs few of the files with values."""
        span_of = key_spans(table, self.key)
        spanned = [(span_of(t.file), t) for t in tasks]
        spanned = sorted((f for f in spanned if f[0]), key=lambda f: f[0][0] if f[0] else 0) + [
            f for f in spanned if not f[0]
        ]
        olds = [_old(number, t, span, self.spans) for number, (span, t) in enumerate(spanned)]
        for group in file_groups(olds):
            yield FillTask(
                light(table.metadata),
                self.spec,
                self.key,
                self.columns,
                self.meta,
                self.holds,
                self.values,
                tuple(group),
                self.lake.io(),
            )


def _ordered_by(table: Table, key: Sequence[str]) -> str:
    """Return the column by whose values files differ: that of the shard has one."""
    return next(k for k in key if not isinstance(table, ShardTable) or k != table.shard_key[0])


def key_spans(table: Table, key: Sequence[str]) -> Callable[[DataFile], Span]:
    """Return a function of the smallest and largest key of a file, as far as its metrics have them."""
    key_field = table.schema().find_field(_ordered_by(table, key))
    return lambda file: _range(file, key_field.field_id, key_field.field_type)


def _part_of(table: Table, fill: Fill) -> Any:
    return (staged_schema(table) or table.schema()).select(*fill.key, *fill.columns, fill.meta)


def _staged(table: Table, work: Fill) -> tuple[tuple[ExistingFile, ...], list[Span]]:
    """Return the staged files with the values, and their keys."""
    files, spec = readable_files(work.values, table.metadata, _part_of(table, work)), table.metadata.spec()
    place, span_of = (spec.spec_id, (None,) * len(spec.fields)), key_spans(table, work.key)
    return tuple(ExistingFile(n, f.file_path, 0, 0, place=place) for n, f in enumerate(files)), [
        span_of(f) for f in files
    ]


def _range(file: DataFile, field: int, kind: Any) -> Span:
    """Return the least and greatest key of a file, as far as its metrics tell."""
    low, high = (file.lower_bounds or {}).get(field), (file.upper_bounds or {}).get(field)
    if low is None or high is None or not isinstance(kind, PrimitiveType) or isinstance(kind, DecimalType):
        return None
    return from_bytes(kind, low), from_bytes(kind, high)


def _old(
    number: int, task: FileScanTask, span: tuple[Any, Any] | None, staged: Sequence[tuple[Any, Any] | None]
) -> ExistingFile:
    may_meet = (span is None or s is None or (s[0] <= span[1] and span[0] <= s[1]) for s in staged)
    values = tuple(place for place, meets in enumerate(may_meet) if meets)
    return old_file(number, task, values)


Part = TypeVar("Part", FillTask, PromoteTask)
"""Work of one task on some files."""


def file_groups(olds: Sequence[ExistingFile]) -> Iterator[list[ExistingFile]]:
    """Group files by at most `PART_ROWS` rows and `PART_BYTES` together."""
    group: list[ExistingFile] = []
    for old in olds:
        full = sum(o.rows for o in group) + old.rows > PART_ROWS or sum(o.bytes for o in group) + old.bytes > PART_BYTES
        if group and full:
            yield group
            group = []
        group.append(old)
    if group:
        yield group


def commit_batches(parts: Iterator[Part], session: SparkSession | None) -> Iterator[list[Part]]:
    """Yield parts to commit together; the parts of a table of few files are split, so that all cores have work."""
    from instep.spark.extract import cores

    wide = PARTS_PER_CORE * (cores(session) if session is not None else os.cpu_count() or 1)
    batch: list[Part] = []
    for part in parts:
        batch.append(part)
        if len(batch) == wide:
            yield _split(batch, wide)
            batch = []
    if batch:
        yield _split(batch, wide)


def _split(parts: Sequence[Part], wide: int) -> list[Part]:
    """Split the parts until there are `wide`: the one with most rows gives away half of its files."""
    split = list(parts)
    while len(split) < wide and (most := max(split, key=lambda p: len(p.files))) and len(most.files) > 1:
        split.remove(most)
        half = len(most.files) // 2
        split += [replace(most, files=most.files[:half]), replace(most, files=most.files[half:])]
    return split


class IcebergFills(LakeFacet):
    """Values for rows that lack them."""

    def fill_size(self, ref: Ref, columns: Mapping[str, int]) -> FillSize:
        """Return the files that may lack a value, by their metadata."""
        table, metadata = load_ours(self.lake, ref)
        if read_pending(ref, metadata) or table.metadata.current_snapshot() is None:
            return FillSize(why_not="it has not been loaded yet")
        if gone := sorted(columns.keys() - set(table.schema().column_names)):
            return FillSize(why_not=f"the destination has no column {', '.join(gone)}: see `instep plan`")
        tasks = planned(table)
        if any(d.content != DataFileContent.POSITION_DELETES for t in tasks for d in t.delete_files):
            return FillSize(why_not="it has deletes by value, which another program has written")
        candidates = _candidates(table, tasks, columns)
        rows, weight = sum(t.file.record_count for t in candidates), sum(t.file.file_size_in_bytes for t in candidates)
        return FillSize(len(candidates), rows, weight, len(tasks))

    def fill(
        self,
        session: SparkSession | None,
        ref: Ref,
        work: Fill,
        commit: Commit,
        on_progress: Callable[[int, int], None],
        go_on: Callable[[], bool],
    ) -> BackfillResult:
        """Fill in several commits. Raises Conflict if the table moves meanwhile: what is committed by then stays."""
        table, _ = load_ours(self.lake, ref)
        if why := self.fill_size(ref, work.columns).why_not:
            raise DestinationError(f"table {'.'.join(ref)} cannot be filled: {why}", hint="load the whole table again")
        numbers = sorted(work.columns.values())
        spec = files_spec(self.lake, table, folder_name(commit.run, numbers), commit)
        through = {FILLS: ",".join(map(str, numbers))}
        values, spans = _staged(table, work)
        filling = FileFill(
            self.lake,
            ref,
            commit,
            spec,
            table.schema(),
            through,
            work.key,
            tuple(work.columns),
            work.meta,
            work.holds,
            values,
            spans,
        )
        tasks = _candidates(table, planned(table), work.columns)
        done = BackfillResult()
        with filling.new_files.removed_unless_landed(filling.spec.location):
            for batch in commit_batches(filling.parts(table, tasks), session):
                rewritten = [r for part in run_parts(session, batch, _from(done, on_progress)) for r in part]
                crashpoint("fill.rewritten")
                if rewritten:
                    table = filling.exchange(table, rewritten, {t.file.file_path: t for t in tasks})
                files = [f for r in rewritten for f in r.files]
                rows, weight = sum(r.rows for r in rewritten), sum(f.bytes for f in files)
                done = BackfillResult(done.rows + rows, done.files + len(rewritten), done.bytes + weight)
                crashpoint("fill.committed")
                if rewritten and not go_on() and len(_candidates(table, planned(table), work.columns)):
                    return replace(done, whole=False)
        return done
