"""Answers about the quarantine of a connection, from its destination: what is held, and what of one row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from instep.operations.queries.quarantine import (
    CountQuarantined,
    ListQuarantined,
    MatchQuarantined,
    QuarantineCounts,
    QuarantineGroup,
    QuarantineItem,
    QuarantineMatches,
    QuarantineOverview,
)
from instep.operations.spec import QueryWork
from instep.operations.values import EntryStatus
from instep.stage.files.place import StorageFolder
from instep.stage.quarantine import QuarantineEntry, files_in
from instep.stage.quarantine_store import COUNTED, GROUP, EntryFilter, Place
from instep.sync.quarantine.quarantine import QuarantinePlace, counts_of, of_row, quarantine_places


def item_of(table: str, entry: QuarantineEntry) -> QuarantineItem:
    """Return an entry of this table for a reader; the original of a whole row is an object."""
    values = {field.name: getattr(entry, field.name) for field in fields(QuarantineItem) if field.name != "table"}
    original: Any = entry.original
    if not entry.column and original is not None:
        original = json.loads(original)
    return QuarantineItem(**{**values, "table": table, "key": json.loads(entry.key), "original": original})


class QuarantineItems(QueryWork):
    """Query of quarantined values by table, newest first."""

    place_types = (str, datetime, str)

    def items(
        self, context: Any, query: ListQuarantined, after: Sequence[Any] | None, limit: int
    ) -> Sequence[QuarantineItem]:
        """Return entries in the order of their places. Raises InstepError for a table that there is not."""
        self._opened = opened = context.open_connection(context.connection(query.connection))
        self._places, items = _places(opened, query.table), list[QuarantineItem]()
        for place in self._places:
            table = place.table.path
            if len(items) >= limit or (after is not None and table < after[0]):
                continue
            behind = (after[1], after[2]) if after is not None and after[0] == table else None
            items += _page(opened, place, query, behind, limit - len(items))
        return items

    def place(self, item: QuarantineItem) -> tuple[str, datetime, str]:
        """Return the entry's table, moment and id."""
        return (item.table, item.at, item.id)

    def page_summary(self, context: Any, query: ListQuarantined) -> QuarantineOverview:
        """Return how much waits, and the files that cannot be read."""
        every = self._places if query.table is None else _places(self._opened, None)
        return QuarantineOverview(
            tuple(f"{place.table.path}: {name}" for place in self._places for name in _broken(place)),
            counts_of(self._opened, every),
        )


class QuarantineCounting(QueryWork):
    """Counts of the quarantine by table, column, reason, change and status."""

    def find(self, context: Any, query: CountQuarantined) -> QuarantineCounts:
        """Return the counts. Raises InstepError for a table that there is not."""
        opened = context.open_connection(context.connection(query.connection))
        groups, unreadable, newest = list[QuarantineGroup](), list[str](), list[datetime]()
        for place in _places(opened, query.table):
            with place.stored(opened, COUNTED) as stored:
                counts = stored.counts(_filter(query))
                unreadable += [f"{place.table.path}: {name}" for name in stored.broken]
            newest += [row.newest for row in counts]
            groups += [
                QuarantineGroup(
                    place.table.path, row.column, row.reason, row.change, cast(EntryStatus, row.status), row.count
                )
                for row in counts
            ]
        total = sum(group.count for group in groups)
        return QuarantineCounts(total, max(newest, default=None), tuple(groups), tuple(unreadable))


class QuarantineLookup(QueryWork):
    """Query of the quarantined values of one row."""

    def find(self, context: Any, query: MatchQuarantined) -> QuarantineMatches:
        """Return the ids. Raises RunInProgress while a run of the connection is alive."""
        opened = context.open_connection(context.connection(query.connection))
        return QuarantineMatches(tuple(of_row(opened, query.table, query.key)))


def _places(context: Any, table: str | None) -> list[QuarantinePlace]:
    places = quarantine_places(context, [table] if table is not None else [])
    return sorted(places, key=lambda place: place.table.path)


def _filter(query: ListQuarantined | CountQuarantined) -> EntryFilter:
    status, id = "" if query.all else "held", query.id if isinstance(query, ListQuarantined) else None
    return EntryFilter(status, query.column or "", query.run or "", id or "")


def _page(
    context: Any, place: QuarantinePlace, query: ListQuarantined, after: Place | None, limit: int
) -> Iterator[QuarantineItem]:
    """Yield the entries of a page, newest first: their ids are found without their keys and originals."""
    chosen = _filter(query)
    with place.stored(context, COUNTED) as stored:
        ids = stored.newest_ids(chosen, after, limit)
    if not ids:
        return
    only = pc.field("id").isin(pa.array(ids, pa.string())) if len(ids) <= GROUP else None
    with place.stored(context, only=only) as stored:
        for entries in stored.newest(chosen, after, limit):
            yield from (item_of(place.table.path, entry) for entry in entries)


def _broken(place: QuarantinePlace) -> Iterator[str]:
    """Yield the files whose tasks died before their ends."""
    folder = StorageFolder(place.target.quarantine, place.target.io)
    for name in files_in(folder.uri, folder.io, place.ignored):
        filesystem, path = folder.resolve(name)
        try:
            with filesystem.open_input_file(path) as file:
                pq.ParquetFile(file)
        except (OSError, pa.ArrowException):
            yield name
