"""The load of one table: what its rows are staged as, whether all of them are there, and its fenced commit."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from instep.crash import crashpoint
from instep.destinations.base import Commit, LoadOutcome, Merge, Ref, RowUpdate
from instep.errors import Blocked, DestinationError, Fenced, InstepError, StageError, named
from instep.model import Run, TableRun
from instep.redaction import error_line
from instep.schema.catalog.catalog import table_fingerprint
from instep.schema.planning.overflow import dropped_extras
from instep.sources.base import Snapshot
from instep.sources.stream import Operations
from instep.spans import span, tell
from instep.stage.files.place import disk_error, keep_only
from instep.stage.spec import ChunkResult, StagedFile, StageSpec
from instep.sync.context import SyncContext
from instep.sync.housekeeping import discard
from instep.sync.loading.declared_keys import check_unique
from instep.sync.loading.engine import Engine
from instep.sync.loading.history import merge_versions
from instep.sync.loading.partial_updates import altered_rows
from instep.sync.loading.row_matching import as_plain, as_stored, plain_type, staged_rows
from instep.sync.loading.table_load import Load
from instep.sync.loading.task_specs import altered_spec, key_spec, stage_spec
from instep.sync.progress import Progress


def mark_removed(context: SyncContext, load: Load, keys: Sequence[StagedFile], spec: StageSpec, commit: Commit) -> int:
    """Mark the rows that have one of these keys; returns how many. Cursor and accepted fingerprint stay."""
    if load.choice.deletes == "hard" or load.table.history:
        what = "a table that keeps its history" if load.table.history else "`deletes: hard`"
        raise DestinationError(
            f"{load.table.path}: {context.destination.kind} cannot delete single rows for {what}",
            hint="use `deletes: soft`, or another destination",
        )
    names = [load.table.by_name[k].alias or k for k in load.table.key]
    state = context.destination.schema.state(load.ref)
    assert state is not None, "a table with rows has been loaded"
    own = Commit(commit.run, commit.fence, state.cursor, state.accepted)
    marked = 0
    for batch in staged_rows(keys, spec, names):
        met = context.destination.write.lookup_rows(load.ref, pa.Table.from_batches([batch.rename_columns(names)]))
        alive = pc.invert(pc.fill_null(met.rows.column(spec.system.deleted), False))
        places = pc.indices_nonzero(alive).to_pylist()
        if places:
            change = RowUpdate(places, _marked(met.rows.take(pa.array(places)), spec), met.rows.slice(0, 0))
            context.destination.write.update_rows(load.ref, met, change, own)
            marked += len(places)
    return marked


def _marked(rows: pa.Table, spec: StageSpec) -> pa.Table:
    moment = pa.scalar(spec.synced, pa.timestamp("us", "UTC"))
    values = {spec.system.deleted: pa.repeat(True, len(rows)), spec.system.synced: pa.repeat(moment, len(rows))}
    columns = [
        as_stored(as_plain(values[f.name], plain_type(f.type)), f.type) if f.name in values else rows.column(f.name)
        for f in rows.schema
    ]
    return pa.table(columns, schema=rows.schema)


class KeyQuarantined(Blocked):
    """The rows have keys of a type that is not accepted."""


@dataclass(frozen=True)
class TableResult:
    """Result of one load."""

    load: Load
    result: TableRun
    invalid_values: int = 0
    casts: Mapping[str, int] | None = None
    """Number of values that are not quite what they were, by `column: why`."""
    error: InstepError | None = None
    unread: int = 0
    """Number of rows that the source has and the destination lacks, and that this load did not read."""
    basis: tuple[str, ...] = ()
    """Guarantee that the rows are of one state, where several connections have read them or were to."""
    version: str = ""
    """Version of the table at the destination, if one commit has brought the whole load."""

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of `casts` and `basis`, for the report."""
        casts = (self.casts or {}).items()
        changed = (f"{self.load.table.path}.{what} ({n:,} value{'s' * (n != 1)})" for what, n in casts)
        return (*changed, *(f"{self.load.table.path}: {text}" for text in self.basis))


@dataclass(frozen=True)
class Staged:
    """The verified files of one load (`altered`: rows of which some columns are given), and the folder (a URI, reached
    by the settings `io`) that they are in."""

    files: tuple[StagedFile, ...] = ()
    keys: tuple[StagedFile, ...] = ()
    altered: tuple[StagedFile, ...] = ()
    read: int = 0
    invalid_values: int = 0
    rejected: int = 0
    casts: Mapping[str, int] | None = None
    folder: str = ""
    basis: tuple[str, ...] = ()
    spec: StageSpec | None = None
    io: Mapping[str, str] = field(default_factory=dict)

    @property
    def every(self) -> tuple[StagedFile, ...]:
        return (*self.files, *self.keys, *self.altered)


def placed(files: Staged | InstepError, spec: StageSpec | None) -> Staged | InstepError:
    return replace(files, folder=spec.location, io=spec.io, spec=spec) if isinstance(files, Staged) and spec else files


def specs_of(context: SyncContext, load: Load, snapshot: Snapshot, run: str, synced: int) -> list[StageSpec]:
    target, yields = context.destination.write.target(load.ref), snapshot.query_types(load.wide)
    notes = snapshot.notes(load.wide) if isinstance(snapshot, Operations) else {}
    rows = stage_spec(context, load, target, yields, run, synced, notes)
    keys = [key_spec(context, load, target, yields, run, synced)] if load.keys or load.asks else []
    return [rows, *keys, *([altered_spec(rows, load)] if load.alters else [])]


def verify(
    load: Load, planned: Mapping[str, Set[int]], results: Mapping[str, Sequence[ChunkResult]]
) -> Staged | InstepError:
    """Check that every planned chunk answered, and that every row is in a file or in quarantine."""
    rows, keys, altered = (results.get(spec, ()) for spec in load.specs)
    for result in (*rows, *keys, *altered):
        if result.error:
            text = result.error.removeprefix(f"{result.table}: ").removeprefix(f"{load.read.source.path}: ")
            return named(result.kind, StageError)(f"table {load.table.path}: {text}")
        loaded = sum(f.rows for f in result.files) + result.rejected
        if loaded != result.read:
            return StageError(f"table {load.table.path}: {result.read:,} rows were read and {loaded:,} staged")
    for spec, own in zip(load.specs, (rows, keys, altered), strict=True):
        if planned.get(spec, frozenset()) != {r.chunk for r in own} or len(planned.get(spec, ())) != len(own):
            return StageError(f"table {load.table.path}: not every chunk was read", hint="run the sync again")
    if error := _quarantined_key(load, sum(r.unkeyed for r in (*rows, *keys))):
        return error
    casts: dict[str, int] = {}
    for result in (*rows, *altered):
        for name, count in result.casts.items():
            casts[name] = casts.get(name, 0) + count
    return Staged(
        files=tuple(f for r in rows for f in r.files),
        keys=tuple(f for r in keys for f in r.files),
        altered=tuple(f for r in altered for f in r.files),
        read=sum(r.read for r in (*rows, *altered)),
        invalid_values=sum(r.invalid_values for r in (*rows, *altered)),
        rejected=sum(r.rejected for r in (*rows, *altered)),
        casts=casts,
        basis=tuple(dict.fromkeys(r.basis for r in (*rows, *keys, *altered) if r.basis)),
    )


def _quarantined_key(load: Load, rows: int) -> KeyQuarantined | None:
    """Stop a table whose key has values that do not fit while their type is held: without these rows the others would
    pass for all, and the old ones for deleted. A stream says itself which rows are gone."""
    ids = [load.holds[name][0] for name in load.table.key if name in load.holds]
    if not rows or not ids or load.counts is not None:
        return None
    return KeyQuarantined(
        f"{load.table.path}: the key of {rows:,} rows does not fit its accepted type: change {ids[0]} is not approved",
        hint=f"run `instep changes approve {ids[0]}`, or revert the change at the source",
    )


def result_of(context: SyncContext, load: Load, future: Future[TableResult], run: Run) -> TableResult:
    try:
        return future.result()
    except InstepError as error:
        if isinstance(error, Fenced):
            discard(context, [load])
        return failed(load, run, error)
    except OSError as error:
        return failed(load, run, disk_error(f"table {load.table.path} at the destination", error))
    except Exception as error:
        return failed(load, run, DestinationError(f"{load.table.path}: {type(error).__name__}: {error_line(error)}"))


def failed(load: Load, run: Run, error: InstepError) -> TableResult:
    """Return a load that changed nothing, with its reason."""
    status = "paused" if isinstance(error, KeyQuarantined) else "failed"
    result = TableRun(run.id, load.table.ref, status, load.choice.mode, error=str(error))
    return TableResult(load, result, error=error)


def commit(
    context: SyncContext, engine: Engine, load: Load, staged: Staged, run: Run, progress: Progress
) -> TableResult:
    with span("commit", table=load.table.path, mode=load.choice.mode):
        done = _commit(context, engine, load, staged, run, progress)
        result = done.result
        tell(read=result.read, inserted=result.inserted, updated=result.updated, deleted=result.deleted)
        return done


def _commit(
    context: SyncContext, engine: Engine, load: Load, staged: Staged, run: Run, progress: Progress
) -> TableResult:
    begun = time.monotonic()
    if load.unsure_key and staged.every:
        check_unique(engine, load, _spec(staged), staged.files, () if load.asks else staged.keys)
    commit = Commit(run.id, run.fence, load.cursor, table_fingerprint(load.table))
    crashpoint("sync.commit.before")
    outcome = _publish(context, engine, load, staged, commit, progress)
    crashpoint("sync.commit.after")
    clear(load, staged)
    crashpoint("sync.cleared")
    result = TableRun(
        run.id,
        load.table.ref,
        "done",
        load.choice.mode,
        staged.read,
        outcome.inserted,
        outcome.updated,
        outcome.deleted,
        staged.invalid_values + staged.rejected,
        sum(f.bytes for f in staged.files),
        time.monotonic() - begun,
    )
    return TableResult(
        load,
        result,
        staged.invalid_values + staged.rejected,
        staged.casts,
        unread=load.count_unread(outcome),
        basis=staged.basis,
        version=outcome.version,
    )


def clear(load: Load, staged: Staged) -> None:
    """Delete merged files; among adopted ones there may be those of task attempts that died."""
    adopted = [] if load.merges else [f.path for f in staged.files]
    assert staged.folder, "nothing is cleared that no task was told to write"
    with suppress(InstepError):
        keep_only(staged.folder, staged.io, adopted)


def _unread(load: Load, prefix: str) -> tuple[str, ...]:
    """Return columns without a source: retained, or removed there and not decided yet. The JSON of extra columns is one
    as long as it holds what the source has no more."""
    read = {c.column.name for c in load.read.columns if c.source is not None}
    own = tuple(c.alias or c.name for c in load.table.columns if c.name not in read)
    return (*own, f"{prefix}extra") if load.only_copies or dropped_extras(load.table, load.read.source) else own


def _publish(
    context: SyncContext, engine: Engine, load: Load, staged: Staged, commit: Commit, progress: Progress
) -> LoadOutcome:
    ref: Ref = load.ref
    if staged.altered:
        staged = replace(staged, files=(*staged.files, *altered_rows(context, load, staged.altered, _spec(staged))))
    spark = partial(engine.spark, progress.step)
    if load.action == "overwrite":
        return context.destination.write.overwrite(ref, staged.files, commit, spark)
    if load.action == "append" and load.since is None:
        return context.destination.write.append(ref, staged.files, commit, spark)
    aliases = {c.name: c.alias or c.name for c in load.table.columns}
    cursor = aliases[load.choice.cursor] if load.choice.cursor else ""
    emptied = load.keys and not load.asks and not staged.keys  # the source has no key: all other rows are gone
    complete = load.complete or emptied
    newest = "" if complete else cursor  # a whole table is the truth, also where its cursor went back
    merge = Merge(
        key=tuple(aliases[k] for k in load.table.key),
        cursor=newest,
        complete=complete,
        keys=() if load.asks else staged.keys,
        requested=staged.keys if load.asks else (),
        deletes=load.choice.deletes,
        unread=_unread(load, context.naming.prefix),
    )
    if load.action == "append" and load.since is not None:
        merge = replace(merge, key=(), cursor="", complete=False, since=(cursor, load.since))
    removed = 0
    if merge.requested and not context.destination.capabilities.merges_requested:
        removed = mark_removed(context, load, merge.requested, _spec(staged), commit)
        merge = replace(merge, requested=())
    merged = partial(_merge, context, engine, progress, load)
    if not load.versioned:
        outcome = merged(staged.files, merge, commit)
        version = "" if removed else outcome.version
        return replace(outcome, deleted=outcome.deleted + removed, version=version)
    return merge_versions(context, load, staged.files, merge, _spec(staged), commit, merged, engine)


def _spec(staged: Staged) -> StageSpec:
    assert staged.spec is not None, "rows were staged by it"
    return staged.spec


def _merge(
    context: SyncContext,
    engine: Engine,
    progress: Progress,
    load: Load,
    files: Sequence[StagedFile],
    how: Merge,
    commit: Commit,
) -> LoadOutcome:
    """Merge by Spark what this process cannot."""
    spark = partial(engine.for_large, progress.step, f"{load.table.path}: merge")
    return context.destination.write.merge(spark, load.ref, files, how, commit)
