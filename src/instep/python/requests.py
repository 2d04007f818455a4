"""Requests of operations that are shown before they are carried out (`Connection.preview`), and lists of names."""

from collections.abc import Iterable

from instep.errors import InstepError
from instep.operations.decide.declare_rename import DeclareRenameRequest
from instep.operations.repair.repair import RepairRequest
from instep.operations.repair.restore import RestoreRequest
from instep.operations.repair.set_cursor import SetCursorRequest
from instep.operations.repair.set_key import SetKeyRequest
from instep.operations.repair.undo import UndoRequest
from instep.operations.set_up.upgrade_source import UpgradeSourceRequest

__all__ = [
    "DeclareRenameRequest",
    "RepairRequest",
    "RestoreRequest",
    "SetCursorRequest",
    "SetKeyRequest",
    "UndoRequest",
    "UpgradeSourceRequest",
    "as_names",
    "checked_limit",
]


def as_names(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return names or patterns as a tuple. One text is one of them: its letters would be patterns, and `*` fits all."""
    return (names,) if isinstance(names, str) else tuple(names)


def checked_limit(limit: int) -> int:
    """Return how many records to list at most; InstepError if that is no number, such as the name of a table."""
    if not isinstance(limit, int) or limit < 1:
        raise InstepError(f"`limit` is {limit!r}", hint="it is the most records to return: a number from 1 on")
    return limit
