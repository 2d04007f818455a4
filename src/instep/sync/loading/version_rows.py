# ruff: noqa: S608 - columns are numbered
"""The rows that a load of versions needs, of a table that is large: those of keys that came or differ, and no others.

Tasks hash the keys of rows, and what is compared of them; rows are chosen by the hashes of their keys. More rows than
are needed may be chosen, since keys can share a hash, and never fewer: what becomes of them is decided as in a small
table. Columns are c0, c1, ... in the order of the table's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from instep.stage.duckdb_memory import duckdb_version, in_duckdb
from instep.stage.fold import MEMORY, Scan, slices
from instep.stage.key_hashes import check_version, hashable, hashed_key, other_form
from instep.stage.spec import Chunk, StagedFile, StageSpec
from instep.sync.loading.row_matching import as_plain, moments, numbered, staged_rows, with_column
from instep.sync.loading.row_sums import as_stream

if TYPE_CHECKING:
    import duckdb

    from instep.sync.loading.engine import Engine

MOST = 2_000_000
"""Keys that tasks are given to choose rows by; of more, all rows are chosen."""
ROWS_OF_FILE = 1 << 40
Hashes = npt.NDArray[np.int64]
Which = Literal["all", "before", "current", "ended or current"]
"""Rows from before the history; versions that are current; these and the last ones of rows that were deleted."""


@dataclass(frozen=True)
class VersionColumns:
    """Places of columns among those that are read."""

    schema: pa.Schema
    """Columns that are read, by plain types."""
    key: tuple[int, ...]
    current: int = -1
    deleted: int = -1
    valid_from: int = -1

    def plain(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches with these types and names."""
        for batch in batches:
            columns = [as_plain(c, f.type) for c, f in zip(batch.columns, self.schema, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def mask(self, rows: pa.RecordBatch | pa.Table, which: Which) -> Any:
        """Return which rows are wanted."""
        if which == "before":
            return rows.column(self.valid_from).is_null()
        current = pc.fill_null(rows.column(self.current), False)
        if which == "current":
            return current
        return pc.or_(current, pc.fill_null(rows.column(self.deleted), False))

    def named(self, places: Sequence[int]) -> list[str]:
        return [self.schema.names[at] for at in places]


@dataclass(frozen=True)
class LastMoments:
    """Fold of moments, the begin of a version first: the last one, and whether a row has no begin."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, bool]]:
        """Yield one result."""
        last, before = 0, False
        for batch in batches:
            before = before or batch.column(0).null_count > 0
            last = max(last, *(pc.max(moments(c)).as_py() or 0 for c in batch.columns))
        yield last, before


@dataclass(frozen=True)
class HashRows:
    """Fold: hashes of the keys (a) and of the values (b, c) of rows that are wanted."""

    columns: VersionColumns
    values: tuple[int, ...] = ()
    which: Which = "all"
    version: str = field(default_factory=duckdb_version)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one batch for each slice of rows. Raises StageError where another DuckDB hashes."""
        check_version(self.version)
        values = self.columns.named(self.values)
        with in_duckdb(MEMORY) as db:
            for rows in slices(self.columns.plain(batches)):
                selected = rows if self.which == "all" else rows.filter(self.columns.mask(rows, self.which))
                db.register("coming", selected)
                own = hashable(db, values) if values else []
                other = [other_form(selected.schema.field(name), form) for name, form in zip(values, own, strict=True)]
                b, c = (hashed_key(some) if some else "0::BIGINT" for some in (own, other[::-1]))
                key = hashed_key(self.columns.named(self.columns.key))
                hashes = db.sql(f"SELECT {key} AS a, {b} AS b, {c} AS c FROM coming").to_arrow_table()
                yield from hashes.combine_chunks().to_batches()
                db.unregister("coming")


@dataclass(frozen=True)
class ChooseRows:
    """Fold: the rows that are wanted and whose key has one of the `hashes` (None: any), as Arrow streams."""

    columns: VersionColumns
    which: Which = "all"
    hashes: bytes | None = field(default=None, repr=False)
    version: str = field(default_factory=duckdb_version)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
        """Yield one stream for each slice of rows. Raises StageError where another DuckDB hashes."""
        check_version(self.version)
        with in_duckdb(MEMORY) as db:
            if self.hashes is not None:
                db.register("chosen", pa.table({"a": np.frombuffer(self.hashes, np.int64)}))
            for rows in slices(self.columns.plain(batches)):
                selected = rows if self.which == "all" else rows.filter(self.columns.mask(rows, self.which))
                if self.hashes is not None and len(selected):
                    selected = selected.take(self._among(db, selected))
                if len(selected):
                    yield as_stream(selected)

    def _among(self, db: duckdb.DuckDBPyConnection, rows: pa.Table) -> pa.Array:
        """Return the places of the rows that are chosen; DuckDB returns rows in any order."""
        names = self.columns.named(self.columns.key)
        keys = rows.select(names).append_column("place", pa.array(range(len(rows)), pa.int64()))
        db.register("coming", keys)
        sql = f"SELECT place FROM coming WHERE {hashed_key(names)} IN (SELECT a FROM chosen)"
        places = np.sort(db.execute(sql).fetchnumpy()["place"])
        db.unregister("coming")
        return pa.array(places, pa.int64())


@dataclass(frozen=True)
class StagedRows:
    """Reads columns of staged files in a task; `n` numbers rows in the order of the files and of their rows."""

    spec: StageSpec
    names: tuple[str, ...]

    @contextmanager
    def open(self) -> Iterator[StagedRows]:
        """Yield itself: a file is opened where it is read."""
        yield self

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one file."""
        assert isinstance(chunk, StagedChunk)
        assert chunk.file is not None
        start = chunk.number * ROWS_OF_FILE
        for batch in staged_rows([chunk.file], self.spec, self.names):
            yield with_column(batch, "n", pa.array(range(start, start + len(batch)), pa.int64()))
            start += len(batch)


@dataclass(frozen=True)
class StagedChunk(Chunk):
    """One staged file."""

    file: StagedFile | None = None


def staged_scan(files: Sequence[StagedFile], spec: StageSpec, names: Sequence[str]) -> Scan:
    """Return columns of staged files for tasks to read."""
    ordered = sorted((f for f in files if f.rows), key=lambda f: (f.chunk, f.path))
    chunks = [
        StagedChunk(spec.table, number, "", file.rows, file.bytes, file=replace(file, footer=b""))
        for number, file in enumerate(ordered)
    ]
    return Scan(StagedRows(spec, tuple(names)), chunks)


@dataclass(frozen=True)
class LargeVersions:
    """A large table of versions and what is staged for it, as tasks of the engine read them."""

    engine: Engine
    scan: Callable[[Sequence[str]], Scan | None]
    """Reads columns of the table."""
    spec: StageSpec
    key: tuple[str, ...]

    def columns(self, names: Sequence[str], *, numbers: bool = False) -> VersionColumns:
        """Return the places of columns among those with these names. `numbers`: of staged rows, which have numbers."""
        schema = numbered(pa.schema([self.spec.schema.field(n) for n in names]))
        schema = schema.append(pa.field("n", pa.int64())) if numbers else schema
        places, s = {n: at for at, n in enumerate(names)}, self.spec.system
        some = (places.get(n, -1) for n in (s.current, s.deleted, s.valid_from))
        return VersionColumns(schema, tuple(places[k] for k in self.key), *some)

    def last_moment(self) -> tuple[int, bool]:
        """Return the last moment that the versions tell of, and whether a row is none yet."""
        s = self.spec.system
        moments = list(self.engine.fold(self._read([s.valid_from, s.valid_to, s.synced]), LastMoments()))
        return max((last for last, _ in moments), default=0), any(before for _, before in moments)

    def _read(self, names: Sequence[str]) -> Scan:
        scan = self.scan(names)
        assert scan is not None, "a large table is read by tasks"
        return scan

    def versions(self, which: Which, hashes: Hashes | None) -> Iterator[pa.RecordBatch]:
        """Yield the versions that are wanted, of keys with these hashes."""
        names = self.spec.schema.names
        return self._chosen(self._read(names), self.columns(names), which, hashes)

    def keys(self, hashes: Hashes | None) -> Iterator[pa.RecordBatch]:
        """Yield the keys, with these hashes, that have a current version."""
        names = [*self.key, self.spec.system.current]
        chosen = self._chosen(self._read(names), self.columns(names), "current", hashes)
        return (batch.select(range(len(self.key))) for batch in chosen)

    def staged(self, files: Sequence[StagedFile], names: Sequence[str], hashes: Hashes) -> Iterator[pa.RecordBatch]:
        """Yield columns of staged rows of keys with these hashes, and `n`."""
        columns = self.columns(names, numbers=True)
        return self._chosen(staged_scan(files, self.spec, names), columns, "all", hashes)

    def _chosen(
        self, scan: Scan, columns: VersionColumns, which: Which, hashes: Hashes | None
    ) -> Iterator[pa.RecordBatch]:
        rows = sum(chunk.rows for chunk in scan.chunks)
        share = 1.0 if hashes is None else min(len(hashes) / max(rows, 1), 1.0)
        fold = ChooseRows(columns, which, None if hashes is None else hashes.tobytes())
        for stream in self.engine.fold(scan, fold, returned=share):
            with pa.ipc.open_stream(stream) as batches:
                yield from batches

    def differing(self, files: Sequence[StagedFile], values: Sequence[str]) -> Hashes | None:
        """Return the hashes of the keys that staged rows or current versions have alone, or with other values; None if
        they are more than tasks can be given."""
        names = [*self.key, *values]
        own = tuple(range(len(self.key), len(names)))
        staged = (staged_scan(files, self.spec, names), HashRows(self.columns(names, numbers=True), own))
        stored = [*names, self.spec.system.current]
        table = (self._read(stored), HashRows(self.columns(stored), own, "current"))
        return self.engine.differing(staged, table, MOST)

    def staged_hashes(self, *parts: Sequence[StagedFile]) -> Hashes | None:
        """Return the hashes of the keys of staged rows; None if they are more than tasks can be given."""
        if sum(f.rows for files in parts for f in files) > MOST:
            return None
        fold = HashRows(self.columns(self.key, numbers=True))
        scans = (staged_scan(files, self.spec, self.key) for files in parts)
        hashes = [b.column(0).to_numpy() for scan in scans for b in self.engine.fold(scan, fold)]
        return np.unique(np.concatenate([np.empty(0, np.int64), *hashes]))


def combined_hashes(*parts: Hashes | None) -> Hashes | None:
    """Return the hashes of all; None if those of one are not known, or they are too many."""
    if any(part is None for part in parts):
        return None
    hashes = np.unique(np.concatenate([part for part in parts if part is not None]))
    return hashes if len(hashes) <= MOST else None
