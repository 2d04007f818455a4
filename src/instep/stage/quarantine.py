"""Values that did not fit, kept as Parquet: where they belong, what they were, why they are held."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from instep.stage.conform import Held
from instep.stage.names import file_name
from instep.stage.place import NewFile, Place, clear_errors
from instep.stage.spec import StageSpec

SCHEMA = pa.schema(
    [
        pa.field("table", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("column", pa.string(), nullable=False),
        pa.field("original", pa.string()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("run", pa.string(), nullable=False),
        pa.field("chunk", pa.int32(), nullable=False),
    ]
)
_GROUP = 10_000


class Quarantine:
    """One chunk's quarantine file; without a held value there is no file."""

    def __init__(self, spec: StageSpec, chunk: int, attempt: int) -> None:
        self.spec, self.chunk, self.attempt = spec, chunk, attempt
        self.path = ""
        self._rows: list[Held] = []
        self._file: NewFile | None = None
        self._writer: pq.ParquetWriter | None = None

    def add(self, held: Sequence[Held]) -> None:
        self._rows.extend(held)
        if len(self._rows) >= _GROUP:
            self._flush()

    def close(self) -> str:
        """The file's URI, or "" when nothing was held."""
        self._flush()
        if self._writer is not None and self._file is not None:
            with clear_errors(self.path):
                self._writer.close()
            self._file.finish()
        return self.path

    def abort(self) -> None:
        """Drops the file."""
        if self._file is not None and self._writer is not None:
            self._writer.is_open = False  # else it writes a footer when it is collected
            self._file.drop()
            self._file = self._writer = None

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._writer is None:
            place = Place(self.spec.quarantine, self.spec.io)
            name = file_name(self.spec.run, self.chunk, self.attempt, 0)
            self._file, self.path = place.create(name), place.child(name)
            self._writer = pq.ParquetWriter(self._file.sink, SCHEMA, compression="zstd")
        rows, self._rows = self._rows, []
        with clear_errors(self.path):
            self._writer.write_table(self._table(rows))

    def _table(self, rows: Sequence[Held]) -> pa.Table:
        fixed = [(self.spec.table, h.key, h.column, h.original, h.reason, self.spec.run, self.chunk) for h in rows]
        columns = list(zip(*fixed, strict=True))
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
