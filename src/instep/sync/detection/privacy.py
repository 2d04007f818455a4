"""Protection of personal data: what was hashed or excluded under one name needs a review to be accepted under another.

Patterns name tables and columns as they are called; the source may call them otherwise tomorrow. Ids tell.

New columns that look personal wait for a person: by their names, and by a few values read from the source.

The values are looked at here and nowhere kept, shown or logged: what is said about them are counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from instep.errors import InstepError
from instep.model import Review
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import Int, String
from instep.schema.changes.describe import (
    Change,
    ColumnAdded,
    ColumnRenamed,
    TableAdded,
    TableRenamed,
    TableReplaced,
    key,
    table_of,
)
from instep.schema.policy.policy import Decision
from instep.schema.selection.overrides import SelectionSides
from instep.schema.selection.selection import column_is_on, hashed
from instep.sources.base import Snapshot
from instep.stage.spec import ReadSession
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.filters import values

RULE = "privacy"


@dataclass(frozen=True)
class PrivacyGuard:
    """`accepted` and `last` (the source as it was seen before) tell the old names, `answers` are the standing reviews
    by content key: what has been held once stays held until it is answered."""

    chosen: SelectionSides
    source: Catalog
    accepted: Catalog
    last: Catalog
    answers: Mapping[str, Review]

    def require_reviews(self, decisions: Sequence[Decision]) -> tuple[Decision, ...]:
        """Return the decisions with those that would show something in clear waiting for a review."""
        s = self.chosen.before
        if not (s.covers_columns or s.exclude_tables):
            return tuple(decisions)
        return tuple(map(self._one, decisions))

    def _one(self, decision: Decision) -> Decision:
        if not decision.applied or decision.by_person:
            return decision
        if not (why := self._reason(decision.change)):
            return decision
        return replace(decision, action="review", rule=RULE, effect="", why=why)

    def _reason(self, change: Change) -> str:
        match change:
            case ColumnRenamed() if self._shows(change.table, change.before.name, change.table, change.after.name):
                return _asks(f"{change.before.name} is hashed and {change.after.name} would not be", "hash")
            case TableRenamed():
                names = [c.name for c in change.before.live]
                if any(self._shows(change.before.ref, n, change.after.ref, n) for n in names):
                    return _asks(f"columns of {change.before.path} are hashed and would not be", "hash")
            case ColumnAdded() | TableAdded():
                review = self.answers.get(key(change))
                return review.why if review and review.rule == RULE else self._excluded(change)
        return ""

    def _shows(self, old: tuple[str, str], before: str, new: tuple[str, str], after: str) -> bool:
        return hashed(self.chosen.before, old, before) and not hashed(self.chosen.now, new, after)

    def _excluded(self, change: ColumnAdded | TableAdded) -> str:
        if isinstance(change, TableAdded):
            table = self._by_id.get(change.after.id or "")
            if table and self._table_off(table):
                return _asks(f"it was excluded as {table.path}", "exclude")
            gone = "" if change.after.id else self._replaced_table(change.after)
            return _asks(f"{gone} is hashed or switched off, and gone since this table came", "hash") if gone else ""
        if change.after.id is None and (gone := self._replaced_column(change)):
            return _asks(f"{gone} is hashed or switched off, and gone since this column came", "hash")
        old = self._earlier_column(change)
        return _asks(f"it was excluded as {old.name}", "exclude") if old else ""

    def _replaced_column(self, change: ColumnAdded) -> str:
        """Return the hashed or excluded column that went as this one came: without ids it may be the same one
        renamed."""
        now = self.source.get(change.table)
        if now is None or hashed(self.chosen.now, change.table, change.after.name):
            return ""
        tables = self.accepted.get(change.table), self.last.get(change.table)
        columns = {c.name: c for table in tables if table for c in table.live if c.name not in now.by_name}
        covered = (n for n in columns if hashed(self.chosen.before, change.table, n))
        return next(covered, "")

    def _replaced_table(self, new: Table) -> str:
        """Return the hashed or excluded column of a table that went as this one came, which has it in clear: without
        ids it may be the same table renamed."""
        shown = [c.name for c in new.live if not hashed(self.chosen.now, new.ref, c.name)]
        tables = (*self.accepted.tables, *self.last.tables)
        went = [t for t in tables if not t.retained and t.ref not in self.source.by_ref]
        covered = (f"{t.path}.{n}" for t in went for n in shown if hashed(self.chosen.before, t.ref, n))
        changes = (
            f"{t.path}.{r.column}"
            for t in went
            for r in self.answers.values()
            if r.rule == RULE and r.table == t.ref and r.column in shown
        )
        return next(covered, "") or next(changes, "")

    @cached_property
    def _by_id(self) -> Mapping[str, Table]:
        return {t.id: t for t in self.last.tables if t.id}

    def _earlier_column(self, change: ColumnAdded) -> Column | None:
        """Return the excluded column that the added one was when the source was last seen."""
        now = self.accepted.get(change.table)
        table = self._by_id.get((now and now.id) or "", self.last.get(change.table))
        if table is None or change.after.id is None:
            return None
        old = next((c for c in table.columns if c.id == change.after.id), None)
        off = old is not None and old.name != change.after.name and not column_is_on(self.chosen.before, table, old)[0]
        return old if off else None

    def _table_off(self, table: Table) -> bool:
        s = self.chosen.before
        return table.path in s.off or any(p.matches(table.path) for p in s.exclude_tables)


def _asks(what: str, section: str) -> str:
    return f"{what}: name it under `{section}`, or approve it as it is"


PROTECT = "protect"
Suspects = Mapping[tuple[Ref, str], str]
"""(table at the source, column) to why it is held; "" as column: the whole table."""
_SAMPLED = (String, Int)


@dataclass(frozen=True)
class _New:
    """A column that is not accepted yet."""

    table: Table
    column: Column
    position: int

    @property
    def path(self) -> str:
        return f"{self.table.path}.{self.column.name}"

    @property
    def change(self) -> ColumnAdded:
        return ColumnAdded(self.table.ref, self.column, self.position)


def find_personal_columns(
    context: SyncContext,
    changes: Sequence[Change],
    source: Catalog,
    answers: Mapping[str, Review],
    *,
    look: bool = True,
) -> Suspects:
    """Return the new columns that look personal, among those that nobody has chosen or hashed. What was held before
    stays so, without another look, until it is answered. `look`: values may be read at the source."""
    if context.protect.mode == "off":
        return {}
    suspects: dict[tuple[Ref, str], str] = {}
    unclear: list[_New] = []
    for change in changes:
        for new in _new(change, source):
            if _is_settled(context, new):
                continue
            if why := _known(answers, new, change) or context.protect.name(new.path, new.column.name):
                suspects[new.table.ref, new.column.name] = why
            elif isinstance(new.column.type, _SAMPLED):
                unclear.append(new)
    if context.protect.mode == "on" and look and unclear:
        suspects |= _by_values(context, unclear)
    return {**suspects, **_unacceptable_tables(changes, suspects)}


def _new(change: Change, source: Catalog) -> Iterator[_New]:
    match change:
        case TableAdded():
            yield from (_New(change.after, c, at) for at, c in enumerate(change.after.columns) if not c.retained)
        case TableReplaced():
            names = {c.name for c in change.before.live}
            yield from (_New(change.after, c, at) for at, c in enumerate(change.after.columns) if c.name not in names)
        case ColumnAdded() if (table := source.get(change.table)) is not None:
            yield _New(table, change.after, change.position)


def _is_settled(context: SyncContext, new: _New) -> bool:
    """Return whether somebody has said about this very column that it may come in, or it is not in clear."""
    s = context.selection
    return new.path in s.on or hashed(s, new.table.ref, new.column.name) or context.protect.allows(new.path)


def _known(answers: Mapping[str, Review], new: _New, change: Change) -> str:
    """Return why the change was blocked before."""
    for side in (new.change, change):
        review = answers.get(key(side))
        if review is not None and review.rule == PROTECT and (side == new.change or new.column.name in review.why):
            return review.why.removesuffix(_HINT)
    return ""


def _unacceptable_tables(changes: Sequence[Change], suspects: Suspects) -> Suspects:
    """Return tables that cannot be accepted without a column that looks personal: it is in the key, is the cursor,
    or the table replaces another one."""
    suspected: dict[tuple[Ref, str], str] = {}
    for change in changes:
        if not isinstance(change, TableAdded | TableReplaced):
            continue
        table = change.after
        for column in table.columns:
            needed = column.key or column.name == table.cursor or isinstance(change, TableReplaced)
            if needed and (why := suspects.get((table.ref, column.name))):
                suspected[table.ref, ""] = why if why.startswith("column ") else f"column {column.name}: {why}"
    return suspected


def split(changes: Sequence[Change], suspects: Suspects) -> list[Change]:
    """Split columns that look personal off new tables, as changes of their own."""
    out: list[Change] = []
    for change in changes:
        out.append(change)
        if isinstance(change, TableAdded) and (table := change.after) and (table.ref, "") not in suspects:
            suspected = [n for n in _new(change, Catalog()) if (table.ref, n.column.name) in suspects]
            names = {n.column.name for n in suspected}
            if suspected and len(suspected) < len(table.columns):
                out[-1] = TableAdded(replace(table, columns=tuple(c for c in table.columns if c.name not in names)))
                out += [n.change for n in suspected]
    return out


_HINT = ": `changes approve ID --hash` accepts it hashed, `approve` in clear"


def require_reviews(decisions: Iterable[Decision], suspects: Suspects) -> tuple[Decision, ...]:
    """Return the decisions with those that a person has to take."""
    return tuple(_for_review(d, suspects) for d in decisions)


def _for_review(decision: Decision, suspects: Suspects) -> Decision:
    change = decision.change
    if not decision.applied or decision.rule == "review":
        return decision
    column = change.after.name if isinstance(change, ColumnAdded) else ""
    ref = table_of(change)
    why = suspects.get((ref, column)) if ref and isinstance(change, ColumnAdded | TableAdded | TableReplaced) else None
    if not why:
        return decision
    return replace(decision, action="review", rule=PROTECT, effect="", why=f"{why}{_HINT}")


def _by_values(context: SyncContext, unclear: Sequence[_New]) -> Suspects:
    """Return columns whose values cannot be looked at: they may be anything, and are blocked."""
    columns = {}
    try:
        with context.source.snapshot() as snapshot, snapshot.reader.open() as session:
            for new in unclear:
                if why := context.protect.looks(_values(context, snapshot, session, new)):
                    columns[new.table.ref, new.column.name] = why
    except InstepError as error:
        why = f"its data could not be read ({error.message.splitlines()[0]})"
        return {(n.table.ref, n.column.name): why for n in unclear} | columns
    return columns


def _values(context: SyncContext, snapshot: Snapshot, session: ReadSession, new: _New) -> list[str]:
    sampled = values(context, snapshot, session, new.table, new.column, context.protect.sample)
    return [_text(value.as_py()) for some in sampled for value in some]


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
