"""Fingerprint of what an approval has seen: a change's table at the source, and the accepted object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from instep.model import Review
from instep.schema.catalog.catalog import Catalog, Column, Table, table_fingerprint
from instep.schema.changes.describe import (
    Change,
    ColumnAdded,
    NameCollided,
    TableAdded,
    TableRemoved,
    TableRenamed,
    key,
    table_of,
)
from instep.schema.changes.diff import WEAK
from instep.schema.policy.policy import Decision
from instep.sync.detection.table_renames import TableRenames

_HEX = 16
_OF_THEIR_OWN = ("column.nullability", "column.default", "column.comment")
"""Changes of what else changes beside others."""


@dataclass(frozen=True)
class ApprovalFingerprint:
    """The two catalogs that a detection compared. `places` says under which accepted name a change's table is known."""

    source: Catalog
    accepted: Catalog
    places: TableRenames
    added: Catalog = field(default_factory=Catalog)
    """Tables as they are about to be accepted: a column that waits beside its new table is judged as if it were."""
    streams: bool = False
    """The source sends records: each may bring another column, which does not concern an approval for one."""

    @classmethod
    def of(
        cls, changes: Iterable[Change], source: Catalog, accepted: Catalog, *, streams: bool = False
    ) -> ApprovalFingerprint:
        changes = list(changes)
        renames = {c.after.ref: (c.before.ref, False) for c in changes if isinstance(c, TableRenamed)}
        added = Catalog.of(c.after for c in changes if isinstance(c, TableAdded))
        return cls(source, accepted, TableRenames(renames), added, streams)

    def fingerprint(self, change: Change) -> str:
        """Return `source:accepted`, with `-` where there is no such table; empty for a change of a schema."""
        ref = table_of(change)
        if ref is None:
            return ""
        now = None if isinstance(change, TableRemoved) else self.source.get(ref)
        if now is not None and self.streams and (name := _column_of(change, "after", "before")):
            now = _touched(now, change, name)
        before = self.accepted.get(self.places.before(change))
        if before is None and isinstance(change, ColumnAdded | NameCollided):
            before = self.added.get(ref)
        touched = _touched(before, change, _column_of(change, "before", "after")) if before else None
        return f"{_print(now)}:{_print(touched)}"

    def stale(self, changes: Iterable[Change], answers: dict[str, Review]) -> frozenset[str]:
        """Return the content keys of the approvals whose table is not what it was when they were given."""
        approved = ((c, answers.get(key(c))) for c in changes)
        return frozenset(
            review.key
            for change, review in approved
            if review is not None and review.status == "approved" and moved_side(review, self.fingerprint(change))
        )


def _touched(table: Table, change: Change, name: str) -> Table:
    """Return the part of a table that a change concerns: the column of this name, else ("") the key. What the policy
    accepts beside it, in the same run that shows the change, does not make an approval stale, nor does a rebuild of
    the table, which is how an approved type that old rows do not fit is applied."""
    columns = tuple(c for c in table.columns if (c.name == name if name else c.key))
    if change.kind not in _OF_THEIR_OWN:
        columns = tuple(replace(c, nullable=True, default=None, comment=None) for c in columns)
    if not name:  # a table that is about to be accepted has no names at the destination yet
        columns = tuple(replace(c, alias="") for c in columns)
    cursor = None if name else table.cursor
    return replace(table, columns=columns, comment=None, alias="", extra=None, generation=0, cursor=cursor)


def _column_of(change: Change, *sides: str) -> str:
    """Return the name of the column that a change is about on the first of these sides, "" if it is about none."""
    column = next(filter(None, (getattr(change, side, None) for side in sides)), None)
    return column.name if isinstance(column, Column) else ""


def _print(table: Table | None) -> str:
    """Return an id that proves nothing when it differs is no part of it."""
    if table is None:
        return "-"
    weak = table.id is not None and table.id.startswith(WEAK)
    return table_fingerprint(replace(table, id=None) if weak else table)[:_HEX]


def moved_side(review: Review, now: str) -> str:
    """Return which side of the change's table has moved since the review saw it, in words; empty if neither, or if
    the review is older than such records."""
    if not review.tables_fingerprint or not now:
        return ""
    before, current = review.tables_fingerprint.split(":"), now.split(":")
    sides = [name for name, a, b in zip(("source", "accepted schema"), before, current, strict=True) if a != b]
    return " and ".join(sides)


def reopened(decisions: Sequence[Decision], answers: Mapping[str, Review]) -> tuple[Decision, ...]:
    """Return the decisions, with changes whose approval has become stale waiting for a person again, even where the
    policy would silently leave them out. `answers` by content key, with the stale ones open."""

    def reopen(decision: Decision) -> Decision:
        review = answers.get(key(decision.change))
        if review is None or review.status != "open" or not review.decided_by or decision.action != "ignore":
            return decision
        why = f"{review.decided_by} approved it, but its table has changed since: waits for a review"
        return replace(decision, action="review", effect="", why=why)

    return tuple(map(reopen, decisions))
