"""Forks Spark's Python workers after what every task needs is imported once."""

from __future__ import annotations

import sys

# Spark puts its own copy of pyspark in front, as zip files without compiled code: the installed one loads faster.
sys.path[:] = [entry for entry in sys.path if not entry.endswith(("/pyspark.zip", "-src.zip"))]

from pyspark import daemon  # noqa: E402

import instep.stage.task  # noqa: E402
from instep.stage import preload  # noqa: E402

if __name__ == "__main__":
    assert instep.stage.task is not None
    preload.listen()
    daemon.manager()  # type: ignore[no-untyped-call]
