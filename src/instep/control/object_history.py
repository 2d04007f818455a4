"""The history of one table or column through all accepted versions: since when, every change, by whom and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from instep.control.schema_history import SchemaVersion, catalog_of, versions
from instep.errors import InstepError, SchemaError
from instep.model import Review
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.changes.describe import Change, ColumnRenamed, TableRenamed, change_from_dict, describe, reverse
from instep.schema.changes.diff import pair, pair_columns
from instep.schema.changes.version import Ref, between, comparable
from instep.store.history.events import LoggedEvent
from instep.store.store import Store
from instep.suggest import unknown_table

Spot = tuple[Ref, str]
"""An accepted table (column "") or column."""


@dataclass(frozen=True)
class HistoryEntry:
    """One change in an object's history. `version` is the accepted version that it led to, 0 if it was not accepted
    (see `status`); `who` applied it, `decided_by` approved or rejected it, `change` is the id of its review ("" if none
    was recorded)."""

    at: datetime
    version: int
    label: str
    kind: str
    summary: str
    status: str
    who: str = ""
    rule: str = ""
    why: str = ""
    decided_by: str = ""
    change: str = ""
    run: str = ""


@dataclass(frozen=True)
class ColumnStatus:
    """A column of the table and the accepted version that added it."""

    column: str
    type: str
    alias: str
    retained: bool
    """The source has removed it, the destination keeps it."""
    version: int
    label: str
    at: datetime


@dataclass(frozen=True)
class ObjectHistory:
    """History of a table or column."""

    connection: str
    table: str
    column: str
    gone: bool
    """True if it is no longer accepted."""
    names: tuple[str, ...]
    """Names of the object, oldest first."""
    columns: tuple[ColumnStatus, ...]
    """The table's columns, or the one column, as last accepted."""
    entries: tuple[HistoryEntry, ...]
    """Entries, oldest first."""


@dataclass(frozen=True)
class _RecordedChange:
    """A change on record that led to a version: applied, or undone by `who`."""

    review: Review
    at: datetime
    undone: bool
    who: str

    @property
    def change(self) -> Change | None:
        change = _change(self.review)
        return reverse(change) if change and self.undone else change


@dataclass(frozen=True)
class _Mapped:
    """A rename that a person made of a removal and an addition."""

    change: ColumnRenamed
    at: datetime
    who: str


@dataclass(frozen=True)
class _AcceptedHistory:
    """All accepted versions, oldest first, the changes on record for each number, those that people mapped, and all
    reviews. `links[i]` leads from version i - 1 to version i, `backs[i]` back."""

    versions: tuple[SchemaVersion, ...]
    catalogs: tuple[Catalog, ...]
    changes: Mapping[int, Sequence[_RecordedChange]]
    mapped: Mapping[int, Sequence[_Mapped]]
    reviews: Sequence[Review]
    links: tuple[Mapping[Spot, Spot], ...]
    backs: tuple[Mapping[Spot, Spot], ...]


def object_history(store: Store, connection: str, text: str) -> ObjectHistory:
    """Return the history of TABLE or TABLE.COLUMN, under any name that it ever had; the schema may be left out where
    that is clear. InstepError if there is none."""
    past = _past(store, connection)
    at, spot = _find(past, connection, text)
    spots = _follow(past, at, spot)
    last = max(i for i, s in enumerate(spots) if s)
    ref, column = spots[last] or spot
    entries = sorted([*_applied(past, spots), *_not_accepted(past, spots)], key=lambda e: e.at)
    return ObjectHistory(
        connection,
        _path((ref, "")),
        column,
        last < len(spots) - 1,
        tuple(dict.fromkeys(_path(s) for s in spots if s)),
        tuple(_column_statuses(past, last, ref, column)),
        tuple(entries),
    )


def _past(store: Store, connection: str) -> _AcceptedHistory:
    accepted = versions(store, connection, "accepted")
    catalogs = tuple(catalog_of(store, v) for v in accepted)
    reviews = store.reviews.find(connection)
    decisions = _recorded_changes(store, connection, {r.id: r for r in reviews})
    mapped = _mapped(store, connection, {v.version: catalogs[max(i - 1, 0) : i + 1] for i, v in enumerate(accepted)})
    renames = [
        [c for part in (decisions, mapped) for one in part.get(v.version, ()) if (c := one.change)] for v in accepted
    ]
    links = tuple(
        _links(*comparable(catalogs[i - 1], catalogs[i]), renames[i]) if i else {} for i in range(len(accepted))
    )
    backs = tuple({new: old for old, new in link.items()} for link in links)
    return _AcceptedHistory(accepted, catalogs, decisions, mapped, reviews, links, backs)


def _recorded_changes(
    store: Store, connection: str, reviews: Mapping[str, Review]
) -> Mapping[int, Sequence[_RecordedChange]]:
    """Return the recorded changes by accepted version."""
    out: dict[int, list[_RecordedChange]] = {}
    for event in _events(store, connection, "change.applied", "change.undone"):
        if review := reviews.get(event.data["change"]):
            decision = _RecordedChange(review, event.at, event.type == "change.undone", event.data.get("who", ""))
            out.setdefault(event.data["version"], []).append(decision)
    return out


def _events(store: Store, connection: str, *types: str) -> Iterator[LoggedEvent]:
    number = 0
    while events := store.events.after(number, connection=connection, types=types):
        yield from events
        number = events[-1].number


def _mapped(store: Store, connection: str, steps: Mapping[int, Sequence[Catalog]]) -> Mapping[int, Sequence[_Mapped]]:
    """Return declared renames by accepted version; `steps` are the catalogs before and after each.

    Those that are on record as a change are told as such.
    """
    out: dict[int, list[_Mapped]] = {}
    for event in _events(store, connection, "change.mapped"):
        if event.data.get("change"):
            continue
        sides = [t for c in steps.get(event.data["version"], ()) for t in c.tables if t.path == event.data["table"]]
        if len(sides) != 2:
            continue
        old, new = sides[0].by_name.get(event.data["old"]), sides[1].by_name.get(event.data["new"])
        if old is not None and new is not None:
            change = ColumnRenamed(
                sides[1].ref, replace(old, retained=False), replace(old, name=new.name, retained=False)
            )
            out.setdefault(event.data["version"], []).append(_Mapped(change, event.at, event.data["who"]))
    return out


def _change(review: Review) -> Change | None:
    """Parse a review's change; None for a kind that this version does not know."""
    with suppress(SchemaError, KeyError, TypeError):
        return change_from_dict(review.change)
    return None


def _links(before: Catalog, after: Catalog, recorded: Sequence[Change]) -> dict[Spot, Spot]:
    """Return where each table and column of one version is in the next one: by identity, as recorded, then by name."""
    renames = {c.before.ref: c.after.ref for c in recorded if isinstance(c, TableRenamed)}
    pairs = pair(before, after)
    tables = {t.ref: t for t in after.tables}
    went: dict[Ref, Table] = {
        t.ref: tables[renames.get(t.ref, t.ref)] for t in before.tables if renames.get(t.ref, t.ref) in tables
    }
    went |= {old.ref: new for old, new in (*pairs.replaced, *pairs.same)}
    out: dict[Spot, Spot] = {}
    for old in before.tables:
        if (new := went.get(old.ref)) is not None:
            out[old.ref, ""] = new.ref, ""
            out |= {(old.ref, a): (new.ref, b) for a, b in _column_links(old, new, recorded).items()}
    return out


def _column_links(old: Table, new: Table, recorded: Sequence[Change]) -> dict[str, str]:
    there = {c.name for c in new.columns}
    out = {c.name: c.name for c in old.columns if c.name in there}
    out |= {
        c.before.name: c.after.name
        for c in recorded
        if isinstance(c, ColumnRenamed) and c.table == new.ref and c.after.name in there
    }
    out |= {a.name: b.name for a, b in pair_columns(old, new).same}
    return out


def _find(past: _AcceptedHistory, connection: str, text: str) -> tuple[int, Spot]:
    """Return (number of the newest version that has the object, its place there)."""
    for names in (_full, _short):
        for at in range(len(past.catalogs) - 1, -1, -1):
            spots = list(dict.fromkeys(s for s, name in names(past.catalogs[at]) if name == text))
            tables = [s for s in spots if not s[1]] or spots
            if len(tables) == 1:
                return at, tables[0]
            if tables:
                fits = ", ".join(_path(s) for s in tables[:5])
                raise InstepError(f"connection {connection}: {text} may be {fits}", hint="name the schema, too")
    known = {name for c in past.catalogs for names in (_full, _short) for _, name in names(c)}
    message = f"connection {connection} never had a table or column {text}"
    raise unknown_table(message, text, known, "see `instep schema show` for the accepted schema")


def _full(catalog: Catalog) -> Iterator[tuple[Spot, str]]:
    for table in catalog.tables:
        yield (table.ref, ""), table.path
        yield from (((table.ref, c.name), f"{table.path}.{c.name}") for c in table.columns)


def _short(catalog: Catalog) -> Iterator[tuple[Spot, str]]:
    for table in catalog.tables:
        for name in {table.name, table.alias} - {""}:
            yield (table.ref, ""), name
            yield from (((table.ref, c.name), f"{name}.{c.name}") for c in table.columns)


def _path(spot: Spot) -> str:
    return ".".join(filter(None, (*spot[0], spot[1])))


def _follow(past: _AcceptedHistory, at: int, spot: Spot) -> list[Spot | None]:
    """Return where it is in each version; a name that was there before and is linked to nothing is an earlier life."""
    spots: list[Spot | None] = [None] * len(past.catalogs)
    now: Spot | None = spot
    for i in range(at, len(spots)):
        now = spot if i == at else past.links[i].get(now) if now else None
        spots[i] = now
    now = spot
    for i in range(at - 1, -1, -1):
        spots[i] = past.backs[i + 1].get(now)
        if spots[i] is None and _has(past.catalogs[i], now):
            spots[i] = now
        now = spots[i] or now
    return spots


def _has(catalog: Catalog, spot: Spot) -> bool:
    table = catalog.get(spot[0])
    return table is not None and (not spot[1] or spot[1] in table.by_name)


def _applied(past: _AcceptedHistory, spots: Sequence[Spot | None]) -> Iterator[HistoryEntry]:
    """Yield what led to each version: as recorded, else as the two catalogs differ."""
    for i, version in enumerate(past.versions):
        about = [s for s in (spots[i - 1] if i else None, spots[i]) if s]
        recorded = [t for t in past.changes.get(version.version, ()) if _is_about(t.review, about)]
        for entry in recorded:
            yield replace(
                _entry(entry.review, entry.at),
                version=version.version,
                label=version.label,
                run=version.run,
                status="undone" if entry.undone else "applied",
                who=entry.who or version.who,
            )
        mapped = [m for m in past.mapped.get(version.version, ()) if _touches(m.change, about)]
        for one in mapped:
            yield HistoryEntry(
                one.at,
                version.version,
                version.label,
                one.change.kind,
                describe(one.change),
                "applied",
                one.who,
                "mapped",
                f"a person mapped {one.change.before.name} to {one.change.after.name}",
                one.who,
                run=version.run,
            )
        if not recorded and not mapped and about:
            before = past.catalogs[i - 1] if i else Catalog()
            for change in between(before, past.catalogs[i]).changes:
                if _touches(change, about):
                    yield HistoryEntry(
                        version.at,
                        version.version,
                        version.label,
                        change.kind,
                        describe(change),
                        "applied",
                        version.who,
                        why=version.why,
                        run=version.run,
                    )


def _not_accepted(past: _AcceptedHistory, spots: Sequence[Spot | None]) -> Iterator[HistoryEntry]:
    """Yield what was seen and not accepted."""
    about = list(dict.fromkeys(s for s in spots if s))
    done = {t.review.id for decision in past.changes.values() for t in decision}
    for review in past.reviews:
        if review.status != "applied" and review.id not in done and _is_about(review, about):
            yield _entry(review, review.first_seen)


def _entry(review: Review, at: datetime) -> HistoryEntry:
    return HistoryEntry(
        at, 0, "", review.kind, review.summary, review.status, "", review.rule, review.why, review.decided_by, review.id
    )


def _is_about(review: Review, spots: Sequence[Spot]) -> bool:
    change = _change(review)
    if change is not None:
        return _touches(change, spots)
    return any(review.table == ref and review.column in ("", column) for ref, column in spots)


def _touches(change: Any, spots: Sequence[Spot]) -> bool:
    """Return whether a change is about one of these, or about the whole table of one."""
    sides = [s for s in (getattr(change, "before", None), getattr(change, "after", None)) if s is not None]
    refs = {t.ref for t in sides if isinstance(t, Table)} | {getattr(change, "table", None)}
    names = {str(s.name) for s in sides if hasattr(s, "name") and not isinstance(s, Table)}
    names |= {name for s in sides if isinstance(s, tuple) for name in s if change.kind.startswith("key")}
    if getattr(change, "column", None):
        names.add(change.column)
    whole = any(isinstance(s, Table) for s in sides)
    return any(ref in refs and (not column or whole or column in names) for ref, column in spots)


def _column_statuses(past: _AcceptedHistory, last: int, ref: Ref, only: str) -> Iterator[ColumnStatus]:
    table = past.catalogs[last].get(ref)
    for column in table.columns if table else ():
        if only in ("", column.name):
            first = past.versions[_since(past, last, (ref, column.name))]
            yield ColumnStatus(
                column.name, str(column.type), column.alias, column.retained, first.version, first.label, first.at
            )


def _since(past: _AcceptedHistory, last: int, spot: Spot) -> int:
    """Return the number of the version that begins the unbroken chain which ends here."""
    at = last
    while at and (old := past.backs[at].get(spot)) is not None:
        at, spot = at - 1, old
    return at
