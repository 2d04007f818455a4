"""DuckDB in memory: where rows of tables, staged files and sources meet."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from instep.errors import DestinationError, InstepError
from instep.temporary import TemporaryFolder

if TYPE_CHECKING:
    import duckdb

MEMORY = "1GB"
_LOCK = threading.Lock()


@cache
def _engine(memory: str, lossless: bool) -> duckdb.DuckDBPyConnection:
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
    engine = duckdb.connect(":memory:", config=config)
    atexit.register(spill.close)
    atexit.register(engine.close)
    return engine


@contextmanager
def in_duckdb(
    memory: str = MEMORY, *, lossless: bool = False, wrong: Callable[[str], InstepError] | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection with temporary tables of its own and its session in UTC; only ORDER BY gives rows an order.
    All connections with the same `memory` share it. `lossless`: types that Arrow lacks are passed as extension
    types. Raises DestinationError for rows that fit neither there nor on the disk, and what `wrong` makes of other
    errors."""
    import duckdb

    with _LOCK:
        db = _engine(memory, lossless).cursor()
    with db:
        db.execute("SET timezone = 'UTC'")
        try:
            yield db
        except duckdb.Error as error:
            message = str(error).strip().splitlines()[0]
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
