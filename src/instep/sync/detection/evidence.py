"""Evidence of tables that keep their history, from current versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from instep.destinations.base import RowLookup
from instep.errors import InstepError
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.promotion import fitting
from instep.schema.catalog.types import DataType, String
from instep.schema.changes.describe import ColumnRemoved, TableAdded, TableRemoved, key
from instep.schema.changes.diff import pair_columns
from instep.schema.planning.naming import destination_ref
from instep.schema.planning.projection import ColumnRead, TableRead
from instep.schema.policy.similarity import SAMPLE, Candidate, Sample
from instep.schema.selection.selection import Selection, hashed
from instep.sources.base import CursorRange, Snapshot
from instep.stage.casts.cast import cast
from instep.stage.conform import hashed as digests
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.filters import where_of


def current(met: RowLookup, prefix: str) -> RowLookup:
    """Return the table without ended versions (read-only); unchanged for a table without versions."""
    mark = f"{prefix}current"
    if mark not in met.rows.column_names:
        return met
    stands = pc.fill_null(met.rows.column(mark), False)
    indices = pc.indices_nonzero(stands).to_pylist()
    return replace(met, rows=met.rows.take(pa.array(indices, pa.int64())), numbers=[met.numbers[i] for i in indices])


LARGEST = 50_000_000
"""Rows of a destination table whose keys are still read for this."""
MOST = 65_536
"""Rows of the source that are looked through for values."""
TABLES = 10
ALIKE = 0.5
"""Pairs of tables whose rows are compared: so many, from this score by their schemas on."""
NO_ROWS = Sample(note="no rows at the destination to compare with yet")


@dataclass(frozen=True)
class CatalogSides:
    """The two catalogs of a detection: `source` with the keys of the settings, `raw` as the source tells its types."""

    source: Catalog
    raw: Catalog
    accepted: Mapping[Ref, Table]
    """Keyed by the table's name at the source."""
    selection: Selection


def gather(
    context: SyncContext, sides: CatalogSides, snapshot: Snapshot, found: Sequence[Candidate]
) -> dict[str, Sample]:
    """Return what the rows say about each pair, by the content key of the rename; a note where they cannot be compared.
    Reads in `snapshot`. A failure here is no failure of the detection."""
    by_table: dict[Ref, list[Candidate]] = {}
    tables = [c for c in found if isinstance(c.removed, TableRemoved) and c.schema >= ALIKE][:TABLES]
    for one in found:
        if isinstance(one.removed, ColumnRemoved):
            by_table.setdefault(one.removed.table, []).append(one)
    out: dict[str, Sample] = {}
    for ref, pairs in by_table.items():
        out |= _tried(pairs, lambda ref=ref, pairs=pairs: _columns(context, sides, snapshot, ref, pairs))
    for one in tables:
        out |= _tried([one], lambda one=one: _table(context, sides, snapshot, one))
    return out


def _tried(pairs: Sequence[Candidate], read: Any) -> dict[str, Sample]:
    try:
        samples = read()
    except InstepError as error:
        samples = [Sample(note=f"its rows could not be compared: {error.message}")] * len(pairs)
    except (pa.ArrowException, duckdb.Error) as error:
        samples = [Sample(note=f"its rows could not be compared ({type(error).__name__})")] * len(pairs)
    return {key(c.rename): s for c, s in zip(pairs, samples, strict=True)}


def _columns(
    context: SyncContext, sides: CatalogSides, snapshot: Snapshot, ref: Ref, pairs: Sequence[Candidate]
) -> list[Sample]:
    """Return one sample for each pair of one table."""
    table, source, raw = sides.accepted.get(ref), sides.source.get(ref), sides.raw.get(ref)
    if table is None or source is None or raw is None:
        return [NO_ROWS] * len(pairs)
    there = destination_ref(table, context.naming)
    state = context.destination.schema.state(there)
    if state is None or not state.rows:
        return [NO_ROWS] * len(pairs)
    names = set(context.destination.write.target(there).schema.names)
    if gone := [c.name for c in table.live if (c.alias or c.name) not in names]:
        return [Sample(note=f"column {gone[0]} is not at the destination")] * len(pairs)
    work = _EvidenceReader(context, sides.selection, snapshot, table, raw, there)
    by_name = {after.name: before for before, after in pair_columns(table, source).same}
    keys = {before.name: after for after, before in by_name.items()}
    wanted = [_Column(table.by_name[c.removed.before.name], raw.by_name[_new(c)], _new(c)) for c in pairs]
    if not table.key or any(name not in keys for name in table.key):
        return [work.by_values(w) for w in wanted]
    if state.rows > LARGEST:
        return [Sample(note=f"its {state.rows:,} rows are too many to look keys up in")] * len(pairs)
    key_columns = [_Column(table.by_name[name], raw.by_name[keys[name]], keys[name]) for name in table.key]
    cursor = table.cursor and keys.get(table.cursor)
    stamps = [_Column(table.by_name[table.cursor], raw.by_name[cursor], cursor)] if table.cursor and cursor else []
    return work.by_key(key_columns, wanted, stamps)


def _new(candidate: Candidate) -> str:
    return str(candidate.added.after.name)


@dataclass(frozen=True)
class _Column:
    """An accepted column, the source column that may be it, and the name that tells whether it is hashed."""

    old: Column
    new: Column
    name: str

    @property
    def place(self) -> str:
        return self.old.alias or self.old.name


@dataclass(frozen=True)
class _EvidenceReader:
    context: SyncContext
    selection: Selection
    snapshot: Snapshot
    table: Table
    raw: Table
    there: Ref

    def by_key(self, keys: Sequence[_Column], wanted: Sequence[_Column], stamps: Sequence[_Column]) -> list[Sample]:
        """Rows whose cursor has moved since they were loaded were changed meanwhile: they are left out."""
        every = [*keys, *stamps, *wanted]
        rows = self.source_rows(every, spread=True)
        names = [c.place for c in keys]
        unique = _first_of_each(rows[: len(keys)])
        key_values = pa.table([values.take(unique) for values in rows[: len(keys)]], names=names)
        if not len(key_values):
            return [Sample(note="no rows at the source to compare with")] * len(wanted)
        met = current(self.context.destination.write.lookup_rows(self.there, key_values), self.context.naming.prefix)
        numbers = pa.array(met.numbers, pa.int64())
        new = [values.take(unique).take(numbers).to_pylist() for values in rows[len(keys) :]]
        old = [met.rows.column(c.place).to_pylist() for c in every[len(keys) :]]
        mark = f"{self.context.naming.prefix}deleted"
        gone = met.rows.column(mark).to_pylist() if mark in met.rows.column_names else [False] * len(met.rows)
        matching = [
            i
            for i, dead in enumerate(gone)
            if not dead and all(_same(o[i], n[i]) for o, n in self.stamped(stamps, old, new))
        ]
        first = len(stamps)
        return [
            _compared([o[i] for i in matching], [n[i] for i in matching], hide=self.is_hashed(c))
            for c, o, n in zip(wanted, old[first:], new[first:], strict=True)
        ]

    def stamped(self, stamps: Sequence[_Column], old: list[Any], new: list[Any]) -> list[tuple[Any, Any]]:
        return list(zip(old[: len(stamps)], new[: len(stamps)], strict=True))

    def by_values(self, one: _Column) -> Sample:
        """Return two heaps of values: those of the first rows on each side."""
        new = self.source_rows([one], spread=False)[0].to_pylist()
        old: list[Any] = []
        with self.context.destination.write.read(self.there, [one.place]) as reader:
            for batch in reader:
                old += batch.column(0).to_pylist()
                if len(old) >= max(len(new), SAMPLE):
                    break
        return _heaps(old[: max(len(new), SAMPLE)], new, hide=self.is_hashed(one))

    def is_hashed(self, one: _Column) -> bool:
        return hashed(self.selection, self.table.ref, one.old.name)

    def source_rows(self, columns: Sequence[_Column], *, spread: bool) -> list[pa.Array]:
        """Return the first rows of the source, each column as the destination holds the accepted one."""
        source = {c.new.name: c.new for c in columns}
        where = where_of(self.context, self.table, self.raw)
        read = TableRead(self.raw, self.raw, tuple(ColumnRead(c, c) for c in source.values()), where)
        telling = {c.new.name for c in columns if not c.old.key}
        batch = _first(self.snapshot, read, [place for place, name in enumerate(source) if name in telling])
        if batch is None:
            return [pa.nulls(0, self.target(c)) for c in columns]
        step = max(1, len(batch) // SAMPLE) if spread else 1
        batch = batch.take(pa.array(range(0, len(batch), step), pa.int64())).slice(0, SAMPLE if spread else len(batch))
        yields, place = self.snapshot.yields(read), {name: i for i, name in enumerate(source)}
        return [self.conformed(c, batch.column(place[c.new.name]), yields[c.new.name]) for c in columns]

    def target(self, one: _Column) -> pa.DataType:
        return self.context.destination.write.target(self.there).schema.field(one.place).type

    def conformed(self, one: _Column, values: pa.Array, kind: DataType) -> pa.Array:
        if self.is_hashed(one):
            return digests(values, kind, self.context.salt)
        return cast(values, kind, self.target(one), one.old.type).values


def _first(snapshot: Snapshot, read: TableRead, telling: Sequence[int]) -> pa.RecordBatch | None:
    """Return the first batch of the table that has a value in one of the columns at these places, else the first that
    has rows; of 65,536 rows at most."""
    first, rows = None, 0
    with snapshot.reader.open() as session:
        for chunk in sorted(snapshot.chunks(read, "evidence", CursorRange()), key=lambda c: c.number):
            for batch in session.read(chunk):
                first = batch if first is None and len(batch) else first
                if any(batch.column(place).null_count < len(batch) for place in telling):
                    return batch
                rows += len(batch)
                if rows >= MOST:
                    return first
    return first


def _first_of_each(keys: Sequence[pa.Array]) -> pa.Array:
    """Return the places of rows with a whole key, none twice."""
    seen: dict[str, int] = {}
    for place, values in enumerate(zip(*(k.to_pylist() for k in keys), strict=True)):
        if None not in values:
            seen.setdefault(repr(values), place)
    return pa.array(seen.values(), pa.int64())


def _same(old: Any, new: Any) -> bool:
    return bool(old == new) or (old is not None and new is not None and repr(old) == repr(new))


def _compared(old: Sequence[Any], new: Sequence[Any], *, hide: bool) -> Sample:
    """Row by row."""
    both = [(o, n) for o, n in zip(old, new, strict=True) if o is not None or n is not None]
    same = sum(_same(o, n) for o, n in both)
    return _described(Sample("key", len(old), len(both), same), old, new, hide=hide)


def _heaps(old: Sequence[Any], new: Sequence[Any], *, hide: bool) -> Sample:
    """Compare both sides as multisets."""
    left, right = (Counter(repr(v) for v in side if v is not None) for side in (old, new))
    rows = max(left.total(), right.total())
    made = Sample("values", max(len(old), len(new)), rows, (left & right).total())
    return _described(made, old, new, hide=hide) if made.sampled else NO_ROWS


def _described(sample: Sample, old: Sequence[Any], new: Sequence[Any], *, hide: bool) -> Sample:
    sides = [[v for v in side if v is not None] for side in (old, new)]
    nulls = len(old) - len(sides[0]), len(new) - len(sides[1])
    distinct = len(set(map(repr, sides[0]))), len(set(map(repr, sides[1])))
    return replace(sample, nulls=nulls, distinct=distinct, range=None if hide else _range(*sides))


def _range(old: Sequence[Any], new: Sequence[Any]) -> bool | None:
    try:
        return (min(old), max(old)) == (min(new), max(new)) if old and new else None
    except TypeError:
        return None


def _table(context: SyncContext, sides: CatalogSides, snapshot: Snapshot, one: Candidate) -> list[Sample]:
    """Return how many sampled rows of the new table stand in the old one with the same values in all columns of one
    name."""
    assert isinstance(one.removed, TableRemoved)
    assert isinstance(one.added, TableAdded)
    old, new, raw = one.removed.before, one.added.after, sides.raw.get(one.added.after.ref)
    there = destination_ref(old, context.naming)
    state = context.destination.schema.state(there)
    if raw is None or state is None or not state.rows:
        return [NO_ROWS]
    names = [c.name for c in old.live if c.name in new.by_name and _fits(c, new.by_name[c.name])]
    if not old.key or not set(old.key) <= set(names) or state.rows > LARGEST:
        return [Sample(note="no key to compare rows by" if not old.key else "their keys cannot be compared")]
    work = _EvidenceReader(context, sides.selection, snapshot, old, raw, there)
    every = [_Column(old.by_name[n], raw.by_name[n], n) for n in (*old.key, *(n for n in names if n not in old.key))]
    rows = work.source_rows(every, spread=True)
    unique = _first_of_each(rows[: len(old.key)])
    key_values = pa.table(
        [v.take(unique) for v in rows[: len(old.key)]], names=[c.place for c in every[: len(old.key)]]
    )
    if not len(key_values):
        return [Sample(note="no rows at the source to compare with")]
    met = current(context.destination.write.lookup_rows(there, key_values), context.naming.prefix)
    places = unique.take(pa.array(met.numbers, pa.int64()))
    same = _equal_rows(
        [met.rows.column(c.place).to_pylist() for c in every], [values.take(places).to_pylist() for values in rows]
    )
    # Rows that are new since the last load cannot stand there; where hardly a key does, it is another table.
    rows_compared = max(len(places), min(state.rows, len(key_values)) // 2)
    return [Sample("key", len(key_values), rows_compared, same, whole=True)]


def _fits(old: Column, new: Column) -> bool:
    """A hashed column is text at the destination, whatever it is at the source."""
    return fitting(old.type, new.type) is not None or isinstance(new.type, String)


def _equal_rows(old: Sequence[Sequence[Any]], new: Sequence[Sequence[Any]]) -> int:
    return sum(all(_same(a, b) for a, b in zip(o, n, strict=True)) for o, n in _rows(old, new))


def _rows(old: Sequence[Sequence[Any]], new: Sequence[Sequence[Any]]) -> Iterator[tuple[Iterable[Any], Iterable[Any]]]:
    yield from zip(zip(*old, strict=True), zip(*new, strict=True), strict=True)
