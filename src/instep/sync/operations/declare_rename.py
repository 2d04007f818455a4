"""A removal and an addition become one rename, of columns or of tables, whichever the two paths name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from instep.operations.decide.declare_rename import DeclareRenameRequest
from instep.operations.spec import Preview, Work
from instep.sync.context import SyncContext
from instep.sync.schema_changes import declare_column_rename as of_columns
from instep.sync.schema_changes import declare_table_rename as of_tables


@dataclass(frozen=True)
class Prepared:
    """A mapping that nobody has carried out yet; `lines` say what it does. `whole`: of tables."""

    old: str
    new: str
    whole: bool
    mapped: Any = field(repr=False)

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(self.mapped.lines)

    def document(self, connection: str) -> dict[str, Any]:
        """`backfill`: rows are read again."""
        empty, steps = self.mapped.empty, [s.text for s in self.mapped.plan.steps]
        document = {"connection": connection, "old": self.old, "new": self.new, "steps": steps, "empty": empty}
        return {**document, "backfill": self.whole or bool(empty)}


def prepare(context: SyncContext, old: str, new: str) -> Prepared:
    """Return two paths of tables, or of columns; writes nothing. Errors are those of the two modules."""
    whole = old in {t.path for t in context.store.accepted.catalog(context.name).tables}
    made: Any = of_tables.prepare(context, old, new) if whole else of_columns.prepare(context, old, new)
    return Prepared(old, new, whole, made)


def carry_out(context: SyncContext, made: Prepared) -> int:
    """Answer the accepted version."""
    return of_tables.carry_out(context, made.mapped) if made.whole else of_columns.carry_out(context, made.mapped)


class DeclareRename(Work):
    """The work of the operation `declare_rename`."""

    def prepare(self, context: SyncContext, request: DeclareRenameRequest) -> Preview:
        """Find out what the rename does; errors are those of the two modules."""
        made = prepare(context, request.old, request.new)
        return Preview(context.name, request, made.document(context.name), made.lines, prepared=made)

    def execute(self, context: SyncContext, preview: Preview, allow: Sequence[str]) -> Mapping[str, Any]:
        """Declare it; return the accepted version."""
        return {"version": carry_out(context, preview.prepared)}
