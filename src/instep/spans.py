"""Nested, timed spans of work. They cost one look-up while nobody listens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from functools import partial
from typing import Any, ParamSpec, TypeVar

Fact = str | int | float | bool | tuple[str, ...]
Opens = Callable[[str, Mapping[str, Fact]], AbstractContextManager[None]]
Tells = Callable[[Mapping[str, Fact]], None]
P = ParamSpec("P")
T = TypeVar("T")
_NOTHING: AbstractContextManager[None] = nullcontext()
_listening: tuple[Opens, Tells] | None = None


def span(name: str, **facts: Fact) -> AbstractContextManager[None]:
    """Record one part of the work. `facts` are names, ids and counts, never values of rows."""
    return _listening[0](name, facts) if _listening is not None else _NOTHING


def tell(**facts: Fact) -> None:
    """Add facts to the current span, such as those known only within it."""
    if _listening is not None:
        _listening[1](facts)


def in_current_span(does: Callable[P, T], *given: P.args, **named: P.kwargs) -> Callable[[], T]:
    """Return `does` for another thread, with its parts inside the one that is open here."""
    if _listening is None:
        return partial(does, *given, **named)
    return partial(copy_context().run, partial(does, *given, **named))


def listen(opens: Opens | None, tells: Tells | None = None) -> None:
    """Send the spans of this process to these listeners from now on; None sends them to nobody."""
    global _listening
    _listening = (opens, tells or _ignored) if opens is not None else None


def _ignored(_facts: Mapping[str, Any]) -> None: ...
