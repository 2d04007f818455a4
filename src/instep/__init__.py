"""Replicates tables into a lakehouse on Spark and manages their schema changes."""

TYPE_CHECKING = False  # as type checkers know it: nothing is imported for it, because each command begins here

if TYPE_CHECKING:
    from instep.python.connection import Connection, Plan
    from instep.python.progress import Progress
    from instep.python.project import Project, connect, open
    from instep.python.results import QueryResult, SyncResult

__version__ = "0.1.0"
__all__ = ["Connection", "Plan", "Progress", "Project", "QueryResult", "SyncResult", "connect", "open"]
_PLACES = {
    "Connection": "connection", "Plan": "connection", "Progress": "progress", "Project": "project",
    "QueryResult": "results", "SyncResult": "results", "connect": "project", "open": "project",
}  # fmt: skip


def __getattr__(name: str) -> object:
    """Load the Python API once a part of it is asked for: commands begin without it."""
    from importlib import import_module

    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"instep.python.{_PLACES[name]}"), name)
