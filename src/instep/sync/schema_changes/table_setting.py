"""Parts that `table set-key` and `table set-cursor` share: the table on both sides, and the changes they settle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from instep.errors import Blocked, InstepError
from instep.model import Review
from instep.project.sections.tables import TableSettings
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.promotion import widens
from instep.schema.catalog.types import DataType
from instep.schema.changes.diff import pair_columns
from instep.schema.planning.projection import pair_tables
from instep.suggest import did_you_mean, first_of
from instep.sync.context import SyncContext
from instep.sync.detection.detect import detect_if_changed, record
from instep.sync.detection.pause import resume


@dataclass(frozen=True)
class SettingTable:
    """An accepted table with the source's, as the source has it (without settings and choices)."""

    connection: str
    accepted: Catalog
    table: Table
    source: Table
    settings: TableSettings
    reviews: tuple[Review, ...]
    configured: Table
    """Table with the settings."""

    def open(self, family: str) -> Iterator[Review]:
        """Yield changes of the table of this family (`key.`) that wait, or were answered and are not applied."""
        return (r for r in self.reviews if r.table in (self.table.ref, self.source.ref) and r.kind.startswith(family))

    def column(self, name: str) -> tuple[Column, Column]:
        """Return (as accepted, at the source) of an accepted column; raises InstepError or Blocked if it is not on
        both sides."""
        column = self.table.by_name.get(name)
        if column is None or column.retained:
            raise self._unknown(name)
        now = next((b for a, b in pair_columns(self.table, self.source).same if a.name == name), None)
        if now is None:
            raise Blocked(f"column {self.table.path}.{name} is no longer at the source", hint="name another one")
        return column, now

    def retyped(self, key: Sequence[str]) -> dict[str, DataType]:
        """Return the types that the source has given to accepted columns of a key, by name; wider ones take all
        values."""
        pairs = ((a, b) for a, b in pair_columns(self.table, self.configured).same if a.name in key)
        return {a.name: b.type for a, b in pairs if a.type != b.type and not widens(a.type, b.type)}

    def sources_of(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the source's names of these accepted columns."""
        if not names or len(set(names)) != len(names):
            raise InstepError("a key is one or more different columns", hint="separate them by commas: id,version")
        return tuple(self.column(name)[1].name for name in names)

    def _unknown(self, name: str) -> InstepError:
        added = next((r for r in self.reviews if r.column == name and r.kind == "column.added"), None)
        if added is not None and name in self.source.by_name:
            return Blocked(
                f"column {self.table.path}.{name} is not approved yet ({added.id})",
                hint=f"`instep changes approve {added.id}`, then `instep apply`, then this again",
            )
        columns = [c.name for c in self.table.live]
        hint = did_you_mean(name, columns, f"its columns: {first_of(columns)}")
        return InstepError(f"table {self.table.path} has no column {name}", hint=hint)


def find_table(context: SyncContext, path: str) -> SettingTable:
    """Return the accepted table of this path (`schema.table`), as it is at the source now.

    Raises InstepError if there is none, Blocked if it is gone, renamed or replaced there and that is not decided.
    """
    detection = detect_if_changed(context, count=False)
    reviews = record(context, detection, count=False)
    table = context.table(path, (t for t in detection.accepted.tables if not t.retained))
    source = pair_tables(detection.accepted.tables, detection.discovery.catalog).get(table.ref)
    if source is None:
        raise Blocked(f"table {path} is not at the source", hint="see `instep changes list`")
    if source.ref != table.ref:
        raise Blocked(f"table {path} is called {source.path} now", hint="decide about its rename first")
    if table.ref in detection.replaced:
        raise Blocked(
            f"table {path} was replaced by another one of that name",
            hint="`instep changes approve` its replacement: the new table is reloaded",
        )
    existing = tuple(reviews.values())
    settled = pair_tables(detection.accepted.tables, detection.source).get(table.ref, source)
    return SettingTable(context.name, detection.accepted, table, source, context.settings(table), existing, settled)


def recorded_tables(context: SyncContext, changed: Catalog) -> Catalog:
    """Return the destination's tables as they were recorded last, with these as they become."""
    last = context.store.schemas.latest(context.name, "destination") or Catalog()
    for table in changed.tables:
        last = last.put(table)
    return last


def close_changes(context: SyncContext, reviews: Iterable[Review]) -> None:
    """Close these changes and resume what they have paused, whatever the policy: a person
    has said what is to be done."""
    for review in reviews:
        context.store.reviews.obsolete([review.id])
        resume(context, review.id, f"settled by {context.who}")
