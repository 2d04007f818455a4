"""Use of freed memory: a process hands it back, or keeps it for the next load."""

from __future__ import annotations

import os
from contextlib import suppress

_ARENAS = "MALLOC_ARENA_MAX"
_M_ARENA_MAX = -8  # of glibc's malloc.h
_MOST_ARENAS = 2
_READ_LATER = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"}
"""Variables that libraries read when they are loaded. Of numpy we take nothing that its BLAS has threads for, which
spin as they wait."""
FRUGAL = {_ARENAS: str(_MOST_ARENAS), **_READ_LATER}
"""The variables with which a child that is started hands back what it frees."""
LASTING = {"MIMALLOC_PURGE_DELAY": "10000", "MIMALLOC_ALLOW_THP": "0"}
"""The variables with which Arrow's own allocator keeps what it frees for so many milliseconds, for new pages cost more
than those that were used before, and takes small pages: of huge ones the system fills 2 MB with zeros where a batch
needs a part of them. Engines and Spark's workers have them, which load again and again."""
_chosen: set[str] = set()
"""Variables that were set here, and are no wish of the caller."""


def be_frugal() -> None:
    """Let Arrow take its memory from the system's allocator, which gives it back, and all threads share two heaps: each
    of them keeps what a thread ever used. Has to run before pyarrow is loaded; what the caller has set stays, and
    systems without glibc are left alone."""
    for name, value in _READ_LATER.items():
        if name not in os.environ:
            os.environ[name] = value
            _chosen.add(name)
    if _ARENAS in os.environ:
        return
    import ctypes

    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _MOST_ARENAS)


def keep_pages() -> None:
    """Let Arrow's own allocator keep pages, as `LASTING` says. Has to run before pyarrow is loaded; what the caller has
    set stays."""
    for name, value in LASTING.items():
        os.environ.setdefault(name, value)


def callers_environment() -> dict[str, str]:
    """Return the environment as the caller gave it, for children that choose their allocators themselves."""
    return {name: value for name, value in os.environ.items() if name not in _chosen}
