"""DuckDB in memory: where rows of tables, staged files and sources meet."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from instep.errors import DestinationError, InstepError
from instep.redaction import error_line
from instep.temporary import TemporaryFolder

if TYPE_CHECKING:
    import duckdb

MEMORY = "1GB"
STREAMS = {"disabled_optimizers": "build_side_probe_side"}
"""Settings with which a join holds the rows of its right side: DuckDB takes a stream for short, and would hold it."""
_LOCK = threading.Lock()


@cache
def _engine(memory: str, lossless: bool, streams: bool) -> duckdb.DuckDBPyConnection:
    """Return one for the process: its memory is for all threads, and it takes longer to make than a small table to
    compare. What does not fit goes to the disk, below a folder that leaves with it."""
    import duckdb

    spill = TemporaryFolder("rows")
    config: dict[str, Any] = {
        "memory_limit": memory,
        "temp_directory": spill.path,
        "preserve_insertion_order": "false",
        "arrow_large_buffer_size": "true",
        "arrow_lossless_conversion": str(lossless).lower(),
    }
    engine = duckdb.connect(":memory:", config=config | STREAMS if streams else config)
    atexit.register(spill.close)
    atexit.register(engine.close)
    return engine


def duckdb_cursor(memory: str, *, lossless: bool = False, streams: bool = False) -> duckdb.DuckDBPyConnection:
    """Return a connection with temporary tables of its own. All with the same settings share their memory; only ORDER
    BY gives rows an order. `lossless`: types that Arrow lacks are passed as extension types. `streams`: see
    STREAMS."""
    with _LOCK:
        return _engine(memory, lossless, streams).cursor()


@contextmanager
def in_duckdb(
    memory: str = MEMORY,
    *,
    lossless: bool = False,
    streams: bool = False,
    wrong: Callable[[str], InstepError] | None = None,
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a `duckdb_cursor` with its session in UTC. Raises DestinationError for rows that fit neither into memory nor
    on the disk, and what `wrong` makes of other errors."""
    import duckdb

    with duckdb_cursor(memory, lossless=lossless, streams=streams) as db:
        db.execute("SET timezone = 'UTC'")
        try:
            yield db
        except duckdb.Error as error:
            message = error_line(error)
            if isinstance(error, duckdb.OutOfMemoryException):
                hint = "free disk space for temporary files, then run it again"
                raise DestinationError(f"the rows do not fit into memory: {message}", hint=hint) from error
            if wrong is None:
                raise
            raise wrong(message) from error


def duckdb_version() -> str:
    """Return the version whose hashes these are: those of another one may differ."""
    import duckdb

    return str(duckdb.__version__)
