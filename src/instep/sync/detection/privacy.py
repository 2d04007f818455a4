"""What was hashed or excluded under one name is not accepted under another without being asked about.

Patterns name tables and columns as they are called; the source may call them otherwise tomorrow. Ids tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from instep.model import Review
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.changes.describe import Change, ColumnAdded, ColumnRenamed, TableAdded, TableRenamed, key
from instep.schema.policy.policy import Decision
from instep.schema.selection.overrides import SelectionSides
from instep.schema.selection.selection import column_is_on, hashed

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

    def hold(self, decisions: Sequence[Decision]) -> tuple[Decision, ...]:
        """Return the decisions with those that would show something in clear waiting for a review."""
        s = self.chosen.before
        if not (s.covers_columns or s.exclude_tables):
            return tuple(decisions)
        return tuple(map(self._one, decisions))

    def _one(self, decision: Decision) -> Decision:
        if not decision.applied or decision.by_person:
            return decision
        if not (why := self._why(decision.change)):
            return decision
        return replace(decision, action="review", rule=RULE, effect="", why=why)

    def _why(self, change: Change) -> str:
        match change:
            case ColumnRenamed() if self._shows(change.table, change.before.name, change.table, change.after.name):
                return _asks(f"{change.before.name} is hashed and {change.after.name} would not be", "hash")
            case TableRenamed():
                names = [c.name for c in change.before.live]
                if any(self._shows(change.before.ref, n, change.after.ref, n) for n in names):
                    return _asks(f"columns of {change.before.path} are hashed and would not be", "hash")
            case ColumnAdded() | TableAdded():
                known = self.answers.get(key(change))
                return known.why if known and known.rule == RULE else self._excluded(change)
        return ""

    def _shows(self, old: tuple[str, str], before: str, new: tuple[str, str], after: str) -> bool:
        return hashed(self.chosen.before, old, before) and not hashed(self.chosen.now, new, after)

    def _excluded(self, change: ColumnAdded | TableAdded) -> str:
        if isinstance(change, TableAdded):
            table = self._by_id.get(change.after.id or "")
            if table and self._table_off(table):
                return _asks(f"it was excluded as {table.path}", "exclude")
            gone = "" if change.after.id else self._gone_with(change.after)
            return _asks(f"{gone} is hashed or switched off, and gone since this table came", "hash") if gone else ""
        if change.after.id is None and (gone := self._gone(change)):
            return _asks(f"{gone} is hashed or switched off, and gone since this column came", "hash")
        old = self._before(change)
        return _asks(f"it was excluded as {old.name}", "exclude") if old else ""

    def _gone(self, change: ColumnAdded) -> str:
        """Return the hashed or excluded column that went as this one came: without ids it may be the same one
        renamed."""
        now = self.source.get(change.table)
        if now is None or hashed(self.chosen.now, change.table, change.after.name):
            return ""
        known = self.accepted.get(change.table), self.last.get(change.table)
        columns = {c.name: c for table in known if table for c in table.live if c.name not in now.by_name}
        covered = (n for n in columns if hashed(self.chosen.before, change.table, n))
        return next(covered, "")

    def _gone_with(self, new: Table) -> str:
        """Return the hashed or excluded column of a table that went as this one came, which has it in clear: without
        ids it may be the same table renamed."""
        shown = [c.name for c in new.live if not hashed(self.chosen.now, new.ref, c.name)]
        known = (*self.accepted.tables, *self.last.tables)
        went = [t for t in known if not t.retained and t.ref not in self.source.by_ref]
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

    def _before(self, change: ColumnAdded) -> Column | None:
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
