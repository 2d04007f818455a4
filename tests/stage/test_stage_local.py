"""Chunks read by threads of this process: the answers of tasks, told progress, stopped together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from stage_world import Broken, MemoryReader, batch, column, rows_of, spec_of

from instep.errors import StageError
from instep.stage.local import extract_locally
from instep.stage.spec import Chunk, ChunkResult, StageSpec
from instep.stage.task import Counts

CHUNKS = [Chunk(table, number, f"{table}{number}") for table in "ab" for number in range(3)]


@pytest.fixture
def specs(tmp_path: Path) -> list[StageSpec]:
    columns = [column("id", "int64", key=1)]
    return [spec_of(columns, tmp_path / name, table=name) for name in "ab"]


def _reader(**broken: Broken) -> MemoryReader:
    rows = {c.query: [batch(id=[c.number, c.number + 10])] for c in CHUNKS}
    return MemoryReader({**rows, **{query: [failure] for query, failure in broken.items()}})


def _ids(results: list[ChunkResult], table: str) -> list[int]:
    paths = [f.path for r in results if r.table == table for f in r.files]
    return sorted(row["id"] for row in rows_of(paths))


@pytest.mark.parametrize(("threads", "connections"), [(1, 1), (2, 2), (99, len(CHUNKS))])
def test_each_chunk_is_read_once(specs: list[StageSpec], threads: int, connections: int) -> None:
    reader, told = _reader(), list[Counts]()
    results = extract_locally(reader, specs, CHUNKS, threads=threads, progress=told.append)
    assert sorted((r.table, r.chunk, r.read, r.error) for r in results) == [(c.table, c.number, 2, "") for c in CHUNKS]
    assert [_ids(results, t) for t in "ab"] == [[0, 1, 2, 10, 11, 12]] * 2
    assert reader.log.count("open") == reader.log.count("close") == connections
    assert {t: rows for t, (rows, _) in told[-1].items()} == {"a": 6, "b": 6}
    assert all(size > 0 for _, size in told[-1].values())


def test_as_many_threads_as_cores_unless_told(specs: list[StageSpec]) -> None:
    assert len(extract_locally(_reader(), specs, CHUNKS)) == len(CHUNKS)


def test_no_chunks_no_connection(specs: list[StageSpec]) -> None:
    reader = _reader()
    assert extract_locally(reader, specs, []) == []
    assert reader.log == []


@pytest.mark.parametrize("threads", [1, 3])
def test_a_table_that_fails_leaves_the_others(specs: list[StageSpec], threads: int) -> None:
    results = extract_locally(_reader(a0=Broken(StageError("no room"))), specs, CHUNKS, threads=threads)
    assert {r.error for r in results if r.table == "a"} >= {"no room"}
    assert {r.error for r in results if r.table == "b"} == {""}
    assert _ids(results, "b") == [0, 1, 2, 10, 11, 12]


class Endless:
    """Yields batches until it is closed."""

    def __init__(self) -> None:
        self.open_now, self.lock = 0, threading.Lock()

    @contextmanager
    def open(self) -> Iterator[Endless]:
        with self.lock:
            self.open_now += 1
        try:
            yield self
        finally:
            with self.lock:
                self.open_now -= 1

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        while True:
            yield batch(id=[1])


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_stops_every_thread_and_leaves_no_file(specs: list[StageSpec], threads: int) -> None:
    reader, told = Endless(), list[Counts]()

    def interrupted(counts: Counts) -> None:
        told.append(counts)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract_locally(reader, specs, [CHUNKS[0], CHUNKS[3]], threads=threads, progress=interrupted)
    assert reader.open_now == 0
    assert sum(rows for rows, _ in told[0].values()) > 0
    assert [p for spec in specs for p in Path(spec.location).glob("*")] == []
