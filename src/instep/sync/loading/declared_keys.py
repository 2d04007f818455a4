"""Check that a key is unique that is not sure to be, because rows that share it would be loaded as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from instep.errors import StageError, argument
from instep.stage.fold import Scan
from instep.stage.key_hashes import count_keys
from instep.stage.spec import Chunk, StagedFile, StageSpec
from instep.sync.loading.engine import Engine
from instep.sync.loading.row_matching import staged_rows
from instep.sync.loading.table_load import Load


@dataclass(frozen=True)
class StagedKeys:
    """Reads the key's columns of staged files in a task."""

    spec: StageSpec
    names: tuple[str, ...]

    @contextmanager
    def open(self) -> Iterator[StagedKeys]:
        """Yield itself: a file is opened where it is read."""
        yield self

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Yield the keys of one file."""
        assert isinstance(chunk, _FileChunk)
        assert chunk.file is not None
        return staged_rows([chunk.file], self.spec, self.names)


@dataclass(frozen=True)
class _FileChunk(Chunk):
    file: StagedFile | None = None


def check_unique(engine: Engine, load: Load, spec: StageSpec, *parts: Sequence[StagedFile]) -> None:
    """Raise StageError with the number of rows that share a key with another one of the same part: of the rows that
    were read, or of all keys of the source."""
    key = tuple(load.table.by_name[name].alias or name for name in load.table.key)
    shared = 0
    for files in parts:
        chunks = [
            _FileChunk(load.table.path, number, "", file.rows, file.bytes, file=replace(file, footer=b""))
            for number, file in enumerate(files)
            if file.rows
        ]
        if chunks:
            shared = max(shared, count_keys(engine, Scan(StagedKeys(spec, key), chunks)).duplicates)
    if shared:
        raise StageError(
            f"table {load.table.path}: the key {', '.join(load.table.key)}, {load.unsure_key}, is not unique: "
            f"{shared:,} rows share it with another row, and would be lost",
            hint=f"`instep table set-key {argument(load.table.path)} KEY` gives it another one, as does `key` in "
            "instep.yml; a table without any is refreshed as a whole",
        )
