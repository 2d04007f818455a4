# ruff: noqa: S608 - names are quoted, values are parameters
"""Staged files on their way into a DuckDB file: read where they are.

Merges rows of many megabytes: long values are compared by their digests, and only rows that differ are staged.
DuckDB holds what it joins and what it stages in memory, several times over. Six rows of 75 MB took 3 GB in which one
had changed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from instep.destinations.base import Commit, Merge
from instep.destinations.duckdb.file import escaped_glob
from instep.destinations.duckdb.session import DuckDbSession
from instep.destinations.sql.database import SqlDatabase, Staging
from instep.destinations.sql.merge import MergeSql, columns, q, text_literal
from instep.destinations.sql.records import Record
from instep.destinations.sql.session import SqlSession
from instep.destinations.sql.staged import ORDER, Files, filled
from instep.destinations.sql.tables import swap_in
from instep.stage.files.place import local
from instep.stage.spec import StagedFile

WIDE = 1 << 20
"""Bytes of a row, on average, from which rows are compared by digests."""
FILE, ROW = "_instep_file", "_instep_row"
_CHANGED = "_instep_changed"
_LONG = ("VARCHAR", "BLOB", "JSON")
"""Types of columns whose values may be long."""


@dataclass(frozen=True)
class _StagedFiles:
    """Columns of files of this machine; `how` rows that are long are merged."""

    names: Sequence[str]
    files: Files
    how: Merge | None

    def scan(self, options: str = "") -> str:
        """Return the rows, as SQL."""
        paths = ", ".join(text_literal(escaped_glob(str(local(f.path)))) for f in self.files)
        return f"read_parquet([{paths}], hive_partitioning = false{options})"

    @property
    def located(self) -> str:
        """Return the rows with their places in the files."""
        return self.scan(", filename = true, file_row_number = true")


class DuckDbStaging(Staging):
    """Rows that are read within the transaction. Files of S3 are brought into `folder` first: DuckDB reads those
    without an extension."""

    def __init__(self, database: SqlDatabase, record: Record, commit: Commit, folder: Path) -> None:
        super().__init__(database, record, commit)
        self._folder = folder
        self._files: dict[str, _StagedFiles] = {}
        self._rows: dict[str, pa.Table] = {}
        self._made: dict[str, str] = {}
        self._kinds = {c.name: database.dialect.sql_type(c.type) for c in record.table.columns}

    def add(self, what: str, names: Sequence[str], files: Files, how: Merge | None = None) -> None:
        local_files = self.database.area.local_files(self._folder, filled(files))
        self._files[what] = _StagedFiles(names, local_files, how if how and is_wide(files) else None)

    def add_rows(self, what: str, types: Mapping[str, str], rows: pa.Table) -> None:
        self._rows[what] = rows

    def add_whole(self, shape: Record, files: Files) -> None:
        self.add("rows", shape.names, files)

    @contextmanager
    def opened(self, session: SqlSession) -> Iterator[None]:
        assert isinstance(session, DuckDbSession)
        self._session = session
        with limited_memory(session) if any(f.how for f in self._files.values()) else nullcontext():
            yield
            for name, kind in self._made.items():
                session.run(f"DROP {kind} {name}")
            for what in self._rows:
                session.db.unregister(_name(what))

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def table(self, what: str) -> str:
        name = _name(what)
        if what in self._rows:
            self._session.db.register(name, self._rows[what])
        elif name not in self._made:
            self._made[name] = self._make(name, self._files[what])
        return name

    def _make(self, name: str, staged: _StagedFiles) -> str:
        """Make a view of the rows, or a table of the digests of long ones; return which of both it is."""
        if staged.how is not None:
            digests = ", ".join(self._digest(n, staged.how) for n in staged.names)
            place = f"filename AS {FILE}, file_row_number AS {ROW}, row_number() OVER () AS {ORDER}"
            self._session.run(f"CREATE TEMP TABLE {name} AS SELECT {digests}, {place} FROM {staged.located}")
            return "TABLE"
        kinds = {n: (q(n) if staged.files else "NULL", self._kinds[n]) for n in staged.names}
        values = ", ".join(f"CAST({value} AS {kind}) AS {q(n)}" for n, (value, kind) in kinds.items())
        rows = f"FROM {staged.scan()}" if staged.files else "WHERE false"
        self._session.run(f"CREATE TEMP VIEW {name} AS SELECT {values}, row_number() OVER () AS {ORDER} {rows}")
        return "VIEW"

    def rows(self, what: str) -> str:
        staged = self._files[what]
        return staged.scan() if staged.files else f"{self._session.name(*self.record.ref)} WHERE false"

    def exchange(self, session: SqlSession, record: Record) -> tuple[Record, int, int]:
        if record.pending is None:
            return (record, *self.replace_rows(session, record, "rows"))
        swapped = swap_in(session, record)
        added = self.insert(session, swapped, "rows")
        return swapped, added, added

    @contextmanager
    def last_of_each_key(self, session: SqlSession, sql: MergeSql) -> Iterator[MergeSql]:
        """Skip long rows that the destination has already."""
        rows = self._files["rows"]
        if rows.how is None:
            with super().last_of_each_key(session, sql) as reduced:
                yield reduced
            return
        how = rows.how
        compared = [*how.key, *sql.values, *([sql.system.deleted] if sql.system.deleted else [])]
        known = ", ".join(self._digest(name, how) for name in dict.fromkeys(compared))
        same = [f"s.{q(name)} IS NOT DISTINCT FROM t.{q(name)}" for name in sql.values]
        as_they_are = " AND ".join([sql.same_key("t", "s"), f"NOT {sql.deleted_condition}", *same])
        session.run(
            f"CREATE TEMP TABLE {_CHANGED} AS SELECT {columns(rows.names, 'f')} FROM {rows.located} AS f SEMI JOIN "
            f"(WITH known AS (SELECT {known} FROM {sql.target}), last AS ({sql.last}) SELECT {FILE}, {ROW} "
            f"FROM last AS s WHERE NOT EXISTS (SELECT 1 FROM known AS t WHERE {as_they_are})) AS c "
            f"ON f.filename = c.{FILE} AND f.file_row_number = c.{ROW}"
        )
        yield replace(sql, staged=_CHANGED, others=sql.staged)
        session.run(f"DROP TABLE {_CHANGED}")

    def _digest(self, name: str, how: Merge) -> str:
        kind = self._kinds[name]
        if kind not in _LONG or name in how.key or name == how.cursor:
            return f"CAST({q(name)} AS {kind}) AS {q(name)}"
        return f"sha256(CAST({q(name)} AS {'BLOB' if kind == 'BLOB' else 'VARCHAR'})) AS {q(name)}"


def _name(what: str) -> str:
    return f"_instep_staged_{what}"


@contextmanager
def limited_memory(session: DuckDbSession) -> Iterator[None]:
    """Hold as few rows in memory as there can be: those of one thread, and nothing that reading them has left."""
    pa.default_memory_pool().release_unused()
    session.run("SET threads = 1")
    try:
        yield
    finally:
        session.run("RESET threads")


def is_wide(files: Files) -> bool:
    """Return whether the staged rows are long, by their files' footers; no file is opened."""
    rows = sum(file.rows for file in files)
    return bool(rows) and sum(map(_uncompressed, files)) > rows * WIDE


def _uncompressed(file: StagedFile) -> int:
    footer = pq.read_metadata(pa.BufferReader(file.footer))
    return sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups))
