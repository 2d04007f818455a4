"""One connection from a live database into a destination, and what it says of each table and value that differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from histories.databases import CURSOR, LOG_NAMES, LiveDatabase, SourceTable
from histories.oracle import agrees
from instep.model import Review
from instep.project.sections.tables import TableSettings
from instep.schema.catalog.catalog import Column, Table
from instep.schema.planning.naming import destination_ref
from instep.sync.context import SyncContext
from instep.sync.loading.engine import DriverReads, Engine, OnSpark
from instep.sync.progress import SyncReport
from quarantined import entries_by_table
from sync_world import PREFIX, World

NAME = "shop"
CURSORED, LOGGED = "u", "l"
"""The tables with a cursor, and in change capture."""
OFF = ("rejected", "ignored")
MOVES = ("table.renamed", "table.replaced", "table.removed")
LOSES = "would lose the values of"
"""The only error that a history may bring: a table without a key, read as a whole, asks for consent first."""


@dataclass
class HistoryWorld(World):
    database: Any = None
    stale: set[tuple[str, str]] = field(default_factory=set)
    """Columns, by table, whose old values a statement changed that no cursor tells, or that a policy leaves out."""

    @property
    def live(self) -> LiveDatabase:
        found: LiveDatabase = self.database
        return found

    @property
    def context(self) -> SyncContext:
        log = LOG_NAMES if self.live.follows_log else None
        return replace(super().context, log=log, settings=self.settings_of)

    def settings_of(self, table: Table) -> TableSettings:
        if table.name == CURSORED:
            return TableSettings(cursor=CURSOR)
        if table.name == LOGGED and self.live.follows_log:
            return TableSettings(mode="cdc")
        return TableSettings()

    @property
    def rows_by(self) -> Engine:
        """In this process, and on Spark what nothing else can do; or all of it there."""
        assert self.start is not None
        return OnSpark(self.start) if self.engine == "spark" else DriverReads(self.start)

    # what a person sees

    def open_reviews(self) -> list[Review]:
        return list(self.store.reviews.find(NAME, ("open",)))

    def held(self) -> dict[str, set[tuple[str, str]]]:
        """By accepted table path: (key as JSON of texts, column) of all that is held; column "" is a whole row."""
        found = entries_by_table(self.context, idle=True)
        return {path: {(e.key, e.column) for e in entries if e.status == "held"} for path, entries in found.items()}

    def reasons(self, names: set[str]) -> list[str]:
        """Why tables with these names may differ: open changes, pauses, and what was listed off."""
        found = self.store.reviews.find(NAME, ("open", *OFF))
        return [
            *(f"{r.status} {r.summary}" for r in found if mentions(r, names)),
            *(f"open {r.summary}" for r in found if r.status == "open" and r.action == "pause_connection"),
            *(p.reason for p in self.store.pauses.active(NAME) if p.table is None or p.table[1] in names),
        ]


def mentions(review: Review, names: set[str]) -> bool:
    """Its table is called so, or was, or would be."""
    return review.table[1] in names or bool(names & set(words(review.change)))


def words(document: Any) -> Iterator[str]:
    """All texts in a change's document."""
    match document:
        case str():
            yield document
        case Mapping():
            yield from (word for value in document.values() for word in words(value))
        case list() | tuple():
            yield from (word for value in document for word in words(value))


@dataclass(frozen=True)
class Check:
    """What a sync has left, held against the source."""

    world: HistoryWorld
    report: SyncReport

    def differences(self) -> Iterator[str]:
        """Every difference that nothing explains."""
        catalog = self.world.store.accepted.catalog(NAME)
        statuses = {t.table: t for t in self.report.tables}
        for source in self.world.live.tables.values():
            if self.is_another_table(source):
                continue
            table = catalog.get((self.world.live.schema, source.name))
            run = statuses.get((self.world.live.schema, source.name))
            if run is not None and run.status == "failed":
                if LOSES not in run.error:
                    yield f"{source.name} failed: {run.error}"
            elif table is None or table.retained or run is None or run.status not in ("done", "unchanged"):
                if not self.world.reasons({source.name}):
                    yield f"{source.name} is not loaded ({run.status if run else 'unknown'}), and nothing says why"
            else:
                yield from self.rows(source, table)

    def is_another_table(self, source: SourceTable) -> bool:
        """True while a person has still to say, or has refused, what became of the table that bore this name."""
        found = self.world.store.reviews.find(NAME, ("open", *OFF))
        return any(r.kind in MOVES and mentions(r, {source.name}) for r in found)

    def rows(self, source: SourceTable, table: Table) -> Iterator[str]:
        columns, held = dict(self.columns(source, table)), self.world.held().get(table.path, set())
        for name in source.names:
            if name not in columns and not self.explained(source, name):
                yield f"{source.name}.{name} is not loaded, and nothing says why"
        mine = self.world.live.rows(source)
        read = (
            self.world.destination.write.read(destination_ref(table, self.world.context.naming)).read_all().to_pylist()
        )
        found = [row for row in read if not row.get(f"{PREFIX}deleted")]
        refused = sum(1 for _, column in held if not column)
        if len(found) > len(mine) or len(found) + refused < len(mine):
            yield f"{source.name}: {len(mine)} rows in the source, {len(found)} at the destination, {refused} refused"
            return
        if table.key and all(k in columns for k in table.key):
            yield from self.keyed(source, table, columns, mine, found, held)
        else:
            yield from self.heaps(source, columns, mine, found, held)

    def columns(self, source: SourceTable, table: Table) -> Iterator[tuple[str, Column]]:
        """The source's columns that are loaded under an accepted name. One whose removal somebody has to answer, or has
        refused, keeps what it had: another column of the source may have its name by now."""
        found = self.world.store.reviews.find(NAME, ("open", *OFF))
        gone = {r.column for r in found if r.kind == "column.removed" and mentions(r, {source.name})}
        for column in table.live:
            if column.name in source.names and not column.retained and column.name not in gone:
                yield column.name, column

    def explained(self, source: SourceTable, column: str) -> bool:
        found = self.world.store.reviews.find(NAME, ("open", *OFF))
        return any(
            mentions(r, {source.name}) and (not r.column or r.column == column or column in words(r.change))
            for r in found
        )

    def keyed(
        self, source: SourceTable, table: Table, columns: Mapping[str, Column],
        mine: list[dict[str, Any]], found: list[dict[str, Any]], held: set[tuple[str, str]],
    ) -> Iterator[str]:  # fmt: skip
        keys = [(name, columns[name].alias) for name in table.key]
        left, refused = list(found), sum(1 for _, column in held if not column)
        for row in mine:
            place = next((i for i, r in enumerate(left) if all(agrees(row[n], r[a]) for n, a in keys)), None)
            if place is None:
                if refused:
                    refused -= 1
                else:
                    yield f"{source.name}: the row {row} is not at the destination"
                continue
            yield from self.cells(source, columns, row, left.pop(place), held)
        for extra in left:
            yield f"{source.name}: the destination has a row that the source has not: {extra}"

    def cells(
        self, source: SourceTable, columns: Mapping[str, Column], row: dict[str, Any], found: dict[str, Any],
        held: set[tuple[str, str]],
    ) -> Iterator[str]:  # fmt: skip
        names = {column for _, column in held}
        for name, column in columns.items():
            value = found[column.alias]
            if agrees(row[name], value) or (source.name, name) in self.world.stale:
                continue
            if value is None and (name in names or column.alias in names or self.is_told(source, name)):
                continue
            yield (
                f"{source.name}.{name} ({column.type}) is {value!r} where the source ({source.column(name).type}) has"
                f" {row[name]!r} in {row}; held: {sorted(names)}"
            )

    def is_told(self, source: SourceTable, column: str) -> bool:
        """The policy leaves old rows without the column's values, and the sync says so."""
        start = f"{self.world.live.schema}.{source.name}.{column}: rows that do not change keep NULL"
        told = any(note.startswith(start) for note in self.report.notes)
        if told:  # by each sync, and by `status`, until the column is filled
            self.world.stale.add((source.name, column))
        loaded = self.world.store.loaded.of(NAME).values()
        return told and any(c.partial and c.name == column for some in loaded for c in some)

    def heaps(
        self, source: SourceTable, columns: Mapping[str, Column], mine: list[dict[str, Any]],
        found: list[dict[str, Any]], held: set[tuple[str, str]],
    ) -> Iterator[str]:  # fmt: skip
        """Rows without a key, in any order: each of the source's has one that agrees."""
        names = {column for _, column in held}
        left = list(found)
        for row in mine:
            fits = (i for i, r in enumerate(left) if all(
                agrees(row[n], r[c.alias]) or (r[c.alias] is None and {n, c.alias} & names)
                or (source.name, n) in self.world.stale for n, c in columns.items()
            ))  # fmt: skip
            if (place := next(fits, None)) is None:
                yield f"{source.name}: no row at the destination agrees with {row}: {Counter(map(str, left))}"
                return
            left.pop(place)
