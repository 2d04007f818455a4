"""File names of one chunk's attempt: unique, and never made from a table's name."""

from __future__ import annotations

import re
import uuid


def file_name(run: str, chunk: int, attempt: int, part: int) -> str:
    """`<run>-<chunk>-<attempt>-<part>-<random>.parquet`."""
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', run)[:64]}-{chunk:05}-{attempt}-{part}-{uuid.uuid4().hex[:12]}.parquet"
