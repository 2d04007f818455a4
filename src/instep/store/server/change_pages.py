"""Search of changes: pages of matches, their count, and equal changes of other connections.

A text is matched by the database; a regular expression here, over the names that there are: of those that fit, the
database makes the page. `check_regex` has refused expressions that may be slow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, case, func, literal, or_, select, text, tuple_

from instep.model import Review
from instep.operations.values import EXISTING, ChangeView
from instep.schema.changes.version import BREAKING
from instep.schema.selection.selection import Pattern
from instep.store.catalogs.reviews import review_of, reviews_by_ids
from instep.store.engine.database import Database
from instep.store.server.pages import Place, RowFilter, page_of
from instep.store.tables.catalogs import UNSETTLED, change_digest, discoveries, reviews

_C = reviews.c
_AT_ONCE = 500
"""Values of one statement."""
_PATH = _C.table_schema + "." + _C.table_name + "." + _C.column_name
_PLACE = (_C.table_schema, _C.table_name, _C.column_name)
PAUSES = ("pause_table", "pause_connection")


@dataclass(frozen=True)
class ChangeSearch(RowFilter):
    """Filter of changes."""

    view: ChangeView | None = None
    text: str = ""
    """A part of the names of connection, schema, table and column, in any case, or a regular expression after `re:`,
    which fits all of `schema.table` or `schema.table.column`."""
    assignee: str = ""
    table: tuple[str, str] | None = None

    @property
    def pattern(self) -> Pattern | None:
        """The regular expression; None for a plain text. Raises SchemaError for one that is wrong or may be slow."""
        return Pattern(self.text) if self.text.startswith("re:") else None

    def matching(self, now: datetime) -> list[ColumnElement[bool]]:
        """Return the conditions beside those of `where`, but for a regular expression."""
        conditions: list[ColumnElement[bool]] = []
        if self.view is not None:
            conditions.append(in_view(self.view, now))
        if self.table is not None:
            conditions.append(and_(_C.table_schema == self.table[0], _C.table_name == self.table[1]))
        if self.assignee:
            conditions.append(_C.assignee == self.assignee)
        if self.text and self.pattern is None:
            names = _C.connection + " " + _PATH
            lower = func.lower(names).contains(self.text.lower(), autoescape=True)
            conditions.append(or_(names.contains(self.text, autoescape=True), lower))
        return conditions


@dataclass(frozen=True)
class ChangeCounts:
    """Number of changes that match a search."""

    views: Mapping[ChangeView, int] = field(default_factory=dict)
    """Number per view, whatever view is searched."""
    kinds: Mapping[str, int] = field(default_factory=dict)
    """Number per kind in the view that is searched."""
    total: int = 0
    """Number in the view that is searched."""


@dataclass(frozen=True)
class ChangedTable:
    """A table with unsettled changes; its name is empty for those of a whole schema."""

    schema: str
    name: str
    changes: int
    """Number of its unsettled changes."""
    waiting: int
    """Number of those that wait for a review."""
    breaking: int
    """Number of those that break readers."""


def in_view(view: ChangeView, now: datetime) -> ColumnElement[bool]:
    """Return the condition of a view."""
    asleep = _C.snoozed_until.is_not(None) & (_C.snoozed_until > now)
    awake = _C.snoozed_until.is_(None) | (_C.snoozed_until <= now)
    is_open = _C.status == "open"
    match view:
        case "review":
            return and_(is_open, _C.action.not_in(("apply", "ignore")), awake)
        case "blocked":
            return and_(is_open, _C.action.in_(PAUSES), awake)
        case "snoozed":
            return and_(is_open, _C.action.not_in(("apply", "ignore")), asleep)
        case "pending":
            return or_(_C.status == "approved", and_(is_open, _C.action == "apply"))
        case "ignored":
            return and_(is_open, _C.action == "ignore")
        case "applied":
            return and_(_C.status == "applied", _C.decided_by != "")
        case "auto_applied":
            return and_(_C.status == "applied", _C.decided_by == "")
        case _:
            return _C.status == view


def views_of(status: str, action: str, decided: bool, asleep: bool) -> tuple[ChangeView, ...]:
    """Return the views that a change is in; as `in_view` has them."""
    if status == "open" and action == "ignore":
        return ("ignored",)
    if status == "approved" or (status == "open" and action == "apply"):
        return ("pending",)
    if status == "open":
        if asleep:
            return ("snoozed",)
        return ("review", "blocked") if action in PAUSES else ("review",)
    if status == "applied":
        return ("applied",) if decided else ("auto_applied",)
    return ("rejected",) if status == "rejected" else ("obsolete",)


class ChangePages:
    def __init__(self, database: Database) -> None:
        self._db = database

    def page(self, search: ChangeSearch, after: Place | None = None, limit: int | None = 100) -> list[Review]:
        """Return changes by when they were first seen, latest first."""
        with self._db.read() as transaction:
            conditions = search.matching(self._db.now())
            if (pattern := search.pattern) is not None:
                names = select(*_PLACE).where(*search.where(reviews), *conditions).distinct()
                fitting = [tuple(place) for place in transaction.execute(names) if _fits(pattern, place)]
                if len(fitting) > _AT_ONCE:
                    query = page_of(reviews, _C.first_seen, search, after, None).where(*conditions)
                    return reviews_by_ids(transaction, _first(transaction, query, pattern, limit))
                conditions.append(tuple_(*_PLACE).in_(fitting))
            query = page_of(reviews, _C.first_seen, search, after, limit).where(*conditions)
            return [review_of(row) for row in transaction.execute(query)]

    def counts(self, search: ChangeSearch) -> ChangeCounts:
        """Count what matches, in each view."""
        now, pattern = self._db.now(), search.pattern
        every = replace(search, view=None)
        asleep = and_(_C.snoozed_until.is_not(None), _C.snoozed_until > now)
        by = (_C.status, _C.action, _C.kind, _C.decided_by != "", asleep, *(_PLACE if pattern else ()))
        query = select(*by, func.count()).where(*every.where(reviews), *every.matching(now)).group_by(*by)
        views, kinds = Counter[ChangeView](), Counter[str]()
        with self._db.read() as transaction:
            for status, action, kind, decided, is_asleep, *place, number in transaction.execute(query):
                if pattern is not None and not _fits(pattern, place):
                    continue
                shown_in = views_of(status, action, bool(decided), bool(is_asleep))
                views.update(dict.fromkeys(shown_in, number))
                if search.view is None or search.view in shown_in:
                    kinds[kind] += number
        return ChangeCounts(dict(views), dict(kinds), kinds.total())

    def tables(self, connection: str, after: tuple[str, str] | None, limit: int) -> list[ChangedTable]:
        """Return the tables of a connection with unsettled changes, by name."""
        of = (_C.table_schema, _C.table_name)
        review, broken = in_view("review", self._db.now()), _C.kind.in_(sorted(BREAKING))
        numbers = [func.sum(case((condition, 1), else_=0)) for condition in (review, broken)]
        query = select(*of, func.count(), *numbers).where(_C.connection == connection, _C.status.in_(EXISTING))
        if after is not None:
            query = query.where(tuple_(*of) > tuple_(literal(after[0]), literal(after[1])))
        with self._db.read() as transaction:
            rows = transaction.execute(query.group_by(*of).order_by(*of).limit(limit))
            return [ChangedTable(*row) for row in rows]

    def count_elsewhere(self, changes: Sequence[Review], scope: Collection[str] | None = None) -> Mapping[str, int]:
        """Return in how many other connections the same change stands, by id: of the same kind, of an object of the
        same name, and with the same words."""
        sought = {change.id: change_digest(_row(change)) for change in changes}
        ids = list({digest: id for id, digest in sought.items()}.values())
        other, counts = reviews.alias("other"), dict[str, int]()
        same = select(func.count()).where(
            other.c.likeness == _C.likeness, text(UNSETTLED), *RowFilter(scope).where(other)
        )
        number = same.select_from(other).correlate(reviews).scalar_subquery()
        with self._db.read() as transaction:
            for at in range(0, len(ids), _AT_ONCE):
                query = select(_C.likeness, number).where(_C.id.in_(ids[at : at + _AT_ONCE]))
                counts |= {row[0]: row[1] for row in transaction.execute(query)}
        return {change.id: max(0, counts.get(sought[change.id], 0) - (change.status in EXISTING)) for change in changes}

    def rows(self, changes: Sequence[Review]) -> Mapping[str, int]:
        """Return the rows of the table of each change by the source's statistics, as far as the last detection has seen
        some."""
        names = sorted({change.connection for change in changes})
        stats: dict[tuple[str, str, str], int] = {}
        with self._db.read() as transaction:
            for at in range(0, len(names), _AT_ONCE):
                part = discoveries.c.connection.in_(names[at : at + _AT_ONCE])
                for connection, sizes in transaction.execute(
                    select(discoveries.c.connection, discoveries.c.stats).where(part)
                ):
                    stats |= {(connection, schema, name): rows for schema, name, rows, _ in sizes if rows}
        places = {change.id: (change.connection, *change.table) for change in changes}
        return {id: stats[place] for id, place in places.items() if place in stats}


def _row(review: Review) -> dict[str, Any]:
    schema, table = review.table
    place = {"table_schema": schema, "table_name": table, "column_name": review.column}
    return {"kind": review.kind, "summary": review.summary, **place}


def _first(transaction: Connection, query: Select[Any], pattern: Pattern, limit: int | None) -> list[str]:
    """Return the ids of the first changes whose names fit; where many names do, they are found soon."""
    ids: list[str] = []
    with transaction.execute(query.with_only_columns(_C.id, *_PLACE).execution_options(yield_per=2000)) as rows:
        for id, *place in rows:
            if limit is not None and len(ids) >= limit:
                break
            if _fits(pattern, place):
                ids.append(id)
    return ids


def _fits(pattern: Pattern, place: Sequence[str]) -> bool:
    schema, table, column = place
    path = ".".join(filter(None, (schema, table)))
    return pattern.matches(path) or (bool(column) and pattern.matches(f"{path}.{column}"))


__all__ = ["ChangeCounts", "ChangePages", "ChangeSearch", "ChangedTable", "in_view", "views_of"]
