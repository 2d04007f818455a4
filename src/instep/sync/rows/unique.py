"""A key that the source does not guarantee has to hold: rows that share it would be taken for one."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from instep.destinations.base import Target
from instep.errors import StageError
from instep.stage.names import stored_name
from instep.stage.place import Place
from instep.stage.spec import StagedFile
from instep.sync.rows.loads import Load


def check_unique(load: Load, target: Target, files: Sequence[StagedFile]) -> None:
    """Raises StageError with the number of rows that share a key with another one."""
    aliases = {c.name: c.alias or c.name for c in load.table.columns}
    key = [aliases[name] for name in load.table.key]
    parts = [_read(file.path, target, key) for file in files]
    if not parts:
        return
    counted = pa.concat_tables(parts).group_by(key).aggregate([([], "count_all")])
    shared = sum(n - 1 for n in counted.column("count_all").to_pylist() if n > 1)
    if shared:
        raise StageError(
            f"table {load.table.path}: the key {', '.join(load.table.key)}, which the source does not guarantee, is "
            f"not unique: {shared:,} rows share it with another row, and would be lost",
            hint=f"`instep table set-key {load.table.path} KEY` gives it another one, as does `key` in instep.yml; "
            "a table without any is refreshed as a whole",
        )


def _read(uri: str, target: Target, columns: Sequence[str]) -> pa.Table:
    folder, _, name = uri.rpartition("/")
    filesystem, path = Place(folder, target.io).resolve(name)
    names = [stored_name(target.schema.field(c)) for c in columns]
    return pq.read_table(path, filesystem=filesystem, columns=names).select(names).rename_columns(list(columns))
