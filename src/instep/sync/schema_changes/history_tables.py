"""Which tables keep their history, put into a plan; what would lose it is refused there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from instep.errors import ProjectError
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.changes.describe import KeyChanged, KeyRemoved, TableReplaced
from instep.schema.planning.naming import destination_ref
from instep.schema.policy.policy import Decision, is_retyped_key
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.table_renames import TableRenames
from instep.sync.table_mode import choose, why_no_history

_MIXES = (KeyChanged, KeyRemoved, TableReplaced)


def with_history(context: SyncContext, decisions: Sequence[Decision], before: Catalog, after: Catalog) -> Catalog:
    """Return the accepted catalog that a plan leads to, with the tables that keep their history from now on. One that
    does so goes on, whatever the settings say: its versions would be in the way of its keys. A table that is replaced
    by another one of its key goes on, too: rows that the other one does not have end."""
    same = {after.by_ref[ref].ref: old.generation for ref, old in _replaced(decisions, before, after)}
    tables = (replace(t, generation=same.get(t.ref, t.generation)) for t in after.tables)
    return Catalog.of(replace(t, history=True) if _begins(context, t) else t for t in tables)


def _replaced(decisions: Sequence[Decision], before: Catalog, after: Catalog) -> Iterator[tuple[Ref, Table]]:
    """Yield tables of a key that are replaced by others of that key: by the name after, and as they were."""
    places = TableRenames.of(decisions)
    for one in (d.change for d in decisions if d.applied and isinstance(d.change, TableReplaced)):
        ref, old = places.after(one), before.get(places.before(one))
        now = after.get(ref)
        if old is not None and now is not None and old.history and old.key == now.key:
            yield ref, old


def _begins(context: SyncContext, table: Table) -> bool:
    """Not with settings that are refused: who takes `history` out of them has a table as before."""
    if table.history or table.retained:
        return False
    settings = context.settings(table)
    return settings.history and why_no_history(table, settings) is None


def goes_on(context: SyncContext, after: Catalog) -> list[str]:
    """Return one sentence for each table that keeps its history although the settings say so no more."""
    left = [t for t in after.tables if t.history and not t.retained and not context.settings(t).history]
    way = "take it out of the connection and load it through another one to have current rows only"
    return [f"{t.path}: it continues to keep its history, which `history: false` does not remove: {way}" for t in left]


def rekeyed(context: SyncContext, decisions: Sequence[Decision]) -> dict[Ref, str]:
    """Accepted tables with versions whose rows have another key by now, and what a person can do: it is not accepted,
    whatever was decided, and rows that come in part would be taken for versions of others. Where the whole table is
    read, rows that share the old key are noticed. A table that another one has replaced is not read at all."""
    places, keys = TableRenames.of(decisions), dict[Ref, tuple[str, ...] | None]()  # None: values of another type
    for one in (d.change for d in decisions if d.applied):
        if isinstance(one, KeyChanged | KeyRemoved):
            retyped = is_retyped_key(one)
            keys[places.after(one)] = None if retyped else one.after if isinstance(one, KeyChanged) else ()
    accepted = context.store.accepted.catalog(context.name)
    tables = ((accepted.get(ref), key) for ref, key in keys.items())
    mixed = (t for t, key in tables if t is not None and t.history and (key is None or set(t.key) != set(key)))
    return {t.ref: _why(t) for t in mixed if _comes_in_part(context, t)}


def _comes_in_part(context: SyncContext, table: Table) -> bool:
    """Settings that the table cannot follow fail it later, with the reason."""
    try:
        return choose(table, context.settings(table)).partial
    except ProjectError:
        return False


def _why(table: Table) -> str:
    way = f"`instep table set-key {table.path} KEY --rebuild` keeps them in a copy and starts over"
    return f"its key is another one, and its versions have the old one: {way}"


def unkept(context: SyncContext, decisions: Sequence[Decision], before: Catalog, after: Catalog) -> dict[Ref, str]:
    """Destination tables whose versions would have to do with another key, and what a person can do."""
    places, found = TableRenames.of(decisions), dict[Ref, str]()
    for one in (d.change for d in decisions if d.applied and isinstance(d.change, _MIXES)):
        old, table = before.get(places.before(one)), after.get(places.after(one))
        if old is None or table is None or not old.history:
            continue
        if set(old.key) == set(table.key) and not is_retyped_key(one):
            continue
        found[destination_ref(table, context.naming)] = _why(table)
    return found
