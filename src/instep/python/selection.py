"""The selection of a connection: which schemas, tables and columns are read, and which columns are hashed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from instep.operations.immediate.decisions import SwitchSelectionRequest
from instep.operations.queries.decisions import GetSelection
from instep.python.requests import as_names
from instep.python.results import Records

if TYPE_CHECKING:
    from instep.backends.protocol import Backend
    from instep.control.immediate.decisions import SelectionStep
    from instep.control.selection.listing import Listed
    from instep.operations.values import Verb


class Selection:
    """The selection of one connection.

    Example:
        shop.selection.off("main.orders.note")
        shop.selection.hash(matching=["*.email"])

    Objects are paths: `schema`, `schema.table` or `schema.table.column`. Neither source nor destination is opened: the
    next sync acts on it. Raises Blocked where instep.yml says otherwise of that very object.
    """

    def __init__(self, connection: str, backend: Backend) -> None:
        self._connection, self._backend = connection, backend

    def __repr__(self) -> str:
        return f"<instep selection of connection {self._connection}>"

    def objects(self, *, all_columns: bool = False) -> Records[Listed]:
        """Return schemas, tables and the columns that are switched or hashed, by name. `all_columns`: all columns."""
        return Records(self._backend.query(GetSelection(self._connection, all_columns)).objects)

    def on(self, *objects: str, matching: str | Iterable[str] = ()) -> Records[SelectionStep]:
        """Switch objects on; `matching`: also tables and columns that fit a pattern. Returns what follows of each."""
        return self._switch("on", objects, matching)

    def off(self, *objects: str, matching: str | Iterable[str] = ()) -> Records[SelectionStep]:
        """Switch objects off: they are not read any more, and nothing is dropped."""
        return self._switch("off", objects, matching)

    def hash(self, *objects: str, matching: str | Iterable[str] = ()) -> Records[SelectionStep]:
        """Let columns reach the destination as salted SHA-256 only."""
        return self._switch("hash", objects, matching)

    def unhash(self, *objects: str, matching: str | Iterable[str] = ()) -> Records[SelectionStep]:
        """Let hashed columns reach the destination in clear again."""
        return self._switch("unhash", objects, matching)

    def _switch(self, verb: Verb, objects: Iterable[str], matching: str | Iterable[str]) -> Records[SelectionStep]:
        request = SwitchSelectionRequest(self._connection, verb, tuple(objects), as_names(matching))
        return Records(self._backend.operations.perform(request).objects)
