"""Reading the operations of a connector's tables, inside a task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from instep.errors import InstepError, ReadError
from instep.sources.connector.reduce import Ends, among, mixed, reduce
from instep.sources.connector.scan import Scan
from instep.sources.stream import GIVEN
from instep.stage.in_duckdb import in_duckdb
from instep.stage.spec import Chunk


@dataclass(frozen=True)
class ConnectorReader:
    """Opens nothing by itself: the chunks name their files."""

    @contextmanager
    def open(self) -> Iterator[ConnectorSession]:
        with ExitStack() as stack:
            yield ConnectorSession(stack)


class ConnectorSession:
    """Keeps how the operations of the table at hand end: its chunks come one after the other."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._last: tuple[object, duckdb.DuckDBPyConnection, Ends] | None = None

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        scan = Scan.from_text(chunk.query)
        db, ends = self._ends(scan)
        if scan.what == "changed":
            yield from _in_order(scan, mixed(db, scan, loose=True), given=True) if ends.mixed else ()
            return
        wanted = ends.whole if scan.what == "rows" else ends.gone
        every = len(wanted) == ends.all
        for numbers, found in scan.batches(scan.columns):
            values = [found.get(c, pa.nulls(len(numbers))) for c in scan.columns]
            batch = pa.RecordBatch.from_arrays(values, names=list(scan.columns))
            yield batch if every else batch.filter(among(numbers, wanted))
        if scan.what == "rows" and ends.mixed:
            yield from _in_order(scan, mixed(db, scan, loose=False), given=False)

    def _ends(self, scan: Scan) -> tuple[duckdb.DuckDBPyConnection, Ends]:
        known = (scan.table, scan.key, scan.parts)
        if self._last is None or self._last[0] != known:
            self._stack.close()
            db = self._stack.enter_context(in_duckdb(wrong=_failed))
            self._last = (known, db, reduce(db, scan))
        return self._last[1], self._last[2]


def _in_order(scan: Scan, batches: Iterator[pa.RecordBatch], *, given: bool) -> Iterator[pa.RecordBatch]:
    names = [*([GIVEN] if given else []), *scan.columns]
    for batch in batches:
        yield batch.select(names)


def _failed(said: str) -> InstepError:
    return ReadError(f"operations could not be put in order: {said}", hint="run the sync again")
