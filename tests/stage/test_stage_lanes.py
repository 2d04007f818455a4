"""A lane that is read by several sessions: each chunk once, progress as that of one, and all of them stop together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from stage_world import Broken, MemoryReader, batch, column, rows_of, spec_of

from instep.errors import ConnectError, ReadError
from instep.stage.spec import Chunk, SharedView, StageSpec
from instep.stage.task import ChunkProgress, run_chunks

COUNT = 9
LOST = ConnectError("the server closed the connection")


@dataclass
class SharingReader(MemoryReader):
    """Sessions over the same rows, which may be fewer than were asked for."""

    most: int = 3

    @contextmanager
    def open_shared(self, chunk: Chunk, count: int) -> Iterator[SharedView]:
        if self.refuse is not None:
            raise self.refuse
        yield SharedView((self,) * min(count, self.most), f"{min(count, self.most)} sessions")


@pytest.fixture
def specs(tmp_path: Path) -> dict[str, StageSpec]:
    return {name: spec_of([column("id", "int64", key=1)], tmp_path / name, table=name) for name in ("t", "u")}


def rows(*failing: int) -> dict[str, list[object]]:
    parts = {f"q{n}": [Broken(LOST, 99) if n in failing else batch(id=[n, n + 100])] for n in range(COUNT)}
    return {**parts, "u": [batch(id=[1])]}


CHUNKS = [Chunk("t", n, f"q{n}", lane="t", connections=3) for n in range(COUNT)]
OTHER = Chunk("u", 0, "u", lane="u")


@pytest.mark.parametrize("most", [1, 2, 3])
def test_each_chunk_is_read_once(specs: dict[str, StageSpec], most: int) -> None:
    told: list[ChunkProgress] = []
    results = list(run_chunks(SharingReader(rows(), most=most), specs, [*CHUNKS, OTHER], 0, told.append))
    assert sorted(r.chunk for r in results if r.table == "t") == list(range(COUNT))
    found = rows_of([f.path for r in results if r.table == "t" for f in r.files])
    assert sorted(r["id"] for r in found) == sorted(i for n in range(COUNT) for i in (n, n + 100))
    assert {r.basis for r in results} == {f"{most} sessions", ""}
    assert sum(p.rows for p in told if p.done and p.table == "t") == 2 * COUNT
    assert max(p.rows for p in told) <= 2 * most


def test_a_chunk_that_fails_ends_its_table_alone(specs: dict[str, StageSpec]) -> None:
    """It is not read again: a new session would show other rows."""
    reader = SharingReader(rows(4))
    results = list(run_chunks(reader, specs, [*CHUNKS, OTHER], 0))
    (error,) = [r.error for r in results if r.error]
    assert "closed the connection" in error
    assert reader.log.count("q4") == 1
    assert [r.read for r in results if r.table == "u"] == [1]


def test_sessions_that_cannot_be_opened(specs: dict[str, StageSpec]) -> None:
    reader = SharingReader(rows(), refuse=ReadError("nothing listens there"))
    (result,) = run_chunks(reader, specs, CHUNKS, 0)
    assert (result.table, "nothing listens there" in result.error) == ("t", True)


class _Enough(BaseException):
    pass


def test_progress_that_raises_stops_all(specs: dict[str, StageSpec]) -> None:
    def tell(progress: ChunkProgress) -> None:
        raise _Enough

    with pytest.raises(_Enough):
        list(run_chunks(SharingReader(rows()), specs, CHUNKS, 0, tell))
    assert "lane" not in {thread.name for thread in threading.enumerate()}


def test_results_that_nobody_takes_stop_all(specs: dict[str, StageSpec]) -> None:
    results = run_chunks(SharingReader(rows()), specs, CHUNKS, 0)
    assert next(iter(results)).table == "t"
    results.close()  # type: ignore[attr-defined]
    assert "lane" not in {thread.name for thread in threading.enumerate()}
