"""Forks Spark's Python workers after what every task needs is imported once."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

# Spark puts its own copy of pyspark in front, as zip files without compiled code: the installed one loads faster.
_COPIES = ("/pyspark.zip", "-src.zip")
sys.path[:] = [entry for entry in sys.path if not entry.endswith(_COPIES)]
for entry in [entry for entry in sys.path_importer_cache if entry.endswith(_COPIES)]:
    del sys.path_importer_cache[entry]  # each worker would read what is in it again
from instep.allocators import keep_pages  # noqa: E402

keep_pages()

from pyspark import daemon  # noqa: E402

import instep.stage.task  # noqa: E402
from instep.stage import preload  # noqa: E402

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)


def reuse_memory() -> None:
    """Let workers use freed memory again instead of handing it back: they end with their task, and what the system
    gives them anew it fills with zeros first. Only glibc has the setting."""
    with suppress(OSError, AttributeError):
        allocator = ctypes.CDLL(None)
        allocator.mallopt(_TRIM_THRESHOLD, 1 << 30)
        allocator.mallopt(_MMAP_THRESHOLD, 32 << 20)


if __name__ == "__main__":
    assert instep.stage.task is not None
    reuse_memory()
    preload.listen()
    daemon.manager()  # type: ignore[no-untyped-call]
