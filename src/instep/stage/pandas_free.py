"""Keeps pyarrow from importing pandas, which it does on its first array from a Python list (0.4 to 1 s a process)."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any


class _Hidden(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=name)


def settle() -> None:
    """Lets pyarrow find no pandas once, which it remembers; later imports of pandas by others work as ever."""
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(hidden)
