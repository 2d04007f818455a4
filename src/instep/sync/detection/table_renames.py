"""Accepted tables by the names that changes use, which are those after renames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from instep.schema.changes.describe import Change, TableRemoved, TableRenamed, table_of
from instep.schema.policy.policy import Decision
from instep.sync.context import Ref


@dataclass(frozen=True)
class TableRenames:
    """The table renames among decisions."""

    renames: Mapping[Ref, tuple[Ref, bool]]
    """Renames by the new name: (the old name, whether it is applied)."""

    @classmethod
    def of(cls, decisions: Iterable[Decision]) -> TableRenames:
        changes = ((d.change, d.applied) for d in decisions)
        return cls({c.after.ref: (c.before.ref, applied) for c, applied in changes if isinstance(c, TableRenamed)})

    def before(self, change: Change) -> Ref:
        """Return the accepted table's name before the decisions are applied; ("", "") for a change of a schema."""
        ref = table_of(change) or ("", "")
        return ref if isinstance(change, TableRemoved) else self.renames.get(ref, (ref, False))[0]

    def after(self, change: Change) -> Ref:
        """Return its name once they are: that of a held rename is the old one."""
        ref = table_of(change) or ("", "")
        old, applied = self.renames.get(ref, (ref, True))
        return ref if applied or isinstance(change, TableRemoved) else old

    @property
    def moves(self) -> dict[Ref, Ref]:
        """Old to new name of the tables whose rename is applied."""
        return {old: new for new, (old, applied) in self.renames.items() if applied}
