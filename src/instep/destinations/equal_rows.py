# ruff: noqa: S608 - columns and tables have names of our own, values are not part of the text
"""Rows that a table and its staged files have alike, set aside before the join of a whole compare.

Most rows of a whole table have not changed, and files of both sides have them in nearly the same order. Keys of all
staged rows are read first, so that the place of a row's partner is known. Then both sides pass by once, and partners
that are read at about the same time are compared by value. What is left is joined by key, as ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_SHARE = 0.5
"""Share of the table's rows that must have an equal partner nearby; below it the join of all rows costs less."""
_TRIAL = 500_000
"""Rows of the table after which the share counts."""

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Values = Callable[[int], pa.Array]


class ComparedRows(Protocol):
    """Rows of some files."""

    @property
    def files(self) -> int:
        """Return how many files there are."""

    @property
    def rows(self) -> int:
        """Return about how many rows there are, and not fewer."""

    def read(self, files: Sequence[int] | None = None, *, keys: bool = False) -> pa.RecordBatchReader:
        """Return the key as c0, c1, ..., behind it, unless only `keys` are wanted, the values that are compared and
        then others, and where each row is. `files`: the numbers of those that are read, in this order; None: all."""


@dataclass(frozen=True)
class WholeTableComparison:
    """The comparison of a table with its staged rows, which are all that the source has."""

    staged: ComparedRows
    table: ComparedRows
    key: int
    """Number of the columns of the key, which are the first ones."""
    compared: int
    """Number of the columns that are compared, those of the key among them."""
    marked: bool
    """True if the table has, behind these, a column that marks rows as deleted."""


def set_equal_aside(db: duckdb.DuckDBPyConnection, compare: WholeTableComparison) -> bool:
    """Make the tables `r` and `t` of the staged rows and of the table's, but for pairs that have the same key and the
    same values, which a whole compare leaves as they are. Return False where all rows have to be joined: keys that may
    occur twice, or few equal rows nearby."""
    names = [f"c{i}" for i in range(compare.key)]
    tags, end = np.empty(compare.staged.rows, dtype=np.int64), 0
    for batch in compare.staged.read(keys=True):
        tags[end : end + len(batch)] = _tags(db, batch, names)
        end += len(batch)
    if (index := KeyIndex.of(tags[:end])) is None:
        return False
    return _Pass(db, compare, index, names).run()


def _decoded_ahead(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches. While one is compared, a thread decodes the next one, and no more: new memory costs as much as
    decoding."""
    coming = iter(batches)
    with ThreadPoolExecutor(1, thread_name_prefix="decode") as pool:
        following = pool.submit(next, coming, None)
        while (batch := following.result()) is not None:
            following = pool.submit(next, coming, None)
            yield batch


def _tags(db: duckdb.DuckDBPyConnection, rows: pa.RecordBatch, names: Sequence[str]) -> Numbers:
    """Return a number for each key. Keys whose numbers differ, differ; two keys may have the same one."""
    key = rows.column(0)
    if len(names) == 1 and (pa.types.is_integer(key.type) or pa.types.is_temporal(key.type)):
        whole = key.cast(pa.int32()) if key.type.bit_width == 32 else key
        return np.asarray(whole.cast(pa.int64()).fill_null(0))
    db.register("part", rows.select(names))
    arrays = db.execute(f"SELECT hash({', '.join(names)}) AS tag FROM part").fetchnumpy()
    return np.asarray(arrays["tag"]).view(np.int64)


def _equal_values(db: duckdb.DuckDBPyConnection, left: pa.Array, right: pa.Array) -> pa.Array:
    if pa.types.is_nested(left.type) or isinstance(left, pa.ExtensionArray):  # Arrow does not compare those
        db.register("part", pa.record_batch([left, right], ["a", "b"]))
        return pa.array(db.execute("SELECT a IS NOT DISTINCT FROM b AS same FROM part").fetchnumpy()["same"])
    equal = pc.equal(left, right)
    if equal.null_count:
        return pc.or_(equal.fill_null(False), pc.and_(left.is_null(), right.is_null()))
    return equal


def _at(rows: pa.RecordBatch, places: Numbers) -> Values:
    """Return the columns of the rows at `places`; nothing is copied where those follow one another."""
    first = int(places[0])
    if int(places[-1]) - first == len(places) - 1 and (places[1:] > places[:-1]).all():
        near = rows.slice(first, len(places))
        return lambda column: near.column(column)
    chosen = pa.array(places)
    return lambda column: rows.column(column).take(chosen)


@dataclass(frozen=True)
class KeyIndex:
    """The tags of the staged keys in ascending order, and the number of the row that has each."""

    tags: Numbers
    places: Numbers

    @classmethod
    def of(cls, tags: Numbers) -> KeyIndex | None:
        """Return None where two rows have the same tag: their key may be the same, too. Sorts the tags where they are,
        for new memory costs more than sorting once more what is nearly in order."""
        places = np.argsort(tags, kind="stable")
        tags.sort(kind="stable")
        return None if (tags[1:] == tags[:-1]).any() or not len(tags) else cls(tags, places)

    def find(self, tags: Numbers) -> Numbers:
        """Return the number of the row with each tag; -1 where there is none."""
        if (tags[1:] >= tags[:-1]).all():
            at = np.searchsorted(self.tags, tags)
        else:  # numbers in order are found in the processor's cache
            order, at = np.argsort(tags, kind="stable"), np.empty(len(tags), dtype=np.int64)
            at[order] = np.searchsorted(self.tags, tags[order])
        at[at == len(self.tags)] = 0
        return np.where(self.tags[at] == tags, self.places[at], -1)


@dataclass
class _Pass:
    """One pass over both sides."""

    db: duckdb.DuckDBPyConnection
    compare: WholeTableComparison
    index: KeyIndex
    names: Sequence[str]
    nearby: deque[tuple[int, pa.RecordBatch]] = field(default_factory=deque)
    """Staged batches with the number of their first row; `paired`: staged rows that have their equal partner."""
    tags: list[Numbers] = field(default_factory=list)
    """Tags of the table's rows that are left."""
    end: int = 0

    def run(self) -> bool:
        self.paired = np.zeros(len(self.index.tags), dtype=np.bool_)
        reader, staged = self.compare.table.read(self._order()), self.compare.staged.read()
        self._make("t", reader.schema)
        self._make("r", staged.schema)
        coming, met, equal = _decoded_ahead(staged), 0, 0
        for rows in _decoded_ahead(reader):
            tags = _tags(self.db, rows, self.names)
            left = ~self._equal(rows, self.index.find(tags), coming)
            met, equal = met + len(rows), equal + len(rows) - int(left.sum())
            if met >= _TRIAL and equal < _SHARE * met:
                return self._give_up()
            self._insert("t", rows, left)
            self.tags.append(tags[left])
        while self.nearby or self._next(coming):
            self._drop()
        return self._is_exact(equal) or self._give_up()

    def _order(self) -> list[int]:
        """Return the numbers of the table's files in the order in which their first rows are staged."""
        first: list[tuple[float, int]] = []
        for number in range(self.compare.table.files):
            rows = next(iter(self.compare.table.read([number], keys=True)), None)
            places = self.index.find(_tags(self.db, rows, self.names)) if rows is not None else np.empty(0)
            first.append((float(np.median(places)) if len(places) else -1, number))
        return [number for _, number in sorted(first)]

    def _equal(
        self, rows: pa.RecordBatch, partners: Numbers, coming: Iterator[pa.RecordBatch]
    ) -> npt.NDArray[np.bool_]:
        """Return which rows have an equal partner among the staged rows nearby, and mark those."""
        equal = np.zeros(len(rows), dtype=np.bool_)
        if not (matched := partners[partners >= 0]).size:
            return equal
        middle = int(np.median(matched[:: 1 + len(matched) // 4096]))
        while self.end < middle + len(rows) and self._next(coming):
            pass
        while self.nearby and self.nearby[0][0] + len(self.nearby[0][1]) < middle - len(rows):
            self._drop()
        for start, batch in self.nearby:
            places = np.flatnonzero((partners >= start) & (partners < start + len(batch)))
            if len(places):
                near = partners[places]
                same = self._same(_at(rows, places), _at(batch, near - start))
                equal[places[same]] = self.paired[near[same]] = True
        return equal

    def _same(self, rows: Values, partners: Values) -> Mask:
        """Return where the compared columns of both are the same, of rows that are not marked as deleted. NaN may count
        as another value, and is left to the join."""
        compared = self.compare.compared
        same = _equal_values(self.db, rows(0), partners(0))
        if self.compare.marked:
            same = pc.and_not(same, rows(compared).fill_null(False))
        for column in range(1, compared):
            left, right = rows(column), partners(column)
            if not left.null_count == right.null_count == len(left):
                same = pc.and_(same, _equal_values(self.db, left, right))
        for column in range(self.compare.key):
            if (left := rows(column)).null_count:  # NULL is nobody's key
                same = pc.and_(same, left.is_valid())
        return np.asarray(same)

    def _next(self, coming: Iterator[pa.RecordBatch]) -> bool:
        if (batch := next(coming, None)) is None:
            return False
        self.nearby.append((self.end, batch))
        self.end += len(batch)
        return True

    def _drop(self) -> None:
        start, batch = self.nearby.popleft()
        self._insert("r", batch, ~self.paired[start : start + len(batch)])

    def _make(self, name: str, schema: pa.Schema) -> None:
        self.db.register("part", schema.empty_table())
        self.db.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM part")

    def _insert(self, name: str, rows: pa.RecordBatch, left: Mask) -> None:
        if left.any():
            self.db.register("part", rows.filter(pa.array(left)))
            self.db.execute(f"INSERT INTO {name} SELECT * FROM part")

    def _is_exact(self, equal: int) -> bool:
        """Return whether no key of the table can have been met twice: each pair took its own staged row, and no
        row that is left could have it, too."""
        if equal != int(self.paired.sum()):
            return False
        places = self.index.find(np.concatenate([np.empty(0, dtype=np.int64), *self.tags]))
        return not self.paired[places[places >= 0]].any()

    def _give_up(self) -> bool:
        self.db.execute("DROP TABLE t; DROP TABLE r")
        return False
