"""Answers about the quarantine of a connection, from its destination: what is held, and what of one row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from instep.operations.queries.quarantine import (
    ListQuarantined,
    MatchQuarantined,
    QuarantineItem,
    QuarantineMatches,
    UnreadableFiles,
)
from instep.operations.spec import QueryWork
from instep.stage.quarantine import QuarantineEntry
from instep.sync.quarantine.quarantine import Holding, holdings, of_row


def item_of(table: str, entry: QuarantineEntry) -> QuarantineItem:
    """Return an entry of this table for a reader; the original of a whole row is an object."""
    values = {one.name: getattr(entry, one.name) for one in fields(QuarantineItem) if one.name != "table"}
    original: Any = entry.original
    if not entry.column and original is not None:
        original = json.loads(original)
    return QuarantineItem(**{**values, "table": table, "key": json.loads(entry.key), "original": original})


class QuarantineItems(QueryWork):
    """Query of quarantined values by table and id."""

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
            yield from (item_of(one.table.path, entry) for entry in entries)

    def _holdings(self, context: Any, query: ListQuarantined) -> list[Holding]:
        """Read the destination once: items and what is beside them come from the same files."""
        if self._read is None:
            opened = context.open_connection(context.connection(query.connection))
            self._read = list(holdings(opened, [query.table] if query.table is not None else []))
        return self._read


class QuarantineLookup(QueryWork):
    """Query of the quarantined values of one row."""

    def find(self, context: Any, query: MatchQuarantined) -> QuarantineMatches:
        """Return the ids. Raises RunInProgress while a run of the connection is alive."""
        opened = context.open_connection(context.connection(query.connection))
        return QuarantineMatches(tuple(of_row(opened, query.table, query.key)))
