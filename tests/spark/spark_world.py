"""Readers that tasks can import: their chunks make rows from a number, or trouble."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from instep.errors import AccessDenied, ReadError
from instep.schema.catalog.types import Int, String
from instep.stage.spec import Chunk, ChunkResult, StageColumn, StageSpec, SystemColumns


@dataclass(frozen=True)
class RangeReader:
    """A query is `rows FROM TO`, `slow FROM TO`, `until FILE FROM TO` (slow, and no batch but the first before there is
    the file), `die FILE FROM TO` (once), `lost`, `gone`, `odd` or `vanish`."""

    folder: str

    @contextmanager
    def open(self) -> Iterator[RangeReader]:
        yield self

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        verb, *rest = chunk.query.split()
        if verb == "lost":
            raise AccessDenied(f"{chunk.table}: no right to read", hint="grant SELECT")
        if verb == "gone":
            raise ReadError(f"{chunk.table}: the server is gone")
        if verb == "odd":
            raise ZeroDivisionError("odd")
        if verb == "vanish":
            os._exit(3)
        if verb == "die":
            self._die_once(rest.pop(0))
        file = Path(self.folder) / rest.pop(0) if verb == "until" else None
        low, high = int(rest[0]), int(rest[1])
        for start in range(low, high, 1000):
            if verb in ("slow", "until"):
                time.sleep(0.3)
            while file is not None and start > low and not file.exists():
                time.sleep(0.05)
            numbers = list(range(start, min(start + 1000, high)))
            yield pa.record_batch([pa.array(numbers), pa.array([f"n{n}" for n in numbers])], names=["id", "name"])

    def _die_once(self, name: str) -> None:
        mark = Path(self.folder) / name
        if not mark.exists():
            mark.write_text("died")
            os.kill(os.getpid(), signal.SIGKILL)


def table_spec(table: str, folder: Path) -> StageSpec:
    """A table of an int64 key and a text."""
    fields = [pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.large_string())]
    columns = (StageColumn("id", Int(64), Int(64), "id", key=1), StageColumn("name", String(), String(), "name"))
    schema = pa.schema([f.with_metadata({"PARQUET:field_id": str(at + 1)}) for at, f in enumerate(fields)])
    return StageSpec(table, columns, SystemColumns(), schema, f"{folder}/{table}", f"{folder}/held", "run", 0)


def ids(results: list[ChunkResult]) -> list[int]:
    """The ids in all files of the results, sorted."""
    return sorted(n for r in results for f in r.files for n in pq.read_table(f.path)["id"].to_pylist())
