# ruff: noqa: S608 - columns are numbered
"""A key that the source does not guarantee has to hold: rows that share it would be taken for one."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from instep.errors import StageError
from instep.stage.spec import StagedFile, StageSpec
from instep.sync.loading.row_matching import database, numbered, staged_rows
from instep.sync.loading.table_load import Load


def check_unique(load: Load, spec: StageSpec, *parts: Sequence[StagedFile]) -> None:
    """Raise StageError with the number of rows that share a key with another one of the same part: of the rows that
    were read, or of all keys of the source."""
    key = [load.table.by_name[name].alias or name for name in load.table.key]
    shared = max(_shared(files, spec, key) for files in parts)
    if shared:
        raise StageError(
            f"table {load.table.path}: the key {', '.join(load.table.key)}, which the source does not guarantee, is "
            f"not unique: {shared:,} rows share it with another row, and would be lost",
            hint=f"`instep table set-key {load.table.path} KEY` gives it another one, as does `key` in instep.yml; "
            "a table without any is refreshed as a whole",
        )


def _shared(files: Sequence[StagedFile], spec: StageSpec, key: Sequence[str]) -> int:
    schema = numbered(pa.schema([spec.schema.field(name) for name in key]))
    columns = ", ".join(schema.names)
    with database() as db:
        db.register("coming", pa.RecordBatchReader.from_batches(schema, staged_rows(files, spec, key)))
        counts = f"SELECT count(*) AS n FROM coming GROUP BY {columns} HAVING count(*) > 1"
        [(shared,)] = db.execute(f"SELECT coalesce(sum(n - 1), 0) FROM ({counts})").fetchall()
        db.unregister("coming")
    return int(shared)
