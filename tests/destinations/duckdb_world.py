"""A DuckDB file with one table, and another process that has it open."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from instep.destinations.base import BackfillResult, Commit, Fill, LoadOutcome, Merge
from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.schema.catalog.catalog import Table
from instep.schema.planning.step import step
from lake import ORDERS, PREFIX, REF, create, rows_of, stage, stage_table

META = f"{PREFIX}meta"
Row = dict[str, Any]
_HOLD = """
import duckdb, sys
db = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "read")
print("open", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_elsewhere(path: Path, mode: str = "write") -> Iterator[int]:
    """Another process has the file open; yields its id."""
    command = [sys.executable, "-c", _HOLD, str(path), mode]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        yield other.pid
        assert other.stdin is not None
        other.stdin.close()
        other.wait(300)


class Warehouse:
    """Commits get fences that rise."""

    def __init__(self, folder: Path, wanted: Table = ORDERS, **config: Any) -> None:
        self.path = folder / "shop.duckdb"
        self.to = DuckDbDestination(DuckDbConfig.resolved(name="lake", path=str(self.path), **config))
        self.fence = 0
        create(self.to, wanted, self.commit("make"))

    def commit(self, run: str = "", cursor: str = "") -> Commit:
        self.fence += 1
        self.to.write.claim(REF, self.fence)
        return Commit(run or f"r{self.fence}", self.fence, cursor, "print")

    def append(self, *rows: Row) -> LoadOutcome:
        return self.to.write.append(REF, [stage(self.to, REF, rows)], self.commit(cursor='{"upper": 7}'))

    def overwrite(self, *rows: Row) -> LoadOutcome:
        return self.to.write.overwrite(REF, [stage(self.to, REF, rows)], self.commit())

    def merge(self, *rows: Row, **how: Any) -> LoadOutcome:
        return self.to.write.merge(None, REF, [stage(self.to, REF, rows)], Merge(("id",), **how), self.commit())

    def change(self, after: Table, *changes: Any) -> None:
        self.to.schema.execute(REF, [step(REF, c) for c in changes], after, self.commit())

    def fill(
        self, *rows: Row, number: int = 1, columns: Sequence[str] = ("size",), holds: bool = False
    ) -> BackfillResult:
        schema = self.to.write.target(REF).schema
        part = pa.schema([f for f in schema if f.name in {"id", META, *columns}])
        values = (stage_table(self.to, REF, pa.Table.from_pylist(list(rows), part)),)
        wanted = Fill(("id",), dict.fromkeys(columns, number), values, META, "x", holds)
        return self.to.write.fill(None, REF, wanted, self.commit(), lambda rows, size: None, lambda: True)

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        return rows_of(self.to, REF, columns)

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """What somebody with DuckDB at hand does or sees."""
        with duckdb.connect(str(self.path)) as db:
            return db.execute(statement).fetchall()
