"""Compiled SQL for a whole test process: each test has engines of its own, and each engine compiles all its statements
anew, which took a quarter of what a sync costs here."""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import Engine
from sqlalchemy.util import LRUCache


class _Shared(LRUCache[Any, Any]):
    """What SQLAlchemy has compiled, for engines of the same dialect and server version."""

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        return super().get(_same(key), default)

    def __getitem__(self, key: tuple[Any, ...]) -> Any:
        return super().__getitem__(_same(key))

    def __setitem__(self, key: tuple[Any, ...], value: Any) -> None:
        super().__setitem__(_same(key), value)


def _same(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """SQLAlchemy names the engine's own dialect first."""
    dialect, *statement = key
    return (type(dialect), dialect.paramstyle, getattr(dialect, "server_version_info", None), *statement)


def share_compiled() -> None:
    """Let all engines of this process use one cache."""
    shared = _Shared(3000)
    Engine._compiled_cache = property(lambda _: shared, lambda *_: None)  # type: ignore[assignment]
