"""A folder of files that SQL statements change: each table is a folder with one file, written anew when it changes."""

from __future__ import annotations

import csv
import itertools
import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from instep.sources.files.config import FilesConfig
from instep.store.catalogs.discoveries import SourceFiles
from instep.store.store import Store
from memory.arrow import arrow_type
from memory.database import MemoryDatabase, MemoryTable
from memory.sql import execute

_TICKS = itertools.count(1)


def touch(path: Path) -> None:
    """A time of last change that no version of a file had: the clock may stand still between two."""
    moment = 1_700_000_000_000_000_000 + next(_TICKS) * 1_000_000
    os.utime(path, ns=(moment, moment))


@lru_cache(1)
def _migrated() -> bytes:
    with TemporaryDirectory() as folder:
        Store(f"sqlite:///{folder}/new.db").close()
        return Path(folder, "new.db").read_bytes()


def new_store(path: Path) -> Store:
    """A store in a new file; its tables are made once for all tests of this process."""
    path.write_bytes(_migrated())
    return Store(f"sqlite:///{path}")


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    touch(path)
    return path


def write_parquet(path: Path, table: pa.Table | Mapping[str, Iterable[Any]], **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(dict(table)), path, **options)
    touch(path)
    return path


class FilesDatabase:
    """`form` is parquet or csv. The types and keys of its tables are declared."""

    def __init__(self, folder: Path, form: str) -> None:
        self.folder, self.form = folder, form
        self.folder.mkdir(parents=True)
        self.memory = MemoryDatabase(ids=False, schema="files")
        self.store = new_store(folder.parent / "files.db")
        self.written: dict[str, MemoryTable] = {}

    @property
    def records(self) -> SourceFiles:
        return self.store.source_files

    def __enter__(self) -> FilesDatabase:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.close()

    def execute(self, sql: str) -> None:
        execute(self.memory, sql)
        for name in self.written.keys() - self.memory.tables.keys():
            self.path(name).unlink()
        for name, table in self.memory.tables.items():
            if self.written.get(name) != table:
                self._write(name, table)
        self.written = dict(self.memory.tables)

    def path(self, name: str) -> Path:
        return self.folder / name / f"data.{self.form}"

    def _write(self, name: str, table: MemoryTable) -> None:
        if self.form == "parquet":
            columns = zip(*table.rows, strict=True) if table.rows else ([] for _ in table.table.columns)
            arrays = [pa.array(list(v), arrow_type(c.type)) for c, v in zip(table.table.columns, columns, strict=True)]
            write_parquet(self.path(name), pa.table(arrays, names=list(table.table.by_name)))
            return
        self.path(name).parent.mkdir(exist_ok=True)
        with self.path(name).open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file, quoting=csv.QUOTE_NOTNULL if hasattr(csv, "QUOTE_NOTNULL") else csv.QUOTE_MINIMAL)
            lines.writerows([list(table.table.by_name), *table.rows])
        touch(self.path(name))

    def config(self, **options: Any) -> FilesConfig:
        declared = {
            name: {"types": {c.name: str(c.type) for c in t.table.columns}, "key": t.table.key}
            for name, t in self.memory.tables.items()
        }
        return FilesConfig.resolved(path=str(self.folder), options=declared, **options)

    @staticmethod
    def quoted(name: str) -> str:
        return '"' + name.replace('"', '""') + '"'
