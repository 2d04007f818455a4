"""New columns that look personal wait for a person: by their names, and by a few values read from the source.

The values are looked at here and nowhere kept, shown or logged: what is said about them are counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from instep.errors import InstepError
from instep.model import Review
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import Int, String
from instep.schema.changes.describe import Change, ColumnAdded, TableAdded, TableReplaced, key, table_of
from instep.schema.policy.policy import Decision
from instep.schema.selection.selection import hashed
from instep.sources.base import Snapshot
from instep.stage.spec import ReadSession
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.sampling import values

RULE = "protect"
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


def suspects(
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
    found: dict[tuple[Ref, str], str] = {}
    unclear: list[_New] = []
    for change in changes:
        for new in _new(change, source):
            if _is_settled(context, new):
                continue
            if why := _known(answers, new, change) or context.protect.name(new.path, new.column.name):
                found[new.table.ref, new.column.name] = why
            elif isinstance(new.column.type, _SAMPLED):
                unclear.append(new)
    if context.protect.mode == "on" and look and unclear:
        found |= _by_values(context, unclear)
    return {**found, **_whole(changes, found)}


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
    """Why it was held before."""
    for one in (new.change, change):
        review = answers.get(key(one))
        if review is not None and review.rule == RULE and (one == new.change or new.column.name in review.why):
            return review.why.removesuffix(_HINT)
    return ""


def _whole(changes: Sequence[Change], found: Suspects) -> Suspects:
    """Tables that cannot come in without what looks personal: it is in the key, is the cursor, or the table replaces
    another one."""
    suspected: dict[tuple[Ref, str], str] = {}
    for change in changes:
        if not isinstance(change, TableAdded | TableReplaced):
            continue
        table = change.after
        for column in table.columns:
            needed = column.key or column.name == table.cursor or isinstance(change, TableReplaced)
            if needed and (why := found.get((table.ref, column.name))):
                suspected[table.ref, ""] = why if why.startswith("column ") else f"column {column.name}: {why}"
    return suspected


def split(changes: Sequence[Change], found: Suspects) -> list[Change]:
    """New tables come in without the columns that look personal, which are changes of their own."""
    out: list[Change] = []
    for change in changes:
        out.append(change)
        if isinstance(change, TableAdded) and (table := change.after) and (table.ref, "") not in found:
            suspected = [n for n in _new(change, Catalog()) if (table.ref, n.column.name) in found]
            names = {n.column.name for n in suspected}
            if suspected and len(suspected) < len(table.columns):
                out[-1] = TableAdded(replace(table, columns=tuple(c for c in table.columns if c.name not in names)))
                out += [n.change for n in suspected]
    return out


_HINT = ": `changes approve ID --hash` accepts it hashed, `approve` in clear"


def hold(decisions: Iterable[Decision], found: Suspects) -> tuple[Decision, ...]:
    """The decisions with those that a person has to take."""
    return tuple(_for_review(d, found) for d in decisions)


def _for_review(decision: Decision, found: Suspects) -> Decision:
    change = decision.change
    if not decision.applied or decision.rule == "review":
        return decision
    column = change.after.name if isinstance(change, ColumnAdded) else ""
    ref = table_of(change)
    why = found.get((ref, column)) if ref and isinstance(change, ColumnAdded | TableAdded | TableReplaced) else None
    if not why:
        return decision
    return replace(decision, action="review", rule=RULE, effect="", why=f"{why}{_HINT}")


def _by_values(context: SyncContext, unclear: Sequence[_New]) -> Suspects:
    """Columns whose values cannot be looked at are held: they may be anything."""
    found = {}
    try:
        with context.source.snapshot() as snapshot, snapshot.reader.open() as session:
            for new in unclear:
                if why := context.protect.looks(_values(context, snapshot, session, new)):
                    found[new.table.ref, new.column.name] = why
    except InstepError as error:
        why = f"its data could not be read ({error.message.splitlines()[0]})"
        return {(n.table.ref, n.column.name): why for n in unclear} | found
    return found


def _values(context: SyncContext, snapshot: Snapshot, session: ReadSession, new: _New) -> list[str]:
    sampled = values(context, snapshot, session, new.table, new.column, context.protect.sample)
    return [_text(value.as_py()) for some in sampled for value in some]


def _text(one: object) -> str:
    return one.decode(errors="replace") if isinstance(one, bytes) else str(one)
