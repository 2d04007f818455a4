"""A destination as one connection has it that shares its tables with others.

Rows are loaded and read by the destination's own `part`: a shard's commits meet no rows but its own. What changes the
schema of a shard is turned into what that means for the whole table, and recorded in one commit with it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa

from instep.destinations.base import (
    CastSample,
    Commit,
    Destination,
    Fill,
    Filled,
    Fills,
    FillSize,
    Guarded,
    InvalidValueCount,
    LoadOutcome,
    LoadState,
    Merge,
    OnDisk,
    Opens,
    PartChange,
    Ref,
    RowLookup,
    RowUpdate,
    StagingTarget,
    TableSize,
    UndropReport,
)
from instep.destinations.facets import KeepsDropped, LaidOut, Layout, Maintained, Maintains, Upkeep, Vacuums
from instep.destinations.overflow import OverflowColumn, Promoted, Promotes
from instep.destinations.shared import Reshaped, SharedTable, Shares, SharesLayouts, shard_column
from instep.errors import Conflict, DestinationError, Fenced, IllegalChange
from instep.model import Check
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.catalog.layout import TableLayout
from instep.schema.catalog.partition import PartitionTerm
from instep.schema.catalog.types import DataType
from instep.schema.changes.describe import (
    ColumnAdded,
    ColumnRemoved,
    ColumnRenamed,
    TableRemoved,
    TableRenamed,
    TableReplaced,
)
from instep.schema.maintenance import Maintenance
from instep.schema.planning.guard import Guards
from instep.schema.planning.hazard import Capabilities
from instep.schema.planning.shards import ShardScene, first, join, lacking, seen, strangers
from instep.schema.planning.step import SetLayout, Step, step
from instep.stage.field_metadata import value_of
from instep.stage.spec import StagedFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIES = 20
"""How often a change of schema is planned again because another shard was faster."""

T = TypeVar("T")
Planned = tuple[Sequence[Step], Table | None, Commit]


class SharingDestination(Destination, Shares, Protocol):
    """One that can hold several connections' rows in one table."""


@dataclass(frozen=True)
class Sharded:
    """See `destinations.base.Destination`: that of one `shard`, whose rows have its name in `column`."""

    base: SharingDestination
    shard: str
    column: str

    @cached_property
    def part(self) -> Destination:
        return self.base.part(self.shard)

    @property
    def kind(self) -> str:
        return self.base.kind

    @property
    def quarantine_days(self) -> int:
        return self.base.quarantine_days

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.base.capabilities, views=False)

    def spark_catalog(self) -> Mapping[str, str]:
        return self.base.spark_catalog()

    def test(self) -> list[Check]:
        return self.base.test()

    def check_writable(self) -> None:
        if isinstance(self.base, OnDisk):
            self.base.check_writable()

    def kept_open(self) -> AbstractContextManager[None]:
        return self.base.kept_open() if isinstance(self.base, Opens) else nullcontext()

    def tables(self) -> list[Ref]:
        return [ref for ref in self.base.tables() if (w := self.base.whole(ref)) and self.shard in w.parts]

    def inspect(self, refs: Iterable[Ref]) -> Catalog:
        return Catalog.of(table for ref in refs if (table := self._seen(ref)) is not None)

    def _seen(self, ref: Ref) -> Table | None:
        """Return the shard's table, with columns that no shard knows of; DestinationError for a table that is not
        shared."""
        whole = self.base.whole(ref) or self._made_meanwhile(ref)
        if whole is None:
            return None
        if not whole.parts:
            raise alone(ref)
        part = whole.parts.get(self.shard)
        if part is None:
            return None
        table = seen(whole.table, part.table)
        odd = strangers(whole.table, (p.table for p in whole.parts.values()), self.column)
        return replace(table, columns=(*table.columns, *odd))

    def _made_meanwhile(self, ref: Ref) -> SharedTable | None:
        """Return the table that another shard has made since it was looked for; DestinationError for one that is not
        ours."""
        try:
            self.base.inspect([ref])
        except DestinationError:
            if whole := self.base.whole(ref):
                return whole
            raise
        return None

    def foreign(self, refs: Iterable[Ref]) -> dict[Ref, str]:
        found = {ref: self.base.whole(ref) for ref in refs}
        mine = {ref for ref, whole in found.items() if whole and whole.parts}
        lone = {ref: str(alone(ref)) for ref, whole in found.items() if whole and not whole.parts}
        odd = self.base.foreign([ref for ref in found if ref not in mine])
        return {ref: why for ref, why in odd.items() if not ((w := self.base.whole(ref)) and w.parts)} | lone

    def claim(self, ref: Ref, fence: int) -> None:
        self.part.claim(ref, fence)

    def remove_uncommitted_files(self, ref: Ref, runs: Mapping[str, int]) -> None:
        self.part.remove_uncommitted_files(ref, runs)

    def guards(self, refs: Iterable[Ref]) -> Mapping[Ref, Guards]:
        """Return the columns that something else stands on; that of the shards is nobody's to change."""
        found = self.base.guards(refs) if isinstance(self.base, Guarded) else {}
        return {ref: {name: own for name, own in one.items() if name != self.column} for ref, one in found.items()}

    def why_not(self, ref: Ref, steps: Sequence[Step], after: Table | None) -> str:
        """Why these steps cannot be taken while others share the table; "" if they can."""
        try:
            self._plan(ref, steps, after, Commit("", 0))
        except IllegalChange as error:
            return str(error)
        return ""

    def remarks(self, steps: Sequence[Step]) -> list[str]:
        """Return which of the columns that these steps name the other shards lack."""
        out: dict[str, None] = {}
        for ref, own in groupby(steps, lambda one: one.table):
            whole = self.base.whole(ref)
            others = {n: p.table for n, p in whole.parts.items() if n != self.shard} if whole else {}
            out |= dict.fromkeys(text for one in own for text in _remarks(one, others))
        return list(out)

    def execute(self, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit) -> None:
        """Planned again as long as other shards change the table meanwhile."""
        for left in reversed(range(TRIES)):
            made = self._plan(ref, steps, after, commit)
            try:
                if made is not None:
                    self.base.execute(ref, *made)
            except (Conflict, DestinationError):
                if not left or not self._moved(ref, made):
                    raise
                wait(TRIES - left)
            else:
                return

    def _moved(self, ref: Ref, planned: Planned | None) -> bool:
        """Return whether another shard has changed the table's shape since something was planned."""
        part = planned[2].part if planned else None
        whole = self.base.whole(ref)
        return part is not None and part.seen != (whole.shape if whole else 0)

    def _plan(self, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit) -> Planned | None:
        """Return what the whole table goes through; None if all of it is done already."""
        whole = self.base.whole(ref)
        parts = whole.parts if whole else {}
        mine = parts[self.shard].table if self.shard in parts else None
        others = {name: part.table for name, part in parts.items() if name != self.shard}
        plain = replace(commit, fence=0)
        change = steps[0].change
        if isinstance(change, TableRemoved):
            _alone_in(ref, others, "dropped")
            return ([step(ref, TableRemoved(whole.table))], None, plain) if whole else None
        if isinstance(change, TableRenamed):
            _alone_in(ref, others, f"renamed to {change.after.path}")
            return self._renamed(whole, change, steps, plain, commit)
        assert after is not None, "only a drop leads to no table"
        joined = join(
            ShardScene(whole.table if whole else None, others, mine, self.column, self.capabilities), steps, after
        )
        anew, laid = isinstance(change, TableReplaced), tuple(s for s in steps if isinstance(s.change, SetLayout))
        if mine == after and not joined.steps and not anew and not laid:
            return None
        shape = whole.shape if whole else 0
        part = PartChange(self.shard, self.column, commit.fence, after, shape, anew, joined.moves)
        return (*joined.steps, *laid) or steps, joined.after, replace(plain, part=part)

    def _renamed(
        self, whole: SharedTable | None, change: TableRenamed, steps: Sequence[Step], plain: Commit, commit: Commit
    ) -> Planned | None:
        if whole is None:
            return None
        to = change.after
        after = replace(whole.table, schema=to.schema, name=to.name)
        mine = whole.parts[self.shard].table
        mine = replace(mine, schema=to.schema, name=to.name, alias=to.alias, id=to.id)
        part = PartChange(self.shard, self.column, commit.fence, mine, whole.shape)
        return [step(steps[0].table, TableRenamed(whole.table, after))], after, replace(plain, part=part)

    def undrop_table(self, ref: Ref, table: Table, commit: Commit) -> None:
        self.base.undrop_table(ref, first(table, self.column), replace(commit, fence=0))

    def dropped(self, ref: Ref, source_id: str | None) -> bool:
        return self.base.dropped(ref, None)

    def undrop_report(self, ref: Ref, column: str) -> UndropReport:
        """What other shards have is still there, with this shard's values."""
        return self.base.undrop_report(ref, column)

    def refill(self, ref: Ref, column: str, commit: Commit) -> int:
        return self.part.refill(ref, column, commit)

    def forget(self, refs: Iterable[Ref], fence: int) -> list[str]:
        base, named = self.base, list(refs)
        return landed(lambda: base.forget(named, 0)) if isinstance(base, KeepsDropped) else []

    def count_invalid_values(self, ref: Ref, column: str, kind: DataType) -> InvalidValueCount:
        return self.part.count_invalid_values(ref, column, kind)

    def sample_cast(self, ref: Ref, column: str, kind: DataType, key: Sequence[str], rows: int) -> CastSample:
        return self.part.sample_cast(ref, column, kind, key, rows)

    def target(self, ref: Ref) -> StagingTarget:
        return self.part.target(ref)

    def state(self, ref: Ref) -> LoadState | None:
        return self.part.state(ref)

    def sizes(self, refs: Iterable[Ref]) -> Mapping[Ref, TableSize]:
        return self.part.sizes(refs)

    def append(self, ref: Ref, files: Sequence[StagedFile], commit: Commit) -> LoadOutcome:
        return landed(lambda: self.part.append(ref, files, commit))

    def overwrite(self, ref: Ref, files: Sequence[StagedFile], commit: Commit) -> LoadOutcome:
        return landed(lambda: self.part.overwrite(ref, files, commit))

    def merge(
        self, spark: SparkSession | None, ref: Ref, files: Sequence[StagedFile], merge: Merge, commit: Commit
    ) -> LoadOutcome:
        if merge.key:
            merge = replace(merge, key=(self.column, *merge.key))
        return landed(lambda: self.part.merge(spark, ref, files, merge, commit))

    def fill_size(self, ref: Ref, columns: Mapping[str, int]) -> FillSize:
        assert isinstance(self.part, Fills), "every destination that shares tables fills columns"
        return self.part.fill_size(ref, columns)

    def fill(
        self,
        session: SparkSession | None,
        ref: Ref,
        fill: Fill,
        commit: Commit,
        told: Callable[[int, int], None],
        go_on: Callable[[], bool],
    ) -> Filled:
        assert isinstance(self.part, Fills), "every destination that shares tables fills columns"
        return self.part.fill(session, ref, replace(fill, key=(self.column, *fill.key)), commit, told, go_on)

    def promote(self, ref: Ref, columns: Mapping[str, OverflowColumn], extra: str, commit: Commit) -> Promoted:
        return self.part.promote(ref, columns, extra, commit) if isinstance(self.part, Promotes) else Promoted()

    def lookup_rows(self, ref: Ref, keys: pa.Table) -> RowLookup:
        return self.part.lookup_rows(ref, self._of_shard(keys, pa.field(self.column, pa.string())))

    def update_rows(self, ref: Ref, met: RowLookup, change: RowUpdate, commit: Commit) -> LoadOutcome:
        schema = self.part.target(ref).schema
        field = next(f for f in schema if value_of(f) is not None)
        inserted, updated = (self._filled(t, field) for t in (change.inserted, change.updated))
        return self.part.update_rows(ref, met, replace(change, inserted=inserted, updated=updated), commit)

    def _filled(self, table: pa.Table, field: pa.Field) -> pa.Table:
        at = table.schema.get_field_index(field.name)
        values = pa.repeat(self.shard, len(table)).cast(field.type)
        return table.set_column(at, field, values) if at >= 0 else table.add_column(0, field, values)

    def _of_shard(self, table: pa.Table, field: pa.Field) -> pa.Table:
        return table.add_column(0, field, pa.repeat(self.shard, len(table)))

    def read(self, ref: Ref, columns: Sequence[str] = ()) -> pa.RecordBatchReader:
        """Return the shard's rows; without its name in them unless that is asked for."""
        if not columns:
            columns = [n for n in self.part.target(ref).schema.names if n != self.column]
        return self.part.read(ref, columns)

    def first_rows(self, ref: Ref, rows: int) -> pa.Table:
        found = self.part.first_rows(ref, rows)
        return found.select([name for name in found.column_names if name != self.column])


class ShardedFile(Sharded):
    """Shard view of a destination that is one file."""

    def vacuum(self, *, dry_run: bool) -> tuple[int, int]:
        assert isinstance(self.base, Vacuums), "as `sharded` has found"
        return self.base.vacuum(dry_run=dry_run)


class ShardedLake(Sharded):
    """Shard view of a destination whose tables need maintenance: each shard maintains its own files."""

    @property
    def _kept(self) -> Maintains:
        assert isinstance(self.part, Maintains), "as `sharded` has found"
        return self.part

    @property
    def maintenance(self) -> tuple[str, ...]:
        return self._kept.maintenance

    def layout(self, ref: Ref) -> Layout:
        return self._kept.layout(ref)

    def due(self, ref: Ref, how: Maintenance) -> bool:
        return self._kept.due(ref, how)

    def held_by(self, ref: Ref) -> int:
        return self._kept.held_by(ref)

    def maintain(self, ref: Ref, work: Upkeep) -> Maintained:
        return self._kept.maintain(ref, work)


class ShardedLaidOut(ShardedLake):
    """Shard view of a destination with table layouts: the shard that set a layout last wins."""

    @property
    def _laid_out(self) -> LaidOut:
        assert isinstance(self.part, LaidOut), "as `sharded` has found"
        return self.part

    def layouts(self, refs: Iterable[Ref]) -> Mapping[Ref, TableLayout]:
        return self._laid_out.layouts(refs)

    def property_fault(self, name: str) -> str:
        return self._laid_out.property_fault(name)

    def partition_fault(self, term: PartitionTerm, kind: DataType) -> str:
        return self._laid_out.partition_fault(term, kind)


def sharded(base: SharingDestination, shard: str, prefix: str) -> Sharded:
    """Return the destination as this shard has it; `prefix` begins system columns."""
    kinds = ((Vacuums, ShardedFile), (SharesLayouts, ShardedLaidOut), (Maintains, ShardedLake))
    kind = next((made for able, made in kinds if isinstance(base, able)), Sharded)
    return kind(base, shard, shard_column(prefix))


def landed(attempt: Callable[[], T]) -> T:
    """A commit that other shards were in the way of is made again: none of them touches its rows. What another schema
    was planned from is not."""
    for number in range(1, TRIES + 1):
        try:
            return attempt()
        except Conflict as error:
            if number == TRIES or isinstance(error, Fenced | Reshaped):
                raise
        wait(number)
    raise AssertionError("the last attempt answers or raises")


def wait(number: int) -> None:
    """Let others commit, who may be many: up to a second, the longer the more often one was too late."""
    time.sleep(random.uniform(0, min(2**number / 200, 1.0)))


def alone(ref: Ref) -> DestinationError:
    """Return what is said of a table that one connection has for itself."""
    return DestinationError(
        f"table {'.'.join(ref)} belongs to one connection alone and is not shared",
        hint="choose another namespace for the connections with a `shard`",
    )


def _alone_in(ref: Ref, others: Mapping[str, Table], what: str) -> None:
    if others:
        raise IllegalChange(
            f"table {'.'.join(ref)} cannot be {what}: it has rows of {_shards(sorted(others))}; "
            f"`tables: ...: name: {ref[1]}` keeps its name"
        )


def _shards(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"shard{'s' * (len(names) > 1)} {shown}"


def _remarks(one: Step, others: Mapping[str, Table]) -> list[str]:
    if not others:
        return []
    path, change = ".".join(one.table), one.change
    match change:
        case ColumnAdded(after=column):
            lack = lacking(others, column.name)
            return [f"{path}.{column.name}: {_shards(lack)} do not have it, it is NULL in their rows"] if lack else []
        case ColumnRemoved(before=column):
            have = sorted(set(others) - set(lacking(others, column.name)))
            return [f"{path}.{column.name}: stays, {_shards(have)} still have it"] if have else []
        case ColumnRenamed(before=old, after=new):
            have = sorted(n for n, t in others.items() if old.name in t.by_name)
            text = (
                f"{path}: {_shards(have)} still call {new.name} {old.name}, only rows of this shard move to {new.name}"
            )
            return [text] if have else []
    return []
