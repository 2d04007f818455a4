"""Answers about the quarantine of a connection, from its destination: what is held, and what of one row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from instep.operations.queries.quarantine import ListQuarantined, MatchQuarantined
from instep.operations.spec import QueryWork
from instep.stage.quarantine import QuarantineEntry, Status
from instep.sync.quarantine.quarantine import Holding, holdings, of_row


@dataclass(frozen=True)
class QuarantineItem:
    """A held value or row. Originals of hashed and excluded columns are not here."""

    id: str
    table: str
    """What the table is called now."""
    key: Any = field(repr=False)
    column: str
    """The column; empty for a whole row."""
    original: Any = field(repr=False)
    """A text; of a whole row, an object."""
    reason: str
    change: str
    rule: str
    run: str
    since: datetime
    at: datetime
    status: Status
    place: str

    @classmethod
    def of(cls, table: str, entry: QuarantineEntry) -> QuarantineItem:
        """Return an entry of this table as it is told."""
        values = {one.name: getattr(entry, one.name) for one in fields(cls)}
        original: Any = entry.original
        if not entry.column and original is not None:
            original = json.loads(original)
        return cls(**{**values, "table": table, "key": json.loads(entry.key), "original": original})


@dataclass(frozen=True)
class UnreadableFiles:
    """Files of the quarantine that cannot be read."""

    unreadable: tuple[str, ...]
    """Table and file of each."""


@dataclass(frozen=True)
class QuarantineMatches:
    """What is held of one row."""

    ids: tuple[str, ...]
    """The entries' ids."""


class QuarantineItems(QueryWork):
    """What is held by table and id."""

    place_types = (str, str)

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._read: list[Holding] | None = None

    def items(
        self, context: Any, query: ListQuarantined, after: Sequence[Any] | None, limit: int
    ) -> Sequence[QuarantineItem]:
        """Return entries in the order of their places. Raises InstepError for a table that there is not."""
        entries = sorted(self._entries(context, query), key=self.place)
        return [one for one in entries if after is None or self.place(one) > tuple(after)][:limit]

    def place(self, item: QuarantineItem) -> tuple[str, str]:
        """Return the entry's table and id."""
        return (item.table, item.id)

    def beside(self, context: Any, query: ListQuarantined) -> UnreadableFiles:
        """Return the files that cannot be read."""
        found = self._holdings(context, query)
        return UnreadableFiles(tuple(f"{one.table.path}: {name}" for one in found for name in one.found.broken))

    def _entries(self, context: Any, query: ListQuarantined) -> Iterator[QuarantineItem]:
        for one in self._holdings(context, query):
            entries = one.found.entries if query.all else one.pending
            yield from (QuarantineItem.of(one.table.path, entry) for entry in entries)

    def _holdings(self, context: Any, query: ListQuarantined) -> list[Holding]:
        """Read the destination once: items and what is beside them come from the same files."""
        if self._read is None:
            opened = context.open_connection(context.connection(query.connection))
            self._read = list(holdings(opened, [query.table] if query.table is not None else []))
        return self._read


class QuarantineLookup(QueryWork):
    """What is held of one row."""

    def find(self, context: Any, query: MatchQuarantined) -> QuarantineMatches:
        """Return the ids. Raises RunInProgress while a run of the connection is alive."""
        opened = context.open_connection(context.connection(query.connection))
        return QuarantineMatches(tuple(of_row(opened, query.table, query.key)))
