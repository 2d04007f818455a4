"""Rewrite Delta data files with some rows changed or left out and all others unchanged.

What waits for an undo is written along, so that a column that comes back has the values of these rows too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from instep.destinations.base import Commit, FileWorkers, PartChange
from instep.destinations.delta.change import DeltaCommit
from instep.destinations.delta.files import Writing, action, as_type, io_of, remove_files, rows_in, write_files
from instep.destinations.delta.shape import DeltaField, arrow_type, data_type, file_schema
from instep.destinations.delta.table_state import DeltaTableState, named, select_files
from instep.destinations.parts import (
    RewriteArea,
    digest,
    is_large,
    rewrite_groups,
    run_tasks,
    write_parts,
)
from instep.destinations.rows import cast_all
from instep.destinations.sql.evolve import latest
from instep.errors import DestinationError, IllegalChange
from instep.schema.catalog.types import DataType
from instep.stage.casts.cast import cast
from instep.stage.files.place import StorageFolder
from instep.stage.files.writer import GROUP_ROWS
from instep.stage.spec import StagedFile
from instep.stage.task import Report

Places = npt.NDArray[np.int64]
_WRITERS = 8
"""The most cores that write in this process: each holds a row group."""


@dataclass(frozen=True)
class RowEdit:
    """Edit of rows, identified by file number and position (`at`: lines of both, in any order, none twice): without
    `values` they leave, else each takes the columns of its line there (names are the columns')."""

    at: Places
    values: pa.Table | None = None


def edited(
    change: DeltaCommit,
    edits: Sequence[RowEdit],
    inserted: Iterable[pa.RecordBatch],
    commit: Commit,
    by: Sequence[DeltaField] | None = None,
) -> None:
    """Replace files by ones with the edits applied and new rows (columns by name, in the table's types; what they
    lack is NULL); all files if the table gets other partition columns (`by`)."""
    state = change.state
    touched = sorted({int(n) for e in edits for n in np.unique(e.at[:, 0])}) if edits else []
    if by is not None:
        touched, change.by = list(range(len(state.files))), by
    change.remove += [state.paths[n] for n in touched]
    shares = _shares(state, touched, 1 if by is not None else min(os.cpu_count() or 1, _WRITERS))
    by = state.by if by is None else by

    def write_share(number: int) -> tuple[StagedFile, ...]:
        rows = rewritten(state, shares[number], edits)
        if number == len(shares) - 1:
            rows = chain(rows, new_rows(state, state.layout, inserted))
        return write_files(state, state.layout, Writing(commit.run, number), rows, by)

    with ThreadPoolExecutor(len(shares), thread_name_prefix="rewrite") as pool:
        written = [pool.submit(write_share, number) for number in range(len(shares))]
    try:
        change.add += [action(state, state.layout, file, by) for future in written for file in future.result()]
    except BaseException:
        remove_files(state, [file for future in written if not future.exception() for file in future.result()])
        raise


@dataclass(frozen=True)
class FileRows:
    """Rows of a data file of a table: its number there, and their positions (None: all)."""

    file: int
    at: range | None = None


def _shares(state: DeltaTableState, files: Sequence[int], cores: int) -> list[list[FileRows]]:
    """Divide the rows of files among cores, neighbours together: a file of several row groups may go to several. What
    is no more than a row group stays together, and so does a file whose deleted rows shift the positions of others."""
    pieces = list[tuple[FileRows, int]]()
    for number in files:
        file, rows = state.files[number], state.counted(state.files[number])
        if rows <= GROUP_ROWS or file.get("deletionVector"):
            pieces.append((FileRows(number), rows))
            continue
        starts = range(0, rows, GROUP_ROWS)
        ends = [*starts[1:], sys.maxsize]
        pieces += [(FileRows(number, range(*at)), GROUP_ROWS) for at in zip(starts, ends, strict=True)]
    total, before = sum(rows for _, rows in pieces), 0
    cores = max(min(cores, total // GROUP_ROWS), 1)
    shares: list[list[FileRows]] = [[] for _ in range(cores)]
    for piece, rows in pieces:
        share = shares[min((2 * before + rows) * cores // max(2 * total, 1), cores - 1)]
        before += rows
        if share and piece.at and share[-1].at and share[-1].file == piece.file:
            share[-1] = FileRows(piece.file, range(share[-1].at.start, piece.at.stop))
        else:
            share.append(piece)
    return shares


def rewritten(state: DeltaTableState, files: Iterable[FileRows], edits: Iterable[RowEdit]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of these files, with the edits done."""
    physical, ordered = {f.name: f.physical for f in state.columns}, [_sorted(e) for e in edits]
    for part in files:
        own = [_of_file(e, part.file) for e in ordered]
        start = part.at.start if part.at else 0
        for batch in rows_in(state, state.files[part.file], state.layout, at=part.at):
            yield _apply(batch, start, own, physical)
            start += len(batch)


def new_rows(
    state: DeltaTableState, fields: Sequence[DeltaField], rows: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield rows with columns by name as batches of a file."""
    names = {f.physical: f.name for f in state.columns}
    schema = file_schema(fields)
    for batch in rows:
        own = set(batch.schema.names)
        columns = [
            as_type(batch.column(names[f.name]), f.type) if names.get(f.name) in own else pa.nulls(len(batch), f.type)
            for f in schema
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True)
class _Own:
    """The part of an edit that is about one file: places in order, and for each the line of the values."""

    places: Places
    lines: Places
    values: pa.Table | None


@dataclass(frozen=True)
class _Sorted:
    """An edit in the order of files and places; `lines` are those of its values."""

    at: Places
    lines: Places
    values: pa.Table | None


def _sorted(edit: RowEdit) -> _Sorted:
    lines = np.lexsort((edit.at[:, 1], edit.at[:, 0]))
    return _Sorted(edit.at[lines], lines, edit.values)


def _of_file(edit: _Sorted, number: int) -> _Own:
    low, high = np.searchsorted(edit.at[:, 0], [number, number + 1])
    return _Own(edit.at[low:high, 1], edit.lines[low:high], edit.values)


def _apply(batch: pa.RecordBatch, start: int, edits: Iterable[_Own], physical: Mapping[str, str]) -> pa.RecordBatch:
    keep = np.ones(len(batch), dtype=np.bool_)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for edit in edits:
        low, high = np.searchsorted(edit.places, [start, start + len(batch)])
        if low == high:
            continue
        edited_rows = edit.places[low:high] - start
        if edit.values is None:
            keep[edited_rows] = False
            continue
        for name in edit.values.column_names:
            new = edit.values.column(name).take(pa.array(edit.lines[low:high]))
            columns[physical[name]] = put(columns[physical[name]], edited_rows, new)
    changed = pa.RecordBatch.from_arrays([columns[n] for n in batch.schema.names], schema=batch.schema)
    return changed if keep.all() else changed.filter(pa.array(keep))


def put(old: pa.Array, places: Places, new: pa.ChunkedArray) -> pa.Array:
    """Return the old values with the new ones at these places."""
    order = np.arange(len(old))
    order[places] = len(old) + np.arange(len(places))
    chunk = new.combine_chunks()
    return pa.concat_arrays([old, as_type(chunk, old.type)]).take(pa.array(order))


@dataclass(frozen=True)
class Rewriting:
    """Rewriting of a table's files; tables of more than `upsert_rows` rows go to Spark tasks."""

    workers: FileWorkers
    upsert_rows: int


@dataclass(frozen=True)
class ValueCast:
    """Origin of the values of a column that is rewritten: another one, by its physical name and type."""

    column: str
    before: str
    type: DataType
    to: DataType

    def values(self, columns: Mapping[str, pa.Array], kind: pa.DataType) -> pa.Array:
        return cast_all(self.column, columns[self.before], self.type, self.to, kind)


def recast_columns(
    change: DeltaCommit,
    layout: Sequence[DeltaField],
    casts: Mapping[str, ValueCast],
    commit: Commit,
    how: Rewriting,
) -> None:
    """Replace files by ones whose columns (by physical name) get the values of another one in their own type:
    `casts` are the table's, the commit's moves those of a shard. Raises IllegalChange for a value that does not fit."""
    state, own, moves = change.state, set[str](), dict[str, _ValueMove]()
    if commit.part and commit.part.moves:
        moves = _moves(change, commit.part, {f.physical: f for f in layout})
        within = commit.part.column, commit.part.shard
        own |= set(replace(state, record=replace(state.record, within=within)).paths)
    numbers = [n for n, path in enumerate(state.paths) if casts or path in own]
    if not numbers:
        return
    numbers.sort(key=lambda n: str(state.files[n].get("partitionValues")))  # a part meets few partitions
    sizes = [(state.counted(state.files[n]), int(state.files[n]["size"])) for n in numbers]
    groups = [tuple(numbers[i] for i in group) for group in rewrite_groups(sizes, how.upsert_rows)]
    common = digest(state.snapshot.metadata["id"], layout, state.by, casts, moves)
    place = (state.folder / state.area / f"rewrite-{common}").as_uri() if len(groups) > 1 else ""
    parts = [
        _DeltaRewritePart(
            select_files(state, group), tuple(layout), casts, moves, frozenset(own), Writing(commit.run, n, place=place)
        )
        for n, group in enumerate(groups)
    ]
    large = is_large(sum(r for r, _ in sizes), sum(s for _, s in sizes), how.upsert_rows)
    files: Sequence[StagedFile]
    if place:
        change.parts = RewriteArea(StorageFolder(place, io_of(state)), f"{commit.run}-rewrite")
        by_digest = {digest([(path, path in own) for path in p.state.paths]): p for p in parts}
        with change.parts.cleared():
            files = write_parts(change.parts, by_digest, _write, how.workers, large=large)
    else:
        session = how.workers.session() if large else None
        [files] = run_tasks(session, _write, parts, "rewrite", how.workers.on_progress)
    check_rows(state, sum(f.rows for f in files), sum(rows for rows, _ in sizes))
    change.remove += [state.paths[n] for n in numbers]
    change.add += [action(state, layout, file, state.by) for file in files]


@dataclass(frozen=True)
class _DeltaRewritePart:
    """Files that are written again, those in `state`; `own`: the paths of those whose values are moved."""

    state: DeltaTableState
    layout: tuple[DeltaField, ...]
    casts: Mapping[str, ValueCast]
    moves: Mapping[str, _ValueMove]
    own: frozenset[str]
    writing: Writing

    def rows(self) -> Iterator[pa.RecordBatch]:
        schema = file_schema(self.layout)
        unchanged = [f for f in self.layout if f.physical not in self.casts]
        for path, file in zip(self.state.paths, self.state.files, strict=True):
            for batch in rows_in(self.state, file, unchanged):
                columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                cast_values = {name: cast.values(columns, schema.field(name).type) for name, cast in self.casts.items()}
                columns |= cast_values
                if path in self.own:
                    columns |= {name: move.values(columns, len(batch)) for name, move in self.moves.items()}
                yield pa.RecordBatch.from_arrays([columns[n] for n in schema.names], schema=schema)


def _write(part: _DeltaRewritePart, attempt: int, report: Report | None) -> tuple[StagedFile, ...]:
    writing = replace(part.writing, attempt=attempt)
    return write_files(part.state, part.layout, writing, part.rows(), part.state.by, report)


def check_rows(state: DeltaTableState, rows: int, expected: int) -> None:
    """Raise DestinationError before rows could be lost."""
    if rows != expected:
        raise DestinationError(
            f"table {named(state.ref)}: {rows:,} rows were written where {expected:,} should be",
            hint="nothing was committed; check the files with `instep verify`",
        )


@dataclass(frozen=True)
class _ValueMove:
    """Origin of a column's values; None: it has none any more."""

    before: DeltaField | None
    after: DeltaField

    def values(self, columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
        kind = arrow_type(self.after.type)
        if self.before is None:
            return pa.nulls(rows, kind)
        done = cast(columns[self.before.physical], data_type(self.before.type), kind, data_type(self.after.type))
        if done.invalid_values:
            reason = next(iter(done.invalid_values.values()))
            raise IllegalChange(f"column {self.after.name!r}: values of {self.before.name!r} do not fit ({reason})")
        return done.values


def _moves(change: DeltaCommit, part: PartChange, layout: Mapping[str, DeltaField]) -> dict[str, _ValueMove]:
    """Return the moved values by physical name; a column that the change drops still has values."""
    fields, moves = {f.name: f for f in change.fields or change.state.columns}, dict[str, _ValueMove]()
    for old, new in part.moves:
        waits = None if old in fields else latest(change.record.parked, old)
        moves[fields[new].physical] = _ValueMove(layout[waits.place] if waits else fields[old], fields[new])
    for old, _ in part.moves:
        if old in fields:
            moves.setdefault(fields[old].physical, _ValueMove(None, fields[old]))
    return moves
