"""Views under the old names of renamed tables, recorded before the rename and removed when they expire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta

from instep.crash import crashpoint
from instep.destinations.facets import ViewsFacet
from instep.errors import DestinationError, Fenced, InstepError
from instep.events import Event, OldNameEnded, OldNameRetained
from instep.model import Run
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.planning.aliases import OldName, View, current_names, is_present, renames, views, why_over
from instep.schema.planning.naming import destination_ref
from instep.schema.planning.plan import Plan, desired
from instep.sync.claim import claimed
from instep.sync.context import Ref, SyncContext

NONE: Mapping[int, str] = {}


def why_none(context: SyncContext) -> str:
    """Return why the destination can show no old names; "" if it can."""
    if (shown := context.destination.views) is not None:
        return shown.why_none
    return f"no views are kept in a {context.destination.kind} destination"


def remember(context: SyncContext, plan: Plan, batch: str) -> None:
    """Record old names in the transaction that opens the record of a plan. Existing old names follow its renames, even
    if no more are to be kept."""
    old_names = context.store.old_names.of(context.name)
    names = [n for n in _renamed(context, plan, batch) if old_names or n.until > n.at]
    if names and not why_none(context):
        context.store.old_names.add(context.name, names)


def _renamed(context: SyncContext, plan: Plan, batch: str) -> Iterator[OldName]:
    """Yield the renames of a plan, with the time that the table's settings give to old names; none without such a
    setting."""
    now, new_names = context.store.old_names.now(), renames(plan.groups())
    tables = {destination_ref(t, context.naming): t for t in plan.after.tables if t.alias}
    for (_, old), to in new_names.tables.items():
        if to in tables:
            yield OldName(to, "", old, _until(context, tables[to], now), now, batch=batch)
    for (at, old), new in new_names.columns.items():
        if at in tables:
            yield OldName(at, new, old, _until(context, tables[at], now), now, batch=batch)


def _until(context: SyncContext, table: Table, now: datetime) -> datetime:
    return now + timedelta(seconds=context.settings(table).keep_old_names or 0)


def make_room(context: SyncContext, plan: Plan) -> None:
    """Free the names that a plan gives to tables from the views that keep old names."""
    shown = context.destination.views
    if shown is None or not context.store.old_names.of(context.name):
        return
    fold = context.naming.fold
    used = {(t.schema, fold(t.name)) for t in desired(plan.after, context.naming).tables}
    for ref, view in shown.all().items():
        if view.owner == context.name and (ref[0], fold(ref[1])) in used:
            shown.drop(ref)
    crashpoint("old_names.room")


def refresh(context: SyncContext, run: Run, *, last: bool = False, ended: Mapping[int, str] = NONE) -> None:
    """Create the views of active old names and end expired ones. What cannot be shown says so; it never fails a run.
    `last`: all renames of the run are through, so that a missing one will never come. `ended`: why some, by number,
    end before their time."""
    names = context.store.old_names.of(context.name)
    if not names or (shown := context.destination.views) is None:
        return
    catalog, fold = desired(context.store.accepted.catalog(context.name), context.naming), context.naming.fold
    existing, now = current_names(names, catalog, fold), context.store.old_names.now()
    over = {n.number: why for n in existing if (why := ended.get(n.number) or why_over(n, catalog, now, fold))}
    alive = [n for n in existing if n.number not in over]
    with suppress(Fenced):
        trouble = _show(context, shown, views(alive, catalog, context.name), catalog, run)
        crashpoint("old_names.shown")
        alive = [_with_trouble(n, trouble) for n in alive]
        undecided = [n for n in names if n.batch and not last and not is_present(n, catalog)]
        with context.transaction():
            context.store.old_names.replace_all(context.name, [*alive, *undecided])
            context.store.events.add(*_events(context, names, alive, over))


def _show(
    context: SyncContext, shown: ViewsFacet, requested: Mapping[Ref, View], catalog: Catalog, run: Run
) -> dict[Ref, str]:
    """Show the views and return why some cannot be shown. The connection's other views are dropped."""
    fold, trouble = context.naming.fold, dict[Ref, str]()
    tables = {(t.schema, fold(t.name)) for t in catalog.tables}
    longest = context.destination.capabilities.max_name_bytes
    free = {ref: view for ref, view in requested.items() if (ref[0], fold(ref[1])) not in tables}
    trouble |= {ref: f"{'.'.join(ref)} is a table itself" for ref in requested if ref not in free}
    with _noting(trouble, *free):
        for ref, view in shown.all().items():
            if view.owner == context.name and ref not in free:
                shown.drop(ref)
    for ref, view in free.items():
        with _noting(trouble, ref):
            if len(ref[1].encode()) > longest:
                raise DestinationError(f"{'.'.join(ref)} is longer than {longest} bytes")
            shown.put(view, run.fence)
    return trouble


@contextmanager
def _noting(trouble: dict[Ref, str], *refs: Ref) -> Iterator[None]:
    """Record what goes wrong with a view: it is no reason for a run to fail, unless a later one has taken over."""
    try:
        yield
    except Fenced:
        raise
    except (InstepError, OSError) as error:
        trouble |= dict.fromkeys(refs, error.message if isinstance(error, InstepError) else str(error))


def _with_trouble(name: OldName, trouble: Mapping[Ref, str]) -> OldName:
    why = trouble.get(name.view, "")
    return replace(name, shown="" if why else ".".join(name.view), trouble=why)


def _events(
    context: SyncContext, was: Iterable[OldName], now: Iterable[OldName], over: Mapping[int, str]
) -> Iterator[Event]:
    before, after = {n.number: n for n in was}, {n.number: n for n in now}
    for number, name in after.items():
        if name.shown and not before[number].shown:
            yield OldNameRetained(
                context.name, ".".join(name.table), name.old, name.shown, f"{name.until:%Y-%m-%dT%H:%M:%SZ}"
            )
    for number, name in before.items():
        if name.shown and number not in after:
            why = over.get(number, "a later rename took its place")
            yield OldNameEnded(context.name, ".".join(name.table), name.old, name.shown, why)


def of_table(context: SyncContext, path: str, only: str = "") -> list[OldName]:
    """Return the old names of the accepted table of this path and of its columns; InstepError if there is no such
    table, or none that is called `only`."""
    table = context.table(path, (t for t in context.store.accepted.catalog(context.name).tables if t.alias))
    ref = destination_ref(table, context.naming)
    old_names = [n for n in context.store.old_names.of(context.name) if n.table == ref and not n.batch]
    if only and only not in {n.old for n in old_names}:
        names = ", ".join(n.old for n in old_names) or "none"
        raise InstepError(f"{path} keeps no old name {only}", hint=f"its old names: {names}")
    return [n for n in old_names if only in ("", n.old)]


def set_old_names_until(context: SyncContext, names: Iterable[OldName], until: datetime | None) -> None:
    """Keep old names until another time, or end them now (None), as a run of its own. Raises RunInProgress while
    another one of the connection is alive."""
    names = list(names)
    with claimed(context, "apply", paused_too=True) as run:
        context = replace(context, run=run)
        for name in names if until is not None else ():
            context.store.old_names.extend(name.number, until or name.until)
        why = f"ended by {context.who}"
        refresh(context, run, ended=dict.fromkeys((n.number for n in names), why) if until is None else NONE)


def unshown_names(context: SyncContext) -> list[str]:
    """Return which old names cannot be shown, and why."""
    troubled = (n for n in context.store.old_names.of(context.name) if n.trouble)
    return [f"old name {n.old} of {'.'.join(n.table)} is not shown: {n.trouble}" for n in troubled]


def old_name_notes(context: SyncContext, plan: Plan) -> tuple[str, ...]:
    """Return a plan's effects on old names, for people: which stay readable until when, which end; writes nothing."""
    recorded = context.store.old_names.of(context.name)
    new = [n for n in _renamed(context, plan, "planned") if n.until > n.at]
    if not new and not recorded:
        return ()
    catalog, fold, now = desired(plan.after, context.naming), context.naming.fold, context.store.old_names.now()
    if new and (why := why_none(context)):
        return tuple(f"old name {n.old} is not kept: {why}" for n in new)
    old_names = current_names([*recorded, *_renamed(context, plan, "planned")], catalog, fold)
    ends = [(n, why_over(n, catalog, now, fold)) for n in old_names]
    fresh = [n for n, why in ends if n.number == 0 and not why]
    foreign = context.destination.schema.foreign(sorted({n.view for n in fresh}))
    lines = [f"old name {n.old} of {'.'.join(n.table)}: {_stays(n, foreign)}" for n in fresh]
    return (*lines, *(f"old name {n.old} leaves {n.shown}: {why}" for n, why in ends if n.shown and why))


def _stays(name: OldName, foreign: Mapping[Ref, str]) -> str:
    view = ".".join(name.view)
    if name.view in foreign:
        return f"not shown, as {foreign[name.view]}"
    return f"stays readable in {view} until {name.until:%Y-%m-%d}"
