"""Both sides of one table, whose rows tasks fold: the source as a load reads it, and the destination as it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from instep.errors import StageError
from instep.schema.catalog.types import Int
from instep.schema.planning.naming import destination_ref
from instep.schema.planning.projection import ColumnRead, TableRead
from instep.sources.base import CursorRange, Snapshot
from instep.stage.duckdb_memory import duckdb_version
from instep.stage.fold import Fold, Scan
from instep.stage.quarantine_hashes import QuarantineHashes
from instep.sync.context import SyncContext
from instep.sync.loading.engine import Engine, RowsCallback
from instep.sync.loading.row_sums import Buckets, FoldResult, ReturnRows, RowSums, SideShape, SumRows
from instep.sync.loading.table_load import Load
from instep.sync.loading.task_specs import stage_spec
from instep.sync.table_mode import choose

OnUnfit = Callable[[pa.RecordBatch], None]
"""Is given hashes of what does not fit."""


@dataclass(frozen=True)
class TableSide:
    """Rows of one side as they are whenever they are folded."""

    shape: SideShape
    now: Callable[[], Scan | Iterator[pa.RecordBatch]]
    """The rows for tasks to read, or, where only this process can, as it reads them."""

    def sums(self, engine: Engine, on_unfit: OnUnfit | None = None, progress: RowsCallback | None = None) -> RowSums:
        """Return the sums of all rows."""
        total = RowSums.nothing(self.shape.buckets)
        for result in self._fold(engine, SumRows(self.shape), 0, on_unfit, progress):
            if result.sums is not None:
                total += result.sums
        return total

    def rows(
        self,
        engine: Engine,
        only: Sequence[int] | None = None,
        *,
        share: float = 1,
        columns: bool = False,
        on_unfit: OnUnfit | None = None,
        progress: RowsCallback | None = None,
    ) -> Iterator[FoldResult]:
        """Yield keys and hashes of the rows of some buckets, about a `share` of all; None: of all of them."""
        shape = self.shape if on_unfit is not None else replace(self.shape, hashes=None)
        return self._fold(engine, ReturnRows(shape, only, columns), share, on_unfit, progress)

    def _fold(
        self, engine: Engine, fold: Fold, returned: float, on_unfit: OnUnfit | None, progress: RowsCallback | None
    ) -> Iterator[FoldResult]:
        results: Iterator[FoldResult]
        if isinstance(rows := self.now(), Scan):
            results = engine.fold(rows, fold, returned=returned, progress=progress)
        else:
            results = iter(fold(rows))
        for result in results:
            if result.version != duckdb_version():
                what = f"workers have version {result.version} of DuckDB, and this machine {duckdb_version()}"
                raise StageError(
                    f"rows cannot be compared: {what}", hint="give every worker the same environment as here"
                )
            if on_unfit is not None:
                for batch in result.unfit:
                    on_unfit(batch)
            yield result


@dataclass(frozen=True)
class TableSides:
    """Both sides of a table, with the same columns and buckets."""

    source: TableSide
    destination: TableSide
    scan_range: Callable[[CursorRange], Scan]
    """The source's rows with such a key."""

    def source_of(self, sums: RowSums, buckets: Sequence[int]) -> TableSide:
        """Return the source's side with no more than a range of the key that has all rows of these buckets, where that
        spares much of the table. `sums` are those of the source."""
        if not self.source.shape.buckets.width or not (key_range := sums.range(buckets)):
            return self.source
        (low, high), whole = key_range, sums.range(range(len(sums.counts)))
        if whole is None or 2 * (high - low) > whole[1] - whole[0]:
            return self.source
        return replace(self.source, now=lambda: self.scan_range(CursorRange(self.key, str(low), str(high))))

    key: str = ""
    """The accepted name of the column that the key begins with."""


def table_sides(
    context: SyncContext, snapshot: Snapshot, read: TableRead, number: int, hashes: QuarantineHashes | None = None
) -> TableSides:
    """Return the sides of a table that was loaded, by the columns that have a source. The source is read in its one
    snapshot, through the conform step that loads use, so that equal means equal under the accepted schema."""
    ref = destination_ref(read.table, context.naming)
    load = Load(number, read, ref, choose(read.table, context.settings(read.table)), "overwrite")
    write, state = context.destination.write, context.destination.schema.state(ref)
    target = write.target(ref)
    spec = replace(
        stage_spec(context, load, target, snapshot.query_types(read), "verify", 0),
        on_invalid_value="null",
        quarantine="",
    )
    names = [c.name for c in spec.columns if c.source is not None]
    aliases = {c.column.name: c.column.alias or c.column.name for c in read.columns}
    key = tuple(names.index(aliases[k]) for k in read.table.key)
    buckets = Buckets.of(state.rows if state is not None else 0, by_range=ranged(read) is not None)
    mark = [f"{context.naming.prefix}{'current' if read.table.history else 'deleted'}"] if key else []
    shape = SideShape(len(names), key, buckets)

    def scan_range(rows: CursorRange) -> Scan:
        return Scan(snapshot.reader, snapshot.chunks(read, load.spec, rows))

    return TableSides(
        TableSide(replace(shape, spec=spec, hashes=hashes), lambda: scan_range(CursorRange())),
        TableSide(
            replace(shape, current=read.table.history if key else None),
            lambda: write.scan(ref, [*names, *mark]) or _in_order(write.read(ref, [*names, *mark]), [*names, *mark]),
        ),
        scan_range,
        read.table.key[0] if key else "",
    )


def _in_order(rows: pa.RecordBatchReader, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the columns in this order: destinations have an order of their own."""
    batches: Iterable[pa.RecordBatch] = rows
    return (batch.select(list(names)) for batch in batches)


def ranged(read: TableRead) -> ColumnRead | None:
    """Return the column that the key begins with, if it is a whole number on both sides, so that ranges of it can be
    read."""
    first = next((c for c in read.columns if read.table.key and c.column.name == read.table.key[0]), None)
    if first is None or first.source is None or first.hashed:
        return None
    return first if isinstance(first.column.type, Int) and isinstance(first.source.type, Int) else None
