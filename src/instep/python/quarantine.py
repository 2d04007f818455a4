"""Values and rows that did not fit: listed, replayed, discarded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from instep.backends.calls import discard_entries, erase_row
from instep.operations.queries.quarantine import CountQuarantined, ListQuarantined
from instep.operations.repair.replay_quarantine import ReplayQuarantineRequest
from instep.python.requests import checked_limit
from instep.python.results import Document, Records

if TYPE_CHECKING:
    from instep.backends.protocol import Backend


class Quarantine:
    """Values and rows of one connection that did not fit their columns.

    Example:
        for entry in shop.quarantine.entries("main.orders"):
            print(entry["column"], entry["original"], entry["reason"])
        shop.quarantine.replay()
    """

    def __init__(self, connection: str, backend: Backend) -> None:
        self._connection, self._backend = connection, backend

    def __repr__(self) -> str:
        return f"<instep quarantine of connection {self._connection}>"

    def counts(self, table: str | None = None, *, all: bool = False) -> Document:
        """Count the quarantined values and rows by table, column, reason, change and status.

        `table`, `all`: as for `entries`. Takes little memory, however many there are.
        """
        return Document(asdict(self._backend.query(CountQuarantined(self._connection, table, all=all))))

    def entries(self, table: str | None = None, *, all: bool = False, limit: int | None = None) -> Records[Document]:
        """Return the quarantined values and rows, oldest first within a table.

        `table`: only this one (`schema.table`). `all`: also those that were replayed, superseded or discarded.
        `limit`: at most so many, the newest of a table before its older ones. Raises InstepError for a table that there
        is not.
        """
        most = None if limit is None else checked_limit(limit)
        entries = self._backend.items(ListQuarantined(self._connection, table, all=all), most)
        oldest_first = sorted(entries, key=lambda entry: (entry.table, entry.at, entry.id))
        return Records(Document(asdict(entry)) for entry in oldest_first)

    def replay(self, table: str | None = None, column: str = "", *, preview: bool = False) -> Records[Document]:
        """Write what fits by now into its rows, unless a newer value is there; return the counts of each table.

        `table`, `column`: only values of these. `preview`: only count. A table that fails has an `error`.
        """
        request = ReplayQuarantineRequest(tables=(table,) if table else (), column=column, preview=preview)
        return Records(Document(one) for one in self._backend.operations.run(self._connection, request).tables)

    def discard(self, *entries: str | Mapping[str, Any] | Iterable[str | Mapping[str, Any]]) -> list[str]:
        """Delete the originals of these entries for good; their rows stay as they are.

        `entries`: as `entries` has returned them, one by one or as a list, or their whole ids. Returns the ids of those
        that went.
        """
        return discard_entries(self._backend, self._connection, sorted(set(_ids(entries))))

    def erase(self, table: str, key: Mapping[str, object]) -> int:
        """Erase every trace of one row from quarantine; return how many entries went.

        `key`: the row's key, value by column. Raises InstepError for a table or a column that there is not.
        """
        return erase_row(self._backend, self._connection, table, dict(_texts(key.items())))


def _ids(entries: Iterable[str | Mapping[str, Any] | Iterable[str | Mapping[str, Any]]]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, Mapping):
            yield str(entry["id"])
        else:
            yield from _ids(entry)


def _texts(items: Iterable[tuple[str, object]]) -> Iterable[tuple[str, str | None]]:
    for name, value in items:
        if value is None:
            yield name, None
        else:
            yield name, str(value).lower() if isinstance(value, bool) else str(value)
