"""How long a job waits before it is tried again."""

from __future__ import annotations

import hashlib
from datetime import timedelta

FIRST = 15.0
LONGEST = 1800.0
SPREAD = 0.25


def backoff(attempt: int, name: str) -> timedelta:
    """After the `attempt`-th failure (1 is the first): doubled each time up to half an hour, give or take a quarter.

    The same job always waits the same, different jobs that failed together do not come back together.
    """
    base = min(FIRST * 2.0 ** (min(max(attempt, 1), 32) - 1), LONGEST)
    digest = hashlib.sha256(f"{name}/{attempt}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return timedelta(seconds=base * (1 - SPREAD + 2 * SPREAD * share))
