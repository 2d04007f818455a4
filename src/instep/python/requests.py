"""Requests of operations that are shown before they are carried out (`Connection.preview`), and lists of names."""

from collections.abc import Iterable

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
]


def as_names(given: str | Iterable[str]) -> tuple[str, ...]:
    """Return names or patterns as a tuple. One text is one of them: its letters would be patterns, and `*` fits all."""
    return (given,) if isinstance(given, str) else tuple(given)
