"""Forks Spark's Python workers after what every task needs is imported once."""

from __future__ import annotations

from pyspark import daemon

import instep.stage.task
from instep.spark import pandas_free

pandas_free.settle()

if __name__ == "__main__":
    assert instep.stage.task is not None
    daemon.manager()  # type: ignore[no-untyped-call]
