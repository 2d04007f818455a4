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
from instep.schema.changes.describe import ColumnRemoved, ColumnRenamed, TableAdded, TableRemoved, key
from instep.schema.changes.diff import pair_columns
from instep.schema.planning.naming import destination_ref
from instep.schema.planning.projection import ColumnRead, TableRead
from instep.schema.policy.similarity import SAMPLE, Candidate, Sample
from instep.schema.selection.pii import by_name, is_secret
from instep.schema.selection.selection import Selection, hashed
from instep.sources.base import CursorRange, Snapshot
from instep.stage.casts.cast import cast
from instep.stage.conform import hashed as digests
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.filters import where_of


def current(lookup: RowLookup, prefix: str) -> RowLookup:
    """Return the table without ended versions (read-only); unchanged for a table without versions."""
    mark = f"{prefix}current"
    if mark not in lookup.rows.column_names:
        return lookup
    stands = pc.fill_null(lookup.rows.column(mark), False)
    indices = pc.indices_nonzero(stands).to_pylist()
    return replace(
        lookup, rows=lookup.rows.take(pa.array(indices, pa.int64())), numbers=[lookup.numbers[i] for i in indices]
    )


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
    context: SyncContext, sides: CatalogSides, snapshot: Snapshot, candidates: Sequence[Candidate]
) -> dict[str, Sample]:
    """Return the evidence of each pair in the rows, by the content key of the rename; a note where they cannot be
    compared. Reads in `snapshot`. A failure here does not fail the detection."""
    by_table: dict[Ref, list[Candidate]] = {}
    tables = [c for c in candidates if isinstance(c.removed, TableRemoved) and c.schema >= ALIKE][:TABLES]
    for candidate in candidates:
        if isinstance(candidate.removed, ColumnRemoved):
            by_table.setdefault(candidate.removed.table, []).append(candidate)
    out: dict[str, Sample] = {}
    for ref, pairs in by_table.items():
        out |= _tried(pairs, lambda ref=ref, pairs=pairs: _columns(context, sides, snapshot, ref, pairs))
    for candidate in tables:
        out |= _tried([candidate], lambda one=candidate: _table(context, sides, snapshot, one))
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
    work = _reader(context, sides, snapshot, ref)
    if isinstance(work, Sample):
        return [work] * len(pairs)
    compared = [work.column(str(c.removed.before.name), str(c.added.after.name)) for c in pairs]
    if not work.keys:
        return [work.by_values(w) for w in compared]
    return work.by_key(compared)


def values_of_rename(
    context: SyncContext, sides: CatalogSides, snapshot: Snapshot, rename: ColumnRenamed
) -> RenameValues | str:
    """Return the sampled values of both columns of a rename, or why there are none to show: also for columns that are
    hashed or look personal. `rename.table` is the table's name at the source."""
    work = _reader(context, sides, snapshot, rename.table)
    if isinstance(work, Sample):
        return work.note
    column = work.column(rename.before.name, rename.after.name)
    if why := work.withheld(column.old.name) or work.withheld(column.name):
        return why
    matching = work.matching([column]) if work.keys else work.first_rows(column)
    if isinstance(matching, Sample):
        return matching.note
    old, new = matching.columns[0]
    if why := work.withheld(column.name, (*old, *new)):
        return why
    names = tuple(c.old.name for c in work.keys)
    hidden = [bool(work.withheld(name)) for name in names]
    keys = [["not shown" if hide else v for hide, v in zip(hidden, row, strict=True)] for row in matching.keys]
    return RenameValues(names, keys, old, new)


@dataclass(frozen=True)
class RenameValues:
    """The values of two columns, row by row where there is a key (`key` names its columns), else as two heaps."""

    key: tuple[str, ...]
    keys: Sequence[Sequence[Any]]
    old: Sequence[Any]
    new: Sequence[Any]


def _reader(context: SyncContext, sides: CatalogSides, snapshot: Snapshot, ref: Ref) -> _EvidenceReader | Sample:
    """Return a reader of both sides of a table, by its name at the source; a note where they cannot be compared."""
    table, source, raw = sides.accepted.get(ref), sides.source.get(ref), sides.raw.get(ref)
    if table is None or source is None or raw is None:
        return NO_ROWS
    target = destination_ref(table, context.naming)
    state = context.destination.schema.state(target)
    if state is None or not state.rows:
        return NO_ROWS
    names = set(context.destination.write.target(target).schema.names)
    if gone := [c.name for c in table.live if (c.alias or c.name) not in names]:
        return Sample(note=f"column {gone[0]} is not at the destination")
    now = {before.name: after.name for before, after in pair_columns(table, source).same}
    work = _EvidenceReader(context, sides.selection, snapshot, table, raw, target)
    if not table.key or any(name not in now for name in table.key):
        return work
    if state.rows > LARGEST:
        return Sample(note=f"its {state.rows:,} rows are too many to look keys up in")
    stamps = [table.cursor] if table.cursor and now.get(table.cursor) else []
    columns = [[work.column(name, now[name]) for name in names] for names in (table.key, stamps)]
    return replace(work, keys=columns[0], stamps=columns[1])


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
class _Matching:
    """Rows of both sides: their keys, and the old and the new values of each column."""

    keys: Sequence[Sequence[Any]]
    columns: Sequence[tuple[list[Any], list[Any]]]


@dataclass(frozen=True)
class _EvidenceReader:
    """Reads the same columns at the destination and at the source."""

    context: SyncContext
    selection: Selection
    snapshot: Snapshot
    table: Table
    raw: Table
    target_ref: Ref
    keys: Sequence[_Column] = ()
    """The key's columns; none where rows cannot be compared by key."""
    stamps: Sequence[_Column] = ()
    """The cursor, if the table has one."""

    def column(self, old: str, new: str) -> _Column:
        """Return an accepted column and the source's that may be it, by their names."""
        return _Column(self.table.by_name[old], self.raw.by_name[new], new)

    def withheld(self, name: str, sampled: Sequence[Any] = ()) -> str:
        """Return why values of a column are shown to nobody: it is hashed, or looks personal; "" if they may be.
        Secrets are not shown even where nothing is protected."""
        protect, path = self.context.protect, f"{self.table.path}.{name}"
        if hashed(self.selection, self.table.ref, name) or hashed(self.context.selection, self.raw.ref, name):
            return f"column {name} is hashed: its values are not shown"
        if any(pattern.matches(path) for pattern in protect.allow):
            return ""
        texts = [str(value) for value in sampled if value is not None]
        if protect.mode != "off":
            why = protect.name(path, name) or protect.looks(texts)
        else:
            why = "its name looks like a secret" if by_name(name) == "secret" else ""
            why = why or ("its values look like secrets" if any(map(is_secret, texts)) else "")
        return f"values of column {name} are not shown: {why}" if why else ""

    def by_key(self, compared: Sequence[_Column]) -> list[Sample]:
        """Return the evidence of each column in rows of the same key."""
        matching = self.matching(compared)
        if isinstance(matching, Sample):
            return [matching] * len(compared)
        return [_compared(o, n, hide=self.is_hashed(c)) for c, (o, n) in zip(compared, matching.columns, strict=True)]

    def matching(self, compared: Sequence[_Column]) -> _Matching | Sample:
        """Return the rows that both sides have, by key. Rows whose cursor has moved since they were loaded were changed
        meanwhile: they are left out."""
        keys, stamps = self.keys, self.stamps
        every = [*keys, *stamps, *compared]
        rows = self.source_rows(every, spread=True)
        names = [c.place for c in keys]
        unique = _first_of_each(rows[: len(keys)])
        key_values = pa.table([values.take(unique) for values in rows[: len(keys)]], names=names)
        if not len(key_values):
            return Sample(note="no rows at the source to compare with")
        met = current(
            self.context.destination.write.lookup_rows(self.target_ref, key_values), self.context.naming.prefix
        )
        numbers = pa.array(met.numbers, pa.int64())
        new = [values.take(unique).take(numbers).to_pylist() for values in rows[len(keys) :]]
        old = [met.rows.column(c.place).to_pylist() for c in every[len(keys) :]]
        mark = f"{self.context.naming.prefix}deleted"
        gone = met.rows.column(mark).to_pylist() if mark in met.rows.column_names else [False] * len(met.rows)
        matching = [
            i
            for i, dead in enumerate(gone)
            if not dead and all(is_same(o[i], n[i]) for o, n in self.stamped(stamps, old, new))
        ]
        first, places = len(stamps), numbers.to_pylist()
        key_rows = list(zip(*(values.to_pylist() for values in key_values.columns), strict=True))
        columns = [
            ([o[i] for i in matching], [n[i] for i in matching]) for o, n in zip(old[first:], new[first:], strict=True)
        ]
        return _Matching([key_rows[places[i]] for i in matching], columns)

    def stamped(self, stamps: Sequence[_Column], old: list[Any], new: list[Any]) -> list[tuple[Any, Any]]:
        return list(zip(old[: len(stamps)], new[: len(stamps)], strict=True))

    def by_values(self, column: _Column) -> Sample:
        """Return the evidence of a column in two sets of values."""
        old, new = self.first_rows(column).columns[0]
        return _compare_multisets(old, new, hide=self.is_hashed(column))

    def first_rows(self, column: _Column) -> _Matching:
        """Return two heaps of values: those of the first rows on each side."""
        new = self.source_rows([column], spread=False)[0].to_pylist()
        old: list[Any] = []
        with self.context.destination.write.read(self.target_ref, [column.place]) as reader:
            for batch in reader:
                old += batch.column(0).to_pylist()
                if len(old) >= max(len(new), SAMPLE):
                    break
        return _Matching([], [(old[: max(len(new), SAMPLE)], new)])

    def is_hashed(self, column: _Column) -> bool:
        return hashed(self.selection, self.table.ref, column.old.name)

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
        yields, place = self.snapshot.query_types(read), {name: i for i, name in enumerate(source)}
        return [self.conformed(c, batch.column(place[c.new.name]), yields[c.new.name]) for c in columns]

    def target(self, column: _Column) -> pa.DataType:
        return self.context.destination.write.target(self.target_ref).schema.field(column.place).type

    def conformed(self, column: _Column, values: pa.Array, kind: DataType) -> pa.Array:
        if self.is_hashed(column):
            return digests(values, kind, self.context.salt)
        return cast(values, kind, self.target(column), column.old.type).values


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


def is_same(old: Any, new: Any) -> bool:
    """Return True if two values are equal, or are written alike."""
    return bool(old == new) or (old is not None and new is not None and repr(old) == repr(new))


def _compared(old: Sequence[Any], new: Sequence[Any], *, hide: bool) -> Sample:
    """Compare row by row."""
    both = [(o, n) for o, n in zip(old, new, strict=True) if o is not None or n is not None]
    same = sum(is_same(o, n) for o, n in both)
    return _described(Sample("key", len(old), len(both), same), old, new, hide=hide)


def _compare_multisets(old: Sequence[Any], new: Sequence[Any], *, hide: bool) -> Sample:
    """Compare both sides as multisets."""
    left, right = (Counter(repr(v) for v in side if v is not None) for side in (old, new))
    rows = max(left.total(), right.total())
    sample = Sample("values", max(len(old), len(new)), rows, (left & right).total())
    return _described(sample, old, new, hide=hide) if sample.sampled else NO_ROWS


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


def _table(context: SyncContext, sides: CatalogSides, snapshot: Snapshot, candidate: Candidate) -> list[Sample]:
    """Return how many sampled rows of the new table stand in the old one with the same values in all columns of one
    name."""
    assert isinstance(candidate.removed, TableRemoved)
    assert isinstance(candidate.added, TableAdded)
    old, new, raw = candidate.removed.before, candidate.added.after, sides.raw.get(candidate.added.after.ref)
    target = destination_ref(old, context.naming)
    state = context.destination.schema.state(target)
    if raw is None or state is None or not state.rows:
        return [NO_ROWS]
    names = [c.name for c in old.live if c.name in new.by_name and _fits(c, new.by_name[c.name])]
    if not old.key or not set(old.key) <= set(names) or state.rows > LARGEST:
        return [Sample(note="no key to compare rows by" if not old.key else "their keys cannot be compared")]
    work = _EvidenceReader(context, sides.selection, snapshot, old, raw, target)
    every = [_Column(old.by_name[n], raw.by_name[n], n) for n in (*old.key, *(n for n in names if n not in old.key))]
    rows = work.source_rows(every, spread=True)
    unique = _first_of_each(rows[: len(old.key)])
    key_values = pa.table(
        [v.take(unique) for v in rows[: len(old.key)]], names=[c.place for c in every[: len(old.key)]]
    )
    if not len(key_values):
        return [Sample(note="no rows at the source to compare with")]
    met = current(context.destination.write.lookup_rows(target, key_values), context.naming.prefix)
    places = unique.take(pa.array(met.numbers, pa.int64()))
    same = _equal_rows(
        [met.rows.column(c.place).to_pylist() for c in every], [values.take(places).to_pylist() for values in rows]
    )
    # Rows that are new since the last load cannot stand there; where hardly a key does, it is another table.
    rows_compared = max(len(places), min(state.rows, len(key_values)) // 2)
    return [Sample("key", len(key_values), rows_compared, same, whole=True)]


def _fits(old: Column, new: Column) -> bool:
    """Return whether the types fit; a hashed column is text at the destination, whatever it is at the source."""
    return fitting(old.type, new.type) is not None or isinstance(new.type, String)


def _equal_rows(old: Sequence[Sequence[Any]], new: Sequence[Sequence[Any]]) -> int:
    return sum(all(is_same(a, b) for a, b in zip(o, n, strict=True)) for o, n in _rows(old, new))


def _rows(old: Sequence[Sequence[Any]], new: Sequence[Sequence[Any]]) -> Iterator[tuple[Iterable[Any], Iterable[Any]]]:
    yield from zip(zip(*old, strict=True), zip(*new, strict=True), strict=True)
