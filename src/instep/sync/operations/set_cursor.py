"""Set another cursor of a table, or none, on request. The next sync reads by it, whole or from a value on.

Nothing changes at the destination: its last commit names the cursor that it was read by, so that another one begins
anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from instep.errors import Blocked, InstepError
from instep.events import CursorChosen
from instep.model import Review
from instep.operations.repair.set_cursor import SetCursorRequest
from instep.operations.spec import Preview, Work
from instep.schema.catalog.catalog import Table, fingerprint
from instep.schema.catalog.promotion import ORDERED, same_order
from instep.schema.catalog.types import DataType, Date, Int
from instep.schema.catalog.types import Decimal as DecimalType
from instep.schema.planning.projection import ColumnRead, TableRead
from instep.sync.claim import claimed
from instep.sync.context import SyncContext
from instep.sync.detection.filters import where_of
from instep.sync.schema_changes.table_setting import SettingTable, close_changes, find_table
from instep.sync.two_people import in_text, two_people


@dataclass(frozen=True)
class NewCursor:
    """Effect of giving `table` (as accepted) the cursor; "" for none."""

    table: Table
    cursor: str
    start: str
    base: str
    upper: str = ""
    """The newest value at the source."""
    indexed: bool = False
    settles: tuple[Review, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the text for people."""
        return (*self._reading(), *(f"settles {r.id}: {r.summary}" for r in self.settles))

    def document(self) -> dict[str, Any]:
        document = {"table": self.table.path, "cursor": self.cursor or None, "from": self.start or None}
        return {**document, "newest": self.upper or None, "lines": list(self.lines)}

    def _reading(self) -> Sequence[str]:
        path = self.table.path
        if not self.cursor:
            return (f"{path} is read as a whole by each sync",)
        begin = f"from {self.start} on; older rows are not read" if self.start else "as a whole"
        lines = [
            f"the newest {self.cursor} at the source is {self.upper or 'not there: it has no rows'}",
            f"the next sync reads {path} {begin}, later ones only newer rows",
        ]
        if not self.table.key:
            lines.append("without a key, rows are only ever added")
        if not self.indexed:
            lines.append(f"see that {self.cursor} has an index at the source: each sync looks for its newest values")
        return lines


def prepare(context: SyncContext, path: str, column: str | None, start: str = "") -> NewCursor:
    """Return what the change does; asks the source for the column's newest value and its NULLs, and writes nothing.

    Raises InstepError for a table, column or value that is not there or cannot be one, Blocked if the project file
    names the table's cursor, or rows would be missed.
    """
    setting = find_table(context, path)
    table = setting.table
    if setting.settings.cursor:
        named = f'{{"{path}": {{cursor: {column or chr(39) * 2}}}}}'
        where = f"change it there: connections.{setting.connection}.tables: {named}"
        raise Blocked(f"instep.yml names the cursor of {path}: {setting.settings.cursor}", hint=where)
    base, settles = fingerprint(setting.accepted), tuple(setting.open("cursor."))
    if column is None:
        return NewCursor(table, "", "", base, settles=settles)
    if setting.settings.mode == "full_refresh":
        raise Blocked(
            f"instep.yml says that {path} is loaded by full_refresh", hint="a cursor would not be used: change its mode"
        )
    return replace(_checked(context, setting, column, start), base=base, settles=settles)


def _checked(context: SyncContext, setting: SettingTable, column: str, start: str) -> NewCursor:
    table = setting.table
    accepted, source = setting.column(column)
    name = f"column {table.path}.{column}"
    if not isinstance(accepted.type, ORDERED):
        raise InstepError(
            f"{name} is {accepted.type} and cannot be a cursor",
            hint="a cursor is an integer, a decimal, a date or a timestamp",
        )
    if not same_order(accepted.type, source.type):
        raise Blocked(f"{name} is now {source.type} at the source", hint="decide about its type first")
    if start:
        _check_value(name, accepted.type, start)
    columns = tuple(ColumnRead(c, c) for c in setting.source.columns)
    read = TableRead(setting.source, setting.source, columns, where_of(context, table, setting.source))
    with context.source.snapshot() as snapshot:
        _, bounds = snapshot.cursor_bounds(read, source.name, None, 0)
    if bounds.nulls:
        raise Blocked(
            f"{name} is NULL in {bounds.nulls:,} rows: each sync would read the whole table",
            hint="fill them at the source, or choose a column without NULL",
        )
    indexed = setting.source.key[:1] == (source.name,)
    return NewCursor(table, column, start, "", bounds.upper or "", indexed)


def _check_value(name: str, kind: DataType, text: str) -> None:
    try:
        if isinstance(kind, Int | DecimalType):
            Decimal(text)
        elif isinstance(kind, Date):
            date.fromisoformat(text)
        else:
            datetime.fromisoformat(text)
    except (ValueError, InvalidOperation):
        raise InstepError(
            f"{text!r} is not a value of {name} ({kind})", hint="write 42, 2026-03-31 or 2026-03-31T12:00:00"
        ) from None


def carry_out(context: SyncContext, new: NewCursor) -> int:
    """Set the cursor as one run; return the accepted version. Raises StalePlan if the accepted schema has moved since,
    Blocked if four_eyes want a second person."""
    cursor = f"cursor {in_text(new.cursor)}" if new.cursor else "no cursor"
    what = f"{in_text(new.table.path)}: {cursor}{new.start and f' from {new.start} on'}"
    with two_people(context, "table set-cursor", what), claimed(context, "apply", paused_too=True) as run:
        context = replace(context, run=run)
        store, ref = context.store, new.table.ref
        after = store.accepted.catalog(context.name).put(replace(new.table, cursor=new.cursor or None))
        why = f"cursor of {new.table.path} set to {new.cursor or 'none'}"
        with context.transaction():
            version = store.accepted.add(
                context.name, after, who=context.who, why=why, base=new.base, run=run.id
            ).version
            if new.cursor:
                store.choices.set(context.name, ref, "cursor", (new.cursor,), start=new.start, who=context.who)
            else:
                store.choices.drop(context.name, ref, "cursor")
            close_changes(context, new.settles)
            store.events.add(CursorChosen(context.name, new.table.path, new.cursor, new.start, context.who, version))
        return version


__all__ = ["NewCursor", "carry_out", "prepare"]


class SetCursor(Work):
    """The work of the operation `set_cursor`."""

    def prepare(self, context: SyncContext, request: SetCursorRequest) -> Preview:
        """Look up the column's newest value and its NULLs."""
        preview = prepare(context, request.table, request.column, request.start)
        return Preview(context.name, request, preview.document(), preview.lines, prepared=preview)

    def execute(self, context: SyncContext, preview: Preview, allow: Sequence[str]) -> Mapping[str, Any]:
        """Set the cursor; return the accepted version."""
        return {"version": carry_out(context, preview.prepared)}
