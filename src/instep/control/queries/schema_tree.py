"""Answers about the schema of a connection as a tree: tables and columns with their selection, from the store alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Literal, get_args

from instep.control.queries.context import QueryContext
from instep.control.selection.listing import Listed, ObjectListing
from instep.control.selection.partial import PartialSelection, Searched
from instep.control.selection.selections import SwitchTarget, check
from instep.control.selection.table_states import TableStates
from instep.errors import InstepError, NotFound
from instep.operations.queries.schema_tree import ListSelectedColumns, ListSelectedTables, MatchPattern, SelectionState
from instep.operations.spec import QueryWork
from instep.schema.catalog.catalog import Column, Table
from instep.schema.selection.selection import Pattern
from instep.store.catalog_documents import Ref
from instep.suggest import unknown_table

SHOWN_PATHS = 100
"""Paths that the answer about a pattern has."""


@dataclass(frozen=True)
class SelectedObject:
    """A table or a column with its selection."""

    path: str
    enabled: bool
    why: str
    """Reason why it is on or off."""
    chosen: bool
    """True if a person has switched it; False if that follows from patterns and the policy."""
    lock: str
    """Reason why it cannot be switched; "" if it can be."""
    problem: str
    """Reason why it cannot be replicated; "" if it can be."""
    since: datetime | None
    """Time when it was switched or found, if recorded."""
    who: str


@dataclass(frozen=True)
class SelectedTable(SelectedObject):
    """A table with its selection."""

    schema: str
    name: str
    kind: str
    state: Literal["on", "some", "off"]
    """some: it is on, and some of its columns are off."""
    columns: int
    columns_on: int
    hashed: int
    """Number of its columns that are replicated as hashes."""
    matching: int
    """Number of its columns that the search fits."""
    new: int
    """Number of columns at the source of an accepted table that are neither accepted nor kept out."""
    excluded: int
    """Number of its columns that the project file keeps out."""
    unsupported: int
    """Number of its columns that cannot be replicated."""
    key: tuple[str, ...]
    cursor: str
    mode: str
    """The mode in its settings; auto: chosen by key and cursor."""
    at_source: bool
    accepted: bool


@dataclass(frozen=True)
class SelectedSchema:
    """A schema with its selection."""

    name: str
    enabled: bool
    why: str
    chosen: bool
    tables: int


@dataclass(frozen=True)
class SelectionTotals:
    """The number of tables, and the schemas of the page."""

    tables: int
    """Number of all tables of the connection."""
    matching: int
    """Number of tables that the search and the state fit."""
    states: Mapping[str, int]
    """Number of tables that the search fits, by state."""
    schemas: tuple[SelectedSchema, ...]
    """The schemas that the page's tables are in."""
    seen: datetime | None
    """Time of the last detection."""


@dataclass(frozen=True)
class SelectedColumn(SelectedObject):
    """A column with its selection."""

    number: int
    """Its position in the table, from 1 on."""
    name: str
    hashed: bool
    native: str
    """The source's own type."""
    source_type: str
    accepted_type: str
    """The accepted type; "" if it is not accepted."""
    destination_name: str
    destination_type: str
    """The destination's type as last seen; "" if it is not there."""
    nullable: bool
    key: int
    """The position in the primary key, from 1 on; 0 outside it."""
    cursor: bool
    """True if the column orders changes."""
    note: str
    """Reason for a looser type."""


@dataclass(frozen=True)
class PatternMatches:
    """Matches of a pattern."""

    pattern: str
    tables: int
    columns: int
    paths: tuple[str, ...]
    """The first of them, tables first."""


class SelectedTables(QueryWork):
    """Tables of one connection by schema and name."""

    place_types = (str, str)

    def items(
        self, context: QueryContext, query: ListSelectedTables, after: Sequence[Any] | None, limit: int
    ) -> Sequence[SelectedTable]:
        """Return tables. Raises SchemaError for a regular expression that is wrong or could take long."""
        part = PartialSelection(context.project, context.store, context.connection(query.connection))
        search = Searched(query.search)
        fitting = _fitting(part, search)
        states = TableStates(part, part.listing(())).sorted_into(fitting)
        self._counts = {state: len(states.get(state, ())) for state in get_args(SelectionState)}
        fitting = {ref: columns for ref, columns in fitting.items() if ref in states.get(query.state, ())}
        behind = (after[0], after[1]) if after else None
        page = list(islice((ref for ref in fitting if behind is None or ref > behind), limit))
        self._part, self._matching, self._page = part, len(fitting), page
        self._listing = listing = part.listing(page)
        shown = TableStates(part, listing)
        return [_table(shown, ref, fitting[ref]) for ref in page]

    def place(self, item: SelectedTable) -> Sequence[Any]:
        """Return the table's schema and name."""
        return (item.schema, item.name)

    def page_summary(self, context: QueryContext, query: ListSelectedTables) -> SelectionTotals:
        """Return the number of tables, and the schemas of the page."""
        counts = Counter(schema for schema, _ in self._part.known)
        names = dict.fromkeys(schema for schema, _ in self._page)
        schemas = tuple(_schema(self._listing, name, counts[name]) for name in names)
        return SelectionTotals(len(self._part.known), self._matching, self._counts, schemas, self._part.seen.at)


class SelectedColumns(QueryWork):
    """Columns of one table by their positions."""

    place_types = (int,)

    def items(
        self, context: QueryContext, query: ListSelectedColumns, after: Sequence[Any] | None, limit: int
    ) -> Sequence[SelectedColumn]:
        """Return columns. Raises NotFound for a table that the connection does not have."""
        part = PartialSelection(context.project, context.store, context.connection(query.connection))
        ref = next((ref for ref in part.known if _path(ref) == query.table), None)
        if ref is None:
            paths = list(map(_path, part.known))
            raise unknown_table(
                f"no table {query.table!r} is known", query.table, paths, "check the name", kind=NotFound
            )
        listing = part.listing([ref])
        states = TableStates(part, listing)
        table = states.table(ref)
        there = part.destination_table(table.path)
        begin = after[0] if after else 0
        listed = [column for column in listing.columns(table) if column.column in table.by_name]
        return [
            _column(states, table, one, number, there)
            for number, one in enumerate(listed[begin : begin + limit], begin + 1)
        ]

    def place(self, item: SelectedColumn) -> Sequence[Any]:
        """Return the column's position."""
        return (item.number,)


class PatternLookup(QueryWork):
    """Matches of one pattern at one connection."""

    def find(self, context: QueryContext, query: MatchPattern) -> PatternMatches:
        """Return the matches. Raises SchemaError for a regular expression that is wrong or could take long."""
        pattern = Pattern(query.pattern)
        part = PartialSelection(context.project, context.store, context.connection(query.connection))
        tables = [path for path in map(_path, part.known) if pattern.matches(path)]
        columns = [
            path
            for ref, one in part.known.items()
            for column in one["columns"]
            if not column.get("retained") and pattern.matches(path := f"{_path(ref)}.{column['name']}")
        ]
        return PatternMatches(query.pattern, len(tables), len(columns), (*tables, *columns)[:SHOWN_PATHS])


def _path(ref: Ref) -> str:
    return ".".join(filter(None, ref))


def _fitting(part: PartialSelection, search: Searched) -> Mapping[Ref, int]:
    """Return the tables that a search fits, with the number of columns that it fits."""
    if not search.text:
        return dict.fromkeys(part.known, 0)
    counts = {ref: search.columns(one, _path(ref)) for ref, one in part.known.items()}
    return {ref: columns for ref, columns in counts.items() if columns or search.fits(_path(ref))}


def _schema(listing: ObjectListing, name: str, tables: int) -> SelectedSchema:
    one, switch = listing.schema(name), listing.switches.get((name, "", ""))
    return SelectedSchema(name, one.enabled, one.why, switch is not None and switch.enabled is not None, tables)


def _table(states: TableStates, ref: Ref, matching: int) -> SelectedTable:
    listing, table = states.listing, states.table(ref)
    settings = listing.place.settings(table)
    columns = [column for column in listing.columns(table) if column.column in table.by_name]
    own, on = listing.table(table), sum(one.enabled for one in columns)
    state: Literal["on", "some", "off"] = "off" if not own.enabled else "on" if on == len(columns) else "some"
    return SelectedTable(
        **_common(states, own, SwitchTarget(table.schema, table)),
        schema=table.schema,
        name=table.name,
        kind=table.kind,
        state=state,
        columns=len(columns),
        columns_on=on,
        hashed=sum(bool(one.hashed) for one in columns),
        matching=matching,
        new=len(states.new_columns(ref)),
        excluded=len(states.excluded_columns(ref)),
        unsupported=states.problems(ref),
        key=table.key or tuple(settings.key),
        cursor=settings.cursor or table.cursor or "",
        mode=settings.mode,
        at_source=ref in states.part.source.tables,
        accepted=ref in states.part.accepted.tables,
    )


def _column(states: TableStates, table: Table, item: Listed, number: int, there: Table | None) -> SelectedColumn:
    listing = states.listing
    column, known = table.by_name[item.column], listing.place.accepted.get(table.ref)
    accepted = known.by_name.get(column.name) if known else None
    landed = _landed(there, accepted or column)
    settings = listing.place.settings(table)
    return SelectedColumn(
        **_common(states, item, SwitchTarget(table.schema, table, column)),
        number=number,
        name=column.name,
        hashed=bool(item.hashed),
        native=column.native,
        source_type=str(column.type),
        accepted_type=str(accepted.type) if accepted else "",
        destination_name=landed.name if landed else "",
        destination_type=str(landed.type) if landed else "",
        nullable=column.nullable,
        key=column.key,
        cursor=column.name in (settings.cursor, table.cursor),
        note=column.note,
    )


def _landed(there: Table | None, column: Column) -> Column | None:
    """Return the destination's column of an accepted one, which is called by its alias."""
    if there is None:
        return None
    return next((one for one in there.columns if column.name in (one.alias, one.name)), None)


def _common(states: TableStates, item: Listed, target: SwitchTarget) -> dict[str, Any]:
    switch = states.listing.switches.get((item.schema, item.table, item.column))
    ref = (item.schema, item.table)
    problem = states.problem(ref, item.column)
    return {
        "path": item.path,
        "enabled": item.enabled,
        "why": item.why,
        "chosen": switch is not None and switch.is_chosen,
        "lock": _lock(states, item, target) or (problem if not states.is_listed(ref) else ""),
        "problem": problem,
        "since": item.since,
        "who": item.who,
    }


def _lock(states: TableStates, item: Listed, target: SwitchTarget) -> str:
    try:
        check(states.listing.place, "off" if item.enabled else "on", target)
    except InstepError as error:
        return error.message
    return ""
