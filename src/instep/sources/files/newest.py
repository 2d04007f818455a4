# ruff: noqa: S608 - columns are numbered
"""The rows of files that count: of those with the same declared key the newest, the last one of the newest file.

Tasks hash the keys of some parts of files each. Rows of one key meet by their hashes, in tasks of Spark or in DuckDB,
and what comes of it is one bit for each line that a newer row supersedes. Tasks that read rows leave those lines out,
so that they need to know nothing of one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from instep.schema.catalog.types import DataType
from instep.sources.files.config import FilesConfig
from instep.sources.files.infer import comparable
from instep.sources.files.read import (
    File,
    FilePiece,
    bytes_of_piece,
    check_unchanged,
    file_pieces,
    grouped_pieces,
    records,
    rows_of_piece,
)
from instep.sources.files.shape import FILE_BITS, SEGMENT_BITS, SupersededLines, pack_lines
from instep.stage.duckdb_memory import duckdb_version, in_duckdb
from instep.stage.fold import MEMORY, Scan, fold_locally, slices
from instep.stage.key_hashes import check_version, key_hashes
from instep.stage.spec import Chunk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class KeyChunk(Chunk):
    """Parts of files whose keys are read, each with the place of its file among those of the table."""

    files: tuple[tuple[int, FilePiece], ...] = ()


@dataclass(frozen=True)
class FileKeyReader:
    """Reads the keys of files, and where each row is. The configuration may hold credentials."""

    config: FilesConfig = field(repr=False)
    table: str
    key: Mapping[str, DataType]

    @contextmanager
    def open(self) -> Iterator[FileKeyReader]:
        """Yield itself: a file is opened where it is read."""
        yield self

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Yield keys in forms that are equal where they are, NULL for a value that is none; ReadError for a file that
        has changed."""
        assert isinstance(chunk, KeyChunk)
        names = [*(f"c{at}" for at in range(len(self.key))), "place"]
        for number, (file, part) in chunk.files:
            check_unchanged(self.config, file)
            for piece in records(self.config, self.table, file, part, set(self.key)):
                keys = [comparable(piece.arrays[k], t) for k, t in self.key.items()]
                places = np.asarray(piece.lines.cast(pa.int64())) + (number << FILE_BITS)
                yield pa.RecordBatch.from_arrays([*keys, pa.array(places)], names=names)
            check_unchanged(self.config, file)


@dataclass(frozen=True)
class HashPlaces:
    """Fold: two hashes of each key (a, b) and the place of its row. A row without a key supersedes nothing."""

    version: str = field(default_factory=duckdb_version)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one batch for each slice of rows; StageError where another DuckDB hashes."""
        check_version(self.version)
        with in_duckdb(MEMORY) as db:
            for rows in slices(batches):
                db.register("coming", rows)
                hashes = key_hashes(pa.schema(list(rows.schema)[:-1]))
                hashed = db.sql(f"SELECT a, b, place FROM (SELECT {hashes}, place FROM coming) WHERE NOT absent")
                yield from hashed.to_arrow_table().combine_chunks().to_batches()
                db.unregister("coming")


def superseded_lines(
    config: FilesConfig,
    table: str,
    files: Sequence[File],
    key: Mapping[str, DataType],
    session: SparkSession | None,
) -> SupersededLines:
    """Find the lines that do not count, by tasks of Spark or by threads of this process."""
    places = {f.number: at for at, f in enumerate(files)}
    groups = grouped_pieces(list(file_pieces(files)))
    chunks = [
        KeyChunk(
            table,
            number,
            "",
            sum(map(rows_of_piece, group)),
            sum(map(bytes_of_piece, group)),
            files=tuple((places[piece[0].number], piece) for piece in group),
        )
        for number, group in enumerate(groups)
        if group
    ]
    scan = Scan(FileKeyReader(config, table, key), chunks)
    if session is not None:
        from instep.spark.fold import superseded_on_spark

        segments = superseded_on_spark(session, scan, HashPlaces(), pack_lines, SEGMENT_BITS)
        return SupersededLines({n: bits for n, _, bits in segments}, sum(count for _, count, _ in segments))
    return _found_here(scan)


def _found_here(scan: Scan) -> SupersededLines:
    segments, lines = dict[int, bytes](), 0
    with in_duckdb(MEMORY) as db:
        db.execute("CREATE TEMP TABLE hashed (a BIGINT, b BIGINT, place BIGINT)")
        for batch in fold_locally(scan, HashPlaces()):
            db.register("coming", batch)
            db.execute("INSERT INTO hashed SELECT * FROM coming")
            db.unregister("coming")
        newest = "SELECT a, b, max(place) AS newest FROM hashed GROUP BY a, b HAVING count(*) > 1"
        older = f"SELECT place FROM hashed JOIN ({newest}) AS keys USING (a, b) WHERE place < newest ORDER BY place"
        reader = db.sql(older).to_arrow_reader(1 << SEGMENT_BITS)
        for number, places in _by_segment(np.asarray(batch.column(0)) for batch in reader):
            segments[number], lines = pack_lines(places), lines + len(places)
    return SupersededLines(segments, lines)


def _by_segment(batches: Iterable[Numbers]) -> Iterator[tuple[int, Numbers]]:
    """Yield places in order by the number of their segment."""
    left = np.empty(0, dtype=np.int64)
    for batch in batches:
        places = np.concatenate([left, batch])
        cuts = np.flatnonzero(np.diff(places >> SEGMENT_BITS)) + 1
        *whole, left = np.split(places, cuts)
        for part in whole:
            yield int(part[0]) >> SEGMENT_BITS, part
    if len(left):
        yield int(left[0]) >> SEGMENT_BITS, left
