"""Keeps pyarrow from importing pandas, which it does on its first array from a Python list (0.4 to 1 s a process)."""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder
from typing import Any


class _Hidden(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=name)


OWN = "INSTEP_OWN_WORKERS"
"""Set in the environment of Spark's Python workers that serve nobody but instep."""


def hide_pandas() -> None:
    """Make pyarrow look for pandas once and find none, which it remembers: NA and NaT are no NULLs to it from then
    on. Later imports of pandas work as ever. Nothing is done where pandas is loaded already, as in the Python API,
    or in a Spark worker that other jobs use as well: their conversions would fail."""
    if "pandas" in sys.modules or ("pyspark.worker" in sys.modules and OWN not in os.environ):
        return
    import pyarrow as pa

    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(hidden)
