"""Loss while a new type is not accepted: source values that do not fit the accepted type, on a sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from instep.errors import InstepError
from instep.schema.catalog.catalog import Column, Table
from instep.schema.changes.describe import ColumnRetyped, key
from instep.schema.planning.naming import destination_ref
from instep.schema.selection.selection import hashed
from instep.sources.base import Snapshot
from instep.stage.casts.cast import cast
from instep.stage.spec import ReadSession
from instep.sync.context import SyncContext
from instep.sync.detection.detect import DetectionResult
from instep.sync.detection.filters import alone, values
from instep.sync.detection.table_renames import TableRenames
from instep.sync.schema_changes.lossy_casts import accepted_column


@dataclass(frozen=True)
class InvalidValues:
    """Test of source values: of `sampled` ones (not counting NULL) `invalid_values` do not fit `type`, the accepted
    one."""

    change: str
    """The content key of the retype."""
    table: str
    column: str
    type: str
    sampled: int = 0
    invalid_values: int = 0
    why_not: str = ""
    """Reason why nothing was sampled."""

    def __str__(self) -> str:
        where = f"{self.table}.{self.column}"
        if self.why_not:
            return f"{where}: no source values were tried: {self.why_not}"
        if not self.sampled:
            return f"{where}: the source has no values to try"
        if not self.invalid_values:
            return f"{where}: all of {self.sampled:,} sampled source values fit {self.type}, the accepted type"
        fit = "does not fit" if self.invalid_values == 1 else "do not fit"
        counted = f"{self.invalid_values:,} of {self.sampled:,} sampled source values"
        return f"{where}: {counted} {fit} {self.type}, the accepted type"


@dataclass(frozen=True)
class _Pair:
    """An accepted column and the source column that has another type now."""

    change: str
    table: Table
    old: Column
    source: Table
    new: Column

    @property
    def without_sample(self) -> InvalidValues:
        return InvalidValues(self.change, self.table.path, self.old.name, str(self.old.type))


def invalid_values(
    context: SyncContext, detection: DetectionResult, rows: int, only: str = ""
) -> tuple[InvalidValues, ...]:
    """Return one entry for each retype that is not accepted, or for the one with the content key `only`. Reads up to
    `rows` values of each in one snapshot of the source, nothing for 0, and of hashed columns never. What cannot be read
    is said, not raised; values are never part of what it answers."""
    pairs = [p for p in _pairs(context, detection) if not only or p.change == only]
    if not pairs or not rows:
        return ()
    try:
        with context.source.snapshot() as snapshot, snapshot.reader.open() as session:
            return tuple(_tried_values(context, snapshot, session, pair, rows) for pair in pairs)
    except InstepError as error:
        return tuple(replace(p.without_sample, why_not=error.message.splitlines()[0]) for p in pairs)


def _pairs(context: SyncContext, detection: DetectionResult) -> Iterator[_Pair]:
    places = TableRenames.of(detection.decisions)
    for decision in detection.decisions:
        change = decision.change
        if not isinstance(change, ColumnRetyped) or decision.applied:
            continue
        table, source = detection.accepted.get(places.before(change)), detection.discovery.catalog.get(change.table)
        old = accepted_column(table, change.before) if table else None
        new = source.by_name.get(change.after.name) if source else None
        if table is None or source is None or old is None or new is None:
            continue
        if not hashed(context.selection, source.ref, new.name) and not hashed(
            context.selected_before, table.ref, old.name
        ):
            yield _Pair(key(change), table, old, source, new)


def _tried_values(
    context: SyncContext, snapshot: Snapshot, session: ReadSession, pair: _Pair, rows: int
) -> InvalidValues:
    try:
        target = context.destination.write.target(destination_ref(pair.table, context.naming)).schema
        kind = target.field(pair.old.alias or pair.old.name).type
        yields = snapshot.query_types(alone(pair.source, pair.new))[pair.new.name]
        sampled = invalid_values = 0
        for some in values(context, snapshot, session, pair.source, pair.new, rows):
            sampled += len(some)
            invalid_values += len(set(cast(some, yields, kind, pair.old.type).invalid_values))
    except InstepError as error:
        return replace(pair.without_sample, why_not=error.message.splitlines()[0])
    except (pa.ArrowException, KeyError) as error:
        return replace(pair.without_sample, why_not=type(error).__name__)
    return replace(pair.without_sample, sampled=sampled, invalid_values=invalid_values)
