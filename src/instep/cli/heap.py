"""How a process that lives long has its memory from the C library."""

from __future__ import annotations

import ctypes
from contextlib import suppress

_ARENA_MAX = -8  # M_ARENA_MAX of glibc's malloc.h


def share_arenas(count: int = 2) -> None:
    """Let all threads share a few heaps. glibc gives each of a server's threads one of up to eight for each core, and
    what a request needed stays in every heap that it was ever served from. Elsewhere nothing is done."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, count)
