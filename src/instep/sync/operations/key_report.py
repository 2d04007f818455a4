"""What a changed key does to the rows: counted on both sides, with the commands that settle it."""

from __future__ import annotations

from dataclasses import dataclass

from instep.errors import InstepError
from instep.model import Review
from instep.schema.changes.describe import KeyChanged, KeyRemoved, change_from_dict
from instep.sync.context import SyncContext
from instep.sync.operations.set_key import offers
from instep.sync.schema_changes.key_counts import KeyCount, RowCounts, count_destination, count_source
from instep.sync.schema_changes.table_setting import SettingTable, find_table


@dataclass(frozen=True)
class KeyReport:
    """`counts` are those of the new key, or of the old one where the source has none any more; None with `why_not`."""

    review: str
    table: str
    counts: KeyCount | None
    offers: tuple[str, ...] = ()
    why_not: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the text for people."""
        if self.counts is None:
            return (f"{self.review}: its key was not counted: {self.why_not}",)
        key = ", ".join(self.counts.key)
        return (*(f"{self.review}: key ({key}) {line}" for line in self.counts.lines), *self.offers)


def key_report(context: SyncContext, review: Review) -> KeyReport | None:
    """Return the report of a key change; None for any other change, or an answered one. Reads the key's columns; what
    cannot be read is said, not raised."""
    change = change_from_dict(review.change)
    if review.status != "open" or not isinstance(change, KeyChanged | KeyRemoved):
        return None
    path = ".".join(filter(None, review.table))
    key = change.after if isinstance(change, KeyChanged) else change.before
    try:
        found = find_table(context, path)
        counts = KeyCount(key, _at_source(context, found, key), count_destination(context, found.table, key))
    except InstepError as error:
        return KeyReport(review.id, path, None, why_not=error.message)
    return KeyReport(review.id, path, counts, tuple(_offers(path, counts)))


def _at_source(context: SyncContext, found: SettingTable, key: tuple[str, ...]) -> RowCounts:
    absent = [name for name in key if name not in found.source.by_name]
    return RowCounts(why_not=f"{absent[0]} is gone") if absent else count_source(context, found.source, key)


def _offers(path: str, counts: KeyCount) -> list[str]:
    if counts.source.why_not:
        return [f"choose another key: instep table set-key {path} COL[,COL...]"]
    return offers(path, counts)


__all__ = ["KeyReport", "key_report"]
