# ruff: noqa: S608 - names are quoted, values are parameters
"""Merges rows of many megabytes: long values are compared by their digests, and only rows that differ are staged.

DuckDB holds what it joins and what it stages in memory, several times over. Six rows of 75 MB took 3 GB in which one
had changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from instep.destinations.base import Merge
from instep.destinations.duckdb.file import DuckDbSession
from instep.destinations.duckdb.shape import sql_type
from instep.destinations.sql.merge import MergeSql, columns, q
from instep.destinations.sql.records import Record
from instep.destinations.sql.staged import ORDER
from instep.stage.spec import StagedFile

WIDE = 1 << 20
"""Bytes of a row, on average, from which rows are compared by digests."""
FILE, ROW = "_instep_file", "_instep_row"
_LONG = ("VARCHAR", "BLOB", "JSON")
"""Types of columns whose values may be long."""


@dataclass(frozen=True)
class WideRows:
    """The staged rows in `paths` of one merge. `digests`: a temporary table with their keys, their short values and the
    digests of their long ones."""

    session: DuckDbSession
    record: Record
    how: Merge
    paths: list[str]
    digests: str

    @property
    def _kinds(self) -> dict[str, str]:
        return {c.name: sql_type(c.type) for c in self.record.table.columns}

    def _digest(self, name: str) -> str:
        kind = self._kinds[name]
        if kind not in _LONG or name in self.how.key or name == self.how.cursor:
            return f"CAST({q(name)} AS {kind}) AS {q(name)}"
        return f"sha256(CAST({q(name)} AS {'BLOB' if kind == 'BLOB' else 'VARCHAR'})) AS {q(name)}"

    def stage_digests(self) -> None:
        """Make the table of digests; `ORDER` numbers the rows as they came."""
        names = [c.name for c in self.record.table.columns]
        made = ", ".join(self._digest(name) for name in names)
        place = f"filename AS {FILE}, file_row_number AS {ROW}, row_number() OVER () AS {ORDER}"
        self.session.run(f"CREATE TEMP TABLE {self.digests} AS SELECT {made}, {place} FROM {_SCAN}", [self.paths])

    def stage_changed(self, rows: str, sql: MergeSql) -> None:
        """Make the table `rows` with the last row of each key, without those that the destination has as they are."""
        names = [c.name for c in self.record.table.columns]
        order = ", ".join([*([f"{q(self.how.cursor)} DESC NULLS LAST"] if self.how.cursor else []), f"{ORDER} DESC"])
        last = (
            f"SELECT * FROM {self.digests} "
            f"QUALIFY row_number() OVER (PARTITION BY {columns(self.how.key)} ORDER BY {order}) = 1"
        )
        compared = [*self.how.key, *sql.values, *([sql.system.deleted] if sql.system.deleted else [])]
        there = ", ".join(self._digest(name) for name in dict.fromkeys(compared))
        same = [f"s.{q(name)} IS NOT DISTINCT FROM t.{q(name)}" for name in sql.values]
        known = f"SELECT {there} FROM {sql.target}"
        as_they_are = (
            f"SELECT 1 FROM known AS t WHERE {' AND '.join([sql.same_key('t', 's'), f'NOT {sql.gone}', *same])}"
        )
        changed = f"WITH known AS ({known}), last AS ({last}) SELECT {FILE}, {ROW} FROM last AS s"
        self.session.run(
            f"CREATE TEMP TABLE {rows} AS SELECT {columns(names, 'f')} FROM {_SCAN} AS f "
            f"SEMI JOIN ({changed} WHERE NOT EXISTS ({as_they_are})) AS c "
            f"ON f.filename = c.{FILE} AND f.file_row_number = c.{ROW}",
            [self.paths],
        )


_SCAN = "read_parquet(?, hive_partitioning = false, filename = true, file_row_number = true)"


@contextmanager
def frugal(session: DuckDbSession) -> Iterator[None]:
    """Hold as few rows in memory as there can be: those of one thread, and nothing that reading them has left."""
    pa.default_memory_pool().release_unused()
    session.run("SET threads = 1")
    try:
        yield
    finally:
        session.run("RESET threads")


def is_wide(files: Sequence[StagedFile]) -> bool:
    """Tell from the footers of staged files whether their rows are long; no file is opened."""
    rows = sum(file.rows for file in files)
    return bool(rows) and sum(map(_uncompressed, files)) > rows * WIDE


def _uncompressed(file: StagedFile) -> int:
    footer = pq.read_metadata(pa.BufferReader(file.footer))
    return sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups))
