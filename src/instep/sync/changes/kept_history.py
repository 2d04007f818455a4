"""Which tables keep their history, put into a plan; what would lose it is refused there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from instep.schema.change import KeyChanged, KeyRemoved, TableReplaced
from instep.schema.names import destination_ref
from instep.schema.policy import Decision, is_reordered_key
from instep.schema.table import Catalog, Table
from instep.sync.detection.places import Places
from instep.sync.pipe import Pipe, Ref


def with_history(pipe: Pipe, after: Catalog) -> Catalog:
    """The accepted catalog that a plan leads to, with the tables that keep their history from now on. One that does so
    goes on, whatever the settings say: its versions would be in the way of its keys."""
    return Catalog.of(replace(t, history=True) if _begins(pipe, t) else t for t in after.tables)


def _begins(pipe: Pipe, table: Table) -> bool:
    return not table.history and not table.retained and bool(table.key) and pipe.settings(table).history


def goes_on(pipe: Pipe, after: Catalog) -> list[str]:
    """One sentence for each table that keeps its history although the settings say so no more."""
    left = [t for t in after.tables if t.history and not t.retained and not pipe.settings(t).history]
    way = "take it out of the connection and load it through another one to have current rows only"
    return [f"{t.path}: it goes on keeping its history, which `history: false` does not take away: {way}" for t in left]


def unkept(pipe: Pipe, decisions: Sequence[Decision], before: Catalog, after: Catalog) -> dict[Ref, str]:
    """Destination tables whose versions a change would mix with other keys or throw away, and what a person can do."""
    places, found = Places.of(decisions), dict[Ref, str]()
    for decision in decisions:
        why = _why(decision) if decision.applied else ""
        table = after.get(places.after(decision.change)) if why else None
        old = before.get(places.before(decision.change))
        if table is None or old is None or not old.history:
            continue
        way = f"`instep table set-key {table.path} KEY --rebuild` keeps its versions in a copy and begins anew"
        found[destination_ref(table, pipe.naming)] = f"{why}, and its history would be lost: {way}"
    return found


def _why(decision: Decision) -> str:
    match decision.change:
        case TableReplaced():
            return "another table has taken its place at the source"
        case KeyChanged() | KeyRemoved() if not is_reordered_key(decision.change):
            return "its key is another one at the source"
    return ""
